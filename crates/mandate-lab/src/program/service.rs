//! `mandate lab service`: the replicated service by itself, and beside etcd.

use std::time::Duration;

use clap::value_parser;
use mandate_lab::load::quantile;
use mandate_lab::pole::PoleSettings;
use mandate_lab::pole::beside::{self, Demand, ElectionFigures};
use mandate_lab::pole::deployment::Deployment;
use mandate_lab::pole::moves::{self, Moved};
use serde::Serialize;

use crate::pole;
use mandate_cli::args::positive_duration;
use mandate_cli::exit::Exit;
use mandate_cli::output::{self, Format};

/// The replicated key-value service: how long no write is served while leadership moves, and how it does beside etcd with
/// the same load, in one place and over three data centres. Needs root, for the network, and the package etcd-server.
#[derive(Debug, clap::Args)]
pub(crate) struct ServiceArgs {
    /// How often leadership is moved in each place.
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u32).range(1..=1000), value_name = "N")]
    moves: u32,
    /// Writes of one kilobyte a second, in all, where latency is compared.
    #[arg(long, default_value_t = 300, value_parser = value_parser!(u32).range(10..=5000), value_name = "N")]
    rate: u32,
    /// Clients in each of two groups, where throughput is compared.
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u32).range(1..=400), value_name = "N")]
    clients: u32,
    /// How long each is timed.
    #[arg(long, default_value = "10s", value_parser = positive_duration, value_name = "TIME")]
    length: Duration,
    /// Decides jitter.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Serialize)]
struct Document {
    moves: Vec<MovesDocument>,
    beside: Vec<BesideDocument>,
}

#[derive(Serialize)]
struct MovesDocument {
    place: String,
    moves: usize,
    gap_median_ms: Option<f64>,
    gap_p99_ms: Option<f64>,
    usual_median_ms: Option<f64>,
    usual_p99_ms: Option<f64>,
    failed_writes: u64,
}

#[derive(Serialize)]
struct BesideDocument {
    place: String,
    load: String,
    mandate: FiguresDocument,
    etcd: FiguresDocument,
}

#[derive(Serialize)]
struct FiguresDocument {
    writes_per_s: f64,
    mean_ms: f64,
    median_ms: f64,
    p99_ms: f64,
    at_ms: Vec<f64>,
}

pub(crate) fn run(args: &ServiceArgs, format: Format) -> anyhow::Result<Exit> {
    let settings = PoleSettings {
        rate: f64::from(args.rate),
        length: args.length,
        seed: args.seed,
        ..PoleSettings::PAPER
    };
    let program = pole::member()?;
    let places = [Deployment::two(0.0), Deployment::numbered(1)];
    let bar = crate::progress::bar(2 * u64::from(args.moves) + 4, "steps");
    let mut document = Document { moves: Vec::new(), beside: Vec::new() };
    for place in &places {
        let moved = moves::run(&program, place, args.moves as usize, &settings, || bar.inc(1))?;
        document.moves.push(MovesDocument::of(&moved));
    }
    let demands = [Demand::Clients(args.clients), Demand::Rate(settings.rate)];
    for (place, demand) in places.iter().zip(demands) {
        let mandate = beside::ours(&program, place, demand, &settings)?;
        bar.inc(1);
        let etcd = beside::etcd(place, demand, &settings)?;
        bar.inc(1);
        document.beside.push(BesideDocument {
            place: name(place),
            load: match demand {
                Demand::Clients(clients) => format!("{} clients, as fast as answered", 2 * clients),
                Demand::Rate(rate) => format!("{rate} writes a second"),
            },
            mandate: mandate.into(),
            etcd: etcd.into(),
        });
    }
    bar.finish_and_clear();
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => output::print(text(&document))?,
    }
    let failed: u64 = document.moves.iter().map(|it| it.failed_writes).sum();
    Ok(if failed == 0 { Exit::Success } else { Exit::ClaimFailed })
}

fn name(place: &Deployment) -> String {
    match place.centres.len() {
        2 => "one place".into(),
        _ => "three data centres (Deployment 1)".into(),
    }
}

impl MovesDocument {
    fn of(moved: &Moved) -> Self {
        MovesDocument {
            place: name(&moved.deployment),
            moves: moved.gaps_ms.len(),
            gap_median_ms: quantile(&moved.gaps_ms, 0.5),
            gap_p99_ms: quantile(&moved.gaps_ms, 0.99),
            usual_median_ms: quantile(&moved.usual_ms, 0.5),
            usual_p99_ms: quantile(&moved.usual_ms, 0.99),
            failed_writes: moved.failed,
        }
    }
}

impl From<ElectionFigures> for FiguresDocument {
    fn from(it: ElectionFigures) -> Self {
        FiguresDocument {
            writes_per_s: it.rate,
            mean_ms: it.mean_ms,
            median_ms: it.median_ms,
            p99_ms: it.p99_ms,
            at_ms: it.at_ms,
        }
    }
}

fn text(document: &Document) -> String {
    let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
    let mut text = String::from(
        "The longest gap in served writes, in a second in which leadership moves, ms:\n\n",
    );
    text += "                                     moves   median   99 of 100   without a move   failed writes\n";
    for it in &document.moves {
        text += &format!(
            "{:<37}{:>5}{:>9}{:>12}{:>17}{:>16}\n",
            it.place,
            it.moves,
            ms(it.gap_median_ms),
            ms(it.gap_p99_ms),
            ms(it.usual_median_ms),
            it.failed_writes
        );
    }
    text += "\nWrites of 1 kB, data in memory:\n\n";
    text += "                                     writes/s   mean ms   median   99 of 100   at each data centre\n";
    for it in &document.beside {
        text += &format!("{}, {}\n", it.place, it.load);
        for (name, figures) in [("mandate", &it.mandate), ("etcd", &it.etcd)] {
            let at: Vec<_> = figures.at_ms.iter().map(|ms| format!("{ms:.1}")).collect();
            text += &format!(
                "  {name:<35}{:>8.0}{:>10.1}{:>9.1}{:>12.1}   {}\n",
                figures.writes_per_s,
                figures.mean_ms,
                figures.median_ms,
                figures.p99_ms,
                at.join(" / ")
            );
        }
    }
    text
}
