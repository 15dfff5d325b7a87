//! Whether the host's wall clock was set back.
//!
//! Nothing of the engine goes by the wall clock. The client library's threads do: they sleep on condition variables until
//! a time of day, and a wall clock that is set back makes that as much later. Nobody tells; so it is compared
//! with a clock that nobody can set.

use std::time::{Duration, Instant, SystemTime};

#[derive(Debug)]
pub(super) struct WallClock {
    seen: (SystemTime, Instant),
}

impl WallClock {
    pub(super) fn new() -> Self {
        // Should this thread be kept from running in between, it is the earlier that seems late, and nothing set back.
        let wall = SystemTime::now();
        WallClock { seen: (wall, Instant::now()) }
    }

    /// By how much since the last look, if by more than `tolerated`.
    pub(super) fn set_back(&mut self, tolerated: Duration) -> Option<Duration> {
        let (monotonic, wall) = (Instant::now(), SystemTime::now());
        // Kept from running between the two, it has not seen one moment on both: the next look will do.
        let is_one_moment = monotonic.elapsed() < tolerated / 4;
        is_one_moment.then(|| self.set_back_at(tolerated, wall, monotonic)).flatten()
    }

    fn set_back_at(
        &mut self,
        tolerated: Duration,
        wall: SystemTime,
        monotonic: Instant,
    ) -> Option<Duration> {
        let (before, since) = std::mem::replace(&mut self.seen, (wall, monotonic));
        let expected = before + monotonic.saturating_duration_since(since);
        let back = expected.duration_since(wall).unwrap_or(Duration::ZERO);
        (back > tolerated).then_some(back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_wall_clock_that_was_set_back_is_noticed_once_and_one_that_goes_on_or_ahead_is_not() {
        let mut clock = WallClock::new();
        let (day, monotonic) = clock.seen;
        let mut look = |day, monotonic| clock.set_back_at(SECOND, day, monotonic);
        assert_eq!(look(day + 5 * SECOND, monotonic + 5 * SECOND), None, "it goes on");
        assert_eq!(look(day + 3605 * SECOND, monotonic + 5 * SECOND), None, "an hour ahead");
        assert_eq!(look(day + 6 * SECOND, monotonic + 6 * SECOND), Some(3600 * SECOND), "and back");
        assert_eq!(look(day + 7 * SECOND, monotonic + 7 * SECOND), None, "that was told");
        assert_eq!(
            look(day + 7 * SECOND, monotonic + 8 * SECOND),
            None,
            "no more than is tolerated"
        );
        assert_eq!(
            look(day + 6 * SECOND, monotonic + 9 * SECOND),
            Some(2 * SECOND),
            "a little more"
        );
    }
}
