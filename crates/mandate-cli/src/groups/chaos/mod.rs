//! `mandate lab chaos`: a real group on an emulated network, with everything that goes wrong.
//!
//! Member processes, each on a host of its own ([`mandate_lab::wan`]) with a small disk of its own ([`disk`]). A seed
//! draws phases of faults ([`storm`]): processes killed and stopped, hosts cut off, partitions, one-way cuts, loss,
//! delay, full disks, several at once. While they last nothing may happen that the guarantee forbids; when a phase
//! has healed, there must be a leader that all follow, within a stated time.
//!
//! What is watched: every act of every leader, by the clock that all processes share; what each member believed;
//! and a register that takes no older term after a newer ([`mandate_conformance::judge`]).

use std::time::{Duration, Instant};

use clap::{ValueEnum, value_parser};
use mandate_conformance::group::{Conduct, Group, GroupError};

use super::{EngineArgs, guarantee_text};
use crate::args::positive_duration;
use crate::exit::Exit;
use crate::output::{self, Format, readable};

mod disk;
pub(super) mod field;
mod report;
mod runner;
mod storm;

use field::{CONTINENT, Field};
use report::Report;
use runner::{Outcome, Runner};

/// Between two acts of a leader: how closely they are watched.
const PACE: Duration = Duration::from_millis(1);

/// Real members on an emulated network, with everything that goes wrong; needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 10 if something happened that the guarantee forbids, 11 if a group that had healed found no leader in time.

Examples:
  mandate lab chaos --guarantee leased --faults 200 --seed 7
  mandate lab chaos --faults 20 --careless       # a bug put back: it must be found")]
pub(crate) struct ChaosArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// How many faults.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..=100_000), value_name = "N")]
    faults: u32,
    /// Faults, loss and jitter are drawn from it.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    seed: u64,
    /// Only faults of this kind; may be given several times.
    #[arg(long, value_enum, value_name = "KIND")]
    only: Vec<storm::Kind>,
    /// How many members.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(3..=9), value_name = "N")]
    members: u32,
    /// A leader that all follow must be there this long after a phase has healed, at the latest.
    #[arg(long, default_value = "20s", value_parser = positive_duration, value_name = "TIME")]
    within: Duration,
    /// Say each fault as it happens.
    #[arg(long, short)]
    verbose: bool,
    /// Put a bug back: leaders look at their mandate once, and then act for ever.
    #[arg(long)]
    careless: bool,
}

impl ChaosArgs {
    /// What repeats these faults.
    fn command(&self) -> String {
        let careless = if self.careless { " --careless" } else { "" };
        let flag = |kind: &storm::Kind| {
            let value = kind.to_possible_value().expect("no kind is hidden");
            format!(" --only {}", value.get_name())
        };
        let only: String = self.only.iter().map(flag).collect();
        format!(
            "mandate lab chaos {} --members {} --faults {} --seed {}{only}{careless}",
            self.engine.flags(),
            self.members,
            self.faults,
            self.seed
        )
    }
}

pub(crate) fn run(args: &ChaosArgs, format: Format) -> anyhow::Result<Exit> {
    let guarantee = args.engine.guarantee();
    let members = args.members as usize;
    let lease = args.engine.lease();
    let setting = storm::Setting { members, lease, only: &args.only };
    let phases = storm::draw(args.seed, args.faults, &setting);
    let field = Field::make(CONTINENT, guarantee, args.members, args.within, args.seed)?;
    let conduct = Conduct { pace: PACE, register: true, careless: args.careless };
    let group = Group::start(&field, args.members, conduct)?;
    let mut runner = Runner::new(&field, group, args.verbose);
    let length: Duration = phases.iter().map(|phase| phase.length() + runner::RECOVERY).sum();
    eprintln!(
        "{}, {}: {} faults in {} phases, about {}",
        args.engine.engine_name(),
        guarantee_text(guarantee),
        args.faults,
        phases.len(),
        readable(length)
    );
    let began = Instant::now();
    let outcome = with_progress(&mut runner, &phases)?;
    let report = Report::new(args, &mut runner, &outcome, began.elapsed())?;
    match format {
        Format::Json => output::print_json(&report)?,
        Format::Text => output::print(report.text())?,
    }
    Ok(match outcome {
        Outcome::Passed => Exit::Success,
        Outcome::Broken(_) => Exit::Correctness,
        Outcome::NoLeader(_) => Exit::Liveness,
    })
}

fn with_progress(runner: &mut Runner<'_>, phases: &[storm::Phase]) -> Result<Outcome, GroupError> {
    let faults: usize = phases.iter().map(|phase| phase.strikes.len()).sum();
    let bar = output::progress(faults as u64, "faults");
    let mut outcome = runner.settle_first()?;
    for phase in phases {
        if !matches!(outcome, Outcome::Passed) {
            break;
        }
        outcome = runner.run(phase, &|text| bar.suspend(|| eprintln!("{text}")))?;
        bar.inc(phase.strikes.len() as u64);
    }
    bar.finish_and_clear();
    Ok(outcome)
}
