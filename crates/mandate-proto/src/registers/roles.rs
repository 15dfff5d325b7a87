//! Many roles over the living members, evenly.
//!
//! Each role has a control row of its own, and is led under the same rules as the group: safety needs
//! nothing new. The leader of the group only *prefers* a member for each role; who leads a role and is
//! not preferred hands it over, and after a crash the preferred one has the first turn. So a wrong or late
//! preference costs balance, never safety.
//!
//! Rejected: a map of roles in the group's control row, with authority of its own (every renewal would
//! rewrite it, and a change of the group's leader would be a change of all roles' leaders); and every member
//! working the map out for itself (each would have to sweep).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::election::RoleId;
use crate::identity::MemberId;

/// How many preferences one statement changes at most.
pub const ROLES_AT_ONCE: usize = 256;

/// What the leader of the group prefers.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    /// What the database says; `None` before it was read.
    written: Option<BTreeMap<RoleId, MemberId>>,
    /// What is still to be written.
    changes: VecDeque<(RoleId, MemberId)>,
}

impl Spread {
    pub(super) fn is_read(&self) -> bool {
        self.written.is_some()
    }

    pub(super) fn read(&mut self, roles: Vec<(RoleId, MemberId)>) {
        self.written = Some(roles.into_iter().collect());
    }

    /// Works out what has to change. How many preferences do.
    pub(super) fn plan(&mut self, roles: u32, living: &[MemberId]) -> usize {
        let Some(written) = &self.written else { return 0 };
        let wanted = spread(written, roles, living);
        let differs = |(role, member): &(RoleId, MemberId)| written.get(role) != Some(member);
        self.changes = wanted.into_iter().filter(differs).collect();
        self.changes.len()
    }

    /// Whether nothing is left to write.
    pub(super) fn is_written(&self) -> bool {
        self.changes.is_empty()
    }

    /// The next few changes to write.
    pub(super) fn next(&self) -> Option<Box<[(RoleId, MemberId)]>> {
        let next: Box<[_]> = self.changes.iter().take(ROLES_AT_ONCE).copied().collect();
        (!next.is_empty()).then_some(next)
    }

    /// They were written.
    pub(super) fn wrote(&mut self, changes: &[(RoleId, MemberId)]) {
        if let Some(written) = &mut self.written {
            written.extend(changes.iter().copied());
        }
        self.changes.retain(|change| !changes.contains(change));
    }
}

/// Gives every role below `roles` to one of `living`, so that no two have numbers of roles that differ by
/// more than one. A role stays where it is unless its member is gone or has too many.
pub fn spread(
    before: &BTreeMap<RoleId, MemberId>,
    roles: u32,
    living: &[MemberId],
) -> BTreeMap<RoleId, MemberId> {
    let mut after = BTreeMap::new();
    if living.is_empty() {
        return after;
    }
    let mut loads: BTreeMap<MemberId, Vec<RoleId>> =
        living.iter().map(|member| (*member, Vec::new())).collect();
    let mut homeless = Vec::new();
    for role in (0..roles).map(RoleId::new) {
        match before.get(&role).and_then(|member| loads.get_mut(member)) {
            Some(load) => load.push(role),
            None => homeless.push(role),
        }
    }
    // Who has most keeps the one that is over, so that fewest move.
    let (share, over) = (roles as usize / loads.len(), roles as usize % loads.len());
    let mut order: Vec<(MemberId, Vec<RoleId>)> = loads.into_iter().collect();
    order.sort_by_key(|(_, load)| core::cmp::Reverse(load.len()));
    for (place, (_, load)) in order.iter_mut().enumerate() {
        let quota = share + usize::from(place < over);
        homeless.extend(load.drain(quota.min(load.len())..));
    }
    for (place, (member, load)) in order.into_iter().enumerate() {
        let quota = share + usize::from(place < over);
        let lacks = quota - load.len();
        let taken = homeless.split_off(homeless.len() - lacks.min(homeless.len()));
        after.extend(load.into_iter().chain(taken).map(|role| (role, member)));
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(ids: impl IntoIterator<Item = u32>) -> Vec<MemberId> {
        ids.into_iter().map(MemberId::new).collect()
    }

    fn loads(map: &BTreeMap<RoleId, MemberId>, living: &[MemberId]) -> Vec<usize> {
        living.iter().map(|id| map.values().filter(|member| *member == id).count()).collect()
    }

    #[test]
    fn a_newcomer_takes_its_share_and_the_rest_stays() {
        let two = members([1, 2]);
        let before = spread(&BTreeMap::new(), 9, &two);
        let after = spread(&before, 9, &members([1, 2, 3]));
        let moved = after.iter().filter(|(role, member)| before[role] != **member).count();
        assert_eq!(moved, 3);
    }

    #[test]
    fn nobody_living_leads_nothing() {
        assert_eq!(spread(&BTreeMap::new(), 9, &[]), BTreeMap::new());
    }

    #[test]
    fn preferences_are_written_in_batches_and_not_twice() {
        let mut spread = Spread::default();
        assert_eq!(spread.plan(300, &members([1])), 0, "not before they are read");
        spread.read(Vec::new());
        assert_eq!(spread.plan(300, &members([1])), 300);
        for expected in [ROLES_AT_ONCE, 300 - ROLES_AT_ONCE] {
            let next = spread.next().unwrap();
            assert_eq!(next.len(), expected);
            spread.wrote(&next);
        }
        assert_eq!(spread.next(), None);
        assert_eq!(spread.plan(300, &members([1])), 0);
    }

    proptest! {
        #[test]
        fn loads_differ_by_one_at_most_and_no_more_roles_move_than_must(
            roles in 0u32..200,
            before in prop::collection::vec(1u32..12, 0..200),
            living in prop::collection::btree_set(1u32..12, 1..10),
        ) {
            let living = members(living);
            let before: BTreeMap<_, _> = (0..).map(RoleId::new)
                .zip(members(before)).take(roles as usize).collect();
            let after = spread(&before, roles, &living);
            prop_assert_eq!(after.len(), roles as usize);
            let loads = loads(&after, &living);
            let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", loads);
            // A second time, nothing moves.
            prop_assert_eq!(spread(&after, roles, &living), after);
        }
    }
}
