//! Failure detectors with a stated quality of service.
//!
//! A monitored process sends heartbeats; a monitor that hears nothing fresh for too long
//! suspects it. Everything lies in "too long". Chen, Toueg and Aguilera (2002) turn it round:
//! say what you want (notice within T_D, err at most once per T_MR, for at most T_M), measure
//! the link (loss, variance of delay), and compute the interval between heartbeats and the
//! safety margin, or learn that this link cannot do it.
//!
//! | module | part |
//! | --- | --- |
//! | [`schedule`] | when the sender beats, and what a heartbeat says of its own timing |
//! | [`nfd_e`] | the detector: freshness points from expected arrivals |
//! | [`estimator`] | loss and delay variance of the link, without synchronised clocks |
//! | [`configurator`] | bounds and link to interval and margin, or the reason why not |
//! | [`planner`] | the plan kept current, and what monitors ask of a sender |
//! | [`monitor`] | all of them together: a detector whose plan follows its link |
//! | [`recorder`] | what quality of service was delivered, where the truth is known |
//! | [`delivered`] | the same as a member in the field can know it |
//! | [`quality`] | wanted, planned and delivered, for a member that follows leaders |
//! | [`phi_accrual`], [`fixed_timeout`] | two well-known others, for comparison only |
//!
//! Detectors are plain structs. They share one small contract, [`FailureDetector`]: a heartbeat
//! moves the point until which the sender is trusted.

use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{Instant, WallTime, nanos};

pub mod configurator;
pub mod delivered;
pub mod estimator;
pub mod fixed_timeout;
pub mod monitor;
pub mod nfd_e;
pub mod phi_accrual;
pub mod planner;
pub mod quality;
pub mod quartiles;
pub mod recorder;
pub mod schedule;

/// The label of a heartbeat: when it was due, on the sender's clock, counted from the sender's
/// zero time.
///
/// The paper labels heartbeats `i = 1, 2, ...` and sends the i-th at `i * eta`; the label here is
/// that product. It orders heartbeats just as `i` does, and it stays right when the interval
/// changes, which a count cannot: halve eta, and every later `i * eta` is wrong.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Label(i64);

impl Label {
    /// The label of a heartbeat due this many nanoseconds after the sender's zero time. Negative
    /// if its wall clock was set to before that: labels still rise.
    pub const fn from_nanos(nanos: i64) -> Self {
        Label(nanos)
    }

    /// Nanoseconds since the sender's zero time.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// What the label reads when the wall clock reads `now`.
    pub fn at(now: WallTime, zero: WallTime) -> Self {
        let nanos = i128::from(now.as_unix_nanos()) - i128::from(zero.as_unix_nanos());
        Label(saturate(nanos))
    }

    /// The paper's label: the `sequence`-th heartbeat of a sender with a fixed interval.
    pub fn from_sequence(sequence: u64, interval: Duration) -> Self {
        Label(saturate(i128::from(sequence).saturating_mul(i128::from(nanos(interval)))))
    }

    /// How many nanoseconds before `later` this is; zero if it is not before it.
    fn nanos_before(self, later: Label) -> u64 {
        if self < later { self.0.abs_diff(later.0) } else { 0 }
    }
}

fn saturate(nanos: i128) -> i64 {
    nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}", Instant::from_nanos(self.0.unsigned_abs()))
    }
}

/// What a heartbeat says of its own timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// When it was due.
    pub label: Label,
    /// How much later the next one is due (eta). Carried in every heartbeat, so that a sender
    /// can change its interval without agreeing on it with anyone first.
    pub interval: Duration,
}

impl Beat {
    /// Labels lie within 146 years of zero time. One that does not was not made by a clock.
    pub fn is_plausible(&self) -> bool {
        self.label.as_nanos().unsigned_abs() <= 1 << 62
    }
}

/// Whether the monitored process is believed to be up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Believed up.
    Trust,
    /// Believed down.
    Suspect,
}

/// What all detectors have in common.
pub trait FailureDetector {
    /// Takes a heartbeat that arrived at `now`.
    fn heartbeat(&mut self, beat: Beat, now: Instant);

    /// The point from which on the sender is suspected unless something arrives before it
    /// (NFD's freshness point tau). `None`: nothing was heard yet.
    fn trusted_until(&self) -> Option<Instant>;

    /// The output at `now`.
    fn verdict(&self, now: Instant) -> Verdict {
        match self.trusted_until() {
            Some(until) if now < until => Verdict::Trust,
            _ => Verdict::Suspect,
        }
    }
}
