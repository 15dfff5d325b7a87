//! Real member processes that are started in the same way each time, the first included: without a flag.

mod group;

use std::time::Duration;

use group::{Group, mandate, within};
use serde_json::Value;

/// Without a state and without anyone to ask that knows more.
const TOO_MANY: &str = "no vote: there was no state, and others have voted, so this member has lost its disk; and too many \
                        others have lost theirs";

/// A group whose members find out by themselves whether they are new; nobody runs yet.
fn automatic(size: u32) -> Group {
    let group = Group::new(size, "guarantee = 'leased'");
    for id in 1..=size {
        let text = std::fs::read_to_string(group.config(id)).unwrap();
        std::fs::write(group.config(id), format!("first_start = 'auto'\n{text}")).unwrap();
    }
    group
}

fn start(group: &mut Group, id: u32) {
    group.launch(id, &["node"]);
}

fn lose_disk(group: &mut Group, id: u32) {
    group.kill(id);
    std::fs::remove_file(group.state(id)).unwrap();
}

fn status(group: &Group, id: u32) -> Option<Value> {
    let (_, body) = group.http(id, "GET", "/v1/status", "")?;
    serde_json::from_str(&body).ok()
}

/// The term of a leader that all follow.
fn led_term(group: &Group) -> u64 {
    let leader = group.leader();
    group.agree(leader);
    within(Duration::from_secs(30), "the leader's term", || status(group, leader)?["term"].as_u64())
}

fn until_voting(group: &Group, id: u32) {
    within(Duration::from_secs(60), &format!("p{id} has a vote"), || {
        (status(group, id)?["has_vote"] == true).then_some(())
    });
}

fn until_said(group: &Group, id: u32, sentence: &str) {
    within(Duration::from_secs(60), &format!("p{id} says: {sentence}"), || {
        let (code, ready) = group.http(id, "GET", "/readyz", "")?;
        let is_said = code == 503 && ready.contains(sentence);
        (is_said && status(group, id)?["no_vote"] == sentence).then_some(())
    });
    within(Duration::from_secs(60), "so does its log", || {
        group.log(id).contains(sentence).then_some(())
    });
}

#[test]
fn one_way_to_start_is_enough_for_the_first_start_for_restarts_and_for_lost_disks() {
    let mut group = automatic(3);
    // Two of three do not start a group: the third may know more.
    start(&mut group, 1);
    start(&mut group, 2);
    let waits = "no vote yet: there was no state, so this member is new or has lost its disk; waiting for an answer of p3";
    until_said(&group, 1, waits);
    until_said(&group, 2, waits);
    start(&mut group, 3);
    let first = led_term(&group);
    assert!(first > 1_700_000_000, "above the seconds since 1970: {first}");

    // All restart.
    (1..=3).for_each(|id| group.kill(id));
    (1..=3).for_each(|id| start(&mut group, id));
    let second = led_term(&group);
    assert!(second > first, "{second}");

    // One disk is lost, a follower's: it comes back by itself, and costs nothing.
    let leader = group.leader();
    let lost = leader % 3 + 1;
    lose_disk(&mut group, lost);
    start(&mut group, lost);
    until_voting(&group, lost);
    assert_eq!(group.leaders(), [leader]);

    // Two are lost: they do not help each other, and say so.
    let kept = (lost % 3) + 1;
    let others: Vec<u32> = (1..=3).filter(|id| *id != kept).collect();
    let third = led_term(&group);
    others.iter().for_each(|id| lose_disk(&mut group, *id));
    others.iter().for_each(|id| start(&mut group, *id));
    others.iter().for_each(|id| until_said(&group, *id, TOO_MANY));
    within(Duration::from_secs(30), "nobody leads", || group.leaders().is_empty().then_some(()));
    // Nor does it help to say what is known.
    lose_disk(&mut group, others[0]);
    group.launch(others[0], &["node", "--lost"]);
    until_said(&group, others[0], "no vote: too many members have lost their disks");
    assert!(group.leaders().is_empty());

    // All are lost: there is nobody to ask, and the group starts anew, with higher terms.
    group.kill(others[0]);
    lose_disk(&mut group, others[1]);
    lose_disk(&mut group, kept);
    (1..=3).for_each(|id| start(&mut group, id));
    let anew = led_term(&group);
    assert!(anew > third, "{anew} after {third}");
}

#[test]
fn a_group_of_members_of_both_kinds_starts() {
    let mut group = automatic(3);
    group.launch(1, &["node", "--new"]);
    start(&mut group, 2);
    start(&mut group, 3);
    assert!(led_term(&group) > 1_700_000_000);
    (1..=3).for_each(|id| until_voting(&group, id));
}

#[test]
fn a_group_of_one_cannot_tell_whether_it_is_new() {
    let group = automatic(1);
    let output = mandate().args(["node", "--config"]).arg(group.config(1)).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("there is nobody to ask whether it is new"), "{error}");
    assert!(error.contains("Start it with --new the first time"), "{error}");
    assert!(!group.state(1).exists(), "nothing was written");
}
