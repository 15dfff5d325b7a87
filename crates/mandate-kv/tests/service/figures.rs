//! Figures for the guide: cargo test -p mandate-kv --test service -- --ignored --nocapture figures

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, p};
use crate::moves::Pulse;

const WRITERS: usize = 250;

fn median_and_p99(mut figures: Vec<Duration>) -> (Duration, Duration) {
    figures.sort_unstable();
    (figures[figures.len() / 2], figures[figures.len() * 99 / 100])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute, and it only measures"]
async fn figures_of_the_gap_in_writes_when_leadership_moves() {
    let cluster = Cluster::start(5, &[]);
    let mut leader = cluster.settled().await;
    let pulse = Pulse::start(cluster.client(p(1), Duration::from_secs(10)));
    let (mut gaps, mut usual) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        usual.push(pulse.longest().await);
        let next = p(leader.get() % 5 + 1);
        cluster.client(leader, Duration::from_secs(2)).transfer(leader, next).await.unwrap();
        leader = cluster.settled().await;
        gaps.push(pulse.longest().await);
    }
    pulse.stop().await;
    eprintln!("gap in writes over 30 moves, median and 99 of 100: {:?}", median_and_p99(gaps));
    eprintln!("longest gap in 300 ms without one, likewise: {:?}", median_and_p99(usual));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute, and it only measures"]
async fn figures_of_the_interim() {
    for lag in [1_000, 10_000, 30_000] {
        // Of equals the one with the highest id is wanted: p5, which was away. The log keeps what it lacks.
        let args =
            ["--oracle", "preference", "--keep-entries", "100000", "--snapshot-every", "1000000"];
        let mut cluster = Cluster::start(5, &args);
        cluster.settled().await;
        cluster.client(p(5), Duration::from_secs(2)).transfer(p(5), p(4)).await.unwrap();
        let leader = cluster.settled().await;
        // Clients first: links of the election give a member up that is silent for 3 s.
        let clients: Vec<_> =
            (0..WRITERS).map(|_| cluster.client(leader, Duration::from_secs(10))).collect();
        cluster.pause(p(5));
        let stopped = Instant::now();
        let writing = clients.into_iter().enumerate().map(|(writer, mut client)| {
            tokio::spawn(async move {
                for number in 0..lag / WRITERS {
                    client.put(format!("{writer}/{number}"), vec![7; 1000]).await.unwrap();
                }
            })
        });
        for writer in writing.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let rate = lag as f64 / stopped.elapsed().as_secs_f64();
        // It wakes up in the moment in which the leader dies.
        cluster.resume(p(5));
        cluster.kill(leader);
        let killed = Instant::now();
        let mut client = cluster.client(p(1), Duration::from_secs(20));
        client.put("first", &b"served"[..]).await.unwrap();
        let served = killed.elapsed();
        let winner = cluster.settled().await;
        let led = killed.elapsed();
        eprintln!(
            "{lag} writes behind: served after {served:?}, {winner} led after {led:?} ({rate:.0} writes/s)"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute, and it only measures"]
async fn figures_of_a_winner_that_needs_a_snapshot() {
    for megabytes in [0, 50, 250] {
        // p3 was away, and the log keeps nothing of what it lacks.
        let args = ["--oracle", "preference", "--snapshot-every", "200", "--keep-entries", "10"];
        let mut cluster = Cluster::start(3, &args);
        let leader = cluster.settled().await;
        if leader == p(3) {
            cluster.client(p(3), Duration::from_secs(2)).transfer(p(3), p(2)).await.unwrap();
        }
        let leader = cluster.settled().await;
        cluster.kill(p(3));
        let mut client = cluster.client(leader, Duration::from_secs(20));
        for number in 0..megabytes.max(1) * 10 {
            client.put(format!("{number}"), vec![7; 100_000]).await.unwrap();
        }
        let pulse = Pulse::start(cluster.client(leader, Duration::from_secs(20)));
        cluster.restart(p(3));
        let began = Instant::now();
        pulse.longest().await;
        let wanted = cluster.client(leader, Duration::from_secs(2));
        while wanted.transfer(leader, p(3)).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "p3 is never wanted");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(cluster.settled().await, p(3));
        let led = began.elapsed();
        eprintln!(
            "{megabytes} MB: p3 led after {led:?}, longest gap in writes {:?}",
            pulse.longest().await
        );
        pulse.stop().await;
    }
}
