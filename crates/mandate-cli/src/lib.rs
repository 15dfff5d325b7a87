//! The `mandate` program, as a library: one file or folder a command; `args` defines them all.
//!
//! Two programs are made of it: `mandate`, and the laboratory, whose members, daemons and guards are the operator's. What is hidden is
//! for the laboratory and promises nothing to anybody else.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

// For the laboratory.
#[doc(hidden)]
pub mod args;
#[doc(hidden)]
pub mod arrivals;
#[doc(hidden)]
pub mod certs;
#[doc(hidden)]
pub mod client;
mod demo;
#[doc(hidden)]
pub mod exit;
#[doc(hidden)]
pub mod init;
#[doc(hidden)]
pub mod input;
mod laboratory;
// Without Kafka, what is said of it is read and refused.
#[cfg_attr(not(feature = "kafka"), allow(dead_code))]
#[doc(hidden)]
pub mod ledger;
mod local;
#[doc(hidden)]
pub mod logging;
mod members;
#[doc(hidden)]
pub mod node;
mod oracle_rank;
#[doc(hidden)]
pub mod output;
#[doc(hidden)]
pub mod program_runtime;
mod qos_live;
mod qos_measure;
mod qos_plan;
#[doc(hidden)]
pub mod relay;
mod run;
#[doc(hidden)]
pub mod sql;
#[cfg(feature = "steer")]
mod steer;
#[doc(hidden)]
pub mod topology;
#[doc(hidden)]
pub mod wait;

use args::{Args, Command, OracleCommand, QosCommand};
use exit::Exit;
use output::Format;

/// The whole program.
pub fn main() -> ExitCode {
    run_as(std::env::args_os())
}

/// The whole program, with these words, of which the first is its name.
pub fn run_as(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = Args::parse_from(words);
    if let (Format::Json, Command::Run(_) | Command::Node(_)) = (args.output, &args.command) {
        let text = "`run` and `node` show no results that could be JSON: leave --output out. \
                    `mandate observe -o json` shows what happens to a daemon";
        Args::command().error(ErrorKind::ArgumentConflict, text).exit();
    }
    match dispatch(args) {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::complain(output::with_flags(output::with_causes(&error)));
            Exit::Failure.into()
        }
    }
}

fn dispatch(args: Args) -> anyhow::Result<Exit> {
    let format = args.output;
    match args.command {
        Command::Demo(args) => demo::run(&args, format),
        Command::Qos { command: QosCommand::Plan(args) } => qos_plan::run(&args, format),
        Command::Qos { command: QosCommand::Measure(args) } => qos_measure::run(&args, format),
        Command::Oracle { command: OracleCommand::Rank(args) } => oracle_rank::run(&args, format),
        Command::Sim(args) => laboratory::run(Some("sim"), &args.args, format),
        Command::Lab(args) => laboratory::run(None, &args.args, format),
        Command::Init(args) => init::run(&args, format),
        Command::Certs(args) => certs::run(&args, format),
        Command::Node(args) => node::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Guard(args) => run::guard_command(&args),
        Command::Become(args) => run::become_command(&args),
        #[cfg(feature = "steer")]
        Command::Steer { command } => steer::run(&command),
        Command::Sql { command } => sql::sql_command(&command),
        Command::Status(args) => local::status(&args, format),
        Command::History(args) => local::history(&args, format),
        Command::Explain(args) => local::explain(&args, format),
        Command::Observe(args) => local::observe(&args, format),
        Command::Resign(args) => local::resign(&args),
        Command::Transfer(args) => local::transfer(&args),
        Command::Member { command } => members::run(*command, format),
        Command::Openapi => {
            output::print_json(&node::openapi())?;
            Ok(Exit::Success)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            let mut command = args::visible(&Args::command()).version(env!("CARGO_PKG_VERSION"));
            clap_complete::generate(shell, &mut command, "mandate", &mut script);
            output::print(String::from_utf8_lossy(&script))?;
            Ok(Exit::Success)
        }
    }
}
