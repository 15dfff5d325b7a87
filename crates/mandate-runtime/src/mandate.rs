//! The leader's proof, computed when it is asked for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mandate_proto::election::Lease;
use mandate_proto::identity::Term;
use mandate_proto::time::Instant;
use mandate_proto::value::Value;
use tokio::sync::Notify;

use crate::clock::Clock;

/// Where the lease that a member holds is published.
#[derive(Debug)]
pub(crate) struct LeaseCell {
    clock: Clock,
    shown: Mutex<Shown>,
    /// Loans that are out, of whatever term.
    lent: AtomicUsize,
    /// Told when the last one has come back.
    returned: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    held: Option<Lease>,
    /// What is not held any more, but lasts until its time for work that was begun under it.
    recalled: Option<Lease>,
}

impl LeaseCell {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(LeaseCell {
            clock,
            shown: Mutex::default(),
            lent: AtomicUsize::new(0),
            returned: Notify::new(),
        })
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, held: Option<Lease>) {
        *self.shown() = Shown { held, recalled: None };
    }

    /// Withdraws what is held, and lets work that was begun under it go on until then, or to the end of its lease if
    /// that comes first.
    pub(crate) fn recall(&self, by: Instant) {
        let mut shown = self.shown();
        let was = shown.held.take().or(shown.recalled);
        shown.recalled = was
            .map(|was| Lease { until: Some(was.until.map_or(by, |until| until.min(by))), ..was });
    }

    pub(crate) fn held(&self) -> Option<Lease> {
        self.shown().held
    }

    pub(crate) fn is_lent(&self) -> bool {
        self.lent.load(Ordering::SeqCst) > 0
    }

    /// Waits until the last loan has come back. One that came back before this was called is not missed.
    pub(crate) async fn returned(&self) {
        self.returned.notified().await;
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
    /// What was published with the term when the state that this is part of was told.
    value: Option<Value>,
    cell: Arc<LeaseCell>,
}

impl Mandate {
    pub(crate) fn new(held: Lease, cell: Arc<LeaseCell>) -> Self {
        Mandate { term: held.term, began: held.began, value: None, cell }
    }

    pub(crate) fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    /// Whether that is another value than before.
    pub(crate) fn set_value(&mut self, value: &Value) -> bool {
        self.value.replace(value.clone()).as_ref() != Some(value)
    }

    /// Whether this is the reign that is published, held or not.
    pub(crate) fn is_of(&self, held: Lease) -> bool {
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

    /// Lends the mandate to work that ends by itself when it is [wanted back](Mandate::drains_for); `None` if it does not
    /// hold any more. An engine that is told in time that leadership is to move, as the ledger engine is, does not let
    /// it go before all loans are back, within a bound.
    pub fn lend(&self) -> Option<Loan> {
        // Counted before it is asked: the code that recalls it looks in the other order.
        self.cell.lent.fetch_add(1, Ordering::SeqCst);
        let loan = Loan { cell: self.cell.clone() };
        self.check().then_some(loan)
    }

    /// How long work that was begun under this mandate may still take, if it does not hold any more because leadership
    /// is to move, and that waits for the work; `None` otherwise. Nothing new may be begun.
    pub fn drains_for(&self) -> Option<Duration> {
        // Read before the clock, as above.
        let recalled = self.cell.shown().recalled.filter(|recalled| self.is_of(*recalled))?;
        let left = recalled.until? - self.cell.clock.now();
        (!left.is_zero()).then_some(left)
    }

    /// How long the lease lasts from now on: zero if this member does not lead, `None` if it leads
    /// without leases.
    pub fn remaining(&self) -> Option<Duration> {
        // Read before the clock, so that a later deadline is not compared with an earlier time.
        let held = self.cell.held().filter(|held| self.is_of(*held));
        match held {
            None => Some(Duration::ZERO),
            Some(Lease { until: None, .. }) => None,
            Some(Lease { until: Some(until), .. }) => Some(until - self.cell.clock.now()),
        }
    }

    /// When the lease ends, by the system's clock that `tokio` and `std` use; `None` without leases.
    /// For timers; [`check`](Mandate::check) is what decides.
    pub fn deadline(&self) -> Option<std::time::Instant> {
        self.remaining().map(|remaining| std::time::Instant::now() + remaining)
    }
}

/// Work under way that a mandate was [lent](Mandate::lend) to. It is given back when this is dropped.
#[derive(Debug)]
pub struct Loan {
    cell: Arc<LeaseCell>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.cell.lent.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.cell.returned.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_while_its_term_is_published_and_the_deadline_lies_ahead() {
        let clock = Clock::start();
        let cell = LeaseCell::new(clock);
        let held = |term, until| Lease { term: Term::new(term), began: Instant::ORIGIN, until };
        let mandate = Mandate::new(held(3, None), cell.clone());
        assert!(!mandate.check());
        let until = Some(clock.now() + Duration::from_secs(60));
        cell.publish(Some(held(3, until)));
        assert!(mandate.check());
        assert!(mandate.remaining().unwrap() > Duration::from_secs(50));
        cell.publish(Some(held(4, until)));
        assert!(!mandate.check(), "another term");
        cell.publish(Some(held(3, Some(clock.now()))));
        assert!(!mandate.check(), "over");
        cell.publish(Some(held(3, None)));
        assert!(mandate.check() && mandate.remaining().is_none());
        cell.publish(Some(Lease { began: clock.now(), ..held(3, None) }));
        assert!(!mandate.check(), "another reign");
    }
    #[tokio::test]
    async fn what_is_wanted_back_lasts_for_what_was_begun_and_for_nothing_new() {
        let clock = Clock::start();
        let cell = LeaseCell::new(clock);
        let after = |seconds| clock.now() + Duration::from_secs(seconds);
        let held = Lease { term: Term::new(3), began: Instant::ORIGIN, until: Some(after(60)) };
        let mandate = Mandate::new(held, cell.clone());
        assert!(mandate.lend().is_none() && !cell.is_lent(), "it does not hold yet");
        cell.publish(Some(held));
        let loan = mandate.lend().unwrap();
        assert!(cell.is_lent() && mandate.drains_for().is_none());
        cell.recall(after(30));
        assert!(!mandate.check() && mandate.lend().is_none());
        let left = mandate.drains_for().unwrap();
        assert!(left <= Duration::from_secs(30) && left > Duration::from_secs(20), "{left:?}");
        cell.recall(after(90));
        assert!(mandate.drains_for().unwrap() <= Duration::from_secs(30), "it never grows");
        drop(loan);
        cell.returned().await;
        assert!(!cell.is_lent());
        cell.publish(None);
        assert!(mandate.drains_for().is_none(), "it is over");
    }
}
