//! `mandate run` when its own processes are killed or stopped: the command does not go on without a mandate.

mod group;
mod wrapper;

use std::time::{Duration, Instant};

use group::{Group, within};
use wrapper::{
    LEASE, LEASED, Running, file, first_line, gone, is_alive, kill, leading, lines, run, signal,
    wait,
};

/// A command with a grandchild that leaves the process group, both of which ignore SIGTERM.
const TREE: &str = "trap '' TERM; echo $PPID > guard; \
    setsid sh -c 'trap \"\" TERM; echo $$ > escaped; while :; do sleep 0.02; done' & \
    while :; do sleep 0.05; done";

/// The pids of the command, its grandchild and its guard.
fn pids(group: &Group) -> [String; 3] {
    let pids = ["child", "escaped", "guard"].map(|name| first_line(group, name));
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    pids
}

#[test]
fn a_wrapper_that_is_killed_leaves_nothing_behind() {
    for guarantee in [LEASED, "guarantee = 'fenced'"] {
        let mut group = Group::new(3, guarantee);
        let member = leading(&mut group, TREE);
        let [child, escaped, guard] = pids(&group);
        let began = Instant::now();
        signal(&member, "-KILL");
        gone(Duration::from_secs(5), &[&child, &escaped]);
        let took = began.elapsed();
        println!("gone after {took:?}");
        assert!(took < LEASE, "gone after {took:?}, and the lease is {LEASE:?}");
        gone(Duration::from_secs(5), &[&guard]);
        wait(member);
    }
}

#[test]
fn a_wrapper_that_is_killed_still_gives_its_command_time_to_end() {
    let group = Group::new(1, LEASED);
    let script =
        "trap 'echo asked > asked; exit 0' TERM; echo $$ > child; while :; do sleep 0.02; done";
    let member = run(&group, 1, &["--new"], script);
    let child = first_line(&group, "child");
    signal(&member, "-KILL");
    gone(Duration::from_secs(5), &[&child]);
    assert_eq!(first_line(&group, "asked"), "asked");
    wait(member);
}

/// Terms and times of what commands did, as they wrote it.
fn acts(group: &Group) -> Vec<(u64, u64)> {
    let parse = |line: &String| {
        let (term, at) = line.split_once(' ')?;
        Some((term.parse().ok()?, at.parse().ok()?))
    };
    lines(&file(group, "acts")).iter().filter_map(parse).collect()
}

#[test]
fn a_wrapper_that_is_stopped_has_its_command_gone_before_the_next_leader_acts() {
    let group = Group::new(3, LEASED);
    let script = |id: u32| {
        format!(
            "trap '' TERM; echo {id} >> leaders; echo $$ > child{id}; \
             while :; do echo $MANDATE_TERM $(date +%s%N) >> acts; sleep 0.01; done"
        )
    };
    let members: Vec<Running> =
        (1..=3).map(|id| run(&group, id, &["--new"], &script(id))).collect();
    let leader: usize = first_line(&group, "leaders").parse().unwrap();
    let child = first_line(&group, &format!("child{leader}"));
    let term = within(Duration::from_secs(5), "it acts", || acts(&group).first().copied()).0;
    signal(&members[leader - 1], "-STOP");
    let next = within(Duration::from_secs(20), "another acts", || {
        acts(&group).into_iter().find(|(now, _)| *now > term)
    });
    assert!(!is_alive(&child), "the old one lives");
    let last = acts(&group).into_iter().filter(|(now, _)| *now == term).map(|(_, at)| at).max();
    assert!(last.unwrap() < next.1, "it acted after the next had begun");
    // When it runs again it finds that it was lost.
    signal(&members[leader - 1], "-CONT");
    let member = members.into_iter().nth(leader - 1).unwrap();
    assert_eq!(wait(member), Some(5), "{:?}", lines(&file(&group, &format!("run{leader}.log"))));
}

#[test]
fn a_guard_that_is_killed_takes_its_command_along_and_the_wrapper_ends_the_rest() {
    let group = Group::new(1, LEASED);
    let member = run(&group, 1, &["--new"], &format!("echo $$ > child; {TREE}"));
    let [child, escaped, guard] = pids(&group);
    kill("-KILL", &guard);
    gone(Duration::from_secs(2), &[&child, &escaped, &guard]);
    assert_eq!(wait(member), Some(1));
    let log = lines(&file(&group, "run1.log")).join("\n");
    assert!(log.contains("the guard was killed"), "{log}");
}

#[test]
fn a_guard_that_is_stopped_is_done_without() {
    let mut group = Group::new(3, LEASED);
    let member = leading(&mut group, TREE);
    let [child, escaped, guard] = pids(&group);
    kill("-STOP", &guard);
    let began = Instant::now();
    group.kill(2);
    group.kill(3);
    gone(Duration::from_secs(5), &[&child, &escaped, &guard]);
    let took = began.elapsed();
    assert!(took < LEASE, "gone after {took:?}, and the lease is {LEASE:?}");
    assert_eq!(wait(member), Some(5));
}

#[test]
fn a_command_that_was_stopped_is_ended_too() {
    let mut group = Group::new(3, LEASED);
    let script = "trap 'echo asked > asked; exit 0' TERM; while :; do sleep 0.02; done";
    let member = leading(&mut group, script);
    let child = first_line(&group, "child");
    kill("-STOP", &child);
    group.kill(2);
    group.kill(3);
    gone(Duration::from_secs(5), &[&child]);
    assert_eq!(first_line(&group, "asked"), "asked", "it was continued to end by itself");
    assert_eq!(wait(member), Some(5));
}
