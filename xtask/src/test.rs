//! `cargo xtask test`: everything a change must pass, the quick steps first. `cargo xtask quick`: what of it takes minutes and needs
//! neither root nor servers.
//!
//! It stops at the first failure. Going on was rejected: one missing semicolon would fail four
//! steps, and the reader would have to find the one that matters.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use crate::command::{cargo, run as run_command, shown};
use crate::{figures, package, purity, readme, suite, tools, words};

pub(crate) struct Step {
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

/// `cargo xtask quick`.
pub(crate) fn quick() -> anyhow::Result<()> {
    let start = Instant::now();
    let durations = each(quick_steps())?;
    print!("\n{}", table(&durations, start.elapsed()));
    Ok(())
}

/// `cargo xtask test`.
pub(crate) fn all() -> anyhow::Result<()> {
    let start = Instant::now();
    let mut durations = each(programs())?;
    // Servers are downloaded while the compiler works. If a check fails, their installation is still waited for: one that is
    // broken off leaves the package manager in disorder.
    let (checked, installed) = thread::scope(|scope| {
        let installed = scope.spawn(|| each(servers()));
        (each(checks()), installed.join())
    });
    durations.extend(checked?);
    durations.extend(installed.map_err(|_| anyhow!("the installation of servers panicked"))??);
    durations.extend(each(vec![call("tests", all_tests, "cargo xtask tests")])?);
    print!("\n{}", table(&durations, start.elapsed()));
    Ok(())
}

/// One after the other; how long each took.
fn each(steps: Vec<Step>) -> anyhow::Result<Vec<(&'static str, Duration)>> {
    let mut durations = Vec::new();
    for step in steps {
        let repeat = step.action.repeat();
        println!("==> {}: {repeat}", step.name);
        let start = Instant::now();
        step.action.run().with_context(|| failure(step.name, &repeat))?;
        let duration = start.elapsed();
        println!("    {}: {}", step.name, seconds(duration));
        durations.push((step.name, duration));
    }
    Ok(durations)
}

fn step(name: &'static str, command: Command) -> Step {
    Step { name, action: Action::Run(command) }
}

fn call(name: &'static str, call: fn() -> anyhow::Result<()>, repeat: &'static str) -> Step {
    Step { name, action: Action::Call { call, repeat } }
}

fn quick_steps() -> Vec<Step> {
    // The runtime's tests wait, but for nothing that has to be installed.
    let names = suite::COMPUTING.into_iter().chain(["mandate-runtime"]);
    let packages = names.flat_map(|name| ["--package", name]);
    let tests = cargo(["test", "--locked"].into_iter().chain(packages));
    vec![
        call(
            "tools",
            tools::ensure_rustfmt_and_clippy,
            "cargo fmt --version && cargo clippy --version",
        ),
        step("format", format()),
        call("words", words::run, "cargo xtask words"),
        call("figures", figures::run, "cargo xtask figures"),
        step("lints", lints()),
        call("purity", purity::run, "cargo xtask purity"),
        step("tests", tests),
    ]
}

fn format() -> Command {
    cargo(["fmt", "--all", "--check"])
}

fn lints() -> Command {
    cargo("clippy --workspace --all-targets --locked -- -D warnings".split_ascii_whitespace())
}

/// What the checks need.
fn programs() -> Vec<Step> {
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
    ]
}

fn checks() -> Vec<Step> {
    vec![
        step("format", format()),
        call("words", words::run, "cargo xtask words"),
        call("figures", figures::run, "cargo xtask figures"),
        step("lints", lints()),
        call("purity", purity::run, "cargo xtask purity"),
        step("documentation", documentation()),
    ]
}

/// All tests, and beside them what compiles the same crates in yet other ways.
fn all_tests() -> anyhow::Result<()> {
    suite::run(|| each(builds()).map(drop))
}

fn builds() -> Vec<Step> {
    let repeat = "cargo clippy -p mandate-election --no-default-features --features FEATURE";
    vec![
        call("readme", readme::run, "cargo xtask readme"),
        call("package", package::run, "cargo xtask package"),
        call("features", features, repeat),
    ]
}

/// What the tests need besides.
fn servers() -> Vec<Step> {
    vec![
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
        call("haproxy", tools::ensure_haproxy, "haproxy -v"),
        call("etcd", tools::ensure_etcd, "etcd --version"),
        call("zookeeper", tools::ensure_zookeeper, "ls /usr/share/java/zookeeper.jar"),
        call("kafka", tools::ensure_kafka, "java -version && ls target/kafka/libs"),
        call(
            "openapi validator",
            tools::ensure_openapi_validator,
            "ls target/openapi-validator/openapi_spec_validator",
        ),
    ]
}

fn documentation() -> Command {
    // With examples, cargo unites the features of dependencies as it does for the lints, and checks none of them again.
    let mut command = cargo(["doc", "--workspace", "--no-deps", "--lib", "--examples", "--locked"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// The library with each feature alone, as users choose them: in the workspace all are on. By clippy and in the same directory as the lints:
/// what these have checked of dependencies with the same features is not checked again.
fn features() -> anyhow::Result<()> {
    for feature in ["peer", "sqlite", "postgres", "mysql", "kafka"] {
        let mut check = cargo(["clippy", "--locked", "--quiet", "--package", "mandate-election"]);
        check.args(["--no-default-features", "--features", feature, "--", "-D", "warnings"]);
        run_command(&mut check)?;
    }
    Ok(())
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

/// The total is less than the sum where steps ran side by side.
fn table(durations: &[(&str, Duration)], total: Duration) -> String {
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
    fn the_table_has_a_line_for_each_step_and_one_for_the_total() {
        let durations =
            [("format", Duration::from_millis(1_250)), ("tests", Duration::from_secs(100))];
        let expected = "\
format             1.2 s
tests            100.0 s
all passed       101.2 s
";
        assert_eq!(table(&durations, Duration::from_millis(101_230)), expected);
    }
}
