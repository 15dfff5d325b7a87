//! `mandate run` beside a daemon: the command runs while the daemon leads, and ends in time whatever becomes
//! of it.

mod group;
mod wrapper;

use std::time::{Duration, Instant, SystemTime};

use group::{Group, within};
use wrapper::{
    BOUND, LEASED, Running, TREE, ends_with, file, first_line, gone, gone_within_the_lease,
    in_time, is_alive, lines, signal, spawn, start, start_role, wait,
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

#[test]
fn the_command_runs_beside_the_leader_and_its_end_gives_that_term_back() {
    let mut group = Group::new(3, "guarantee = 'leased'\nlease = '300s'");
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
    // Nobody waited for the lease, and the next leader gets its command.
    assert!(began.elapsed() < Duration::from_secs(200), "{:?}", began.elapsed());
    if next != follower {
        group.hand_over(follower);
    }
    assert_eq!(wait(waiting), Some(40 + follower as i32));
    let term = |id: u32| first_line(&group, &format!("started{id}")).parse::<u64>().unwrap();
    assert!(term(leader) < term(follower));
}

#[test]
fn a_daemon_that_is_stopped_or_killed_does_not_keep_the_command_alive() {
    for is_killed in [false, true] {
        in_time(|| {
            let (mut group, leader, member) = beside_the_leader(LEASED, &[], TREE);
            let (child, escaped) = (first_line(&group, "child"), first_line(&group, "escaped"));
            if is_killed {
                group.kill(leader);
            } else {
                group.pause(leader);
            }
            let began = SystemTime::now();
            let in_time = gone_within_the_lease(&group, began, &[&child, &escaped]);
            ends_with(5, member, &file(&group, &format!("run{leader}.log")))?;
            group.kill(leader);
            in_time
        });
    }
}

#[test]
fn without_leases_a_daemon_that_is_silent_for_a_second_is_not_believed() {
    let (group, leader, member) = beside_the_leader("guarantee = 'fenced'", &[], TREE);
    let child = first_line(&group, "child");
    group.signal(leader, "-STOP");
    gone(BOUND, &[&child]);
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
            beside_the_leader("guarantee = 'leased'\nlease = '300s'", &[], script);
        let next = beside(&group, leader % 3 + 1, &[], "date +%s%N > began; exit 0");
        let began = Instant::now();
        match way {
            "stop" => {
                group.signal(leader, "-TERM");
                assert!(group.ended(leader).success());
            }
            "transfer" => group.hand_over(leader % 3 + 1),
            _ => {
                let (code, text) = group.http(leader, "POST", "/v1/resign", "").unwrap();
                assert_eq!(code, 204, "{way}: {text}");
            }
        }
        assert!(began.elapsed() < Duration::from_secs(200), "{way}: the lease was waited for");
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
    in_time(|| {
        let (group, leader, member) = beside_the_leader(LEASED, &[], TREE);
        let child = first_line(&group, "child");
        signal(&member, "-KILL");
        let (code, said) = group.http(leader, "POST", "/v1/resign", "").unwrap();
        if code != 204 {
            return Err(format!("it could not resign any more: {said}"));
        }
        match is_alive(&child) {
            true => Err("leadership moved while the command ran".into()),
            false => Ok(()),
        }
    });
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
    let member = beside(&group, 1, &["--wait", "0s"], "true");
    assert_eq!(wait(member), Some(1));
    let log = lines(&file(&group, "run1.log")).join("\n");
    assert!(log.contains("is `mandate node` running"), "{log}");
}

#[test]
fn what_only_members_with_a_state_start_from_is_refused_elsewhere() {
    let places: [(&[&str], &str); 3] = [
        (&[], "for a member of its own"),
        (&["--url", "sqlite:mandate.db"], "on a database they have none"),
        (&["--brokers", "127.0.0.1:1"], "on a ledger they have none"),
    ];
    for (place, expected) in places {
        for start in ["--new", "--lost", "--members-changed"] {
            let directory = tempfile::tempdir().unwrap();
            let args = [&["writer", start], place].concat();
            let refused = spawn(directory.path(), "run.log", &args, &["touch", "begun"]);
            assert_eq!(wait(refused), Some(1), "{args:?}");
            let said = lines(&directory.path().join("run.log")).join("\n");
            assert!(said.contains(start) && said.contains(expected), "{args:?}: {said}");
            assert!(!directory.path().join("begun").exists(), "{args:?}");
        }
    }
}

/// What `/v1/mandate` says.
fn mandate_of(group: &Group, id: u32) -> serde_json::Value {
    let (code, body) = group.http(id, "GET", "/v1/mandate", "").unwrap();
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// A command that runs until a file is there.
fn until_file(name: &str) -> String {
    format!(
        "trap 'exit 21' TERM; echo $MANDATE_TERM > {name}.term; \
         while [ ! -e {name}.end ]; do sleep 0.02; done; exit 3"
    )
}

#[test]
fn commands_of_different_roles_beside_one_daemon_do_not_disturb_each_other() {
    let mut group = Group::new(1, LEASED);
    group.start_all();
    let leader = group.leader();
    let api = group.api(leader);
    let run = |role: &str| {
        start_role(role, &group, &format!("{role}.log"), &["--api", &api], &until_file(role))
    };
    let (writer, backup) = (run("writer"), run("backup"));
    let terms = ["writer.term", "backup.term"].map(|name| first_line(&group, name));
    assert_eq!(terms[0], terms[1], "both act on one mandate");
    let mut roles = mandate_of(&group, leader)["roles"].as_array().unwrap().clone();
    roles.sort_by_key(|role| role.to_string());
    assert_eq!(roles, ["backup", "writer"]);
    // One ends: the other runs on, in the same term, and leadership stays.
    std::fs::write(file(&group, "backup.end"), "").unwrap();
    assert_eq!(wait(backup), Some(3));
    within(BOUND, "its hold is over", || {
        (mandate_of(&group, leader)["roles"] == serde_json::json!(["writer"])).then_some(())
    });
    assert_eq!(mandate_of(&group, leader)["term"].to_string(), terms[0], "leadership moved");
    // The last one gives it back: the group's only member then leads in another term.
    std::fs::write(file(&group, "writer.end"), "").unwrap();
    assert_eq!(wait(writer), Some(3), "{:?}", lines(&file(&group, "writer.log")));
    let term: u64 = terms[0].parse().unwrap();
    within(BOUND, "it was given back", || {
        mandate_of(&group, leader)["term"].as_u64().filter(|now| *now > term)
    });
}

#[test]
fn one_command_at_a_time_has_a_role_beside_one_daemon() {
    let mut group = Group::new(1, LEASED);
    group.start_all();
    let leader = group.leader();
    let first = beside(&group, leader, &[], &until_file("first"));
    let term: u64 = first_line(&group, "first.term").parse().unwrap();
    let api = group.api(leader);
    let second = start(&group, "second.log", &["--api", &api], &until_file("second"));
    let said = within(BOUND, "the second says why it waits", || {
        let said = lines(&file(&group, "second.log")).join("\n");
        said.contains("waiting to lead").then_some(said)
    });
    assert!(said.contains("the role writer is held by run-"), "{said}");
    // A caller that asks for the role itself is told who has it.
    let hold =
        |body: &str| group.http(leader, "PUT", "/v1/mandate/holders/stranger", body).unwrap();
    let (code, text) = hold(r#"{"role":"writer"}"#);
    assert!(code == 409 && text.contains("the role writer is held by run-"), "{code} {text}");
    assert_eq!(hold(r#"{"rolle":"writer"}"#).0, 422);
    assert!(!file(&group, "second.term").exists(), "two at once");
    std::fs::write(file(&group, "first.end"), "").unwrap();
    assert_eq!(wait(first), Some(3));
    // The next acts in a term of its own, so that a resource that checks terms can tell them apart.
    let next: u64 = first_line(&group, "second.term").parse().unwrap();
    assert!(next > term, "{next} after {term}");
    std::fs::write(file(&group, "second.end"), "").unwrap();
    assert_eq!(wait(second), Some(3));
}

#[test]
fn a_role_whose_wrapper_was_killed_is_free_when_its_command_is_gone() {
    in_time(|| {
        let mut group = Group::new(1, LEASED);
        group.start_all();
        let leader = group.leader();
        let script = "trap '' TERM; echo $$ > first; while :; do sleep 0.02; done";
        let killed = beside(&group, leader, &[], script);
        let first = first_line(&group, "first");
        signal(&killed, "-KILL");
        let script = format!("kill -0 {first} 2> alive && echo no > alone || echo yes > alone");
        let next = beside(&group, leader, &[], &script);
        ends_with(0, next, &file(&group, &format!("run{leader}.log")))?;
        match first_line(&group, "alone") == "yes" {
            true => Ok(()),
            false => Err("the first still ran".into()),
        }
    });
}

#[test]
fn with_again_it_waits_to_lead_anew() {
    let script = "echo $MANDATE_TERM >> terms; echo $$ > child; while :; do sleep 0.02; done";
    let (group, leader, member) = beside_the_leader(LEASED, &["--again"], script);
    assert_eq!(group.http(leader, "POST", "/v1/resign", "").unwrap().0, 204);
    group.leader_except(&[leader]);
    group.hand_over(leader);
    within(BOUND, "a second term", || (lines(&file(&group, "terms")).len() >= 2).then_some(()));
    signal(&member, "-TERM");
    assert_eq!(wait(member), Some(128 + 15));
}
