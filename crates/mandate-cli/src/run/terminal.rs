//! The terminal's foreground: who reads from it, and whom Ctrl-C reaches.
//!
//! The command is a process group of its own, and a terminal belongs to one group at a time. If this
//! program is in the foreground, alone and not in a pipeline, the command gets the terminal for as long as
//! it runs. Else it gets no terminal to read from: in the background it would be stopped by reading.

use std::io::IsTerminal;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Whether the command is to have the terminal.
pub(crate) fn is_ours_alone() -> bool {
    let stdin = std::io::stdin();
    // With another program behind a pipe, the shell has given the terminal to both.
    stdin.is_terminal()
        && std::io::stdout().is_terminal()
        && tcgetpgrp(&stdin).is_ok_and(|group| group == getpgrp())
}

/// Takes the terminal for this process's group.
pub(crate) fn take() -> anyhow::Result<()> {
    give_to(getpgrp()).context("could not take the terminal")
}

/// Takes it back for this process's group from a thread of its own, since signals are blocked for that.
pub(crate) fn take_back() {
    let _ = std::thread::spawn(take).join();
}

fn give_to(group: Pid) -> anyhow::Result<()> {
    // Who is in the background and asks for the terminal is stopped by this signal, unless it is blocked.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    signals.thread_block()?;
    tcsetpgrp(std::io::stdin(), group)?;
    Ok(())
}
