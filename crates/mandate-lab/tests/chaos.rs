//! `mandate lab chaos`, short: real members on an emulated network, killed, stopped, cut off. Needs root.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use mandate_servers::testing::Running;
use mandate_servers::testing::within;

fn chaos(args: &[&str]) -> (Output, serde_json::Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_mandate-lab"))
        .args(["chaos", "-o", "json"])
        .args(args)
        .output()
        .expect("the program runs");
    let complaint = || {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("chaos needs root, /dev/net/tun and iproute2: {said}")
    };
    let report =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", complaint()));
    (output, report)
}

#[test]
fn a_group_keeps_its_promises_through_faults_of_many_kinds() {
    // A bound for hangs.
    let (output, report) =
        chaos(&["--lease", "1s", "--within", "120s", "--faults", "25", "--seed", "4"]);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!((&report["outcome"], &report["faults"]), (&"passed".into(), &25.into()));
    let kinds = report["faults_by_kind"].as_object().expect("a table");
    assert!(kinds.len() >= 6, "of many kinds: {kinds:?}");
    assert!(report["terms"].as_u64().is_some_and(|terms| terms > 5), "{report:#}");
    assert!(report["acts"].as_u64().is_some_and(|acts| acts > 1000), "closely watched: {report:#}");
}

/// Changes of members and members that are cut off: so that each kind of change is there, and some while a cut lasts.
const CHANGES: [&str; 15] = [
    "--changes",
    "--lease",
    "1s",
    "--only",
    "add-member",
    "--only",
    "replace-member",
    "--only",
    "remove-member",
    "--only",
    "two-changes",
    "--only",
    "cut-off",
    "--within",
    // A bound for hangs.
    "120s",
];

#[test]
fn no_change_of_members_is_lost_and_who_is_removed_acts_no_more() {
    let (output, report) = chaos(&[&CHANGES[..], &["--faults", "14", "--seed", "6"]].concat());
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!((&report["outcome"], &report["faults"]), (&"passed".into(), &14.into()));
    let changes = report["changes"].as_object().expect("what came of changes");
    for what in ["added", "replaced", "removed", "lost_disks", "leaders", "asked_in_cuts"] {
        assert!(changes[what].as_u64() > Some(0), "{what}: {changes:?}");
    }
    for what in ["refused_beside_another", "used_ids_refused"] {
        assert!(changes[what].as_u64() > Some(0), "{what}: {changes:?}");
    }
    let all: u64 =
        ["added", "replaced", "removed"].iter().filter_map(|what| changes[*what].as_u64()).sum();
    assert_eq!(changes["made"].as_u64(), Some(all), "{changes:?}");
}

/// A hasty leader that is cut off says of a change that it is settled, and the next leader has never heard of it. Whether the leader has a
/// lease left when it is asked depends on real time.
#[test]
fn leaders_that_count_changes_before_a_quorum_has_them_are_found_out() {
    let found = (1..=8).map(|seed: u32| seed.to_string()).find_map(|seed| {
        let bug = ["--faults", "40", "--hasty", "--seed", &seed];
        let (output, report) = chaos(&[&CHANGES[..], &bug[..]].concat());
        (output.status.code() == Some(10)).then_some((report, seed))
    });
    let (report, seed) = found.expect("in one of eight, a change is lost");
    let violations = report["violations"].to_string();
    assert!(
        violations.contains("was settled in list") || violations.contains("no quorum ran"),
        "{violations}"
    );
    let command = report["command"].as_str().expect("a command");
    assert!(command.contains(&format!("--seed {seed} --changes")) && command.ends_with("--hasty"));
}

/// A careless leader goes on in a term that is over. If another leads by then, two act at once; if it leads again
/// itself, nobody acts in the new term. Which of the two comes first depends on real time.
#[test]
fn leaders_that_look_at_their_mandate_only_once_are_found_out() {
    let found = ["6", "5", "1", "2", "3"].iter().find_map(|seed| {
        let bug =
            ["--lease", "400ms", "--faults", "40", "--within", "20s", "--careless", "--seed", seed];
        let (output, report) = chaos(&bug);
        assert_ne!(output.status.code(), Some(0), "seed {seed} must not pass: {report:#}");
        (output.status.code() == Some(10)).then_some((report, seed))
    });
    let (report, seed) = found.expect("in one of five, two act at once");
    let violations = report["violations"].to_string();
    assert!(violations.contains("acted in term") || violations.contains("held"), "{violations}");
    let history = report["history"].to_string();
    assert!(history.contains("acts first in term"), "with what happened around it: {history}");
    let command = report["command"].as_str().expect("a command");
    assert!(command.contains(&format!("--seed {seed} --careless")), "{command}");
}

/// The network namespaces of processes, by a condition on their parent.
fn namespaces(of: impl Fn(u32) -> bool) -> BTreeSet<String> {
    let processes = std::fs::read_dir("/proc").expect("there is one").flatten();
    let namespace = |process: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let link = std::fs::read_link(process.path().join("ns/net")).ok()?;
        of(parent).then(|| link.display().to_string())
    };
    processes.filter_map(namespace).collect()
}

#[test]
fn members_and_their_network_end_with_chaos_that_was_killed() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let running = Command::new(env!("CARGO_BIN_EXE_mandate-lab"))
        .args(["chaos", "--faults", "1000", "--only", "loss"])
        .env("TMPDIR", directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut running = Running(running.expect("the program runs"));
    let process = running.0.id();
    let ours = namespaces(|parent| parent == std::process::id());
    let members = || &namespaces(|parent| parent == process) - &ours;
    within(Duration::from_secs(30), "five members have a network each (that needs root)", || {
        (members().len() == 5).then_some(())
    });
    let members = members();
    running.0.kill().expect("it can be killed");
    running.0.wait().expect("it ends");
    within(Duration::from_secs(30), "nobody is left in those networks", || {
        (namespaces(|_| true).is_disjoint(&members)).then_some(())
    });
    let mounts = std::fs::read_to_string("/proc/mounts").expect("it can be read");
    let place = directory.path().display().to_string();
    assert!(!mounts.contains(&place), "no disk is left: {mounts}");
}
