//! From what is wanted and what the link is like to the parameters of the detector, or to the
//! reason why there are none (Chen et al., section 5; the configurator of section 2.3 here).
//!
//! Wanted: notice a crash within T_D, make a mistake at most once per T_MR, correct it within
//! T_M. Given: loss p and delay variance V. The margin is what the interval leaves of T_D, so
//! only the interval is sought, and the largest is the best, because it costs the least:
//!
//! 1. `g = (1-p) T_D^2 / (V + T_D^2)`: the chance, at least, that a heartbeat sent T_D before
//!    arrives. A mistake ends with the next timely heartbeat, so the interval is at most `g T_M`.
//! 2. Between two mistakes pass at least
//!    `f(h) = h * prod_{j=1}^{ceil(T_D/h)-1} (V + (T_D - j h)^2) / (V + p (T_D - j h)^2)`:
//!    each of the heartbeats inside the bound must fail, and Chebyshev's inequality bounds the
//!    chance of each without knowing the distribution of delays.
//!
//! `f` is not monotonic: it is a sawtooth that rises while the number of heartbeats inside T_D
//! stays the same and falls where it drops by one. Its pieces are searched from the largest
//! interval downwards.
//!
//! The formulas assume that losses and delays are independent. Bursts break that; the lab shows
//! by how much.

use core::time::Duration;

mod search;

use search::Request;

/// What is wanted of a detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    detect: Duration,
    mistake_every: Duration,
    mistake_lasts: Duration,
}

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkQuality {
    loss: f64,
    variance: f64,
    delay: Duration,
}

/// Parameters of a detector, and what they promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Time between heartbeats (eta).
    pub interval: Duration,
    /// How much later than expected a heartbeat may be (alpha).
    pub margin: Duration,
    /// What the formulas promise for it.
    pub prediction: Prediction,
}

impl Plan {
    /// Interval and margin together: what the monitor is given as its detection bound.
    pub fn detect(&self) -> Duration {
        self.interval + self.margin
    }
}

/// The quality of service that follows from an interval, a margin and a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Mean time between mistakes, at least, in seconds (T_MR). Infinite on a perfect link.
    pub mistake_every: f64,
    /// Mean duration of a mistake, at most, in seconds (T_M).
    pub mistake_lasts: f64,
    /// The chance that the output is right at a random time while the process is up, at least
    /// (P_A).
    pub accuracy: f64,
}

/// Why a request makes no sense. Nothing was computed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum InvalidRequest {
    /// A bound of zero.
    #[error("the bound on {0} must be longer than zero")]
    ZeroBound(Quantity),
    /// A loss that is no probability.
    #[error("the loss must be between 0 and 1, not {0}")]
    Loss(f64),
    /// A variance that is none.
    #[error("the variance of the delay must be a number that is not negative, not {0}")]
    Variance(f64),
}

/// One of the three bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// T_D
    Detection,
    /// T_MR
    MistakeRecurrence,
    /// T_M
    MistakeDuration,
}

impl core::fmt::Display for Quantity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Quantity::Detection => "the detection time",
            Quantity::MistakeRecurrence => "the time between mistakes",
            Quantity::MistakeDuration => "the duration of a mistake",
        })
    }
}

/// Why no parameters meet the bounds on this link.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Infeasible {
    /// Nothing ever arrives.
    #[error("the link loses everything, so no heartbeat can tell a crash from the link")]
    NothingArrives,
    /// News of a crash cannot travel that fast.
    #[error("the link's delay of {delay:?} already exceeds the detection time of {detect:?}")]
    DelayTooLong {
        /// The link's mean delay.
        delay: Duration,
        /// The bound that was asked for.
        detect: Duration,
    },
    /// It could be done only with heartbeats closer together than is allowed.
    #[error("no interval of at least {min_interval:?} keeps {limit} within its bound")]
    IntervalTooShort {
        /// The least interval that was considered: what was allowed, or a ten-thousandth of the
        /// detection time.
        min_interval: Duration,
        /// The bound that fails at that interval.
        limit: Quantity,
        /// The interval that would be needed, if a ten-thousandth of the detection time is enough.
        needed: Option<Duration>,
        /// What is possible instead.
        nearest: Nearest,
    },
}

/// For each bound the nearest value that is possible with the other two kept, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Nearest {
    /// The shortest detection time.
    pub detect: Option<Duration>,
    /// The longest time between mistakes.
    pub mistake_every: Option<Duration>,
    /// The shortest duration of a mistake.
    pub mistake_lasts: Option<Duration>,
}

impl Bounds {
    /// Notice a crash within `detect` (T_D); err at most once per `mistake_every` (T_MR); correct
    /// it within `mistake_lasts` (T_M). All must be longer than zero.
    pub fn new(
        detect: Duration,
        mistake_every: Duration,
        mistake_lasts: Duration,
    ) -> Result<Self, InvalidRequest> {
        let zero = [
            (detect, Quantity::Detection),
            (mistake_every, Quantity::MistakeRecurrence),
            (mistake_lasts, Quantity::MistakeDuration),
        ]
        .into_iter()
        .find(|(bound, _)| bound.is_zero());
        match zero {
            Some((_, quantity)) => Err(InvalidRequest::ZeroBound(quantity)),
            None => Ok(Bounds { detect, mistake_every, mistake_lasts }),
        }
    }

    /// T_D
    pub fn detect(&self) -> Duration {
        self.detect
    }

    /// T_MR
    pub fn mistake_every(&self) -> Duration {
        self.mistake_every
    }

    /// T_M
    pub fn mistake_lasts(&self) -> Duration {
        self.mistake_lasts
    }
}

impl LinkQuality {
    /// A link that loses the share `loss` of its messages (0 to 1), and whose delay has this
    /// `variance` in seconds squared.
    ///
    /// `delay` is the mean one-way delay, or an upper bound such as the round trip. Without
    /// synchronised clocks it cannot be measured from heartbeats, and a crash is noticed that
    /// much later; given, it is taken off the detection bound. The paper neglects it: zero.
    pub fn new(loss: f64, variance: f64, delay: Duration) -> Result<Self, InvalidRequest> {
        if !(0.0..=1.0).contains(&loss) {
            return Err(InvalidRequest::Loss(loss));
        }
        if !(variance >= 0.0 && variance.is_finite()) {
            return Err(InvalidRequest::Variance(variance));
        }
        Ok(LinkQuality { loss, variance, delay })
    }

    /// p_L
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// V(D), in seconds squared.
    pub fn variance(&self) -> f64 {
        self.variance
    }

    /// The mean one-way delay, as far as it is known.
    pub fn delay(&self) -> Duration {
        self.delay
    }
}

/// The cheapest parameters that meet `bounds` on `link`, with heartbeats at least `min_interval`
/// apart and a margin of at least that; or why there are none.
pub fn plan(
    bounds: &Bounds,
    link: &LinkQuality,
    min_interval: Duration,
) -> Result<Plan, Infeasible> {
    let detect = bounds.detect.saturating_sub(link.delay);
    if link.loss >= 1.0 {
        return Err(Infeasible::NothingArrives);
    }
    if detect.is_zero() {
        return Err(Infeasible::DelayTooLong { delay: link.delay, detect: bounds.detect });
    }
    let request = Request::new(bounds, link);
    match request.largest_interval(request.floor(min_interval)) {
        Some(seconds) => {
            // To whole nanoseconds, down: the promise is for the interval in use.
            let interval = Duration::from_nanos((seconds * 1e9) as u64).min(detect);
            let prediction = predict(link, interval, detect);
            Ok(Plan { interval, margin: detect - interval, prediction })
        }
        None => Err(request.why_not(min_interval)),
    }
}

/// What the formulas promise for heartbeats every `interval` on `link`, if a crash is to be
/// noticed within `detect` of its last heartbeat's expected arrival (interval plus margin).
pub fn predict(link: &LinkQuality, interval: Duration, detect: Duration) -> Prediction {
    let request = Request {
        detect: detect.as_secs_f64(),
        mistake_every: 0.0,
        mistake_lasts: 0.0,
        loss: link.loss,
        variance: link.variance,
    };
    let interval = interval.as_secs_f64();
    let mistake_every = request.recurrence(interval);
    let mistake_lasts = interval / request.timely();
    Prediction {
        mistake_every,
        mistake_lasts,
        accuracy: (1.0 - mistake_lasts / mistake_every).clamp(0.0, 1.0),
    }
}

#[cfg(test)]
mod tests;
