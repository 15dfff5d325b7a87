//! The `mandate-lab` program. One file or folder a command; [`args`] defines them all.
//!
//! It holds the operator's program, too (`operator`): the members, daemons and guards of an experiment are processes of this very build.

use std::process::ExitCode;

use clap::Parser;
use mandate_cli::exit::Exit;
use mandate_cli::output;

mod args;
mod groups;
mod histories;
mod nfd_l;
mod operator;
mod pole;
mod progress;
mod rivals;
mod service;
mod sim;
mod steer;
mod wan;

use args::{Args, Command};

fn main() -> ExitCode {
    if let Some(words) = operator::words() {
        return mandate_cli::run_as(words);
    }
    match dispatch(Args::parse()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::complain(output::with_causes(&error));
            Exit::Failure.into()
        }
    }
}

fn dispatch(args: Args) -> anyhow::Result<Exit> {
    let format = args.output;
    match args.command {
        Command::Sim(args) => sim::run(&args, format),
        Command::NfdL(args) => nfd_l::run(&args, format),
        Command::Failover(args) => groups::failover::run(&args, format),
        Command::Conformance(args) => groups::conformance::run(&args, format),
        Command::Idle(args) => groups::idle::run(&args, format),
        Command::Wan { command } => wan::run(&command, format),
        Command::Quality(args) => groups::quality::run(&args, format),
        Command::Chaos(args) => groups::chaos::run(&args, format),
        Command::Actor(args) => groups::actor::run(&args),
        Command::Rival(args) => rivals::run(&args, format),
        Command::Steer(args) => steer::run(&args, format),
        Command::Pole(args) => pole::run(&args, format),
        Command::Service(args) => service::run(&args, format),
        Command::Histories(args) => histories::run(&args, format),
        Command::Kv { command } => pole::kv(command),
        Command::Crowd(args) => rivals::run_crowd(&args),
    }
}
