//! Real member processes on loopback: they elect, survive the death of their leader, hand over, and say
//! why.

mod group;

use std::time::{Duration, Instant};

use group::{Group, mandate, within};

fn text(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn three_members_elect_and_survive_the_death_of_their_leader() {
    let mut group = Group::new(3, "guarantee = 'leased'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    assert_eq!(group.leaders(), [leader], "one at a time");

    let status = group.ask(leader, &["status"]);
    assert!(text(&status).contains(&format!("p{leader} of test LEADS in term")), "{status:?}");
    let follower = if leader == 1 { 2 } else { 1 };
    let status = text(&group.ask(follower, &["status"]));
    assert!(status.contains(&format!("p{follower} of test follows p{leader}")), "{status}");

    group.kill(leader);
    let next = group.leader_except(&[leader]);
    group.agree(next);
    let explained = text(&group.ask(next, &["explain"]));
    assert!(explained.contains(&format!("p{next} leads in term")), "{explained}");
    assert!(explained.contains(&format!("after p{leader}")), "{explained}");

    // It comes back and follows.
    group.start(leader);
    group.agree(next);
    let history = text(&group.ask(next, &["history"]));
    assert!(history.lines().count() >= 2, "{history}");
}

#[test]
fn a_crash_on_a_live_host_is_noticed_by_the_broken_connection() {
    let mut group = Group::new(3, "guarantee = 'fenced'\ntimeout = '200ms'");
    group.start_all();
    let mut times = Vec::new();
    for _ in 0..3 {
        let leader = group.leader();
        group.agree(leader);
        let began = Instant::now();
        group.kill(leader);
        group.leader_except(&[leader]);
        times.push(began.elapsed());
        group.start(leader);
    }
    times.sort();
    println!("failover took {times:?}");
    // Silence would be noticed after 400 ms.
    assert!(times[1] < Duration::from_millis(250), "{times:?}");
}

#[test]
fn leadership_is_handed_over_on_request() {
    let mut group = Group::new(3, "");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let to = if leader == 1 { 2 } else { 1 };
    let refused = group.ask(to, &["transfer", &format!("p{leader}")]);
    assert!(!refused.status.success());
    assert!(text(&refused).contains("does not lead"), "{refused:?}");
    let handed = group.ask(leader, &["transfer", &format!("p{to}")]);
    assert!(handed.status.success(), "{handed:?}");
    assert_eq!(group.leader_except(&[leader]), to);
    group.agree(to);
    let resigned = group.ask(to, &["resign"]);
    assert!(resigned.status.success(), "{resigned:?}");
    let next = group.leader_except(&[to]);
    group.agree(next);
    // And a member that is asked to stop gives leadership back first.
    group.signal(next, "-TERM");
    assert!(group.ended(next).success());
    group.leader_except(&[next]);
}

#[test]
fn the_http_interface_answers_for_people_programs_and_balancers() {
    let mut group = Group::new(3, "oracle = 'application, history'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let follower = if leader == 1 { 2 } else { 1 };
    let code = |id, method: &str, path: &str| group.http(id, method, path, "").unwrap().0;
    assert_eq!((code(leader, "GET", "/leader"), code(follower, "GET", "/leader")), (200, 503));
    assert_eq!((code(leader, "HEAD", "/leader"), code(follower, "OPTIONS", "/leader")), (200, 503));
    assert_eq!((code(leader, "POST", "/leader"), code(leader, "GET", "/livez")), (405, 200));
    assert_eq!((code(follower, "GET", "/readyz"), code(follower, "GET", "/nothing")), (200, 404));
    let (_, metrics) = group.http(leader, "GET", "/metrics", "").unwrap();
    assert!(metrics.contains("leader_election_master_status{name=\"test\"} 1"), "{metrics}");
    let (_, metrics) = group.http(follower, "GET", "/metrics", "").unwrap();
    assert!(metrics.contains("leader_election_master_status{name=\"test\"} 0"), "{metrics}");
    assert!(metrics.contains("mandate_round_trip_seconds{member="), "{metrics}");

    let (code, _) = group.http(follower, "PUT", "/v1/score", r#"{"application": 5}"#).unwrap();
    assert_eq!(code, 204);
    within(Duration::from_secs(5), "the figure shows", || {
        let (_, status) = group.http(follower, "GET", "/v1/status", "")?;
        status.contains(r#""application":"5""#).then_some(())
    });
    let (code, _) = group.http(follower, "PUT", "/v1/score", r#"{"aplication": 5}"#).unwrap();
    assert_eq!(code, 422);
    let origin = "Origin: http://evil.example\r\n";
    let (code, _) = group.http_with(leader, "POST", "/v1/resign", "", origin).unwrap();
    assert_eq!(code, 403, "a page of another origin");
    // A name that was made to point here.
    let rebound = group.http_as("evil.example:80", leader, "POST", "/v1/resign");
    assert_eq!(rebound, Some(403));
    assert_eq!(group.leaders(), [leader]);
    let (code, body) = group.http(follower, "POST", "/v1/resign", "").unwrap();
    assert_eq!(code, 409, "{body}");
}

#[test]
fn a_start_that_cannot_be_says_what_to_do() {
    let mut group = Group::new(1, "");
    let node = |args: &[&str]| {
        let output = mandate().args(["node", "--config"]).arg(group.config(1)).args(args).output();
        text(&output.unwrap())
    };
    let error = node(&[]);
    assert!(error.contains("--new") && error.contains("--lost"), "{error}");
    let nobody = mandate().args(["status", "--api", "127.0.0.1:1"]).output().unwrap();
    assert!(text(&nobody).contains("is `mandate node` running"), "{nobody:?}");
    std::fs::remove_file(group.directory.path().join("certs/p1.key")).unwrap();
    let error = node(&["--new"]);
    assert!(error.contains("p1.key"), "{error}");
    group.kill(1);
}
