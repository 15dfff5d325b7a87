//! The laboratory's command line: what it prints and how it exits.
//!
//! After a change that is meant: `TRYCMD=overwrite cargo test -p mandate-lab`, and read the diff.

use std::process::{Command, Output};

fn lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mandate-lab")).args(args).output().expect("the program runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_commands_print_what_their_snapshots_and_the_documents_say() {
    // As a reader would run them: from the root of the repository.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    std::env::set_current_dir(root).expect("the repository has a root");
    // Under this name the laboratory is the operator's program, which runs the laboratory for `sim` and `lab`.
    let directory = tempfile::tempdir().expect("there is room");
    let mandate = directory.path().join("mandate");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mandate-lab"), &mandate).expect("links work");
    trycmd::TestCases::new()
        .register_bin("mandate", mandate.as_path())
        .case("crates/mandate-lab/tests/cmd/*.trycmd")
        .case("README.md")
        .case("docs/*.md")
        .run();
}

#[test]
fn a_trace_can_be_piped_and_cut_short() {
    let script = format!("{} sim --seed 1 --trace | head -3", env!("CARGO_BIN_EXE_mandate-lab"));
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell runs");
    assert_eq!(stdout(&output).lines().count(), 3);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_reader_that_has_seen_enough_does_not_hide_a_failure() {
    let mutant = ["sim", "--mutant", "printed-seniority", "--seed"];
    let fails = |seed: &String| !lab(&[&mutant[..], &[seed]].concat()).status.success();
    let seed = (0..50).map(|seed| seed.to_string()).find(fails).expect("one in fifty fails");
    let program = env!("CARGO_BIN_EXE_mandate-lab");
    let command = format!("{program} {} {seed} --trace", mutant.join(" "));
    let script = format!("({command}; echo $? >&2) | head -1");
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "11\n");
}

#[test]
fn a_trace_beside_a_document_goes_to_standard_error() {
    let output = lab(&["sim", "--seed", "3", "--trace", "-o", "json"]);
    assert!(stdout(&output).starts_with("{"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("start"));
}

#[test]
fn two_traces_of_one_seed_are_the_same_bytes() {
    let trace = || {
        let output = lab(&["sim", "--seed", "7", "--trace"]);
        let text = stdout(&output);
        // The summary behind it says how long it took.
        text.lines().take_while(|line| !line.starts_with("nfd-l")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(trace(), trace());
}

#[test]
fn the_experiment_writes_its_files_and_they_can_be_measured() {
    let dir = std::env::temp_dir().join(format!("mandate-lab-{}", std::process::id()));
    let out = dir.display().to_string();
    let args = ["nfd-l", "--out", &out, "--runs", "1", "--length", "10min", "-o", "json"];
    let output = lab(&args);
    assert!(output.status.success(), "{output:?}");
    let document = stdout(&output);
    assert!(document.contains("\"claims\""), "{document}");
    for name in ["report.md", "plot.svg", "points.csv"] {
        assert!(dir.join(name).metadata().is_ok_and(|file| file.len() > 100), "{name}");
    }
    let trace = dir.join("arrivals-calm.csv").display().to_string();
    let args = ["operator", "qos", "measure", &trace, "--interval", "328.957ms", "--detect", "1s"];
    let args = [&args[..], &["-o", "json"]].concat();
    let output = lab(&args);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("\"feasible\": true"), "{output:?}");
    std::fs::remove_dir_all(&dir).expect("it can be removed");
}
