//! NFD-E: freshness points from expected arrivals (Algorithm 1; Chen et al. 2002, section 6.3).
//!
//! The detector averages how long after its label each of the last n heartbeats arrived. That
//! average holds the mean delay and the unknown difference of the two clocks, and there is no
//! need to tell them apart: added to the label of the next heartbeat it is its *expected arrival*
//! (EA, equation 1), and the *freshness point* (tau) lies one safety margin (alpha) later.
//! A fast heartbeat does not shorten the patience with the next one, as it does where a timeout
//! counts from the last arrival.
//!
//! # What the margin is
//!
//! The caller gives the detection bound T_D; the margin is what the announced interval leaves of
//! it, `alpha = T_D - eta`. The freshness point after heartbeat l is then
//! `mean + label(l) + T_D`, whatever the interval: when a sender changes its interval, no
//! freshness point moves, so a change of plan cannot cause a suspicion. A sender whose interval
//! exceeds T_D cannot be monitored as asked ([`NfdE::keeps_bound`] says so); it is allowed one
//! missed heartbeat.
//!
//! # Where the paper is silent
//!
//! - *A heartbeat arrives more than T_D before it is expected.* No delay explains that: the
//!   sender's clock jumped ahead. Averaged, the jump would put the freshness point into the far
//!   future, and a crash would go unseen for as long as the jump. The window restarts with it.
//! - *A heartbeat arrives more than T_D after it was expected.* It does not prove the sender alive: by the
//!   paper's own test (`t < tau`) it is not fresh. It may be a straggler, or one of many that a
//!   paused link held back, and it stays out of the average, which it would spoil for n more.
//! - *Three heartbeats in succession are later than the margin*, the third an interval and a half
//!   or more after the first. The offset itself has moved: the sender's clock stood still while
//!   its host was suspended, or the route changed. The window restarts with the least late of
//!   them. As printed, the average creeps towards the new offset over n heartbeats, and each of them is
//!   suspected and trusted in turn. Heartbeats that were held back arrive together, so a backlog
//!   revives nobody.
//! - *A heartbeat is overtaken.* The label decides, as in the paper; it is not averaged either.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Beat, FailureDetector, Label, Verdict, saturate};
use crate::time::{Instant, nanos};

/// How many arrivals are averaged unless told otherwise. Chen et al. found that beyond a few
/// dozen the quality no longer improves; at 32 the error of the mean is a sixth of the jitter.
pub const DEFAULT_WINDOW: usize = 32;

/// So many late heartbeats in succession are a new offset and not bad luck. Two happen by chance
/// in a burst, and then delay the detection of a crash; each more costs a sender whose clock
/// stood still another interval of suspicion.
pub const LATE_RUN: u8 = 3;

/// What a heartbeat was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It proves the sender alive: the freshness point moved and lies ahead.
    Fresh,
    /// So does this one, but a clock has stepped or a route changed: arrivals before it are not
    /// to be compared with it.
    Moved,
    /// It came after its own freshness point and proves nothing.
    Late,
    /// It was repeated or overtaken.
    Old,
}

/// The most arrivals that can be averaged. Their sum must fit an `i64`.
pub const MAX_WINDOW: usize = 4096;

/// Offsets differ by less than this (13 days in nanoseconds), or a clock has stepped.
const FAR: i64 = 1 << 50;

impl Arrival {
    /// Whether it proves that the sender is alive.
    pub fn is_fresh(self) -> bool {
        matches!(self, Arrival::Fresh | Arrival::Moved)
    }
}

/// The detector. Memory: this struct and 8 bytes for each arrival of the window.
///
/// All in whole nanoseconds, as `i64`: a heartbeat costs some two hundred instructions, and
/// `Duration` and wider integers would double that. What a sender says is bounded before it is
/// reckoned with.
#[derive(Clone, Debug)]
pub struct NfdE {
    detect: i64,
    capacity: usize,
    /// Arrival minus label of the first heartbeat since the last restart; the window holds
    /// differences from it, which are small.
    base: i64,
    window: Vec<i64>,
    oldest: usize,
    sum: i64,
    /// The mean of the window.
    mean: i64,
    /// How many heartbeats in succession were later than the margin allows.
    late_run: u8,
    /// When the first of them arrived.
    late_since: Instant,
    /// The least offset among them.
    late_least: i64,
    latest: Option<Label>,
    interval: i64,
    /// From a heartbeat's expected arrival to the freshness point of the next: interval + margin.
    reach: i64,
    freshness: Option<Instant>,
}

impl NfdE {
    /// A detector that notices a crash within `detect` (T_D) of its last heartbeat's sending,
    /// plus the mean delay of the link, and averages the last `window` arrivals (1 to
    /// [`MAX_WINDOW`]). Bounds above 13 days are taken for 13 days.
    pub fn new(detect: Duration, window: usize) -> Self {
        NfdE {
            detect: bounded(detect),
            capacity: window.clamp(1, MAX_WINDOW),
            base: 0,
            window: Vec::new(),
            oldest: 0,
            sum: 0,
            mean: 0,
            late_run: 0,
            late_since: Instant::ORIGIN,
            late_least: 0,
            latest: None,
            interval: 0,
            reach: bounded(detect),
            freshness: None,
        }
    }

    /// Takes a heartbeat.
    pub fn arrive(&mut self, beat: Beat, now: Instant) -> Arrival {
        if self.latest.is_some_and(|latest| beat.label <= latest) {
            return Arrival::Old;
        }
        self.latest = Some(beat.label);
        self.interval = bounded(beat.interval);
        self.reach = if self.keeps_bound() { self.detect } else { self.interval * 2 };
        let label = beat.label.as_nanos();
        let offset = saturate(i128::from(now.as_nanos()) - i128::from(label));
        let arrival = self.take_offset(offset, now);
        if arrival == Arrival::Late {
            return arrival;
        }
        let expected = self.base.saturating_add(self.mean).saturating_add(label);
        let freshness = expected.saturating_add(self.reach).max(0);
        self.freshness = Some(Instant::from_nanos(freshness as u64));
        match self.verdict(now) {
            Verdict::Trust => arrival,
            Verdict::Suspect => Arrival::Late,
        }
    }

    /// Averages an offset, unless it is too late to be one of the same kind.
    fn take_offset(&mut self, offset: i64, now: Instant) -> Arrival {
        let difference = offset.saturating_sub(self.base);
        let deviation = difference.saturating_sub(self.mean);
        if self.window.is_empty() {
            self.restart_at(offset);
            return Arrival::Fresh;
        }
        if deviation < -self.reach {
            self.restart_at(offset);
            return Arrival::Moved;
        }
        if deviation <= self.reach - self.interval {
            self.late_run = 0;
        } else if self.extends_late_run(offset, now) {
            self.restart_at(self.late_least);
            return Arrival::Moved;
        }
        if deviation > self.reach {
            return Arrival::Late;
        }
        self.push(difference);
        Arrival::Fresh
    }

    /// Counts a heartbeat that was later than the margin allows; whether these are now enough in
    /// succession, and did not arrive together.
    fn extends_late_run(&mut self, offset: i64, now: Instant) -> bool {
        if self.late_run == 0 {
            self.late_since = now;
            self.late_least = offset;
        }
        self.late_least = self.late_least.min(offset);
        self.late_run = self.late_run.saturating_add(1);
        let lasted = nanos(now - self.late_since);
        self.late_run >= LATE_RUN && lasted >= self.interval as u64 * 3 / 2
    }

    fn restart_at(&mut self, offset: i64) {
        self.base = offset;
        self.window.clear();
        self.oldest = 0;
        self.sum = 0;
        self.late_run = 0;
        self.push(0);
    }

    fn push(&mut self, difference: i64) {
        let difference = difference.clamp(-FAR, FAR);
        self.sum += difference;
        if self.window.len() < self.capacity {
            self.window.push(difference);
        } else {
            self.sum -= core::mem::replace(&mut self.window[self.oldest], difference);
            self.oldest += 1;
            if self.oldest == self.capacity {
                self.oldest = 0;
            }
        }
        self.mean = self.sum / self.window.len() as i64;
    }

    /// Whether the sender's interval leaves a margin inside the detection bound.
    pub fn keeps_bound(&self) -> bool {
        self.interval < self.detect
    }

    /// The safety margin (alpha) in force.
    pub fn margin(&self) -> Duration {
        Duration::from_nanos((self.reach - self.interval) as u64)
    }

    /// The highest label heard.
    pub fn latest(&self) -> Option<Label> {
        self.latest
    }

    /// The interval (eta) that the sender last announced.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval as u64)
    }

    /// When the heartbeat after the latest is expected (EA).
    pub fn expected_arrival(&self) -> Option<Instant> {
        let freshness = self.freshness?.as_nanos();
        Some(Instant::from_nanos(freshness.saturating_sub(nanos(self.margin()))))
    }

    /// Changes the detection bound, from the next heartbeat on.
    pub fn set_detect(&mut self, detect: Duration) {
        self.detect = bounded(detect);
    }

    /// Puts the freshness point no earlier than `until`: for a monitor that was itself stalled,
    /// and has not yet read what arrived meanwhile.
    pub fn extend(&mut self, until: Instant) {
        self.freshness = self.freshness.map(|freshness| freshness.max(until));
    }

    /// The sender has said that nothing will follow what it labelled up to `label`: it is suspected from `now` on, and
    /// what was overtaken by that does not revive it.
    pub fn expire(&mut self, label: Label, now: Instant) {
        self.latest = self.latest.max(Some(label));
        self.freshness = self.freshness.map(|freshness| freshness.min(now));
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.window.capacity() * size_of::<i64>()
    }
}

/// A duration in nanoseconds, bounded so that twice it can be added to anything bounded.
fn bounded(duration: Duration) -> i64 {
    nanos(duration).min(FAR as u64) as i64
}

impl FailureDetector for NfdE {
    fn heartbeat(&mut self, beat: Beat, now: Instant) {
        self.arrive(beat, now);
    }

    fn trusted_until(&self) -> Option<Instant> {
        self.freshness
    }
}

#[cfg(test)]
mod tests;
