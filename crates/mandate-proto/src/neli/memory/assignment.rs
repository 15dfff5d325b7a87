//! Who gets which partition.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::neli::Partition;

use super::protocol::ClientId;

/// How partitions are divided, and given back when that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AssignmentRule {
    /// Everyone keeps what it has, as far as loads stay even; only what moves is given back
    /// (`cooperative-sticky`).
    #[default]
    CooperativeSticky,
    /// Everyone gives everything back, then all is dealt out in turn (`roundrobin`).
    RoundRobin,
}

impl AssignmentRule {
    /// Whether members keep what does not move.
    pub fn is_cooperative(self) -> bool {
        self == AssignmentRule::CooperativeSticky
    }

    pub(super) fn divide(
        self,
        partitions: u32,
        owned: &BTreeMap<ClientId, BTreeSet<Partition>>,
    ) -> BTreeMap<ClientId, BTreeSet<Partition>> {
        let mut shares: Vec<(ClientId, BTreeSet<Partition>)> = match self {
            AssignmentRule::CooperativeSticky => owned.clone().into_iter().collect(),
            AssignmentRule::RoundRobin => owned.keys().map(|id| (*id, BTreeSet::new())).collect(),
        };
        if shares.is_empty() {
            return BTreeMap::new();
        }
        // Who has most keeps the one that is over, so that fewest move.
        shares.sort_by_key(|(_, share)| core::cmp::Reverse(share.len()));
        let (even, over) = (partitions as usize / shares.len(), partitions as usize % shares.len());
        let quota = |place: usize| even + usize::from(place < over);
        for (place, (_, share)) in shares.iter_mut().enumerate() {
            while share.len() > quota(place) {
                share.pop_last();
            }
        }
        let taken: BTreeSet<_> = shares.iter().flat_map(|(_, share)| share).copied().collect();
        let free = (0..partitions).map(Partition::new).filter(|one| !taken.contains(one));
        let mut place = 0;
        for partition in free {
            // In turn, to the next member below its quota.
            while shares[place].1.len() >= quota(place) {
                place = (place + 1) % shares.len();
            }
            shares[place].1.insert(partition);
            place = (place + 1) % shares.len();
        }
        shares.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::identity::Incarnation;

    fn id(life: u64) -> ClientId {
        ClientId { life: Incarnation::new(life), session: 0 }
    }

    fn nobody_has(members: u64) -> BTreeMap<ClientId, BTreeSet<Partition>> {
        (0..members).map(|life| (id(life), BTreeSet::new())).collect()
    }

    #[test]
    fn round_robin_deals_out_in_turn() {
        let shares = AssignmentRule::RoundRobin.divide(5, &nobody_has(2));
        let of = |life| shares[&id(life)].iter().map(|one| one.get()).collect::<Vec<_>>();
        assert_eq!((of(0), of(1)), (vec![0, 2, 4], vec![1, 3]));
    }

    #[test]
    fn a_newcomer_moves_only_its_share() {
        let mut before = AssignmentRule::CooperativeSticky.divide(64, &nobody_has(3));
        before.insert(id(9), BTreeSet::new());
        let after = AssignmentRule::CooperativeSticky.divide(64, &before);
        let kept: usize = before.iter().map(|(id, had)| had.intersection(&after[id]).count()).sum();
        assert_eq!(kept, 48, "a quarter moves");
    }

    proptest! {
        #[test]
        fn every_partition_has_one_owner_and_loads_differ_by_one_at_most(
            partitions in 1u32..100, members in 1u64..20, gone in 0u64..19, joined in 0u64..5,
        ) {
            for assignor in [AssignmentRule::CooperativeSticky, AssignmentRule::RoundRobin] {
                let mut owned = assignor.divide(partitions, &nobody_has(members));
                owned.retain(|id, _| id.life.get() >= gone.min(members - 1));
                for newcomer in 0..joined {
                    owned.insert(id(100 + newcomer), BTreeSet::new());
                }
                let shares = assignor.divide(partitions, &owned);
                let all: Vec<_> = shares.values().flatten().collect();
                prop_assert_eq!(all.len(), partitions as usize);
                prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), partitions as usize);
                let loads = || shares.values().map(BTreeSet::len);
                prop_assert!(loads().max().unwrap() - loads().min().unwrap() <= 1);
                // A second time, nothing moves.
                prop_assert_eq!(assignor.divide(partitions, &shares), shares);
            }
        }
    }
}
