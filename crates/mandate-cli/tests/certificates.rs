//! Certificates are replaced while the members run: nobody restarts, no link breaks, and the leader stays.

mod group;

use std::fs;
use std::time::Duration;

use group::{Group, mandate, within};

fn certs(group: &Group, args: &[&str]) -> std::process::Output {
    mandate()
        .args(["certs", "--group", "test", "--dir"])
        .arg(group.directory.path().join("certs"))
        .args(args)
        .output()
        .unwrap()
}

fn made(group: &Group, args: &[&str]) {
    let output = certs(group, args);
    assert!(output.status.success(), "{output:?}");
}

fn log(group: &Group, id: u32) -> String {
    fs::read_to_string(group.directory.path().join(format!("p{id}.log"))).unwrap_or_default()
}

/// Waits until a text is in the log of each for the so-manyth time.
fn logged(group: &Group, ids: &[u32], text: &str, times: usize) {
    for id in ids {
        within(Duration::from_secs(20), text, || {
            (log(group, *id).matches(text).count() >= times).then_some(())
        });
    }
}

fn term(group: &Group, id: u32) -> u64 {
    let (_, body) = group.http(id, "GET", "/v1/status", "").unwrap();
    let status: serde_json::Value = serde_json::from_str(&body).unwrap();
    status["term"].as_u64().unwrap()
}

/// That no link has broken since, as the members tell it.
fn links_ended(group: &Group) -> usize {
    (1..=3).map(|id| log(group, id).matches("link ended").count()).sum()
}

fn running() -> (Group, u32) {
    let mut group = Group::new(3, "guarantee = 'leased'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    logged(&group, &[1, 2, 3], "link up", 2);
    (group, leader)
}

const IN_USE: &str = "new certificates are in use";

#[test]
fn the_authority_is_replaced_while_the_group_runs() {
    let (mut group, leader) = running();
    let (before, ended) = (term(&group, leader), links_ended(&group));
    // All believe both; all have certificates of the new one; nobody believes the old one.
    made(&group, &["--rotate-ca"]);
    logged(&group, &[1, 2, 3], IN_USE, 1);
    made(&group, &["--renew", "p1", "p2", "p3"]);
    logged(&group, &[1, 2, 3], IN_USE, 2);
    made(&group, &["--retire-ca"]);
    logged(&group, &[1, 2, 3], IN_USE, 3);
    assert_eq!(links_ended(&group), ended, "a link was dropped");
    assert_eq!((group.leader(), term(&group, leader)), (leader, before), "the leader changed");

    // A member that is started anew has only the new ones to show and to believe.
    let follower = if leader == 1 { 2 } else { 1 };
    group.kill(follower);
    group.start(follower);
    group.agree(leader);
    assert_eq!(term(&group, follower), before);
    let refused = (1..=3).any(|id| log(&group, id).contains("no link: its certificate"));
    assert!(!refused, "somebody was refused");
}

#[test]
fn files_that_do_not_fit_are_refused_and_the_old_certificates_stay() {
    let (group, leader) = running();
    let certificate = group.directory.path().join("certs/p1.pem");
    let whole = fs::read(&certificate).unwrap();
    let refused = "new certificates are not used, and the old ones stay";

    fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nAAAA").unwrap();
    logged(&group, &[1], refused, 1);
    // Another member's, and another authority's.
    fs::copy(group.directory.path().join("certs/p2.pem"), &certificate).unwrap();
    logged(&group, &[1], refused, 2);
    let other = Group::new(1, "");
    let theirs = |name: &str| other.directory.path().join("certs").join(name);
    fs::copy(theirs("p1.key"), group.directory.path().join("certs/p1.key")).unwrap();
    fs::copy(theirs("p1.pem"), &certificate).unwrap();
    logged(&group, &[1], "same authority?", 1);
    // At once, if somebody asks.
    fs::write(&certificate, "nothing").unwrap();
    group.signal(1, "-HUP");
    logged(&group, &[1], refused, 4);

    fs::write(&certificate, &whole).unwrap();
    assert_eq!(group.leader(), leader);
    group.agree(leader);
}

#[test]
fn a_certificate_that_expires_soon_is_told_of_and_measured() {
    let mut group = Group::new(1, "");
    made(&group, &["--renew", "--days", "10", "p1"]);
    group.start(1);
    logged(&group, &[1], "certificate expires in 9 days", 1);
    let left = || {
        let (_, metrics) = group.http(1, "GET", "/metrics", "")?;
        let line = metrics
            .lines()
            .find(|line| line.starts_with("mandate_certificate_expires_seconds "))?;
        line.rsplit_once(' ')?.1.parse::<f64>().ok()
    };
    let days = within(Duration::from_secs(10), "the metric", left) / 86_400.0;
    assert!((9.0..10.0).contains(&days), "{days}");
    made(&group, &["--renew", "--days", "90", "p1"]);
    within(Duration::from_secs(10), "the new one", || (left()? > 80.0 * 86_400.0).then_some(()));
}

#[test]
fn a_rotation_is_not_begun_twice_nor_ended_without_a_beginning() {
    let group = Group::new(1, "");
    let text = |output: std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let nothing = text(certs(&group, &["--retire-ca"]));
    assert!(nothing.contains("none to retire"), "{nothing}");
    made(&group, &["--rotate-ca"]);
    let again = text(certs(&group, &["--rotate-ca"]));
    assert!(again.contains("the last rotation is not over"), "{again}");
    made(&group, &["--renew", "--retire-ca", "p1"]);
    let ca = fs::read_to_string(group.directory.path().join("certs/ca.pem")).unwrap();
    assert_eq!(ca.matches("BEGIN CERTIFICATE").count(), 1);
}
