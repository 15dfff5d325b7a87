//! The worked example, run; and what becomes of its Raft when the drivers have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mandate_openraft::{Answer, DriverConfig, Ended, Order, Refusal, Request};
use mandate_proto::identity::MemberId;
use openraft::ServerState;

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
    let leader = adopt::led_by(members, None).await.unwrap();
    let (next, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let elected = members[&leader].peer.election().state().borrow().mandate().unwrap().term();
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

/// Whoever waited at the gate finds somebody who leads: not nobody, and not the old leader.
#[tokio::test(flavor = "multi_thread")]
async fn writes_that_waited_at_the_gate_are_told_who_leads() {
    let directory = tempfile::tempdir().unwrap();
    let everyone = adopt::start(directory.path()).await.unwrap();
    let members = everyone.get().unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let mut judged = 0;
    for _ in 0..12 {
        let leader = adopt::led_by(members, None).await.unwrap();
        let writers: Vec<_> = (0..16)
            .map(|_| {
                let (everyone, written) = (everyone.clone(), written.clone());
                tokio::spawn(async move {
                    let member = &everyone.get().unwrap()[&leader];
                    loop {
                        let began = Instant::now();
                        let error = match member.write_here("line".into()).await {
                            Ok(_) => {
                                written.fetch_add(1, Ordering::Relaxed);
                                continue;
                            }
                            Err(error) => error,
                        };
                        let forward = error.forward_to_leader().unwrap();
                        // A gate that was held for as long as it may be opens whoever leads.
                        let is_excused = began.elapsed() >= DriverConfig::default().hold;
                        return forward.leader_id.is_some() || is_excused;
                    }
                })
            })
            .collect();
        let next = leader % 3 + 1;
        let moves = || members[&next].driver.status().borrow().moves;
        let (before, target) = (moves(), written.load(Ordering::Relaxed) + 500);
        let began = Instant::now();
        while written.load(Ordering::Relaxed) < target && !writers.iter().all(|it| it.is_finished())
        {
            assert!(began.elapsed() < BOUND, "nothing is written");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        moved(members, next).await;
        let mut told = Vec::new();
        for writer in writers {
            told.push(writer.await.unwrap());
        }
        // Where a busy machine made Raft elect another by itself, nothing passed the gate.
        if moves() == before + 1 {
            judged += 1;
            assert!(told.iter().all(|told| *told), "a write was told that nobody leads: {told:?}");
        }
    }
    assert!(judged >= 3, "leadership moved in order {judged} times of 12");
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
    let leader = &members[&adopt::led_by(members, None).await.unwrap()];
    for _ in 0..3 {
        leader.write_here("line".into()).await.unwrap();
    }
    leader.raft.trigger().snapshot().await.unwrap();
    let made =
        |metrics: &openraft::RaftMetrics<u64, openraft::BasicNode>| metrics.snapshot.is_some();
    leader.raft.wait(Some(BOUND)).metrics(made, "a snapshot").await.unwrap();
    let snapshot = leader.raft.get_snapshot().await.unwrap().expect("it is kept");
    assert_eq!(snapshot.snapshot.into_inner(), 3_u64.to_le_bytes());
}
