//! The ledger engine in the laboratory, short: real members on a private Kafka, or on a ledger in memory, that are
//! put under faults. The long runs are commands: see docs/ledger.md.

use std::process::{Command, Output};

use mandate_servers::kafka::{Kafka, KafkaServerConfig};
use mandate_servers::testing::{ends_its_servers_when_killed, turn};

fn lab(args: &[&str]) -> Output {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_mandate-lab"));
    // Always a private one: no fault is injected into a server of the user's own.
    lab.env_remove("KAFKA_BROKERS").args(args).output().expect("the program runs")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Everything that is said, for a test that fails.
fn shown(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{}\n{out}\n{err}", output.status)
}

/// So many claims hold, and so many do not apply: four are about what no ledger offers.
fn passes(args: &[&str], claims: (usize, usize)) {
    let _turn = turn();
    let output = lab(&[&["conformance", "--engine", "ledger"], args].concat());
    println!("{}", shown(&output));
    assert!(output.status.success(), "{}", shown(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let count = |mark: &str| text.lines().filter(|line| line.starts_with(mark)).count();
    assert_eq!((count("holds "), count("n/a ")), claims, "{text}");
}

#[test]
fn the_ledger_engine_passes_the_suite_on_kafka() {
    passes(&["--session", "2s"], (13, 4));
}

#[test]
fn the_ledger_engine_passes_the_suite_in_memory() {
    // `mandate run` does not join it: it is the harness's own.
    passes(&["--ledger", "memory", "--session", "2s"], (11, 6));
}

#[test]
fn a_broker_of_ones_own_is_used_where_it_is_named() {
    let _turn = turn();
    let lab = |brokers: &str| {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_mandate-lab"));
        lab.args(["conformance", "--engine", "ledger", "--session", "2s"]);
        lab.args(["--only", "a handle that was shut down"]).env("KAFKA_BROKERS", brokers);
        lab.output().expect("the program runs")
    };
    let kafka = Kafka::launch(&KafkaServerConfig::TUNED).expect("Kafka starts");
    let output = lab(&kafka.brokers());
    assert!(output.status.success(), "{}", shown(&output));
    let output = lab("127.0.0.1:1");
    assert!(
        !output.status.success() && shown(&output).contains("127.0.0.1:1"),
        "{}",
        shown(&output)
    );
}

#[test]
fn the_suite_catches_leaders_on_a_ledger_that_ask_their_mandate_once() {
    let _turn = turn();
    let ledger = ["--ledger", "memory", "--session", "500ms", "--only", "was stopped"];
    let args = [&["conformance", "--engine", "ledger", "--careless"], &ledger[..]].concat();
    let output = lab(&args);
    assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("FAILS") && text.contains("acted in term"), "{text}");
}

#[test]
fn a_leader_on_kafka_that_is_killed_is_replaced_about_as_fast_as_a_plain_consumer() {
    let _turn = turn();
    let args = ["--session", "1s", "--kills", "3", "--members", "3", "--plain"];
    let mut ratios = Vec::new();
    for _ in 0..5 {
        let output = lab(&[&["failover", "--engine", "ledger", "-o", "json"], &args[..]].concat());
        let document = json(&output);
        assert_eq!(document["violations"], serde_json::json!([]), "{document:#}");
        assert_eq!((&document["overlap_ms"], &document["stale_acts"]), (&0.0.into(), &0.into()));
        assert!(document["plain"]["median_ms"].as_f64() > Some(0.0), "{document:#}");
        // The command holds it to 1.3, and more than three kills; a busy host may show more, but not each time.
        ratios.push(document["ratio"].as_f64().expect("a ratio"));
        if ratios.iter().any(|ratio| *ratio < 3.0) {
            return;
        }
    }
    panic!("it takes much longer each time: {ratios:?}");
}

#[test]
fn roles_on_kafka_keep_their_promises_through_faults_of_many_kinds() {
    let _turn = turn();
    // Sessions that a busy machine can keep, and a bound for hangs.
    let args = ["--session", "2s", "--faults", "10", "--seed", "3", "--within", "120s"];
    let output = lab(&[&["chaos", "--engine", "ledger", "-o", "json"], &args[..]].concat());
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(
        (&report["outcome"], &report["violations"]),
        (&"passed".into(), &[""; 0][..].into())
    );
    let struck = report["faults_by_kind"].as_object().expect("a table");
    assert!(struck.len() >= 5, "of many kinds: {struck:?}");
    assert!(report["acts"].as_u64() > Some(500), "closely watched: {report:#}");
}

#[test]
fn leaders_on_kafka_that_look_at_their_mandate_only_once_are_found_out() {
    let _turn = turn();
    let bug = ["--only", "pause", "--faults", "6", "--nodes", "1", "--members", "3", "--careless"];
    let output = lab(&[&["chaos", "--engine", "ledger", "-o", "json"], &bug[..]].concat());
    let report = json(&output);
    assert_eq!(output.status.code(), Some(10), "{report:#}");
    assert!(report["violations"].to_string().contains("acted in term"), "{report:#}");
}

#[test]
fn what_cannot_be_struck_is_refused_with_what_can() {
    for (args, expected) in [
        (&["--brokers", "nowhere.example:9092"][..], "leave --ledger, --brokers"),
        (&["--ledger", "memory"], "leave --ledger, --brokers"),
        (&["--groups", "2"], "--groups is for --mode non-exclusive"),
    ] {
        let output = lab(&[&["chaos", "--engine", "ledger"], args].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn kafka_ends_with_a_laboratory_that_was_killed() {
    let _turn = turn();
    let mut failover = Command::new(env!("CARGO_BIN_EXE_mandate-lab"));
    failover.args(["failover", "--engine", "ledger", "--kills", "1000"]);
    ends_its_servers_when_killed(failover.env_remove("KAFKA_BROKERS"), 1);
}
