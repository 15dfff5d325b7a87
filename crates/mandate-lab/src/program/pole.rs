//! `mandate lab pole`: the evaluation of POLE, with its files; and `mandate lab kv`, the service that it injects faults into.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::value_parser;
use indicatif::ProgressBar;
use mandate_kv::program;
use mandate_lab::picture;
use mandate_lab::pole::controller::Program;
use mandate_lab::pole::figures::{Figure, Grain, RunPlan};
use mandate_lab::pole::results::PoleResults;
use mandate_lab::pole::{PoleSettings, crash, recovery, report};
use serde::Serialize;

use mandate_cli::args::positive_duration;
use mandate_cli::certs;
use mandate_cli::exit::Exit;
use mandate_cli::logging;
use mandate_cli::output::{self, Format};

/// The evaluation of POLE: a replicated key-value service over emulated wide-area links, led by whom scores elect.
/// Needs root, for the network.
///
/// Without names of figures all are made: 4b, 6, 7a, 7b, 7c, 8a, 8b, and "open", the one that the paper leaves open.
/// Runs are shorter than the paper's, and at fewer points; --paper makes them as long and as fine as there. Report,
/// pictures and tables are written after each run, so nothing is lost when it is ended early.
#[derive(Debug, clap::Args)]
pub(crate) struct PoleArgs {
    /// Which figures.
    figures: Vec<Figure>,
    /// Where report, pictures and tables go; made if it is not there.
    #[arg(long, default_value = "lab-pole", value_name = "DIR")]
    out: PathBuf,
    /// As long, as often and as fine as in the paper: several hours.
    #[arg(long, conflicts_with_all = ["rate", "before", "length", "runs", "least"])]
    paper: bool,
    /// As few points as show anything at all.
    #[arg(long)]
    least: bool,
    /// What outdated servers lack, in megabytes, for figures 8a, 8b and open; instead of what is usual.
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u32).range(0..=1000), value_name = "MB,MB")]
    megabytes: Vec<u32>,
    /// Writes of one kilobyte a second, in all.
    #[arg(long, default_value_t = 300, value_parser = value_parser!(u32).range(10..=5000), value_name = "N")]
    rate: u32,
    /// How long p5 leads before it is killed.
    #[arg(long, default_value = "6s", value_parser = positive_duration, value_name = "TIME")]
    before: Duration,
    /// How long latency is taken after that.
    #[arg(long, default_value = "6s", value_parser = positive_duration, value_name = "TIME")]
    length: Duration,
    /// How often each case is run.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=100), value_name = "N")]
    runs: u32,
    /// Decides jitter.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Serialize)]
struct Document {
    findings: Vec<FindingDocument>,
    /// What could not be run.
    failures: Vec<String>,
    /// Whether all hold, and everything was run.
    holds: bool,
    files: String,
}

#[derive(Serialize)]
struct FindingDocument {
    claim: &'static str,
    /// Absent where what the claim speaks of did not come about.
    holds: Option<bool>,
    figures: String,
}

pub(crate) fn kv(command: program::KvCommand) -> anyhow::Result<Exit> {
    logging::begin("warn");
    program::run(command)?;
    Ok(Exit::Success)
}

/// This program, as a member of the service.
pub(crate) fn member() -> anyhow::Result<Program> {
    let program = std::env::current_exe().context("could not find this program")?;
    Ok(Program { command: vec![program, "kv".into()], certificates: certs::make_for_a_day })
}

pub(crate) fn run(args: &PoleArgs, format: Format) -> anyhow::Result<Exit> {
    // Before the work, so that a directory that cannot be made costs nothing.
    let out = &args.out;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let settings = settings(args);
    let mut grain = match (args.paper, args.least) {
        (true, _) => Grain::paper(),
        (false, true) => Grain::least(),
        (false, false) => Grain::coarse(),
    };
    if !args.megabytes.is_empty() {
        grain.megabytes.clone_from(&args.megabytes);
    }
    let mut figures = args.figures.clone();
    if figures.is_empty() {
        figures.extend(Figure::ALL);
    }
    figures.sort_unstable();
    figures.dedup();
    let how = how(args, &settings);
    let keep = |results: &PoleResults, left: usize| {
        let unfinished = match left {
            0 => String::new(),
            left => format!(" **Not finished**: {left} cases are missing."),
        };
        write_files(out, results, &report::markdown(results, &format!("{how}{unfinished}")))
    };
    let results = measure(&figures, &RunPlan::new(&figures, &grain), &settings, keep)?;
    let page = report::markdown(&results, &how);
    let findings: Vec<_> = results.findings();
    let holds =
        findings.iter().all(|finding| finding.holds != Some(false)) && results.failures.is_empty();
    match format {
        Format::Json => output::print_json(&Document {
            findings: findings
                .into_iter()
                .map(|it| FindingDocument { claim: it.claim, holds: it.holds, figures: it.figures })
                .collect(),
            failures: results.failures.clone(),
            holds,
            files: out.display().to_string(),
        })?,
        Format::Text => {
            output::print(page)?;
            output::print(format!(
                "Written to {}: report.md, and pictures and tables",
                out.display()
            ))?;
        }
    }
    Ok(if holds { Exit::Success } else { Exit::ClaimFailed })
}

fn settings(args: &PoleArgs) -> PoleSettings {
    if args.paper {
        return PoleSettings { seed: args.seed, ..PoleSettings::PAPER };
    }
    PoleSettings {
        rate: f64::from(args.rate),
        before: args.before,
        length: args.length,
        runs: args.runs,
        seed: args.seed,
    }
}

fn how(args: &PoleArgs, settings: &PoleSettings) -> String {
    let shortened = match args.paper {
        true => String::new(),
        false => " (the paper: 1000 a second, 60 s, 50 s, 5 times)".to_owned(),
    };
    format!(
        "Five processes of the key-value service on openraft, where the paper had ZooKeeper, on an emulated network with the \
         paper's round trips and jitter; data in memory, as disks are not the subject. {} writes of 1 kB a second, p5 \
         killed after {}, latency taken for {}, each case run {}{shortened}.",
        settings.rate,
        output::readable(settings.before),
        output::readable(settings.length),
        output::plural(settings.runs.into(), "time"),
    )
}

/// Runs everything. A case that cannot be run is a failure among the results, and the others are run all the same.
/// What there is, and how many cases are still to come, is kept after each: who ends an hour's run early loses nothing.
fn measure(
    figures: &[Figure],
    plan: &RunPlan,
    settings: &PoleSettings,
    keep: impl Fn(&PoleResults, usize) -> anyhow::Result<()>,
) -> anyhow::Result<PoleResults> {
    let program = member()?;
    let mut left =
        (plan.crashes.len() + plan.recoveries.len()) * settings.runs as usize + plan.leaders.len();
    let mut ran = |results: &PoleResults| {
        left -= 1;
        keep(results, left)
    };
    let leaders = 4 * plan.leaders.len() as u64;
    let steps = plan.crashes.len() as u64 * crash::STEPS * u64::from(settings.runs)
        + leaders
        + 3 * plan.recoveries.len() as u64 * u64::from(settings.runs);
    let bar: ProgressBar = crate::progress::bar(steps, "steps");
    let mut results = PoleResults { figures: figures.to_vec(), ..PoleResults::default() };
    for run in 0..settings.runs {
        let settings = PoleSettings { seed: settings.seed + u64::from(run), ..*settings };
        for (done, case) in plan.crashes.iter().enumerate() {
            match crash::run(&program, case, &settings, || bar.inc(1)) {
                Ok(ran) => results.crashes.push(ran),
                Err(error) => results.failures.push(format!("{case}: {error:#}")),
            }
            note(&bar, done, plan.crashes.len(), &case.to_string());
            ran(&results)?;
        }
        for (done, case) in plan.recoveries.iter().enumerate() {
            match recovery::run(&program, case, &settings) {
                Ok(ran) => results.recoveries.push(ran),
                Err(error) => results.failures.push(format!("{case}: {error:#}")),
            }
            bar.inc(3);
            note(&bar, done, plan.recoveries.len(), &case.to_string());
            ran(&results)?;
        }
    }
    for deployment in &plan.leaders {
        match crash::each_leader(&program, deployment, &[1, 2, 3, 4], settings, || bar.inc(1)) {
            Ok(each) => results.leaders.extend(each.into_iter().map(|it| (deployment.clone(), it))),
            Err(error) => results.failures.push(format!("{}: {error:#}", deployment.name)),
        }
        ran(&results)?;
    }
    bar.finish_and_clear();
    Ok(results)
}

/// Says how far it is where there is no bar: a run of an hour in a log should not look like one that hangs.
fn note(bar: &ProgressBar, done: usize, all: usize, case: &str) {
    if bar.is_hidden() {
        eprintln!("{} of {all}: {case}", done + 1);
    }
}

fn write_files(out: &Path, results: &PoleResults, page: &str) -> anyhow::Result<()> {
    let write = |name: &str, content: &[u8]| {
        let path = out.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    };
    write("report.md", page.as_bytes())?;
    for (name, table) in report::csv(results) {
        write(name, table.as_bytes())?;
    }
    for figure in &results.figures {
        let panels = report::panels(results, *figure);
        write(&format!("figure-{figure}.svg"), picture::svg(&panels)?.as_bytes())?;
        write(&format!("figure-{figure}.png"), &picture::png(&panels)?)?;
    }
    Ok(())
}
