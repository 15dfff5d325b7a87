//! Leadership moves without a write that fails, and the interim serves while the winner catches up.

use std::time::{Duration, Instant};

use mandate_kv::{KvClient, KvStatus};
use tokio::task::JoinHandle;

use crate::cluster::{ATTEMPTS, BOUND, Cluster, UNDIRECTED, p};

/// Writes one after the other until told to stop: the longest time between two answers since the last question, in
/// answer to each.
pub(crate) struct Pulse {
    ask: tokio::sync::mpsc::Sender<tokio::sync::oneshot::Sender<Duration>>,
    running: JoinHandle<()>,
}

impl Pulse {
    pub(crate) fn start(mut client: KvClient) -> Self {
        let (ask, mut asked) = tokio::sync::mpsc::channel::<tokio::sync::oneshot::Sender<_>>(1);
        let running = tokio::spawn(async move {
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            loop {
                client.put("pulse", &b"beat"[..]).await.expect("a write is delayed, not failed");
                longest = longest.max(last.elapsed());
                last = Instant::now();
                match asked.try_recv() {
                    Ok(answer) => {
                        let _ = answer.send(std::mem::take(&mut longest));
                    }
                    Err(tokio::sync::mpsc::error::TryRecvError::Disconnected) => return,
                    Err(_) => {}
                }
            }
        });
        Pulse { ask, running }
    }

    /// The longest gap since the last call.
    pub(crate) async fn longest(&self) -> Duration {
        let (answer, told) = tokio::sync::oneshot::channel();
        self.ask.send(answer).await.unwrap();
        told.await.unwrap()
    }

    pub(crate) async fn stop(self) {
        drop(self.ask);
        self.running.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_delayed_and_not_failed_when_leadership_moves() {
    let cluster = Cluster::start(3, &[]);
    cluster.settled().await;
    let pulse = Pulse::start(cluster.client(p(1), BOUND));
    // Raft's lease alone is a second: it is released, not waited for. A busy machine may delay a move for as long, but not each.
    let is_released = |gap: &Duration| *gap < Duration::from_millis(900);
    let (began, mut gaps) = (Instant::now(), Vec::new());
    while gaps.len() < 6 || !gaps.iter().any(is_released) {
        assert!(began.elapsed() < 2 * BOUND, "{gaps:?}");
        cluster.move_on().await;
        gaps.push(pulse.longest().await);
    }
    pulse.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interim_serves_until_the_winner_has_caught_up() {
    // p3 was away while more was written than the log keeps.
    let args = ["--snapshot-every", "200", "--keep-entries", "10"];
    let mut cluster = Cluster::start(3, &args);
    cluster.settled().await;
    let mut client = cluster.client(p(1), BOUND);
    let mut leader = p(3);
    // On a busy machine the leader may be missed just then, and p3 be elected: once more. Whatever moves leadership does so each time.
    for _ in 0..ATTEMPTS {
        cluster.kill(p(3));
        for number in 0..500 {
            client.put(format!("{number}"), vec![7; 1000]).await.unwrap();
        }
        cluster.restart(p(3));
        leader = cluster.settled().await;
        if leader != p(3) {
            break;
        }
    }
    assert_ne!(leader, p(3), "it is not moved to, it just came back");
    cluster.move_to(p(3)).await;
    assert_eq!(client.get("499").await.unwrap().map(|value| value.len()), Some(1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn raft_elects_by_itself_when_nobody_directs_it() {
    let mut cluster = Cluster::start(3, &UNDIRECTED);
    cluster
        .wait("Raft to be left to itself", |statuses| {
            let alone = |status: &KvStatus| status.own_elections && status.elected.is_none();
            statuses.values().all(alone).then_some(())
        })
        .await;
    let leader = cluster.led().await;
    cluster.kill(leader);
    assert_ne!(cluster.led().await, leader);
    cluster.client(p(1), BOUND).put("k", &b"v"[..]).await.unwrap();
}

/// Kills a leader and starts it again before Raft elects another: Raft's term before, and in which somebody leads then.
async fn terms_around_a_restart(extra: &[&str]) -> (u64, u64) {
    let mut cluster = Cluster::start(3, &[&UNDIRECTED[..], extra].concat());
    let before = cluster.leader().await;
    cluster.kill(p(before.member));
    cluster.restart(p(before.member));
    (before.raft_term, cluster.leader().await.raft_term)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_restarted_leads_only_after_an_election() {
    let (before, after) = terms_around_a_restart(&[]).await;
    assert!(after > before, "{after} after {before}");
    // On a busy machine another may be elected before it is back: once more.
    let mut terms = Vec::new();
    for _ in 0..ATTEMPTS {
        let (before, after) = terms_around_a_restart(&["--mutant", "restored-leaders"]).await;
        if after == before {
            return;
        }
        terms.push((before, after));
    }
    panic!("openraft's way, put back, is not found: {terms:?}");
}
