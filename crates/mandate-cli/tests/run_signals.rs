//! `mandate run` and signals: commands of all kinds hear them, and so does a wrapper that has no command yet.
//!
//! On SQLite, where a member leads within a moment. A command that would not hear a signal is never killed in these
//! tests (`--grace 1h`), so that one that ends has heard it.

mod group;
mod wrapper;

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use group::{mandate, within};
use wrapper::{BOUND, Running, gone, lines, process_of, signal, spawn, wait};

/// Without leases nothing but a signal ends a command, however busy the host is.
const FENCED: &str = "--guarantee fenced";

/// `mandate run` on a file in that directory.
fn run(directory: &Path, command: &[&str]) -> Running {
    spawn(directory, "run.log", &on_file(&["--grace", "1h"]), command)
}

/// Arguments for an election on a file.
fn on_file<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let args = ["writer", "--url", "sqlite:mandate.db"];
    args.into_iter().chain(FENCED.split(' ')).chain(more.iter().copied()).collect()
}

/// What a command prints, and how it ends.
fn output(command: &[&str]) -> (String, Option<i32>) {
    let directory = tempfile::tempdir().unwrap();
    let output = mandate()
        .arg("run")
        .args(on_file(&["--"]))
        .args(command)
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[test]
fn a_command_starts_with_no_signal_blocked_and_none_ignored_that_was_not_before() {
    let (shown, code) = output(&["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]);
    assert_eq!(code, Some(0));
    let mask = |name: &str| {
        let line = shown.lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    };
    assert_eq!(mask("SigBlk:"), 0, "{shown}");
    // HUP, INT, QUIT, USR1, USR2, PIPE, TERM, CHLD.
    let usual = [1, 2, 3, 10, 12, 13, 15, 17].map(|kind| 1 << (kind - 1)).iter().sum::<u64>();
    assert_eq!(mask("SigIgn:") & usual, 0, "{shown}");
}

#[test]
fn a_pipeline_ends_when_its_reader_does() {
    let script = "set -o pipefail; yes | head -1; echo $?";
    assert_eq!(output(&["bash", "-c", script]), ("y\n141\n".into(), Some(0)));
    // A shell that writes without end, and is told nothing but SIGPIPE.
    let script = "sh -c 'while :; do echo y; done' | head -1";
    assert_eq!(output(&["sh", "-c", script]), ("y\n".into(), Some(0)));
}

const PYTHON: &str = "import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(21))
signal.signal(signal.SIGINT, lambda *_: sys.exit(22))
open('begun', 'w').write('yes\\n')
while True: time.sleep(1000)
";

const NODE: &str = "process.on('SIGTERM', () => process.exit(21));
process.on('SIGINT', () => process.exit(22));
require('fs').writeFileSync('begun', 'yes\\n');
setInterval(() => {}, 1000000);
";

const BASH: &str = "trap 'exit 21' TERM; trap 'exit 22' INT; echo yes > begun; \
    while :; do sleep 0.05; done";

/// Waits until the command says that it has begun; what the wrapper says if it never does.
fn begins(directory: &Path, member: &Running) {
    let began = Instant::now();
    while !directory.join("begun").exists() {
        let said = || lines(&directory.join("run.log")).join("\n");
        assert!(began.elapsed() < BOUND, "{member:?} does not begin: {}", said());
        sleep(Duration::from_millis(2));
    }
}

#[test]
fn commands_of_all_kinds_hear_that_they_are_asked_to_end() {
    // A shell that waits for its last command, which it did not become, because a trap is set.
    let last = ["sleep", &format!("4000.{}", std::process::id())];
    let script =
        format!("trap 'echo asked > asked' TERM INT; echo yes > begun; {}", last.join(" "));
    let in_front = ["bash", "-c", &script];
    let cases: [(&[&str], i32, i32); 4] = [
        (&["bash", "-c", BASH], 21, 22),
        (&["python3", "-c", PYTHON], 21, 22),
        (&["node", "-e", NODE], 21, 22),
        // Its own child hears it too: they are one process group.
        (&in_front, 128 + 15, 128 + 2),
    ];
    for (command, terminated, interrupted) in cases {
        for (kind, code) in [("-TERM", terminated), ("-INT", interrupted)] {
            let directory = tempfile::tempdir().unwrap();
            let member = run(directory.path(), command);
            begins(directory.path(), &member);
            if command == in_front {
                // Before it is there, nobody but the shell hears anything, and then waits for it.
                process_of(&last);
            }
            signal(&member, kind);
            assert_eq!(wait(member), Some(code), "{command:?} {kind}");
        }
    }
}

#[test]
fn a_command_that_knows_nothing_of_signals_is_ended_by_them() {
    for (kind, code) in [("-TERM", 128 + 15), ("-INT", 128 + 2), ("-HUP", 128 + 1)] {
        let directory = tempfile::tempdir().unwrap();
        let command = ["sleep", &format!("1000.{}{code}", std::process::id())];
        let member = run(directory.path(), &command);
        process_of(&command);
        signal(&member, kind);
        assert_eq!(wait(member), Some(code), "{kind}");
    }
}

#[test]
fn a_terminal_that_is_closed_ends_the_command_and_leadership_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_mandate");
    let number = format!("2000.{}", std::process::id());
    let line = format!(
        "{program} run writer --url sqlite:mandate.db {FENCED} --grace 1h -- sleep {number}"
    );
    // Signals as a terminal would leave them, wherever the tests run.
    let terminal = Command::new("env")
        .args(["--default-signal=HUP,INT,QUIT,TERM", "script", "-qec"])
        .args([&format!("bash -ic '{line}; true'"), "/dev/null"])
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let terminal = Running(terminal);
    let command = process_of(&["sleep", &number]);
    let wrapper = wrapper::with_text(&number);
    assert!(wrapper.len() > 1, "{wrapper:?}");
    drop(terminal);
    gone(BOUND, &[&command]);
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    gone(BOUND, &wrapper);
    // The next member leads at once.
    assert_eq!(wait(run(directory.path(), &["true"])), Some(0));
}

#[test]
fn a_wrapper_that_waits_to_lead_ends_as_the_signal_says_and_not_with_success() {
    let directory = tempfile::tempdir().unwrap();
    let leader = ["sleep", &format!("3000.{}", std::process::id())];
    // With a lease that others wait for: without, a busy host's leader is replaced. It outlasts a renewal by 2 s.
    let args = ["writer", "--url", "sqlite:mandate.db", "--round", "8s", "--grace", "1h"];
    let first = spawn(directory.path(), "run.log", &args, &leader);
    process_of(&leader);
    for (kind, code) in [("-TERM", 143), ("-INT", 130), ("-HUP", 129)] {
        let log = format!("waiting{code}.log");
        let waiting = spawn(directory.path(), &log, &args, &["touch", "never"]);
        let said = within(BOUND, "it says who leads", || {
            let said = lines(&directory.path().join(&log)).join("\n");
            said.contains("waiting to lead").then_some(said)
        });
        assert!(said.contains("leads in term 1"), "{said}");
        signal(&waiting, kind);
        assert_eq!(wait(waiting), Some(code), "{kind}");
        let said = lines(&directory.path().join(&log));
        assert_eq!(said.iter().filter(|line| line.contains("waiting to lead")).count(), 1);
    }
    assert!(!directory.path().join("never").exists());
    signal(&first, "-TERM");
    assert_eq!(wait(first), Some(143));
}

#[cfg(feature = "postgres")]
#[test]
fn signals_are_heard_while_the_first_connection_is_tried() {
    for is_daemon in [false, true] {
        for (kind, code) in [("-TERM", 143), ("-INT", 130)] {
            // A server of its own that takes a connection and says nothing.
            let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let api = silent.local_addr().unwrap().to_string();
            let url = format!("postgres://u:p@{api}/orders");
            let args = match is_daemon {
                true => ["writer", "--api", &api],
                false => ["writer", "--url", &url],
            };
            let directory = tempfile::tempdir().unwrap();
            let member = spawn(directory.path(), "run.log", &args, &["true"]);
            let _connected = silent.accept().unwrap();
            signal(&member, kind);
            assert_eq!(wait(member), Some(code), "{args:?} {kind}");
        }
    }
}

#[test]
fn what_is_not_there_yet_is_waited_for_as_long_as_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // Nobody listens there: the port is kept for this test.
    let at = format!("127.0.0.1:{}", mandate_servers::free_ports(1).unwrap()[0]);
    let absent = ["writer", "--api", &at];
    let bounded = [&absent[..], &["--wait", "0s"]].concat();
    assert_eq!(wait(spawn(path, "bounded.log", &bounded, &["true"])), Some(1));
    let said = lines(&path.join("bounded.log")).join("\n");
    assert!(said.contains("is `mandate node` running"), "{said}");
    let waiting = spawn(path, "waiting.log", &absent, &["true"]);
    within(BOUND, "it says why it waits", || {
        let said = lines(&path.join("waiting.log")).join("\n");
        (said.contains("is `mandate node` running") && said.contains("Trying again")).then_some(())
    });
    signal(&waiting, "-TERM");
    assert_eq!(wait(waiting), Some(143));
}

#[cfg(all(feature = "mysql", feature = "postgres"))]
#[test]
fn a_wait_of_zero_connects_to_a_database_once_and_tells_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    for (scheme, without_tls) in [("postgres", "sslmode=disable"), ("mysql", "ssl-mode=DISABLED")] {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://u:p@{}/orders?{without_tls}", server.local_addr().unwrap());
        let log = format!("{scheme}.log");
        let args = ["writer", "--wait", "0s", "--url", &url];
        let mut member = spawn(directory.path(), &log, &args, &["true"]);
        // It hangs up on everyone who calls.
        server.set_nonblocking(true).unwrap();
        let mut calls = 0;
        let ended = within(BOUND, "run ends", || {
            calls += std::iter::from_fn(|| server.accept().ok()).count();
            member.0.try_wait().unwrap()
        });
        calls += std::iter::from_fn(|| server.accept().ok()).count();
        let said = lines(&directory.path().join(&log)).join("\n");
        assert_eq!((ended.code(), calls), (Some(1), 1), "{said}");
        assert!(said.contains("cannot be used"), "{said}");
    }
}
