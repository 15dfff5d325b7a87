//! How many requests clients send to a member, and how long they take: what the oracles want to know.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Rates and latencies are of so many seconds.
const WINDOW: Duration = Duration::from_secs(5);

/// Latencies that are kept at most; of more, the last.
const SAMPLES: usize = 4096;

/// Counts requests. Those that another member has passed on do not count: they came from clients there.
#[derive(Debug, Default)]
pub(crate) struct Load {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    total: u64,
    /// How many had come when, about ten times a second.
    counts: VecDeque<(Instant, u64)>,
    latencies: VecDeque<(Instant, Duration)>,
}

impl Load {
    /// A request has come.
    pub(crate) fn began(&self) {
        self.lock().total += 1;
    }

    /// One was answered.
    pub(crate) fn ended(&self, latency: Duration) {
        let mut seen = self.lock();
        if seen.latencies.len() == SAMPLES {
            seen.latencies.pop_front();
        }
        seen.latencies.push_back((Instant::now(), latency));
    }

    /// Requests since the start.
    pub(crate) fn total(&self) -> u64 {
        self.lock().total
    }

    /// Requests a second, of the last seconds. To be called several times in that window.
    pub(crate) fn rate(&self, now: Instant) -> f64 {
        let mut seen = self.lock();
        let total = seen.total;
        while seen.counts.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
            seen.counts.pop_front();
        }
        let rate = match seen.counts.front() {
            Some((at, before)) if now > *at => {
                (total - before) as f64 / now.duration_since(*at).as_secs_f64()
            }
            _ => 0.0,
        };
        seen.counts.push_back((now, total));
        rate
    }

    /// Median and 99 of 100 of the last seconds' latencies.
    pub(crate) fn latency(&self, now: Instant) -> Option<(Duration, Duration)> {
        let mut seen = self.lock();
        seen.latencies.retain(|(at, _)| now.saturating_duration_since(*at) <= WINDOW);
        let mut sorted: Vec<_> = seen.latencies.iter().map(|(_, latency)| *latency).collect();
        sorted.sort_unstable();
        let at = |share: usize| sorted.get(sorted.len() * share / 100).copied();
        Some((at(50)?, at(99)?))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_latencies_are_of_the_last_seconds() {
        let load = Load::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(load.rate(at(0)), 0.0);
        (0..50).for_each(|_| load.began());
        assert!((load.rate(at(1000)) - 50.0).abs() < 0.1);
        assert!((load.rate(at(5000)) - 10.0).abs() < 0.1);
        assert_eq!(load.rate(at(6500)), 0.0, "long ago");
        (1..=100).for_each(|millis| load.ended(Duration::from_millis(millis)));
        let (median, most) = load.latency(Instant::now()).unwrap();
        assert_eq!((median.as_millis(), most.as_millis()), (51, 100));
        assert_eq!(load.latency(Instant::now() + Duration::from_secs(9)), None);
        assert_eq!(load.total(), 50);
    }
}
