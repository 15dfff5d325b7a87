//! `mandate qos measure`: what a link is like, from a trace of arrivals, and how a detector would
//! have done on it.

use std::path::Path;
use std::time::Duration;

use crate::arrivals::{Replay, Trace};
use anyhow::Context;
use mandate_proto::detector::configurator::{Bounds, Infeasible, LinkQuality, Plan, plan};
use mandate_proto::detector::estimator::Estimate;
use mandate_proto::detector::nfd_e::{DEFAULT_WINDOW, NfdE};
use serde::Serialize;

use crate::args::MeasureArgs;
use crate::exit::Exit;
use crate::input;
use crate::output::{self, Format, ms, plural, readable, readable_seconds};
use crate::qos_live;
use crate::qos_plan::{self, InfeasibleDocument, PlanDocument};

/// Clocks are never this far off; a wrong interval is.
const WRONG_INTERVAL: f64 = 0.1;

/// Clocks are hardly ever this far off.
const DOUBTFUL_INTERVAL: f64 = 0.001;

#[derive(Serialize)]
struct Document {
    heartbeats: u64,
    received: u64,
    loss: f64,
    variance_ms2: f64,
    drift_ppm: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    detector: Option<DetectorDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<PlanDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_plan: Option<InfeasibleDocument>,
}

/// How NFD-E would have done.
#[derive(Serialize)]
struct DetectorDocument {
    detect_ms: f64,
    observed_s: f64,
    mistakes: u64,
    mistakes_per_hour: f64,
    mistake_lasts_ms: Option<f64>,
    query_accuracy: f64,
    mean_detection_ms: f64,
}

/// What a trial on the trace and a plan for the link came to.
struct Trial {
    detect: Duration,
    replay: Replay,
    plan: Result<Plan, Infeasible>,
}

pub(crate) fn run(args: &MeasureArgs, format: Format) -> anyhow::Result<Exit> {
    match (&args.trace, args.interval) {
        (Some(trace), Some(interval)) => measure(args, trace, interval, format),
        _ => qos_live::run(&args.api, format),
    }
}

fn measure(
    args: &MeasureArgs,
    path: &Path,
    interval: Duration,
    format: Format,
) -> anyhow::Result<Exit> {
    let name = path.display();
    let trace = Trace::read(input::open(path)?, interval).with_context(|| format!("{name}"))?;
    let estimate = trace
        .estimate()
        .with_context(|| format!("{name}: too few heartbeats in sequence to measure the link"))?;
    check_interval(&estimate, interval).with_context(|| format!("{name}"))?;
    let trial = args.detect.map(|detect| try_detector(args, &trace, &estimate, interval, detect));
    let trial = trial.transpose()?;
    match format {
        Format::Json => output::print_json(&document(&estimate, trial.as_ref()))?,
        Format::Text => output::print(text(&estimate, trial.as_ref()))?,
    }
    match trial {
        Some(Trial { plan: Err(_), .. }) => Ok(Exit::Infeasible),
        _ => Ok(Exit::Success),
    }
}

/// An interval that is not the sender's makes nonsense of everything else.
fn check_interval(estimate: &Estimate, interval: Duration) -> anyhow::Result<()> {
    let found = interval.as_secs_f64() * (1.0 + estimate.drift);
    anyhow::ensure!(
        estimate.drift.abs() < WRONG_INTERVAL,
        "heartbeats come every {} on average, not every {}: check --interval",
        readable_seconds(found),
        readable(interval)
    );
    Ok(())
}

fn try_detector(
    args: &MeasureArgs,
    trace: &Trace,
    estimate: &Estimate,
    interval: Duration,
    detect: Duration,
) -> anyhow::Result<Trial> {
    let mistakes = &args.mistakes;
    let bounds = Bounds::new(detect, mistakes.mistake_every, mistakes.mistake_lasts)?;
    let detect_less_delay = detect.saturating_sub(args.limits.delay);
    anyhow::ensure!(
        interval < detect_less_delay,
        "with heartbeats every {} a crash cannot be noticed within {}: --detect, less --delay, \
         must be longer than --interval",
        readable(interval),
        readable(detect_less_delay)
    );
    // Cautious: that nothing was lost in a short trace does not mean that nothing ever is.
    let link = LinkQuality::new(estimate.cautious_loss(), estimate.variance, args.limits.delay)?;
    let mut detector = NfdE::new(detect_less_delay, DEFAULT_WINDOW);
    let replay = trace.replay(&mut detector);
    Ok(Trial { detect, replay, plan: plan(&bounds, &link, args.limits.min_interval) })
}

fn document(estimate: &Estimate, trial: Option<&Trial>) -> Document {
    let detector = trial.map(|Trial { detect, replay, .. }| DetectorDocument {
        detect_ms: ms(*detect),
        observed_s: replay.report.observed.as_secs_f64(),
        mistakes: replay.report.mistakes,
        mistakes_per_hour: replay.report.plain_mistake_rate() * 3600.0,
        mistake_lasts_ms: replay.report.mistake_duration.map(|lasts| lasts.mean * 1000.0),
        query_accuracy: replay.report.accuracy,
        mean_detection_ms: replay.detection.mean() * 1000.0,
    });
    let plan = trial.map(|trial| &trial.plan);
    Document {
        heartbeats: estimate.expected,
        received: estimate.received,
        loss: estimate.loss,
        variance_ms2: estimate.variance * 1e6,
        drift_ppm: estimate.drift * 1e6,
        detector,
        plan: plan.and_then(|plan| plan.as_ref().ok()).map(PlanDocument::new),
        no_plan: plan.and_then(|plan| plan.as_ref().err()).map(InfeasibleDocument::new),
    }
}

fn text(estimate: &Estimate, trial: Option<&Trial>) -> String {
    let variance = estimate.variance * 1e6;
    let mut text = format!(
        "Link, measured over {} heartbeats:\n\
         \x20 lost      {:9.4} %     ({} did not arrive)\n\
         \x20 delay     {:9.2} ms    standard deviation (variance {variance:.4} ms2)\n\
         \x20 drift     {:9.1} ppm   of the monitor's clock against the sender's",
        estimate.expected,
        estimate.loss * 100.0,
        estimate.expected.saturating_sub(estimate.received),
        variance.sqrt(),
        estimate.drift * 1e6,
    );
    if estimate.drift.abs() > DOUBTFUL_INTERVAL {
        text += "\n  The drift is larger than clocks have: is --interval the sender's?";
    }
    let Some(Trial { detect, replay, plan }) = trial else { return text };
    let report = &replay.report;
    let lasted = report.mistake_duration.map_or(String::new(), |lasts| {
        format!(", {} long on average", readable_seconds(lasts.mean))
    });
    text += &format!(
        "\n\nNFD-E with a detection time of {}, on this trace of {}:\n\
         \x20 {}{lasted}; right {:.4} % of the time\n\
         \x20 a crash would have been noticed after {} on average\n\n",
        readable(*detect),
        readable(report.observed),
        plural(report.mistakes, "mistake"),
        report.accuracy * 100.0,
        readable_seconds(replay.detection.mean()),
    );
    text += &match plan {
        Ok(plan) => format!("Plan for this link:\n{}", qos_plan::text(plan)),
        Err(why) => qos_plan::explain(why),
    };
    text
}
