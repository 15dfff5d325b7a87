//! What is watched of a run.

use std::collections::BTreeSet;

use mandate_proto::identity::Term;
use mandate_proto::registers::{ControlState, Event, SqlGuarantee, Version};

use super::{Node, NodeEvent};
use crate::fault::MemberName;
use crate::host::host_of;
use crate::installation::invariants::one_leader_per_term;
use crate::network::HostIndex;
use crate::subject::{Moment, Observation};
use crate::values::{self, ValuesOfTerm};
use crate::watch::{Broken, Invariants, LeaderWatch};

/// Reported when a member takes over although it has seen a lease that still runs.
const SEEN_LEASES: &str = "a lease that was seen is waited for";

/// Reported when a member is shown that the control row went back, or is gone, and does not say so: each time, at once.
const LOSSES_TOLD: &str = "losses are told of";

/// Reported when a term goes back, at the database or at an observer.
const TERMS_RISE: &str = "terms rise";

/// What must hold of terms.
pub(super) struct Terms {
    pub(super) leaders: LeaderWatch,
    values: ValuesOfTerm,
    written: Option<Version>,
    /// Terms whose leaders relied on no lease.
    fenced: BTreeSet<Term>,
    /// The database may be restored to what it was: then terms may go back.
    pub(super) goes_back: bool,
    /// And sooner than a lease after what it lost: whose takeover is then right is judged by what each has seen.
    pub(super) loses: bool,
    /// The control row went back, or was removed.
    pub(super) has_lost: bool,
    /// What was known of earlier terms was lost.
    has_lost_history: bool,
}

impl Terms {
    pub(super) fn new(size: usize, (goes_back, loses): (bool, bool)) -> Self {
        Terms {
            leaders: LeaderWatch::new(size),
            values: ValuesOfTerm::published_apart(),
            written: None,
            fenced: BTreeSet::new(),
            goes_back: goes_back || loses,
            loses,
            has_lost: false,
            has_lost_history: false,
        }
    }

    fn told(&mut self, host: HostIndex, event: &Event) -> Result<(), Broken> {
        match event {
            Event::Changed(state) => {
                let changed = self.leaders.change(host, *state);
                // Terms may come again if all that knows of them is lost.
                let may_repeat = self.goes_back && self.has_lost_history;
                changed.or_else(|what| excused(may_repeat, one_leader_per_term::NAME, what))
            }
            Event::Published { leader, term, value } => {
                let checked = self.values.check(host, (host_of(*leader), *term), value);
                checked.or_else(|what| excused(self.goes_back, values::NAME, what))
            }
            Event::Reigned(reign) if reign.leader.is_some() => {
                let seen = self.leaders.see(host, reign.term);
                seen.or_else(|what| excused(self.goes_back, TERMS_RISE, what))
            }
            _ => Ok(()),
        }
    }

    /// Whether a leader without a lease was deposed, after the one of this term and before the other, by one of its kind.
    pub(super) fn has_fenced_term_between(&self, after: Term, before: Term) -> bool {
        after < before && self.fenced.iter().any(|term| after < *term && *term < before)
    }

    fn written(&mut self, row: &ControlState) -> Result<(), Broken> {
        let version = row.version;
        if row.leader.is_some() && row.published.guarantee == SqlGuarantee::Fenced {
            self.fenced.insert(version.term);
        }
        let before = self.written.replace(version);
        if let Some(before) = before.filter(|before| version <= *before && !self.goes_back) {
            return Err((TERMS_RISE, format!("the row was {before} and is {version}")));
        }
        Ok(())
    }
}

impl Invariants<Node> for Terms {
    fn check(&mut self, moment: Moment, what: &Observation<'_, Node>) -> Result<(), Broken> {
        match what {
            Observation::Told(NodeEvent::Member(event)) => self.told(moment.host, event),
            Observation::Told(NodeEvent::Written(Some(row))) => self.written(row),
            Observation::Told(NodeEvent::Lost { row, history }) => {
                self.has_lost |= *row;
                self.has_lost_history |= *history;
                Ok(())
            }
            Observation::Told(NodeEvent::Untold(what)) => Err((
                LOSSES_TOLD,
                format!("{} {what}, and does not say so", MemberName(moment.host)),
            )),
            Observation::Told(NodeEvent::Impatient(what)) if self.loses => {
                Err((SEEN_LEASES, format!("{} {what}", MemberName(moment.host))))
            }
            Observation::Started(_) => {
                self.leaders.start(moment.host);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn reigns(&self) -> u64 {
        self.leaders.one_leader.terms() as u64
    }
}

/// What broke an invariant, unless that is excused.
fn excused(is_excused: bool, invariant: &'static str, what: String) -> Result<(), Broken> {
    if is_excused { Ok(()) } else { Err((invariant, what)) }
}
