//! What a link is like: how much it loses and how much its delay varies (Chen et al., section 5).
//!
//! *Loss* is counted from gaps between labels; a heartbeat that was merely overtaken is taken
//! back from the losses when it arrives. A gap longer than [`MEMORY`] intervals is an outage, not
//! loss: the sender was down or cut off, which is what the detector is for, and a plan that
//! reckoned with it would be wrong for the link's ordinary days.
//!
//! *Variance of delay* needs no synchronised clocks: `arrival - label` is the delay plus a
//! constant. Two clocks drift, though, and over the minutes of a window a drift of 100 ppm looks
//! like tens of milliseconds of jitter. So a straight line is fitted, and the variance is that
//! around the line; its slope is the drift. (The paper assumes that there is none.)
//!
//! Memory does not grow: the last one to two blocks of [`Estimator::new`]'s size count, so that
//! a link that changed is seen as it is after one block. An exponential average was rejected: a
//! count over a stated number of heartbeats can be checked by hand.

use core::time::Duration;

use super::nfd_e::Arrival;
use super::{Beat, Label};
use crate::time::{Instant, nanos};

/// How many intervals back a late heartbeat is still told from a repeated one.
pub const MEMORY: u64 = 64;

/// Heartbeats per block unless told otherwise: at a loss of 1 % the estimate is then right to
/// about a third of itself, and a block lasts minutes at the intervals in common use.
pub const DEFAULT_BLOCK: u64 = 1000;

/// A link as it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Share of heartbeats that never arrived (p_L).
    pub loss: f64,
    /// Variance of the delay, in seconds squared (V(D)).
    pub variance: f64,
    /// How much faster the monitor's clock runs than the sender's, in parts of one.
    pub drift: f64,
    /// How many heartbeats should have arrived in the time measured.
    pub expected: u64,
    /// How many did.
    pub received: u64,
}

/// Measures a link from the heartbeats that arrive over it.
#[derive(Clone, Debug)]
pub struct Estimator {
    block: u64,
    current: Block,
    previous: Option<Block>,
    front: Option<Front>,
}

/// The newest label, and which of the [`MEMORY`] before it have arrived.
#[derive(Clone, Copy, Debug)]
struct Front {
    label: Label,
    interval: Duration,
    /// Bit k: the label k intervals before the newest has arrived.
    arrived: u64,
}

impl Front {
    /// Everything before `beat` counts as arrived: whether it was missing is not known, or
    /// cannot be told because the interval was another.
    fn at(beat: Beat) -> Self {
        Front { label: beat.label, interval: beat.interval, arrived: u64::MAX }
    }
}

impl Estimate {
    /// A loss to plan with. That nothing was lost so far does not mean that nothing ever is: one
    /// more loss and one more arrival are assumed (Laplace's rule of succession), which matters
    /// while little has been measured and fades as more is.
    pub fn cautious_loss(&self) -> f64 {
        let lost = self.expected.saturating_sub(self.received);
        (lost as f64 + 1.0) / (self.expected as f64 + 2.0)
    }
}

impl Estimator {
    /// An estimator that looks at the last one to two blocks of `block` heartbeats.
    pub fn new(block: u64) -> Self {
        Estimator { block: block.max(2), current: Block::default(), previous: None, front: None }
    }

    /// Takes a heartbeat that arrived at `now`.
    pub fn arrive(&mut self, beat: Beat, now: Instant) {
        self.take(beat, Some(now));
    }

    /// The same, knowing what a detector made of it: one that was too late to prove anything
    /// counts as received, but its delay, which may be the step of a clock, does not count.
    pub fn arrive_as(&mut self, arrival: Arrival, beat: Beat, now: Instant) {
        match arrival {
            Arrival::Fresh | Arrival::Old => self.take(beat, Some(now)),
            Arrival::Late => self.take(beat, None),
            Arrival::Moved => {
                self.current.close_fit();
                self.take(beat, Some(now));
            }
        }
    }

    fn take(&mut self, beat: Beat, now: Option<Instant>) {
        let arrival = now.map(|now| (beat.label, now));
        let Some(front) = &mut self.front else {
            self.front = Some(Front::at(beat));
            return self.count(1, 1, arrival);
        };
        let interval = nanos(front.interval).max(1);
        if beat.label <= front.label {
            let back = beat.label.nanos_before(front.label).saturating_add(interval / 2) / interval;
            // Older than we remember, or already counted: nothing new.
            if back < MEMORY && front.arrived & (1 << back) == 0 {
                front.arrived |= 1 << back;
                self.count(0, 1, arrival);
            }
            return;
        }
        let ahead = front.label.nanos_before(beat.label);
        let steps = (ahead.saturating_add(interval / 2) / interval).max(1);
        if steps > MEMORY {
            self.interrupt();
            return self.take(beat, now);
        }
        if front.interval == beat.interval {
            front.label = beat.label;
            front.arrived = front.arrived.checked_shl(steps as u32).unwrap_or(0) | 1;
        } else {
            *front = Front::at(beat);
        }
        self.count(steps, 1, arrival);
    }

    /// The sender was restarted, or its clock stepped: what comes next is not to be compared
    /// with what came before.
    pub fn interrupt(&mut self) {
        self.front = None;
        self.current.close_fit();
    }

    fn count(&mut self, expected: u64, received: u64, arrival: Option<(Label, Instant)>) {
        self.current.expected += expected;
        self.current.received += received;
        if let Some((label, now)) = arrival {
            self.current.fit.add(label, now);
        }
        if self.current.expected >= self.block {
            self.current.close_fit();
            self.previous = Some(core::mem::take(&mut self.current));
        }
    }

    /// The link as measured, once there are at least three heartbeats to measure it by.
    pub fn estimate(&self) -> Option<Estimate> {
        let blocks = || self.previous.iter().chain([&self.current]);
        let expected: u64 = blocks().map(|block| block.expected).sum();
        let received: u64 = blocks().map(|block| block.received).sum();
        let mut squares = 0.0;
        let mut freedom = 0.0;
        let mut drift = 0.0;
        for block in blocks() {
            let (open_squares, open_freedom) = block.fit.residual();
            squares += block.squares + open_squares;
            freedom += block.freedom + open_freedom;
            drift = block.fit.slope().or(block.drift).unwrap_or(drift);
        }
        (freedom >= 1.0).then(|| Estimate {
            // A late heartbeat may be counted in the block after the one that missed it.
            loss: (1.0 - received as f64 / expected.max(1) as f64).clamp(0.0, 1.0),
            variance: squares / freedom,
            drift,
            expected,
            received,
        })
    }
}

/// Counts over a run of heartbeats.
#[derive(Clone, Debug, Default)]
struct Block {
    expected: u64,
    received: u64,
    fit: Fit,
    /// Squares and degrees of freedom of the fits that were closed within this block.
    squares: f64,
    freedom: f64,
    drift: Option<f64>,
}

impl Block {
    fn close_fit(&mut self) {
        let (squares, freedom) = self.fit.residual();
        self.squares += squares;
        self.freedom += freedom;
        self.drift = self.fit.slope().or(self.drift);
        self.fit = Fit::default();
    }
}

/// A straight line through (label, offset), kept as means and co-moments (Welford), in seconds
/// from the first point so that nothing cancels.
#[derive(Clone, Debug, Default)]
struct Fit {
    origin: Option<(Label, Instant)>,
    count: f64,
    mean_x: f64,
    mean_y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Fit {
    fn add(&mut self, label: Label, now: Instant) {
        let (first_label, first_arrival) = *self.origin.get_or_insert((label, now));
        let x_nanos = i128::from(label.as_nanos()) - i128::from(first_label.as_nanos());
        let arrived = i128::from(now.as_nanos()) - i128::from(first_arrival.as_nanos());
        let x = x_nanos as f64 * 1e-9;
        let y = (arrived - x_nanos) as f64 * 1e-9;
        self.count += 1.0;
        let dx = x - self.mean_x;
        let dy = y - self.mean_y;
        self.mean_x += dx / self.count;
        self.mean_y += dy / self.count;
        self.xx += dx * (x - self.mean_x);
        self.xy += dx * (y - self.mean_y);
        self.yy += dy * (y - self.mean_y);
    }

    fn slope(&self) -> Option<f64> {
        (self.count >= 3.0 && self.xx > 0.0).then(|| self.xy / self.xx)
    }

    /// Sum of squares around the line, and its degrees of freedom.
    fn residual(&self) -> (f64, f64) {
        match self.slope() {
            Some(slope) => ((self.yy - slope * self.xy).max(0.0), self.count - 2.0),
            None => (0.0, 0.0),
        }
    }
}

#[cfg(test)]
mod tests;
