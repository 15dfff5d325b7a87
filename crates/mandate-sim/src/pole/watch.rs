//! What is watched of a run.

use mandate_proto::identity::Term;
use mandate_proto::pole::member::{Event, Member, State};

use crate::fault::{DiskFate, Fault, Name};
use crate::host::host_of;
use crate::installation::invariants::one_leader_per_term::{self, OneLeaderPerTerm};
use crate::installation::invariants::terms_rise::{self, TermsRise};
use crate::network::HostIndex;
use crate::subject::{Moment, Observation, Observer};
use crate::trace::Trace;
use crate::verdict::Violation;

/// Watches terms, and who sees which.
pub(super) struct Watch<'a> {
    pub(super) one_leader: OneLeaderPerTerm,
    terms_rise: TermsRise,
    /// The highest term that each member has seen a leader in, in all its lives.
    seen: Vec<Term>,
    /// What each member last said.
    pub(super) states: Vec<State>,
    /// Whose disk was lost at some time.
    pub(super) disk_lost: Vec<bool>,
    /// Who suspected whom, since this was last cleared.
    pub(super) suspicions: Vec<(HostIndex, HostIndex)>,
    /// Of whose disk another said that it went back.
    pub(super) went_back: Vec<bool>,
    /// Disks are put back to an older state in the storm: what is promised assumes that none is.
    pub(super) is_outside: bool,
    trace: Option<Trace<'a>>,
    pub(super) violation: Option<Violation>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(size: usize, trace: Option<Trace<'a>>) -> Self {
        Watch {
            one_leader: OneLeaderPerTerm::default(),
            terms_rise: TermsRise::new(size),
            seen: vec![Term::NONE; size],
            states: vec![State::Electing; size],
            disk_lost: vec![false; size],
            suspicions: Vec::new(),
            went_back: vec![false; size],
            is_outside: false,
            trace,
            violation: None,
        }
    }

    pub(super) fn fail(&mut self, invariant: &'static str, what: String) {
        if self.is_outside {
            return;
        }
        self.violation.get_or_insert(Violation::Correctness { invariant, what });
    }

    pub(super) fn stall(&mut self, invariant: &'static str, what: String) {
        self.violation.get_or_insert(Violation::Liveness { invariant, what });
    }

    fn see(&mut self, host: HostIndex, state: State) -> Result<(), String> {
        self.states[host] = state;
        let term = match state {
            State::Electing => return Ok(()),
            State::Following { term, .. } | State::Leading { term } => term,
        };
        if term < self.seen[host] {
            return Err(format!("{} saw term {} and now {term}", Name(host), self.seen[host]));
        }
        self.seen[host] = term;
        if let State::Leading { term } = state {
            return self.one_leader.check(host, term);
        }
        Ok(())
    }
}

impl Observer<Member> for Watch<'_> {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, Member>) {
        if let Some(trace) = &mut self.trace {
            trace.observe(moment, what);
        }
        let checked = match what {
            Observation::Told(Event::Changed(state)) => {
                (one_leader_per_term::NAME, self.see(moment.host, *state))
            }
            Observation::Durable(promised) => {
                (terms_rise::NAME, self.terms_rise.check(moment.host, **promised))
            }
            Observation::Started(_) => {
                self.states[moment.host] = State::Electing;
                return;
            }
            Observation::Faulted(Fault::Recover {
                host,
                disk: DiskFate::Lost | DiskFate::Restored(_),
            }) => {
                self.disk_lost[*host] = true;
                self.terms_rise.forget(*host);
                // Without its disk a member names whom it hears.
                self.seen[*host] = Term::NONE;
                return;
            }
            Observation::Told(Event::Suspected { member, suspected: true }) => {
                // Of a member that no host runs nothing is ever heard.
                let host = host_of(*member);
                self.suspicions.extend((host < self.states.len()).then_some((moment.host, host)));
                return;
            }
            Observation::Told(Event::WentBack { member, .. }) => {
                self.went_back[host_of(*member)] |= host_of(*member) != moment.host;
                return;
            }
            _ => return,
        };
        if let (name, Err(what)) = checked {
            self.fail(name, format!("{what} (at {} s)", moment.now));
        }
    }

    fn is_done(&self) -> bool {
        self.violation.is_some()
    }
}
