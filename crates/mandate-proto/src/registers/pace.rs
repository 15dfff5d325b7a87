//! How fast the group goes: rounds grow while the database cannot keep up, and shrink again.
//!
//! Section 4.3 of the paper grows the round by Delta whenever an evicted process raises its flag, and
//! never shrinks it. Here a leader whose own renewals are slow or fail grows it, too: it need not first evict
//! someone to see that the database is busy. It shrinks by the same step after a while of calm.

use core::time::Duration;

use super::config::Config;
use crate::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct Pace {
    pub(super) round: Duration,
    /// When it last grew.
    grown: Option<Instant>,
    /// Since when nothing spoke against a shorter round.
    calm_since: Instant,
}

impl Pace {
    /// At the round that the group has come to.
    pub(super) fn new(round: Duration, config: &Config, now: Instant) -> Self {
        let round = round.clamp(config.round, config.max_round);
        Pace { round, grown: None, calm_since: now }
    }

    /// There is contention. One step a round: more signs of the same cause are no other cause.
    pub(super) fn contended(&mut self, config: &Config, now: Instant) {
        self.calm_since = now;
        if self.grown.is_none_or(|grown| now - grown >= self.round) {
            self.grown = Some(now);
            self.round = (self.round + config.step).min(config.max_round);
        }
    }

    /// A whole lease was too short for an answer. False if it cannot be longer.
    pub(super) fn double(&mut self, config: &Config, now: Instant) -> bool {
        let could = self.round < config.max_round;
        self.calm_since = now;
        self.grown = Some(now);
        self.round = self.round.saturating_mul(2).min(config.max_round);
        could
    }

    /// Nothing speaks against a shorter round right now.
    pub(super) fn calm(&mut self, config: &Config, now: Instant) {
        if now - self.calm_since >= self.round.saturating_mul(config.calm_rounds) {
            self.calm_since = now;
            self.round = self.round.saturating_sub(config.step).max(config.round);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::MemberId;

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(ms)
    }

    #[test]
    fn rounds_grow_by_a_step_a_round_and_shrink_after_calm() {
        let config = Config::paper(MemberId::new(1));
        let mut pace = Pace::new(Duration::ZERO, &config, at(0));
        assert_eq!(pace.round, config.round, "section 4.3: it begins as configured");
        for ms in [0, 500, 1000] {
            pace.contended(&config, at(ms));
        }
        assert_eq!(pace.round, Duration::from_millis(2050), "section 4.3: by Delta");
        pace.contended(&config, at(3000));
        assert_eq!(pace.round, Duration::from_millis(2100));
        pace.calm(&config, at(60_000));
        assert_eq!(pace.round, Duration::from_millis(2100), "not yet");
        pace.calm(&config, at(66_000));
        assert_eq!(pace.round, Duration::from_millis(2050));
        pace.calm(&config, at(130_000));
        pace.calm(&config, at(200_000));
        assert_eq!(pace.round, config.round, "and no further");
    }

    #[test]
    fn a_round_doubles_up_to_the_longest() {
        let config = Config::lan(MemberId::new(1));
        let mut pace = Pace::new(Duration::ZERO, &config, at(0));
        assert!((0..3).all(|ms| pace.double(&config, at(ms))));
        assert!(!pace.double(&config, at(9)));
        assert_eq!(pace.round, config.max_round);
    }
}
