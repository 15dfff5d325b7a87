//! What members show on any ledger, and how to wait for it.

use std::time::{Duration, Instant};

use mandate_ledger::{Change, Ledger, LedgerRoles, Setup, start};
use mandate_proto::election::RoleId;
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Config, Event, Mode, Partition, RoleLoss};
use mandate_runtime::LeadError;
use tokio::sync::broadcast::Receiver;
use tokio::time::sleep;

/// Starts a member for so many roles.
pub(crate) fn member<L: Ledger>(ledger: &L, mode: Mode, roles: u32) -> LedgerRoles {
    let config = Config::new(MemberId::new(1), mode);
    start(ledger, Setup { config, roles }).expect("it starts")
}

/// Waits for a condition, with a bound.
pub(crate) async fn until(
    what: &str,
    bound: Duration,
    mut holds: impl FnMut() -> bool,
) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < bound, "not within {bound:?}: {what}");
        sleep(Duration::from_millis(1)).await;
    }
    began.elapsed()
}

/// How often the roles were acquired, as told so far.
pub(crate) fn acquisitions(changes: &mut Receiver<Change>) -> usize {
    let mut count = 0;
    while let Ok(change) = changes.try_recv() {
        count += usize::from(matches!(change.event, Event::Acquired { .. }));
    }
    count
}

/// Every role is led by one of these, and by one only.
pub(crate) fn is_divided(members: &[&LedgerRoles]) -> bool {
    let roles = members[0].layout().roles();
    (0..roles)
        .map(RoleId::new)
        .all(|role| members.iter().filter(|one| one.is_leader(role)).count() == 1)
}

/// What ended of each partition's roles, and why, as told so far.
pub(crate) fn endings(changes: &mut Receiver<Change>) -> Vec<(Partition, RoleLoss)> {
    let mut found = Vec::new();
    while let Ok(change) = changes.try_recv() {
        if let Event::Ended { partition, loss, .. } = change.event {
            found.push((partition, loss));
        }
    }
    found
}

/// Exclusive mode, from the first member to the last: what the reference implementation's users rely on.
pub(crate) async fn shows_what_is_promised<L: Ledger>(ledger: &L, bound: Duration) {
    let role = RoleId::new(5);
    let first = member(ledger, Mode::Exclusive, 10);
    let mut changes = first.changes();
    until("the first leads everything", bound, || first.owned().len() == 10).await;
    let partitions = first.layout().partitions() as usize;
    assert_eq!(acquisitions(&mut changes), partitions, "each is told once");
    let terms: Vec<_> = (0..10).map(|role| first.term(RoleId::new(role)).unwrap()).collect();

    let second = member(ledger, Mode::Exclusive, 10);
    until("two divide the roles", bound, || {
        is_divided(&[&first, &second]) && !first.owned().is_empty() && !second.owned().is_empty()
    })
    .await;
    let endings = endings(&mut changes);
    for role in (0..10).map(RoleId::new) {
        assert!(!(first.is_leader(role) && second.is_leader(role)), "never two");
        let of_its = |(partition, _): &&(Partition, RoleLoss)| {
            *partition == first.layout().partition_of(role)
        };
        let ended: Vec<_> = endings.iter().filter(of_its).map(|(_, loss)| *loss).collect();
        if first.is_leader(role) {
            assert_eq!(ended, [], "what moves elsewhere changes nothing here");
            assert_eq!(first.term(role), Some(terms[role.get() as usize]), "nor does the term");
        } else {
            assert_eq!(ended, [RoleLoss::Revoked], "losing it ends it, told once");
        }
    }

    until("work begins where it leads", bound, || {
        first.owned().into_iter().any(|role| first.begin(role).is_some())
    })
    .await;
    let election = first.election(role);
    first.shutdown().await;
    assert!(first.ended().is_some());
    assert!(first.owned().is_empty(), "nothing is led after the end");
    assert!(first.begin(role).is_none());
    for election in [election, first.election(role)] {
        assert_eq!(election.led().await.err(), Some(LeadError::Stopped), "use after the end");
    }
    until("the second leads everything", bound, || second.owned().len() == 10).await;
    assert!(second.term(role) > Some(terms[5]), "terms rise");
    second.shutdown().await;
}

/// Proofs that do not come in time end leadership though the partitions are still this member's; with the next
/// ones it leads again, under higher terms. `interrupt` has the ledger not answer for longer than the threshold and
/// for less than a session.
pub(crate) async fn lapses_and_leads_again<L: Ledger>(
    ledger: &L,
    bound: Duration,
    interrupt: impl AsyncFnOnce(),
) {
    let only = member(ledger, Mode::Exclusive, 4);
    until("it leads everything", bound, || only.owned().len() == 4).await;
    let terms: Vec<_> = (0..4).map(|role| only.term(RoleId::new(role)).unwrap()).collect();
    let mut changes = only.changes();
    interrupt().await;
    until("it leads everything again", bound, || only.owned().len() == 4).await;
    let endings = endings(&mut changes);
    assert!(!endings.is_empty(), "it has lapsed");
    for (partition, loss) in endings {
        assert_eq!(loss, RoleLoss::Lapsed, "{partition} was assigned all the time");
        let role = RoleId::new(partition.get());
        assert!(only.term(role).unwrap() > terms[partition.get() as usize], "a higher term");
    }
    only.shutdown().await;
}
