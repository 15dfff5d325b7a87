//! True time: what no process in the simulation can read.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// Nanoseconds since the simulation began, by a perfect clock. A type of its own, so that it
/// cannot be mixed up with the [`Instant`](mandate_proto::time::Instant)s of the hosts' clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimTime(u64);

impl SimTime {
    /// The beginning.
    pub const ZERO: SimTime = SimTime(0);

    /// `nanos` nanoseconds after the beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        SimTime(nanos)
    }

    /// Nanoseconds since the beginning.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since the beginning.
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Add<Duration> for SimTime {
    type Output = SimTime;

    fn add(self, rhs: Duration) -> SimTime {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        SimTime(self.0.saturating_add(nanos))
    }
}

impl Sub for SimTime {
    type Output = Duration;

    /// Saturates at zero.
    fn sub(self, rhs: SimTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(rhs.0))
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:06}", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000))
    }
}
