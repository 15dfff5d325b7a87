//! The project's tasks, run as `cargo xtask <command>`.
//!
//! They are a Rust program and not shell scripts so that a checkout and a Rust toolchain are all a
//! contributor needs, and so that the continuous build and a contributor run the very same thing.
//! It is compiled before anything else can be tested, hence no argument parser and almost no
//! dependency: a cold `cargo xtask help` takes seconds.

mod bench;
mod command;
mod lockfile;
mod purity;
mod test;
mod tools;

use std::process::ExitCode;

use anyhow::bail;

const HELP: &str = "\
cargo xtask <command>

  test     format, lints, purity, documentation and all tests: what a change must pass
  purity   show that the rules which keep mandate-proto free of clock, I/O and chance really bite
  bench    count the instructions of the benchmarks under valgrind
  help     this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> anyhow::Result<()> {
    match args {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["test"] => test::run(),
        ["purity"] => purity::run(),
        ["bench"] => bench::run(),
        [known @ ("help" | "test" | "purity" | "bench"), ..] => {
            bail!("`cargo xtask {known}` takes no arguments")
        }
        [unknown, ..] => bail!("no command is called `{unknown}`\n\n{HELP}"),
    }
}
