//! What members show on any ledger, and how to wait for it.

use std::time::{Duration, Instant};

use mandate_ledger::{Change, Ledger, Roles, Setup, start};
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Config, Event, Mode, RoleId};
use tokio::sync::broadcast::Receiver;
use tokio::time::sleep;

/// Starts a member for so many roles.
pub(crate) fn member<L: Ledger>(ledger: &L, mode: Mode, roles: u32) -> Roles {
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
pub(crate) fn is_divided(members: &[&Roles]) -> bool {
    let roles = members[0].layout().roles();
    (0..roles)
        .map(RoleId::new)
        .all(|role| members.iter().filter(|one| one.is_leader(role)).count() == 1)
}

/// Exclusive mode, from the first member to the last: what the reference implementation's users rely on.
pub(crate) async fn shows_what_is_promised<L: Ledger>(ledger: &L, bound: Duration) {
    let role = RoleId::new(5);
    let first = member(ledger, Mode::Exclusive, 10);
    let mut changes = first.changes();
    assert!(!first.is_leader(role), "it starts as no leader");
    until("the first leads everything", bound, || first.owned().len() == 10).await;
    let partitions = first.layout().partitions() as usize;
    assert_eq!(acquisitions(&mut changes), partitions, "each is told once");
    let term = first.term(role).expect("it leads");

    let second = member(ledger, Mode::Exclusive, 10);
    until("two divide the roles", bound, || {
        is_divided(&[&first, &second]) && !first.owned().is_empty() && !second.owned().is_empty()
    })
    .await;
    for role in (0..10).map(RoleId::new) {
        assert!(!(first.is_leader(role) && second.is_leader(role)), "never two");
    }

    until("work begins where it leads", bound, || {
        first.owned().into_iter().any(|role| first.begin(role).is_some())
    })
    .await;
    first.shutdown().await;
    assert!(first.ended().is_some());
    assert!(first.owned().is_empty(), "nothing is led after the end");
    assert!(first.begin(role).is_none());
    until("the second leads everything", bound, || second.owned().len() == 10).await;
    assert!(second.term(role) > Some(term), "terms rise");
    second.shutdown().await;
}
