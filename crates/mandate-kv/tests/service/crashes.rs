//! What was acknowledged stays, whichever member is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mandate_kv::{KvClient, RequestError};
use tokio::task::JoinHandle;

use crate::cluster::{ATTEMPTS, BOUND, Cluster, p};

/// What nobody writes: to look for it finds a loss.
const NEVER: u64 = u64::MAX;

/// Clients that write all the time: each counts up under a key of its own.
struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    running: Vec<JoinHandle<Vec<u64>>>,
}

impl Writers {
    fn start(cluster: &Cluster, number: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let members: Vec<_> = cluster.members().collect();
        let running = (0..number).map(|writer| {
            let preferred = members[writer as usize % members.len()];
            let client = cluster.client(preferred, BOUND);
            tokio::spawn(write(client, writer, stop.clone(), acknowledged.clone()))
        });
        Writers { running: running.collect(), stop, acknowledged }
    }

    /// Waits until so many more have been acknowledged.
    async fn progress(&self, by: u64) {
        let target = self.acknowledged.load(Ordering::Relaxed) + by;
        let reached = async {
            while self.acknowledged.load(Ordering::Relaxed) < target {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(BOUND, reached).await;
        waited.expect("writes are acknowledged again");
    }

    /// Stops them: what each had acknowledged.
    async fn finish(self) -> Vec<Vec<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = Vec::new();
        for writer in self.running {
            acknowledged.push(writer.await.unwrap());
        }
        acknowledged
    }
}

async fn write(
    mut client: KvClient,
    writer: u64,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let written =
            client.put(format!("{writer}/{number}"), number.to_string().into_bytes()).await;
        match written {
            Ok(()) => {
                acknowledged.push(number);
                count.fetch_add(1, Ordering::Relaxed);
            }
            // The service has acknowledged that it knows this client, and does not any more.
            Err(RequestError::Expired) => acknowledged.push(NEVER),
            Err(error) => panic!("a write is delayed, not failed: {error}"),
        }
    }
    acknowledged
}

/// How many acknowledged writes are not there any more.
async fn lost(cluster: &Cluster, acknowledged: &[Vec<u64>]) -> usize {
    let mut client = cluster.client(p(1), BOUND);
    let mut lost = 0;
    for (writer, numbers) in acknowledged.iter().enumerate() {
        for number in numbers {
            let found = client.get(format!("{writer}/{number}")).await.unwrap();
            lost += usize::from(found.as_deref() != Some(number.to_string().as_bytes()));
        }
    }
    lost
}

async fn crashes(times: u32) {
    let mut cluster = Cluster::start(5, &["--snapshot-every", "500", "--keep-entries", "100"]);
    cluster.settled().await;
    let writers = Writers::start(&cluster, 8);
    for _ in 0..times {
        writers.progress(40).await;
        let leader = cluster.settled().await;
        cluster.kill(leader);
        writers.progress(40).await;
        cluster.restart(leader);
    }
    let acknowledged = writers.finish().await;
    assert_eq!(lost(&cluster, &acknowledged).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_in_five_leader_crashes() {
    crashes(5).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: cargo test -p mandate-kv --test service -- --ignored hundred"]
async fn no_acknowledged_write_is_lost_in_a_hundred_leader_crashes() {
    crashes(100).await;
}

/// Kills all members in the midst of writes and starts them again: how many writes are lost.
async fn all_at_once(extra: &[&str]) -> usize {
    let mut cluster = Cluster::start(3, extra);
    cluster.settled().await;
    let writers = Writers::start(&cluster, 8);
    for _ in 0..2 {
        writers.progress(200).await;
        cluster.members().for_each(|id| cluster.kill(id));
        cluster.members().for_each(|id| cluster.restart(id));
    }
    writers.progress(50).await;
    let acknowledged = writers.finish().await;
    lost(&cluster, &acknowledged).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_when_all_are_killed_at_once() {
    assert_eq!(all_at_once(&[]).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_not_forced_to_disk_is_found_out() {
    let mut lost = 0;
    // What was not forced may be on disk by chance, if a vote was written after it.
    for _ in 0..ATTEMPTS {
        lost = lost.max(all_at_once(&["--mutant", "unforced-log"]).await);
        if lost > 0 {
            break;
        }
    }
    assert_ne!(lost, 0);
}

/// Writes while both others are stopped: how many writes the leader acknowledges.
async fn alone(extra: &[&str]) -> usize {
    let cluster = Cluster::start(3, extra);
    let leader = cluster.settled().await;
    let mut client = cluster.client(leader, Duration::from_millis(300));
    for number in 0..50 {
        cluster.put(&mut client, &number.to_string()).await;
    }
    let others = cluster.members().filter(|id| *id != leader);
    others.for_each(|id| cluster.pause(id));
    let mut acknowledged = 0;
    for number in 0..3 {
        let written = client.put("key", format!("alone {number}").into_bytes()).await;
        acknowledged += usize::from(written.is_ok());
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_that_no_follower_has() {
    assert_eq!(alone(&[]).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_trusts_what_it_has_sent_is_found_out() {
    let mut acknowledged = 0;
    // On a busy machine it may lose its mandate, or its disk be slow, before it has acknowledged anything.
    for _ in 0..ATTEMPTS {
        acknowledged = acknowledged.max(alone(&["--mutant", "unheard-followers"]).await);
        if acknowledged > 0 {
            break;
        }
    }
    assert_ne!(acknowledged, 0);
}
