//! Which partition stands for which role, and which role for which key.
//!
//! The paper's section "Protocol definition": role R_j belongs to partition `j mod size(M)`. Without the
//! modulo, roles beyond the last partition would never have a leader.
//!
//! The paper lets the number of roles change at any time, because nothing but this arithmetic depends on it. That is so for
//! numbered roles alone. The slot of a key is its hash modulo the number of roles, and the partition of a role is its number
//! modulo the number of partitions: two members that count differently both lead a key, each rightly by its own count. So
//! members agree on both numbers, and on the mode, before any of them leads ([`Agreement`]; the rules are in
//! `agreement.rs`).

use core::fmt;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::config::Mode;
use super::interface::Partition;
use crate::election::RoleId;

/// A number of roles over a number of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    partitions: NonZeroU32,
    roles: u32,
}

impl Layout {
    /// So many roles over so many partitions.
    pub const fn new(partitions: NonZeroU32, roles: u32) -> Self {
        Layout { partitions, roles }
    }

    /// How many partitions there are.
    pub const fn partitions(self) -> u32 {
        self.partitions.get()
    }

    /// How many roles there are.
    pub const fn roles(self) -> u32 {
        self.roles
    }

    /// Who leads this partition leads the role.
    pub const fn partition_of(self, role: RoleId) -> Partition {
        Partition::new(role.get() % self.partitions.get())
    }

    /// The roles of a partition: none, if there are more partitions than roles and it is a high one.
    pub fn roles_of(self, partition: Partition) -> impl Iterator<Item = RoleId> {
        let step = self.partitions.get() as usize;
        (partition.get()..self.roles).step_by(step).map(RoleId::new)
    }

    /// The hash slot of a key, if roles are hash slots (the paper's section "Consistent hashing"): the
    /// same on every member and in every release. `None` if there are no slots.
    pub fn slot_of(self, key: &[u8]) -> Option<RoleId> {
        (self.roles > 0).then(|| RoleId::new((hash(key) % u64::from(self.roles)) as u32))
    }
}

/// What all members of a group must have in common before one of them leads. It stands in every claim and every mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Agreement {
    /// How many partitions roles are mapped to.
    pub partitions: u32,
    /// How many roles, or hash slots, there are.
    pub roles: u32,
    /// What "leader" means.
    pub mode: Mode,
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Agreement { partitions, roles, mode } = self;
        let plural = |number: u32| if number == 1 { "" } else { "s" };
        let (some, many) = (plural(*roles), plural(*partitions));
        write!(f, "{roles} role{some} over {partitions} partition{many}, {mode}")
    }
}

/// FNV-1a, then mixed: no dependency, and no two releases may disagree on it. Not for keys that an
/// adversary chooses.
fn hash(key: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in key {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    // The low bits of FNV alone are poor, and a modulus looks at them.
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn layout(partitions: u32, roles: u32) -> Layout {
        Layout::new(NonZeroU32::new(partitions).unwrap(), roles)
    }

    fn roles(layout: Layout, partition: u32) -> Vec<u32> {
        layout.roles_of(Partition::new(partition)).map(RoleId::get).collect()
    }

    #[test]
    fn protocol_definition_roles_wrap_round_the_partitions() {
        let surjective = layout(4, 10);
        assert_eq!(surjective.partition_of(RoleId::new(9)), Partition::new(1));
        assert_eq!(roles(surjective, 1), [1, 5, 9]);
        let bijective = layout(4, 4);
        assert_eq!(roles(bijective, 3), [3]);
        let injective = layout(4, 2);
        assert_eq!(roles(injective, 3), [0; 0], "a high partition has no role");
    }

    #[test]
    fn a_key_has_the_same_slot_in_every_release() {
        let slots = layout(64, 16_384);
        assert_eq!(slots.slot_of(b"customer 17"), slots.slot_of(b"customer 17"));
        // Written down: another number here would move everyone's shards.
        assert_eq!(slots.slot_of(b"customer 17"), Some(RoleId::new(15_660)));
        assert_eq!(layout(64, 0).slot_of(b"x"), None);
    }

    #[test]
    fn an_agreement_is_shown_in_words() {
        let agreement = Agreement { partitions: 1, roles: 10, mode: Mode::NonExclusive };
        assert_eq!(alloc::format!("{agreement}"), "10 roles over 1 partition, non-exclusive");
    }

    #[test]
    fn keys_spread_evenly_over_slots() {
        let slots = layout(8, 100);
        let mut counts = [0u32; 100];
        for key in 0..100_000u32 {
            let slot = slots.slot_of(&key.to_le_bytes()).unwrap();
            counts[slot.get() as usize] += 1;
        }
        // A thousand each on average, whose standard deviation is 32.
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    proptest! {
        /// "Guaranteeing totality of R -> M": every role has one partition, and that one lists it.
        #[test]
        fn every_role_is_one_of_its_partitions(partitions in 1u32..200, count in 1u32..2000, role in 0u32..2000) {
            let layout = layout(partitions, count);
            let role = RoleId::new(role % count);
            let partition = layout.partition_of(role);
            prop_assert!(partition.get() < partitions);
            prop_assert!(layout.roles_of(partition).any(|other| other == role));
            let all: usize = (0..partitions).map(|one| layout.roles_of(Partition::new(one)).count()).sum();
            prop_assert_eq!(all, count as usize);
        }
    }
}
