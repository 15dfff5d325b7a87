//! Detectors side by side: the same arrivals, the same average detection time.
//!
//! Comparing detectors at their default settings compares the settings. Here the phi-accrual
//! detector's threshold and the fixed timeout are tuned, on the calm traces, until a crash is
//! noticed after the same time on average as with NFD-E. What is left to compare is how often
//! each is wrong for that price, and what happens when the link turns bursty and nobody retunes.

use std::time::Duration;

use mandate_proto::detector::FailureDetector;
use mandate_proto::detector::configurator::{LinkQuality, Plan, plan};
use mandate_proto::detector::estimator::Estimate;
use mandate_proto::detector::fixed_timeout::FixedTimeout;
use mandate_proto::detector::nfd_e::{DEFAULT_WINDOW, NfdE};
use mandate_proto::detector::phi_accrual::{PhiAccrual, PhiAccrualConfig};
use mandate_proto::detector::quartiles::Quartiles;
use mandate_sim::link::LinkModel;

use super::recording;
use super::{DELAY_ALLOWANCE, NfdLSettings, bounds, bursty_link, calm_link};
use mandate_cli::arrivals::{DetectionTimes, Trace};

/// Steps of progress that a comparison reports.
pub const STEPS: u64 = 4;

/// Monitors for each run of an hour, as in the paper.
const MONITORS: u64 = 4;

/// What a detector did on a set of traces.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name, with its parameter.
    pub detector: DetectorName,
    /// Mean detection time over all moments at which a crash might have come, in seconds.
    pub detection_mean: f64,
    /// The longest, in seconds.
    pub detection_max: f64,
    /// Mistakes per monitor and hour.
    pub mistakes_per_hour: f64,
    /// How long they lasted on average at each monitor, in seconds.
    pub mistake_duration: Option<Quartiles>,
    /// Query accuracy.
    pub accuracy: f64,
}

/// A detector with its parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DetectorName {
    /// NFD-E with this interval and margin.
    NfdE {
        /// eta
        interval: Duration,
        /// alpha
        margin: Duration,
    },
    /// Phi-accrual with this threshold.
    PhiAccrual {
        /// phi
        threshold: f64,
    },
    /// A fixed timeout.
    FixedTimeout {
        /// From the last arrival.
        timeout: Duration,
    },
}

impl DetectorName {
    /// Without its parameter.
    pub fn short(&self) -> &'static str {
        match self {
            DetectorName::NfdE { .. } => "NFD-E",
            DetectorName::PhiAccrual { .. } => "phi-accrual",
            DetectorName::FixedTimeout { .. } => "fixed timeout",
        }
    }
}

impl std::fmt::Display for DetectorName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |duration: &Duration| duration.as_secs_f64() * 1000.0;
        match self {
            DetectorName::NfdE { interval, margin } => {
                write!(f, "NFD-E ({:.1} + {:.1} ms)", ms(interval), ms(margin))
            }
            DetectorName::PhiAccrual { threshold } => write!(f, "phi-accrual (phi {threshold:.1})"),
            DetectorName::FixedTimeout { timeout } => {
                write!(f, "fixed timeout ({:.1} ms)", ms(timeout))
            }
        }
    }
}

/// All detectors on all links.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// On the paper's link.
    pub calm: Vec<Row>,
    /// On the same with bursts, not retuned.
    pub bursts: Vec<Row>,
    /// What the estimator makes of the bursty link.
    pub bursty_estimate: Option<Estimate>,
    /// NFD-E with a plan renewed for what was measured, if there is one.
    pub renewed: Option<(Plan, Row)>,
    /// The detection time at which NFD-E, with its interval kept, would stay within the bound on
    /// mistakes in spite of the bursts, in seconds.
    pub needed_detect: f64,
    /// One trace of each link, for those who want to look at it.
    pub samples: [Trace; 2],
}

/// Runs the comparison; calls `progress` [`STEPS`] times.
pub fn compare(settings: &NfdLSettings, plan: &Plan, progress: &mut impl FnMut()) -> Comparison {
    let calm = record(settings, calm_link(), plan.interval);
    let bursty = record(settings, bursty_link(), plan.interval);
    progress();
    let nfd_e = || NfdE::new(plan.detect(), DEFAULT_WINDOW);
    let nfd_e_name = DetectorName::NfdE { interval: plan.interval, margin: plan.margin };
    let target = detection(&calm, &nfd_e).mean();
    let timeout = tune(target, 0.0, 10.0, |timeout| detection(&calm, &|| fixed(timeout)).mean());
    let threshold = tune(target, 0.1, 300.0, |phi| detection(&calm, &|| accrual(plan, phi)).mean());
    progress();
    let rows = |traces: &[Trace]| {
        let timeout_name = DetectorName::FixedTimeout { timeout: Duration::from_secs_f64(timeout) };
        vec![
            row(nfd_e_name, traces, &nfd_e),
            row(DetectorName::PhiAccrual { threshold }, traces, &|| accrual(plan, threshold)),
            row(timeout_name, traces, &|| fixed(timeout)),
        ]
    };
    let (calm_rows, bursts) = (rows(&calm), rows(&bursty));
    progress();
    let bursty_estimate = bursty.first().and_then(Trace::estimate);
    let renewed = bursty_estimate.and_then(|estimate| renew(settings, &estimate));
    let allowed = 3600.0 / bounds().mistake_every().as_secs_f64();
    let within = |detect: f64| {
        let nfd_e = || NfdE::new(Duration::from_secs_f64(detect), DEFAULT_WINDOW);
        let found = row(nfd_e_name, &bursty, &nfd_e).mistakes_per_hour <= allowed;
        if found { 1.0 } else { 0.0 }
    };
    let needed_detect = tune(0.5, plan.detect().as_secs_f64(), 60.0, within);
    progress();
    let samples = [calm, bursty].map(|traces| traces.into_iter().next().expect("at least one"));
    Comparison { calm: calm_rows, bursts, bursty_estimate, renewed, needed_detect, samples }
}

/// The configurator's answer to the bursty link as measured, tried on that link.
fn renew(settings: &NfdLSettings, estimate: &Estimate) -> Option<(Plan, Row)> {
    let link = LinkQuality::new(estimate.loss, estimate.variance, DELAY_ALLOWANCE).ok()?;
    let plan = plan(&bounds(), &link, Duration::from_millis(1)).ok()?;
    let traces = record(settings, bursty_link(), plan.interval);
    let name = DetectorName::NfdE { interval: plan.interval, margin: plan.margin };
    Some((plan, row(name, &traces, &|| NfdE::new(plan.detect(), DEFAULT_WINDOW))))
}

fn record(settings: &NfdLSettings, link: LinkModel, interval: Duration) -> Vec<Trace> {
    let seeds = 0..settings.runs.max(1) * MONITORS;
    seeds
        .map(|i| recording::record(link, interval, settings.length, settings.seed + 1000 + i))
        .collect()
}

fn fixed(timeout: f64) -> FixedTimeout {
    FixedTimeout::new(Duration::from_secs_f64(timeout))
}

fn accrual(plan: &Plan, threshold: f64) -> PhiAccrual {
    PhiAccrual::new(PhiAccrualConfig {
        threshold,
        window: 1000,
        min_deviation: Duration::from_millis(1),
        first_interval: plan.interval,
    })
}

fn detection<D: FailureDetector>(traces: &[Trace], detector: &dyn Fn() -> D) -> DetectionTimes {
    let mut all = DetectionTimes::default();
    for trace in traces {
        all.merge(trace.replay(&mut detector()).detection);
    }
    all
}

/// The parameter between `low` and `high` at which `mean`, which rises with it, is `target`.
fn tune(target: f64, mut low: f64, mut high: f64, mean: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..30 {
        let middle = 0.5 * (low + high);
        if mean(middle) < target { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

fn row<D: FailureDetector>(name: DetectorName, traces: &[Trace], detector: &dyn Fn() -> D) -> Row {
    let replays: Vec<_> = traces.iter().map(|trace| trace.replay(&mut detector())).collect();
    let hours: f64 = replays.iter().map(|r| r.report.observed.as_secs_f64() / 3600.0).sum();
    let mistakes: u64 = replays.iter().map(|r| r.report.mistakes).sum();
    let durations = replays.iter().filter_map(|r| r.report.mistake_duration);
    let accuracy: f64 = replays.iter().map(|r| r.report.accuracy).sum();
    let mut detection = DetectionTimes::default();
    replays.iter().for_each(|replay| detection.merge(replay.detection));
    Row {
        detector: name,
        detection_mean: detection.mean(),
        detection_max: detection.max(),
        mistakes_per_hour: mistakes as f64 / hours,
        mistake_duration: Quartiles::of(durations.map(|duration| duration.mean)),
        accuracy: accuracy / replays.len().max(1) as f64,
    }
}
