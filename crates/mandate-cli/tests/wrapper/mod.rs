//! `mandate run` around shell scripts, for tests.

// Each test file uses some of it.
#![allow(dead_code)]

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, thread};

pub(crate) use mandate_servers::testing::Running;

use crate::group::{Group, mandate, within};

/// A lease that is not lost because a thread waits for a second or two: a command is asked to end when a third of it is left.
pub(crate) const LEASED: &str = "guarantee = 'leased'\nlease = '6s'";
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// A command whose child leaves its process group; neither ends when asked, and both act all the time.
pub(crate) const TREE: &str = "trap '' TERM; echo $PPID > guard; echo $$ > child; \
    setsid sh -c 'trap \"\" TERM; echo $$ > escaped; while :; do echo > act; sleep 0.02; done' & \
    while :; do echo > act; sleep 0.02; done";

/// For whatever must happen: a bound for hangs, not for speed.
pub(crate) const BOUND: Duration = Duration::from_secs(90);

/// `mandate run` for a member, around a shell script that runs in the group's directory.
pub(crate) fn run(group: &Group, id: u32, args: &[&str], script: &str) -> Running {
    let config = group.config(id);
    let member = ["--config", config.to_str().unwrap()];
    start(group, &format!("run{id}.log"), &[&member, args].concat(), script)
}

/// `mandate run` with these arguments.
pub(crate) fn start(group: &Group, log: &str, args: &[&str], script: &str) -> Running {
    start_role("writer", group, log, args, script)
}

/// The same for a role of this name.
pub(crate) fn start_role(
    role: &str,
    group: &Group,
    log: &str,
    args: &[&str],
    script: &str,
) -> Running {
    let args = [&[role], args].concat();
    spawn(group.directory.path(), log, &args, &["sh", "-c", script])
}

/// `mandate run` with these arguments around this command, in that directory.
pub(crate) fn spawn(directory: &Path, log: &str, args: &[&str], command: &[&str]) -> Running {
    let log = fs::OpenOptions::new().create(true).append(true).open(directory.join(log)).unwrap();
    let child = mandate()
        .arg("run")
        .args(args)
        .arg("--")
        .args(command)
        .current_dir(directory)
        .env_remove("MANDATE_API")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    Running(child.unwrap())
}

/// Waits for the process whose command line is exactly this one.
pub(crate) fn process_of(command: &[&str]) -> String {
    let line: Vec<u8> = command.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
    within(BOUND, "the command runs", || {
        let mut all = fs::read_dir("/proc").unwrap().flatten();
        let is_it = |path: PathBuf| fs::read(path.join("cmdline")).is_ok_and(|it| it == line);
        all.find(|process| is_it(process.path()))?.file_name().into_string().ok()
    })
}

pub(crate) fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

pub(crate) fn file(group: &Group, name: &str) -> PathBuf {
    group.directory.path().join(name)
}

/// Waits for the first line of a file in the group's directory.
pub(crate) fn first_line(group: &Group, name: &str) -> String {
    let path = file(group, name);
    within(BOUND, name, || {
        // Only once it is whole.
        fs::read_to_string(&path).ok()?.split_once('\n').map(|(line, _)| line.to_owned())
    })
}

pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Waits until none of these processes runs.
pub(crate) fn gone(bound: Duration, pids: &[&str]) {
    within(bound, "all are gone", || pids.iter().all(|pid| !is_alive(pid)).then_some(()));
}

/// Waits until none of these processes of a [`TREE`] runs. An error if one acted a lease after `began` or later: on a busy machine that
/// says more than when this process notices.
pub(crate) fn gone_within_the_lease(
    group: &Group,
    began: SystemTime,
    pids: &[&str],
) -> Result<(), String> {
    gone_within(LEASE, group, began, pids)
}

/// The same for another time than a lease.
pub(crate) fn gone_within(
    limit: Duration,
    group: &Group,
    began: SystemTime,
    pids: &[&str],
) -> Result<(), String> {
    gone(BOUND, pids);
    let acted = fs::metadata(file(group, "act")).unwrap().modified().unwrap();
    let after = acted.duration_since(began).unwrap_or_default();
    match after < limit {
        true => Ok(()),
        false => Err(format!("acted after {after:?}, and the limit is {limit:?}")),
    }
}

/// The guard or wrapper that ends a command begins 100 ms before the lease does, and needs the processor then; half of it is what the wrapper counts on.
const NEEDED: Duration = Duration::from_millis(50);

/// How often an attempt is repeated that was in vain because the host was late.
const ATTEMPTS: usize = 8;

/// Makes an attempt that has to be in time, and another only if it was not while this host let a thread wait for longer than
/// is needed, or had more to run than processors. One that is always late fails on every host.
pub(crate) fn in_time(mut attempt: impl FnMut() -> Result<(), String>) {
    for _ in 0..ATTEMPTS {
        let has_ended = AtomicBool::new(false);
        let (outcome, latest) = thread::scope(|scope| {
            let witness = scope.spawn(|| latest_turn(&has_ended));
            // Also when the attempt panics: otherwise the test waits for the witness.
            let outcome = panic::catch_unwind(AssertUnwindSafe(&mut attempt));
            has_ended.store(true, Ordering::Relaxed);
            (outcome, witness.join().unwrap())
        });
        match outcome {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                let is_busy = latest > NEEDED || is_overloaded();
                assert!(is_busy, "{error}; the latest turn came {latest:?} late");
            }
            Err(panicked) => panic::resume_unwind(panicked),
        }
    }
    panic!("too late {ATTEMPTS} times");
}

/// Whether more wants to run than there are processors: what was killed then takes a while to be gone.
fn is_overloaded() -> bool {
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    let load: f64 = load.split(' ').next().unwrap().parse().unwrap();
    load > thread::available_parallelism().unwrap().get() as f64
}

/// How late a thread that only sleeps has its turn at worst.
fn latest_turn(has_ended: &AtomicBool) -> Duration {
    let (pause, mut latest) = (Duration::from_millis(5), Duration::ZERO);
    while !has_ended.load(Ordering::Relaxed) {
        let began = Instant::now();
        thread::sleep(pause);
        latest = latest.max(began.elapsed().saturating_sub(pause));
    }
    latest
}

/// Processes that have this text in their command line.
pub(crate) fn with_text(text: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let has = |path: PathBuf| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    all.filter(|process| has(process.path()))
        .filter_map(|process| process.file_name().into_string().ok())
        .filter(|pid| is_alive(pid))
        .collect()
}

pub(crate) fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}

pub(crate) fn signal(running: &Running, signal: &str) {
    kill(signal, &running.0.id().to_string());
}

pub(crate) fn wait(mut running: Running) -> Option<i32> {
    within(BOUND, "run ends", || running.0.try_wait().unwrap()).code()
}

/// The same within [`in_time`]: a host that is late changes what a wrapper ends with, too.
pub(crate) fn ends_with(code: i32, running: Running, log: &Path) -> Result<(), String> {
    match wait(running) {
        Some(found) if found == code => Ok(()),
        found => Err(format!("it ended with {found:?} instead of {code}: {:?}", lines(log))),
    }
}

/// Two daemons, and a wrapper as p1 that leads.
pub(crate) fn leading(group: &mut Group, script: &str) -> Running {
    group.start(2);
    group.start(3);
    let member = run(group, 1, &["--new"], &format!("echo $$ > child; {script}"));
    // The daemons elect without it, or p1 leads: bring it there.
    within(BOUND, "p1 leads", || {
        if file(group, "child").exists() {
            return Some(());
        }
        let leader = *group.leaders().first()?;
        let _ = group.http(leader, "POST", "/v1/transfer", r#"{"to":"p1"}"#);
        None
    });
    first_line(group, "child");
    member
}
