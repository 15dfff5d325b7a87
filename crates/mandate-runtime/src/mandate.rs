//! The leader's proof, computed when it is asked for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mandate_proto::identity::Term;
use mandate_proto::time::Instant;

use crate::clock::Clock;

/// What a driver has published: the term that its member holds, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The term.
    pub term: Term,
    /// What tells apart two reigns where terms do not; the origin where they do.
    pub began: Instant,
    /// Until when it is sure; `None` without leases.
    pub until: Option<Instant>,
}

/// Where it is published.
#[derive(Debug)]
pub(crate) struct Board {
    clock: Clock,
    held: Mutex<Option<Held>>,
}

impl Board {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Board { clock, held: Mutex::new(None) })
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn publish(&self, held: Option<Held>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }

    pub(crate) fn held(&self) -> Option<Held> {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The leader's proof: a term, and a deadline on the local clock that every call of
/// [`check`](Mandate::check) compares with. It is never a cached flag: a process that was paused or
/// suspended for longer than its lease gets the right answer from the first call on.
///
/// `check()` is for deciding whether to begin something. What reaches another system may arrive later
/// than any deadline: send the [`term`](Mandate::term) along, and have that system refuse lower ones.
#[derive(Clone, Debug)]
pub struct Mandate {
    term: Term,
    began: Instant,
    board: Arc<Board>,
}

impl Mandate {
    pub(crate) fn new(held: Held, board: Arc<Board>) -> Self {
        Mandate { term: held.term, began: held.began, board }
    }

    /// Whether this is the reign that is published, held or not.
    pub(crate) fn is_of(&self, held: Held) -> bool {
        (self.term, self.began) == (held.term, held.began)
    }

    /// Whether this member leads in this term now. Under `Leased`, no other member's `check` says so at
    /// the same instant, given clocks within the drift allowance; under `Fenced`, it is what this member
    /// knows. Under `Overlap`, it is that this member leads and the others cannot have given it up yet for its
    /// silence.
    pub fn check(&self) -> bool {
        self.remaining() != Some(Duration::ZERO)
    }

    /// The fencing token. Zero under `Overlap`, which has none: a register that checks terms refuses it.
    pub fn term(&self) -> Term {
        self.term
    }

    /// A number that tells apart two reigns of this process in one term: under `Overlap`, where all have term zero.
    pub fn reign(&self) -> u64 {
        self.began.as_nanos()
    }

    /// Whether this reign began after that one.
    pub(crate) fn is_later_than(&self, other: &Mandate) -> bool {
        (self.term, self.began) > (other.term, other.began)
    }

    /// How long the lease lasts from now on: zero if this member does not lead, `None` if it leads
    /// without leases.
    pub fn remaining(&self) -> Option<Duration> {
        // Read before the clock, so that a later deadline is not compared with an earlier time.
        let held = self.board.held().filter(|held| self.is_of(*held));
        match held {
            None => Some(Duration::ZERO),
            Some(Held { until: None, .. }) => None,
            Some(Held { until: Some(until), .. }) => Some(until - self.board.clock.now()),
        }
    }

    /// When the lease ends, by the system's clock that `tokio` and `std` use; `None` without leases.
    /// For timers; [`check`](Mandate::check) is what decides.
    pub fn deadline(&self) -> Option<std::time::Instant> {
        self.remaining().map(|remaining| std::time::Instant::now() + remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_while_its_term_is_published_and_the_deadline_lies_ahead() {
        let clock = Clock::start();
        let board = Board::new(clock);
        let held = |term, until| Held { term: Term::new(term), began: Instant::ORIGIN, until };
        let mandate = Mandate::new(held(3, None), board.clone());
        assert!(!mandate.check());
        let until = Some(clock.now() + Duration::from_secs(60));
        board.publish(Some(held(3, until)));
        assert!(mandate.check());
        assert!(mandate.remaining().unwrap() > Duration::from_secs(50));
        board.publish(Some(held(4, until)));
        assert!(!mandate.check(), "another term");
        board.publish(Some(held(3, Some(clock.now()))));
        assert!(!mandate.check(), "over");
        board.publish(Some(held(3, None)));
        assert!(mandate.check() && mandate.remaining().is_none());
        board.publish(Some(Held { began: clock.now(), ..held(3, None) }));
        assert!(!mandate.check(), "another reign");
    }
}
