//! Rates from counters that are read now and then.

use std::collections::VecDeque;
use std::time::Duration;

use mandate_proto::time::Instant;

/// How often something happens, by a counter that is looked at now and then.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    window: Duration,
    seen: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// A rate over the last `window`.
    pub(crate) fn over(window: Duration) -> Self {
        Rate { window, seen: VecDeque::new() }
    }

    /// The counter stood at this. One that went back was started anew with its server.
    pub(crate) fn saw(&mut self, now: Instant, count: u64) {
        if self.seen.back().is_some_and(|(_, before)| *before > count) {
            self.seen.clear();
        }
        self.seen.push_back((now, count));
        // One look from before the window stays, so that the window is covered whole.
        while self.seen.get(1).is_some_and(|(at, _)| now - *at >= self.window) {
            self.seen.pop_front();
        }
    }

    /// Times a second; 0 until there were two looks.
    pub(crate) fn per_second(&self) -> f64 {
        match (self.seen.front(), self.seen.back()) {
            (Some((first, from)), Some((last, to))) if last > first => {
                (to - from) as f64 / (*last - *first).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn a_rate_is_of_the_last_while() {
        let mut rate = Rate::over(Duration::from_secs(10));
        assert_eq!(rate.per_second(), 0.0);
        for second in 0..=20 {
            rate.saw(at(second), second * 50);
        }
        assert_eq!(rate.per_second(), 50.0);
        for second in 21..=40 {
            rate.saw(at(second), 1000);
        }
        assert_eq!(rate.per_second(), 0.0, "nothing in the last ten seconds");
    }

    #[test]
    fn a_counter_that_went_back_begins_anew() {
        let mut rate = Rate::over(Duration::from_secs(10));
        rate.saw(at(0), 5000);
        rate.saw(at(1), 5100);
        rate.saw(at(2), 3);
        assert_eq!(rate.per_second(), 0.0);
        rate.saw(at(3), 13);
        assert_eq!(rate.per_second(), 10.0);
    }
}
