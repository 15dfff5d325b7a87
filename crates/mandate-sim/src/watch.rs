//! What is watched of a run. A protocol says what must hold of it ([`Invariants`]); [`Watch`] writes the trace, keeps the first
//! violation and ends the run there.

use core::time::Duration;

use mandate_proto::election::State;
use mandate_proto::identity::Term;

use crate::fault::MemberName;
use crate::installation::invariants::one_leader_per_term::OneLeaderPerTerm;
use crate::network::HostIndex;
use crate::subject::{Moment, Observation, SimulationObserver, Subject};
use crate::trace::Trace;
use crate::verdict::Violation;

/// The name of an invariant, and what broke it.
pub(crate) type Broken = (&'static str, String);

/// What must hold of a protocol.
pub(crate) trait Invariants<S: Subject> {
    /// Checks what was observed.
    fn check(&mut self, moment: Moment, what: &Observation<'_, S>) -> Result<(), Broken>;

    /// How often a member became leader.
    fn reigns(&self) -> u64;
}

/// Watches a run.
pub(crate) struct Watch<'a, I> {
    /// What must hold.
    pub(crate) invariants: I,
    /// Whether something happens that is outside what is guaranteed. Invariants may break then; what must happen must
    /// happen still.
    pub(crate) is_outside: bool,
    trace: Option<Trace<'a>>,
    violation: Option<Violation>,
    agreement: f64,
}

impl<'a, I> Watch<'a, I> {
    /// Watches these invariants.
    pub(crate) fn new(invariants: I, trace: Option<&'a mut dyn std::io::Write>) -> Self {
        let trace = trace.map(Trace::new);
        Watch { invariants, is_outside: false, trace, violation: None, agreement: 0.0 }
    }

    /// Something happened that must never happen.
    pub(crate) fn fail(&mut self, invariant: &'static str, what: String) {
        if !self.is_outside {
            self.violation.get_or_insert(Violation::Correctness { invariant, what });
        }
    }

    /// Something did not happen in time.
    pub(crate) fn stall(&mut self, invariant: &'static str, what: String) {
        self.violation.get_or_insert(Violation::Liveness { invariant, what });
    }

    /// What was violated, if anything.
    pub(crate) fn verdict(&self) -> Result<(), Violation> {
        self.violation.clone().map_or(Ok(()), Err)
    }

    /// Whether something was violated.
    pub(crate) fn is_done(&self) -> bool {
        self.violation.is_some()
    }

    /// Something took so much of the time that it may take.
    pub(crate) fn took(&mut self, took: Duration, bound: Duration) {
        self.agreement = self.agreement.max(took.as_secs_f64() / bound.as_secs_f64());
    }

    /// The largest share of its bound that anything took.
    pub(crate) fn agreement(&self) -> f64 {
        self.agreement
    }

    /// Writes a line into the trace.
    pub(crate) fn note(&mut self, moment: Moment, text: &str) {
        if let Some(trace) = &mut self.trace {
            trace.note(moment, text);
        }
    }
}

impl<S: Subject, I: Invariants<S>> SimulationObserver<S> for Watch<'_, I> {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, S>) {
        if let Some(trace) = &mut self.trace {
            trace.observe(moment, what);
        }
        if let Err((name, what)) = self.invariants.check(moment, what) {
            self.fail(name, format!("{what} (at {} s)", moment.now));
        }
    }

    fn is_done(&self) -> bool {
        Watch::is_done(self)
    }
}

/// What members say of leaders: their states, and the terms that they have seen.
pub(crate) struct LeaderWatch {
    /// Who has led under which term.
    pub(crate) one_leader: OneLeaderPerTerm,
    /// What each member last said.
    pub(crate) states: Vec<State>,
    /// The highest term that each member has seen a leader in.
    seen: Vec<Term>,
}

impl LeaderWatch {
    /// Watches `size` members.
    pub(crate) fn new(size: usize) -> Self {
        LeaderWatch {
            one_leader: OneLeaderPerTerm::default(),
            states: vec![State::Electing; size],
            seen: vec![Term::NONE; size],
        }
    }

    /// A process has started, one that is no member perhaps.
    pub(crate) fn start(&mut self, host: HostIndex) {
        if let Some(state) = self.states.get_mut(host) {
            *state = State::Electing;
        }
    }

    /// A member says whom it follows, or that it leads: no two under one term.
    pub(crate) fn change(&mut self, host: HostIndex, state: State) -> Result<(), String> {
        self.states[host] = state;
        match state {
            State::Leading { term } => self.one_leader.check(host, term),
            _ => Ok(()),
        }
    }

    /// A member has seen a leader of this term: not of a lower one than before.
    pub(crate) fn see(&mut self, host: HostIndex, term: Term) -> Result<(), String> {
        let seen = self.seen[host];
        if term < seen {
            return Err(format!("{} saw term {seen} and now {term}", MemberName(host)));
        }
        self.seen[host] = term;
        Ok(())
    }

    /// A process starts again and knows of terms up to this one.
    pub(crate) fn forget_above(&mut self, host: HostIndex, known: Term) {
        self.seen[host] = self.seen[host].min(known);
    }

    /// A member has lost its disk, and with it what it had seen.
    pub(crate) fn forget(&mut self, host: HostIndex) {
        self.seen[host] = Term::NONE;
    }
}
