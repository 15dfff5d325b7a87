//! What clients see under kills, pauses and moves can have happened one after the other.

use std::time::Duration;

use mandate_kv::linearizable::NotLinearizable;
use mandate_kv::witness::Witnesses;

use crate::cluster::{ATTEMPTS, Cluster, UNDIRECTED, p};

/// Injects faults while clients watch, and says what they saw: how many operations, and whether it can have happened.
async fn judge(
    extra: &[&str],
    inject: impl AsyncFnOnce(&mut Cluster),
) -> (usize, Result<(), NotLinearizable>) {
    let mut cluster = Cluster::start(3, extra);
    cluster.led().await;
    let mut witnesses = Witnesses::default();
    for number in 0..9 {
        witnesses.add(cluster.client(p(number % 3 + 1), Duration::from_millis(1500)));
    }
    inject(&mut cluster).await;
    witnesses.judge().await
}

/// Kills the leader and starts it again before anyone else is elected: nobody directs, and Raft itself is slower.
async fn restart_the_leader_at_once(cluster: &mut Cluster) {
    for _ in 0..3 {
        let leader = cluster.led().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.kill(leader);
        cluster.restart(leader);
    }
    cluster.led().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// Kills, pauses and moves.
async fn inject_faults(cluster: &mut Cluster) {
    let pause = || tokio::time::sleep(Duration::from_millis(300));
    for round in 0..2 {
        cluster.move_on().await;
        pause().await;
        let leader = cluster.settled().await;
        cluster.kill(leader);
        pause().await;
        cluster.restart(leader);
        let leader = cluster.settled().await;
        // The old leader wakes up when another leads, and believes for a moment that it still does.
        cluster.pause(leader);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        cluster.resume(leader);
        let follower = cluster.members().find(|id| *id != leader).unwrap();
        if round == 0 {
            cluster.pause(follower);
            pause().await;
            cluster.resume(follower);
        }
    }
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_see_under_kills_pauses_and_moves_is_linearizable() {
    let mut operations = 0;
    // On a busy machine clients do not come to so many in one run.
    for _ in 0..ATTEMPTS {
        let (more, judged) = judge(&[], inject_faults).await;
        judged.unwrap();
        operations += more;
        if operations > 300 {
            return;
        }
    }
    panic!("only {operations} operations");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_from_whoever_is_asked_are_found_out() {
    // No fault is needed: a follower always knows a little less. On a busy machine clients may do nothing in a second.
    for _ in 0..ATTEMPTS {
        let wait = async |_: &mut Cluster| tokio::time::sleep(Duration::from_secs(1)).await;
        if judge(&["--mutant", "stale-reads"], wait).await.1.is_err() {
            return;
        }
    }
    panic!("they are not found out");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_see_when_leaders_are_restarted_at_once_is_linearizable() {
    judge(&UNDIRECTED, restart_the_leader_at_once).await.1.unwrap();
}
