//! What is watched of a run.

use std::collections::BTreeSet;

use mandate_proto::identity::Term;
use mandate_proto::pole::member::State;
use mandate_proto::registers::{Control, Event, Guarantee, Version};

use super::{Node, NodeEvent};
use crate::fault::Name;
use crate::installation::invariants::one_leader_per_term::{self, OneLeaderPerTerm};
use crate::network::HostIndex;
use crate::subject::{Moment, Observation, Observer};
use crate::trace::Trace;
use crate::verdict::Violation;

/// Reported when a member takes over although it has seen a lease that still runs.
pub(super) const SEEN_LEASES: &str = "a lease that was seen is waited for";

/// Reported when a member is shown that the control row went back, or is gone, and does not say so: each time, at once.
pub(super) const LOSSES_TOLD: &str = "losses are told of";

/// Reported when a term goes back, at the database or at an observer.
pub(super) const TERMS_RISE: &str = "terms rise";

/// Watches terms, and who sees which.
pub(super) struct Watch<'a> {
    pub(super) one_leader: OneLeaderPerTerm,
    /// The highest term that each member has seen, in its present life if the database goes back, in all
    /// of them if not.
    seen: Vec<Term>,
    /// What each member last said.
    pub(super) states: Vec<State>,
    written: Option<Version>,
    /// Terms whose leaders relied on no lease.
    fenced: BTreeSet<Term>,
    /// The database may be restored to what it was.
    pub(super) goes_back: bool,
    /// And sooner than a lease after what it lost: whose takeover is then right is judged by what each has seen.
    pub(super) loses: bool,
    /// The control row went back, or was removed.
    pub(super) has_lost: bool,
    /// How many members were evicted.
    pub(super) removed: u64,
    trace: Option<Trace<'a>>,
    pub(super) violation: Option<Violation>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        size: usize,
        (goes_back, loses): (bool, bool),
        trace: Option<Trace<'a>>,
    ) -> Self {
        Watch {
            one_leader: OneLeaderPerTerm::default(),
            seen: vec![Term::NONE; size],
            states: vec![State::Electing; size],
            written: None,
            fenced: BTreeSet::new(),
            goes_back: goes_back || loses,
            loses,
            has_lost: false,
            removed: 0,
            trace,
            violation: None,
        }
    }

    pub(super) fn fail(&mut self, invariant: &'static str, what: String) {
        self.violation.get_or_insert(Violation::Correctness { invariant, what });
    }

    pub(super) fn stall(&mut self, invariant: &'static str, what: String) {
        self.violation.get_or_insert(Violation::Liveness { invariant, what });
    }

    fn told(&mut self, host: HostIndex, event: &Event) -> Result<(), (&'static str, String)> {
        match event {
            Event::Changed(state) => {
                self.states[host] = *state;
                if let State::Leading { term } = state {
                    let checked = self.one_leader.check(host, *term);
                    // Terms that nobody alive has seen may come again with an older database.
                    return match self.goes_back {
                        true => Ok(()),
                        false => checked.map_err(|what| (one_leader_per_term::NAME, what)),
                    };
                }
            }
            Event::Reigned(reign) if reign.leader.is_some() => {
                let seen = std::mem::replace(&mut self.seen[host], reign.term);
                if reign.term < seen && !self.goes_back {
                    let what = format!("{} saw term {seen} and now {}", Name(host), reign.term);
                    return Err((TERMS_RISE, what));
                }
            }
            Event::Removed { .. } => self.removed += 1,
            _ => {}
        }
        Ok(())
    }

    /// Whether a leader without a lease was deposed, after the one of this term and before the other, by one of its kind.
    pub(super) fn has_fenced_term_between(&self, after: Term, before: Term) -> bool {
        after < before && self.fenced.iter().any(|term| after < *term && *term < before)
    }

    fn written(&mut self, row: &Control) -> Result<(), (&'static str, String)> {
        let version = row.version;
        if row.leader.is_some() && row.published.guarantee == Guarantee::Fenced {
            self.fenced.insert(version.term);
        }
        let before = self.written.replace(version);
        if let Some(before) = before.filter(|before| version <= *before && !self.goes_back) {
            return Err((TERMS_RISE, format!("the row was {before} and is {version}")));
        }
        Ok(())
    }
}

impl Observer<Node> for Watch<'_> {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, Node>) {
        if let Some(trace) = &mut self.trace {
            trace.observe(moment, what);
        }
        let checked = match what {
            Observation::Told(NodeEvent::Member(event)) => self.told(moment.host, event),
            Observation::Told(NodeEvent::Written(Some(row))) => self.written(row),
            Observation::Told(NodeEvent::Lost) => {
                self.has_lost = true;
                Ok(())
            }
            Observation::Told(NodeEvent::Untold(what)) => {
                Err((LOSSES_TOLD, format!("{} {what}, and does not say so", Name(moment.host))))
            }
            Observation::Told(NodeEvent::Impatient(what)) if self.loses => {
                Err((SEEN_LEASES, format!("{} {what}", Name(moment.host))))
            }
            Observation::Started(_) if moment.host < self.states.len() => {
                self.states[moment.host] = State::Electing;
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err((name, what)) = checked {
            self.fail(name, format!("{what} (at {} s)", moment.now));
        }
    }

    fn is_done(&self) -> bool {
        self.violation.is_some()
    }
}
