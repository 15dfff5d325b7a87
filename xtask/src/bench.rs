//! `cargo xtask bench`: the benchmarks, counted in instructions.
//!
//! The benchmarks run under valgrind through gungraun, which counts instructions instead of
//! measuring time. The counts repeat from run to run and hardly depend on what else the machine
//! does, so a regression of one percent shows even on a busy continuous-build machine. Wall-clock
//! benchmarks were rejected for that reason.

use std::fs;

use anyhow::{Context, bail};

use crate::command::{cargo, root, run as run_command};
use crate::{lockfile, tools};

pub(crate) fn run() -> anyhow::Result<()> {
    let version = gungraun_version()?;
    tools::ensure_valgrind()?;
    let runner = tools::ensure_cargo_tool("gungraun-runner", &version)?;
    // The benchmarks read the variable while they are compiled: it must be set for the build.
    run_command(cargo(["bench", "--workspace", "--locked"]).env("GUNGRAUN_RUNNER", runner))
}

fn gungraun_version() -> anyhow::Result<String> {
    let path = root().join("Cargo.lock");
    let lockfile =
        fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    match lockfile::versions(&lockfile, "gungraun")[..] {
        [version] => Ok(version.to_owned()),
        [] => bail!(
            "`gungraun` is not in Cargo.lock, so there is no benchmark to run: a crate with \
             benchmarks has it as a dev-dependency"
        ),
        ref several => bail!(
            "Cargo.lock has gungraun in the versions {}, but one runner fits only one of them: \
             let all crates use the same",
            several.join(" and ")
        ),
    }
}
