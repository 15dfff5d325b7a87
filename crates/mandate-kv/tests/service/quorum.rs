//! A leader without a quorum takes no more than it can hold.

use std::time::Duration;

use crate::cluster::{Cluster, p};

/// Clients offer 240 MB while both followers are stopped. openraft's leader goes on appending; the service does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_a_quorum_refuses_writes_instead_of_hoarding_them() {
    let cluster = Cluster::start(3, &[]);
    let leader = cluster.settled().await;
    let mut clients: Vec<_> =
        (0..60).map(|_| cluster.client(leader, Duration::from_millis(1500))).collect();
    for client in &mut clients {
        cluster.put(client, "value").await;
    }
    let others: Vec<_> = cluster.members().filter(|id| *id != leader).collect();
    others.iter().for_each(|id| cluster.pause(*id));
    let mut reasons: Vec<String> = Vec::new();
    let refused =
        |reasons: &[String]| reasons.iter().filter(|reason| reason.contains("quorum")).count();
    // On a busy machine a refusal may come too late for its client.
    for round in 0..40 {
        if round >= 4 && refused(&reasons) > 60 {
            break;
        }
        let writing = clients.into_iter().enumerate().map(|(number, mut client)| {
            tokio::spawn(async move {
                let written = client.put(format!("{number}"), vec![7; 1 << 20]).await;
                (client, written.unwrap_err().to_string())
            })
        });
        let mut back = Vec::new();
        for writer in writing.collect::<Vec<_>>() {
            let (client, reason) = writer.await.unwrap();
            back.push(client);
            reasons.push(reason);
        }
        clients = back;
    }
    let refused = refused(&reasons);
    assert!(refused > 60, "{refused} of {}: {reasons:?}", reasons.len());
    let log = std::fs::metadata(cluster.data(leader).join("log.redb")).unwrap().len();
    assert!(log < 200 << 20, "the log has {log} bytes");
    others.iter().for_each(|id| cluster.resume(*id));
    let leader = cluster.settled().await;
    cluster.client(p(leader.get()), Duration::from_secs(60)).put("k", &b"v"[..]).await.unwrap();
}
