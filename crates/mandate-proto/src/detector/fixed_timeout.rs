//! The detector that most systems use: a timeout counted from the last arrival. For comparison.

use core::time::Duration;

use super::{Beat, FailureDetector, Label};
use crate::time::Instant;

/// Suspects when nothing newer has arrived for `timeout`.
#[derive(Clone, Debug)]
pub struct FixedTimeout {
    timeout: Duration,
    latest: Option<(Label, Instant)>,
}

impl FixedTimeout {
    /// A detector with this timeout.
    pub fn new(timeout: Duration) -> Self {
        FixedTimeout { timeout, latest: None }
    }
}

impl FailureDetector for FixedTimeout {
    fn heartbeat(&mut self, beat: Beat, now: Instant) {
        if self.latest.is_none_or(|(label, _)| beat.label > label) {
            self.latest = Some((beat.label, now));
        }
    }

    fn trusted_until(&self) -> Option<Instant> {
        self.latest.map(|(_, heard)| heard + self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detector::Verdict;

    #[test]
    fn the_timeout_counts_from_the_last_arrival_of_a_newer_heartbeat() {
        let second = Duration::from_secs(1);
        let mut detector = FixedTimeout::new(second);
        let start = Instant::ORIGIN;
        assert_eq!(detector.verdict(start), Verdict::Suspect);
        let beat = |i| Beat { label: Label::from_nanos(i), interval: second / 3 };
        detector.heartbeat(beat(2), start);
        detector.heartbeat(beat(1), start + second / 2);
        assert_eq!(detector.trusted_until(), Some(start + second));
    }
}
