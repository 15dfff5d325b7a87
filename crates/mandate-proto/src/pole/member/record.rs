//! What is remembered of an election, so that it can be explained.

use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::interface::Cause;
use crate::identity::{MemberId, Term};
use crate::oracle::{Measure, Oracle, Ranking, View, rank_standings};
use crate::pole::selection::{Selection, SelectionEnd};
use crate::time::Instant;

/// Why a leader that was well handed over. The leader tells all members, so that each can explain the change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Handover {
    /// It was asked to: by an operator, or by the application.
    Asked,
    /// By score: the successor would serve better.
    Better {
        /// In what.
        measure: Measure,
        /// What the leader measured of itself.
        present: f64,
        /// What the successor would.
        predicted: f64,
    },
}

impl Handover {
    pub(super) fn cause(self) -> Cause {
        match self {
            Handover::Asked => Cause::Transferred,
            Handover::Better { .. } => Cause::Moved,
        }
    }
}

/// An election as one member saw it: who stood, with which scores and inputs, who won and on what,
/// and how long each phase took.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Why there was one.
    pub cause: Cause,
    /// Why the former leader handed over, if it did.
    pub handover: Option<Handover>,
    /// Who led before.
    pub former: Option<MemberId>,
    /// Who leads now,
    pub leader: MemberId,
    /// and in which term.
    pub term: Term,
    /// How the last selection ended; `None` if this member heard of the leader before that, and then
    /// the ranking is of those it had heard by then. The leader's own record is the whole one.
    pub ended: Option<SelectionEnd>,
    /// All that proposed in it, the best first, with what each measured of itself; then those that
    /// are no candidates, and why. If leadership was handed over, nobody proposed: then all that had said what they
    /// would be worth in place of the former leader, as this member knew it.
    pub ranking: Ranking,
    /// Members that were suspected and so not waited for.
    pub suspected: Vec<MemberId>,
    /// What this member knew when it scored itself: round trips and request rates.
    pub view: View,
    /// When it began.
    pub began: Instant,
    /// From the beginning until a leader was selected, for the last time.
    pub selection: Duration,
    /// From then until it was known to hold its mandate.
    pub installation: Duration,
    /// Selections: more than one if who was selected did not come to lead.
    pub rounds: u32,
}

/// An election under way.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) cause: Cause,
    former: Option<MemberId>,
    began: Instant,
    rounds: u32,
    selected: Option<(SelectionEnd, Instant, Field)>,
    /// The epoch that selection was in before: its proposals belong to another election.
    before: Term,
    /// Why the leader handed over, and what was compared then.
    handover: Option<(Handover, Ranking)>,
}

/// Who stood, and who was not waited for.
#[derive(Clone, Debug)]
pub(super) struct Field {
    ranking: Ranking,
    suspected: Vec<MemberId>,
}

impl Field {
    pub(super) fn of(oracle: &Oracle, selection: &Selection, suspected: Vec<MemberId>) -> Self {
        let standings = selection.proposed().iter().map(|(id, standing)| (*id, *standing));
        Field { ranking: rank_standings(oracle, standings), suspected }
    }
}

impl Draft {
    pub(super) fn new(cause: Cause, former: Option<MemberId>, before: Term, now: Instant) -> Self {
        Draft { cause, former, began: now, rounds: 0, selected: None, before, handover: None }
    }

    /// The leader has handed over; `compared` is what everyone would be worth in its place.
    pub(super) fn hand_over(&mut self, why: Handover, compared: Ranking) {
        self.handover = Some((why, compared));
    }

    pub(super) fn selected(&mut self, ended: SelectionEnd, field: Field, now: Instant) {
        self.rounds += 1;
        self.selected = Some((ended, now, field));
    }

    /// Ends it; `field` is how it stands if this member heard of the leader before its own selection
    /// had ended.
    pub(super) fn finish(
        self,
        (leader, term): (MemberId, Term),
        (epoch, mut field): (Term, Field),
        view: View,
        now: Instant,
    ) -> Record {
        if epoch == self.before {
            field.ranking = Ranking { winner: None, candidates: Vec::new() };
        }
        let handover = self.handover.as_ref().map(|(why, _)| *why);
        let (ended, selected, field) = match (self.selected, self.handover) {
            (Some((ended, at, field)), _) => (Some(ended), at, field),
            (None, Some((_, ranking))) => (None, now, Field { ranking, ..field }),
            (None, None) => (None, now, field),
        };
        Record {
            cause: self.cause,
            handover,
            former: self.former,
            leader,
            term,
            ended,
            ranking: field.ranking,
            suspected: field.suspected,
            view,
            began: self.began,
            selection: selected - self.began,
            installation: now - selected,
            rounds: self.rounds,
        }
    }
}
