//! The search for the largest interval, piece by piece of the sawtooth `f`.
//!
//! On the piece with k heartbeats inside the bound, `f` rises with the interval while the last of
//! them has time left, falls steeply as that time runs out, and is continuous where the next
//! piece begins. So in each piece a few dozen points are looked at, most of them near the fall,
//! and the crossing is then found by halving. A plain halving over all intervals would be wrong:
//! it may end in a lower tooth. A property test holds the result against brute force.

use core::time::Duration;

use super::{Bounds, Infeasible, LinkQuality, Nearest, Quantity};

/// No plan has more heartbeats than this within one detection time: nobody would run it, and the
/// search stays short.
pub(super) const MAX_HEARTBEATS: u64 = 10_000;

/// Pieces that are looked at one by one before the search begins to leap.
const FIRST_PIECES: u64 = 64;

/// Points looked at in each piece of the sawtooth: evenly spread, and crowding towards its end,
/// where the fall is steep.
const SAMPLES: usize = 48;

/// A request in seconds; `detect` without the link's delay.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) detect: f64,
    pub(super) mistake_every: f64,
    pub(super) mistake_lasts: f64,
    pub(super) loss: f64,
    pub(super) variance: f64,
}

impl Request {
    pub(super) fn new(bounds: &Bounds, link: &LinkQuality) -> Self {
        Request {
            detect: bounds.detect.saturating_sub(link.delay).as_secs_f64(),
            mistake_every: bounds.mistake_every.as_secs_f64(),
            mistake_lasts: bounds.mistake_lasts.as_secs_f64(),
            loss: link.loss,
            variance: link.variance,
        }
    }

    /// `g`: the chance, at least, that a heartbeat has arrived T_D after it was sent.
    pub(super) fn timely(&self) -> f64 {
        let square = self.detect * self.detect;
        (1.0 - self.loss) * square / (self.variance + square)
    }

    /// The largest interval that T_M allows and that leaves a margin of `floor`: a margin below
    /// the shortest interval would make every late wake-up a suspicion.
    fn ceiling(&self, floor: f64) -> f64 {
        (self.timely() * self.mistake_lasts).min(self.detect - floor)
    }

    /// The least interval that is considered.
    pub(super) fn floor(&self, min_interval: Duration) -> f64 {
        min_interval.as_secs_f64().max(self.detect / MAX_HEARTBEATS as f64)
    }

    /// One heartbeat's share in the time between mistakes, `ahead` of the freshness point.
    fn factor(&self, ahead: f64) -> f64 {
        let square = ahead * ahead;
        let certain = self.variance + self.loss * square;
        if certain == 0.0 {
            // A perfect link: a heartbeat with any time left never fails.
            return if ahead > 0.0 { f64::INFINITY } else { 1.0 };
        }
        (self.variance + square) / certain
    }

    /// `f`: the time between mistakes, at least, at interval `h`.
    pub(super) fn recurrence(&self, h: f64) -> f64 {
        if h <= 0.0 {
            return 0.0;
        }
        let inside = (libm::ceil(self.detect / h) as u64).saturating_sub(1);
        // Leaving some out makes the promise smaller, never larger.
        self.recurrence_of(h, inside.min(MAX_HEARTBEATS))
    }

    fn recurrence_of(&self, h: f64, heartbeats: u64) -> f64 {
        let mut product = h;
        for j in 1..=heartbeats {
            product *= self.factor((self.detect - j as f64 * h).max(0.0));
            if product.is_infinite() {
                break;
            }
        }
        product
    }

    fn meets(&self, h: f64) -> bool {
        self.recurrence(h) >= self.mistake_every
    }

    /// The largest interval from `floor` up that meets all bounds.
    pub(super) fn largest_interval(&self, floor: f64) -> Option<f64> {
        let ceiling = self.ceiling(floor);
        if ceiling < floor || ceiling <= 0.0 {
            return None;
        }
        if self.meets(ceiling) {
            return Some(ceiling);
        }
        // Piece k holds the intervals with k heartbeats strictly inside the bound.
        let mut k = (libm::ceil(self.detect / ceiling) as u64).saturating_sub(1);
        let last = (libm::ceil(self.detect / floor) as u64).min(MAX_HEARTBEATS);
        let close = k + FIRST_PIECES;
        while k <= last {
            let low = (self.detect / (k + 1) as f64).max(floor);
            let high = if k == 0 { ceiling } else { (self.detect / k as f64).min(ceiling) };
            if low <= high
                && let Some(h) = self.largest_within(low, high, k)
            {
                return Some(h);
            }
            k = if k < close { k + 1 } else { self.next_promising(k, last)? };
        }
        None
    }

    /// The first piece after `k` whose best could meet the bound. Its best is at most
    /// `T_D / k * F(k)`, and `F`, the product of all factors at the piece's left end, only rises
    /// with k; so the pieces that could are those from some k on, and can be found by leaps.
    fn next_promising(&self, k: u64, last: u64) -> Option<u64> {
        let promising = |k: u64| self.most_of_piece(k) >= self.mistake_every;
        let mut fails = k;
        let mut step = 1;
        let mut holds = loop {
            let next = (k + step).min(last);
            if next <= fails {
                return None;
            }
            if promising(next) {
                break next;
            }
            fails = next;
            step *= 2;
        };
        while holds - fails > 1 {
            let middle = fails + (holds - fails) / 2;
            if promising(middle) { holds = middle } else { fails = middle }
        }
        Some(holds)
    }

    fn most_of_piece(&self, k: u64) -> f64 {
        let low = self.detect / (k + 1) as f64;
        self.recurrence_of(low, k) / low * self.detect / k.max(1) as f64
    }

    /// The largest interval of one piece that meets the bound on mistakes.
    fn largest_within(&self, low: f64, high: f64, k: u64) -> Option<f64> {
        // Every factor falls with h: the left end's factors with the right end's h bound f.
        let factors = self.recurrence_of(low, k) / low;
        if high * factors < self.mistake_every {
            return None;
        }
        let width = high - low;
        let even = |i: usize| i as f64 / SAMPLES as f64;
        let crowded = |i: usize| libm::exp2(-0.5 * i as f64);
        let mut points: [f64; 2 * SAMPLES] = core::array::from_fn(|i| {
            let share = if i < SAMPLES { even(i) } else { crowded(i - SAMPLES) };
            high - width * share
        });
        points.sort_by(|a, b| b.total_cmp(a));
        let mut best = (0, f64::NEG_INFINITY);
        for (i, &h) in points.iter().enumerate() {
            let value = self.recurrence(h);
            if value >= self.mistake_every {
                let above = if i == 0 { h } else { points[i - 1] };
                return Some(self.crossing(h, above));
            }
            if value > best.1 {
                best = (i, value);
            }
        }
        // The top of the tooth may lie between two points.
        let above = points[best.0.saturating_sub(1)];
        let below = points[(best.0 + 1).min(points.len() - 1)];
        let top = self.top(below, above);
        self.meets(top).then(|| self.crossing(top, above))
    }

    /// Between an interval that meets the bound and a larger one that does not: the largest that
    /// does.
    fn crossing(&self, mut meets: f64, mut fails: f64) -> f64 {
        for _ in 0..60 {
            let middle = 0.5 * (meets + fails);
            if self.meets(middle) { meets = middle } else { fails = middle }
        }
        meets
    }

    /// The interval with the most time between mistakes in a stretch that rises, then falls.
    fn top(&self, mut low: f64, mut high: f64) -> f64 {
        for _ in 0..60 {
            let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
            if self.recurrence(left) < self.recurrence(right) { low = left } else { high = right }
        }
        0.5 * (low + high)
    }

    pub(super) fn why_not(&self, min_interval: Duration) -> Infeasible {
        let floor = self.floor(min_interval);
        let limit = if self.ceiling(floor) < floor {
            if self.detect < 2.0 * floor { Quantity::Detection } else { Quantity::MistakeDuration }
        } else {
            Quantity::MistakeRecurrence
        };
        let seconds = |s: f64| (s < 1e10).then(|| Duration::from_nanos((s * 1e9) as u64));
        Infeasible::IntervalTooShort {
            min_interval: Duration::from_secs_f64(floor),
            limit,
            needed: self.largest_interval(self.floor(Duration::ZERO)).and_then(seconds),
            nearest: Nearest {
                detect: self.nearest_detect(floor).and_then(|s| seconds(s + 1e-9)),
                mistake_every: self.nearest_recurrence(floor).and_then(seconds),
                mistake_lasts: self.nearest_duration(floor).and_then(|s| seconds(s + 1e-9)),
            },
        }
    }

    /// The shortest detection time with which there is an interval of `floor` or more. More time
    /// to detect never hurts, so it can be found by halving.
    fn nearest_detect(&self, floor: f64) -> Option<f64> {
        let possible = |detect: f64| Request { detect, ..*self }.largest_interval(floor).is_some();
        let mut high = self.detect.max(2.0 * floor);
        // A year: nobody wants to wait longer for news of a crash.
        while !possible(high) {
            high *= 2.0;
            if high > 3e7 {
                return None;
            }
        }
        let mut low = self.detect;
        for _ in 0..50 {
            let middle = 0.5 * (low + high);
            if possible(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }

    /// The longest time between mistakes at any interval allowed.
    fn nearest_recurrence(&self, floor: f64) -> Option<f64> {
        if self.ceiling(floor) < floor {
            return None;
        }
        let possible = |mistake_every: f64| {
            Request { mistake_every, ..*self }.largest_interval(floor).is_some()
        };
        let (mut low, mut high) = (self.recurrence(floor), self.mistake_every);
        for _ in 0..50 {
            let middle = 0.5 * (low + high);
            if possible(middle) { low = middle } else { high = middle }
        }
        Some(low)
    }

    /// The shortest duration of mistakes with which there is an interval of `floor` or more.
    fn nearest_duration(&self, floor: f64) -> Option<f64> {
        if self.detect < 2.0 * floor {
            return None;
        }
        let lasts = floor / self.timely();
        let mistake_lasts = lasts.max(self.mistake_lasts);
        let eased = Request { mistake_lasts: mistake_lasts * (1.0 + 1e-12), ..*self };
        (lasts > self.mistake_lasts && eased.largest_interval(floor).is_some()).then_some(lasts)
    }
}
