//! Roles on a ledger in memory, in real time.

mod behaviour;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use behaviour::{is_divided, lapses_and_leads_again, member, shows_what_is_promised, until};
use mandate_ledger::memory::{
    AssignmentRule, BrokerConfig, ClientConfig, Coordination, GroupId, MemoryLedger, Side,
};
use mandate_ledger::{Ledger, LedgerRoles};
use mandate_proto::election::RoleId;
use mandate_proto::neli::{Mode, RecordDelivery};
use tokio::time::sleep;

const BOUND: Duration = Duration::from_secs(120);

/// Sessions that a busy host does not end: longer than it keeps any thread waiting.
const LONG: Duration = Duration::from_secs(4);

fn ledger(session: Duration, fetches: bool) -> MemoryLedger {
    let heartbeat = session / 6;
    let barrier = session * 2 + heartbeat * 4;
    let broker = BrokerConfig {
        partitions: NonZeroU32::new(4).unwrap(),
        assignor: AssignmentRule::CooperativeSticky,
        shortest_session: Duration::from_millis(10),
        delivery: RecordDelivery::Anyone,
        coordination: Coordination::Generations,
    };
    let client = ClientConfig {
        session,
        heartbeat,
        barrier,
        assignor: AssignmentRule::CooperativeSticky,
        instance: None,
        hides_losses: false,
        renewals: mandate_ledger::memory::Renewals::WithTheRest,
        coordination: Coordination::Generations,
        fetches: fetches.then_some(session / 20),
    };
    MemoryLedger::new(broker, client, GroupId(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn members_divide_roles_and_take_over_from_each_other() {
    // So long that a busy host keeps no renewal from coming in time: lapses are not excused.
    shows_what_is_promised(&ledger(Duration::from_secs(6), false), BOUND).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missed_deadline_fences_while_assigned_and_the_next_proof_leads_again() {
    let ledger = ledger(Duration::from_secs(6), false);
    let interrupted = ledger.clone();
    lapses_and_leads_again(&ledger, BOUND, async || {
        let incarnation = interrupted.members()[0];
        interrupted.cut(incarnation, Side::Coordinator, true);
        sleep(Duration::from_millis(3200)).await;
        interrupted.cut(incarnation, Side::Coordinator, false);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_is_bounded_though_the_ledger_hangs() {
    let ledger = ledger(Duration::from_millis(300), false);
    let only = member(&ledger, Mode::Exclusive, 4);
    until("it leads", BOUND, || only.owned().len() == 4).await;
    ledger.restart(Duration::from_secs(3600));
    tokio::time::timeout(BOUND, only.shutdown()).await.expect("it ends by itself");
    assert!(only.owned().is_empty() && only.ended().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_cut_off_stops_before_another_begins() {
    let ledger = ledger(LONG, false);
    let first = member(&ledger, Mode::Exclusive, 4);
    until("it leads", BOUND, || first.owned().len() == 4).await;
    let incarnation = ledger.members()[0];
    let second = member(&ledger, Mode::Exclusive, 4);
    until("two divide", BOUND, || is_divided(&[&first, &second])).await;
    ledger.cut(incarnation, Side::Coordinator, true);
    let began = Instant::now();
    while second.owned().len() < 4 {
        for role in (0..4).map(RoleId::new) {
            // Asked in this order, two answers of yes would be of one instant or of none.
            assert!(!(second.is_leader(role) && first.is_leader(role)), "two lead {role:?}");
        }
        assert!(began.elapsed() < BOUND, "the second does not take over");
        sleep(Duration::from_micros(500)).await;
    }
    assert!(first.owned().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn work_under_way_holds_a_role_until_it_ends() {
    let ledger = ledger(LONG, false);
    let first = member(&ledger, Mode::Exclusive, 4);
    until("it leads", BOUND, || first.owned().len() == 4).await;
    let work: Vec<_> = (0..4).filter_map(|role| first.begin(RoleId::new(role))).collect();
    assert_eq!(work.len(), 4);
    let second = member(&ledger, Mode::Exclusive, 4);
    until("two are led no more", BOUND, || first.owned().len() == 2).await;
    sleep(Duration::from_millis(50)).await;
    assert!(second.owned().is_empty(), "work is under way");
    drop(work);
    until("two divide", BOUND, || is_divided(&[&first, &second])).await;
}

/// What `mandate run` and [`Election::lead`](mandate_runtime::Election::lead) rely on.
#[tokio::test(flavor = "multi_thread")]
async fn a_mandate_that_is_lent_holds_a_role_until_it_is_back_and_says_for_how_long() {
    // Leases of three seconds: long enough that loans are back before they have to be.
    let ledger = ledger(Duration::from_secs(15), false);
    let bound = BOUND * 4;
    let first = member(&ledger, Mode::Exclusive, 4);
    until("it leads", bound, || first.owned().len() == 4).await;
    let roles = || (0..4).map(RoleId::new);
    let elections: Vec<_> = roles().map(|role| first.election(role)).collect();
    let mut mandates = Vec::new();
    for election in &elections {
        mandates.push(election.led().await.expect("it leads"));
    }
    let loans: Vec<_> = mandates.iter().map(|mandate| mandate.lend().expect("it holds")).collect();
    let second = member(&ledger, Mode::Exclusive, 4);
    until("two are wanted back", bound, || first.owned().len() == 2).await;
    let (kept, moving): (Vec<_>, Vec<_>) = mandates.iter().partition(|mandate| mandate.check());
    assert_eq!((kept.len(), moving.len()), (2, 2));
    for mandate in &moving {
        assert!(mandate.lend().is_none(), "nothing new is begun");
        assert!(mandate.drains_for().is_some(), "and what was begun has time to end");
    }
    assert!(kept.iter().all(|mandate| mandate.drains_for().is_none()));
    sleep(Duration::from_millis(50)).await;
    assert!(second.owned().is_empty(), "work is under way");
    drop(loans);
    until("two divide", bound, || is_divided(&[&first, &second])).await;
    assert!(moving.iter().all(|mandate| mandate.drains_for().is_none()), "it is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_down_for_a_while_loses_leaders_only_for_that_while() {
    let ledger = ledger(Duration::from_millis(300), false);
    let only = member(&ledger, Mode::Exclusive, 4);
    until("it leads", BOUND, || only.owned().len() == 4).await;
    let term = only.term(RoleId::new(0)).unwrap();
    ledger.restart(Duration::from_millis(500));
    until("it lapses", BOUND, || only.owned().is_empty()).await;
    until("it leads again", BOUND, || only.owned().len() == 4).await;
    assert!(only.term(RoleId::new(0)).unwrap() > term);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_share_a_ledger_and_disjoint_ones_lead_every_role_twice() {
    let one = ledger(LONG, true);
    let other = one.with_group(GroupId(1));
    let members = [member(&one, Mode::NonExclusive, 8), member(&other, Mode::NonExclusive, 8)];
    until("each group leads everything", BOUND, || {
        members.iter().all(|member| member.owned().len() == 8)
    })
    .await;
    // An hour's step of the ledger's wall clock changes nothing for longer than a threshold.
    one.step_clock(-3_600_000_000_000);
    sleep(LONG * 4).await;
    // A busy host may cost a lead at any moment, but not for an hour.
    until("each group leads everything still", BOUND, || {
        members.iter().all(|member| member.owned().len() == 8)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_roles_are_all_led_and_each_can_be_asked_for() {
    let ledger = ledger(LONG, false);
    let only = member(&ledger, Mode::Exclusive, 10_000);
    until("it leads, and each can be asked for", BOUND, || {
        only.owned().len() == 10_000 && (0..10_000).all(|role| only.is_leader(RoleId::new(role)))
    })
    .await;
    assert_eq!(ledger.grants().partitions.get(), 4);
}

/// The handle of every engine, on a role.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_an_election_like_any_other() {
    let ledger = ledger(LONG, false);
    let roles = [member(&ledger, Mode::Exclusive, 4), member(&ledger, Mode::Exclusive, 4)];
    let elections = [roles[0].election(RoleId::new(1)), roles[1].election(RoleId::new(1))];
    let mandate = |one: usize| elections[one].state().borrow().mandate().cloned();
    let leads = |one: usize| mandate(one).is_some_and(|mandate| mandate.check());
    // Loads are even by then, so that it stays.
    until("one of two leads", BOUND, || {
        is_divided(&[&roles[0], &roles[1]]) && !roles[1].owned().is_empty() && leads(0) != leads(1)
    })
    .await;
    let leader = usize::from(leads(1));
    let first = mandate(leader).expect("it leads");
    elections[leader].resign().await;
    assert!(!first.check(), "given up before that was said");
    until("the other leads", BOUND, || leads(1 - leader)).await;
    assert!(mandate(1 - leader).expect("it leads").term() > first.term());
    for roles in &roles {
        roles.shutdown().await;
    }
    assert!(!leads(0) && !leads(1));
}

/// Of a group that was expanded after it had started: it counts fewer partitions than there are.
struct Fewer(MemoryLedger);

impl Ledger for Fewer {
    type Member = <MemoryLedger as Ledger>::Member;

    fn grants(&self) -> mandate_proto::neli::Grants {
        let mut grants = self.0.grants();
        grants.partitions = NonZeroU32::new(2).unwrap();
        grants
    }

    fn member(
        &self,
        incarnation: mandate_proto::identity::Incarnation,
        plan: &mandate_proto::neli::LedgerPlan,
    ) -> Result<Self::Member, mandate_ledger::LedgerError> {
        self.0.member(incarnation, plan)
    }
}

/// Looks for keys that both own, while the second is given every chance to lead.
async fn never_both(first: &LedgerRoles, second: &LedgerRoles, lasting: Duration) {
    let keys: Vec<_> = (0..300_u32).map(|key| format!("customer {key}")).collect();
    let began = Instant::now();
    while began.elapsed() < lasting {
        for key in &keys {
            // Asked in this order, two answers of yes would be of one instant or of none.
            let (later, earlier) =
                (second.owns_key(key.as_bytes()), first.owns_key(key.as_bytes()));
            assert!(!(later && earlier), "both own {key}");
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_with_different_numbers_of_roles_never_own_a_key_both_and_the_newcomer_says_why() {
    let ledger = ledger(LONG, false);
    let first = member(&ledger, Mode::Exclusive, 4);
    until("it leads", BOUND, || first.owned().len() == 4).await;
    let second = member(&ledger, Mode::Exclusive, 6);
    until("the newcomer says why", BOUND, || second.standing().disagrees_with.is_some()).await;
    let theirs = second.standing().disagrees_with.unwrap();
    assert_eq!((theirs.roles, second.standing().agreement.roles), (4, 6));
    never_both(&first, &second, LONG * 4).await;
    until("the first leads everything again", BOUND, || first.owned().len() == 4).await;
    assert!(second.owned().is_empty() && first.standing().disagrees_with.is_none());
    // A change of all of them: when the last of the old layout is gone, the new one leads.
    first.shutdown().await;
    until("the second leads", BOUND, || second.owned().len() == 6).await;
    assert_eq!(second.standing().disagrees_with, None);
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_an_expanded_ledger_does_not_lead_beside_those_that_count_fewer_partitions() {
    let ledger = ledger(LONG, false);
    let first = member(&Fewer(ledger.clone()), Mode::Exclusive, 4);
    until("it leads", BOUND, || first.owned().len() == 4).await;
    let second = member(&ledger, Mode::Exclusive, 4);
    until("the newcomer says why", BOUND, || second.standing().disagrees_with.is_some()).await;
    never_both(&first, &second, LONG * 4).await;
    assert!(second.owned().is_empty());
    first.shutdown().await;
    until("the second leads", BOUND, || second.owned().len() == 4).await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_member_does_not_lead_beside_a_non_exclusive_one() {
    let ledger = ledger(LONG, true);
    let first = member(&ledger, Mode::NonExclusive, 4);
    until("it leads", BOUND, || first.owned().len() == 4).await;
    let second = member(&ledger, Mode::Exclusive, 4);
    until("the newcomer says why", BOUND, || second.standing().disagrees_with.is_some()).await;
    assert_eq!(second.standing().disagrees_with.unwrap().mode, Mode::NonExclusive);
    never_both(&first, &second, LONG * 4).await;
    first.shutdown().await;
    until("the second leads", BOUND, || second.owned().len() == 4).await;
    second.shutdown().await;
}
