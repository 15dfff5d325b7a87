//! New members, by hand: nobody votes before all of its list have answered.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::ToString;
use alloc::vec::Vec;

use super::schedules::{LEASE, LEASED, at};
use super::*;

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

/// Members with lists of their own; what they say arrives in order, and only at whom they know.
struct Town {
    members: BTreeMap<u32, Installation>,
    under_way: VecDeque<(u32, u32, Message)>,
    written: BTreeMap<u32, Promised>,
    incarnations: u64,
    without: Option<Safeguard>,
}

impl Town {
    fn new() -> Self {
        let (members, under_way, written) = Default::default();
        Town { members, under_way, written, incarnations: 0, without: None }
    }

    fn start(&mut self, me: u32, list: &[u32], is_new: bool, now: Instant) {
        self.incarnations += 1;
        let config = Config {
            me: p(me),
            members: list.iter().copied().map(p).collect(),
            contacts: BTreeMap::new(),
            guarantee: LEASED,
            retry: LEASE / 10,
            give_up: LEASE,
            without: self.without,
        };
        let stored = self.written.get(&me).copied();
        let lifetime = Incarnation::new(self.incarnations);
        let stored = stored.map(Into::into);
        let boot = Boot { stored, is_new, is_changed: false, joins: false, auto: None, lifetime };
        let mut effects = Effects::new();
        let member = Installation::start(config, boot, now, &mut effects);
        self.members.insert(me, member);
        self.carry_out(me, effects);
    }

    fn carry_out(&mut self, from: u32, mut effects: Effects<Effect>) {
        let list = self.members[&from].config.members.clone();
        let others: Vec<u32> = list.iter().map(|id| id.get()).filter(|id| *id != from).collect();
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::Persist(Stored { promised, .. }) => {
                    self.written.insert(from, promised);
                }
                Effect::Send { to, message } => {
                    self.under_way.push_back((from, to.get(), message));
                }
                Effect::Broadcast(message) => {
                    self.under_way.extend(others.iter().map(|to| (from, *to, message.clone())));
                }
                Effect::Tell(_) => {}
            }
        }
    }

    fn tell(&mut self, id: u32, input: Input, now: Instant) {
        let mut effects = Effects::new();
        self.members.get_mut(&id).unwrap().handle(input, now, &mut effects);
        self.carry_out(id, effects);
    }

    /// Everything arrives, and so does what follows from it.
    fn deliver(&mut self, now: Instant) {
        for _ in 0..10_000 {
            let Some((from, to, message)) = self.under_way.pop_front() else { return };
            if self.members.contains_key(&to) {
                self.tell(to, Input::Received { from: p(from), message }, now);
            }
        }
        panic!("they do not come to an end");
    }

    /// Time passes: what is due is done, and arrives.
    fn pass(&mut self, now: Instant) {
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            let mut effects = Effects::new();
            self.members.get_mut(&id).unwrap().handle_timeout(now, &mut effects);
            self.carry_out(id, effects);
        }
        self.deliver(now);
    }

    /// Everyone claims, one after the other, and what it says arrives.
    fn claim_all(&mut self, now: Instant) {
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            self.tell(id, Input::Claim { epoch: Term::new(1) }, now);
            self.deliver(now);
        }
    }

    fn leaders(&self, now: Instant) -> Vec<u32> {
        let leads = |it: &(&u32, &Installation)| it.1.mandate(now).is_some();
        self.members.iter().filter(leads).map(|(id, _)| *id).collect()
    }

    fn voters(&self) -> Vec<u32> {
        self.members.iter().filter(|(_, member)| member.has_vote()).map(|(id, _)| *id).collect()
    }

    /// An old group with its leader, and new members that have a longer list.
    fn grown(before: &[u32], new: &[u32], after: &[u32], without: Option<Safeguard>) -> Self {
        let mut town = Town { without, ..Town::new() };
        before.iter().for_each(|id| town.start(*id, before, true, at(0)));
        town.deliver(at(0));
        town.claim_all(at(1));
        assert_eq!(town.leaders(at(2)).len(), 1, "the old group");
        new.iter().for_each(|id| town.start(*id, after, true, at(3)));
        town.deliver(at(3));
        town.pass(at(200));
        town.claim_all(at(201));
        town
    }
}

/// Old members, new ones, and the new list: each time the new ones are a quorum of it.
const GROWTHS: [(&[u32], &[u32], &[u32]); 3] = [
    (&[1], &[2, 3], &[1, 2, 3]),
    (&[1, 2], &[3, 4, 5], &[1, 2, 3, 4, 5]),
    (&[1, 2, 3], &[4, 5, 6, 7], &[1, 2, 3, 4, 5, 6, 7]),
];

#[test]
fn new_members_with_a_longer_list_elect_nobody_beside_a_group_that_has_a_leader() {
    for (before, new, after) in GROWTHS {
        let town = Town::grown(before, new, after, None);
        assert_eq!(town.leaders(at(202)).len(), 1, "{after:?}");
        assert_eq!(town.voters(), before, "the new ones have none");
        // They wait for those of the old group, who have another list and do not answer.
        let waits = town.members[&new[0]].no_vote().unwrap();
        let old: Vec<_> = before.iter().copied().map(p).collect();
        assert_eq!(waits, NoVote { why: WhyNoVote::New, awaits: old });
    }
}

#[test]
fn without_that_rule_there_are_two_leaders() {
    for (before, new, after) in GROWTHS {
        let town = Town::grown(before, new, after, Some(Safeguard::FirstAnswers));
        assert_eq!(town.leaders(at(202)).len(), 2, "{after:?}");
    }
}

#[test]
fn two_quorums_of_a_list_of_which_half_is_old_do_not_both_elect() {
    // p3 was to be a member of the old group, and is started with the new list instead.
    let mut town = Town::new();
    for id in [1, 2] {
        town.start(id, &[1, 2, 3], true, at(0));
    }
    for id in [3, 4, 5] {
        town.start(id, &[1, 2, 3, 4, 5], true, at(0));
    }
    town.deliver(at(0));
    town.claim_all(at(1));
    assert_eq!((town.voters(), town.leaders(at(2))), (Vec::new(), Vec::new()));
}

#[test]
fn members_that_are_all_new_have_a_vote_when_all_have_answered_and_need_not_wait_for_a_lease() {
    for size in 2..=7 {
        let list: Vec<u32> = (1..=size).collect();
        let mut town = Town::new();
        let (last, first) = list.split_last().unwrap();
        first.iter().for_each(|id| town.start(*id, &list, true, at(0)));
        town.deliver(at(1));
        town.claim_all(at(2));
        assert_eq!((town.voters(), town.leaders(at(3))), (Vec::new(), Vec::new()), "{size}");
        let waits = town.members[&1].no_vote().unwrap().to_string();
        assert_eq!(waits, alloc::format!("no vote yet: waiting for a first answer of p{size}"));
        town.start(*last, &list, true, at(500));
        town.deliver(at(500));
        // The first ones asked before it was there, and ask again.
        town.pass(at(600));
        assert_eq!(town.voters(), list);
        assert!(town.written.values().all(|written| *written == Promised::ADMITTED));
        town.tell(1, Input::Claim { epoch: Term::new(1) }, at(601));
        town.deliver(at(601));
        assert_eq!(town.leaders(at(602)), [1]);
    }
}

#[test]
fn after_the_first_start_a_quorum_is_enough() {
    let mut town = Town::new();
    (1..=3).for_each(|id| town.start(id, &[1, 2, 3], true, at(0)));
    town.deliver(at(0));
    town.members.clear();
    for id in [1, 2] {
        town.start(id, &[1, 2, 3], false, at(10));
    }
    assert_eq!(town.voters(), [1, 2]);
    town.claim_all(at(11));
    assert_eq!(town.leaders(at(12)), [1]);
}

#[test]
fn a_new_member_that_crashes_while_it_waits_waits_again() {
    let mut town = Town::new();
    for id in [1, 2] {
        town.start(id, &[1, 2, 3], true, at(0));
    }
    town.deliver(at(0));
    // Not as a new one: its state is there, and says that it is new.
    for id in [1, 2] {
        assert_eq!(town.written[&id], Promised::NOTHING);
        town.start(id, &[1, 2, 3], false, at(10));
    }
    town.deliver(at(10));
    town.claim_all(at(11));
    assert_eq!((town.voters(), town.leaders(at(12))), (Vec::new(), Vec::new()));
    town.start(3, &[1, 2, 3], true, at(20));
    town.deliver(at(20));
    town.pass(at(200));
    assert_eq!(town.voters(), [1, 2, 3]);
}

#[test]
fn a_lost_disk_that_is_taken_for_a_new_members_forgets_no_promise() {
    let mut town = Town::new();
    (1..=3).for_each(|id| town.start(id, &[1, 2, 3], true, at(0)));
    town.deliver(at(0));
    town.members.remove(&3);
    town.tell(1, Input::Claim { epoch: Term::new(1) }, at(1));
    town.deliver(at(1));
    assert_eq!(town.leaders(at(2)), [1], "by the promise of p2");
    // p2 comes back as a new member, and p3 with its disk.
    town.written.remove(&2);
    town.start(2, &[1, 2, 3], true, at(3));
    town.start(3, &[1, 2, 3], false, at(3));
    town.deliver(at(3));
    assert_eq!(town.members[&2].promised().term, Term::new(1));
    town.tell(3, Input::Claim { epoch: Term::new(2) }, at(4));
    town.deliver(at(4));
    assert_eq!(town.leaders(at(5)), [1], "p2 is bound as if it had its disk");
}

#[test]
fn a_claim_that_waits_for_a_lease_is_dropped_if_the_vote_is_in_doubt_by_then() {
    let mut town = Town::new();
    let bound = Promised { lease: LEASE, ..Promised::ADMITTED };
    town.written.insert(1, bound);
    town.start(1, &[1, 2, 3], false, at(0));
    town.tell(1, Input::Claim { epoch: Term::new(1) }, at(0));
    let member = town.members.get_mut(&1).unwrap();
    let due = member.deadline().unwrap();
    member.set_disputed(true);
    let mut effects = Effects::new();
    member.handle_timeout(due, &mut effects);
    assert!(member.deadline().is_none_or(|next| next > due), "it would be busy with nothing else");
}
