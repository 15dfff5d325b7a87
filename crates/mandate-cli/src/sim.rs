//! `mandate sim`: seeds through the simulator.

use std::io::{self, BufWriter, Write};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use mandate_sim::runner::{Failure, Summary, run_seeds};
use mandate_sim::verdict::{Outcome, Violation};
use mandate_sim::{installation, neli, nfd_l, pole, registers};
use serde::Serialize;

use crate::args::{Protocol, SimArgs};
use crate::exit::Exit;
use crate::mutants::MutantName;
use crate::output::{self, Format, plural, readable};

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
    let subject = Subject::new(args)?;
    let began = Instant::now();
    let summary = match args.seed {
        Some(seed) => run_one(seed, args.trace.then_some(format), subject),
        None => run_many(args, subject),
    };
    let elapsed = began.elapsed();
    match format {
        Format::Json => output::print_json(&document(&summary, elapsed, args))?,
        Format::Text => output::print(text(&summary, elapsed, args))?,
    }
    Ok(exit(&summary))
}

/// A protocol, with the bug that is put back.
#[derive(Clone, Copy)]
enum Subject {
    NfdL(nfd_l::Options),
    Installation(installation::Options),
    Pole(pole::Options),
    Registers(registers::Options),
    PrintedRegisters,
    Neli(neli::Options),
    NeliOverlap(neli::Options),
    NeliLayouts(neli::Options),
}

impl Subject {
    fn new(args: &SimArgs) -> anyhow::Result<Self> {
        use MutantName as Name;
        let of_nfd_l = |mutant| Subject::NfdL(nfd_l::Options { mutant: Some(mutant) });
        let of_pole = |mutant| Subject::Pole(pole::Options { mutant: Some(mutant) });
        // Rules of members hold for those of a role, too.
        let role = args.protocol == Protocol::RegistersRole;
        let losses = args.protocol == Protocol::RegistersLosses;
        let registers = registers::Options { role, losses, ..registers::Options::default() };
        let of_registers =
            |mutant| Subject::Registers(registers::Options { mutant: Some(mutant), ..registers });
        let of_losses = |mutant| {
            let registers = registers::Options { losses: true, ..registers };
            Subject::Registers(registers::Options { mutant: Some(mutant), ..registers })
        };
        let of_neli = |mutant| Subject::Neli(neli::Options { mutant: Some(mutant) });
        let of_overlap = |mutant| Subject::NeliOverlap(neli::Options { mutant: Some(mutant) });
        let of_installation =
            |mutant| Subject::Installation(installation::Options { mutant: Some(mutant) });
        let subject = match args.mutant {
            Some(Name::IsolatedCandidates) => of_pole(pole::Mutant::IsolatedCandidates),
            Some(Name::ImpatientClaims) => of_pole(pole::Mutant::ImpatientClaims),
            Some(Name::OlderDiskIgnored) => of_pole(pole::Mutant::OlderDiskIgnored),
            Some(Name::SilenceIgnored) => of_pole(pole::Mutant::SilenceIgnored),
            Some(Name::HintIsProof) => of_pole(pole::Mutant::HintIsProof),
            Some(Name::NearestRoundTrip) => of_pole(pole::Mutant::NearestRoundTrip),
            Some(Name::ConfigIgnored) => of_installation(installation::Mutant::ConfigIgnored),
            Some(Name::OwnPromiseForgotten) => {
                of_installation(installation::Mutant::OwnPromiseForgotten)
            }
            Some(Name::IncarnationIgnored) => {
                of_installation(installation::Mutant::IncarnationIgnored)
            }
            Some(Name::LeaseOfHighest) => of_installation(installation::Mutant::LeaseOfHighest),
            Some(Name::NewVotesAtOnce) => of_installation(installation::Mutant::NewVotesAtOnce),
            Some(Name::AnsweredBeforeWritten) => {
                of_installation(installation::Mutant::AnsweredBeforeWritten)
            }
            Some(Name::FreedBeforeEnded) => of_installation(installation::Mutant::FreedBeforeEnded),
            None => match args.protocol {
                Protocol::NfdL => Subject::NfdL(nfd_l::Options::default()),
                Protocol::Installation => Subject::Installation(installation::Options::default()),
                Protocol::Pole => Subject::Pole(pole::Options::default()),
                Protocol::Registers | Protocol::RegistersRole | Protocol::RegistersLosses => {
                    Subject::Registers(registers)
                }
                Protocol::Neli => Subject::Neli(neli::Options::default()),
                Protocol::NeliOverlap => Subject::NeliOverlap(neli::Options::default()),
                Protocol::NeliLayouts => Subject::NeliLayouts(neli::Options::default()),
            },
            Some(Name::IgnoresLayout) => {
                Subject::NeliLayouts(neli::Options { mutant: Some(neli::Mutant::IgnoresLayout) })
            }
            Some(Name::LeaseFromAnswer) => of_registers(registers::Mutant::LeaseFromAnswer),
            Some(Name::WatchFromSending) => of_registers(registers::Mutant::WatchFromSending),
            Some(Name::TakeoverIgnoresBeat) => of_registers(registers::Mutant::TakeoverIgnoresBeat),
            Some(Name::RenewalIgnoresBeat) => of_registers(registers::Mutant::RenewalIgnoresBeat),
            Some(Name::NoDriftAllowance) => of_registers(registers::Mutant::NoAllowance),
            Some(Name::LoweredAtOnce) => of_registers(registers::Mutant::LoweredAtOnce),
            Some(Name::SuspicionByRounds) => of_registers(registers::Mutant::SuspicionByRounds),
            Some(Name::TermNotRaised) => of_registers(registers::Mutant::TermNotRaised),
            Some(Name::UnknownIsSuccess) => of_registers(registers::Mutant::UnknownIsSuccess),
            Some(Name::OwnGuarantee) => of_registers(registers::Mutant::OwnGuarantee),
            Some(Name::LostLeaseForgotten) => of_losses(registers::Mutant::LostLeaseForgotten),
            Some(Name::LossesUntold) => of_losses(registers::Mutant::LossesUntold),
            Some(Name::PrintedRegisters) => Subject::PrintedRegisters,
            Some(Name::FromAnswer) => of_neli(neli::Mutant::FromAnswer),
            Some(Name::RecordsProve) => of_neli(neli::Mutant::RecordsProve),
            Some(Name::UnknownIsAccepted) => of_neli(neli::Mutant::UnknownIsAccepted),
            Some(Name::ClaimUnconfirmed) => of_neli(neli::Mutant::ClaimUnconfirmed),
            Some(Name::RenewsWhatIsGone) => of_neli(neli::Mutant::RenewsWhatIsGone),
            Some(Name::ReleasedWhileLed) => of_neli(neli::Mutant::ReleasedWhileLed),
            Some(Name::CachedFlag) => of_neli(neli::Mutant::CachedFlag),
            Some(Name::NoGrace) => of_neli(neli::Mutant::NoGrace),
            Some(Name::GenerationIsTerm) => of_neli(neli::Mutant::GenerationIsTerm),
            Some(Name::ParkedRenewals) => of_neli(neli::Mutant::ParkedRenewals),
            Some(Name::OneDryAllLeft) => of_neli(neli::Mutant::OneDryAllLeft),
            Some(Name::SilentReturn) => of_neli(neli::Mutant::SilentReturn),
            Some(Name::OverWhileLed) => of_neli(neli::Mutant::OverWhileLed),
            Some(Name::OldMarkCounts) => of_neli(neli::Mutant::OldMarkCounts),
            Some(Name::OwnThreshold) => of_neli(neli::Mutant::OwnThreshold),
            Some(Name::NoDriftOnLedger) => of_neli(neli::Mutant::NoAllowance),
            Some(Name::BacklogCounts) => of_overlap(neli::Mutant::BacklogCounts),
            Some(Name::EndsWithAssignment) => of_overlap(neli::Mutant::EndsWithAssignment),
            Some(Name::LabelsRestart) => of_nfd_l(nfd_l::Mutant::LabelsRestart),
            Some(Name::WritesEveryStart) => of_nfd_l(nfd_l::Mutant::WritesEveryStart),
            Some(Name::PushyNewcomer) => of_nfd_l(nfd_l::Mutant::PushyNewcomer),
            Some(Name::PrintedSeniority) => of_nfd_l(nfd_l::Mutant::PrintedSeniority),
            Some(Name::SlowDetector) => of_nfd_l(nfd_l::Mutant::SlowDetector),
            Some(Name::PromiseNotDurable) => {
                of_installation(installation::Mutant::PromiseNotDurable)
            }
            Some(Name::LeaseNotWaitedOut) => {
                of_installation(installation::Mutant::LeaseNotWaitedOut)
            }
            Some(Name::CachedCheck) => of_installation(installation::Mutant::CachedCheck),
            Some(Name::DeadlineFromReply) => {
                of_installation(installation::Mutant::DeadlineFromReply)
            }
            Some(Name::NoAllowance) => of_installation(installation::Mutant::NoAllowance),
            Some(Name::VoteWithoutDisk) => of_installation(installation::Mutant::VoteWithoutDisk),
        };
        anyhow::ensure!(
            subject.protocol() == args.protocol,
            "that bug is one of another protocol: add --protocol {}",
            name_of(subject.protocol())
        );
        Ok(subject)
    }

    fn protocol(self) -> Protocol {
        match self {
            Subject::NfdL(_) => Protocol::NfdL,
            Subject::Installation(_) => Protocol::Installation,
            Subject::Pole(_) => Protocol::Pole,
            Subject::Registers(registers::Options { role: true, .. }) => Protocol::RegistersRole,
            Subject::Registers(registers::Options { losses: true, .. }) => {
                Protocol::RegistersLosses
            }
            Subject::Registers(_) | Subject::PrintedRegisters => Protocol::Registers,
            Subject::Neli(_) => Protocol::Neli,
            Subject::NeliOverlap(_) => Protocol::NeliOverlap,
            Subject::NeliLayouts(_) => Protocol::NeliLayouts,
        }
    }

    fn run(self, seed: u64, trace: Option<&mut dyn Write>) -> Outcome {
        match self {
            Subject::NfdL(options) => nfd_l::run(seed, &options, trace),
            Subject::Installation(options) => installation::run(seed, &options, trace),
            Subject::Pole(options) => pole::run(seed, &options, trace),
            Subject::Registers(options) => registers::run(seed, &options, trace),
            Subject::Neli(options) => neli::run(seed, &options, trace),
            Subject::NeliOverlap(options) => neli::run_overlapping(seed, &options, trace),
            Subject::NeliLayouts(options) => neli::run_layouts(seed, &options, trace),
            Subject::PrintedRegisters => {
                registers::printed::run(seed, registers::printed::Rounds::AsPrinted, trace)
            }
        }
    }
}

/// A value as the command line knows it.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// Where `-o json` asks for a document on standard output, the trace goes to standard error.
fn run_one(seed: u64, trace: Option<Format>, subject: Subject) -> Summary {
    let run = |seed| {
        // Flushed when dropped, so that a panic leaves the trace up to it.
        let mut out: Option<BufWriter<Box<dyn Write>>> = trace.map(|format| {
            BufWriter::new(match format {
                Format::Text => Box::new(io::stdout().lock()) as Box<dyn Write>,
                Format::Json => Box::new(io::stderr().lock()),
            })
        });
        subject.run(seed, out.as_mut().map(|out| out as &mut dyn Write))
    };
    run_seeds(seed..seed.saturating_add(1), 1, 1, run, |_| {})
}

fn run_many(args: &SimArgs, subject: Subject) -> Summary {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from);
    let bar = output::progress(args.seeds, "seeds");
    let summary = run_seeds(
        args.first..args.first.saturating_add(args.seeds),
        threads,
        args.max_failures as usize,
        |seed| subject.run(seed, None),
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
    let protocol = match args.protocol {
        Protocol::NfdL => String::new(),
        protocol => format!(" --protocol {}", name_of(protocol)),
    };
    let mutant = args.mutant.map_or(String::new(), |name| format!(" --mutant {}", name_of(name)));
    format!("mandate sim --seed {}{protocol}{mutant} --trace", failure.seed)
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
