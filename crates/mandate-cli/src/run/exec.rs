//! The last step before the command: this program, about to become it.
//!
//! What only the child itself can do without `unsafe` code in its parent: ask the kernel to kill it when its
//! parent dies, take the terminal before it reads from it, and unblock the signals that the guard blocks. A
//! command inherits the mask over `exec`, and most programs never touch theirs: with a blocked SIGTERM it
//! could not be asked to end. SIGPIPE, which Rust programs ignore, is reset by the standard library. What was
//! ignored before `mandate run` was started stays so: `nohup` means the command.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::terminal;
use crate::exit::Exit;
use crate::output;

/// Become a command that dies with the process that started this one.
#[derive(Debug, clap::Args)]
pub(crate) struct BecomeArgs {
    /// The process that started this one.
    #[arg(long)]
    guard: i32,
    /// Take the terminal.
    #[arg(long)]
    foreground: bool,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Becomes the command; returns only if that cannot be.
pub(crate) fn run(args: &BecomeArgs) -> anyhow::Result<Exit> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("could not tie the command's life to its guard's")?;
    // If it died before that, the kernel has nothing to tell us any more.
    anyhow::ensure!(getppid() == Pid::from_raw(args.guard), "the guard has gone");
    if args.foreground {
        terminal::take()?;
    }
    // Last: what was sent meanwhile ends this process as it would end the command.
    SigSet::empty().thread_set_mask().context("could not unblock signals for the command")?;
    let program = &args.command[0];
    let error = Command::new(program).args(&args.command[1..]).exec();
    let is_absent = error.kind() == ErrorKind::NotFound;
    // The file of a script whose interpreter is missing is there.
    if is_absent && !(program.contains('/') && Path::new(program).exists()) {
        output::complain(format!("could not run {program}: there is no such command"));
        return Ok(Exit::NotFound);
    }
    let hint = if is_absent { "; is the interpreter in its first line there?" } else { "" };
    output::complain(format!("could not run {program}: {error}{hint}"));
    Ok(Exit::NotExecutable)
}
