//! What is remembered of an election, so that it can be explained.

use alloc::vec::Vec;
use core::time::Duration;

use super::interface::Cause;
use crate::identity::{MemberId, Term};
use crate::oracle::{Oracle, Ranking, View, rank_standings};
use crate::pole::selection::{Ended, Selection};
use crate::time::Instant;

/// An election as one member saw it: who stood, with which scores and inputs, who won and on what,
/// and how long each phase took.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Why there was one.
    pub cause: Cause,
    /// Who led before.
    pub former: Option<MemberId>,
    /// Who leads now,
    pub leader: MemberId,
    /// and in which term.
    pub term: Term,
    /// How the last selection ended; `None` if this member heard of the leader without one.
    pub ended: Option<Ended>,
    /// All that proposed in it, the best first, with what each measured of itself; then those that
    /// are no candidates, and why.
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
    selected: Option<(Ended, Instant, Ranking, Vec<MemberId>)>,
}

impl Draft {
    pub(super) fn new(cause: Cause, former: Option<MemberId>, now: Instant) -> Self {
        Draft { cause, former, began: now, rounds: 0, selected: None }
    }

    pub(super) fn selected(
        &mut self,
        oracle: &Oracle,
        selection: &Selection,
        ended: Ended,
        suspected: Vec<MemberId>,
        now: Instant,
    ) {
        let standings = selection.proposed().iter().map(|(id, standing)| (*id, *standing));
        let ranking = rank_standings(oracle, standings);
        self.rounds += 1;
        self.selected = Some((ended, now, ranking, suspected));
    }

    pub(super) fn finish(self, leader: MemberId, term: Term, view: View, now: Instant) -> Record {
        let (ended, selected, ranking, suspected) = match self.selected {
            Some((ended, at, ranking, suspected)) => (Some(ended), at, ranking, suspected),
            None => (None, now, Ranking { winner: None, candidates: Vec::new() }, Vec::new()),
        };
        Record {
            cause: self.cause,
            former: self.former,
            leader,
            term,
            ended,
            ranking,
            suspected,
            view,
            began: self.began,
            selection: selected - self.began,
            installation: now - selected,
            rounds: self.rounds,
        }
    }
}
