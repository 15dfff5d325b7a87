//! `mandate lab chaos` on databases, short: real members on a private server under faults. Needs root.

use std::process::{Command, Output};

use mandate_servers::testing::{ends_its_servers_when_killed, turn};

/// With leases that a busy machine can renew, and a bound for hangs.
const PATIENT: [&str; 4] = ["--lease", "1s", "--within", "120s"];

fn chaos(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mandate-lab"))
        .args(["chaos", "--engine", "sql", "-o", "json"])
        .args(args)
        .output()
        .expect("the program runs")
}

fn report(output: &Output) -> serde_json::Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("chaos needs root and the database's packages: {said}"))
}

fn passes(args: &[&str], kinds: usize) {
    let _turn = turn();
    let output = chaos(&[&PATIENT[..], args].concat());
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(
        (&report["outcome"], &report["violations"]),
        (&"passed".into(), &[""; 0][..].into())
    );
    let struck = report["faults_by_kind"].as_object().expect("a table");
    assert!(struck.len() >= kinds, "of many kinds: {struck:?}");
    let at_least = |name: &str, least| report[name].as_u64().is_some_and(|found| found >= least);
    assert!(at_least("acts", 500), "closely watched: {report:#}");
    assert!(at_least("guarded_writes", 20), "leaders wrote, too: {report:#}");
    assert!(!report["warnings"].as_object().expect("a table").is_empty(), "{report:#}");
}

#[test]
fn a_group_on_a_file_keeps_its_promises_through_faults_of_many_kinds() {
    passes(&["--server", "sqlite", "--faults", "10", "--seed", "2"], 4);
}

#[test]
fn a_group_on_postgresql_keeps_its_promises_through_faults_of_many_kinds() {
    passes(&["--server", "postgres", "--faults", "12", "--seed", "5"], 6);
}

/// Chaos itself demands that somebody tells of each loss.
#[test]
fn a_control_row_that_is_removed_or_put_back_is_told_of_and_no_two_lead() {
    let _turn = turn();
    for server in ["sqlite", "postgres"] {
        for kind in ["vanish", "restore"] {
            let faults = ["--server", server, "--only", kind, "--faults", "2"];
            let output = chaos(&[&PATIENT[..], &faults].concat());
            let report = report(&output);
            assert_eq!(output.status.code(), Some(0), "{kind} on {server}: {report:#}");
            let warnings = report["warnings"].to_string();
            assert!(warnings.contains("the control row went back"), "{kind}: {warnings}");
        }
    }
}

#[test]
fn a_crash_costs_no_term_where_the_database_acknowledges_commits_before_they_are_on_disk() {
    let _turn = turn();
    let faults = ["--server", "postgres", "--only", "forget", "--faults", "3", "--seed", "3"];
    let output = chaos(&[&PATIENT[..], &faults].concat());
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    let warnings = report["warnings"].to_string();
    assert!(!warnings.contains("the control row"), "{warnings}");
}

#[test]
fn leaders_that_look_at_their_mandate_only_once_are_found_out_on_a_file() {
    let _turn = turn();
    let found = ["1", "2", "3", "4", "5"].iter().any(|seed| {
        let bug = ["--lease", "400ms", "--only", "pause", "--faults", "10", "--within", "20s"];
        let output = chaos(&[&bug[..], &["--careless", "--seed", seed]].concat());
        let report = report(&output);
        assert_ne!(output.status.code(), Some(0), "seed {seed} must not pass: {report:#}");
        let violations = report["violations"].to_string();
        output.status.code() == Some(10) && violations.contains("acted in term")
    });
    assert!(found, "in one of five, two act at once");
}

#[test]
fn what_cannot_be_struck_is_refused_with_what_can() {
    for (args, expected) in [
        (&["--server", "sqlite", "--only", "breaks"][..], "these do: kill, pause"),
        (&["--url", "postgres://nowhere.example/d"], "give --server instead"),
    ] {
        let output = chaos(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn the_server_and_its_disk_end_with_chaos_that_was_killed() {
    let _turn = turn();
    let mut chaos = Command::new(env!("CARGO_BIN_EXE_mandate-lab"));
    chaos.args(["chaos", "--engine", "sql", "--server", "postgres", "--only", "freeze"]);
    ends_its_servers_when_killed(chaos.args(["--faults", "1000"]), 6);
}
