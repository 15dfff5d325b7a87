//! Roles on a ledger in memory, in real time.

mod behaviour;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use behaviour::{is_divided, lapses_and_leads_again, member, shows_what_is_promised, until};
use mandate_ledger::Ledger;
use mandate_ledger::memory::{Assignor, BrokerConfig, ClientConfig, GroupId, MemoryLedger, Side};
use mandate_proto::neli::{Delivery, Mode, RoleId};
use tokio::time::sleep;

const BOUND: Duration = Duration::from_secs(20);

fn ledger(session: Duration, fetches: bool) -> MemoryLedger {
    let heartbeat = session / 6;
    let barrier = session * 2 + heartbeat * 4;
    let broker = BrokerConfig {
        partitions: NonZeroU32::new(4).unwrap(),
        assignor: Assignor::CooperativeSticky,
        shortest_session: Duration::from_millis(10),
        delivery: Delivery::Anyone,
    };
    let client = ClientConfig {
        session,
        heartbeat,
        barrier,
        assignor: Assignor::CooperativeSticky,
        instance: None,
        fetches: fetches.then_some(session / 20),
    };
    MemoryLedger::new(broker, client, GroupId(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn members_divide_roles_and_take_over_from_each_other() {
    shows_what_is_promised(&ledger(Duration::from_millis(300), false), BOUND).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missed_deadline_fences_while_assigned_and_the_next_proof_leads_again() {
    let ledger = ledger(Duration::from_millis(1500), false);
    let interrupted = ledger.clone();
    lapses_and_leads_again(&ledger, BOUND, async || {
        let life = interrupted.members()[0];
        interrupted.cut(life, Side::Coordinator, true);
        sleep(Duration::from_millis(800)).await;
        interrupted.cut(life, Side::Coordinator, false);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_is_bounded_though_the_ledger_hangs() {
    let ledger = ledger(Duration::from_millis(300), false);
    let only = member(&ledger, Mode::Exclusive, 4);
    until("it leads", BOUND, || only.owned().len() == 4).await;
    ledger.restart(Duration::from_secs(3600));
    let began = Instant::now();
    only.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(only.owned().is_empty() && only.ended().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_cut_off_stops_before_another_begins() {
    let ledger = ledger(Duration::from_millis(300), false);
    let first = member(&ledger, Mode::Exclusive, 4);
    until("it leads", BOUND, || first.owned().len() == 4).await;
    let life = ledger.members()[0];
    let second = member(&ledger, Mode::Exclusive, 4);
    until("two divide", BOUND, || is_divided(&[&first, &second])).await;
    ledger.cut(life, Side::Coordinator, true);
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
    let ledger = ledger(Duration::from_millis(300), false);
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
    let one = ledger(Duration::from_millis(400), true);
    let other = one.with_group(GroupId(1));
    let members = [member(&one, Mode::NonExclusive, 8), member(&other, Mode::NonExclusive, 8)];
    until("each group leads everything", BOUND, || {
        members.iter().all(|member| member.owned().len() == 8)
    })
    .await;
    // An hour's step of the ledger's calendar changes nothing for longer than a threshold.
    one.step_clock(-3_600_000_000_000);
    sleep(Duration::from_millis(1500)).await;
    assert!(members.iter().all(|member| member.owned().len() == 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_whether_one_leads_costs_no_more_than_a_look_at_the_clock() {
    let ledger = ledger(Duration::from_secs(2), false);
    let only = member(&ledger, Mode::Exclusive, 10_000);
    until("it leads", BOUND, || only.owned().len() == 10_000).await;
    let began = Instant::now();
    let led = (0..1_000_000u32).filter(|n| only.is_leader(RoleId::new(n % 10_000))).count();
    let each = began.elapsed() / 1_000_000;
    assert_eq!(led, 1_000_000);
    // Some 30 ns on an idle host; a lock or a queue would show.
    assert!(each < Duration::from_micros(2), "{each:?} each");
    assert_eq!(ledger.grants().partitions.get(), 4);
}

/// The handle of every engine, on a role.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_an_election_like_any_other() {
    let ledger = ledger(Duration::from_millis(300), false);
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
