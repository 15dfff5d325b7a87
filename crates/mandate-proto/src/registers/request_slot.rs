//! One statement at a time, and pauses after those that fail.
//!
//! A member has two lanes: what decides who leads must not wait behind a read of five thousand rows.

use core::time::Duration;

use super::chance::Chance;
use super::interface::StatementId;
use super::statement::Statement;
use crate::time::Instant;

/// Pauses double up to eightfold: a second of a database that is gone costs few statements.
const PAUSE_DOUBLINGS: u32 = 3;

/// Patience doubles up to fourfold: beyond that no lease could be kept anyway.
const PATIENCE_DOUBLINGS: u32 = 2;

/// A statement under way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) id: StatementId,
    pub(super) statement: Statement,
    /// Taken before it was asked for: leases count from here.
    pub(super) sent: Instant,
    pub(super) gives_up: Instant,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RequestSlot {
    pub(super) flight: Option<Flight>,
    /// How many failed in succession.
    pub(super) failures: u32,
    /// Nothing is sent before.
    pub(super) not_before: Instant,
}

impl RequestSlot {
    pub(super) fn is_free(&self) -> bool {
        self.flight.is_none()
    }

    /// When the answer is not waited for any longer. A database that is slower than we thought gets
    /// more time, or nothing would ever be answered.
    pub(super) fn patience(&self, timeout: Duration) -> Duration {
        timeout.saturating_mul(1 << self.failures.min(PATIENCE_DOUBLINGS))
    }

    /// The flight that this answers, which so ends.
    pub(super) fn land(&mut self, id: StatementId) -> Option<Flight> {
        self.flight.take_if(|flight| flight.id == id)
    }

    /// The flight that is over time, which so ends.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Flight> {
        self.flight.take_if(|flight| flight.gives_up <= now)
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Waits a while: longer with each failure, and never as long as another who failed at once.
    pub(super) fn failed(&mut self, pause: Duration, chance: &mut Chance, now: Instant) {
        let pause = pause.saturating_mul(1 << self.failures.min(PAUSE_DOUBLINGS));
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + pause / 2 + chance.below(pause) + Duration::from_nanos(1);
    }
}

/// The longest pause after a failure, as a multiple of the shortest.
pub(super) const MAX_PAUSE: u32 = (1 << PAUSE_DOUBLINGS) * 3 / 2;

/// The longest patience, as a multiple of the shortest.
pub(super) const MAX_PATIENCE: u32 = 1 << PATIENCE_DOUBLINGS;
