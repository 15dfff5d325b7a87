//! What a group did, saw and wrote, by one clock.
//!
//! Members tell what they did over a pipe each, so acts arrive out of order between members and in order
//! from each. What is judged needs of a reign only its first and last act; acts one by one are kept until
//! they are [forgotten](History::forget_acts), so that long experiments stay small.

use std::collections::BTreeMap;

use mandate_proto::identity::{MemberId, Term};
use mandate_runtime::clock;

use crate::protocol::{ActorReport, Seen};
use crate::register::Accepted;

/// What the clock that all processes of the host share reads, in nanoseconds.
pub fn now() -> u64 {
    u64::try_from(clock::since_boot().as_nanos()).unwrap_or(u64::MAX)
}

/// Something that a member did in a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// The member that acted.
    pub member: MemberId,
    /// In which term.
    pub term: Term,
    /// When, in nanoseconds on the clock that all processes of the host share.
    pub at: u64,
}

/// Everything that one member did in one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermActs {
    /// When it did something first.
    pub first: u64,
    /// And last.
    pub last: u64,
    /// How often.
    pub acts: u64,
}

/// Who leads, as a member saw it from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderView {
    /// Who saw it.
    pub member: MemberId,
    /// From when on.
    pub at: u64,
    /// The leader that it saw, or none.
    pub seen: Seen,
}

/// A write that the register refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedWrite {
    /// Who wrote.
    pub member: MemberId,
    /// In which term.
    pub term: Term,
    /// The higher one that the register had seen.
    pub highest: Term,
    /// Whether the member's mandate held after that.
    pub held: bool,
}

/// What a group did, saw and wrote.
#[derive(Clone, Debug, Default)]
pub struct History {
    reigns: BTreeMap<(Term, MemberId), TermActs>,
    acts: Vec<Act>,
    newest: Option<Act>,
    views: Vec<LeaderView>,
    refusals: Vec<RefusedWrite>,
    /// What the register took, in its order.
    pub accepted: Vec<Accepted>,
}

impl History {
    /// Records what a member said, if it is of what it did or saw.
    pub fn record(&mut self, member: MemberId, report: &ActorReport) {
        match *report {
            ActorReport::Act { term, at } => self.act(Act { member, term, at }),
            ActorReport::View { at, seen } => self.views.push(LeaderView { member, at, seen }),
            ActorReport::Refused { term, highest, held } => {
                self.refusals.push(RefusedWrite { member, term, highest, held });
            }
            ActorReport::Ready
            | ActorReport::Working { .. }
            | ActorReport::Done { .. }
            | ActorReport::Stopped => {}
        }
    }

    fn act(&mut self, act: Act) {
        let Act { member, term, at } = act;
        let none = TermActs { first: at, last: at, acts: 0 };
        let reign = self.reigns.entry((term, member)).or_insert(none);
        reign.first = reign.first.min(at);
        reign.last = reign.last.max(at);
        reign.acts += 1;
        self.acts.push(act);
        self.newest = Some(act);
    }

    /// Who did something in which term, by terms.
    pub fn reigns(&self) -> impl DoubleEndedIterator<Item = (Term, MemberId, TermActs)> {
        self.reigns.iter().map(|((term, member), reign)| (*term, *member, *reign))
    }

    /// What one member did in one term.
    pub fn reign(&self, term: Term, member: MemberId) -> Option<TermActs> {
        self.reigns.get(&(term, member)).copied()
    }

    /// The last act in the highest term.
    pub fn latest(&self) -> Option<Act> {
        let (term, member, reign) = self.reigns().next_back()?;
        Some(Act { member, term, at: reign.last })
    }

    /// The act that was told last, whatever its term.
    pub fn newest(&self) -> Option<Act> {
        self.newest
    }

    /// The acts that were not forgotten.
    pub fn acts(&self) -> &[Act] {
        &self.acts
    }

    /// Acts in all, also those that were forgotten.
    pub fn counted(&self) -> u64 {
        self.reigns.values().map(|reign| reign.acts).sum()
    }

    /// Forgets acts one by one; of each reign its beginning, end and number stay.
    pub fn forget_acts(&mut self) {
        self.acts.clear();
    }

    /// What members saw, as it was told; in order for each of them.
    pub fn views(&self) -> &[LeaderView] {
        &self.views
    }

    /// What a member saw last.
    pub fn view(&self, member: MemberId) -> Option<Seen> {
        self.views.iter().rev().find(|view| view.member == member).map(|view| view.seen)
    }

    /// What the register refused.
    pub fn refusals(&self) -> &[RefusedWrite] {
        &self.refusals
    }
}
