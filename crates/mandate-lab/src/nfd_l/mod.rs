//! The evaluation of NFD-L: "Quality of Service of an Asynchronous Crash-Recovery Leader Election
//! Algorithm", section 4, in simulated time.
//!
//! Five members, one of which leads and four monitor it, over links that lose 1.76 % of messages
//! and whose delay has a variance of 25.3 ms squared and a mean of a thousandth of the interval
//! (section 4.1). *Accuracy*: runs of an hour in which nobody crashes, so every suspicion is a
//! mistake. *Speed*: a leader of higher priority crashes and recovers, in cycles.
//!
//! Then what the paper does not show: the same detector, a phi-accrual detector and a fixed
//! timeout, tuned to the same average detection time, on the same arrivals, with and without
//! bursts.

use std::time::Duration;

use mandate_proto::detector::configurator::{Bounds, LinkQuality, Plan, plan};
use mandate_sim::link::{Bursts, Delay, LinkModel};

pub mod comparison;
pub mod election;
pub mod plot;
mod recording;
pub mod report;

pub use comparison::{Comparison, compare};
pub use election::{Accuracy, Speed, measure_accuracy, measure_speed};

/// Loss on the paper's network (p_L).
pub const LOSS: f64 = 0.0175917;
/// Variance of the delay there, in seconds squared.
pub const VARIANCE: f64 = 25.3356e-6;
/// Its mean: "a thousand times smaller than the interval".
pub const MEAN_DELAY: Duration = Duration::from_micros(330);
/// Five nodes.
pub const MEMBERS: usize = 5;

/// What is taken off the detection time for the delay, which NFD-E cannot see: it counts from
/// *expected arrivals*, so a crash is noticed the mean delay later. The paper neglects it. The
/// mean over 32 arrivals of so skewed a delay may be off by a few milliseconds.
pub const DELAY_ALLOWANCE: Duration = Duration::from_millis(5);

/// How long and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfdLSettings {
    /// Runs for accuracy; the paper's 6.
    pub runs: u64,
    /// Length of each; the paper's hour.
    pub length: Duration,
    /// Crash and recovery cycles; the paper's 10.
    pub cycles: u64,
    /// Everything random comes from it.
    pub seed: u64,
}

impl Default for NfdLSettings {
    fn default() -> Self {
        NfdLSettings { runs: 6, length: Duration::from_secs(3600), cycles: 10, seed: 1 }
    }
}

impl NfdLSettings {
    /// Steps of progress that a whole experiment reports.
    pub fn steps(&self) -> u64 {
        2 * self.runs + self.cycles + comparison::STEPS
    }
}

/// The bounds of section 4.1: notice within 1 s, err at most once an hour, for at most 1 s.
pub fn bounds() -> Bounds {
    Bounds::new(Duration::from_secs(1), Duration::from_secs(3600), Duration::from_secs(1))
        .expect("all bounds are positive")
}

/// The plan for them on the paper's link.
pub fn paper_plan() -> Plan {
    let link =
        LinkQuality::new(LOSS, VARIANCE, DELAY_ALLOWANCE).expect("the paper's link is valid");
    plan(&bounds(), &link, Duration::from_millis(1)).expect("section 4.1 shows one")
}

/// The paper's link.
pub fn calm_link() -> LinkModel {
    LinkModel {
        delay: Delay::LogNormal { mean: MEAN_DELAY, variance: VARIANCE },
        max_delay: Duration::from_secs(30),
        loss: LOSS,
        duplication: 0.0,
        in_order: false,
        bursts: None,
    }
}

/// The same with bursts: about once a minute the link is bad for a second and a half on average,
/// loses half of what is sent and delays the rest by 300 ms on average. Garbage collections,
/// elephant flows and failing switches look like this; independent losses do not.
pub fn bursty_link() -> LinkModel {
    let bursts = Bursts {
        every: Duration::from_secs(60),
        lasting: Duration::from_millis(1500),
        loss: 0.5,
        delay: Delay::Exponential(Duration::from_millis(300)),
    };
    LinkModel { bursts: Some(bursts), ..calm_link() }
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub struct NfdLResults {
    /// With what.
    pub settings: NfdLSettings,
    /// The parameters in use.
    pub plan: Plan,
    /// Hours without crashes on the paper's link.
    pub accuracy: Accuracy,
    /// The same with bursts.
    pub accuracy_in_bursts: Accuracy,
    /// Crashes and recoveries.
    pub speed: Speed,
    /// The detectors side by side.
    pub comparison: Comparison,
}

/// Runs the whole experiment; `progress` is called [`NfdLSettings::steps`] times.
pub fn run(settings: NfdLSettings, mut progress: impl FnMut()) -> NfdLResults {
    let plan = paper_plan();
    NfdLResults {
        settings,
        plan,
        accuracy: measure_accuracy(&settings, &plan, calm_link(), &mut progress),
        accuracy_in_bursts: measure_accuracy(&settings, &plan, bursty_link(), &mut progress),
        speed: measure_speed(&settings, &plan, &mut progress),
        comparison: compare(&settings, &plan, &mut progress),
    }
}
