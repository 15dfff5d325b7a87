//! What orders candidates: a short vector, compared in order, bigger is better.
//!
//! A vector and not a weighted sum, because a sum of milliseconds and log positions means
//! nothing, and nobody can explain afterwards why a candidate won. With a vector the answer is
//! always one component.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most components a score may have. Four suffice for every oracle that is written down
/// ("latency, then history, then preference"), and keep a score copyable and off the heap.
pub const MAX_COMPONENTS: usize = 4;

/// A candidate's score: up to [`MAX_COMPONENTS`] finite numbers, compared in order.
///
/// A score that ends sooner than another it otherwise equals is the smaller one.
///
/// ```
/// use mandate_proto::score::Score;
/// let near = Score::new(&[-10.0, 7.0]).unwrap(); // 10 ms away, 7 entries
/// let ahead = Score::new(&[-10.0, 9.0]).unwrap();
/// let far = Score::new(&[-50.0, 99.0]).unwrap();
/// assert!(ahead > near && near > far);
/// assert_eq!(ahead.decided_against(&near), Some(1)); // the history decided
/// ```
#[derive(Clone, Copy, PartialEq)]
pub struct Score {
    components: [f64; MAX_COMPONENTS],
    len: u8,
}

/// Why numbers do not make a score. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum InvalidScore {
    /// More components than a score holds.
    #[error("a score has at most {MAX_COMPONENTS} components, not {0}")]
    TooLong(usize),
    /// A component that cannot be compared.
    #[error("component {index} of the score is {value}: components must be finite numbers")]
    NotFinite {
        /// Which component.
        index: usize,
        /// What it was.
        value: f64,
    },
}

impl Score {
    /// A score of these components, the most important first.
    pub fn new(components: &[f64]) -> Result<Self, InvalidScore> {
        if components.len() > MAX_COMPONENTS {
            return Err(InvalidScore::TooLong(components.len()));
        }
        let mut score = Score { components: [0.0; MAX_COMPONENTS], len: components.len() as u8 };
        for (index, &value) in components.iter().enumerate() {
            if !value.is_finite() {
                return Err(InvalidScore::NotFinite { index, value });
            }
            // -0.0 and 0.0 are one number; stored as one, so that order and equality agree.
            score.components[index] = value + 0.0;
        }
        Ok(score)
    }

    /// Its components, the most important first.
    pub fn components(&self) -> &[f64] {
        &self.components[..usize::from(self.len)]
    }

    /// The first component in which the two differ, if any: the one that decides.
    pub fn decided_against(&self, other: &Score) -> Option<usize> {
        let (mine, theirs) = (self.components(), other.components());
        let shared = mine.iter().zip(theirs).position(|(a, b)| a != b);
        shared.or((mine.len() != theirs.len()).then_some(mine.len().min(theirs.len())))
    }
}

impl Eq for Score {}

impl Hash for Score {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.components().iter().for_each(|component| component.to_bits().hash(state));
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mine, theirs) = (self.components(), other.components());
        let differing = mine.iter().zip(theirs).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne());
        differing.unwrap_or(mine.len().cmp(&theirs.len()))
    }
}

impl fmt::Debug for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.components()).finish()
    }
}

impl Serialize for Score {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.components().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Score {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Components)
    }
}

/// Reads a score without believing how long it says it is.
struct Components;

impl<'de> Visitor<'de> for Components {
    type Value = Score;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_COMPONENTS} finite numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Score, A::Error> {
        let (mut components, mut len) = ([0.0; MAX_COMPONENTS], 0);
        while let Some(component) = sequence.next_element::<f64>()? {
            let slot = components.get_mut(len);
            *slot.ok_or_else(|| A::Error::invalid_length(len + 1, &self))? = component;
            len += 1;
        }
        Score::new(&components[..len]).map_err(A::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_compared_is_refused_by_place_and_value() {
        assert_eq!(Score::new(&[0.0; 5]), Err(InvalidScore::TooLong(5)));
        assert!(matches!(
            Score::new(&[1.0, f64::NAN]),
            Err(InvalidScore::NotFinite { index: 1, .. })
        ));
    }

    #[test]
    fn a_negative_zero_is_a_zero() {
        assert_eq!(Score::new(&[-0.0]), Score::new(&[0.0]));
        assert!(Score::new(&[-0.0]).unwrap() >= Score::new(&[0.0]).unwrap());
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_first_difference(
            a in prop::collection::vec(-3i8..3, 0..=MAX_COMPONENTS),
            b in prop::collection::vec(-3i8..3, 0..=MAX_COMPONENTS),
        ) {
            let score = |v: &[i8]| {
                let mut components = [0.0; MAX_COMPONENTS];
                for (slot, x) in components.iter_mut().zip(v) { *slot = f64::from(*x); }
                Score::new(&components[..v.len()]).unwrap()
            };
            prop_assert_eq!(score(&a).cmp(&score(&b)), a.cmp(&b));
            prop_assert_eq!(score(&a).decided_against(&score(&b)).is_none(), a == b);
        }
    }
}
