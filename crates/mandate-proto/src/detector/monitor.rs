//! A detector whose plan follows its link.
//!
//! [`Monitor`] runs the estimator beside the detector and, every so often, lets a
//! [planner](super::planner) look again. When the link has changed enough to matter, [`Monitor::heartbeat`] returns a
//! [`Review`]; the caller asks the sender for the new interval (over whatever channel it has),
//! and the sender's next heartbeats announce it. Nothing is agreed beforehand and nothing moves
//! at the switch: see "What the margin is" in [`nfd_e`](super::nfd_e).

use core::time::Duration;

use super::configurator::Bounds;
use super::estimator::{DEFAULT_BLOCK, Estimate, Estimator};
use super::nfd_e::{Arrival, DEFAULT_WINDOW, NfdE};
use super::planner::{Planner, Review, Wanted};
use super::{Beat, FailureDetector};
use crate::time::Instant;

/// How a [`Monitor`] is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MonitorConfig {
    /// What is wanted.
    pub bounds: Bounds,
    /// The least interval that may be asked of the sender.
    pub min_interval: Duration,
    /// The mean one-way delay as far as it is known; see [`LinkQuality::new`](super::configurator::LinkQuality::new).
    pub delay: Duration,
}

/// NFD-E with an estimator and a configurator.
#[derive(Clone, Debug)]
pub struct Monitor {
    config: MonitorConfig,
    detector: NfdE,
    estimator: Estimator,
    planner: Planner,
}

impl Monitor {
    /// A monitor of a sender that has not been heard yet.
    pub fn new(config: MonitorConfig) -> Self {
        Monitor {
            config,
            detector: detector(&config),
            estimator: Estimator::new(DEFAULT_BLOCK),
            planner: Planner::new(Wanted {
                bounds: config.bounds,
                min_interval: config.min_interval,
            }),
        }
    }

    /// Takes a heartbeat; sometimes returns what came of looking at the plan again.
    pub fn heartbeat(&mut self, beat: Beat, now: Instant) -> (Arrival, Option<Review>) {
        let arrival = self.detector.arrive(beat, now);
        self.estimator.arrive_as(arrival, beat, now);
        if !self.planner.counts() {
            return (arrival, None);
        }
        let review = |estimate| self.planner.review(&estimate, self.config.delay, beat.interval);
        (arrival, self.estimator.estimate().and_then(review))
    }

    /// The sender was restarted: its labels may begin anywhere.
    pub fn restart(&mut self) {
        self.detector = detector(&self.config);
        self.estimator.interrupt();
    }

    /// The link as measured.
    pub fn estimate(&self) -> Option<Estimate> {
        self.estimator.estimate()
    }

    /// The detector.
    pub fn detector(&self) -> &NfdE {
        &self.detector
    }

    /// When the sender will be suspected unless a heartbeat arrives before.
    pub fn trusted_until(&self) -> Option<Instant> {
        self.detector.trusted_until()
    }
}

/// A detector for the bounds, without what the delay takes of them.
fn detector(config: &MonitorConfig) -> NfdE {
    NfdE::new(config.bounds.detect().saturating_sub(config.delay), DEFAULT_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detector::Label;
    use crate::detector::configurator::Infeasible;
    use crate::detector::schedule::Schedule;

    const MS: Duration = Duration::from_millis(1);

    /// A link that loses every `loses`-th message and delays by 1 ms plus `jitter_us` in turn.
    struct Wire {
        loses: u64,
        jitter_us: u64,
    }

    /// What came of a run: mistakes in all, mistakes within five heartbeats after a change of
    /// plan, and the last review.
    #[derive(Default)]
    struct Outcome {
        mistakes: u32,
        at_a_switch: u32,
        review: Option<Review>,
    }

    /// Runs sender and monitor over `wire` for `beats` heartbeats, the sender obeying every
    /// request at once.
    fn run(monitor: &mut Monitor, schedule: &mut Schedule, wire: &Wire, beats: u64) -> Outcome {
        let mut outcome = Outcome::default();
        let mut switched = None;
        for i in 0..beats {
            let due = schedule.due().unwrap();
            let beat = schedule.beat(due).unwrap();
            if i % wire.loses == wire.loses - 1 {
                continue;
            }
            let arrives = due + MS + Duration::from_micros(wire.jitter_us * (i % 3));
            if monitor.trusted_until().is_some_and(|until| until <= arrives) {
                outcome.mistakes += 1;
                outcome.at_a_switch += u32::from(switched.is_some_and(|at| i - at <= 5));
            }
            if let (_, Some(review)) = monitor.heartbeat(beat, arrives) {
                if let Review::Renew(plan) = review {
                    schedule.set_interval(plan.interval);
                    switched = Some(i);
                }
                outcome.review = Some(review);
            }
        }
        outcome
    }

    fn monitor() -> (Monitor, Schedule) {
        let hour = Duration::from_secs(3600);
        let bounds = Bounds::new(MS * 1000, hour, MS * 1000).unwrap();
        let config = MonitorConfig { bounds, min_interval: MS, delay: Duration::ZERO };
        let mut schedule = Schedule::new(Label::default(), MS * 300, Instant::ORIGIN);
        schedule.begin(Instant::ORIGIN);
        (Monitor::new(config), schedule)
    }

    #[test]
    fn a_worse_link_gets_a_shorter_interval_without_a_suspicion_at_the_switch() {
        let (mut monitor, mut schedule) = monitor();
        let calm = Wire { loses: 500, jitter_us: 100 };
        let outcome = run(&mut monitor, &mut schedule, &calm, 3000);
        assert_eq!(outcome.mistakes, 0);
        let relaxed = schedule.interval();
        let rough = Wire { loses: 5, jitter_us: 8_000 };
        // The old plan is wrong for this link until it has been measured.
        let outcome = run(&mut monitor, &mut schedule, &rough, 1000);
        assert!(matches!(outcome.review, Some(Review::Renew(_))));
        assert_eq!(outcome.at_a_switch, 0);
        assert!(schedule.interval() < relaxed / 2, "{:?} {relaxed:?}", schedule.interval());
        let outcome = run(&mut monitor, &mut schedule, &rough, 3000);
        assert_eq!(outcome.mistakes, 0);
        // And back again.
        let outcome = run(&mut monitor, &mut schedule, &calm, 6000);
        assert_eq!(outcome.mistakes, 0);
        assert!(schedule.interval() > relaxed.mul_f64(0.75), "{:?}", schedule.interval());
    }

    #[test]
    fn a_sender_whose_clock_stood_still_is_not_taken_for_a_link_that_varies() {
        for stood in [10, 60, 300, 3600] {
            let (mut monitor, mut schedule) = monitor();
            let wire = Wire { loses: 50, jitter_us: 1000 };
            run(&mut monitor, &mut schedule, &wire, 2000);
            let before = schedule.interval();
            let mut late = schedule.clone();
            for _ in 0..1000 {
                let due = late.due().unwrap();
                let beat = late.beat(due).unwrap();
                let arrives = due + Duration::from_secs(stood) + MS;
                if let (_, Some(Review::Renew(plan))) = monitor.heartbeat(beat, arrives) {
                    // Nothing is lost any more, so it may ask for less, never for more.
                    assert!(plan.interval >= before, "{:?} after {before:?}", plan.interval);
                }
            }
            assert!(monitor.estimate().unwrap().variance < 1e-5);
        }
    }

    #[test]
    fn a_steady_link_leaves_the_sender_alone() {
        let (mut monitor, mut schedule) = monitor();
        let wire = Wire { loses: 50, jitter_us: 1000 };
        run(&mut monitor, &mut schedule, &wire, 2000);
        let Outcome { review, .. } = run(&mut monitor, &mut schedule, &wire, 5000);
        assert_eq!(review, None);
    }

    #[test]
    fn a_link_that_can_no_longer_do_it_is_reported_once() {
        let bounds = Bounds::new(MS * 20, Duration::from_secs(1 << 30), MS * 1000).unwrap();
        let config = MonitorConfig { bounds, min_interval: MS * 5, delay: Duration::ZERO };
        let mut monitor = Monitor::new(config);
        let mut schedule = Schedule::new(Label::default(), MS * 5, Instant::ORIGIN);
        schedule.begin(Instant::ORIGIN);
        let poor = Wire { loses: 2, jitter_us: 1000 };
        let Outcome { review, .. } = run(&mut monitor, &mut schedule, &poor, 2000);
        assert!(matches!(review, Some(Review::Unachievable(Infeasible::IntervalTooShort { .. }))));
        let Outcome { review, .. } = run(&mut monitor, &mut schedule, &poor, 2000);
        assert_eq!(review, None);
    }
}
