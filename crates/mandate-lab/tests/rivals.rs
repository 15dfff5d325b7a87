//! `mandate lab rival`, short: real servers, real members, real kills.

use std::process::Command;

use serde_json::Value;

/// A rival, left alone for a second before its leader is made to fail.
fn rival(args: &[&str]) -> Value {
    rival_standing("1s", args)
}

/// How often is tried what a busy host may delay, or end early.
const ATTEMPTS: usize = 6;

/// Until one is as fast as it should be: whatever waits without need waits each time. Each is checked for what must not happen at all.
fn rival_where(
    standing: &str,
    args: &[&str],
    check: impl Fn(&Value),
    is_fast: impl Fn(&Value) -> bool,
) -> Value {
    let mut report = Value::Null;
    for _ in 0..ATTEMPTS {
        report = rival_standing(standing, args);
        check(&report);
        if is_fast(&report) {
            break;
        }
    }
    report
}

/// Once more if it could not be carried out to the end.
fn rival_standing(standing: &str, args: &[&str]) -> Value {
    let mut report = Value::Null;
    for _ in 0..ATTEMPTS {
        report = rival_once(standing, args);
        if report["stopped"].is_null() {
            break;
        }
    }
    report
}

fn rival_once(standing: &str, args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_mandate-lab"))
        .args(["rival", "-o", "json", "--standing", standing])
        .args(args)
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"))
}

fn median(report: &Value) -> f64 {
    report["median_ms"].as_f64().unwrap_or_else(|| panic!("nobody took over: {report:#}"))
}

/// Whether that many were replaced, and in a time like this.
fn took(report: &Value, kills: u64, within: std::ops::Range<f64>) -> bool {
    let median = report["median_ms"].as_f64();
    report["answered"] == kills && median.is_some_and(|median| within.contains(&median))
}

#[test]
fn a_bare_lock_is_handed_on_within_milliseconds_of_a_death() {
    let report = rival_where(
        "1s",
        &["advisory-lock", "--members", "6", "--kills", "3"],
        |report| assert_eq!(report["stale_acts"], 0, "{report:#}"),
        |report| took(report, 3, 0.0..500.0) && report["acts"].as_u64() > Some(500),
    );
    assert_eq!((&report["answered"], &report["unanswered"]), (&3.into(), &0.into()));
    assert!(median(&report) < 500.0, "{report:#}");
    assert!(report["acts"].as_u64().is_some_and(|acts| acts > 500), "closely watched: {report:#}");
}

#[test]
fn a_bare_lock_stays_with_a_leader_that_is_stopped_or_cut_off() {
    for cause in ["pause", "cut"] {
        let args = ["--members", "3", "--kills", "1", "--bound", "2s", "--cause", cause];
        let report = rival(&[&["advisory-lock"], &args[..]].concat());
        assert_eq!((&report["answered"], &report["unanswered"]), (&0.into(), &1.into()), "{cause}");
        assert_eq!(report["median_ms"], Value::Null, "{cause}");
    }
}

#[test]
fn two_act_when_the_server_gives_up_who_holds_a_bare_lock() {
    let args = ["--members", "3", "--kills", "1", "--cause", "given-up"];
    let stale = |report: &Value| report["stale_acts"].as_u64() > Some(50);
    let overlaps = |report: &Value| report["overlap_ms"].as_f64() > Some(300.0);
    let report = rival_where(
        "1s",
        &[&["advisory-lock"], &args[..]].concat(),
        |_| {},
        |report| report["answered"] == 1 && stale(report) && overlaps(report),
    );
    assert_eq!(report["answered"], 1, "{report:#}");
    assert!(report["overlap_ms"].as_f64().is_some_and(|overlap| overlap > 300.0), "{report:#}");
    assert!(report["stale_acts"].as_u64().is_some_and(|acts| acts > 50), "{report:#}");
}

#[test]
fn a_bare_lock_is_handed_over_at_once() {
    let args = ["--members", "4", "--kills", "2", "--cause", "handover"];
    let report = rival_where(
        "1s",
        &[&["advisory-lock"], &args[..]].concat(),
        |report| assert_eq!(report["stale_acts"], 0, "{report:#}"),
        |report| took(report, 2, 0.0..500.0),
    );
    assert_eq!((&report["answered"], &report["stale_acts"]), (&2.into(), &0.into()), "{report:#}");
    assert!(median(&report) < 500.0, "{report:#}");
}

#[test]
fn the_printed_algorithm_needs_two_rounds_to_miss_its_leader() {
    let args = ["--members", "8", "--kills", "2", "--round", "400ms"];
    // Long enough for the server's own count, which lags by a second.
    let counted = |report: &Value| report["transactions_per_s"].as_f64() >= Some(5.0);
    let report = rival_where(
        "4s",
        &[&["printed"], &args[..]].concat(),
        |_| {},
        |report| took(report, 2, 400.0..3000.0) && counted(report),
    );
    assert_eq!((&report["answered"], &report["unanswered"]), (&2.into(), &0.into()), "{report:#}");
    assert!((400.0..3000.0).contains(&median(&report)), "{report:#}");
    assert!(report["round_ms"].as_f64().is_some_and(|round| round >= 400.0), "{report:#}");
    let transactions = report["transactions_per_s"].as_f64().expect("PostgreSQL counts");
    assert!((5.0..100.0).contains(&transactions), "8 members at 2.5 rounds a second: {report:#}");
}

#[test]
fn zookeeper_waits_for_a_session_to_run_out() {
    let args = ["--members", "6", "--kills", "2", "--tick", "300ms"];
    let report = rival_where(
        "1s",
        &[&["zookeeper"], &args[..]].concat(),
        |_| {},
        |report| took(report, 2, 200.0..3000.0),
    );
    assert_eq!((&report["answered"], &report["unanswered"]), (&2.into(), &0.into()), "{report:#}");
    assert!((200.0..3000.0).contains(&median(&report)), "{report:#}");
    assert_eq!(report["transactions_per_s"], Value::Null, "{report:#}");
}

#[test]
fn a_leader_of_zookeepers_recipe_that_was_stopped_acts_beside_its_successor() {
    let args = ["--members", "4", "--kills", "5", "--tick", "300ms", "--cause", "pause"];
    let lost = |report: &Value| report["lost_sessions"].as_u64() >= Some(5);
    let acts_beside = |report: &Value| report["stale_acts"].as_u64() > Some(0);
    let report = rival_where(
        "1s",
        &[&["zookeeper"], &args[..]].concat(),
        |_| {},
        |report| report["answered"] == 5 && lost(report) && acts_beside(report),
    );
    assert_eq!((&report["answered"], &report["unanswered"]), (&5.into(), &0.into()), "{report:#}");
    assert!(report["lost_sessions"].as_u64().is_some_and(|lost| lost >= 5), "{report:#}");
    assert!(report["stale_acts"].as_u64().is_some_and(|acts| acts > 0), "{report:#}");
}

#[test]
fn several_are_compared_in_one_run_a_line_each() {
    let compare = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mandate-lab"));
        command.args(["rival", "--kills", "1", "--standing", "500ms", "--round", "500ms"]);
        let output = command.args(args).args(["-o", "json"]).output().expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr))
    };
    let both = ["advisory-lock", "mandate-fenced", "--members", "4"];
    let reports = |lines: &str| -> Vec<Value> {
        lines.lines().map(|line| serde_json::from_str(line).expect("a line each")).collect()
    };
    let (mut lines, mut said) = compare(&both);
    for _ in 1..ATTEMPTS {
        if reports(&lines).iter().all(|report| report["answered"] == 1) {
            break;
        }
        (lines, said) = compare(&both);
    }
    let reports = reports(&lines);
    let seen: Vec<_> = reports.iter().map(|report| report["rival"].as_str().unwrap()).collect();
    assert_eq!(seen, ["advisory-lock", "mandate-fenced"], "{said}");
    assert!(reports.iter().all(|report| report["answered"] == 1), "{lines}");

    // What is too large for one is left out, and told.
    let (report, said) = compare(&["advisory-lock", "--members", "3,950"]);
    let report: Value = serde_json::from_str(&report).expect("one report");
    assert_eq!(report["members"], 3);
    assert!(said.contains("at most 900 members"), "{said}");
}

#[test]
fn a_large_group_on_a_database_is_struck_like_a_small_one() {
    let failover = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mandate-lab"));
        command.args(["failover", "--members", "30", "--kills", "1", "-o", "json"]);
        command.args(args).output().expect("the program runs")
    };
    // A lease that a busy host can renew. If it is too busy even so, no leader fails, or none follows in time: once more.
    let on_postgres = ["--engine", "sql", "--server", "postgres", "--lease", "2s"];
    let mut output = failover(&on_postgres);
    let mut report = Value::Null;
    for _ in 0..ATTEMPTS {
        report = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!(report["overlap_ms"], 0.0, "{report:#}");
        if report["answered"] == 1 {
            break;
        }
        output = failover(&on_postgres);
    }
    assert!(output.status.success(), "{report:#}");
    assert_eq!((&report["engine"], &report["kills"]), (&"sql".into(), &1.into()));
    assert_eq!((&report["overlap_ms"], &report["members"]), (&0.0.into(), &30.into()));
    let refused = failover(&[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--engine sql"), "{refused:?}");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let refused = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mandate-lab"));
        let output = command.args(["rival"]).args(args).output().expect("the program runs");
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["printed", "--cause", "handover"]).contains("has no handover"));
    assert!(refused(&["zookeeper", "--cause", "given-up"]).contains("try --cause cut"));
    assert!(refused(&["advisory-lock", "--members", "2000"]).contains("at most 900 members"));
}
