//! The worked example, run; and what becomes of its Raft when the drivers have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mandate_openraft::{Answer, DriverConfig, Ended, Order, Refusal, Request};
use mandate_proto::identity::MemberId;
use openraft::ServerState;
use tokio::task::JoinHandle;

#[path = "../examples/adopt/main.rs"]
mod adopt;

/// For what hangs.
const BOUND: Duration = Duration::from_secs(60);

#[test]
fn the_worked_example_works() {
    adopt::main().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn raft_elects_by_itself_once_the_drivers_have_ended() {
    let directory = tempfile::tempdir().unwrap();
    let everyone = adopt::start(directory.path()).await.unwrap();
    let members = everyone.get().unwrap();
    let leader = adopt::led_by(members, None).await.unwrap();
    for member in members.values() {
        member.peer.shutdown().await;
    }
    members[&leader].raft.shutdown().await.unwrap();
    let began = Instant::now();
    let leads = |id: &u64| members[id].raft.metrics().borrow().state == ServerState::Leader;
    while !members.keys().filter(|id| **id != leader).any(leads) {
        assert!(began.elapsed() < BOUND, "nobody leads");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// One message with the highest of all terms used to make every member refuse the true director for good.
#[tokio::test(flavor = "multi_thread")]
async fn who_the_own_election_does_not_name_directs_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let everyone = adopt::start(directory.path()).await.unwrap();
    let members = everyone.get().unwrap();
    let (leader, elected) = loop {
        let leader = adopt::led_by(members, None).await.unwrap();
        // On a busy machine it may be deposed before it is asked.
        let state = members[&leader].peer.election().state().borrow().clone();
        if let Some(mandate) = state.mandate() {
            break (leader, mandate.term());
        }
    };
    let (next, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    for (id, member) in members {
        let orders = [Order::Report { led: true }, Order::Elect, Order::Release { to: p(next) }];
        for (from, term) in [(third, elected.get()), (leader, u64::MAX), (third, u64::MAX)] {
            for order in orders {
                let answer = member.driver.answer(p(from), Request { term, order }).await;
                assert!(
                    matches!(answer, Answer::Refused(_)),
                    "p{id} answers p{from} in term {term}: {answer:?}"
                );
            }
        }
    }
    // The true director is obeyed as before.
    moved(members, next).await;
}

/// Has a member elected, and waits until it leads Raft, too.
async fn moved(members: &BTreeMap<u64, adopt::Member>, to: u64) {
    let began = Instant::now();
    loop {
        let leader = adopt::led_by(members, None).await.unwrap();
        if leader == to {
            return;
        }
        // On a busy machine another may have been elected since.
        let _ = members[&leader].peer.election().transfer(p(to)).await;
        assert!(began.elapsed() < BOUND, "p{to} does not come to lead");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn p(id: u64) -> MemberId {
    MemberId::new(id as u32)
}

/// Writes that waited at the gate find somebody who leads: not nobody, and not the old leader.
///
/// Only moves in order are judged. On a busy machine an answer may be late, and the winner then has itself elected without asking the
/// leader to step down, or Raft elects by itself: nothing waits at a gate then. Terms tell them apart: stepping down takes one and
/// the successor's election one; any other election in between takes more.
#[tokio::test(flavor = "multi_thread")]
async fn writes_that_waited_at_the_gate_are_told_who_leads() {
    let directory = tempfile::tempdir().unwrap();
    let everyone = adopt::start(directory.path()).await.unwrap();
    let members = everyone.get().unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut judged = 0;
    while judged < 8 {
        assert!(began.elapsed() < 5 * BOUND, "leadership moved in order {judged} times");
        let leader = adopt::led_by(members, None).await.unwrap();
        let next = leader % 3 + 1;
        let moves = || members[&next].driver.status().borrow().moves;
        let term = |id: u64| members[&id].raft.metrics().borrow().current_term;
        let (moves_before, term_before) = (moves(), term(leader));
        let writers: Vec<_> =
            (0..16).map(|_| write_until_refused(&everyone, leader, &written)).collect();
        let target = written.load(Ordering::Relaxed) + 500;
        while written.load(Ordering::Relaxed) < target && !writers.iter().all(|it| it.is_finished())
        {
            assert!(began.elapsed() < 5 * BOUND, "nothing is written");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        moved(members, next).await;
        let term_after = term(next);
        let mut told = Vec::new();
        for writer in writers {
            told.push(writer.await.unwrap());
        }
        if moves() == moves_before + 1 && term_after == term_before + 2 {
            judged += 1;
            assert!(told.iter().all(|told| *told), "a write was told that nobody leads: {told:?}");
        }
    }
}

/// Writes at a member until it refuses: whether it said who leads. A gate opens after its longest time even if nobody leads.
fn write_until_refused(
    everyone: &adopt::Everyone,
    at: u64,
    written: &Arc<AtomicU64>,
) -> JoinHandle<bool> {
    let (everyone, written) = (everyone.clone(), written.clone());
    tokio::spawn(async move {
        let member = &everyone.get().unwrap()[&at];
        loop {
            let began = Instant::now();
            let Err(error) = member.write_here("line".into()).await else {
                written.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let is_excused = began.elapsed() >= DriverConfig::default().hold;
            return error.forward_to_leader().unwrap().leader_id.is_some() || is_excused;
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_raft_has_ended_gives_the_mandate_back_and_keeps_none() {
    let directory = tempfile::tempdir().unwrap();
    let everyone = adopt::start(directory.path()).await.unwrap();
    let members = everyone.get().unwrap();
    let leader = adopt::led_by(members, None).await.unwrap();
    let dead = &members[&leader];
    dead.raft.shutdown().await.unwrap();
    let ended = tokio::time::timeout(BOUND, dead.driver.ended()).await.unwrap();
    assert_eq!(ended, Ended::Raft);
    assert_eq!(dead.driver.status().borrow().ended, Some(Ended::Raft));
    // Another is elected, and leads.
    let next = adopt::led_by(members, None).await.unwrap();
    assert_ne!(next, leader);
    let answer = dead.driver.answer(p(next), Request { term: 1, order: Order::Elect }).await;
    assert_eq!(answer, Answer::Refused(Refusal::Stopped));
    // Handed the mandate, it does not keep it.
    let began = Instant::now();
    let mut next = next;
    while members[&next].peer.election().transfer(p(leader)).await.is_err() {
        assert!(began.elapsed() < BOUND, "it cannot be handed the mandate");
        next = adopt::led_by(members, None).await.unwrap();
    }
    let leads = |id: &u64| members[id].peer.election().state().borrow().mandate().is_some();
    let began = Instant::now();
    while !members.keys().filter(|id| **id != leader).any(leads) {
        assert!(began.elapsed() < BOUND, "the mandate is not given back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worked_example_has_snapshots() {
    let directory = tempfile::tempdir().unwrap();
    let everyone = adopt::start(directory.path()).await.unwrap();
    let members = everyone.get().unwrap();
    let began = Instant::now();
    let mut asked = 0;
    let (leader, lines) = loop {
        let leader = &members[&adopt::led_by(members, None).await.unwrap()];
        asked += 1;
        match leader.write_here("line".into()).await {
            Ok(lines) if lines >= 3 => break (leader, lines),
            Ok(_) => {}
            // On a busy machine another may lead by now, and the line may have been written.
            Err(error) => assert!(began.elapsed() < BOUND, "{error}"),
        }
    };
    leader.raft.trigger().snapshot().await.unwrap();
    let made =
        |metrics: &openraft::RaftMetrics<u64, openraft::BasicNode>| metrics.snapshot.is_some();
    leader.raft.wait(Some(BOUND)).metrics(made, "a snapshot").await.unwrap();
    let snapshot = leader.raft.get_snapshot().await.unwrap().expect("it is kept");
    let found = u64::from_le_bytes(snapshot.snapshot.into_inner().try_into().unwrap());
    assert!((lines..=asked).contains(&found), "{found} lines, of {lines} to {asked}");
}
