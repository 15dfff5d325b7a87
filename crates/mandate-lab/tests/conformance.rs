//! The engines under the suite that every engine must pass, and the laboratory that is built on it.

use std::process::{Command, Output};

use mandate_servers::testing::turn;

fn lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mandate-lab")).args(args).output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Everything that is said, for a test that fails.
fn shown(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{}\n{out}\n{err}", output.status)
}

fn passes(engine: &[&str], claims: usize) {
    let _turn = turn();
    let output = lab(&[&["conformance"], engine].concat());
    println!("{}", shown(&output));
    assert!(output.status.success(), "{}", shown(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().filter(|line| line.starts_with("holds ")).count(), claims, "{text}");
}

fn passes_on(server: &str, more: &[&str], claims: usize) {
    let engine = ["--engine", "sql", "--server", server, "--lease", "2s"];
    passes(&[&engine[..], more].concat(), claims);
}

#[test]
fn the_peer_engine_with_leases_passes_the_suite() {
    passes(&["--engine", "peer", "--guarantee", "leased", "--lease", "2s"], 17);
}

#[test]
fn the_peer_engine_without_leases_passes_the_suite() {
    passes(&["--engine", "peer", "--guarantee", "fenced"], 17);
}

#[test]
fn the_sql_engine_passes_the_suite_on_sqlite() {
    // The way to a file cannot be cut.
    passes_on("sqlite", &[], 16);
}

#[test]
fn the_sql_engine_passes_the_suite_on_postgresql() {
    passes_on("postgres", &[], 17);
}

#[test]
fn the_sql_engine_without_leases_knows_what_it_has_lost() {
    passes_on("postgres", &["--guarantee", "fenced", "--only", "knows it has lost"], 2);
}

/// The whole suite takes half a minute on each of these: `mandate lab conformance --engine sql --server NAME`.
#[test]
fn leadership_moves_as_it_should_on_mariadb() {
    passes_on("mariadb", &["--only", "transfer"], 2);
}

#[test]
fn every_term_has_one_leader_on_galera() {
    passes_on("galera", &["--only", "over kills"], 1);
}

#[test]
fn the_suite_catches_leaders_that_ask_their_mandate_once_and_then_act_for_ever() {
    let _turn = turn();
    for (claim, lease) in [("was stopped", "500ms"), ("cut off", "500ms")] {
        let output = lab(&["conformance", "--lease", lease, "--only", claim, "--careless"]);
        assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with("FAILS") && text.contains("acted in term"), "{text}");
        assert!(text.contains("was in the register"), "{text}");
    }
}

#[test]
fn a_leader_that_is_cut_off_stops_acting_before_the_next_begins() {
    let _turn = turn();
    let args = ["--cause", "cut", "--kills", "2", "--members", "3", "--lease", "1s"];
    let output = lab(&[&["failover", "-o", "json"], &args[..]].concat());
    assert!(output.status.success(), "{}", shown(&output));
    let document = json(&output);
    assert_eq!((&document["overlap_ms"], &document["stale_acts"]), (&0.0.into(), &0.into()));
    assert!(document["acts"].as_u64() > Some(100), "{document}");
    assert!(document["median_ms"].as_f64() > Some(0.0), "{document}");
}

#[test]
fn the_laboratory_notices_two_that_act_at_once() {
    let _turn = turn();
    let args = ["--cause", "pause", "--kills", "1", "--members", "3", "--lease", "1s"];
    let output = lab(&[&["failover", "-o", "json", "--careless"], &args[..]].concat());
    assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
    let document = json(&output);
    assert!(document["stale_acts"].as_u64() > Some(0), "{document}");
    assert!(document["overlap_ms"].as_f64() > Some(0.0), "{document}");
    assert_ne!(document["violations"], serde_json::json!([]), "{document}");
}

#[test]
fn a_group_that_stands_by_costs_next_to_nothing() {
    let _turn = turn();
    // A busy host may cost more; what is wrong with the members does so each time.
    let is_cheap = |document: &serde_json::Value| {
        let members = document["members"].as_array().unwrap();
        members.iter().all(|member| {
            let sent = member["sent_packets_per_s"].as_f64();
            member["cpu"].as_f64() < Some(0.05) && sent > Some(1.0)
        })
    };
    let mut document = serde_json::Value::Null;
    for _ in 0..5 {
        document = json(&lab(&["idle", "--for", "4s", "-o", "json"]));
        if is_cheap(&document) {
            break;
        }
    }
    let members = document["members"].as_array().unwrap();
    assert_eq!(members.len(), 5);
    for member in members {
        // The goal is 1 % and 20 MiB, which the command holds them to; a busy host may show more, and code that was
        // not optimised is several times as large.
        assert!(member["cpu"].as_f64() < Some(0.05), "{document:#}");
        assert!(member["resident_mib"].as_f64() < Some(50.0), "{document:#}");
        assert!(member["sent_packets_per_s"].as_f64() > Some(1.0), "{document:#}");
        assert!(member["descriptors"].as_u64() < Some(60), "{document:#}");
    }
}
