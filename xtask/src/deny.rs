//! `cargo xtask deny`: licences, sources and banned crates of all dependencies, by cargo-deny and `deny.toml`.
//!
//! It is no step of `cargo xtask test`: cargo-deny is built from source, which takes minutes, and what it looks at changes with
//! `Cargo.lock` alone. Advisories are left to a release: their database is fetched from the network.

use std::process::Command;

use crate::command::{root, run as run_command};
use crate::tools;

const VERSION: &str = "0.20.2";

pub(crate) fn run() -> anyhow::Result<()> {
    let program = tools::ensure_cargo_tool("cargo-deny", VERSION)?;
    let mut check = Command::new(program);
    check.args(["--locked", "check", "licenses", "bans", "sources"]).current_dir(root());
    run_command(&mut check)
}
