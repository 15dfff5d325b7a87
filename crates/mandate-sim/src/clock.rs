//! The clocks of a host: a monotonic one that drifts, and a wall clock that can be set.
//!
//! The monotonic clock starts at its origin with every start of the process, as a driver's does,
//! runs at a constant rate near that of true time, and either counts the time a host spends
//! suspended or stands still meanwhile (as Linux's `CLOCK_MONOTONIC` does, and drivers should
//! not).

use core::time::Duration;

use mandate_proto::time::{Instant, WallTime};

use crate::time::SimTime;

/// The wall clock at the beginning of a simulation, on a host that knows the time: an arbitrary
/// day in 2023.
pub(crate) const EPOCH_NANOS: u64 = 1_700_000_000_000_000_000;

/// A host's clocks.
#[derive(Clone, Debug)]
pub struct HostClocks {
    /// How much faster than true time the monotonic clock runs, in parts of a billion.
    drift_ppb: i64,
    /// A pair of readings: true time, and the monotonic clock then.
    base: (SimTime, u64),
    stopped: bool,
    wall_offset_nanos: i64,
}

impl HostClocks {
    /// A clock that gains `drift_ppb` nanoseconds a second.
    pub fn new(drift_ppb: i64) -> Self {
        HostClocks { drift_ppb, base: (SimTime::ZERO, 0), stopped: false, wall_offset_nanos: 0 }
    }

    /// The process starts: its monotonic clock begins at the origin.
    pub fn restart(&mut self, now: SimTime) {
        self.base = (now, 0);
        self.stopped = false;
    }

    /// The monotonic clock stands still from `now` on.
    pub fn stop(&mut self, now: SimTime) {
        self.base = (now, self.read(now).as_nanos());
        self.stopped = true;
    }

    /// It runs on, from where it stood.
    pub fn go_on(&mut self, now: SimTime) {
        if self.stopped {
            self.base.0 = now;
            self.stopped = false;
        }
    }

    /// What the monotonic clock reads at `now`.
    pub fn read(&self, now: SimTime) -> Instant {
        if self.stopped {
            return Instant::from_nanos(self.base.1);
        }
        let passed = now.as_nanos().saturating_sub(self.base.0.as_nanos());
        Instant::from_nanos(self.base.1 + self.local(passed))
    }

    fn local(&self, passed: u64) -> u64 {
        let gained = i128::from(passed) * i128::from(self.drift_ppb) / 1_000_000_000;
        (i128::from(passed) + gained).max(0) as u64
    }

    /// The first moment at which the monotonic clock, running on as it does, reads `instant` or
    /// more.
    pub fn when(&self, instant: Instant) -> SimTime {
        let local = instant.as_nanos().saturating_sub(self.base.1);
        let rate = 1_000_000_000 + i128::from(self.drift_ppb);
        let passed = (i128::from(local) * 1_000_000_000 / rate.max(1)) as u64;
        // Rounding may put it a nanosecond or two off, either way.
        let first = passed.saturating_sub(2);
        let exact = (first..).find(|passed| self.local(*passed) >= local).unwrap_or(passed);
        self.base.0 + Duration::from_nanos(exact)
    }

    /// Somebody sets the wall clock.
    pub fn step_wall(&mut self, by_nanos: i64) {
        self.wall_offset_nanos = self.wall_offset_nanos.saturating_add(by_nanos);
    }

    /// Somebody sets the wall clock right.
    pub(crate) fn set_wall_right(&mut self) {
        self.wall_offset_nanos = 0;
    }

    /// What the wall clock reads at `now`.
    pub fn wall(&self, now: SimTime) -> WallTime {
        let nanos = i128::from(EPOCH_NANOS)
            + i128::from(now.as_nanos())
            + i128::from(self.wall_offset_nanos);
        WallTime::from_unix_nanos(nanos.clamp(0, i128::from(u64::MAX)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_clock_that_gains_a_thousandth_is_a_second_ahead_after_a_thousand() {
        let mut clock = HostClocks::new(1_000_000);
        clock.restart(SimTime::ZERO + SECOND);
        let read = clock.read(SimTime::ZERO + SECOND * 1001);
        assert_eq!(read, Instant::ORIGIN + SECOND * 1001);
    }

    #[test]
    fn a_stopped_clock_goes_on_from_where_it_stood() {
        let mut clock = HostClocks::new(0);
        clock.stop(SimTime::ZERO + SECOND);
        assert_eq!(clock.read(SimTime::ZERO + SECOND * 9), Instant::ORIGIN + SECOND);
        clock.go_on(SimTime::ZERO + SECOND * 9);
        assert_eq!(clock.read(SimTime::ZERO + SECOND * 10), Instant::ORIGIN + SECOND * 2);
    }

    #[test]
    fn the_wall_clock_can_be_set_and_the_monotonic_clock_does_not_mind() {
        let mut clock = HostClocks::new(0);
        let before = clock.wall(SimTime::ZERO);
        clock.step_wall(-5);
        assert_eq!(clock.wall(SimTime::ZERO).since(before), Err(Duration::from_nanos(5)));
        assert_eq!(clock.read(SimTime::ZERO), Instant::ORIGIN);
    }

    proptest! {
        #[test]
        fn when_is_the_first_moment_at_which_the_clock_reads_that_much(
            drift in -10_000_000i64..10_000_000, local in 0u64..10_000_000_000_000,
        ) {
            let clock = HostClocks::new(drift);
            let at = clock.when(Instant::from_nanos(local));
            prop_assert!(clock.read(at).as_nanos() >= local);
            if at.as_nanos() > 0 {
                let before = SimTime::from_nanos(at.as_nanos() - 1);
                prop_assert!(clock.read(before).as_nanos() < local);
            }
        }
    }
}
