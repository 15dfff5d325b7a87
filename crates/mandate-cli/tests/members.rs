//! Members that come and go by commands and over HTTP, with real member processes.

mod group;

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use group::{Group, mandate, within};
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(60);

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a command, which must succeed; what it said.
fn ask(group: &Group, id: u32, args: &[&str]) -> String {
    let output = group.ask(id, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    text(&output)
}

/// Runs a command, which must fail; what it said.
fn refused(group: &Group, id: u32, args: &[&str]) -> String {
    let output = group.ask(id, args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    let text = text(&output);
    assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
    text
}

/// The members' ids with what they do, such as `p4 learner`, by a member's list.
fn parts(group: &Group, id: u32) -> Vec<String> {
    let (_, body) = group.http(id, "GET", "/v1/members", "").unwrap();
    let members: Vec<Value> = serde_json::from_str(&body).unwrap();
    let part = |it: &Value| Some(format!("{} {}", it["id"].as_str()?, it["part"].as_str()?));
    members.iter().filter_map(part).collect()
}

/// Waits until these members have this list.
fn all_have(group: &Group, ids: &[u32], list: &[&str]) {
    for id in ids {
        within(LONG, &format!("p{id} has the list {list:?}"), || {
            (parts(group, *id) == list).then_some(())
        });
    }
}

fn term(group: &Group, id: u32) -> Value {
    let (_, body) = group.http(id, "GET", "/v1/status", "").unwrap();
    serde_json::from_str::<Value>(&body).unwrap()["term"].clone()
}

#[test]
fn members_are_added_observed_replaced_and_removed_by_commands_in_one_term() {
    let mut group = Group::with_spares(3, 3, "guarantee = 'leased'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let reign = term(&group, leader);
    let address = |id: u32| group.address(id).to_string();

    let list = ask(&group, leader, &["member", "list"]);
    assert!(list.contains("3 members vote, and 2 are a quorum"), "{list}");
    assert!(list.contains("the list that the group was set up with"), "{list}");
    for id in 1..=3 {
        let line = list.lines().find(|line| line.trim_start().starts_with(&format!("p{id} ")));
        assert!(line.unwrap().contains(&address(id)), "where the configuration says: {list}");
    }

    // It is added before it runs, and votes once it follows.
    let (p4, p5, p6) = (address(4), address(5), address(6));
    let words = ["member", "add", "p4", &p4, "--name", "orders-3", "--no-wait"];
    let said = ask(&group, leader, &words);
    assert!(said.contains("p4 is a learner"), "{said}");
    all_have(&group, &[1, 2, 3], &["p1 voter", "p2 voter", "p3 voter", "p4 learner"]);
    let late = ["member", "add", "p5", &p5, "--wait", "1ms"];
    let late = group.ask(leader, &late);
    assert_eq!(late.status.code(), Some(1), "{late:?}");
    let late = text(&late);
    assert!(late.contains("p5 is a learner") && late.contains("the change goes on"), "{late}");
    group.start(4);
    within(LONG, "p4 votes", || {
        parts(&group, leader).contains(&"p4 voter".to_owned()).then_some(())
    });
    let removed = ask(&group, leader, &["member", "remove", "p5"]);
    assert!(removed.contains("p5 is no member any more"), "{removed}");

    // One that runs already is waited for.
    group.start(6);
    let follower = if leader == 1 { "p2" } else { "p1" };
    let replaced = ask(&group, leader, &["member", "replace", follower, "p6", &p6]);
    assert!(replaced.contains(&format!("p6 votes in the place of {follower}")), "{replaced}");
    let list = ask(&group, 4, &["member", "list"]);
    assert!(list.contains("4 members vote, and 3 are a quorum; list "), "{list}");
    assert!(list.contains("orders-3") && list.contains(&p4), "{list}");
    let json = ask(&group, leader, &["member", "list", "-o", "json"]);
    let json: Vec<Value> = serde_json::from_str(&json).unwrap();
    let p4 = json.iter().find(|it| it["id"] == "p4").unwrap();
    assert_eq!((&p4["label"], &p4["part"]), (&json!("orders-3"), &json!("voter")));
    assert_eq!(p4["suspected"], json!(false));
    assert!(json.iter().all(|it| it["id"] != follower));

    // Who was removed says so.
    let gone: u32 = follower[1..].parse().unwrap();
    within(LONG, "it knows that it is no member", || {
        let (_, body) = group.http(gone, "GET", "/v1/status", "")?;
        body.contains("not one of the group's members").then_some(())
    });
    assert_eq!((group.leaders(), term(&group, leader)), (vec![leader], reign), "nobody else led");
}

#[test]
fn an_observer_follows_and_does_not_vote() {
    let mut group = Group::with_spares(1, 1, "guarantee = 'fenced'");
    group.start_all();
    group.leader();
    group.start(2);
    let address = group.address(2).to_string();
    let said = ask(&group, 1, &["member", "observe", "p2", &address]);
    assert!(said.contains("p2 observes"), "{said}");
    all_have(&group, &[1, 2], &["p1 voter", "p2 observer"]);
    group.agree(1);
    let list = ask(&group, 2, &["member", "list"]);
    assert!(list.contains("1 member votes, 1 observing"), "{list}");
}

#[test]
fn what_cannot_be_is_one_line_and_changes_nothing() {
    let mut group = Group::with_spares(2, 1, "guarantee = 'fenced'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let other = 3 - leader;
    let here = group.address(3).to_string();
    ask(&group, leader, &["member", "observe", "p3", &here, "--name", "left", "--no-wait"]);
    ask(&group, leader, &["member", "remove", "p3"]);
    ask(&group, leader, &["member", "observe", "p4", "db4.example:7101", "--name", "left"]);
    let before = parts(&group, leader);

    let long = "x".repeat(64);
    let cases: [(&[&str], &str); 14] = [
        (
            &["add", "p3", &here],
            "p3: a member has had that id before, or a higher one: give it the next one (p5)",
        ),
        (&["add", "p2", &here], "p2: that is a member of the group already"),
        (&["replace", "p9", "p5", &here], "that is no member of the group"),
        (&["remove", "p9"], "p9: that is no member of the group"),
        (&["promote", "p9"], "p9: that is no member of the group"),
        (&["observe", "p5", &here, "--name", "left"], "another member of the group has that name"),
        (&["add", "p5", &here, "--name", &long], "a name has at most 63 bytes"),
        (&["add", "p5", "10.0.0.4"], "`10.0.0.4` is not where the other members could reach p5"),
        (&["add", "p5", "10.0.0.4:0"], "is not where the other members could reach p5"),
        (
            &["add", "p5", "0.0.0.0:7101"],
            "`0.0.0.0:7101` is not where the other members could reach p5",
        ),
        (&["add", "p5", "[::]:7101"], "is not where the other members could reach p5"),
        (&["replace", "p4", "p5", &here], "that is no member of the group"),
        (&["promote", "p4"], "p4: that member observes, and never votes"),
        (&["promote", "p1"], "p1: that is a member of the group already"),
    ];
    for (words, reason) in cases {
        let words: Vec<_> = ["member"].iter().chain(words).copied().collect();
        let said = refused(&group, leader, &words);
        assert!(said.contains(reason), "{words:?}: {said}");
        assert_eq!(parts(&group, leader), before, "{words:?}");
    }
    for (method, path, body, code) in [
        ("POST", "/v1/members", r#"{"change":"add","member":"four","address":"a:1"}"#, 422),
        ("POST", "/v1/members", r#"{"change":"add","member":"p5"}"#, 422),
        ("POST", "/v1/members", r#"{"change":"grow","member":"p5"}"#, 422),
        ("POST", "/v1/members", r#"{"change":"promote","member":"p5","adress":"a:1"}"#, 422),
        ("POST", "/v1/members", r#"{"change":"add","member":"p5","address":"0.0.0.0:1"}"#, 422),
        ("POST", "/v1/members", r#"{"change":"add","member":"p3","address":"a:1"}"#, 409),
        ("DELETE", "/v1/members/four", "", 422),
        ("DELETE", "/v1/members/p9", "", 409),
    ] {
        let (answered, said) = group.http(leader, method, path, body).unwrap();
        assert_eq!(answered, code, "{method} {path} {body}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert_eq!(parts(&group, leader), before, "{body}");
    }

    // Without the other voter no change is settled: the first one waits, and the next one is refused. A removal would leave no quorum.
    group.pause(other);
    let api = group.api(leader);
    let words = ["member", "observe", "p6", "db6.example:7101", "--api", &api];
    let mut first = mandate();
    let first = first.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    within(LONG, "it was begun", || {
        parts(&group, leader).contains(&"p6 observer".to_owned()).then_some(())
    });
    let said = refused(&group, leader, &["member", "observe", "p7", "db7.example:7101"]);
    assert!(said.contains("another change of members is under way"), "{said}");
    // Ctrl-C does not take it back.
    interrupt(&first);
    let first = first.wait_with_output().unwrap();
    assert_eq!(first.status.code(), Some(130), "{first:?}");
    assert!(text(&first).contains("the change goes on"), "{first:?}");
    group.signal(other, "-CONT");
    let leader = group.leader();
    within(LONG, "the list is settled", || {
        let said = text(&group.ask(leader, &["member", "observe", "p7", "db7.example:7101"]));
        (said.contains("p7 observes") || said.contains("already")).then_some(())
    });
}

fn interrupt(process: &std::process::Child) {
    let sent = Command::new("kill").args(["-INT", &process.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn a_change_that_would_lose_the_quorum_and_the_last_voters_removal_are_refused() {
    let mut group = Group::with_spares(3, 0, "guarantee = 'leased'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let others: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    group.kill(others[0]);
    // One of the two that are left is needed: without it there is no quorum of two.
    let (dead, answering) = (format!("p{}", others[0]), format!("p{}", others[1]));
    within(LONG, "it is known who answers", || {
        let (_, members) = group.http(leader, "GET", "/v1/members", "")?;
        let members: Vec<Value> = serde_json::from_str(&members).ok()?;
        members.iter().any(|it| it["id"] == dead && it["suspected"] == true).then_some(())
    });
    let said = refused(&group, leader, &["member", "remove", &answering]);
    assert!(said.contains("too few of the members that would be left follow the leader"), "{said}");
    assert_eq!(group.leaders(), [leader]);
    ask(&group, leader, &["member", "remove", &dead]);
    ask(&group, leader, &["member", "remove", &answering]);
    let last = format!("p{leader}");
    let said = refused(&group, leader, &["member", "remove", &last]);
    assert!(said.contains("that is the last member that votes"), "{said}");
    assert_eq!(parts(&group, leader), [format!("p{leader} voter")]);
}

#[test]
fn where_there_is_no_list_the_reason_is_said() {
    let mut group = Group::new(2, "guarantee = 'overlap'");
    group.start_all();
    let leader = group.leader();
    let said = refused(&group, leader, &["member", "add", "p3", "10.0.0.3:7101"]);
    assert!(said.contains("guarantee = \"overlap\" has no list of members"), "{said}");
    assert!(
        refused(&group, leader, &["member", "list"]).contains("this group has no list of members")
    );
    let (code, _) = group.http(leader, "DELETE", "/v1/members/p2", "").unwrap();
    assert_eq!(code, 409);

    let directory = tempfile::tempdir().unwrap();
    let api = format!("127.0.0.1:{}", mandate_servers::free_ports(1).unwrap()[0]);
    let config = directory.path().join("db.toml");
    let url = format!("sqlite:{}", directory.path().join("members.db").display());
    let file =
        format!("engine = 'sql'\ngroup = 'test'\napi = '{api}'\n[database]\nurl = '{url}'\n");
    std::fs::write(&config, file).unwrap();
    let mut daemon = mandate();
    let mut daemon =
        daemon.args(["node", "--config"]).arg(&config).stdout(Stdio::null()).spawn().unwrap();
    let said = within(LONG, "the daemon on a database answers", || {
        let words = ["member", "add", "p3", "10.0.0.3:7101", "--api", &api];
        let output = mandate().args(words).output().unwrap();
        let said = text(&output);
        (!said.contains("no daemon answers")).then_some(said)
    });
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(said.contains("on a database there is no list of members"), "{said}");
}
