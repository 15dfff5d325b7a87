//! How long a claim is waited for.
//!
//! A claim costs two writes in succession: the claimant's before it is sent, and the promisers' before they answer. A wait that
//! begins before the first of them is over before the second on a slow disk; everyone has written by then, the claim is
//! given up, and the next one costs all writes again, for as long as the disks stay slow. So the wait counts from when the
//! claim was on disk, allows for as much as the own writes took, and doubles with every claim in succession that
//! found no quorum. The others' disks are not known; they are taken to be like the own one, whose slow writes are remembered for a
//! while: one quick write in between does not make the disks of the group quick.
//!
//! Why not wait without a bound: two claimants that each bind a part of the group keep each other out until one gives up.

use core::time::Duration;

use crate::time::Instant;

/// The wait doubles this often at most. More would let two that claim the same term, each with half of the
/// group, keep it without a leader for long.
const MAX_DOUBLINGS: u32 = 3;

/// Of a slow write no more than this is remembered after a quicker one. Writes come with elections, which may be months apart: an outage
/// of the disk must not make the claims after it wait for minutes.
const MAX_REMEMBERED: Duration = Duration::from_secs(5);

/// For how many times as long as a write took the disk is taken to be as slow.
const SLOW_FOR: u32 = 20;

/// Writes under way, and claims that came to nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Patience {
    /// Writes that were asked for and are not durable yet.
    writing: u32,
    /// Since when the first of them is under way.
    since: Option<Instant>,
    /// How long the last write took, or half of what was remembered before it, whichever is longer.
    took: Duration,
    /// When the last write was durable.
    written: Option<Instant>,
    /// Claims in succession that no quorum promised.
    fruitless: u32,
}

impl Patience {
    /// A write was asked for.
    pub(super) fn writes(&mut self, now: Instant) {
        self.writing += 1;
        self.since.get_or_insert(now);
    }

    /// The first of the writes under way is durable.
    pub(super) fn written(&mut self, now: Instant) {
        self.writing = self.writing.saturating_sub(1);
        if let Some(since) = self.since.take() {
            self.took = (now - since).max((self.took / 2).min(MAX_REMEMBERED));
        }
        self.since = (self.writing > 0).then_some(now);
        self.written = Some(now);
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing > 0
    }

    /// How long a write takes, by the last ones.
    pub(super) fn took(&self) -> Duration {
        self.took
    }

    /// Whether a write that nothing urges should wait: one of the last took so long that half of a time like `limit` would be over
    /// before the next one is done. Some writes' time later it is tried nevertheless: nobody knows how quick the disk is by then.
    pub(super) fn is_slow(&self, limit: Duration, now: Instant) -> bool {
        let until = self.written.map(|written| written + self.took.saturating_mul(SLOW_FOR));
        !limit.is_zero() && self.took > limit / 2 && until.is_some_and(|until| now < until)
    }

    /// A claim found no quorum.
    pub(super) fn fruitless(&mut self) {
        self.fruitless += 1;
    }

    /// Somebody leads.
    pub(super) fn led(&mut self) {
        self.fruitless = 0;
    }

    /// How long to wait for a quorum, where `least` would do on disks that take no time.
    pub(super) fn of(&self, least: Duration) -> Duration {
        let doubled = least.saturating_mul(1 << self.fruitless.min(MAX_DOUBLINGS));
        doubled + self.took.saturating_mul(2)
    }
}
