//! `mandate run` when its own processes are killed or stopped: the command does not go on without a mandate.

mod group;
mod wrapper;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use group::{Group, within};
use mandate_servers::testing;
use wrapper::{
    BOUND, LEASE, LEASED, Running, TREE, ends_with, file, first_line, gone, gone_within,
    gone_within_the_lease, in_time, is_alive, kill, leading, lines, run, signal, start, wait,
};

/// A command with a grandchild that leaves the process group, both of which ignore SIGTERM.
/// The pids of the command, its grandchild and its guard.
fn pids(group: &Group) -> [String; 3] {
    let pids = ["child", "escaped", "guard"].map(|name| first_line(group, name));
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    pids
}

#[test]
fn a_wrapper_that_is_killed_leaves_nothing_behind() {
    // Without leases it is killed at once.
    let at_once = Duration::from_millis(600);
    for (guarantee, limit) in [(LEASED, LEASE), ("guarantee = 'fenced'", at_once)] {
        in_time(|| {
            let mut group = Group::new(3, guarantee);
            let member = leading(&mut group, TREE);
            let [child, escaped, guard] = pids(&group);
            signal(&member, "-KILL");
            let began = SystemTime::now();
            let in_time = gone_within(limit, &group, began, &[&child, &escaped]);
            gone(BOUND, &[&guard]);
            wait(member);
            in_time
        });
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
    gone(BOUND, &[&child]);
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
    in_time(|| {
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
        let term = within(BOUND, "it acts", || acts(&group).first().copied()).0;
        testing::pause(&members[leader - 1].0);
        let next =
            within(BOUND, "another acts", || acts(&group).into_iter().find(|(now, _)| *now > term));
        if is_alive(&child) {
            return Err("the old one lives".into());
        }
        let last = acts(&group).into_iter().filter(|(now, _)| *now == term).map(|(_, at)| at).max();
        if last.unwrap() >= next.1 {
            return Err("it acted after the next had begun".into());
        }
        // When it runs again it finds that it was lost, and that its guard has done what it had to.
        testing::resume(&members[leader - 1].0);
        let member = members.into_iter().nth(leader - 1).unwrap();
        let log = || lines(&file(&group, &format!("run{leader}.log"))).join("\n");
        ends_with(5, member, &file(&group, &format!("run{leader}.log")))?;
        assert!(!log().contains("does not end the command in time"), "{}", log());
        Ok(())
    });
}

/// Commands that have written times into `acts.PID`: file, first and last act, by the first.
fn acted(group: &Group) -> Vec<(PathBuf, u64, u64)> {
    let files = std::fs::read_dir(group.directory.path()).unwrap().flatten();
    let files = files.filter(|it| it.file_name().to_string_lossy().starts_with("acts."));
    let read = |path: PathBuf| {
        let times: Vec<u64> = lines(&path).iter().filter_map(|it| it.parse().ok()).collect();
        Some((path, *times.first()?, *times.last()?))
    };
    let mut commands: Vec<_> = files.filter_map(|it| read(it.path())).collect();
    commands.sort_by_key(|(_, first, _)| *first);
    commands
}

fn one_at_a_time(commands: &[(PathBuf, u64, u64)]) -> Result<(), String> {
    for pair in commands.windows(2) {
        let [(one, _, last), (other, first, _)] = pair else { unreachable!() };
        let by = Duration::from_nanos(last.saturating_sub(*first));
        if last >= first {
            return Err(format!("{} acts on for {by:?} beside {}", one.display(), other.display()));
        }
    }
    Ok(())
}

#[test]
fn a_daemon_that_is_killed_with_its_wrapper_and_started_again_hands_over_to_nobody_while_a_hold_is_out()
 {
    in_time(|| {
        // Long enough that leadership could be handed over well within what is left of the hold.
        let mut group = Group::new(3, LEASED);
        group.start_all();
        let leader = group.leader();
        group.agree(leader);
        let script = "trap '' TERM; while :; do date +%s%N >> acts.$$; sleep 0.02; done";
        let beside = |group: &Group, id: u32| {
            let api = group.api(id);
            start(group, &format!("run{id}.log"), &["--api", &api, "--again"], script)
        };
        let wrapper = beside(&group, leader);
        within(BOUND, "a command acts", || (!acted(&group).is_empty()).then_some(()));
        let others: Vec<u32> = (1..=3).filter(|id| *id != leader).collect();
        let _wrappers: Vec<Running> = others.iter().map(|id| beside(&group, *id)).collect();
        // Its guard lets the command act until the hold is over.
        group.kill(leader);
        signal(&wrapper, "-KILL");
        group.start(leader);
        // As soon as anyone leads, it is to hand over; and again, until another command acts.
        within(BOUND, "another command acts", || {
            for id in group.leaders() {
                let to = others.iter().find(|to| **to != id)?;
                let _ = group.http(id, "POST", "/v1/transfer", &format!("{{\"to\":\"p{to}\"}}"));
            }
            (acted(&group).len() > 1).then_some(())
        });
        let first = acted(&group)[0].0.extension().unwrap().to_str().unwrap().to_owned();
        gone(BOUND, &[&first]);
        one_at_a_time(&acted(&group))
    });
}

#[test]
fn a_wrapper_that_is_killed_and_started_again_starts_nothing_beside_what_still_acts() {
    in_time(|| {
        // Long enough that a second incarnation would lead well within what is left to the first command.
        let group = Group::new(3, LEASED);
        // Each command has a file of its own: so acts and their times are told apart.
        let script = "trap '' TERM; while :; do date +%s%N >> acts.$$; sleep 0.02; done";
        let start =
            |id: u32, args: &[&str]| run(&group, id, &[args, &["--again"]].concat(), script);
        let mut members: Vec<Running> = (1..=3).map(|id| start(id, &["--new"])).collect();
        let commands = || acted(&group);
        for round in 1..=2 {
            within(BOUND, "a command acts", || (commands().len() >= round).then_some(()));
            let last = commands().last().unwrap().0.clone();
            let pid = last.extension().unwrap().to_str().unwrap().to_owned();
            // The guard is the command's parent, the wrapper the guard's.
            let parent = |pid: &str| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().to_owned()
            };
            let wrapper = parent(&parent(&pid));
            let index = members.iter().position(|it| it.0.id().to_string() == wrapper).unwrap();
            signal(&members[index], "-KILL");
            members[index] = start(index as u32 + 1, &[]);
            within(BOUND, "another command acts", || (commands().len() > round).then_some(()));
        }
        gone(BOUND, &[commands()[0].0.extension().unwrap().to_str().unwrap()]);
        one_at_a_time(&commands())?;
        let logs: String =
            (1..=3).map(|id| lines(&file(&group, &format!("run{id}.log"))).join("\n")).collect();
        assert!(logs.contains("has not ended yet: waiting for that"), "{logs}");
        Ok(())
    });
}

#[test]
fn a_state_that_somebody_keeps_is_given_up_on_after_a_while_with_the_reason() {
    let mut group = Group::new(1, LEASED);
    group.start(1);
    within(BOUND, "the daemon leads", || (group.leaders() == [1]).then_some(()));
    let member = run(&group, 1, &[], "true");
    assert_eq!(wait(member), Some(1));
    let log = lines(&file(&group, "run1.log")).join("\n");
    assert!(log.contains("waiting for that, up to 8s"), "{log}");
    assert!(log.contains("is this member running already"), "{log}");
}

#[test]
fn asked_to_stop_means_stop_also_with_again_and_a_guard_that_does_nothing() {
    let group = Group::new(1, LEASED);
    let script = "trap '' TERM; echo $PPID > guard; echo yes >> starts; echo $$ > child; \
                  while :; do sleep 0.02; done";
    let member = run(&group, 1, &["--new", "--again", "--grace", "300ms"], script);
    let (child, guard) = (first_line(&group, "child"), first_line(&group, "guard"));
    kill("-STOP", &guard);
    signal(&member, "-TERM");
    assert_eq!(wait(member), Some(128 + 9));
    gone(BOUND, &[&child, &guard]);
    assert_eq!(lines(&file(&group, "starts")).len(), 1, "it was started again");
}

#[test]
fn a_guard_that_is_killed_takes_its_command_along_and_the_wrapper_ends_the_rest() {
    let group = Group::new(1, LEASED);
    let member = run(&group, 1, &["--new"], &format!("echo $$ > child; {TREE}"));
    let [child, escaped, guard] = pids(&group);
    kill("-KILL", &guard);
    gone(BOUND, &[&child, &escaped, &guard]);
    assert_eq!(wait(member), Some(1));
    let log = lines(&file(&group, "run1.log")).join("\n");
    assert!(log.contains("the guard was killed"), "{log}");
}

#[test]
fn a_guard_that_is_stopped_is_done_without() {
    in_time(|| {
        let mut group = Group::new(3, LEASED);
        let member = leading(&mut group, TREE);
        let [child, escaped, guard] = pids(&group);
        kill("-STOP", &guard);
        group.kill(2);
        group.kill(3);
        let began = SystemTime::now();
        let in_time = gone_within_the_lease(&group, began, &[&child, &escaped, &guard]);
        ends_with(5, member, &file(&group, "run1.log"))?;
        in_time
    });
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
    gone(BOUND, &[&child]);
    assert_eq!(first_line(&group, "asked"), "asked", "it was continued to end by itself");
    assert_eq!(wait(member), Some(5));
}
