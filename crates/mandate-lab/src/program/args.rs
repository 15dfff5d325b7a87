//! Every command and flag of the laboratory, and what `--help` says of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, value_parser};
use mandate_cli::args::duration;
use mandate_cli::output::Format;

const EXIT_CODES: &str = "\
Exit codes:
  0   all is well
  1   something failed; the message says what, and what to do
  2   the arguments make no sense
  4   an experiment does not show what it should
  10  the simulator, or chaos, saw something that must never happen
  11  the simulator, or chaos, waited in vain for something that must happen
  12  the simulated program panicked

Durations are written 330ms, 1s, 1h, 2days.";

/// Mandate's laboratory: the simulator, conformance, chaos, and experiments.
#[derive(Debug, Parser)]
#[command(name = "mandate-lab", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// How to show results.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the protocols through the simulator: faults, then healing, many seeds.
    Sim(SimArgs),
    /// The evaluation of NFD-L, beside the paper's Table 1, and three detectors with bursts.
    NfdL(NfdLArgs),
    /// How long a real group is without a leader, and whether two ever act at once.
    Failover(crate::groups::FailoverArgs),
    /// Show that an engine keeps its promises: real processes, killed, stopped, cut off.
    Conformance(crate::groups::ConformanceArgs),
    /// What a group costs that does nothing but stand by.
    Idle(crate::groups::IdleArgs),
    /// A wide-area network on this machine, for any program: distances, loss, cuts.
    Wan {
        #[command(subcommand)]
        command: crate::wan::WanCommand,
    },
    /// A real group on such a network, with everything that goes wrong.
    Chaos(crate::groups::ChaosArgs),
    /// How fast and how surely a real group notices that its leader is dead, on the NFD-L paper's link.
    Quality(crate::groups::QualityArgs),
    /// What people elect leaders with today, with the same faults and measurements.
    Rival(crate::rivals::RivalArgs),
    /// What steering brings to etcd, over three data centres.
    Steer(crate::steer::TrialArgs),
    /// The evaluation of POLE: a replicated service over wide-area links, led by whom scores elect.
    Pole(crate::pole::PoleArgs),
    /// How a replicated service fares while leadership moves, and beside etcd.
    Service(crate::service::ServiceArgs),
    /// Whether what clients of a replicated service see under faults can have happened.
    Histories(crate::histories::HistoriesArgs),
    /// The replicated key-value service that `pole` measures: run a member, or ask one.
    Kv {
        #[command(subcommand)]
        command: mandate_kv::program::KvCommand,
    },
    /// Members of a rival: one process of `rival`.
    #[command(hide = true)]
    Crowd(crate::rivals::CrowdArgs),
    /// A member that acts while it leads: one process of `failover` and `conformance`.
    #[command(hide = true)]
    Actor(crate::groups::ActorArgs),
}

/// What the simulator can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// NFD-L: a leader election as a failure detector.
    #[default]
    NfdL,
    /// Terms by a quorum of promises, and leases.
    Installation,
    /// The same, with members that come and go.
    InstallationChanges,
    /// The same, with members that find out by themselves whether they are new.
    InstallationAuto,
    /// Election by score, whole: detection, selection, installation, moves.
    Pole,
    /// The same, with members that come and go.
    PoleChanges,
    /// The same, with some members of an older release that are upgraded one by one.
    PoleReleases,
    /// Election on a database: registers, conditional writes, leases.
    Registers,
    /// A role on a database: the same, with preferences that change.
    RegistersRole,
    /// Election on a database that loses rows, and writes that it has acknowledged.
    RegistersLosses,
    /// Roles on a ledger, exclusive: claims, renewals, a barrier.
    Neli,
    /// Roles on a ledger, non-exclusive: no role without a leader for long.
    NeliOverlap,
    /// Roles on a ledger, exclusive, with members whose layouts differ.
    NeliLayouts,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SimArgs {
    /// What to run.
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    pub(crate) protocol: Protocol,
    /// How many seeds to run.
    #[arg(
        long, default_value_t = 1000, value_name = "N", conflicts_with = "seed",
        value_parser = value_parser!(u64).range(1..)
    )]
    pub(crate) seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0, value_name = "SEED", conflicts_with = "seed")]
    pub(crate) first: u64,
    /// Run this one seed.
    #[arg(long, value_parser = value_parser!(u64).range(..u64::MAX), value_name = "SEED")]
    pub(crate) seed: Option<u64>,
    /// Print everything that happens in it.
    #[arg(long, requires = "seed")]
    pub(crate) trace: bool,
    /// Stop after this many failures.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) max_failures: u32,
    /// Threads to run on; all cores unless told otherwise.
    #[arg(long, value_parser = value_parser!(u16).range(1..=256), value_name = "N")]
    pub(crate) threads: Option<u16>,
    /// Put a known bug back, to see the simulator catch it.
    #[arg(long, value_parser = crate::sim::bug_names(), value_name = "BUG")]
    pub(crate) mutant: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NfdLArgs {
    /// Where report, plot, figures and traces go; made if it is not there.
    #[arg(long, default_value = "lab-nfd-l", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Runs without a crash, for accuracy.
    #[arg(long, default_value_t = 6, value_parser = value_parser!(u64).range(1..=1000), value_name = "N")]
    pub(crate) runs: u64,
    /// Length of each, in simulated time.
    #[arg(long, value_parser = run_length, default_value = "1h", value_name = "TIME")]
    pub(crate) length: Duration,
    /// Cycles of crash and recovery, for speed.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..=10000), value_name = "N")]
    pub(crate) cycles: u64,
    /// Everything random comes from it.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub(crate) seed: u64,
}

fn run_length(text: &str) -> Result<Duration, String> {
    let length = duration(text)?;
    let (least, most) = (Duration::from_secs(60), Duration::from_secs(7 * 86_400));
    if (least..=most).contains(&length) {
        return Ok(length);
    }
    Err("a run lasts from 1min to 7days".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_run_has_a_length_that_makes_sense() {
        assert!(run_length("1s").is_err());
        assert_eq!(run_length("1h"), Ok(Duration::from_secs(3600)));
    }
}
