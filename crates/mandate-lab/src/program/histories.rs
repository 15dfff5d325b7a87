//! `mandate lab histories`: whether what clients of the replicated service see under faults can have happened.

use clap::value_parser;
use mandate_lab::pole::deployment::Deployment;
use mandate_lab::pole::histories;
use serde::Serialize;

use crate::pole;
use mandate_cli::exit::Exit;
use mandate_cli::output::{self, Format};

/// Clients at three data centres read and write a few keys of the replicated service while leaders are killed, paused and
/// cut off, data centres are cut off from each other and leadership moves. Then a search looks for an order in which all
/// that they saw can have happened. Needs root, for the network.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoriesArgs {
    /// How often something goes wrong.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u32).range(0..=10000), value_name = "N")]
    strikes: u32,
    /// Decides where and for how long.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Put a bug back, to see it found: stale-reads.
    #[arg(long, value_name = "BUG")]
    mutant: Option<String>,
}

#[derive(Serialize)]
struct Document {
    operations: usize,
    strikes: Vec<(String, usize)>,
    linearizable: bool,
    reason: Option<String>,
}

pub(crate) fn run(args: &HistoriesArgs, format: Format) -> anyhow::Result<Exit> {
    let bar = crate::progress::bar(args.strikes.into(), "strikes");
    let judged = histories::run(
        &pole::member()?,
        &Deployment::numbered(1),
        args.strikes as usize,
        args.seed,
        args.mutant.as_deref(),
        || bar.inc(1),
    )?;
    bar.finish_and_clear();
    let document = Document {
        operations: judged.operations,
        strikes: judged.strikes.iter().map(|(it, count)| (format!("{it:?}"), *count)).collect(),
        linearizable: judged.verdict.is_ok(),
        reason: judged.verdict.err().map(|error| error.to_string()),
    };
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => {
            let strikes = document.strikes.iter().filter(|(_, count)| *count > 0);
            let strikes: Vec<_> = strikes.map(|(it, count)| format!("{count} {it}")).collect();
            let verdict = match &document.reason {
                None => "it can have happened: linearizable".to_owned(),
                Some(reason) => format!("NOT LINEARIZABLE: {reason}"),
            };
            output::print(format!(
                "{} operations, faults: {}; {verdict}",
                document.operations,
                strikes.join(", ")
            ))?;
        }
    }
    Ok(if document.linearizable { Exit::Success } else { Exit::ClaimFailed })
}
