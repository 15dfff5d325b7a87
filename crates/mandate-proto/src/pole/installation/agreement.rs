//! What members must have alike before they count each other's votes.
//!
//! Two quorums share a member only if both are quorums of one list. Members with different lists, say half of them
//! edited, can each find a quorum of their own: two leaders. The guarantee belongs to it: an operator who set up a group
//! with leases relies on every leader having one. A lease does not: every claim says how long it will be relied on,
//! so leases may differ, and be changed one member after the other.
//!
//! Compared are digests: in every claim (and so in every promise, which answers it), in every question of a member that
//! has lost its disk, in pings, and in the greeting of links, where the lists themselves can be named.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::PeerGuarantee;
use crate::identity::MemberId;

/// The digest of a group's members and guarantee. The same on every platform and in every release; it
/// tells mistakes apart, not attacks: members are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConfigDigest(u64);

impl ConfigDigest {
    /// Of these members, in any order, and this guarantee.
    pub fn of(members: &[MemberId], guarantee: PeerGuarantee) -> Self {
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let kind: u8 = match guarantee {
            PeerGuarantee::Fenced => 1,
            PeerGuarantee::Leased { .. } => 2,
        };
        let ids = sorted.iter().flat_map(|id| id.get().to_be_bytes());
        ConfigDigest(fnv_1a(ids.chain([kind])))
    }

    /// The digest with this number.
    pub const fn new(digest: u64) -> Self {
        ConfigDigest(digest)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ConfigDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// FNV-1a, 64 bits: a few lines, and enough to tell two lists apart.
fn fnv_1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const LEASED: PeerGuarantee =
        PeerGuarantee::Leased { lease: Duration::from_secs(1), allowance_per_mille: 10 };

    fn digest(ids: &[u32], guarantee: PeerGuarantee) -> ConfigDigest {
        let members: alloc::vec::Vec<_> = ids.iter().copied().map(MemberId::new).collect();
        ConfigDigest::of(&members, guarantee)
    }

    #[test]
    fn members_and_guarantee_count_and_order_and_leases_do_not() {
        let three = digest(&[1, 2, 3], LEASED);
        assert_eq!(three, digest(&[3, 1, 2, 2], LEASED));
        let longer =
            PeerGuarantee::Leased { lease: Duration::from_secs(9), allowance_per_mille: 0 };
        assert_eq!(three, digest(&[1, 2, 3], longer));
        assert_ne!(three, digest(&[1, 2, 3], PeerGuarantee::Fenced));
        assert_ne!(three, digest(&[1, 2, 3, 4], LEASED));
        assert_ne!(three, digest(&[1, 2], LEASED));
        assert_ne!(three, digest(&[1, 2, 4], LEASED));
    }

    #[test]
    fn it_is_the_same_in_every_release() {
        // Written down: it is compared between releases.
        assert_eq!(digest(&[1, 2, 3], LEASED).get(), 12_307_882_815_779_759_957);
    }
}
