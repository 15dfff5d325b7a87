//! What clients see under kills, pauses and moves can have happened one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mandate_openraft::linearizable::{Action, NotLinearizable, Operation, check};
use mandate_openraft::service::Client;
use rustix::process::Signal;

use crate::cluster::{Cluster, UNDIRECTED, p};

const KEYS: u64 = 4;

/// A client that reads and writes as fast as it is answered, and what it saw.
struct Witness {
    client: Client,
    values: Arc<AtomicU64>,
    began: Instant,
}

impl Witness {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    async fn watch(mut self, seed: u64, stop: Arc<AtomicBool>) -> Vec<(u64, Operation)> {
        let mut seen = Vec::new();
        let mut random = seed;
        while !stop.load(Ordering::Relaxed) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let key = (random >> 33) % KEYS;
            let began = self.now();
            let operation = if (random >> 40).is_multiple_of(2) {
                let value = self.values.fetch_add(1, Ordering::Relaxed);
                let written =
                    self.client.put(key.to_string(), value.to_string().into_bytes()).await;
                // Whatever is not surely done may be.
                let ended = written.is_ok().then(|| self.now());
                Operation { began, ended, action: Action::Write(value) }
            } else {
                match self.client.get(key.to_string()).await {
                    Ok(found) => {
                        let found = found
                            .map(|bytes| std::str::from_utf8(&bytes).unwrap().parse().unwrap());
                        Operation { began, ended: Some(self.now()), action: Action::Read(found) }
                    }
                    Err(_) => continue,
                }
            };
            seen.push((key, operation));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        seen
    }
}

/// Strikes members while clients watch, and says what they saw: how many operations, and whether it can have happened.
async fn judge(
    extra: &[&str],
    strike: impl AsyncFnOnce(&mut Cluster),
) -> (usize, Result<(), NotLinearizable>) {
    let mut cluster = Cluster::start(3, extra);
    cluster.led().await;
    let stop = Arc::new(AtomicBool::new(false));
    let values = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let witnesses: Vec<_> = (0..9)
        .map(|seed| {
            let client = cluster.client(p(seed % 3 + 1), Duration::from_millis(1500));
            let witness = Witness { client, values: values.clone(), began };
            tokio::spawn(witness.watch(seed.into(), stop.clone()))
        })
        .collect();
    strike(&mut cluster).await;
    stop.store(true, Ordering::Relaxed);
    let mut histories: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for witness in witnesses {
        for (key, operation) in witness.await.unwrap() {
            histories.entry(key).or_default().push(operation);
        }
    }
    let operations = histories.values().map(Vec::len).sum();
    (operations, histories.values().try_for_each(|history| check(history)))
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
async fn strike(cluster: &mut Cluster) {
    let pause = || tokio::time::sleep(Duration::from_millis(300));
    for round in 0..2 {
        let leader = cluster.settled().await;
        let next = p(leader.get() % 3 + 1);
        let moved = cluster.client(leader, Duration::from_secs(2)).transfer(leader, next).await;
        moved.unwrap();
        pause().await;
        let leader = cluster.settled().await;
        cluster.kill(leader);
        pause().await;
        cluster.restart(leader);
        let leader = cluster.settled().await;
        // The old leader wakes up when another leads, and believes for a moment that it still does.
        cluster.signal(leader, Signal::STOP);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        cluster.signal(leader, Signal::CONT);
        let follower = cluster.members().find(|id| *id != leader).unwrap();
        if round == 0 {
            cluster.signal(follower, Signal::STOP);
            pause().await;
            cluster.signal(follower, Signal::CONT);
        }
    }
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_see_under_kills_pauses_and_moves_is_linearizable() {
    let (operations, judged) = judge(&[], strike).await;
    assert!(operations > 300, "only {operations} operations");
    judged.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_from_whoever_is_asked_are_found_out() {
    // No strike is needed: a follower always knows a little less.
    let wait = async |_: &mut Cluster| tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, judged) = judge(&["--mutant", "stale-reads"], wait).await;
    judged.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_see_when_leaders_are_restarted_at_once_is_linearizable() {
    judge(&UNDIRECTED, restart_the_leader_at_once).await.1.unwrap();
}
