//! `mandate sim`: seeds through the simulator.

use std::io::{self, BufWriter, Write};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use mandate_sim::nfd_l::{self, Mutant, Options};
use mandate_sim::runner::{Failure, Summary, run_seeds};
use mandate_sim::verdict::Violation;
use serde::Serialize;

use crate::args::{MutantName, SimArgs};
use crate::exit::Exit;
use crate::output::{self, Format, plural, readable};

#[derive(Serialize)]
struct Document {
    protocol: &'static str,
    seeds: u64,
    failures: Vec<FailureDocument>,
    events: u64,
    messages: u64,
    simulated_s: f64,
    elapsed_s: f64,
    events_per_second: f64,
    slowest_agreement_of_bound: f64,
}

#[derive(Serialize)]
struct FailureDocument {
    seed: u64,
    kind: &'static str,
    what: String,
    repeat: String,
}

pub(crate) fn run(args: &SimArgs, format: Format) -> anyhow::Result<Exit> {
    let options = Options { mutant: args.mutant.map(mutant) };
    let began = Instant::now();
    let summary = match args.seed {
        Some(seed) => run_one(seed, args.trace.then_some(format), &options),
        None => run_many(args, &options),
    };
    let elapsed = began.elapsed();
    match format {
        Format::Json => output::print_json(&document(&summary, elapsed, args))?,
        Format::Text => output::print(text(&summary, elapsed, args))?,
    }
    Ok(exit(&summary))
}

fn mutant(name: MutantName) -> Mutant {
    match name {
        MutantName::LabelsRestart => Mutant::LabelsRestart,
        MutantName::WritesEveryStart => Mutant::WritesEveryStart,
        MutantName::PushyNewcomer => Mutant::PushyNewcomer,
        MutantName::PrintedSeniority => Mutant::PrintedSeniority,
        MutantName::SlowDetector => Mutant::SlowDetector,
    }
}

/// Where `-o json` asks for a document on standard output, the trace goes to standard error.
fn run_one(seed: u64, trace: Option<Format>, options: &Options) -> Summary {
    let run = |seed| {
        // Flushed when dropped, so that a panic leaves the trace up to it.
        let mut out: Option<BufWriter<Box<dyn Write>>> = trace.map(|format| {
            BufWriter::new(match format {
                Format::Text => Box::new(io::stdout().lock()) as Box<dyn Write>,
                Format::Json => Box::new(io::stderr().lock()),
            })
        });
        nfd_l::run(seed, options, out.as_mut().map(|out| out as &mut dyn Write))
    };
    run_seeds(seed..seed.saturating_add(1), 1, 1, run, |_| {})
}

fn run_many(args: &SimArgs, options: &Options) -> Summary {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from);
    let bar = ProgressBar::new(args.seeds);
    let style = "{wide_bar} {pos}/{len} seeds, {eta} left";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is well-formed"));
    let summary = run_seeds(
        args.first..args.first.saturating_add(args.seeds),
        threads,
        args.max_failures as usize,
        |seed| nfd_l::run(seed, options, None),
        |done| bar.set_position(done),
    );
    bar.finish_and_clear();
    summary
}

/// The worst that happened: a crash hides everything else, and what must never happen weighs
/// more than what did not happen in time.
fn exit(summary: &Summary) -> Exit {
    let any = |kind: fn(&Violation) -> bool| {
        summary.failures.iter().any(|failure| kind(&failure.violation))
    };
    if any(|violation| matches!(violation, Violation::Crash(_))) {
        Exit::Crash
    } else if any(|violation| matches!(violation, Violation::Correctness { .. })) {
        Exit::Correctness
    } else if !summary.failures.is_empty() {
        Exit::Liveness
    } else {
        Exit::Success
    }
}

fn repeat(failure: &Failure, args: &SimArgs) -> String {
    use clap::ValueEnum;
    let mutant = args.mutant.and_then(|mutant| mutant.to_possible_value());
    let mutant = mutant.map_or(String::new(), |name| format!(" --mutant {}", name.get_name()));
    format!("mandate sim --seed {}{mutant} --trace", failure.seed)
}

fn document(summary: &Summary, elapsed: Duration, args: &SimArgs) -> Document {
    let failure = |failure: &Failure| FailureDocument {
        seed: failure.seed,
        kind: match failure.violation {
            Violation::Correctness { .. } => "correctness",
            Violation::Liveness { .. } => "liveness",
            Violation::Crash(_) => "crash",
        },
        what: failure.violation.to_string(),
        repeat: repeat(failure, args),
    };
    Document {
        protocol: "nfd-l",
        seeds: summary.seeds,
        failures: summary.failures.iter().map(failure).collect(),
        events: summary.events,
        messages: summary.messages,
        simulated_s: summary.simulated.as_secs_f64(),
        elapsed_s: elapsed.as_secs_f64(),
        events_per_second: summary.events as f64 / elapsed.as_secs_f64(),
        slowest_agreement_of_bound: summary.slowest_agreement,
    }
}

fn text(summary: &Summary, elapsed: Duration, args: &SimArgs) -> String {
    let mut text = String::new();
    for failure in &summary.failures {
        text += &format!(
            "seed {}: {}\n  repeat it with: {}\n",
            failure.seed,
            failure.violation,
            repeat(failure, args)
        );
    }
    let outcome = match summary.failures.len() as u64 {
        0 => "no violation".into(),
        failed => format!("{} failed", plural(failed, "seed")),
    };
    text + &format!(
        "NFD-L, {}: {outcome}\n  {} events, {} of simulated time, in {:.1} s: {} events a \
         second\n  agreement after healing took at most {:.0} % of its bound",
        plural(summary.seeds, "seed"),
        count(summary.events as f64),
        readable(summary.simulated),
        elapsed.as_secs_f64(),
        count(summary.events as f64 / elapsed.as_secs_f64()),
        summary.slowest_agreement * 100.0,
    )
}

/// A large number for reading.
fn count(number: f64) -> String {
    if number < 1e6 { format!("{number:.0}") } else { format!("{:.2} million", number / 1e6) }
}
