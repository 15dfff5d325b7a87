//! What the program's exit codes mean. They are part of its interface; `mandate --help` lists
//! them.

use std::process::ExitCode;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Success,
    /// Something failed: a file, an argument's meaning, an output.
    Failure,
    // 2 is what the argument parser uses.
    /// What was asked for cannot be had: no plan meets the bounds, nobody can lead.
    Infeasible,
    /// An experiment does not show what it should.
    ClaimFailed,
    /// Leadership was lost, and the command that it ran was stopped.
    LeadershipLost,
    /// The simulator, or chaos, saw what must never happen.
    Correctness,
    /// The simulator, or chaos, waited in vain for what must happen.
    Liveness,
    /// The simulated program panicked.
    Crash,
    /// A command was found but cannot be executed, as shells say it.
    NotExecutable,
    /// A command was not found, as shells say it.
    NotFound,
    /// As a command that was run.
    Command(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Infeasible => 3,
            Exit::ClaimFailed => 4,
            Exit::LeadershipLost => 5,
            Exit::Correctness => 10,
            Exit::Liveness => 11,
            Exit::Crash => 12,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
            Exit::Command(code) => code,
        })
    }
}
