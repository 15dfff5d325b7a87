//! `mandate sim` and `mandate lab`: the program `mandate-lab`, beside this one or on the path.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::bail;

use crate::exit::Exit;
use crate::output::Format;

const NAME: &str = "mandate-lab";

/// Becomes the laboratory. Returns only if it cannot.
pub(crate) fn run(
    command: Option<&str>,
    args: &[OsString],
    format: Format,
) -> anyhow::Result<Exit> {
    let mut laboratory = Command::new(program());
    laboratory.args(command).args(args);
    if format == Format::Json {
        laboratory.args(["--output", "json"]);
    }
    let error = laboratory.exec();
    let what = command.unwrap_or("lab");
    bail!(
        "`mandate {what}` is a command of the program `{NAME}`, which could not be started: {error}. In a \
         checkout of the project, build it: cargo build --release -p {NAME}; or install it: cargo install --path crates/{NAME}"
    )
}

/// Beside this program if it is there; otherwise wherever the path says.
fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(NAME));
    beside.filter(|program| program.is_file()).unwrap_or_else(|| NAME.into())
}
