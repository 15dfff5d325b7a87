//! All tests: built once, then run in three lanes.
//!
//! Tests of real processes and servers mostly wait: for leases, sessions, elections. The laboratory's run beside all others. Tests of the
//! simulator and of the protocols only compute. They run beside the others, at the lowest priority, with examples and whatever else
//! only computes: they take the time that nobody else wants. `cargo test` runs one binary after the other.
//!
//! Temporary files are in memory where there is room ([`Scratch`]): with a compiler beside the tests, writes to the disk took most of
//! a second, and members with leases of some hundred milliseconds could not keep them. What the tests show does not depend on the disk:
//! processes are killed, the machine is not.
//!
//! `cargo nextest` was rejected: a process for each test starts servers that tests of one binary share, and it takes minutes to build.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::command::{cargo, root, run as run_command, shown};
use crate::scratch::Scratch;

/// Packages whose tests compute, and wait for nothing: `cargo xtask quick` runs them, too.
pub(crate) const COMPUTING: [&str; 3] = ["mandate-proto", "mandate-sim", "xtask"];

/// Tests of one binary at a time.
const THREADS: &str = "4";

/// The package whose tests have a lane of their own: with private brokers, databases and emulated networks each takes a core.
const HEAVY: &str = "mandate-lab";

/// A test binary, as cargo has built it.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    /// Its package's directory, which tests run in.
    directory: PathBuf,
    executable: PathBuf,
    /// As in `--test pole`, or the name of a library or program.
    target: String,
}

/// Builds and runs all tests; `beside` runs beside them, at the lowest priority.
pub(crate) fn run(beside: impl Fn() -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let (computing, waiting): (Vec<_>, Vec<_>) =
        build()?.into_iter().partition(|binary| COMPUTING.contains(&binary.package()));
    ensure!(!computing.is_empty() && !waiting.is_empty(), "cargo has built no tests");
    let logs = root().join("target/tests");
    fs::create_dir_all(&logs).with_context(|| format!("could not make {}", logs.display()))?;
    let scratch = Scratch::make()?;
    // All are run, also after one has failed: who mends it wants to know of the others, and building took longer than running.
    let run_all = |binaries: &[Binary]| -> anyhow::Result<Vec<String>> {
        let failed: anyhow::Result<Vec<_>> = binaries
            .iter()
            .map(|binary| binary.run(binary.command(scratch.path()), &logs))
            .collect();
        Ok(failed?.into_iter().flatten().collect())
    };
    let (heavy, waiting): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|binary| binary.package() == HEAVY);
    let compute = || -> anyhow::Result<Vec<String>> {
        be_patient()?;
        let mut failed = run_all(&computing)?;
        let examples = run_command(&mut cargo(["test", "--workspace", "--locked", "--doc"]));
        failed.extend(examples.err().map(|error| format!("{error:#}")));
        failed.extend(beside().err().map(|error| format!("{error:#}")));
        Ok(failed)
    };
    let lanes: Vec<_> = thread::scope(|scope| {
        let lanes = [
            scope.spawn(|| run_all(&heavy)),
            scope.spawn(|| run_all(&waiting)),
            scope.spawn(compute),
        ];
        lanes.into_iter().map(|lane| lane.join()).collect()
    });
    let mut failed = Vec::new();
    for lane in lanes {
        failed.extend(lane.map_err(|_| anyhow::anyhow!("a lane of tests panicked"))??);
    }
    ensure!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}

/// Gives this thread, and whatever it starts, the lowest priority.
fn be_patient() -> anyhow::Result<()> {
    let thread = fs::read_link("/proc/thread-self").context("could not learn this thread's id")?;
    let id = thread.file_name().context("a thread without an id")?;
    run_command(Command::new("renice").args(["-n", "19", "-p"]).arg(id))
}

/// Builds all tests; what was built, in cargo's order.
fn build() -> anyhow::Result<Vec<Binary>> {
    let mut build = cargo(["test", "--workspace", "--locked", "--no-run"]);
    build.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let mut running =
        build.spawn().with_context(|| format!("could not start `{}`", shown(&build)))?;
    let output = running.stdout.take().context("cargo has no output")?;
    let mut binaries = Vec::new();
    for line in BufReader::new(output).lines() {
        binaries.extend(binary(&line?)?);
    }
    ensure!(running.wait()?.success(), "`{}` failed", shown(&build));
    binaries.sort_by(|one, other| {
        (&one.directory, &one.target).cmp(&(&other.directory, &other.target))
    });
    Ok(binaries)
}

/// The test binary that a line of cargo's tells of, if it does.
fn binary(line: &str) -> anyhow::Result<Option<Binary>> {
    let message: Value =
        serde_json::from_str(line).with_context(|| format!("cargo said `{line}`"))?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let is_test = message["profile"]["test"] == true;
    let (Some(executable), true) = (text(&message["executable"]), is_test) else { return Ok(None) };
    let manifest = text(&message["manifest_path"]).context("a package without a manifest")?;
    let directory = Path::new(&manifest).parent().context("a manifest in no directory")?;
    let target = text(&message["target"]["name"]).context("a target without a name")?;
    Ok(Some(Binary { directory: directory.into(), executable: executable.into(), target }))
}

impl Binary {
    /// Its package: directories are named like the packages in them.
    fn package(&self) -> &str {
        self.directory.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// In its package's directory, as cargo would run it.
    fn in_package(&self, mut command: Command) -> Command {
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }

    fn command(&self, scratch: Option<&Path>) -> Command {
        let mut command = self.in_package(Command::new(&self.executable));
        if let Some(scratch) = scratch {
            command.env("TMPDIR", scratch);
        }
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", THREADS);
        }
        command
    }

    /// Runs it, and then shows what it said; what failed, if anything did.
    fn run(&self, mut command: Command, logs: &Path) -> anyhow::Result<Option<String>> {
        let name = format!("{} {}", self.package(), self.target);
        let path = logs.join(format!("{}.txt", name.replace(' ', "-")));
        let log =
            File::create(&path).with_context(|| format!("could not make {}", path.display()))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        println!("     Running {name}");
        let began = Instant::now();
        let status = command.status().with_context(|| format!("could not start {name}"))?;
        let said = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
        let said = String::from_utf8_lossy(&said);
        println!("     {name}: {:.1} s\n{said}", began.elapsed().as_secs_f64());
        Ok((!status.success())
            .then(|| format!("{name} ({status}), repeat it with `{}`", shown(&command))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_binary_is_found_in_what_cargo_says() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/mandate-sim/Cargo.toml",
            "target":{"name":"pole"},"profile":{"test":true},"executable":"/w/target/debug/deps/pole-1"}"#;
        let found = binary(line).unwrap().unwrap();
        assert_eq!((found.package(), found.target.as_str()), ("mandate-sim", "pole"));
        assert_eq!(found.executable, Path::new("/w/target/debug/deps/pole-1"));
    }

    #[test]
    fn libraries_and_programs_are_no_tests() {
        for line in [
            r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":"/w/target/debug/mandate"}"#,
            r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":null}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ] {
            assert_eq!(binary(line).unwrap(), None, "{line}");
        }
        assert!(binary("warning: text").is_err());
    }
}
