//! `cargo xtask test`: everything a change must pass, the quick steps first.
//!
//! It stops at the first failure. Going on was rejected: one missing semicolon would fail four
//! steps, and the reader would have to find the one that matters.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::command::{cargo, run as run_command, shown};
use crate::{purity, tools};

struct Step {
    name: &'static str,
    action: Action,
}

enum Action {
    Run(Command),
    /// Done in this process; `repeat` is what does the same from a shell.
    Call {
        call: fn() -> anyhow::Result<()>,
        repeat: &'static str,
    },
}

pub(crate) fn run() -> anyhow::Result<()> {
    let mut durations = Vec::new();
    for step in steps() {
        let repeat = step.action.repeat();
        println!("==> {}: {repeat}", step.name);
        let start = Instant::now();
        step.action.run().with_context(|| failure(step.name, &repeat))?;
        let duration = start.elapsed();
        println!("    {}: {}", step.name, seconds(duration));
        durations.push((step.name, duration));
    }
    print!("\n{}", table(&durations));
    Ok(())
}

fn steps() -> Vec<Step> {
    let run = |name, command| Step { name, action: Action::Run(command) };
    let call = |name, call, repeat| Step { name, action: Action::Call { call, repeat } };
    vec![
        call(
            "tools",
            tools::ensure_rustfmt_and_clippy,
            "cargo fmt --version && cargo clippy --version",
        ),
        call("iproute2", tools::ensure_network_and_terminal, "ip -V"),
        call(
            "commands",
            tools::ensure_commands,
            "bash --version && python3 --version && node --version",
        ),
        call("c compiler", tools::ensure_c_compiler, "make --version && gcc --version"),
        run("format", cargo(["fmt", "--all", "--check"])),
        run(
            "lints",
            cargo(
                "clippy --workspace --all-targets --locked -- -D warnings".split_ascii_whitespace(),
            ),
        ),
        call("purity", purity::run, "cargo xtask purity"),
        run("documentation", documentation()),
        call("browser", tools::ensure_chromium, "chromium --version && chromedriver --version"),
        call(
            "postgresql",
            tools::ensure_postgresql,
            "ls /usr/lib/postgresql/*/bin/initdb /usr/sbin/pgbouncer && openssl version",
        ),
        call(
            "mariadb",
            tools::ensure_mariadb_and_galera,
            "mariadbd --version && ls /usr/lib/galera/libgalera_smm.so",
        ),
        call("etcd", tools::ensure_etcd, "etcd --version"),
        call("zookeeper", tools::ensure_zookeeper, "ls /usr/share/java/zookeeper.jar"),
        call("kafka", tools::ensure_kafka, "java -version && ls target/kafka/libs"),
        call(
            "openapi validator",
            tools::ensure_openapi_validator,
            "ls target/openapi-validator/openapi_spec_validator",
        ),
        run("tests", tests()),
    ]
}

fn tests() -> Command {
    let mut command = cargo(["test", "--workspace", "--locked"]);
    // Most of the time tests of real processes and servers wait: for leases, sessions, elections.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", "4");
    }
    command
}

fn documentation() -> Command {
    let mut command = cargo(["doc", "--workspace", "--no-deps", "--locked"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

impl Action {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Run(mut command) => run_command(&mut command),
            Self::Call { call, .. } => call(),
        }
    }

    fn repeat(&self) -> String {
        match self {
            Self::Run(command) => shown(command),
            Self::Call { repeat, .. } => (*repeat).to_owned(),
        }
    }
}

fn failure(name: &str, repeat: &str) -> String {
    format!("step `{name}` failed\n  to repeat it: {repeat}\n  reason")
}

fn table(durations: &[(&str, Duration)]) -> String {
    let total = durations.iter().map(|(_, duration)| *duration).sum();
    let mut table = String::new();
    for (name, duration) in durations.iter().chain([&("all passed", total)]) {
        table += &format!("{name:<14}{:>10}\n", seconds(*duration));
    }
    table
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_step_and_one_for_the_sum() {
        let durations =
            [("format", Duration::from_millis(1_250)), ("tests", Duration::from_secs(100))];
        let expected = "\
format             1.2 s
tests            100.0 s
all passed       101.2 s
";
        assert_eq!(table(&durations), expected);
    }
}
