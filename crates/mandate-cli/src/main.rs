//! The `mandate` program. One file a command; [`args`] defines them all.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

mod args;
mod certs;
mod client;
mod demo;
mod exit;
mod groups;
mod histories;
mod init;
mod input;
mod lab;
// Without Kafka, what is said of it is read and refused.
#[cfg_attr(not(feature = "kafka"), allow(dead_code))]
mod ledger;
mod local;
mod logging;
mod mutants;
mod node;
mod oracle_rank;
mod output;
mod pole;
mod qos_live;
mod qos_measure;
mod qos_plan;
mod rivals;
mod run;
mod service;
mod sim;
mod sql;
mod steer;
mod wait;
mod wan;

use args::{Args, Command, LabCommand, OracleCommand, QosCommand};
use exit::Exit;
use output::Format;

fn main() -> ExitCode {
    let args = Args::parse();
    if let (Format::Json, Command::Run(_) | Command::Node(_)) = (args.output, &args.command) {
        let text = "`run` and `node` show no results that could be JSON: leave --output out. \
                    `mandate observe -o json` shows what happens to a daemon";
        Args::command().error(ErrorKind::ArgumentConflict, text).exit();
    }
    match dispatch(args) {
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
        Command::Demo(args) => demo::run(&args, format),
        Command::Qos { command: QosCommand::Plan(args) } => qos_plan::run(&args, format),
        Command::Qos { command: QosCommand::Measure(args) } => qos_measure::run(&args, format),
        Command::Oracle { command: OracleCommand::Rank(args) } => oracle_rank::run(&args, format),
        Command::Sim(args) => sim::run(&args, format),
        Command::Lab { command: LabCommand::NfdL(args) } => lab::run(&args, format),
        Command::Lab { command: LabCommand::Failover(args) } => {
            groups::failover::run(&args, format)
        }
        Command::Lab { command: LabCommand::Conformance(args) } => {
            groups::conformance::run(&args, format)
        }
        Command::Lab { command: LabCommand::Idle(args) } => groups::idle::run(&args, format),
        Command::Lab { command: LabCommand::Wan { command } } => wan::run(&command, format),
        Command::Lab { command: LabCommand::Quality(args) } => groups::quality::run(&args, format),
        Command::Lab { command: LabCommand::Chaos(args) } => groups::chaos::run(&args, format),
        Command::Lab { command: LabCommand::Actor(args) } => groups::actor::run(&args),
        Command::Lab { command: LabCommand::Rival(args) } => rivals::run(&args, format),
        Command::Lab { command: LabCommand::Steer(args) } => steer::trial::run(&args, format),
        Command::Lab { command: LabCommand::Pole(args) } => pole::run(&args, format),
        Command::Lab { command: LabCommand::Service(args) } => service::run(&args, format),
        Command::Lab { command: LabCommand::Histories(args) } => histories::run(&args, format),
        Command::Lab { command: LabCommand::Kv { command } } => pole::kv(command),
        Command::Lab { command: LabCommand::Crowd(args) } => rivals::run_crowd(&args),
        Command::Init(args) => init::run(&args, format),
        Command::Certs(args) => certs::run(&args, format),
        Command::Node(args) => node::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Guard(args) => run::guard_command(&args),
        Command::Become(args) => run::become_command(&args),
        Command::Steer { command } => steer::run(&command),
        Command::Sql { command } => sql::sql_command(&command),
        Command::Status(args) => local::status(&args, format),
        Command::History(args) => local::history(&args, format),
        Command::Explain(args) => local::explain(&args, format),
        Command::Observe(args) => local::observe(&args, format),
        Command::Resign(args) => local::resign(&args),
        Command::Transfer(args) => local::transfer(&args),
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
