//! What the program's exit codes mean. They are part of its interface; `mandate --help` lists
//! them.

use std::process::ExitCode;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// All is well.
    Success = 0,
    /// Something failed: a file, an argument's meaning, an output.
    Failure = 1,
    // 2 is what the argument parser uses.
    /// What was asked for cannot be had: no plan meets the bounds, nobody can lead.
    Infeasible = 3,
    /// An experiment does not show what it should.
    ClaimFailed = 4,
    /// The simulator saw what must never happen.
    Correctness = 10,
    /// The simulator waited in vain for what must happen.
    Liveness = 11,
    /// The simulated program panicked.
    Crash = 12,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}
