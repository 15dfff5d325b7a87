//! Who would win, and on what: the explanation behind an election.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Measure, NoScore, Oracle, View};
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
    /// Who.
    pub id: MemberId,
    /// What each term measured, in its own unit, before classes.
    pub values: Vec<f64>,
    /// Its score, if it has one.
    pub score: Option<Score>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
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
    let mut scored = Vec::new();
    let mut without = Vec::new();
    for view in views {
        match oracle.measure(view) {
            Ok(values) => scored.push((oracle.score_of(&values), view.me, values)),
            Err(reason) => without.push((view.me, reason)),
        }
    }
    scored.sort_by_key(|(score, id, _)| Reverse((*score, *id)));
    without.sort_by_key(|(id, _)| *id);
    let winner = scored.first().map(|(_, id, _)| *id);
    let outcome = |place: usize| {
        let other = if place == 0 { scored.get(1) } else { scored.get(place) };
        let decided = other.map(|other| decided(oracle, &scored[0], other));
        match decided {
            Some(decided) if place > 0 => Outcome::Loses(decided),
            decided => Outcome::Wins(decided),
        }
    };
    let ranked = scored.iter().enumerate().map(|(place, (score, id, values))| Candidate {
        id: *id,
        values: values.clone(),
        score: Some(*score),
        outcome: outcome(place),
    });
    let unranked = without.into_iter().map(|(id, reason)| Candidate {
        id,
        values: Vec::new(),
        score: None,
        outcome: Outcome::NotEligible(reason),
    });
    Ranking { winner, candidates: ranked.chain(unranked).collect() }
}

type Scored = (Score, MemberId, Vec<f64>);

fn decided(oracle: &Oracle, winner: &Scored, other: &Scored) -> Decided {
    match winner.0.decided_against(&other.0) {
        Some(term) => Decided::Term {
            measure: oracle.terms()[term].measure,
            winner: winner.2[term],
            other: other.2[term],
        },
        None => Decided::Id { winner: winner.1, other: other.1 },
    }
}
