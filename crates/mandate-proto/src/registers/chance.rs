//! Random numbers from a seed that the driver drew: jitter needs no secrecy, and a machine that carries
//! its own numbers gives the same run for the same inputs.

use core::time::Duration;

use crate::time::nanos;

/// SplitMix64: eight bytes of state, and good enough to keep members from acting at once.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Chance(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A duration below `bound`, or zero.
    pub(super) fn below(&mut self, bound: Duration) -> Duration {
        // The high half of the product: no division, and even enough.
        let wide = u128::from(self.number()) * u128::from(nanos(bound));
        Duration::from_nanos((wide >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_below_its_bound_and_uses_its_range() {
        let mut chance = Chance::new(7);
        let bound = Duration::from_millis(100);
        let draws: [Duration; 100] = core::array::from_fn(|_| chance.below(bound));
        assert!(draws.iter().all(|draw| *draw < bound));
        assert!(draws.iter().any(|draw| *draw < bound / 5));
        assert!(draws.iter().any(|draw| *draw > bound * 4 / 5));
        assert_eq!(chance.below(Duration::ZERO), Duration::ZERO);
    }
}
