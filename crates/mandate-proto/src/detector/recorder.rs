//! What quality of service was delivered (section 2.3 and 2.4; Chen et al.; Ma et al. 2010).
//!
//! The recorder is told the truth (crashed, recovered) and the output (trusted, suspected), and
//! computes the metrics from the two:
//!
//! - *detection time* (T_D): from a crash to the suspicion that lasts; zero if it was suspected
//!   already;
//! - *mistake*: a suspicion of a process that is up. Its *duration* (T_M) runs to the correction,
//!   its *recurrence* (T_MR) from the mistake before. The paper's *mistake rate* is one over the
//!   mean recurrence, so two mistakes 30 ms apart in a quiet hour make 33 a second; the plain
//!   rate, mistakes over time up, stands beside it;
//! - *recovery detection time* (T_DR): from a recovery to the trust. A crash that was never
//!   noticed has none, and lowers the *detected failure proportion* (R_DF);
//! - *query accuracy* (P_A): the share of all time in which the output was right.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::Verdict;
use super::quartiles::Quartiles;
use crate::time::Instant;

/// Samples kept of each metric; beyond them the oldest go. Half a megabyte at most for each.
pub const MAX_SAMPLES: usize = 1 << 15;

/// Collects the metrics of one monitor of one process.
#[derive(Clone, Debug)]
pub struct Recorder {
    began: Instant,
    changed: Instant,
    up: bool,
    verdict: Verdict,
    right: Duration,
    up_time: Duration,
    crashes: u64,
    detected: u64,
    mistakes: u64,
    pending: Pending,
    last_mistake: Option<Instant>,
    crashed: Instant,
    detection: Samples,
    recovery: Samples,
    mistake_durations: Samples,
    recurrences: Samples,
}

/// What began and has not ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pending {
    Nothing,
    Mistake { since: Instant },
    Detection { since: Instant },
    Recovery { since: Instant },
}

/// The metrics so far.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectorReport {
    /// How long was observed.
    pub observed: Duration,
    /// Of that, how long the process was up.
    pub up: Duration,
    /// Suspicions of a process that was up.
    pub mistakes: u64,
    /// Crashes.
    pub crashes: u64,
    /// Crashes that were noticed before the recovery.
    pub detected: u64,
    /// Seconds from each crash to its suspicion (T_D).
    pub detection: Option<Quartiles>,
    /// Seconds from each recovery to the trust (T_DR).
    pub recovery: Option<Quartiles>,
    /// Seconds that each mistake lasted (T_M).
    pub mistake_duration: Option<Quartiles>,
    /// Seconds between mistakes (T_MR).
    pub mistake_recurrence: Option<Quartiles>,
    /// The paper's mistake rate, per second: one over the mean recurrence; zero below two
    /// mistakes.
    pub mistake_rate: f64,
    /// Share of all time in which the output was right (P_A).
    pub accuracy: f64,
}

impl DetectorReport {
    /// Mistakes per second of time up.
    pub fn plain_mistake_rate(&self) -> f64 {
        self.mistakes as f64 / self.up.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl Recorder {
    /// A recorder that begins at `now`, of a process that is up and trusted.
    pub fn new(now: Instant) -> Self {
        Recorder {
            began: now,
            changed: now,
            up: true,
            verdict: Verdict::Trust,
            right: Duration::ZERO,
            up_time: Duration::ZERO,
            crashes: 0,
            detected: 0,
            mistakes: 0,
            pending: Pending::Nothing,
            last_mistake: None,
            crashed: now,
            detection: Samples::default(),
            recovery: Samples::default(),
            mistake_durations: Samples::default(),
            recurrences: Samples::default(),
        }
    }

    /// The process crashed.
    pub fn crashed(&mut self, now: Instant) {
        if !self.up {
            return;
        }
        self.advance(now);
        self.up = false;
        self.crashed = now;
        self.crashes += 1;
        self.last_mistake = None;
        match self.verdict {
            Verdict::Trust => self.pending = Pending::Detection { since: now },
            // Suspected already: noticed in no time. A mistake that turned out to be true has
            // no duration.
            Verdict::Suspect => {
                self.detected += 1;
                self.detection.push(Duration::ZERO);
                self.pending = Pending::Nothing;
            }
        }
    }

    /// The process recovered.
    pub fn recovered(&mut self, now: Instant) {
        if self.up {
            return;
        }
        self.advance(now);
        self.up = true;
        self.pending = match self.verdict {
            Verdict::Trust => Pending::Nothing,
            Verdict::Suspect => Pending::Recovery { since: now },
        };
    }

    /// The output at `now`; repeating it is harmless.
    pub fn output(&mut self, verdict: Verdict, now: Instant) {
        if verdict == self.verdict {
            return;
        }
        self.advance(now);
        self.verdict = verdict;
        match (verdict, self.pending) {
            (Verdict::Suspect, Pending::Detection { since }) => {
                self.detected += 1;
                self.detection.push(now - since);
                self.pending = Pending::Nothing;
            }
            (Verdict::Suspect, _) if self.up => {
                self.mistakes += 1;
                if let Some(last) = self.last_mistake.replace(now) {
                    self.recurrences.push(now - last);
                }
                self.pending = Pending::Mistake { since: now };
            }
            (Verdict::Trust, Pending::Mistake { since }) => {
                self.mistake_durations.push(now - since);
                self.pending = Pending::Nothing;
            }
            (Verdict::Trust, Pending::Recovery { since }) => {
                self.recovery.push(now - since);
                self.pending = Pending::Nothing;
            }
            // A straggler arrived: the crash has not been noticed after all.
            (Verdict::Trust, _) if !self.up => {
                self.detected -= 1;
                self.detection.take_back();
                self.pending = Pending::Detection { since: self.crashed };
            }
            _ => {}
        }
    }

    fn advance(&mut self, now: Instant) {
        let passed = now - self.changed;
        self.changed = now;
        if self.up {
            self.up_time += passed;
        }
        if self.up == (self.verdict == Verdict::Trust) {
            self.right += passed;
        }
    }

    /// The metrics up to `now`.
    pub fn report(&self, now: Instant) -> DetectorReport {
        let mut so_far = self.clone();
        so_far.advance(now);
        let observed = now - self.began;
        let seconds = observed.as_secs_f64();
        DetectorReport {
            observed,
            up: so_far.up_time,
            mistakes: self.mistakes,
            crashes: self.crashes,
            detected: self.detected,
            detection: self.detection.quartiles(),
            recovery: self.recovery.quartiles(),
            mistake_duration: self.mistake_durations.quartiles(),
            mistake_recurrence: self.recurrences.quartiles(),
            mistake_rate: self.recurrences.mean().map_or(0.0, |mean| 1.0 / mean),
            accuracy: if seconds > 0.0 { so_far.right.as_secs_f64() / seconds } else { 1.0 },
        }
    }

    /// Every detection time, in order.
    pub fn detections(&self) -> impl Iterator<Item = Duration> + '_ {
        self.detection.iter()
    }

    /// Every recovery detection time, in order.
    pub fn recoveries(&self) -> impl Iterator<Item = Duration> + '_ {
        self.recovery.iter()
    }

    /// The duration of every mistake that was corrected, in order.
    pub fn mistake_durations(&self) -> impl Iterator<Item = Duration> + '_ {
        self.mistake_durations.iter()
    }
}

#[derive(Clone, Debug, Default)]
struct Samples(VecDeque<Duration>);

impl Samples {
    fn push(&mut self, sample: Duration) {
        if self.0.len() == MAX_SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    fn take_back(&mut self) {
        self.0.pop_back();
    }

    fn iter(&self) -> impl Iterator<Item = Duration> + '_ {
        self.0.iter().copied()
    }

    fn quartiles(&self) -> Option<Quartiles> {
        Quartiles::of(self.iter().map(|sample| sample.as_secs_f64()))
    }

    fn mean(&self) -> Option<f64> {
        let total: Duration = self.iter().sum();
        (!self.0.is_empty()).then(|| total.as_secs_f64() / self.0.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(ms)
    }

    fn ms(duration: Option<Quartiles>) -> f64 {
        duration.unwrap().median * 1000.0
    }

    #[test]
    fn a_crash_and_a_recovery_are_timed_from_the_truth_to_the_output() {
        let mut recorder = Recorder::new(at(0));
        recorder.crashed(at(1000));
        recorder.output(Verdict::Suspect, at(1700));
        recorder.recovered(at(5000));
        recorder.output(Verdict::Trust, at(5300));
        let report = recorder.report(at(10_000));
        assert_eq!(ms(report.detection), 700.0);
        assert_eq!(ms(report.recovery), 300.0);
        assert_eq!((report.crashes, report.detected, report.mistakes), (1, 1, 0));
        assert!((report.accuracy - 0.9).abs() < 1e-9);
        assert_eq!(report.up, Duration::from_millis(6000));
    }

    #[test]
    fn mistakes_have_durations_and_recurrences() {
        let mut recorder = Recorder::new(at(0));
        for start in [1000, 4000, 9000] {
            recorder.output(Verdict::Suspect, at(start));
            recorder.output(Verdict::Suspect, at(start + 5));
            recorder.output(Verdict::Trust, at(start + 100));
        }
        let report = recorder.report(at(10_000));
        assert_eq!(report.mistakes, 3);
        assert_eq!(ms(report.mistake_duration), 100.0);
        assert_eq!(ms(report.mistake_recurrence), 4000.0);
        assert!((report.mistake_rate - 0.25).abs() < 1e-9);
        assert!((report.plain_mistake_rate() - 0.3).abs() < 1e-9);
    }

    #[test]
    fn a_crash_that_nobody_noticed_has_no_detection_time() {
        let mut recorder = Recorder::new(at(0));
        recorder.crashed(at(1000));
        recorder.recovered(at(1200));
        let report = recorder.report(at(2000));
        assert_eq!((report.crashes, report.detected), (1, 0));
        assert_eq!(report.detection, None);
        assert_eq!(report.recovery, None);
    }

    #[test]
    fn the_suspicion_that_lasts_is_the_one_that_counts() {
        let mut recorder = Recorder::new(at(0));
        recorder.crashed(at(1000));
        recorder.output(Verdict::Suspect, at(1100));
        recorder.output(Verdict::Trust, at(1150));
        recorder.output(Verdict::Suspect, at(2100));
        let report = recorder.report(at(3000));
        assert_eq!((report.crashes, report.detected), (1, 1));
        assert_eq!(recorder.detections().collect::<Vec<_>>(), [Duration::from_millis(1100)]);
    }

    #[test]
    fn a_mistake_overtaken_by_a_crash_counts_as_a_detection_in_no_time() {
        let mut recorder = Recorder::new(at(0));
        recorder.output(Verdict::Suspect, at(500));
        recorder.crashed(at(600));
        recorder.recovered(at(900));
        recorder.output(Verdict::Trust, at(950));
        let report = recorder.report(at(1000));
        assert_eq!((report.mistakes, report.detected), (1, 1));
        assert_eq!(recorder.detections().collect::<Vec<_>>(), [Duration::ZERO]);
        assert_eq!(report.mistake_duration, None);
        assert_eq!(ms(report.recovery), 50.0);
    }
}
