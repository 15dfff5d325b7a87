//! Members that were removed: they must be told, and never act again.

use std::collections::{BTreeMap, BTreeSet};

use mandate_conformance::history::History;
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::RosterId;

/// Everyone that was a member and is none any more.
#[derive(Default)]
pub(super) struct Gone(BTreeMap<MemberId, Removal>);

struct Removal {
    /// A settled list that does not name it.
    list: RosterId,
    /// When that was known.
    at: u64,
    /// When it went by a list that does not name it, itself.
    told: Option<u64>,
    /// How many phases its process has lived through since.
    phases: u32,
}

impl Gone {
    /// A member is not on this list, which is settled.
    pub(super) fn insert(&mut self, member: MemberId, list: RosterId, at: u64) {
        self.0.insert(member, Removal { list, at, told: None, phases: 0 });
    }

    pub(super) fn has(&self, member: MemberId) -> bool {
        self.0.contains_key(&member)
    }

    pub(super) fn ids(&self) -> BTreeSet<MemberId> {
        self.0.keys().copied().collect()
    }

    /// The one that was removed last, by its id.
    pub(super) fn last(&self) -> Option<MemberId> {
        self.0.keys().next_back().copied()
    }

    /// It knows of its removal since then.
    pub(super) fn told(&mut self, member: MemberId, at: u64) {
        if let Some(removal) = self.0.get_mut(&member) {
            removal.told.get_or_insert(at);
        }
    }

    /// Another phase is over: those whose processes have lived through one since their removal, and may end.
    pub(super) fn pass(&mut self) -> Vec<MemberId> {
        self.0.values_mut().for_each(|removal| removal.phases += 1);
        self.0.iter().filter(|(_, it)| it.phases > 1).map(|(member, _)| *member).collect()
    }

    /// What they have done and must not. Without leases, one that led before its removal, and has not heard of it, may act on in its
    /// old term: that is what terms are checked for.
    pub(super) fn violations(&self, history: &History, is_leased: bool) -> Vec<String> {
        let mut found = Vec::new();
        for (term, member, reign) in history.reigns() {
            let Some(removal) = self.0.get(&member) else { continue };
            let list = removal.list;
            if term > list.term {
                found.push(format!(
                    "{member} acted in term {term}, and list {list} is settled, in which it is no member"
                ));
            } else if removal.told.is_some_and(|told| reign.last > told) {
                found.push(format!(
                    "{member} acted in term {term} after it went by list {list} itself, in which it is no member"
                ));
            } else if is_leased && reign.last > removal.at {
                found.push(format!(
                    "{member} acted in term {term} after list {list} was settled, in which it is no member"
                ));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use mandate_conformance::protocol::ActorReport;
    use mandate_proto::identity::Term;

    use super::*;

    const P2: MemberId = MemberId::new(2);

    fn removed() -> Gone {
        let mut gone = Gone::default();
        gone.insert(P2, RosterId { term: Term::new(5), version: 3 }, 1000);
        gone
    }

    fn acted(term: u64, at: u64) -> History {
        let mut history = History::default();
        history.record(P2, &ActorReport::Act { term: Term::new(term), at });
        history
    }

    #[test]
    fn acts_before_a_removal_are_none_of_its_business() {
        for is_leased in [true, false] {
            assert!(removed().violations(&acted(4, 900), is_leased).is_empty());
        }
    }

    #[test]
    fn a_removed_member_that_acts_is_a_violation() {
        for is_leased in [true, false] {
            let found = removed().violations(&acted(6, 900), is_leased);
            assert!(found[0].starts_with("p2 acted in term 6"), "a later term: {found:?}");
        }
        let found = removed().violations(&acted(4, 1100), true);
        assert!(found[0].contains("after list 5.3 was settled"), "{found:?}");
    }

    #[test]
    fn without_leases_a_removed_leader_acts_in_its_old_term_until_it_is_told() {
        let mut gone = removed();
        assert!(gone.violations(&acted(4, 1100), false).is_empty());
        gone.told(P2, 1200);
        assert!(gone.violations(&acted(4, 1100), false).is_empty());
        let found = gone.violations(&acted(4, 1300), false);
        assert!(found[0].contains("after it went by list 5.3 itself"), "{found:?}");
    }

    #[test]
    fn processes_of_removed_members_live_through_one_more_phase() {
        let mut gone = removed();
        assert_eq!(gone.pass(), []);
        assert_eq!(gone.pass(), [P2]);
        assert!(gone.has(P2), "it is remembered");
    }
}
