//! The `mandate` program. One file a command; [`args`] defines them all.

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

mod args;
mod demo;
mod exit;
mod input;
mod lab;
mod oracle_rank;
mod output;
mod qos_measure;
mod qos_plan;
mod sim;

use args::{Args, Command, LabCommand, OracleCommand, QosCommand};
use exit::Exit;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(args) {
        Ok(exit) => exit.into(),
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => Exit::Success.into(),
        Err(error) => {
            eprintln!("mandate: {error:#}");
            Exit::Failure.into()
        }
    }
}

fn run(args: Args) -> anyhow::Result<Exit> {
    let format = args.output;
    match args.command {
        Command::Demo(args) => demo::run(&args, format),
        Command::Qos { command: QosCommand::Plan(args) } => qos_plan::run(&args, format),
        Command::Qos { command: QosCommand::Measure(args) } => qos_measure::run(&args, format),
        Command::Oracle { command: OracleCommand::Rank(args) } => oracle_rank::run(&args, format),
        Command::Sim(args) => sim::run(&args, format),
        Command::Lab { command: LabCommand::NfdL(args) } => lab::run(&args, format),
        Command::Completions { shell } => {
            let mut command = Args::command();
            clap_complete::generate(shell, &mut command, "mandate", &mut io::stdout());
            Ok(Exit::Success)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
