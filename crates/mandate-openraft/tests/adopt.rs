//! The worked example, run; and what becomes of its Raft when the drivers have ended.

use std::time::{Duration, Instant};

use openraft::ServerState;

#[path = "../examples/adopt/main.rs"]
mod adopt;

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
        assert!(began.elapsed() < Duration::from_secs(10), "nobody leads");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
