//! `mandate lab nfd-l`: the experiment, with its files.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use anyhow::Context;
use mandate_lab::nfd_l::comparison::Row;
use mandate_lab::nfd_l::{NfdLResults, NfdLSettings, plot, report, run as run_experiment};
use mandate_proto::detector::quartiles::Quartiles;
use serde::Serialize;

use crate::args::NfdLArgs;
use mandate_cli::exit::Exit;
use mandate_cli::output::{self, Format, ms};

#[derive(Serialize)]
struct Document {
    interval_ms: f64,
    margin_ms: f64,
    mistakes: u64,
    mistakes_per_hour: f64,
    mistakes_per_hour_in_bursts: f64,
    mistake_rate_per_s: Option<QuartilesDocument>,
    mistake_duration_ms: Option<QuartilesDocument>,
    detection_ms: Option<QuartilesDocument>,
    recovery_ms: Option<QuartilesDocument>,
    messages_per_interval: f64,
    calm: Vec<RowDocument>,
    bursts: Vec<RowDocument>,
    claims: Vec<ClaimDocument>,
    files: String,
}

#[derive(Serialize)]
struct QuartilesDocument {
    first: f64,
    median: f64,
    third: f64,
    max: f64,
}

#[derive(Serialize)]
struct RowDocument {
    detector: String,
    mean_detection_ms: f64,
    max_detection_ms: f64,
    mistakes_per_hour: f64,
    query_accuracy: f64,
}

#[derive(Serialize)]
struct ClaimDocument {
    claim: &'static str,
    holds: bool,
    figures: String,
}

pub(crate) fn run(args: &NfdLArgs, format: Format) -> anyhow::Result<Exit> {
    let out = &args.out;
    // Before the work, so that a directory that cannot be made costs nothing.
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let settings =
        NfdLSettings { runs: args.runs, length: args.length, cycles: args.cycles, seed: args.seed };
    let bar = crate::progress::bar(settings.steps(), "steps");
    let results = run_experiment(settings, || bar.inc(1));
    bar.finish_and_clear();
    let page = report::markdown(&results);
    write_files(out, &results, &page)?;
    match format {
        Format::Json => output::print_json(&document(&results, out))?,
        Format::Text => {
            output::print(page)?;
            output::print(format!(
                "Written to {}: report.md, plot.svg, points.csv, arrivals-calm.csv, \
                 arrivals-bursts.csv",
                out.display()
            ))?;
        }
    }
    let holds = report::claims(&results).iter().all(|claim| claim.holds);
    Ok(if holds { Exit::Success } else { Exit::ClaimFailed })
}

fn write_files(out: &Path, results: &NfdLResults, page: &str) -> anyhow::Result<()> {
    let write = |name: &str, content: &str| {
        let path = out.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    };
    write("report.md", &format!("{page}\n![The same as a picture](plot.svg)\n"))?;
    write("plot.svg", &plot::svg(results)?)?;
    write("points.csv", &points(results))?;
    let [calm, bursts] = &results.comparison.samples;
    for (name, trace) in [("arrivals-calm.csv", calm), ("arrivals-bursts.csv", bursts)] {
        let path = out.join(name);
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        trace.write(BufWriter::new(file)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Every point behind the box plots.
fn points(results: &NfdLResults) -> String {
    let mut csv = String::from("metric,value\n");
    let mut add = |metric: &str, values: &mut dyn Iterator<Item = f64>| {
        values.for_each(|value| csv += &format!("{metric},{value}\n"));
    };
    let speed = &results.speed;
    add("detection_ms", &mut speed.detection.iter().map(|s| s * 1000.0));
    add("recovery_ms", &mut speed.recovery.iter().map(|s| s * 1000.0));
    let monitors = &results.accuracy.monitors;
    add("mistake_rate_per_s", &mut monitors.iter().map(|report| report.mistake_rate));
    add("mistakes", &mut monitors.iter().map(|report| report.mistakes as f64));
    csv
}

fn document(results: &NfdLResults, out: &Path) -> Document {
    let quartiles = |found: Option<Quartiles>, unit: f64| {
        found.map(|found| found.scaled(unit)).map(|q| QuartilesDocument {
            first: q.first,
            median: q.median,
            third: q.third,
            max: q.max,
        })
    };
    let rows = |rows: &[Row]| {
        let row = |row: &Row| RowDocument {
            detector: row.detector.to_string(),
            mean_detection_ms: row.detection_mean * 1000.0,
            max_detection_ms: row.detection_max * 1000.0,
            mistakes_per_hour: row.mistakes_per_hour,
            query_accuracy: row.accuracy,
        };
        rows.iter().map(row).collect()
    };
    let claims = report::claims(results).into_iter().map(|claim| ClaimDocument {
        claim: claim.claim,
        holds: claim.holds,
        figures: claim.figures,
    });
    let speed = &results.speed;
    Document {
        interval_ms: ms(results.plan.interval),
        margin_ms: ms(results.plan.margin),
        mistakes: results.accuracy.mistakes(),
        mistakes_per_hour: results.accuracy.mistakes_per_hour(),
        mistakes_per_hour_in_bursts: results.accuracy_in_bursts.mistakes_per_hour(),
        mistake_rate_per_s: quartiles(results.accuracy.mistake_rate(), 1.0),
        mistake_duration_ms: quartiles(results.accuracy.mistake_duration(), 1000.0),
        detection_ms: quartiles(speed.detection_quartiles(), 1000.0),
        recovery_ms: quartiles(speed.recovery_quartiles(), 1000.0),
        messages_per_interval: results.accuracy.messages_per_interval,
        calm: rows(&results.comparison.calm),
        bursts: rows(&results.comparison.bursts),
        claims: claims.collect(),
        files: out.display().to_string(),
    }
}
