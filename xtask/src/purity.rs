//! `cargo xtask purity`: shows that what keeps `mandate-proto` pure really bites.
//!
//! The simulator is worth something only if a seed decides the whole run, and that only holds while
//! no protocol reads a clock, touches the system or iterates in an order that differs between runs.
//! Two fences see to it: the crate is `no_std`, and its `clippy.toml` forbids the rest to code that
//! says `extern crate std`. A fence can fall silently: a path misspelt in `clippy.toml` is never
//! reported, an attribute removed is missed by nobody. So each fence is run into on purpose:
//!
//! 1. `lib.rs` says `#![no_std]`, and a `no_std` crate indeed cannot name `std`;
//! 2. no dependency brings in what the crate itself may not use;
//! 3. a crate that breaks every rule of `clippy.toml` is reported for every one of them;
//! 4. the library itself passes with the rules forbidden, so that no `#[allow]` lifts them.
//!
//! Searching the sources for words such as `Instant` was rejected: the project has an `Instant` of
//! its own, and text cannot tell the two apart.

mod fixture;
mod rules;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

use crate::command::{cargo, output, root, run as run_command, shown};

/// Where the fixtures are written and compiled.
const SCRATCH: &str = "target/purity";

/// What `mandate-proto` may depend on, itself included. Each of them is pure at run time: `libm` is
/// mathematics without `std`, `serde` and `postcard` (with `cobs`) turn values into bytes without it,
/// the others only run inside the compiler.
const ALLOWED_DEPENDENCIES: [&str; 13] = [
    "mandate-proto",
    "libm",
    "postcard",
    "cobs",
    "serde",
    "serde_core",
    "serde_derive",
    "thiserror",
    "thiserror-impl",
    "proc-macro2",
    "quote",
    "syn",
    "unicode-ident",
];

pub(crate) fn run() -> anyhow::Result<()> {
    lib_is_no_std()?;
    fixture::no_std_keeps_std_out()?;
    println!("purity: the crate is no_std, and no_std keeps std out");

    let dependencies = dependencies_are_allowed()?;
    println!("purity: all {dependencies} dependencies are on the list");

    let clippy_toml = read("clippy.toml")?;
    let rules = rules::paths(&clippy_toml);
    ensure!(!rules.is_empty(), "{} has no rule at all", proto("clippy.toml").display());
    fixture::every_rule_is_reported(&clippy_toml, &rules)?;
    println!("purity: each of the {} rules of clippy is reported", rules.len());

    library_has_no_exemption()?;
    println!("purity: the library passes with these rules forbidden");
    Ok(())
}

fn lib_is_no_std() -> anyhow::Result<()> {
    ensure!(
        says_no_std(&read("src/lib.rs")?),
        "{} does not say `#![no_std]`: put it back; a test that needs std says \
         `extern crate std` inside its own module",
        proto("src/lib.rs").display()
    );
    Ok(())
}

/// Not under a condition: `cfg_attr(not(test), no_std)` would let std into what the tests compile.
fn says_no_std(lib: &str) -> bool {
    lib.lines().any(|line| line.trim() == "#![no_std]")
}

/// How many dependencies there are, itself not counted.
fn dependencies_are_allowed() -> anyhow::Result<usize> {
    let mut tree =
        cargo("tree -p mandate-proto -e normal --prefix none --locked".split_ascii_whitespace());
    let found = output(&mut tree)?;
    ensure!(
        found.status.success(),
        "`{}` failed:\n{}",
        shown(&tree),
        String::from_utf8_lossy(&found.stderr)
    );
    let names = dependency_names(&String::from_utf8_lossy(&found.stdout));
    let strangers: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !ALLOWED_DEPENDENCIES.contains(name))
        .collect();
    if !strangers.is_empty() {
        bail!(
            "mandate-proto depends on {}, which is not on the list of pure crates.\n\
             `cargo tree -p mandate-proto -e normal` shows who brings it in. Do without it, move \
             what needs it into the driver, or, if it uses no clock, no I/O and no randomness, add \
             it to ALLOWED_DEPENDENCIES in xtask/src/purity.rs and say why it is pure",
            strangers.join(", ")
        );
    }
    ensure!(
        names.iter().any(|name| name == "mandate-proto"),
        "`{}` does not list mandate-proto itself, so its output is not understood",
        shown(&tree)
    );
    Ok(names.len() - 1)
}

/// The names in the output of `cargo tree --prefix none`, each once.
fn dependency_names(tree: &str) -> Vec<String> {
    let mut names: Vec<String> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

fn library_has_no_exemption() -> anyhow::Result<()> {
    // Its own target directory: other lint levels in the usual one would make `cargo clippy` check
    // everything again, each time.
    let mut clippy = cargo(["clippy", "--quiet", "--package", "mandate-proto", "--lib"]);
    clippy.args(["--locked", "--target-dir"]);
    clippy.arg(format!("{SCRATCH}/library"));
    clippy.arg("--");
    for lint in rules::LINTS {
        clippy.args(["-F", lint]);
    }
    run_command(&mut clippy).context(
        "the library breaks a rule of crates/mandate-proto/clippy.toml, or lifts one with an \
         `allow`: what is needed from outside comes in as an argument, or goes out as an effect",
    )
}

fn proto(file: &str) -> PathBuf {
    root().join("crates/mandate-proto").join(file)
}

fn read(file: &str) -> anyhow::Result<String> {
    let path = proto(file);
    fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_std_under_a_condition_or_in_a_comment_does_not_count() {
        assert!(says_no_std("//! Protocols.\n\n#![no_std]\nextern crate alloc;\n"));
        assert!(!says_no_std("#![cfg_attr(not(test), no_std)]\n"));
        assert!(!says_no_std("// #![no_std]\n"));
    }

    #[test]
    fn a_dependency_listed_twice_is_named_once() {
        let tree = "mandate-proto v0.1.0 (/src/crates/mandate-proto)\n\
                    libm v0.2.16\n\
                    thiserror-impl v2.0.21 (proc-macro)\n\
                    libm v0.2.16 (*)\n";
        assert_eq!(dependency_names(tree), ["libm", "mandate-proto", "thiserror-impl"]);
    }
}
