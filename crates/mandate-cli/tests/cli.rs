//! The command line: what it prints and how it exits, as files that read like a terminal.
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
    trycmd::TestCases::new().case("crates/mandate-cli/tests/cmd/*.trycmd");
}

/// See no-color.org: set and not empty.
#[test]
fn log_lines_on_a_terminal_have_colours_unless_no_color_is_set() {
    let program = env!("CARGO_BIN_EXE_mandate");
    // It says why it waits, and ends; on a busy machine it takes seconds to say so.
    let line = format!("{program} run x --api 127.0.0.1:1 --wait 10s -- true");
    let logged = |no_color: Option<&str>| {
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).env_remove("NO_COLOR");
        let output = terminal.envs(no_color.map(|value| ("NO_COLOR", value))).output();
        let shown = stdout(&output.expect("a terminal can be had"));
        let logged = shown.lines().find(|line| line.contains("Trying again")).map(str::to_owned);
        logged.unwrap_or_else(|| panic!("nothing is logged: {shown}"))
    };
    std::thread::scope(|scope| {
        for (value, expected) in [(None, true), (Some(""), true), (Some("1"), false)] {
            let logged = &logged;
            scope.spawn(move || {
                let logged = logged(value);
                assert_eq!(logged.contains('\u{1b}'), expected, "NO_COLOR={value:?}: {logged:?}");
            });
        }
    });
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = mandate(&["completions", shell]);
        assert!(output.status.success() && stdout(&output).contains("mandate"), "{shell}");
    }
}
