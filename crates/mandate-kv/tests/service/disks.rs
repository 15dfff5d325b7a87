//! What a member does whose disk has lost something, or takes nothing more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cluster::{BOUND, Cluster, p};

/// Ten writes are acknowledged by two of three members. One of the two loses its log, the other is down, the third
/// has never heard of them: nobody may serve without them.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_its_log_refuses_to_start_and_acknowledged_writes_stay() {
    let mut cluster = Cluster::start(3, &["--oracle", "preference"]);
    cluster.settled().await;
    cluster.kill(p(2));
    let leader = cluster.settled().await;
    let other = p(4 - leader.get());
    let mut client = cluster.client(leader, BOUND);
    for number in 0..10 {
        client.put(format!("{number}"), &b"acknowledged"[..]).await.unwrap();
    }
    let log = cluster.data(other).join("log.redb");
    cluster.kill(other);
    cluster.kill(leader);
    let aside = cluster.data(other).join("aside");
    std::fs::rename(&log, &aside).unwrap();
    let complaint = cluster.try_restart(other).unwrap_err();
    assert!(complaint.contains("log.redb is gone"), "{complaint}");
    assert!(!complaint.contains("--lost"), "{complaint}");
    assert!(!log.exists(), "nothing is made in its place");
    cluster.restart(p(2));
    // Found again, it is put back; or the old leader returns. Either has the writes.
    std::fs::rename(&aside, &log).unwrap();
    cluster.restart(other);
    let mut client = cluster.client(p(2), BOUND);
    for number in 0..10 {
        let found = client.get(format!("{number}")).await.unwrap();
        assert_eq!(found.as_deref(), Some(&b"acknowledged"[..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_has_lost_its_disk_is_refused_without_advice_that_cannot_be_followed() {
    let mut cluster = Cluster::start(3, &[]);
    cluster.settled().await;
    cluster.kill(p(3));
    std::fs::remove_dir_all(cluster.data(p(3))).unwrap();
    let complaint = cluster.try_restart(p(3)).unwrap_err();
    assert!(complaint.contains("leave this member down"), "{complaint}");
    assert!(!complaint.contains("--lost"), "{complaint}");
    assert!(!cluster.data(p(3)).exists(), "nothing is made");
}

/// A log that cannot be written ends Raft. The member gives the mandate back and its process ends, so that its
/// supervisor and the other members can do something about it.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_disk_is_full_ends_and_another_is_elected() {
    let mut cluster = Cluster::start(3, &[]);
    cluster.settled().await;
    // The highest of equals wins.
    cluster.kill(p(3));
    cluster.settled().await;
    cluster.restart_with_a_disk_of(p(3), 12 << 10);
    cluster.move_to(p(3)).await;
    let writing = tokio::spawn({
        let mut client = cluster.client(p(1), BOUND);
        async move {
            for number in 0..40 {
                client.put(format!("{number}"), vec![7; 1 << 20]).await.unwrap();
            }
        }
    });
    assert!(!cluster.ends(p(3)).await, "it ends with an error");
    let complaint = cluster.complaint(p(3));
    assert!(complaint.contains("Raft has ended"), "{complaint}");
    writing.await.unwrap();
    let leader = cluster.settled().await;
    assert_ne!(leader, p(3));
}

/// The file in a directory whose name begins so, or none.
fn found(directory: &Path, begins: &str) -> Option<PathBuf> {
    let found = std::fs::read_dir(directory).ok()?.flatten();
    let mut found = found.filter(|file| file.file_name().to_string_lossy().starts_with(begins));
    Some(found.next()?.path())
}

/// Its length.
fn length(directory: &Path, begins: &str) -> Option<u64> {
    Some(found(directory, begins)?.metadata().ok()?.len())
}

/// openraft has the log cut off as soon as a snapshot was received. Reading and storing a large one takes a second, and
/// a member that is killed meanwhile must be able to start again.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_killed_while_it_installs_a_snapshot_starts_again() {
    let mut cluster = Cluster::start(3, &["--snapshot-every", "20", "--keep-entries", "5"]);
    cluster.settled().await;
    cluster.kill(p(3));
    let leader = cluster.settled().await;
    let mut client = cluster.client(leader, BOUND);
    // The log is cut off for 256 entries together.
    for number in 0..400 {
        client.put(format!("{}", number % 100), vec![7; 500_000]).await.unwrap();
    }
    let (from, to) = (cluster.data(leader).join("snapshots"), cluster.data(p(3)).join("snapshots"));
    // A little later each time, until it was installed after all.
    for late in (0..).map(|round| Duration::from_millis(10 * round)) {
        cluster.restart(p(3));
        let began = std::time::Instant::now();
        // Whole, and not installed yet. The leader may have made another since, a few bytes longer.
        while length(&to, "received") < length(&from, "snapshot").map(|whole| whole - 1000) {
            assert!(began.elapsed() < BOUND, "no snapshot was received");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(late).await;
        cluster.kill(p(3));
        if length(&to, "snapshot").is_some() {
            break;
        }
        assert!(length(&to, "received").is_some(), "it was being installed");
    }
    cluster.restart(p(3));
    client.put("last", &b"value"[..]).await.unwrap();
    let upto = cluster.leader().await.last_index;
    cluster
        .wait("p3 to have everything", |statuses| {
            statuses.get(&p(3)).filter(|status| status.applied >= upto).map(drop)
        })
        .await;
}

/// A snapshot that is gone is not an empty state.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_its_snapshot_refuses_to_start() {
    let mut cluster = Cluster::start(3, &["--snapshot-every", "50", "--keep-entries", "5"]);
    let leader = cluster.settled().await;
    let mut client = cluster.client(leader, BOUND);
    let snapshots = cluster.data(p(1)).join("snapshots");
    while found(&snapshots, "snapshot").is_none() {
        client.put("key", &b"value"[..]).await.unwrap();
    }
    // Until entries were cut off, which is done for 256 of them together.
    for _ in 0..400 {
        client.put("key", &b"value"[..]).await.unwrap();
    }
    cluster.terminate(p(1));
    assert!(cluster.ends(p(1)).await);
    std::fs::remove_file(found(&snapshots, "snapshot").unwrap()).unwrap();
    let complaint = cluster.try_restart(p(1)).unwrap_err();
    assert!(complaint.contains("gone or too old"), "{complaint}");
}
