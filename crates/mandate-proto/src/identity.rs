//! Member, incarnation and term: who takes part, since which start, and which reign is meant.

use core::fmt;
use core::num::ParseIntError;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// A member of a group: small, ordered, chosen by the operator. The order breaks ties: of equals
/// the higher id leads.
///
/// Written `p5`. A number and not a name, so that messages stay small and comparisons cheap; the
/// configuration maps names to ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(u32);

impl MemberId {
    /// The member with this number.
    pub const fn new(id: u32) -> Self {
        MemberId(id)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// A text that is not a member id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a member id is a number with an optional p before it, such as p5: {0}")]
pub struct InvalidMemberId(ParseIntError);

impl FromStr for MemberId {
    type Err = InvalidMemberId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix('p').unwrap_or(text).parse().map(MemberId).map_err(InvalidMemberId)
    }
}

/// One run of a member's process, from a start to a crash: a random number drawn by the driver at each
/// start. It tells two incarnations apart without a write to disk; it does not order them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(u64);

impl Incarnation {
    /// The incarnation with this random number.
    pub const fn new(random: u64) -> Self {
        Incarnation(random)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The fencing token: rises with every change of leader, and is never used twice.
///
/// Engines whose guarantee is only *overlap* ([`nfd_l`](crate::nfd_l)) have none to give.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Term(u64);

impl Term {
    /// Before the first leader.
    pub const NONE: Term = Term(0);

    /// The term with this number.
    pub const fn new(term: u64) -> Self {
        Term(term)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether anyone can have counted up to it from `known`: a group that elected every second would
    /// need more than a century. What names a higher one is ignored, so that one wrong number cannot use up all
    /// terms.
    pub const fn is_plausible_after(self, known: Term) -> bool {
        self.0 <= known.0.saturating_add(1 << 32)
    }

    /// The term after this one, unless terms have run out (after 2^64 elections).
    pub const fn next(self) -> Option<Term> {
        match self.0.checked_add(1) {
            Some(term) => Some(Term(term)),
            None => None,
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn member_ids_read_back_as_written_with_or_without_the_letter() {
        assert_eq!(MemberId::new(5).to_string(), "p5");
        assert_eq!("p5".parse(), Ok(MemberId::new(5)));
        assert_eq!("5".parse(), Ok(MemberId::new(5)));
        assert!("q5".parse::<MemberId>().unwrap_err().to_string().contains("such as p5"));
    }

    #[test]
    fn terms_only_rise_and_never_wrap() {
        assert!(Term::NONE.next().unwrap() > Term::NONE);
        assert_eq!(Term::new(u64::MAX).next(), None);
    }
}
