//! `mandate lab rival`: what people elect leaders with today, in the same frame as ours.
//!
//! The frame and the elections are [`mandate_lab::rivals`]'s. Here are the private servers that they stand
//! on, and the commands.

mod members;
mod side;
mod systems;

use std::time::Duration;

use clap::value_parser;
use mandate_lab::rivals::figures::RivalFigures;
use mandate_lab::rivals::trial::RivalFault;
use serde::Serialize;

pub(crate) use members::{CrowdArgs, run as run_crowd};
pub(crate) use side::{Faults, Rival, Side};

use mandate_cli::args::positive_duration;
use mandate_cli::exit::Exit;
use mandate_cli::output::{self, Format};

/// Elections on private servers, whose leaders are made to fail again and again.
#[derive(Debug, clap::Args)]
pub(crate) struct RivalArgs {
    /// What elects; several are tried one after the other.
    #[arg(value_enum, required = true)]
    rivals: Vec<Rival>,
    /// How many members, each with its own connection or session; several sizes with commas.
    #[arg(
        long,
        default_value = "10",
        value_delimiter = ',',
        value_parser = value_parser!(u64).range(2..=5000),
        value_name = "N"
    )]
    members: Vec<u64>,
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
    /// zookeeper: the server's tick. Sessions last two ticks, the least that it grants.
    #[arg(long, default_value = "2s", value_parser = positive_duration, value_name = "TIME")]
    tick: Duration,
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
    fn cause(self) -> (RivalFault, &'static str) {
        match self {
            CauseName::Kill => (RivalFault::Kill, "kill"),
            CauseName::Pause => (RivalFault::Pause, "pause"),
            CauseName::Cut => (RivalFault::Cut, "cut"),
            CauseName::GivenUp => (RivalFault::GivenUp, "given-up"),
            CauseName::Handover => (RivalFault::Handover, "handover"),
        }
    }
}

#[derive(Serialize)]
struct Document {
    rival: &'static str,
    cause: &'static str,
    bound_ms: f64,
    #[serde(flatten)]
    figures: RivalFigures,
}

pub(crate) fn run(args: &RivalArgs, format: Format) -> anyhow::Result<Exit> {
    let (cause, cause_name) = args.cause.cause();
    if let Some(why) = args.rivals.iter().find_map(|rival| rival.refuses(cause)) {
        anyhow::bail!(why);
    }
    let (sides, too_large): (Vec<_>, Vec<_>) =
        args.sides().partition(|side| side.too_large().is_none());
    if let ([], [side, ..]) = (&sides[..], &too_large[..]) {
        anyhow::bail!(side.too_large().unwrap_or_default());
    }
    let faults = Faults { cause, number: args.kills, bound: args.bound, standing: args.standing };
    let bar = crate::progress::bar(u64::from(args.kills) * sides.len() as u64, "faults");
    for (index, side) in sides.iter().enumerate() {
        let figures = side.run(&faults, || bar.inc(1))?;
        let (rival, bound_ms) = (side.rival.name(), output::ms(args.bound));
        let document = Document { rival, cause: cause_name, bound_ms, figures };
        // Each as it comes: a comparison that is stopped keeps what it had.
        bar.suspend(|| show(&document, sides.len() == 1, index == 0, format))?;
    }
    bar.finish_and_clear();
    too_large.iter().filter_map(Side::too_large).for_each(output::complain);
    Ok(Exit::Success)
}

impl RivalArgs {
    /// What is compared: all of one size, and then of the next.
    fn sides(&self) -> impl Iterator<Item = Side> + '_ {
        self.members.iter().flat_map(|members| {
            self.rivals.iter().map(|rival| Side {
                rival: *rival,
                members: *members,
                round: self.round,
                tick: self.tick,
                at: None,
            })
        })
    }
}

fn show(document: &Document, is_alone: bool, is_first: bool, format: Format) -> anyhow::Result<()> {
    match (format, is_alone) {
        (Format::Json, true) => output::print_json(document)?,
        (Format::Json, false) => output::print_json_line(document)?,
        (Format::Text, true) => {
            let Document { rival, cause, bound_ms, figures } = document;
            output::print(text(rival, cause, *bound_ms, figures))?;
        }
        (Format::Text, false) => {
            if is_first {
                output::print(HEADER)?;
            }
            output::print(row(document))?;
        }
    }
    Ok(())
}

const HEADER: &str = "\
elects          members    median ms       p95       max  nobody  two acted ms  round ms  transactions/s  server  thrown out";

/// A line of a table.
fn row(document: &Document) -> String {
    let Document { rival, figures, .. } = document;
    let number = |figure: Option<f64>, digits: usize| {
        figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
    };
    let mut row = format!(
        "{rival:<14}{:>9}{:>13}{:>10}{:>10}{:>8}{:>14.1}{:>10}{:>16}{:>8}{:>12}",
        figures.members,
        number(figures.median_ms, 1),
        number(figures.p95_ms, 1),
        number(figures.max_ms, 1),
        figures.unanswered,
        figures.overlap_ms,
        number(figures.round_ms, 0),
        number(figures.transactions_per_s, 0),
        number(figures.server_cpu, 3),
        figures.false_evictions,
    );
    if let Some(stopped) = &figures.stopped {
        let why = stopped.lines().next().unwrap_or_default();
        row += &format!(
            "   after {} ended early: {why}",
            output::plural(figures.answered as u64, "fault")
        );
    }
    row
}

/// What came out, for reading.
pub(crate) fn text(rival: &str, cause: &str, bound_ms: f64, figures: &RivalFigures) -> String {
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
         two acted in turn for        {:.1} ms at most, {} acts of the old leader",
        figures.members,
        figures.answered + figures.unanswered,
        bound_ms / 1000.0,
        figures.unanswered,
        figures.overlap_ms,
        figures.stale_acts,
    );
    if let Some(cpu) = figures.server_cpu {
        text += &format!("\n  standing by, the server      {cpu:.3} of a core");
    }
    if let Some(transactions) = figures.transactions_per_s {
        text += &format!("\n  transactions a second        {transactions:.0}");
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
