//! A process's monotonic clock: it counts the time a host spends suspended.
//!
//! A lease that is counted on a clock which stands still during suspension (Linux's
//! `CLOCK_MONOTONIC`, and with it `std::time::Instant`) is believed after it has ended. So this reads
//! `CLOCK_BOOTTIME`. Elsewhere the system's monotonic clock is read, which on macOS counts sleep.

use std::time::Duration;

use mandate_proto::time::Instant;
use rustix::time::{ClockId, clock_gettime};

/// A clock that begins at its making.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Duration,
}

impl Clock {
    /// A clock that reads zero now.
    pub fn start() -> Self {
        Clock { origin: since_boot() }
    }

    /// What it reads.
    pub fn now(&self) -> Instant {
        Instant::ORIGIN + since_boot().saturating_sub(self.origin)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// What all processes of a host read alike: the time since its start, suspension included.
pub fn since_boot() -> Duration {
    let now = clock_gettime(CLOCK);
    // Neither is ever negative on a clock that counts from the start of the host.
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_zero_and_only_rises() {
        let clock = Clock::start();
        let (first, second) = (clock.now(), clock.now());
        assert!(first <= second && second < Instant::ORIGIN + Duration::from_secs(60));
    }
}
