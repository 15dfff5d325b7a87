//! The command line: what it prints and how it exits, as files that read like a terminal. The
//! README's own examples are among them.
//!
//! After a change that is meant: `TRYCMD=overwrite cargo test -p mandate-cli`, and read the diff.

use std::process::{Command, Output, Stdio};

fn mandate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mandate")).args(args).output().expect("the program runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_commands_print_what_their_snapshots_say() {
    // As a reader would run them: from the root of the repository.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    std::env::set_current_dir(root).expect("the repository has a root");
    trycmd::TestCases::new()
        .case("crates/mandate-cli/tests/cmd/*.trycmd")
        .case("README.md")
        .case("docs/*.md");
}

#[test]
fn a_trace_can_be_piped_and_cut_short() {
    let script = format!("{} sim --seed 1 --trace | head -3", env!("CARGO_BIN_EXE_mandate"));
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell runs");
    assert_eq!(stdout(&output).lines().count(), 3);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_reader_that_has_seen_enough_does_not_hide_a_failure() {
    let mutant = ["sim", "--mutant", "printed-seniority", "--seed"];
    let fails = |seed: &String| !mandate(&[&mutant[..], &[seed]].concat()).status.success();
    let seed = (0..50).map(|seed| seed.to_string()).find(fails).expect("one in fifty fails");
    let program = env!("CARGO_BIN_EXE_mandate");
    let command = format!("{program} {} {seed} --trace", mutant.join(" "));
    let script = format!("({command}; echo $? >&2) | head -1");
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "11\n");
}

#[test]
fn a_trace_beside_a_document_goes_to_standard_error() {
    let output = mandate(&["sim", "--seed", "3", "--trace", "-o", "json"]);
    assert!(stdout(&output).starts_with("{"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("start"));
}

/// See no-color.org: set and not empty.
#[test]
fn log_lines_on_a_terminal_have_colours_unless_no_color_is_set() {
    let program = env!("CARGO_BIN_EXE_mandate");
    // It says why it waits, and ends.
    let line = format!("{program} run x --api 127.0.0.1:1 --wait 1500ms -- true");
    for (value, expected) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).env_remove("NO_COLOR");
        let output = terminal.envs(value.map(|value| ("NO_COLOR", value))).output();
        let shown = stdout(&output.expect("a terminal can be had"));
        let logged = shown.lines().find(|line| line.contains("Trying again"));
        let logged = logged.unwrap_or_else(|| panic!("nothing is logged: {shown}"));
        assert_eq!(logged.contains('\u{1b}'), expected, "NO_COLOR={value:?}: {logged:?}");
    }
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = mandate(&["completions", shell]);
        assert!(output.status.success() && stdout(&output).contains("mandate"), "{shell}");
    }
}

#[test]
fn two_traces_of_one_seed_are_the_same_bytes() {
    let trace = || {
        let output = mandate(&["sim", "--seed", "7", "--trace"]);
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
    let args = ["lab", "nfd-l", "--out", &out, "--runs", "1", "--length", "10min", "-o", "json"];
    let output = mandate(&args);
    assert!(output.status.success(), "{output:?}");
    let document = stdout(&output);
    assert!(document.contains("\"claims\""), "{document}");
    for name in ["report.md", "plot.svg", "points.csv"] {
        assert!(dir.join(name).metadata().is_ok_and(|file| file.len() > 100), "{name}");
    }
    let trace = dir.join("arrivals-calm.csv").display().to_string();
    let args =
        ["qos", "measure", &trace, "--interval", "328.957ms", "--detect", "1s", "-o", "json"];
    let output = mandate(&args);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("\"feasible\": true"), "{output:?}");
    std::fs::remove_dir_all(&dir).expect("it can be removed");
}
