//! The project's tasks, run as `cargo xtask <command>`.
//!
//! They are a Rust program and not shell scripts so that a checkout and a Rust toolchain are all a
//! contributor needs, and so that the continuous build and a contributor run the very same thing.
//! It is compiled before anything else can be tested, so it has no argument parser and almost no
//! dependency: a cold `cargo xtask help` takes seconds.

mod bench;
mod command;
mod deny;
mod figures;
mod lockfile;
mod package;
mod purity;
mod readme;
mod scratch;
mod suite;
mod test;
mod tools;
mod words;

use std::process::ExitCode;

use anyhow::bail;

const HELP: &str = "\
cargo xtask <command>

  test     format, words, figures, lints, purity, documentation, all tests, and the README's first command, packages and features: what a
           change must pass
  quick    format, words, figures, lints, purity, and the tests that need no server and no root: minutes
  purity   show that the rules which keep mandate-proto free of clock, I/O and chance really bite
  readme   build and run the README's first command
  tests    all tests, those that only compute beside the others
  package  pack every published crate and build it from its package alone
  deny     check licences, sources and banned crates with cargo-deny, which is built first
  words    find names with two meanings, and words that nobody searches for
  figures  compare tables in the guides with the files that they come from
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
        ["test"] => test::all(),
        ["quick"] => test::quick(),
        ["readme"] => readme::run(),
        ["tests"] => suite::run(|| Ok(())),
        ["purity"] => purity::run(),
        ["package"] => package::run(),
        ["deny"] => deny::run(),
        ["words"] => words::run(),
        ["figures"] => figures::run(),
        ["bench"] => bench::run(),
        [known, ..] if HELP.contains(&format!("\n  {known} ")) => {
            bail!("`cargo xtask {known}` does not take these arguments")
        }
        [unknown, ..] => bail!("no command is called `{unknown}`\n\n{HELP}"),
    }
}
