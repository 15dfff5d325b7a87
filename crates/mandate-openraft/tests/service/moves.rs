//! Leadership moves without a write that fails, and the interim serves while the winner catches up.

use std::time::{Duration, Instant};

use mandate_openraft::service::Client;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, p};

/// Writes one after the other until told to stop: the longest time between two answers since the last question, in
/// answer to each.
pub(crate) struct Pulse {
    ask: tokio::sync::mpsc::Sender<tokio::sync::oneshot::Sender<Duration>>,
    running: JoinHandle<()>,
}

impl Pulse {
    pub(crate) fn start(mut client: Client) -> Self {
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
    let mut leader = cluster.settled().await;
    let pulse = Pulse::start(cluster.client(p(1), Duration::from_secs(10)));
    for _ in 0..4 {
        let next = p(leader.get() % 3 + 1);
        let asked = cluster.client(leader, Duration::from_secs(2)).transfer(leader, next).await;
        asked.unwrap();
        leader = cluster.settled().await;
        assert_eq!(leader, next);
        let gap = pulse.longest().await;
        // Raft's lease alone is a second: it is released, not waited for.
        assert!(gap < Duration::from_millis(900), "{gap:?}");
    }
    pulse.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interim_serves_until_the_winner_has_caught_up() {
    // By preference p3, which was away while much was written, and more than the log keeps.
    let args =
        ["--oracle", "preference, history", "--snapshot-every", "1000", "--keep-entries", "100"];
    let mut cluster = Cluster::start(3, &args);
    cluster.settled().await;
    let mut client = cluster.client(p(1), Duration::from_secs(10));
    cluster.kill(p(3));
    for number in 0..1500 {
        client.put(format!("{number}"), vec![7; 1000]).await.unwrap();
    }
    cluster.restart(p(3));
    let leader = cluster.settled().await;
    assert_ne!(leader, p(3), "it is not moved to, it just came back");
    cluster.client(leader, Duration::from_secs(2)).transfer(leader, p(3)).await.unwrap();
    assert_eq!(cluster.settled().await, p(3));
    assert_eq!(client.get("1499").await.unwrap().map(|value| value.len()), Some(1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn raft_elects_by_itself_when_nobody_directs_it() {
    // Nobody is ever a candidate of the election, so that nobody holds a mandate.
    let args = ["--preference", "never", "--patience", "500ms"];
    let cluster = Cluster::start(3, &args);
    let on_its_own = cluster.wait("Raft to elect by itself", |statuses| {
        statuses
            .values()
            .all(|status| status.own_elections && status.elected.is_none())
            .then_some(())
    });
    on_its_own.await;
    let mut cluster = cluster;
    let leader = cluster.wait("a leader of Raft", |statuses| {
        statuses.values().find(|status| status.leads).map(|status| p(status.member))
    });
    let leader = leader.await;
    cluster.kill(leader);
    let next = cluster.wait("another leader of Raft", |statuses| {
        statuses.values().find(|status| status.leads).map(|status| p(status.member))
    });
    assert_ne!(next.await, leader);
    cluster.client(p(1), Duration::from_secs(10)).put("k", &b"v"[..]).await.unwrap();
}
