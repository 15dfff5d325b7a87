//! The project's own notion of time.
//!
//! [`Instant`] is a reading of the driver's monotonic clock: nanoseconds since an origin that the
//! driver chose when it started. It only rises, it counts the time a host spends suspended, and
//! it means nothing in another process. [`WallTime`] is a reading of the wall clock, which
//! operators and NTP may set forwards and backwards; a machine is given it only at its start,
//! where something must outlive the process.
//!
//! `std::time::Instant` was rejected because it can only be obtained from the OS clock, which
//! would make every protocol untestable in virtual time.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on the driver's monotonic clock: nanoseconds since its origin (enough for 584 years).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The driver's origin.
    pub const ORIGIN: Instant = Instant(0);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates: a deadline that cannot be represented is one that never comes.
    fn add(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(rhs)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    /// Saturates at zero, like [`Instant::since`].
    fn sub(self, rhs: Instant) -> Duration {
        self.since(rhs)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

/// A reading of the wall clock: nanoseconds since 1970, UTC.
///
/// It may be wrong, and it may be less than an earlier reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WallTime(u64);

impl WallTime {
    /// The time `nanos` nanoseconds after the beginning of 1970.
    pub const fn from_unix_nanos(nanos: u64) -> Self {
        WallTime(nanos)
    }

    /// Nanoseconds since the beginning of 1970.
    pub const fn as_unix_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this reads, or by how much it reads before it.
    pub const fn since(self, earlier: WallTime) -> Result<Duration, Duration> {
        match self.0.checked_sub(earlier.0) {
            Some(ahead) => Ok(Duration::from_nanos(ahead)),
            None => Err(Duration::from_nanos(earlier.0 - self.0)),
        }
    }
}

/// A duration in whole nanoseconds; durations over 584 years saturate.
pub(crate) const fn nanos(duration: Duration) -> u64 {
    let wide = duration.as_nanos();
    if wide > u64::MAX as u128 { u64::MAX } else { wide as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_would_be_negative_is_zero() {
        let early = Instant::from_nanos(5);
        let late = Instant::from_nanos(9);
        assert_eq!(late - early, Duration::from_nanos(4));
        assert_eq!(early - late, Duration::ZERO);
    }

    #[test]
    fn a_deadline_beyond_the_range_never_comes() {
        assert_eq!(Instant::from_nanos(7) + Duration::MAX, Instant::from_nanos(u64::MAX));
    }

    #[test]
    fn a_calendar_clock_that_stepped_back_says_by_how_much() {
        let before = WallTime::from_unix_nanos(100);
        let after = WallTime::from_unix_nanos(40);
        assert_eq!(after.since(before), Err(Duration::from_nanos(60)));
        assert_eq!(before.since(after), Ok(Duration::from_nanos(60)));
    }
}
