//! What members must have alike before they count each other's votes.
//!
//! Two quorums share a member only if both are quorums of one list. Members with different lists, say half of them
//! edited, can each find a quorum of their own: two leaders. The guarantee belongs to it: an operator who set up a group
//! with leases relies on every leader having one. A lease does not: every claim says how long it will be relied on,
//! so leases may differ, and be changed one member after the other.
//!
//! Compared are the number of the [roster](super::Roster) and a digest: in every claim (and so in every promise, which answers
//! it), in every question of a member that has lost its disk, in pings, and in the greeting of links, where the lists
//! themselves can be named. Of two numbers one is newer, and whoever has the older roster is sent the newer one. With one
//! number and two digests, both cannot be right: two seeds, or two guarantees.

use alloc::string::String;
use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::PeerGuarantee;
use super::roster::{Membership, Roster, RosterId};
use crate::identity::{MemberId, Term};

/// Which roster a member goes by, and a digest of its members and of the guarantee. The same on every platform and in every
/// release; it tells mistakes apart, not attacks: members are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConfigId {
    roster: RosterId,
    digest: u64,
}

/// How another member's configuration compares with ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Votes count.
    Same,
    /// Its roster is older than ours.
    Older,
    /// Its roster is newer than ours.
    Newer,
    /// They cannot both be right.
    Differs,
}

impl ConfigId {
    /// Of a seed with these members, in any order, and of this guarantee.
    pub fn of(members: &[MemberId], guarantee: PeerGuarantee) -> Self {
        ConfigId::of_roster(&Roster::seed(members.iter().copied()), guarantee)
    }

    /// Of this roster and guarantee.
    pub fn of_roster(roster: &Roster, guarantee: PeerGuarantee) -> Self {
        let kind: u8 = match guarantee {
            PeerGuarantee::Fenced => 1,
            PeerGuarantee::Leased { .. } => 2,
        };
        let ids = roster.voters().flat_map(|id| id.get().to_be_bytes());
        // There in rosters that were changed only.
        let others = roster.entries().iter().flat_map(|entry| {
            let part = match entry.part {
                Membership::Voter { .. } => 0,
                Membership::Learner { .. } => 1,
                Membership::Observer => 2,
            };
            let said = entry.id.get().to_be_bytes().into_iter().chain([part]);
            let replaced = entry.replaces().into_iter().flat_map(|id| id.get().to_be_bytes());
            let is_plain = entry.is_voter() && entry.replaces().is_none();
            said.chain(replaced).filter(move |_| !is_plain)
        });
        let digest = fnv_1a(ids.chain([kind]).chain(others));
        ConfigId { roster: roster.id(), digest }
    }

    /// Of a seed, with this digest.
    pub const fn new(digest: u64) -> Self {
        ConfigId { roster: RosterId::SEED, digest }
    }

    /// Which roster it is.
    pub const fn roster(self) -> RosterId {
        self.roster
    }

    /// Its digest.
    pub const fn get(self) -> u64 {
        self.digest
    }

    /// How another's compares with this one.
    pub fn fit(self, theirs: ConfigId) -> Fit {
        match theirs.roster.cmp(&self.roster) {
            Ordering::Equal if theirs.digest != self.digest => Fit::Differs,
            Ordering::Equal => Fit::Same,
            Ordering::Less => Fit::Older,
            Ordering::Greater => Fit::Newer,
        }
    }
}

/// Of a seed the digest only; of another roster its number as well, as `3.2:0123456789abcdef`.
impl fmt::Display for ConfigId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.roster != RosterId::SEED {
            write!(f, "{}:", self.roster)?;
        }
        write!(f, "{:016x}", self.digest)
    }
}

/// A text that is no [`ConfigId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that names no configuration: {0}")]
pub struct InvalidConfigId(String);

impl FromStr for ConfigId {
    type Err = InvalidConfigId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (roster, digest) = match text.split_once(':') {
                None => (RosterId::SEED, text),
                Some((roster, digest)) => {
                    let (term, version) = roster.split_once('.')?;
                    let term = Term::new(term.parse().ok()?);
                    (RosterId { term, version: version.parse().ok()? }, digest)
                }
            };
            let digest = u64::from_str_radix(digest, 16).ok()?;
            Some(ConfigId { roster, digest })
        };
        parse().ok_or_else(|| InvalidConfigId(text.into()))
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
    use alloc::string::ToString;
    use core::time::Duration;

    use super::*;

    const LEASED: PeerGuarantee =
        PeerGuarantee::Leased { lease: Duration::from_secs(1), allowance_per_mille: 10 };

    fn digest(ids: &[u32], guarantee: PeerGuarantee) -> ConfigId {
        let members: alloc::vec::Vec<_> = ids.iter().copied().map(MemberId::new).collect();
        ConfigId::of(&members, guarantee)
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
    fn it_reads_back_as_written() {
        let changed = RosterId { term: Term::new(3), version: 2 };
        let changed = ConfigId { roster: changed, digest: 9 };
        assert_eq!(ConfigId::new(7).to_string(), "0000000000000007");
        assert_eq!(changed.to_string(), "3.2:0000000000000009");
        for id in [ConfigId::new(7), changed] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for wrong in ["", "x", "3:9", "3.x:9", "3.2:", "3.2:9:9"] {
            assert!(wrong.parse::<ConfigId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn it_is_the_same_in_every_release() {
        // Written down: it is compared between releases.
        assert_eq!(digest(&[1, 2, 3], LEASED).get(), 12_307_882_815_779_759_957);
    }
}
