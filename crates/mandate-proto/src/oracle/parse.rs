//! Oracles as text: `latency/10ms, history`.

use alloc::string::{String, ToString};
use core::str::FromStr;

use super::{Criterion, Measure, Oracle};
use crate::score::MAX_COMPONENTS;

/// Why a text is no oracle. Nothing was changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidOracle {
    /// No terms.
    #[error("an oracle has at least one term, such as `latency` or `history`")]
    Empty,
    /// More terms than a score holds.
    #[error("an oracle has at most {MAX_COMPONENTS} terms, not {0}")]
    TooLong(usize),
    /// No such measure.
    #[error(
        "there is no `{0}`: a term is one of history, requests, consensus, latency, worst, \
         rotating, preference, constant, application"
    )]
    UnknownMeasure(String),
    /// A width that is not a number above zero.
    #[error("classes of `{0}` must have a width above zero")]
    UnsoundClass(&'static str),
    /// A class without its width, or with one that is none.
    #[error("`{text}` is no width for classes of `{measure}`: {expected}")]
    InvalidClass {
        /// The measure.
        measure: &'static str,
        /// What stood behind the slash.
        text: String,
        /// What should.
        expected: &'static str,
    },
}

impl FromStr for Oracle {
    type Err = InvalidOracle;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Err(InvalidOracle::Empty);
        }
        Oracle::new(text.split(',').map(term).collect::<Result<_, _>>()?)
    }
}

fn term(text: &str) -> Result<Criterion, InvalidOracle> {
    let (name, class) = match text.split_once('/') {
        Some((name, class)) => (name.trim(), Some(class.trim())),
        None => (text.trim(), None),
    };
    let measure = Measure::ALL.iter().find(|(known, _)| *known == name);
    let (_, measure) = *measure.ok_or_else(|| InvalidOracle::UnknownMeasure(name.to_string()))?;
    let class = class.map(|class| width(measure, class)).transpose()?;
    Ok(Criterion { measure, class })
}

/// Times have a width in `us`, `ms` or `s`; everything else a plain number.
fn width(measure: Measure, text: &str) -> Result<f64, InvalidOracle> {
    let expected = if measure.is_time() {
        "write a time, such as 10ms"
    } else {
        "write a number above zero, such as 100"
    };
    let invalid = || InvalidOracle::InvalidClass {
        measure: measure.name(),
        text: text.to_string(),
        expected,
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match (measure.is_time(), &text[digits.len()..]) {
        (true, "us") => 0.001,
        (true, "ms") => 1.0,
        (true, "s") => 1000.0,
        (false, "") => 1.0,
        _ => return Err(invalid()),
    };
    let number: f64 = digits.trim().parse().map_err(|_| invalid())?;
    let width = number * factor;
    if width.is_finite() && width > 0.0 { Ok(width) } else { Err(invalid()) }
}
