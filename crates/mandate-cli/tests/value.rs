//! The value that a leader publishes with its term, with real processes: who sees it, where a redirect goes, and when it is gone.

mod group;
mod service;
mod wrapper;

use std::time::Duration;

use group::{Group, within};
use serde_json::Value;
use service::service;
use wrapper::{BOUND, LEASED, first_line, start, wait};

/// A client that follows redirects, as most do.
fn followed(group: &Group, id: u32, path: &str) -> Option<String> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(60))).build().into();
    let mut response = agent.get(format!("http://{}{path}", group.api(id))).call().ok()?;
    response.body_mut().read_to_string().ok()
}

fn document(group: &Group, id: u32, path: &str) -> Option<Value> {
    serde_json::from_str(&group.http(id, "GET", path, "")?.1).ok()
}

/// Waits until every member that runs shows this value, or none.
fn all_show(group: &Group, ids: &[u32], value: Option<&str>) {
    for id in ids {
        within(BOUND, "the value", || {
            let leader = document(group, *id, "/leader")?;
            let status = document(group, *id, "/v1/status")?;
            let shown = [leader["value"].as_str(), status["value"].as_str()];
            (shown == [value, value] && leader["leader"].is_string()).then_some(())
        });
    }
}

#[test]
fn everyone_sees_the_value_and_a_redirect_goes_there_also_after_the_leader_was_killed() {
    let mut group = Group::new(3, LEASED);
    let places: Vec<_> = (1..=3).map(|id| service(&format!("service {id}"))).collect();
    for id in 1..=3 {
        let config = std::fs::read_to_string(group.config(id)).unwrap();
        let value = places[id as usize - 1];
        std::fs::write(group.config(id), format!("value = '{value}'\n{config}")).unwrap();
    }
    group.start_all();
    let mut running = vec![1, 2, 3];
    let mut leader = group.leader();
    for _ in 0..2 {
        let place = places[leader as usize - 1].to_string();
        all_show(&group, &running, Some(&place));
        for id in &running {
            within(BOUND, "the redirect", || {
                let text = followed(&group, *id, "/leader?redirect=/orders?id=7")?;
                (text == format!("service {leader} /orders?id=7")).then_some(())
            });
        }
        let shown = String::from_utf8(group.ask(running[0], &["status"]).stdout).unwrap();
        assert!(shown.contains(&place), "{shown}");
        group.kill(leader);
        running.retain(|id| *id != leader);
        if running.len() < 2 {
            break;
        }
        let former = leader;
        leader = group.leader_except(&[former]);
        group.start(former);
        running.push(former);
    }
    within(BOUND, "it is logged", || {
        group.log(running[0]).contains("has published with term").then_some(())
    });
}

#[test]
fn a_daemon_publishes_what_it_is_told_and_refuses_what_it_should() {
    let mut group = Group::new(3, LEASED);
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let follower = if leader == 1 { 2 } else { 1 };
    let put = |id, path: &str, body: &str| group.http(id, "PUT", path, body).unwrap();
    assert_eq!(group.http(follower, "GET", "/leader?redirect", "").unwrap().0, 503, "nothing yet");
    let (code, reason) = put(follower, "/v1/value", "10.0.0.7:80");
    assert_eq!(code, 409);
    assert!(reason.contains("does not lead"), "{reason}");
    let (code, reason) = put(leader, "/v1/value", &"x".repeat(4097));
    assert_eq!((code, reason.as_str()), (422, "a value has at most 4096 bytes, not 4097\n"));
    assert_eq!(put(leader, "/v1/value", "a\u{1}").0, 422);
    assert_eq!(put(leader, "/v1/value?term=99", "late").0, 409, "another term");
    let longest = "x".repeat(4096);
    within(BOUND, "the leader publishes", || {
        (put(group.leader(), "/v1/value", &longest).0 == 204).then_some(())
    });
    all_show(&group, &[1, 2, 3], Some(&longest));
    assert_eq!(group.http(follower, "GET", "/leader?redirect", "").unwrap().0, 409, "no address");
    let leader = group.leader();
    assert_eq!(group.http(leader, "POST", "/v1/resign", "").unwrap().0, 204);
    all_show(&group, &[1, 2, 3], None);
}

#[test]
fn a_command_publishes_its_address_through_the_daemon_and_finds_it_in_its_environment() {
    let mut group = Group::new(3, LEASED);
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let api = group.api(leader);
    let script = "echo $MANDATE_LEADER_VALUE > value; while [ ! -e stop ]; do sleep 0.05; done";
    let args = ["--api", &api, "--value", "http://10.0.0.7:8080"];
    let run = start(&group, "run.log", &args, script);
    assert_eq!(first_line(&group, "value"), "http://10.0.0.7:8080");
    all_show(&group, &[1, 2, 3], Some("http://10.0.0.7:8080"));
    std::fs::write(group.directory.path().join("stop"), "").unwrap();
    assert_eq!(wait(run), Some(0));
    // Leadership was given back, and the value with it.
    all_show(&group, &[1, 2, 3], None);
}

/// On a database: the row has the value with the term, every reader sees it, and the next leader's replaces it.
#[test]
fn on_a_database_the_row_shows_where_the_leader_is() {
    let group = Group::new(1, LEASED);
    let url = format!("sqlite:{}", group.directory.path().join("m.db").display());
    let run = |name: &str| {
        let value = format!("http://{name}:80");
        let args = ["--url", &url, "--round", "4s", "--value", &value];
        let script = format!(
            "echo $MANDATE_LEADER_VALUE > {name}; while [ ! -e stop-{name} ]; do sleep 0.05; done"
        );
        start(&group, &format!("run-{name}.log"), &args, &script)
    };
    let shows = |value: &str| {
        within(BOUND, "the value", || {
            let args = ["status", "--url", &url, "--group", "writer", "-o", "json"];
            let output = group::mandate().args(args).output().unwrap();
            let status: Value = serde_json::from_slice(&output.stdout).ok()?;
            (status["value"].as_str() == Some(value)).then_some(())
        });
    };
    let first = run("first");
    assert_eq!(first_line(&group, "first"), "http://first:80");
    shows("http://first:80");
    let second = run("second");
    std::fs::write(group.directory.path().join("stop-first"), "").unwrap();
    assert_eq!(wait(first), Some(0));
    assert_eq!(first_line(&group, "second"), "http://second:80");
    shows("http://second:80");
    std::fs::write(group.directory.path().join("stop-second"), "").unwrap();
    assert_eq!(wait(second), Some(0));
}
