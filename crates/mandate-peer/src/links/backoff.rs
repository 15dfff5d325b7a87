//! Pauses between attempts to connect.

use std::time::Duration;

use super::limits::{BACKOFF_FIRST, BACKOFF_LONGEST};

/// Pauses that double, with jitter, so that a group that starts at once does not dial in step.
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff { next: BACKOFF_FIRST }
    }

    /// The last link was a good one.
    pub(crate) fn reset(&mut self) {
        self.next = BACKOFF_FIRST;
    }

    /// How long to wait now. `chance` is drawn evenly from 0 to 1.
    pub(crate) fn pause(&mut self, chance: f64) -> Duration {
        let longest = self.next;
        self.next = (self.next * 2).min(BACKOFF_LONGEST);
        (longest / 2 + longest.mul_f64(chance.clamp(0.0, 1.0) / 2.0)).max(BACKOFF_FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_start_again_after_a_good_link() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.pause(1.0).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(backoff.pause(0.0).as_millis(), 1000);
        backoff.reset();
        assert_eq!(backoff.pause(0.0).as_millis(), 50);
    }
}
