//! `mandate lab rival`: what people elect leaders with today, in the same frame as ours.
//!
//! The frame and the elections are [`mandate_lab::rivals`]'s. Here are the private servers that they stand
//! on, and the commands.

mod crowd;
mod ground;

use std::time::Duration;

use clap::value_parser;
use mandate_lab::rivals::figures::Figures;
use mandate_lab::rivals::trial::{self, Cause, Plan};
use serde::Serialize;

pub(crate) use crowd::{CrowdArgs, run as run_crowd};
use ground::Prepared;

use crate::args::positive_duration;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::sql::GuaranteeName;

/// A rival on a private server, whose leader is struck again and again.
#[derive(Debug, clap::Args)]
pub(crate) struct RivalArgs {
    /// What elects.
    #[arg(value_enum)]
    rival: Rival,
    /// How many members, each with its own connection or session.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(2..=5000), value_name = "N")]
    members: u64,
    /// What happens to the leader.
    #[arg(long, value_enum, default_value_t)]
    cause: CauseName,
    /// How often.
    #[arg(long, default_value_t = 15, value_parser = value_parser!(u32).range(1..=1000), value_name = "N")]
    kills: u32,
    /// How long the next leader is waited for.
    #[arg(long, default_value = "10s", value_parser = positive_duration, value_name = "TIME")]
    bound: Duration,
    /// For how long the election is left alone and measured, once it is stable.
    #[arg(long, default_value = "10s", value_parser = positive_duration, value_name = "TIME")]
    standing: Duration,
    /// mandate, printed: how long the first rounds last (T_p).
    #[arg(long, default_value = "2s", value_parser = positive_duration, value_name = "TIME")]
    round: Duration,
    /// mandate: what leaders rely on.
    #[arg(long, value_enum, default_value_t)]
    guarantee: GuaranteeName,
    /// zookeeper: the server's tick. Sessions last two ticks, the least that it grants.
    #[arg(long, default_value = "2s", value_parser = positive_duration, value_name = "TIME")]
    tick: Duration,
}

/// What elects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Rival {
    /// Whoever holds an advisory lock of PostgreSQL leads.
    AdvisoryLock,
    /// Mandate's SQL engine, on PostgreSQL: what they are compared with.
    Mandate,
    /// The NewSQL paper's algorithm as it is printed, on PostgreSQL.
    Printed,
    /// ZooKeeper's recipe.
    Zookeeper,
}

impl Rival {
    fn name(self) -> &'static str {
        match self {
            Rival::AdvisoryLock => "advisory-lock",
            Rival::Mandate => "mandate",
            Rival::Printed => "printed",
            Rival::Zookeeper => "zookeeper",
        }
    }
}

/// What happens to a leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum CauseName {
    /// SIGKILL.
    #[default]
    Kill,
    /// SIGSTOP, and later SIGCONT.
    Pause,
    /// Its connection goes silent, and nobody is told.
    Cut,
    /// advisory-lock: its connection goes silent, and the server gives its session up.
    GivenUp,
    /// It is asked to hand over.
    Handover,
}

impl CauseName {
    fn cause(self) -> (Cause, &'static str) {
        match self {
            CauseName::Kill => (Cause::Kill, "kill"),
            CauseName::Pause => (Cause::Pause, "pause"),
            CauseName::Cut => (Cause::Cut, "cut"),
            CauseName::GivenUp => (Cause::GivenUp, "given-up"),
            CauseName::Handover => (Cause::Handover, "handover"),
        }
    }
}

#[derive(Serialize)]
struct Document {
    rival: &'static str,
    cause: &'static str,
    bound_ms: f64,
    #[serde(flatten)]
    figures: Figures,
}

pub(crate) fn run(args: &RivalArgs, format: Format) -> anyhow::Result<Exit> {
    let (cause, cause_name) = args.cause.cause();
    match (args.rival, args.cause) {
        (Rival::Printed, CauseName::Handover) => {
            anyhow::bail!("the printed algorithm has no handover: try --cause kill")
        }
        (Rival::Mandate | Rival::Printed | Rival::Zookeeper, CauseName::GivenUp) => {
            anyhow::bail!(
                "given-up is for advisory-lock; sessions of the others run out: try --cause cut"
            )
        }
        _ => {}
    }
    let ground = Prepared::start(args)?;
    let plan = Plan {
        members: args.members,
        cause,
        faults: args.kills,
        bound: args.bound,
        standing: args.standing,
        spread: match args.rival {
            Rival::AdvisoryLock => Duration::ZERO,
            Rival::Mandate | Rival::Printed => args.round,
            Rival::Zookeeper => args.tick,
        },
    };
    let bar = output::progress(args.kills.into(), "faults");
    let figures = trial::run(&ground, &plan, || bar.inc(1))?;
    bar.finish_and_clear();
    let bound_ms = output::ms(args.bound);
    let document = Document { rival: args.rival.name(), cause: cause_name, bound_ms, figures };
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => output::print(text(&document))?,
    }
    Ok(Exit::Success)
}

fn text(document: &Document) -> String {
    let Document { rival, cause, bound_ms, figures } = document;
    let took = match (figures.median_ms, figures.p95_ms, figures.max_ms) {
        (Some(median), Some(p95), Some(max)) => {
            format!("median {median:.1} ms, 95 % within {p95:.1} ms, at most {max:.1} ms")
        }
        _ => "nobody else led".into(),
    };
    let mut text = format!(
        "{rival}, {} members, {} times {cause}:\n\n  \
         until the next leader acts   {took}\n  \
         nobody within {:.0} s          {} times\n  \
         two acted in turn for        {:.1} ms at most, {} acts of the old leader\n  \
         standing by, the server      {:.3} of a core",
        figures.members,
        figures.answered + figures.unanswered,
        bound_ms / 1000.0,
        figures.unanswered,
        figures.overlap_ms,
        figures.stale_acts,
        figures.server_cpu,
    );
    if let Some(transactions) = figures.transactions_per_s {
        text += &format!(", {transactions:.0} transactions a second");
    }
    if let Some(round) = figures.round_ms {
        text += &format!("\n  rounds last                  {round:.0} ms");
    }
    text += &format!(
        "\n  thrown out though alive      {} while joining, {} later\n  \
         sessions lost                {}\n\n{} acts were compared.",
        figures.evictions_before, figures.false_evictions, figures.lost_sessions, figures.acts
    );
    if let Some(stopped) = &figures.stopped {
        text += &format!("\nEnded early: {stopped}");
    }
    text
}
