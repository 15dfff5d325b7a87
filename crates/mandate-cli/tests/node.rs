//! Real member processes on loopback: they elect, survive the death of their leader, hand over, and say
//! why.

mod group;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use group::{Group, mandate, within};

fn text(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Asks a member to hand over, and again if it did not get to look at itself in time.
fn transfer(group: &Group, from: u32, to: u32) {
    within(Duration::from_secs(30), "leadership is handed over", || {
        group.ask(from, &["transfer", &format!("p{to}")]).status.success().then_some(())
    });
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
    // Any member can be asked: the leader does it, and everyone can say why the next one leads.
    let other = 6 - leader - follower;
    transfer(&group, other, follower);
    group.agree(follower);
    let status = text(&group.ask(other, &["status"]));
    let why = format!("p{leader} was asked to hand over to p{follower}");
    assert!(status.contains(&format!("leader      p{follower} since ")), "{status}");
    assert!(status.contains(&why), "{status}");
    let refused = text(&group.ask(other, &["transfer", &format!("p{follower}")]));
    assert!(refused.contains(&format!("p{follower} leads already")), "{refused}");
    let resigned = group.ask(other, &["resign"]);
    assert!(resigned.status.success(), "{resigned:?}");
    let leader = group.leader_except(&[follower]);
    group.agree(leader);

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

    // Who leads already cannot be handed anything; whom leadership is handed to, everyone can say why.
    let refused = text(&group.ask(next, &["transfer", &format!("p{next}")]));
    assert!(refused.contains(&format!("p{next} leads already")), "{refused}");
    transfer(&group, next, leader);
    group.agree(leader);
    for id in 1..=3 {
        let why = format!("p{next} was asked to hand over to p{leader}");
        for command in ["explain", "history"] {
            within(Duration::from_secs(30), &format!("{command} of p{id} says: {why}"), || {
                text(&group.ask(id, &[command])).contains(&why).then_some(())
            });
        }
    }
}

#[test]
fn new_members_beside_a_group_with_a_shorter_list_elect_nobody_and_both_sides_say_why() {
    let mut group = Group::new(3, "guarantee = 'leased'");
    let whole = std::fs::read_to_string(group.config(1)).unwrap();
    let (before, peers) = whole.split_once("[peers]\n").unwrap();
    let alone = format!("{before}[tls]{}", peers.split_once("[tls]").unwrap().1);
    std::fs::write(group.config(1), alone).unwrap();
    group.start(1);
    assert_eq!(group.leader(), 1, "it is the whole of its list");
    // Two of three: a quorum of the list that p1 does not have.
    group.start(2);
    group.start(3);
    let status = |id| {
        let (_, body) = group.http(id, "GET", "/v1/status", "")?;
        serde_json::from_str::<serde_json::Value>(&body).ok()
    };
    for (id, other) in [(2, "p1"), (3, "p1"), (1, "p2"), (1, "p3")] {
        within(Duration::from_secs(30), "both lists are named", || {
            let differing = status(id)?["differing"].as_array()?.clone();
            let found = differing.into_iter().find(|it| it["member"] == other)?.to_string();
            (found.contains("members p1,") && found.contains("members p1 p2 p3,")).then_some(())
        });
    }
    for id in [2, 3] {
        let waits = "no vote yet: waiting for a first answer of p1";
        within(Duration::from_secs(30), "it says whom it waits for", || {
            let (code, body) = group.http(id, "GET", "/readyz", "")?;
            (code == 503 && body.contains(waits) && status(id)?["no_vote"] == waits).then_some(())
        });
        within(Duration::from_secs(30), "so does its log", || {
            group.log(id).contains(waits).then_some(())
        });
        assert!(text(&group.ask(id, &["status"])).contains(waits));
    }
    assert_eq!(group.leaders(), [1]);
    within(Duration::from_secs(30), "p1 says what the others have", || {
        group.log(1).contains("it is configured with members p1 p2 p3").then_some(())
    });
    // The way that is documented: p1 stops, gets the new list, and says that it was changed.
    group.signal(1, "-TERM");
    assert!(group.ended(1).success());
    std::fs::write(group.config(1), whole).unwrap();
    group.start_as(1, &["node", "--members-changed"]);
    let leader = group.leader();
    group.agree(leader);
    for id in 1..=3 {
        within(Duration::from_secs(30), &format!("p{id} has a vote"), || {
            let (_, metrics) = group.http(id, "GET", "/metrics", "")?;
            metrics.contains("\nmandate_has_vote 1\n").then_some(())
        });
    }
}

#[test]
fn a_disk_that_refuses_writes_shows_in_readiness_metrics_and_status() {
    let mut group = Group::new(1, "guarantee = 'fenced'");
    group.start_all();
    group.leader();
    let code = |path: &str| group.http(1, "GET", path, "").map(|(code, _)| code);
    // A write that takes long shows, too, for as long as it lasts.
    let ready = || (code("/readyz") == Some(200)).then_some(());
    within(Duration::from_secs(30), "it is ready", ready);
    assert_eq!(code("/livez"), Some(200));
    // Where the next state would be written there is a directory.
    let in_the_way = group.directory.path().join("p1.state.new");
    std::fs::create_dir(&in_the_way).unwrap();
    assert!(group.ask(1, &["resign"]).status.success());
    within(Duration::from_secs(30), "it is not ready, and says why", || {
        let (code, body) = group.http(1, "GET", "/readyz", "")?;
        (code == 503 && body.contains("the state cannot be written")).then_some(())
    });
    let (_, metrics) = group.http(1, "GET", "/metrics", "").unwrap();
    assert!(metrics.contains("\nmandate_disk_failing 1\n"), "{metrics}");
    assert!(!metrics.contains("\nmandate_disk_write_failures_total 0\n"), "{metrics}");
    let status = text(&group.ask(1, &["status"]));
    assert!(status.contains("WARNING: the state cannot be written"), "{status}");
    assert_eq!(code("/livez"), Some(200), "a restart would not help");
    std::fs::remove_dir(&in_the_way).unwrap();
    within(Duration::from_secs(30), "it is ready again", ready);
    within(Duration::from_secs(30), "the disk fails no more", || {
        let (_, metrics) = group.http(1, "GET", "/metrics", "")?;
        metrics.contains("\nmandate_disk_failing 0\n").then_some(())
    });
}

#[test]
fn a_crash_on_a_live_host_is_noticed_by_the_broken_connection() {
    // Silence is noticed after ten seconds, and ends a link after three. What is quicker than both was told by the connection.
    let detection = "interval = '1s'\nwithin = '10s'";
    let election = "guarantee = 'fenced'\ntimeout = '200ms'";
    let mut group = Group::with_detection(3, detection, election);
    group.start_all();
    let mut times = Vec::new();
    // On a busy host the connection may tell too late, or who is elected take long to write.
    let are_quick = |times: &[Duration]| {
        times.iter().filter(|time| **time < Duration::from_secs(2)).count() >= 2
    };
    while times.len() < 3 || !are_quick(&times) {
        assert!(times.len() < 20, "{times:?}");
        let leader = group.leader();
        group.agree(leader);
        let began = Instant::now();
        group.kill(leader);
        group.leader_except(&[leader]);
        times.push(began.elapsed());
        group.start(leader);
    }
    println!("failover took {times:?}");
}

#[test]
fn a_host_that_floods_the_leader_neither_deposes_it_nor_keeps_members_out() {
    let mut group = Group::new(3, "guarantee = 'leased'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let (_, before) = group.http(leader, "GET", "/leader", "").unwrap();
    let (to, stop) = (group.address(leader), Arc::new(AtomicBool::new(false)));
    let flood = std::thread::spawn({
        let stop = stop.clone();
        move || flood(to, &stop)
    });
    let log = group.directory.path().join(format!("p{leader}.log"));
    let log = || std::fs::read_to_string(&log).unwrap();
    within(Duration::from_secs(20), "it is told of", || {
        log().contains("have not yet said who they are").then_some(())
    });
    // A member comes back meanwhile.
    let follower = if leader == 1 { 2 } else { 1 };
    group.kill(follower);
    group.start(follower);
    group.agree(leader);
    stop.store(true, Ordering::Relaxed);
    println!("{} connections", flood.join().unwrap());
    assert_eq!(group.http(leader, "GET", "/leader", "").unwrap(), (200, before));
    assert_eq!(log().matches("have not yet said who they are").count(), 1, "{}", log());
}

/// Opens connections from another address of this host, and says nothing; how many.
fn flood(to: std::net::SocketAddr, stop: &AtomicBool) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut open, mut opened) = (VecDeque::new(), 0);
        while !stop.load(Ordering::Relaxed) {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            let connected = tokio::time::timeout(Duration::from_millis(200), socket.connect(to));
            if let Ok(Ok(stream)) = connected.await {
                opened += 1;
                open.push_back(stream);
            }
            if open.len() > 500 {
                open.pop_front();
            }
        }
        opened
    })
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
    assert!(text(&refused).contains(&format!("p{leader} leads already")), "{refused:?}");
    transfer(&group, leader, to);
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

/// Leadership moves to the member that serves better, and every member can say who asked for it and what everyone was worth.
#[test]
fn a_move_by_score_is_explained_with_candidates_at_the_new_leader_and_at_another_member() {
    let moves =
        "oracle = 'application'\n[moves]\nevery = '200ms'\ntenure = '200ms'\nthreshold = 0.1";
    let mut group = Group::new(3, moves);
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let (better, other) = match leader {
        1 => (2, 3),
        2 => (3, 1),
        _ => (1, 2),
    };
    let score = |id: u32, score: u32| {
        let body = format!("{{\"application\":{score}}}");
        assert_eq!(group.http(id, "PUT", "/v1/score", &body).unwrap().0, 204);
    };
    // The leader is no worse than the other at any moment, so nothing moves before the best is known.
    score(leader, 12);
    score(other, 11);
    score(better, 50);
    assert_eq!(group.leader_except(&[leader]), better);
    group.agree(better);
    for id in [better, other] {
        let election = within(Duration::from_secs(30), "it is told of the election", || {
            let shown = group.ask(id, &["explain", "-o", "json"]);
            let election: serde_json::Value = serde_json::from_slice(&shown.stdout).ok()?;
            (election["leader"] == format!("p{better}")).then_some(election)
        });
        let expected = [format!("p{better}"), format!("p{leader}"), "score".into()];
        let found = ["leader", "former", "handed_over_by"].map(|name| election[name].clone());
        assert_eq!(found, expected.map(serde_json::Value::from), "p{id}: {election:#}");
        assert_eq!(election["cause"], "moved", "p{id}: {election:#}");
        let candidates = election["candidates"].as_array().unwrap();
        let worth = |of: u32| {
            let of = candidates.iter().find(|candidate| candidate["id"] == format!("p{of}"));
            of.map(|candidate| candidate["score"][0].clone())
        };
        assert_eq!(worth(better), Some(50.0.into()), "p{id}: {election:#}");
        assert!(worth(other).is_some(), "p{id}: {election:#}");
        let shown = text(&group.ask(id, &["explain"]));
        let handed_over =
            format!("p{leader} handed over by score: with p{better} application of 50");
        assert!(shown.contains(&handed_over), "p{id}: {shown}");
        assert!(
            shown.contains("Nobody stood for election. What everyone would be worth"),
            "{shown}"
        );
    }
    let metrics = group.http(better, "GET", "/metrics", "").unwrap().1;
    let moved = "mandate_transitions_total{to=\"leading\",reason=\"moved\"} 1";
    assert!(metrics.contains(moved), "{metrics}");
}

/// What a daemon says when it is asked to stop.
#[test]
fn a_follower_that_is_stopped_does_not_say_that_leadership_is_given_back() {
    let mut group = Group::new(3, "");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let follower = if leader == 1 { 2 } else { 1 };
    let given_back = "stopping: leadership is given back";
    group.signal(follower, "-TERM");
    assert!(group.ended(follower).success());
    let log = group.log(follower);
    assert!(log.contains("stopping\n") && !log.contains(given_back), "{log}");
    group.signal(leader, "-TERM");
    assert!(group.ended(leader).success());
    assert!(group.log(leader).contains(given_back), "{}", group.log(leader));
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
    // A write that takes long shows for as long as it lasts.
    within(Duration::from_secs(30), "it is ready", || {
        (code(follower, "GET", "/readyz") == 200).then_some(())
    });
    assert_eq!(code(follower, "GET", "/nothing"), 404);
    let (_, metrics) = group.http(leader, "GET", "/metrics", "").unwrap();
    assert!(metrics.contains("leader_election_master_status{name=\"test\"} 1"), "{metrics}");
    let metrics = within(Duration::from_secs(30), "a round trip was measured", || {
        let (_, metrics) = group.http(follower, "GET", "/metrics", "")?;
        metrics.contains("mandate_round_trip_seconds{member=").then_some(metrics)
    });
    assert!(metrics.contains("leader_election_master_status{name=\"test\"} 0"), "{metrics}");

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
    // From a term that it does not lead in, only the leader itself could; from whichever it is, the leader does.
    let (code, body) = group.http(follower, "POST", "/v1/resign", r#"{"term":1}"#).unwrap();
    assert_eq!(code, 409, "{body}");
    let (code, body) = group.http(follower, "POST", "/v1/resign", "").unwrap();
    assert_eq!(code, 204, "{body}");
    group.leader_except(&[leader]);
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

#[test]
fn the_lightest_protocol_names_a_leader_and_measures_its_link() {
    let mut group = Group::new(3, "guarantee = 'overlap'");
    group.start_all();
    // In the first moments, the member that all agree on may yet give way to one that has led for longer.
    let (leader, follower, measured) =
        within(Duration::from_secs(30), "the link is measured", || {
            let leader = agreed(&group, 0);
            let follower = if leader == 1 { 2 } else { 1 };
            let measured = text(&group.ask(follower, &["qos", "measure"]));
            let is_of_it = measured.contains(&format!("Link from p{leader}"));
            let found = (leader, follower, measured);
            (is_of_it && found.2.contains("standard deviation")).then_some(found)
        });
    let status = text(&group.ask(follower, &["status"]));
    assert!(status.contains("guarantee   overlap"), "{status}");
    assert!(measured.contains("The interval is fixed"), "{measured}");
    let refused = group.ask(leader, &["transfer", &format!("p{follower}")]);
    assert!(text(&refused).contains("has no transfer"), "{refused:?}");
    // A farewell, and then a crash.
    group.signal(leader, "-TERM");
    assert!(group.ended(leader).success());
    let next = agreed(&group, leader);
    // One that comes back may lead before its links are up; then the others give way, or it does.
    group.start(leader);
    agreed(&group, 0);
    group.kill(next);
    agreed(&group, next);
    group.start(next);
    agreed(&group, 0);
    // A follower watches its leader; who leads in the end is open.
    within(Duration::from_secs(30), "somebody watches the leader", || {
        (1..=3).find_map(|id| {
            let (_, metrics) = group.http(id, "GET", "/metrics", "")?;
            metrics.contains("mandate_qos_watched_seconds").then_some(())
        })
    });
}

/// Waits until all that run name the same leader, other than that one: in the first moments several may lead.
fn agreed(group: &Group, except: u32) -> u32 {
    within(Duration::from_secs(30), "one leader for all", || {
        let named = |id| {
            let (_, body) = group.http(id, "GET", "/v1/status", "")?;
            let status: serde_json::Value = serde_json::from_str(&body).ok()?;
            status["leader"].as_str()?.strip_prefix('p')?.parse().ok()
        };
        let named: Vec<u32> = (1..=group.size).filter_map(named).collect();
        let leader = *named.first()?;
        let all = named.iter().all(|other| *other == leader) && named.len() > 1;
        (all && leader != except).then_some(leader)
    })
}

#[test]
fn a_plan_that_is_kept_current_shows_what_is_wanted_and_what_was_delivered() {
    let mut group = Group::new(3, "");
    for id in 1..=3 {
        let text = std::fs::read_to_string(group.config(id)).unwrap();
        let text = text.replace("[detection]\n", "[detection]\nmistake_every = '1h'\n");
        std::fs::write(group.config(id), text).unwrap();
    }
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    group.kill(leader);
    let next = group.leader_except(&[leader]);
    group.agree(next);
    let follower = (1..=3).find(|id| ![leader, next].contains(id)).unwrap();
    let measured = group.ask(follower, &["-o", "json", "qos", "measure"]);
    let document: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    let quality = &document[0];
    assert_eq!(quality["wanted"]["mistake_every_s"], 3600.0);
    assert_eq!(quality["wanted"]["detect_ms"], 4000.0);
    assert_eq!(quality["measured"]["detections"], 1, "{quality}");
    let (_, metrics) = group.http(follower, "GET", "/metrics", "").unwrap();
    for name in ["wanted_detection", "wanted_mistake_recurrence", "interval", "detection"] {
        assert!(metrics.contains(&format!("mandate_qos_{name}_seconds")), "{name}: {metrics}");
    }
}
