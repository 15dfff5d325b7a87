//! Oracles: what makes a good leader, as a score (POLE, sections 2 and 3.3).
//!
//! A member scores itself, from what it knows: its [`View`]. An [`Oracle`] is a list of terms in
//! order of importance, written as `latency/10ms, history`: the mean request latency that clients
//! would see if this member led, in classes of 10 ms; of equals, the one with the longest history.
//!
//! | term | what it measures | better is |
//! | --- | --- | --- |
//! | `history` | the position of the member's log (theta_z; exact up to 2^53) | more |
//! | `requests` | requests that clients send to it a second (theta_r) | more |
//! | `consensus` | time to commit if it led: the round trip to the quorum's slowest (theta_c) | less |
//! | `latency` | mean request latency if it led (theta_l) | less |
//! | `worst` | worst-case request latency if it led (theta_w) | less |
//! | `rotating` | how soon it is its turn after the last leader | sooner |
//! | `preference` | what the operator gave it | more |
//! | `constant` | nothing: ids decide | |
//! | `application` | what the application says; named several times, one component of its score each | more |
//!
//! A width behind a slash makes classes: values in one class are equal, and the next term
//! decides. Without classes a latency is never equal to another, and what stands behind it never
//! matters.
//!
//! # After a crash, before a resignation
//!
//! When the leader is gone, its round trips and its clients are too: scores leave it out. When a
//! leader that is well asks whether another would serve better, everyone is there, itself
//! included. [`View::leader`] and [`View::occasion`] say which it is.
//!
//! # Where the paper is silent
//!
//! - *Nobody sends requests.* The mean weighs all members alike.
//! - *Rotating.* The paper gives 1 to the member whose round it is and 0 to all others; if that
//!   one is down, ids decide, and the highest leads permanently. Here the score falls with the
//!   distance from the last leader in order of ids, so the next that is alive leads.
//! - *Equation 1* prints the one-way delay where its text, and its measurements, need the whole
//!   round trip.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::election::Candidacy;
use crate::identity::MemberId;
use crate::score::{MAX_COMPONENTS, Score};

mod latency;
mod parse;
mod ranking;
mod view;

pub use parse::InvalidOracle;
pub use ranking::{Candidate, CandidateOutcome, Decided, Ranking, rank, rank_standings};
pub use view::{Occasion, Preference, View};

/// What a term measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Measure {
    /// Position of the log.
    History,
    /// Requests a second.
    Requests,
    /// Consensus latency.
    Consensus,
    /// Mean request latency.
    Latency,
    /// Worst-case request latency.
    Worst,
    /// Turns, by id.
    Rotating,
    /// The operator's preference.
    Preference,
    /// Nothing.
    Constant,
    /// The application's own score, a component for each time that it is named.
    Application,
}

impl Measure {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Measure); 9] = [
        ("history", Measure::History),
        ("requests", Measure::Requests),
        ("consensus", Measure::Consensus),
        ("latency", Measure::Latency),
        ("worst", Measure::Worst),
        ("rotating", Measure::Rotating),
        ("preference", Measure::Preference),
        ("constant", Measure::Constant),
        ("application", Measure::Application),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = Measure::ALL.iter().find(|(_, measure)| *measure == self);
        found.map_or("", |(name, _)| name)
    }

    /// Whether it is a time, of which less is better.
    pub fn is_time(self) -> bool {
        matches!(self, Measure::Consensus | Measure::Latency | Measure::Worst)
    }
}

/// One term of an oracle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    /// What it measures.
    pub measure: Measure,
    /// Values that differ by less may be equal: milliseconds for times, else the measure's unit.
    pub class: Option<f64>,
}

impl Criterion {
    /// Worse than any value: stands for one that is not known.
    fn worst(&self) -> f64 {
        if self.measure.is_time() { f64::MAX } else { f64::MIN }
    }

    /// The value as a component of a score: bigger is better, classes applied.
    fn component(&self, value: f64) -> f64 {
        let classed = match self.class {
            Some(width) => libm::floor(value / width) * width,
            None => value,
        };
        // A value so large that its class cannot be counted is in a class of its own.
        let classed = if classed.is_finite() { classed } else { value };
        if self.measure.is_time() { -classed } else { classed }
    }
}

/// How candidates are scored: up to [`MAX_COMPONENTS`] terms, the most important first.
///
/// ```
/// use mandate_proto::oracle::Oracle;
/// let oracle: Oracle = "latency/10ms, history".parse().unwrap();
/// assert_eq!(oracle.to_string(), "latency/10ms, history");
/// assert!("latency/10".parse::<Oracle>().unwrap_err().to_string().contains("10ms"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Oracle {
    terms: Vec<Criterion>,
}

/// What a member measured of itself, and the score that makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Measured {
    /// What each term of the oracle measured, in its own unit (milliseconds for times), before
    /// classes: as many numbers as the oracle has terms.
    pub values: Score,
    /// Their score: bigger is better.
    pub score: Score,
}

/// What may be missing of a member for it to be a candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leniency {
    /// It need not hear a quorum, as the paper has it.
    pub unheard: bool,
    /// It need not know every figure that the oracle asks for: what is unknown is worse than
    /// anything known.
    pub unknown: bool,
}

/// Why a member has no score, now or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum NoScore {
    /// The operator said so.
    #[error("is never a candidate")]
    Never,
    /// It could not lead: it does not hear enough others.
    #[error("hears {heard} of {size} members, and a quorum is {quorum}")]
    NoQuorum {
        /// Members heard, itself included.
        heard: u16,
        /// All members.
        size: u16,
        /// A majority of them.
        quorum: u16,
    },
    /// A figure that is not known yet.
    #[error("does not know its {} yet", .0.name())]
    Unknown(Measure),
    /// It is new or has lost its disk, or the group was changed, and not all others have answered it.
    #[error("has no vote until all others have answered it")]
    NoVote,
    /// It has just resigned, and leaves it to the others.
    #[error("has resigned, and leaves it to the others for now")]
    Resigned,
}

impl Oracle {
    /// An oracle of these terms: at least one, at most [`MAX_COMPONENTS`].
    pub fn new(terms: Vec<Criterion>) -> Result<Self, InvalidOracle> {
        if terms.is_empty() {
            return Err(InvalidOracle::Empty);
        }
        if terms.len() > MAX_COMPONENTS {
            return Err(InvalidOracle::TooLong(terms.len()));
        }
        let sound = |width: f64| width.is_finite() && width > 0.0;
        if let Some(term) = terms.iter().find(|term| !term.class.is_none_or(sound)) {
            return Err(InvalidOracle::UnsoundClass(term.measure.name()));
        }
        Ok(Oracle { terms })
    }

    /// Everyone is equal, and ids decide.
    pub fn constant() -> Self {
        Oracle { terms: alloc::vec![Criterion { measure: Measure::Constant, class: None }] }
    }

    /// Its terms, the most important first.
    pub fn terms(&self) -> &[Criterion] {
        &self.terms
    }

    /// What this member is worth, or why it is no candidate.
    pub fn measure(&self, view: &View) -> Candidacy {
        self.measure_with(view, Leniency::default())
    }

    /// The same, but not as strict.
    pub fn measure_with(&self, view: &View, leniency: Leniency) -> Candidacy {
        let (mut values, mut components) = ([0.0; MAX_COMPONENTS], [0.0; MAX_COMPONENTS]);
        view.check_allowed()?;
        if !leniency.unheard {
            view.check_quorum()?;
        }
        let mut told = 0;
        for (place, term) in self.terms.iter().enumerate() {
            let measured = view.measure(term.measure, told);
            told += usize::from(term.measure == Measure::Application);
            values[place] = match measured {
                Err(NoScore::Unknown(_)) if leniency.unknown => term.worst(),
                measured => measured?,
            };
            components[place] = term.component(values[place]);
        }
        let score = |numbers: &[f64]| {
            Score::new(&numbers[..self.terms.len()])
                .expect("measures are finite, and terms are no more than a score holds")
        };
        Ok(Measured { values: score(&values), score: score(&components) })
    }
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{}", term.measure.name())?;
            if let Some(width) = term.class {
                let unit = if term.measure.is_time() { "ms" } else { "" };
                write!(f, "/{width}{unit}")?;
            }
        }
        Ok(())
    }
}

/// A value with its unit, for reading.
pub fn describe(measure: Measure, value: f64) -> String {
    match measure {
        _ if libm::fabs(value) == f64::MAX => "unknown".into(),
        measure if measure.is_time() => alloc::format!("{value:.2} ms"),
        Measure::Requests => alloc::format!("{value:.1} a second"),
        Measure::Rotating => alloc::format!("turn {}", -value),
        _ => alloc::format!("{value}"),
    }
}

/// How far `to` is behind `from` in order of ids, going round.
fn turns_between(members: &[MemberId], from: MemberId, to: MemberId) -> usize {
    let size = members.len().max(1);
    // A leader that is no member any more counts as the last of the round.
    let place = |id| members.iter().position(|member| *member == id).unwrap_or(size - 1);
    (place(to) + size - place(from) - 1) % size + 1
}

#[cfg(test)]
mod tests;
