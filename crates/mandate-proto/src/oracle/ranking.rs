//! Who would win, and on what: the explanation behind an election.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Measure, Measured, NoScore, Oracle, View};
use crate::election::Candidacy;
use crate::identity::MemberId;
use crate::score::Score;

/// All candidates, the best first, then those without a score.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// Who wins, if anyone can.
    pub winner: Option<MemberId>,
    /// Everyone, in order.
    pub candidates: Vec<Candidate>,
}

/// One candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The candidate's id in the group's list of members.
    pub id: MemberId,
    /// What it measured of itself, and its score; `None` if it is no candidate.
    pub measured: Option<Measured>,
    /// What became of it.
    pub outcome: CandidateOutcome,
}

impl Candidate {
    /// What each term measured, in its own unit, before classes; nothing if it is no candidate.
    pub fn values(&self) -> &[f64] {
        self.measured.as_ref().map_or(&[], |measured| measured.values.components())
    }

    /// Its score, if it has one.
    pub fn score(&self) -> Option<Score> {
        self.measured.map(|measured| measured.score)
    }
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum CandidateOutcome {
    /// It wins: by what, over the second; `None` if there is no second.
    Wins(Option<Decided>),
    /// It loses to the winner: by what.
    Loses(Decided),
    /// It has no score.
    NotEligible(NoScore),
}

/// What decided between the winner and another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decided {
    /// A term of the oracle: its measure, the winner's value and the other's.
    Term {
        /// What was measured.
        measure: Measure,
        /// The winner's value.
        winner: f64,
        /// The other's.
        other: f64,
    },
    /// Equal scores: the higher id.
    Id {
        /// The winner's.
        winner: MemberId,
        /// The other's.
        other: MemberId,
    },
}

/// Ranks members by what each knows of itself.
pub fn rank(oracle: &Oracle, views: &[View]) -> Ranking {
    rank_standings(oracle, views.iter().map(|view| (view.me, oracle.measure(view))))
}

/// Ranks members by what each said of itself.
pub fn rank_standings(
    oracle: &Oracle,
    standings: impl IntoIterator<Item = (MemberId, Candidacy)>,
) -> Ranking {
    let mut scored = Vec::new();
    let mut without = Vec::new();
    for (id, standing) in standings {
        match standing {
            Ok(measured) => scored.push((measured, id)),
            Err(reason) => without.push((id, reason)),
        }
    }
    scored.sort_by_key(|(measured, id)| Reverse((measured.score, *id)));
    without.sort_by_key(|(id, _)| *id);
    let winner = scored.first().map(|(_, id)| *id);
    let outcome = |place: usize| {
        let other = if place == 0 { scored.get(1) } else { scored.get(place) };
        let decided = other.map(|other| decided(oracle, &scored[0], other));
        match decided {
            Some(decided) if place > 0 => CandidateOutcome::Loses(decided),
            decided => CandidateOutcome::Wins(decided),
        }
    };
    let ranked = scored.iter().enumerate().map(|(place, (measured, id))| Candidate {
        id: *id,
        measured: Some(*measured),
        outcome: outcome(place),
    });
    let unranked = without.into_iter().map(|(id, reason)| Candidate {
        id,
        measured: None,
        outcome: CandidateOutcome::NotEligible(reason),
    });
    Ranking { winner, candidates: ranked.chain(unranked).collect() }
}

type Scored = (Measured, MemberId);

fn decided(oracle: &Oracle, winner: &Scored, other: &Scored) -> Decided {
    let term = winner.0.score.decided_against(&other.0.score);
    let value = |scored: &Scored, place: usize| scored.0.values.components().get(place).copied();
    // Members whose oracles differ in length are set up differently; of their scores the shorter
    // is the lesser, and there is no value to show for it.
    let decisive = term.and_then(|place| {
        let measure = oracle.terms().get(place)?.measure;
        Some((measure, value(winner, place)?, value(other, place)?))
    });
    match decisive {
        Some((measure, winner, other)) => Decided::Term { measure, winner, other },
        None => Decided::Id { winner: winner.1, other: other.1 },
    }
}
