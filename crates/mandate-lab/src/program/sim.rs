//! `mandate sim`: seeds through the simulator.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use mandate_sim::mutant::Bug;
use mandate_sim::runner::{FailedSeed, Summary, run_seeds};
use mandate_sim::verdict::{Outcome, Violation};
use mandate_sim::{installation, neli, nfd_l, pole, registers};
use serde::Serialize;

use crate::args::{Protocol, SimArgs};
use mandate_cli::exit::Exit;
use mandate_cli::output::{self, Format, plural, readable};

#[derive(Serialize)]
struct Document {
    protocol: String,
    seeds: u64,
    failures: Vec<FailureDocument>,
    events: u64,
    messages: u64,
    reigns: u64,
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
    let subject = subject(args)?;
    let began = Instant::now();
    let summary = match args.seed {
        Some(seed) => run_one(seed, args.trace.then_some(format), &subject),
        None => run_many(args, &subject),
    };
    let elapsed = began.elapsed();
    match format {
        Format::Json => output::print_json(&document(&summary, elapsed, args))?,
        Format::Text => output::print(text(&summary, elapsed, args))?,
    }
    Ok(exit(&summary))
}

/// Runs a seed of a protocol, with the bug that is put back.
type Subject = Box<dyn Fn(u64, Option<&mut dyn Write>) -> Outcome + Sync>;

fn subject(args: &SimArgs) -> anyhow::Result<Subject> {
    Ok(match args.protocol {
        Protocol::NfdL => {
            let options = nfd_l::Options { mutant: mutant(args)? };
            Box::new(move |seed, trace| nfd_l::run(seed, &options, trace))
        }
        Protocol::Installation | Protocol::InstallationChanges | Protocol::InstallationAuto => {
            let changes = args.protocol == Protocol::InstallationChanges;
            let auto = args.protocol == Protocol::InstallationAuto;
            let options = installation::Options { mutant: mutant(args)?, changes, auto };
            Box::new(move |seed, trace| installation::run(seed, &options, trace))
        }
        Protocol::Pole | Protocol::PoleChanges | Protocol::PoleReleases => {
            let changes = args.protocol == Protocol::PoleChanges;
            let releases = args.protocol == Protocol::PoleReleases;
            let options = pole::Options { mutant: mutant(args)?, changes, releases };
            Box::new(move |seed, trace| pole::run(seed, &options, trace))
        }
        Protocol::Registers | Protocol::RegistersRole | Protocol::RegistersLosses => {
            let mutant = mutant::<registers::Mutant>(args)?;
            let shows_in_losses = mutant.is_some_and(|mutant| mutant.protocol() == LOSSES);
            let losses = args.protocol == Protocol::RegistersLosses || shows_in_losses;
            let role = args.protocol == Protocol::RegistersRole;
            let options = registers::Options { mutant, role, losses, restores: false };
            Box::new(move |seed, trace| registers::run(seed, &options, trace))
        }
        Protocol::Neli | Protocol::NeliOverlap | Protocol::NeliLayouts => {
            let run = match args.protocol {
                Protocol::NeliOverlap => neli::run_overlapping,
                Protocol::NeliLayouts => neli::run_layouts,
                _ => neli::run,
            };
            let options = neli::Options { mutant: mutant(args)? };
            Box::new(move |seed, trace| run(seed, &options, trace))
        }
    })
}

const LOSSES: &str = "registers-losses";

/// The bug to put back, if one is named: one that shows under the protocol that is run.
fn mutant<M: Bug>(args: &SimArgs) -> anyhow::Result<Option<M>> {
    let Some(name) = &args.mutant else { return Ok(None) };
    let shows = |bug: &M| {
        let (bug, run) = (bug.protocol(), name_of(args.protocol));
        // Rules of members hold for those of a role, too. The printed algorithm has no roles, and loses nothing.
        let is_rule = bug.starts_with("registers") && name != "printed-registers";
        // Rules of fixed members hold for members that come and go, too.
        let comes_and_goes = run.strip_suffix("-changes") == Some(bug);
        let holds = is_rule && (run == "registers-role" || bug == "registers" && run == LOSSES);
        bug == run || holds || comes_and_goes
    };
    if let Some(bug) = M::named(name).filter(shows) {
        return Ok(Some(bug));
    }
    let listed = listing().into_iter().find(|(listed, _, _)| listed == name);
    let protocol = listed.map_or("", |(_, protocol, _)| protocol);
    anyhow::bail!("that bug is one of another protocol: add --protocol {protocol}")
}

/// Every bug that can be put back: its name, the protocol that shows it, what is wrong.
fn listing() -> Vec<(&'static str, &'static str, &'static str)> {
    fn of<M: Bug>() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        M::ALL.iter().map(|bug| (bug.name(), bug.protocol(), bug.about()))
    }
    let peers =
        of::<nfd_l::Mutant>().chain(of::<installation::Mutant>()).chain(of::<pole::Mutant>());
    peers.chain(of::<registers::Mutant>()).chain(of::<neli::Mutant>()).collect()
}

/// The same for the command line. A name that two protocols have stands there once.
pub(crate) fn bug_names() -> PossibleValuesParser {
    let mut seen = BTreeSet::new();
    let listed = listing().into_iter().filter(|(name, _, _)| seen.insert(*name));
    let named = listed.map(|(name, protocol, about)| {
        PossibleValue::new(name).help(format!("{protocol}: {about}"))
    });
    PossibleValuesParser::new(named.collect::<Vec<_>>())
}

/// A value as the command line knows it.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// Where `-o json` asks for a document on standard output, the trace goes to standard error.
fn run_one(seed: u64, trace: Option<Format>, subject: &Subject) -> Summary {
    let run = |seed| {
        // Flushed when dropped, so that a panic leaves the trace up to it.
        let mut out: Option<BufWriter<Box<dyn Write>>> = trace.map(|format| {
            BufWriter::new(match format {
                Format::Text => Box::new(io::stdout().lock()) as Box<dyn Write>,
                Format::Json => Box::new(io::stderr().lock()),
            })
        });
        subject(seed, out.as_mut().map(|out| out as &mut dyn Write))
    };
    run_seeds(seed..seed.saturating_add(1), 1, 1, run, |_| {})
}

fn run_many(args: &SimArgs, subject: &Subject) -> Summary {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from);
    let bar = crate::progress::bar(args.seeds, "seeds");
    let summary = run_seeds(
        args.first..args.first.saturating_add(args.seeds),
        threads,
        args.max_failures as usize,
        |seed| subject(seed, None),
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

fn repeat(failure: &FailedSeed, args: &SimArgs) -> String {
    let protocol = match args.protocol {
        Protocol::NfdL => String::new(),
        protocol => format!(" --protocol {}", name_of(protocol)),
    };
    let mutant = args.mutant.as_ref().map_or(String::new(), |name| format!(" --mutant {name}"));
    format!("mandate sim --seed {}{protocol}{mutant} --trace", failure.seed)
}

fn document(summary: &Summary, elapsed: Duration, args: &SimArgs) -> Document {
    let failure = |failure: &FailedSeed| FailureDocument {
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
        protocol: name_of(args.protocol),
        seeds: summary.seeds,
        failures: summary.failures.iter().map(failure).collect(),
        events: summary.events,
        messages: summary.messages,
        reigns: summary.reigns,
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
        "{}, {}: {outcome}\n  {} events, {} of simulated time, in {:.1} s: {} events a \
         second\n  {} leaders were made; after healing it took at most {:.0} % of the bound",
        name_of(args.protocol),
        plural(summary.seeds, "seed"),
        count(summary.events as f64),
        readable(summary.simulated),
        elapsed.as_secs_f64(),
        count(summary.events as f64 / elapsed.as_secs_f64()),
        count(summary.reigns as f64),
        summary.slowest_agreement * 100.0,
    )
}

/// A large number for reading.
fn count(number: f64) -> String {
    if number < 1e6 { format!("{number:.0}") } else { format!("{:.2} million", number / 1e6) }
}
