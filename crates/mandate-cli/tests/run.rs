//! `mandate run`: a command where leadership is, and nowhere else; and nothing of it left behind.

mod group;
mod wrapper;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use group::{Group, mandate, within};
use wrapper::{
    BOUND, LEASED, Running, TREE, ends_with, file, first_line, gone_within_the_lease, in_time,
    is_alive, leading, lines, run, signal, wait, with_text,
};

/// Who has started the command: the pid of each script, by member.
fn started(group: &Group) -> Vec<(u32, PathBuf)> {
    let path = |id: u32| file(group, &format!("started{id}"));
    (1..=group.size).map(|id| (id, path(id))).filter(|(_, path)| path.exists()).collect()
}

#[test]
fn the_command_runs_where_leadership_is_and_its_end_gives_it_back() {
    // A lease that nobody here waits for.
    let group = Group::new(3, "guarantee = 'leased'\nlease = '300s'");
    let script = |id: u32| {
        format!("echo $MANDATE_ROLE $MANDATE_TERM > started{id}; sleep 0.3; exit {}", 40 + id)
    };
    let start = |id: u32| Some(run(&group, id, &["--new"], &script(id)));
    let mut members: Vec<_> = (1..=3).map(start).collect();
    // One after the other leads, runs its command to the end, and passes its exit code on. The last has
    // no quorum left to lead with.
    let mut codes = Vec::new();
    within(BOUND, "two have ended, and no lease was waited for", || {
        for (place, member) in members.iter_mut().enumerate() {
            let status = member.as_mut().and_then(|member| member.0.try_wait().unwrap());
            if let Some(status) = status {
                *member = None;
                codes.push((place as i32 + 41, status.code()));
            }
        }
        (codes.len() == 2).then_some(())
    });
    assert!(codes.iter().all(|(expected, code)| *code == Some(*expected)), "{codes:?}");
    assert_eq!(started(&group).len(), 2, "and it has not led");
    let terms: Vec<_> = started(&group).iter().map(|(_, path)| lines(path)[0].clone()).collect();
    assert!(terms.iter().all(|line| line.starts_with("writer ")), "{terms:?}");
}

#[test]
fn when_leadership_is_lost_the_whole_tree_is_gone_before_the_lease() {
    in_time(|| {
        let mut group = Group::new(3, LEASED);
        let member = leading(&mut group, TREE);
        let (child, escaped) = (first_line(&group, "child"), first_line(&group, "escaped"));
        assert!(is_alive(&child) && is_alive(&escaped));
        // Both others die: no renewal is answered any more.
        group.kill(2);
        group.kill(3);
        let began = SystemTime::now();
        let in_time = gone_within_the_lease(&group, began, &[&child, &escaped]);
        ends_with(5, member, &file(&group, "run1.log"))?;
        in_time
    });
}

#[test]
fn what_is_asked_of_another_member_waits_until_the_command_has_ended() {
    // A lease that nobody here waits for.
    let mut group = Group::new(3, "guarantee = 'leased'\nlease = '300s'");
    let script = "trap 'echo > ended; exit 0' TERM; echo > ready; while :; do sleep 0.02; done";
    let member = leading(&mut group, script);
    first_line(&group, "ready");
    // Until the leader knows that p3 has a vote.
    within(BOUND, "p2 has leadership handed over to p3", || {
        let (code, text) = group.http(2, "POST", "/v1/transfer", "{\"to\": \"p3\"}")?;
        assert!(code == 204 || code == 409, "{code} {text}");
        (code == 204).then_some(())
    });
    assert!(file(&group, "ended").exists(), "the command had ended before");
    assert_eq!(wait(member), Some(5));
    assert_eq!(group.leader_except(&[1]), 3);
}

#[test]
fn what_changes_its_number_faster_than_it_is_looked_at_is_killed() {
    let group = Group::new(1, LEASED);
    let hop = file(&group, "hop.sh");
    // Each starts the next and ends: a process that is seen is gone when the signal arrives.
    let script = format!("sh {0} & exit", hop.display());
    std::fs::write(&hop, script).unwrap();
    let script = format!(
        "sh {0} & sh {0} & echo $$ > child; while [ ! -e seen ]; do sleep 0.1; done; exit 3",
        hop.display()
    );
    let member = run(&group, 1, &["--new"], &script);
    first_line(&group, "child");
    within(Duration::from_secs(5), "it hops", || {
        (!with_text(hop.to_str().unwrap()).is_empty()).then_some(())
    });
    std::fs::write(file(&group, "seen"), "").unwrap();
    assert_eq!(wait(member), Some(3));
    let left = with_text(hop.to_str().unwrap());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let group = Group::new(1, LEASED);
    // A daemon, as they are made: a child of a child that has ended, in a session of its own.
    let script = "(setsid sh -c 'echo $$ > daemon; while :; do sleep 0.05; done' &); \
                  while [ ! -s daemon ]; do sleep 0.01; done; exit 7";
    let member = run(&group, 1, &["--new"], script);
    assert_eq!(wait(member), Some(7));
    assert!(!is_alive(&first_line(&group, "daemon")));
}

#[test]
fn a_wrapper_that_is_asked_to_stop_stops_its_command_and_passes_its_exit_code_on() {
    for (kind, expected) in [("-TERM", Some(21)), ("-INT", Some(22))] {
        let group = Group::new(1, LEASED);
        let script = "trap 'exit 21' TERM; trap 'exit 22' INT; echo $$ > child; \
                      while :; do sleep 0.02; done";
        let member = run(&group, 1, &["--new"], script);
        let child = first_line(&group, "child");
        signal(&member, kind);
        assert_eq!(wait(member), expected);
        assert!(!is_alive(&child));
    }
}

#[test]
fn a_command_that_does_not_end_when_asked_is_killed_after_a_while() {
    let group = Group::new(1, LEASED);
    let member = run(
        &group,
        1,
        &["--new", "--grace", "2s"],
        "trap '' TERM; echo $$ > child; while :; do sleep 0.02; done",
    );
    let child = first_line(&group, "child");
    let began = Instant::now();
    signal(&member, "-TERM");
    assert_eq!(wait(member), Some(128 + 9));
    assert!(began.elapsed() > Duration::from_secs(1), "it had no time: {:?}", began.elapsed());
    assert!(!is_alive(&child));
}

#[test]
fn other_signals_are_passed_on() {
    let group = Group::new(1, LEASED);
    let script = "for kind in HUP USR1 USR2 WINCH; do trap \"echo $kind >> heard\" $kind; done; \
                  echo $$ > child; while :; do sleep 0.02; done";
    let member = run(&group, 1, &["--new"], script);
    first_line(&group, "child");
    for (number, kind) in ["HUP", "USR1", "USR2", "WINCH"].into_iter().enumerate() {
        signal(&member, &format!("-{kind}"));
        within(Duration::from_secs(5), kind, || {
            let heard = lines(&file(&group, "heard"));
            (heard.get(number).map(String::as_str) == Some(kind)).then_some(())
        });
    }
    signal(&member, "-TERM");
    assert_eq!(wait(member), Some(128 + 15));
}

#[test]
fn before_it_leads_a_signal_ends_the_wrapper() {
    let group = Group::new(3, LEASED);
    let member = run(&group, 1, &["--new"], "echo $$ > child");
    within(Duration::from_secs(10), "it has begun", || {
        file(&group, "p1.state").exists().then_some(())
    });
    signal(&member, "-TERM");
    assert_eq!(wait(member), Some(128 + 15));
    assert!(!file(&group, "child").exists());
}

#[test]
fn a_command_that_cannot_be_run_is_named_and_told_apart_from_one_that_is_not_there() {
    let plain = tempfile::NamedTempFile::new().unwrap();
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), "#!/no/such/interpreter\n").unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(script.path(), executable).unwrap();
    let script = script.into_temp_path();
    let cases = [
        ("/no/such/command", 127, "there is no such command"),
        ("no-such-command-anywhere", 127, "there is no such command"),
        (plain.path().to_str().unwrap(), 126, "ermission denied"),
        (script.to_str().unwrap(), 126, "interpreter"),
    ];
    for (command, code, words) in cases {
        let group = Group::new(1, LEASED);
        let output = mandate()
            .args(["run", "writer", "--new", "--config"])
            .arg(group.config(1))
            .args(["--", command])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(&format!("could not run {command}")), "{text}");
        assert!(text.contains(words), "{text}");
    }
}

/// Runs the wrapper on a terminal of its own, types there, and returns what was shown. A terminal on which nothing begins, on a
/// host that is so busy that the lease ends first, is closed, and another is opened.
fn on_a_terminal(script: &str, typed: &[u8]) -> String {
    let mut shown = Vec::new();
    for _ in 0..4 {
        match type_on_a_terminal(&Group::new(1, LEASED), script, typed) {
            Ok(shown) => return shown,
            Err(nothing) => shown.push(nothing),
        }
    }
    panic!("the command never begins: {shown:#?}");
}

/// What was shown; an error if the command has not begun.
fn type_on_a_terminal(group: &Group, script: &str, typed: &[u8]) -> Result<String, String> {
    use std::io::{Read, Write};
    let path = file(group, "script.sh");
    std::fs::write(&path, script).unwrap();
    let program = env!("CARGO_BIN_EXE_mandate");
    let config = group.config(1);
    let line = format!(
        "{program} run writer --new --config {} -- sh {}; echo code $?",
        config.display(),
        path.display()
    );
    // Signals as a terminal would leave them, wherever the tests run.
    let mut terminal = Command::new("env")
        .args([
            "--default-signal=HUP,INT,QUIT,TERM",
            "script",
            "-qec",
            &format!("bash -ic '{line}'"),
            "/dev/null",
        ])
        .current_dir(group.directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = terminal.stdin.take().unwrap();
    let mut output = terminal.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut shown = Vec::new();
        let _ = output.read_to_end(&mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    });
    let mut terminal = Running(terminal);
    let began = Instant::now();
    let mut has_begun = false;
    while began.elapsed() < BOUND && terminal.0.try_wait().unwrap().is_none() {
        if !has_begun && !lines(&file(group, "child")).is_empty() {
            has_begun = true;
            input.write_all(typed).unwrap();
            input.flush().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(terminal);
    let shown = reader.join().unwrap();
    if has_begun { Ok(shown) } else { Err(shown) }
}

#[test]
fn the_command_reads_from_the_terminal_and_ctrl_c_and_ctrl_z_reach_it() {
    let shown = on_a_terminal("echo $$ > child; read line; echo got $line; exit 4", b"tea\n");
    assert!(shown.contains("got tea") && shown.contains("code 4"), "{shown}");

    let script =
        "trap 'echo interrupted; exit 6' INT; echo $$ > child; while :; do sleep 0.02; done";
    // Ctrl-Z first: it does not leave the terminal without anyone who reads from it.
    let shown = on_a_terminal(script, b"\x1a\x03");
    assert!(shown.contains("interrupted") && shown.contains("code 6"), "{shown}");
}
