//! The phi-accrual detector (Hayashibara et al. 2004), as Akka and others use it. For comparison.
//!
//! It keeps the last n intervals between arrivals, takes them for a normal distribution, and
//! suspects once the silence is so long that the chance of it (or a longer one) falls below
//! `10^-phi`. Seen as a freshness point: `last arrival + mean + z * deviation`, where z depends
//! on the threshold alone and is found once.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::{Beat, FailureDetector, Label};
use crate::time::{Instant, nanos};

/// How a [`PhiAccrual`] detector is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhiAccrualConfig {
    /// Suspect above this phi: 8 is common in a data centre, 12 in a cloud.
    pub threshold: f64,
    /// How many intervals are kept.
    pub window: usize,
    /// A floor for the deviation, without which a calm link makes the detector nervous.
    pub min_deviation: Duration,
    /// The interval to assume before two heartbeats have arrived.
    pub first_interval: Duration,
}

/// The detector.
#[derive(Clone, Debug)]
pub struct PhiAccrual {
    config: PhiAccrualConfig,
    /// How many deviations beyond the mean the threshold lies.
    deviations: f64,
    intervals: VecDeque<u64>,
    sum: u128,
    sum_of_squares: u128,
    latest: Option<(Label, Instant)>,
}

impl PhiAccrual {
    /// A detector with this configuration.
    pub fn new(config: PhiAccrualConfig) -> Self {
        PhiAccrual {
            config,
            deviations: deviations_at(config.threshold),
            intervals: VecDeque::new(),
            sum: 0,
            sum_of_squares: 0,
            latest: None,
        }
    }

    fn push(&mut self, interval: u64) {
        if self.intervals.len() >= self.config.window.max(1)
            && let Some(oldest) = self.intervals.pop_front()
        {
            self.sum -= u128::from(oldest);
            self.sum_of_squares -= u128::from(oldest) * u128::from(oldest);
        }
        self.intervals.push_back(interval);
        self.sum += u128::from(interval);
        self.sum_of_squares += u128::from(interval) * u128::from(interval);
    }

    /// Mean and deviation of the intervals, in nanoseconds.
    fn mean_and_deviation(&self) -> (f64, f64) {
        let floor = nanos(self.config.min_deviation) as f64;
        let count = self.intervals.len();
        if count == 0 {
            return (nanos(self.config.first_interval) as f64, floor);
        }
        let mean = self.sum as f64 / count as f64;
        let square = self.sum_of_squares as f64 / count as f64;
        (mean, libm::sqrt((square - mean * mean).max(0.0)).max(floor))
    }

    /// The level of suspicion at `now`: `-log10` of the chance that a heartbeat comes later still.
    pub fn phi(&self, now: Instant) -> f64 {
        let Some((_, heard)) = self.latest else { return f64::INFINITY };
        let (mean, deviation) = self.mean_and_deviation();
        let beyond = (nanos(now - heard) as f64 - mean) / deviation.max(1.0);
        -libm::log10(later_than(beyond))
    }
}

/// The chance that a normal variable exceeds its mean by more than `deviations`.
fn later_than(deviations: f64) -> f64 {
    0.5 * libm::erfc(deviations / core::f64::consts::SQRT_2)
}

/// The number of deviations beyond which that chance is below `10^-phi`.
fn deviations_at(phi: f64) -> f64 {
    let chance = libm::exp10(-phi);
    let (mut low, mut high) = (-40.0, 40.0);
    // 60 halvings of an interval of 80 reach the precision of f64.
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if later_than(middle) > chance { low = middle } else { high = middle }
    }
    high
}

impl FailureDetector for PhiAccrual {
    fn heartbeat(&mut self, beat: Beat, now: Instant) {
        match self.latest {
            Some((label, _)) if beat.label <= label => return,
            Some((_, heard)) => self.push(nanos(now - heard)),
            None => {}
        }
        self.latest = Some((beat.label, now));
    }

    fn trusted_until(&self) -> Option<Instant> {
        let (_, heard) = self.latest?;
        let (mean, deviation) = self.mean_and_deviation();
        let patience = (mean + self.deviations * deviation).max(0.0);
        Some(heard + Duration::from_nanos(patience as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn detector(threshold: f64) -> PhiAccrual {
        PhiAccrual::new(PhiAccrualConfig {
            threshold,
            window: 100,
            min_deviation: MS,
            first_interval: MS * 100,
        })
    }

    fn feed(detector: &mut PhiAccrual) -> Instant {
        let mut now = Instant::ORIGIN;
        for i in 0..200 {
            now += if i % 2 == 0 { MS * 90 } else { MS * 110 };
            detector.heartbeat(Beat { label: Label::from_nanos(i + 1), interval: MS * 100 }, now);
        }
        now
    }

    #[test]
    fn phi_rises_with_silence_and_reaches_the_threshold_at_the_freshness_point() {
        for threshold in [1.0, 3.0, 8.0, 12.0] {
            let mut detector = detector(threshold);
            let last = feed(&mut detector);
            let until = detector.trusted_until().unwrap();
            assert!(detector.phi(last + MS * 100) < detector.phi(last + MS * 120));
            let reached = detector.phi(until);
            assert!((reached - threshold).abs() < 1e-3, "{reached} at threshold {threshold}");
        }
    }

    #[test]
    fn one_deviation_above_the_mean_is_phi_0_8() {
        let mut detector = detector(1.0);
        let last = feed(&mut detector);
        // Intervals of 90 and 110 ms: mean 100, deviation 10. One deviation: chance 0.1587.
        assert!((detector.phi(last + MS * 110) - 0.7995).abs() < 0.01);
    }
}
