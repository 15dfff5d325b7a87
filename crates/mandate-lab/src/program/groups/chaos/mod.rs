//! `mandate lab chaos`: a real group, with everything that goes wrong.
//!
//! Members of the peer engine are processes, each on a host of its own ([`mandate_lab::wan`]) with a small disk of its own
//! ([`environment`]). Those of the SQL engine are processes on a private database ([`server`]), those of the ledger
//! engine on a private Kafka of several nodes (`cluster`). A seed draws phases of faults
//! ([`storm`]): processes killed and stopped, hosts cut off, partitions, one-way cuts, loss, delay, full disks; databases
//! ended, crashed and frozen, their connections broken, their rows locked; several at once. While they last nothing may
//! happen that the guarantee forbids; when a phase has healed, there must be a leader that all follow, within a stated time.
//!
//! What is watched: every act of every leader, by the clock that all processes share; what each member believed;
//! a register that takes no older term after a newer ([`mandate_conformance::judge`]); and, on a database, a table that
//! leaders write to in transactions that check their term.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::value_parser;
use mandate_conformance::group::{ActorSettings, GroupError, ProcessGroup};

use super::{Engine, EngineArgs};
use mandate_cli::args::positive_duration;
use mandate_cli::exit::Exit;
#[cfg(feature = "kafka")]
use mandate_cli::ledger::ModeName;
use mandate_cli::output::{self, Format, readable};

mod clock;
#[cfg(feature = "kafka")]
mod cluster;
mod disk;
pub(super) mod environment;
pub(super) mod lapses;
mod membership;
mod report;
mod runner;
mod server;
mod storm;
mod target;
mod upgrade;
mod warnings;

#[cfg(feature = "kafka")]
use cluster::Cluster;
use environment::{CONTINENT, ChaosEnvironment};
use report::Report;
use runner::{Outcome, Runner};
use server::ServerTarget;
use target::ChaosTarget;
use upgrade::OlderProgram;

/// Between two acts of a leader: how closely they are watched.
const PACE: Duration = Duration::from_millis(1);

/// Real members on an emulated network, or on a private database, or on a private Kafka, with everything that goes
/// wrong; the first two need root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 10 if something happened that the guarantee forbids, 11 if a group that had healed found no leader in time.

Examples:
  mandate lab chaos --guarantee leased --faults 200 --seed 7
  mandate lab chaos --changes --faults 200               # members come and go, too
  mandate lab chaos --older ./mandate-lab-0.1 --faults 100   # members of two releases, then an upgrade
  mandate lab chaos --engine sql --server postgres --faults 80
  mandate lab chaos --engine ledger --faults 100 --only crash --only cut-coordinator
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
    /// How many nodes Kafka has; on a ledger.
    #[cfg(feature = "kafka")]
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(1..=5), value_name = "N")]
    nodes: u16,
    /// How many roles members lead, each on a partition of its own; on a ledger. Acts are those of the first; of all of them it is watched
    /// who leads them.
    #[cfg(feature = "kafka")]
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=64), value_name = "N")]
    roles: u32,
    /// Whether a role may have two leaders for a while when it changes hands; on a ledger. Then faults come one at a time,
    /// and what is judged is for how long there is no leader.
    #[cfg(feature = "kafka")]
    #[arg(long, value_enum, default_value_t)]
    mode: ModeName,
    /// How many disjoint groups the members are of, each with a leader of its own; in non-exclusive mode.
    #[cfg(feature = "kafka")]
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=2), value_name = "N")]
    groups: u32,
    /// A leader that all follow must be there this long after a phase has healed, at the latest.
    #[arg(long, default_value = "20s", value_parser = positive_duration, value_name = "TIME")]
    within: Duration,
    /// Step the wall clock of this host, too, by up to a minute (6 s on a ledger), and put it back.
    #[arg(long)]
    step_clock: bool,
    /// Have members come and go, too: a quarter of the faults are changes of the list of members. On an emulated network.
    #[arg(long)]
    changes: bool,
    /// Have an older `mandate-lab`, at this path, run every other member; when the faults are over, upgrade those, and see that
    /// the members can be changed from then on. On an emulated network.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "changes")]
    older: Option<PathBuf>,
    /// Keep what members logged in this directory.
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Say each fault as it happens.
    #[arg(long, short)]
    verbose: bool,
    /// Put a bug back: leaders look at their mandate once, and then act without end.
    #[arg(long)]
    careless: bool,
    /// Put a bug back: leaders count a change of members as settled as soon as they have it on their own disk.
    #[arg(long, hide = true, requires = "changes")]
    hasty: bool,
}

impl ChaosArgs {
    /// Where it happens. Made first of all: threads that are there before do not come along.
    fn ground(&self) -> anyhow::Result<Box<dyn ChaosTarget>> {
        let (members, within) = (self.members, self.within);
        let is_peer = matches!(self.engine.engine, Engine::Peer);
        anyhow::ensure!(
            self.older.is_none() || is_peer,
            "--older is for members that talk to each other"
        );
        anyhow::ensure!(
            !self.changes || matches!(self.engine.engine, Engine::Peer),
            "--changes is for members that talk to each other: who takes part in an election on a database or a ledger is a member"
        );
        Ok(match self.engine.engine {
            Engine::Peer => {
                anyhow::ensure!(
                    !self.step_clock,
                    "--step-clock is for members on a database or a ledger"
                );
                let guarantee = self.engine.guarantee();
                let mut kinds = storm::OF_PEERS.to_vec();
                if self.changes {
                    kinds.extend(storm::CHANGES);
                }
                // Each change brings one member at most, and ids are never used again.
                let phases = self.phases(&storm::wanted(kinds.clone(), &self.only)?);
                let faults = phases.iter().flat_map(|phase| &phase.faults);
                let spares =
                    faults.filter(|(_, fault)| storm::changes_members(fault.kind())).count() as u32;
                let hosts = members + spares;
                let made = ChaosEnvironment::make(CONTINENT, guarantee, hosts, within, self.seed)?;
                let older = self.older.as_deref();
                let older = older.map(|program| OlderProgram::of_half(program, members));
                Box::new(made.with_kinds(kinds).with_older(older))
            }
            Engine::Sql => Box::new(ServerTarget::make(&self.engine, within, self.step_clock)?),
            #[cfg(feature = "kafka")]
            Engine::Ledger => Box::new(Cluster::make(self)?),
        })
    }

    #[cfg(feature = "kafka")]
    fn ledger_flags(&self) -> String {
        let mode = match self.mode {
            ModeName::Exclusive => String::new(),
            ModeName::NonExclusive => format!(" --mode non-exclusive --groups {}", self.groups),
        };
        format!(" --nodes {} --roles {}{mode}", self.nodes, self.roles)
    }

    /// What happens, by the seed.
    fn phases(&self, kinds: &[(storm::Kind, usize)]) -> Vec<storm::Phase> {
        let together = if self.overlaps() { 1 } else { 3 };
        let (members, lease) = (self.members as usize, self.engine.lease());
        storm::draw(self.seed, self.faults, &storm::Setting { members, lease, together, kinds })
    }

    /// Whether two may lead, and what is judged is for how long nobody does.
    fn overlaps(&self) -> bool {
        #[cfg(feature = "kafka")]
        return self.mode == ModeName::NonExclusive;
        #[cfg(not(feature = "kafka"))]
        false
    }

    /// What repeats these faults.
    fn command(&self) -> String {
        let careless = if self.careless { " --careless" } else { "" };
        let hasty = if self.hasty { " --hasty" } else { "" };
        let changes = if self.changes { " --changes" } else { "" };
        let older = self.older.as_ref();
        let older = older.map(|it| format!(" --older {}", it.display())).unwrap_or_default();
        let clock = if self.step_clock { " --step-clock" } else { "" };
        #[cfg(feature = "kafka")]
        let clock = match self.engine.engine {
            Engine::Ledger => format!("{}{clock}", self.ledger_flags()),
            _ => clock.to_owned(),
        };
        let only: String =
            self.only.iter().map(|kind| format!(" --only {}", kind.flag())).collect();
        format!(
            "mandate lab chaos {} --members {} --faults {} --seed {}{changes}{older}{only}{clock}{careless}{hasty}",
            self.engine.flags(),
            self.members,
            self.faults,
            self.seed
        )
    }
}

pub(crate) fn run(args: &ChaosArgs, format: Format) -> anyhow::Result<Exit> {
    let ground = args.ground()?;
    let phases = args.phases(&storm::wanted(ground.kinds(), &args.only)?);
    let overlaps = args.overlaps();
    // Without terms there is nothing that a register could refuse.
    let (careless, hasty) = (args.careless, args.hasty);
    let conduct = ActorSettings { pace: PACE, register: !overlaps, careless, hasty };
    let group = ProcessGroup::start(&*ground, args.members, conduct)?;
    let mut runner = Runner::new(&*ground, group, args.verbose);
    let length: Duration = phases.iter().map(|phase| phase.length() + runner::RECOVERY).sum();
    eprintln!(
        "{}: {} faults in {} phases, about {}",
        ground.name(),
        args.faults,
        phases.len(),
        readable(length)
    );
    let began = Instant::now();
    let mut outcome = with_progress(&mut runner, &phases)?;
    if matches!(outcome, Outcome::Passed) {
        outcome = upgrade::complete(&mut runner, &*ground, &|text| eprintln!("{text}"))?;
    }
    if let Some(directory) = &args.logs {
        keep_logs(&runner, directory)?;
    }
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

fn keep_logs(runner: &Runner<'_>, directory: &Path) -> anyhow::Result<()> {
    let failed = || format!("could not keep logs in {}", directory.display());
    std::fs::create_dir_all(directory).with_context(failed)?;
    for member in runner.all() {
        let path = directory.join(format!("{member}.log"));
        std::fs::write(path, runner.group.logged(member)).with_context(failed)?;
    }
    Ok(())
}

fn with_progress(runner: &mut Runner<'_>, phases: &[storm::Phase]) -> Result<Outcome, GroupError> {
    let faults: usize = phases.iter().map(|phase| phase.faults.len()).sum();
    let bar = crate::progress::bar(faults as u64, "faults");
    let mut outcome = runner.settle_first()?;
    for phase in phases {
        if !matches!(outcome, Outcome::Passed) {
            break;
        }
        outcome = runner.run(phase, &|text| bar.suspend(|| eprintln!("{text}")))?;
        bar.inc(phase.faults.len() as u64);
    }
    bar.finish_and_clear();
    Ok(outcome)
}
