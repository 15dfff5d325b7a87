//! `mandate run` beside a daemon: the command runs while the daemon leads, and ends in time whatever becomes
//! of it.

mod group;
mod wrapper;

use std::time::{Duration, Instant};

use group::{Group, within};
use wrapper::{
    LEASE, LEASED, Running, file, first_line, gone, is_alive, lines, signal, start, wait,
};

/// A wrapper beside a member's daemon.
fn beside(group: &Group, id: u32, args: &[&str], script: &str) -> Running {
    let api = group.api(id);
    start(group, &format!("run{id}.log"), &[&["--api", &api], args].concat(), script)
}

/// Three daemons, and a wrapper beside the leader.
fn beside_the_leader(election: &str, args: &[&str], script: &str) -> (Group, u32, Running) {
    let mut group = Group::new(3, election);
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let member = beside(&group, leader, args, script);
    first_line(&group, "child");
    (group, leader, member)
}

const LOOP: &str = "trap '' TERM; echo $$ > child; \
    setsid sh -c 'trap \"\" TERM; echo $$ > escaped; while :; do sleep 0.02; done' & \
    while :; do sleep 0.02; done";

#[test]
fn the_command_runs_beside_the_leader_and_its_end_gives_that_term_back() {
    let mut group = Group::new(3, "guarantee = 'leased'\nlease = '20s'");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let script = |id: u32| format!("echo $MANDATE_TERM > started{id}; exit {}", 40 + id);
    let follower = if leader == 1 { 2 } else { 1 };
    // This one waits.
    let waiting = beside(&group, follower, &[], &script(follower));
    let began = Instant::now();
    let member = beside(&group, leader, &[], &script(leader));
    assert_eq!(wait(member), Some(40 + leader as i32));
    let next = group.leader_except(&[leader]);
    // Nobody waited for the lease, and whoever leads next gets its command.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    if next != follower {
        let (code, _) = group
            .http(next, "POST", "/v1/transfer", &format!("{{\"to\":\"p{follower}\"}}"))
            .unwrap();
        assert_eq!(code, 204);
    }
    assert_eq!(wait(waiting), Some(40 + follower as i32));
    let term = |id: u32| first_line(&group, &format!("started{id}")).parse::<u64>().unwrap();
    assert!(term(leader) < term(follower));
}

#[test]
fn a_daemon_that_is_stopped_or_killed_does_not_keep_the_command_alive() {
    for strike in ["-STOP", "-KILL"] {
        let (mut group, leader, member) = beside_the_leader(LEASED, &[], LOOP);
        let (child, escaped) = (first_line(&group, "child"), first_line(&group, "escaped"));
        let began = Instant::now();
        group.signal(leader, strike);
        gone(Duration::from_secs(5), &[&child, &escaped]);
        let took = began.elapsed();
        println!("{strike}: gone after {took:?}");
        assert!(took < LEASE, "gone after {took:?}, and the lease is {LEASE:?}");
        assert_eq!(
            wait(member),
            Some(5),
            "{:?}",
            lines(&file(&group, &format!("run{leader}.log")))
        );
        group.kill(leader);
    }
}

#[test]
fn without_leases_a_daemon_that_is_silent_for_a_second_is_not_believed() {
    let (group, leader, member) = beside_the_leader("guarantee = 'fenced'", &[], LOOP);
    let child = first_line(&group, "child");
    group.signal(leader, "-STOP");
    gone(Duration::from_secs(5), &[&child]);
    assert_eq!(wait(member), Some(5));
    group.signal(leader, "-CONT");
}

#[test]
fn leadership_moves_only_when_the_command_has_ended() {
    let script = "trap 'sleep 0.1; date +%s%N > ended; exit 0' TERM; echo $$ > child; \
                  while :; do sleep 0.02; done";
    for way in ["transfer", "resign", "stop"] {
        // A lease that nobody waits for.
        let (mut group, leader, member) =
            beside_the_leader("guarantee = 'leased'\nlease = '8s'", &[], script);
        let next = beside(&group, leader % 3 + 1, &[], "date +%s%N > began; exit 0");
        let body = match way {
            "transfer" => format!("{{\"to\":\"p{}\"}}", leader % 3 + 1),
            _ => String::new(),
        };
        let began = Instant::now();
        if way == "stop" {
            group.signal(leader, "-TERM");
            assert!(group.ended(leader).success());
        } else {
            let (code, text) = group.http(leader, "POST", &format!("/v1/{way}"), &body).unwrap();
            assert_eq!(code, 204, "{way}: {text}");
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{way}: the lease was waited for");
        assert_eq!(wait(member), Some(5));
        let successor = group.leader_except(&[leader]);
        if successor == leader % 3 + 1 {
            assert_eq!(wait(next), Some(0));
            let (ended, began) = (first_line(&group, "ended"), first_line(&group, "began"));
            assert!(ended < began, "{way}: two at once");
        }
    }
}

#[test]
fn a_wrapper_that_is_killed_delays_a_resignation_by_its_hold_only() {
    let (group, leader, member) = beside_the_leader(LEASED, &[], LOOP);
    let child = first_line(&group, "child");
    signal(&member, "-KILL");
    let (code, _) = group.http(leader, "POST", "/v1/resign", "").unwrap();
    assert_eq!(code, 204);
    assert!(!is_alive(&child), "leadership moved while the command ran");
}

#[test]
fn only_the_term_that_is_named_is_resigned_from() {
    let mut group = Group::new(3, "");
    group.start_all();
    let leader = group.leader();
    group.agree(leader);
    let (code, body) = group.http(leader, "GET", "/v1/mandate", "").unwrap();
    assert_eq!(code, 200);
    let document: serde_json::Value = serde_json::from_str(&body).unwrap();
    let term = document["term"].as_u64().unwrap();
    let resign = |body: &str| group.http(leader, "POST", "/v1/resign", body).unwrap();
    let (code, text) = resign(&format!("{{\"term\":{}}}", term + 1));
    assert!(code == 409 && text.contains(&format!("leads in term {term}")), "{code} {text}");
    assert_eq!(resign("{\"trem\":1}").0, 422);
    assert_eq!(group.leaders(), [leader]);
    assert_eq!(resign(&format!("{{\"term\":{term}}}")).0, 204);
    group.leader_except(&[leader]);
}

#[test]
fn without_a_daemon_it_says_what_to_do() {
    let group = Group::new(1, "");
    let member = beside(&group, 1, &[], "true");
    assert_eq!(wait(member), Some(1));
    let log = lines(&file(&group, "run1.log")).join("\n");
    assert!(log.contains("is `mandate node` running"), "{log}");
    let member = beside(&group, 1, &["--new"], "true");
    assert_eq!(wait(member), Some(1));
    let log = lines(&file(&group, "run1.log")).join("\n");
    assert!(log.contains("--new and --lost are for a member of its own"), "{log}");
}

#[test]
fn with_again_it_waits_to_lead_anew() {
    let script = "echo $MANDATE_TERM >> terms; echo $$ > child; while :; do sleep 0.02; done";
    let (group, leader, member) = beside_the_leader(LEASED, &["--again"], script);
    assert_eq!(group.http(leader, "POST", "/v1/resign", "").unwrap().0, 204);
    let next = group.leader_except(&[leader]);
    within(Duration::from_secs(10), "it comes back", || {
        let body = format!("{{\"to\":\"p{leader}\"}}");
        (group.http(next, "POST", "/v1/transfer", &body)?.0 == 204).then_some(())
    });
    within(Duration::from_secs(10), "a second term", || {
        (lines(&file(&group, "terms")).len() == 2).then_some(())
    });
    signal(&member, "-TERM");
    assert_eq!(wait(member), Some(128 + 15));
}
