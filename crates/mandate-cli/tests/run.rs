//! `mandate run`: a command where leadership is, and nowhere else; and nothing of it left behind.

mod group;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use group::{Group, mandate, within};

const LEASED: &str = "guarantee = 'leased'\nlease = '600ms'";

/// A process that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `mandate run` for a member, around a shell script that runs in the group's directory.
fn run(group: &Group, id: u32, args: &[&str], script: &str) -> Running {
    let log = fs::File::create(group.directory.path().join(format!("run{id}.log"))).unwrap();
    let child = mandate()
        .args(["run", "writer", "--config"])
        .arg(group.config(id))
        .args(args)
        .args(["--", "sh", "-c", script])
        .current_dir(group.directory.path())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    Running(child.unwrap())
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn signal(running: &Running, signal: &str) {
    let sent = Command::new("kill").args([signal, &running.0.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

fn wait(mut running: Running) -> Option<i32> {
    within(Duration::from_secs(20), "run ends", || running.0.try_wait().unwrap()).code()
}

/// Who has started the command: the pid of each script, by member.
fn started(group: &Group) -> Vec<(u32, PathBuf)> {
    let path = |id: u32| group.directory.path().join(format!("started{id}"));
    (1..=group.size).map(|id| (id, path(id))).filter(|(_, path)| path.exists()).collect()
}

#[test]
fn the_command_runs_where_leadership_is_and_its_end_gives_it_back() {
    let group = Group::new(3, LEASED);
    let script = |id: u32| {
        format!("echo $MANDATE_ROLE $MANDATE_TERM > started{id}; sleep 0.3; exit {}", 40 + id)
    };
    let start = |id: u32| Some(run(&group, id, &["--new"], &script(id)));
    let mut members: Vec<_> = (1..=3).map(start).collect();
    // One after the other leads, runs its command to the end, and passes its exit code on. The last has
    // no quorum left to lead with.
    let mut codes = Vec::new();
    within(Duration::from_secs(20), "two have ended", || {
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
    let mut group = Group::new(3, LEASED);
    group.start(2);
    group.start(3);
    // A child that ignores SIGTERM, and a grandchild that leaves the process group.
    let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > escaped; while :; do date +%s%N >> beats; sleep 0.02; done' & \
                  echo $$ > child; touch started1; while :; do sleep 0.05; done";
    let member = run(&group, 1, &["--new"], script);
    let leader = group.leader();
    // The daemons elect without it, or p1 leads: bring it there.
    if !group.directory.path().join("started1").exists() {
        within(Duration::from_secs(10), "p1 is known", || {
            let (code, _) = group.http(leader, "POST", "/v1/transfer", r#"{"to":"p1"}"#)?;
            (code == 204).then_some(())
        });
    }
    let directory = group.directory.path().to_owned();
    let pid = |name: &str| lines(&directory.join(name)).first().cloned();
    let (child, escaped) =
        within(Duration::from_secs(10), "the tree runs", || Some((pid("child")?, pid("escaped")?)));
    assert!(is_alive(&child) && is_alive(&escaped));
    // Both others die: no renewal is answered any more.
    let began = Instant::now();
    group.kill(2);
    group.kill(3);
    let gone = within(Duration::from_secs(5), "the tree is gone", || {
        (!is_alive(&child) && !is_alive(&escaped)).then(|| began.elapsed())
    });
    assert!(gone < Duration::from_millis(600), "gone after {gone:?}, and the lease is 600 ms");
    assert_eq!(wait(member), Some(5), "{:?}", lines(&directory.join("run1.log")));
}

#[test]
fn a_wrapper_that_is_killed_takes_its_command_along() {
    let group = Group::new(1, LEASED);
    let member = run(&group, 1, &["--new"], "echo $$ > child; while :; do sleep 0.05; done");
    let path = group.directory.path().join("child");
    let child =
        within(Duration::from_secs(10), "the command runs", || lines(&path).first().cloned());
    signal(&member, "-KILL");
    within(Duration::from_secs(2), "the command is gone", || (!is_alive(&child)).then_some(()));
    wait(member);
}

#[test]
fn a_wrapper_that_is_asked_to_stop_stops_its_command() {
    let group = Group::new(1, LEASED);
    let script =
        "trap 'echo asked > asked; exit 0' TERM; echo $$ > child; while :; do sleep 0.02; done";
    let member = run(&group, 1, &["--new"], script);
    let path = group.directory.path().join("child");
    let child =
        within(Duration::from_secs(10), "the command runs", || lines(&path).first().cloned());
    signal(&member, "-TERM");
    assert_eq!(wait(member), Some(0));
    assert!(!is_alive(&child));
    assert_eq!(lines(&group.directory.path().join("asked")), ["asked"]);
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let group = Group::new(1, LEASED);
    let output = mandate()
        .args(["run", "writer", "--new", "--config"])
        .arg(group.config(1))
        .args(["--", "/no/such/command"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("could not run /no/such/command"), "{text}");
}
