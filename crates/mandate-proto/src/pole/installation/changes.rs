//! Changes of members, by hand.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::ToString;
use alloc::vec::Vec;

use super::schedules::{LEASE, LEASED};
use super::*;

pub(super) fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

pub(super) fn adds(member: u32) -> MemberChange {
    MemberChange::Add { member: p(member), contact: Contact::default(), replaces: None }
}

pub(super) fn removes(member: u32) -> MemberChange {
    MemberChange::Remove { member: p(member) }
}

/// Members with their disks, and what is under way between them.
pub(super) struct Town {
    pub(super) members: BTreeMap<u32, Installation>,
    disks: BTreeMap<u32, Stored>,
    letters: VecDeque<(u32, u32, Message)>,
    told: Vec<(u32, Event)>,
    pub(super) now: Instant,
    incarnations: u64,
    pub(super) seed: Vec<MemberId>,
    guarantee: PeerGuarantee,
    without: Option<Safeguard>,
}

impl Town {
    /// A group that was set up with so many members; all have answered each other.
    pub(super) fn of(size: u32, guarantee: PeerGuarantee, without: Option<Safeguard>) -> Self {
        let seed = (1..=size).map(p).collect();
        let mut town = Town {
            members: BTreeMap::new(),
            disks: BTreeMap::new(),
            letters: VecDeque::new(),
            told: Vec::new(),
            now: Instant::ORIGIN,
            incarnations: 0,
            seed,
            guarantee,
            without,
        };
        for id in 1..=size {
            town.disks.insert(id, Promised::ADMITTED.into());
            town.restart(id);
        }
        town
    }

    /// The same without leases.
    pub(super) fn fenced(size: u32, without: Option<Safeguard>) -> Self {
        Town::of(size, PeerGuarantee::Fenced, without)
    }

    pub(super) fn start(&mut self, me: u32, boot: Boot) {
        let config = Config {
            me: p(me),
            members: if boot.joins { Vec::new() } else { self.seed.clone() },
            contacts: BTreeMap::new(),
            guarantee: self.guarantee,
            retry: LEASE / 10,
            give_up: LEASE,
            without: self.without,
        };
        let mut effects = Effects::new();
        let member = Installation::start(config, boot, self.now, &mut effects);
        self.members.insert(me, member);
        self.carry_out(me, effects);
    }

    pub(super) fn boot(&mut self, stored: Option<Stored>) -> Boot {
        self.incarnations += 1;
        let lifetime = Incarnation::new(self.incarnations);
        Boot { stored, is_new: false, is_changed: false, joins: false, auto: None, lifetime }
    }

    /// Starts a member again with its disk, if it has one.
    pub(super) fn restart(&mut self, me: u32) {
        let stored = self.disks.get(&me).cloned();
        let boot = self.boot(stored);
        self.start(me, boot);
    }

    /// The same, without its disk.
    pub(super) fn lose_disk(&mut self, me: u32) {
        self.disks.remove(&me);
        self.restart(me);
    }

    /// Starts a process that is to be added; what it has on disk is lost, if anything.
    pub(super) fn join(&mut self, me: u32) {
        self.disks.remove(&me);
        let boot = self.boot(None);
        self.start(me, Boot { joins: true, ..boot });
    }

    fn carry_out(&mut self, from: u32, mut effects: Effects<Effect>) {
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::Persist(stored) => {
                    self.disks.insert(from, stored);
                    self.members.get_mut(&from).unwrap().persisted(self.now);
                }
                Effect::Send { to, message } => {
                    self.letters.push_back((from, to.get(), message));
                }
                Effect::Broadcast(message) => {
                    let others = self.members[&from].others().map(MemberId::get);
                    self.letters.extend(others.map(|to| (from, to, message.clone())));
                }
                Effect::Tell(event) => self.told.push((from, event)),
            }
        }
    }

    pub(super) fn tell(&mut self, id: u32, input: Input) {
        let mut effects = Effects::new();
        self.members.get_mut(&id).unwrap().handle(input, self.now, &mut effects);
        self.carry_out(id, effects);
    }

    pub(super) fn hear(&mut self, to: u32, from: u32, message: Message) {
        self.tell(to, Input::Received { from: p(from), message });
    }

    /// What these say to each other arrives, and so does what follows from it. All else is lost.
    pub(super) fn talk(&mut self, among: &[u32]) {
        for _ in 0..10_000 {
            let Some((from, to, message)) = self.letters.pop_front() else { return };
            let is_heard = among.contains(&from) && among.contains(&to);
            if is_heard && self.members.contains_key(&to) {
                self.hear(to, from, message);
            }
        }
        panic!("they do not come to an end");
    }

    /// What one has sent to another arrives, and what follows from it is under way.
    pub(super) fn arrive(&mut self, from: u32, to: u32) {
        let letters = self.letters(from, to);
        self.letters.retain(|it| (it.0, it.1) != (from, to));
        letters.into_iter().for_each(|message| self.hear(to, from, message));
    }

    /// What one has sent to another, and has not arrived.
    pub(super) fn letters(&self, from: u32, to: u32) -> Vec<Message> {
        let is_it = |it: &&(u32, u32, Message)| (it.0, it.1) == (from, to);
        self.letters.iter().filter(is_it).map(|it| it.2.clone()).collect()
    }

    /// All that is under way is lost.
    pub(super) fn lose_letters(&mut self) {
        self.letters.clear();
    }

    /// So much later these do what is due, and what they say to each other arrives.
    pub(super) fn pass(&mut self, pause: Duration, among: &[u32]) {
        self.now += pause;
        among.iter().for_each(|id| self.due(Duration::ZERO, *id));
        self.talk(among);
    }

    /// So much later one does what is due; what it says is under way.
    pub(super) fn due(&mut self, pause: Duration, id: u32) {
        self.now += pause;
        let mut effects = Effects::new();
        self.members.get_mut(&id).unwrap().handle_timeout(self.now, &mut effects);
        self.carry_out(id, effects);
    }

    /// Claims are repeated until nothing new comes of it.
    pub(super) fn go_on(&mut self, among: &[u32]) {
        (0..8).for_each(|_| self.pass(LEASE / 8, among));
    }

    /// Claims a term above all that these have heard of; whether it holds it then.
    pub(super) fn claims(&mut self, id: u32, among: &[u32]) -> bool {
        let highest = among.iter().map(|id| self.members[id].highest()).max().unwrap();
        self.claims_term(id, highest.get() + 1, among)
    }

    /// Claims this term, or a higher one.
    pub(super) fn claims_term(&mut self, id: u32, term: u64, among: &[u32]) -> bool {
        let epoch = Term::new(term);
        self.lose_letters();
        self.tell(id, Input::Resign);
        self.lose_letters();
        self.tell(id, Input::Claim { epoch });
        self.talk(among);
        // It may have heard of a newer list, and have given up.
        if !self.members[&id].is_claiming() {
            self.tell(id, Input::Claim { epoch });
        }
        (0..2).for_each(|_| self.pass(LEASE / 10, among));
        self.leads(id).is_some()
    }

    pub(super) fn leads(&self, id: u32) -> Option<Term> {
        self.members[&id].mandate(self.now).map(|(term, _)| term)
    }

    pub(super) fn changes(&mut self, id: u32, change: MemberChange) {
        self.tell(id, Input::Change(change));
    }

    /// Asks for a change that is not made: why.
    fn refusal(&mut self, id: u32, change: MemberChange) -> NoChange {
        let before = self.members[&id].roster().clone();
        self.told.clear();
        self.changes(id, change.clone());
        assert_eq!(*self.members[&id].roster(), before, "all is as it was");
        match &self.told[..] {
            [(_, Event::NotChanged { change: named, reason })] if *named == change => *reason,
            told => panic!("{told:?}"),
        }
    }

    /// By which list a member goes.
    pub(super) fn list(&self, id: u32) -> alloc::string::String {
        self.members[&id].roster().to_string()
    }

    pub(super) fn is_settled(&self, id: u32) -> bool {
        self.members[&id].is_settled()
    }

    fn why_no_vote(&self, id: u32) -> Option<WhyNoVote> {
        self.members[&id].no_vote().map(|no_vote| no_vote.why)
    }
}

/// A group of three that p1 leads, and a process that is to be added.
fn three_and_one(guarantee: PeerGuarantee) -> Town {
    let mut town = Town::of(3, guarantee, None);
    assert!(town.claims(1, &[1, 2, 3]));
    town.join(4);
    town
}

#[test]
fn a_change_is_settled_by_a_quorum_of_the_new_list() {
    for guarantee in [PeerGuarantee::Fenced, LEASED] {
        let mut town = three_and_one(guarantee);
        town.changes(1, adds(4));
        town.talk(&[1, 2]);
        assert_eq!(town.list(1), "p1 p2 p3 (p4)");
        assert!(town.is_settled(1), "p1 and p2 are a quorum of the three that vote");
        // The new one is heard, and p3 was not yet.
        town.pass(LEASE / 3, &[1, 2, 4]);
        town.pass(LEASE / 3, &[1, 4]);
        assert_eq!((town.list(1), town.list(4)), ("p1 p2 p3 p4".into(), "p1 p2 p3 p4".into()));
        assert!(!town.is_settled(1), "two of four are no quorum");
        assert!(town.leads(1).is_some(), "a quorum had promised");
        town.told.clear();
        let roster = town.members[&1].our_roster();
        town.hear(2, 1, roster);
        assert!(!town.is_settled(1), "it may not be on disk");
        town.pass(LEASE / 3, &[1, 2, 4]);
        assert!(town.is_settled(1));
        let roster = town.members[&1].roster().id();
        let settled = town.told.iter().filter(|(_, it)| *it == Event::Settled { roster });
        assert_eq!(settled.count(), 1);
        assert!(town.members[&4].has_vote());
    }
}

#[test]
fn a_learner_does_not_count() {
    let mut town = three_and_one(PeerGuarantee::Fenced);
    town.changes(1, adds(4));
    town.talk(&[1, 2, 3]);
    assert!(town.is_settled(1));
    // It promises, and is no voter before a quorum of the voters is heard.
    let roster = town.members[&1].our_roster();
    town.hear(4, 1, roster);
    assert_eq!(town.why_no_vote(4), Some(WhyNoVote::Learning));
    assert!(!town.claims(1, &[1, 4]), "one voter and a learner");
    assert!(town.claims(1, &[1, 2]));
    assert!(!town.claims(4, &[2, 3, 4]), "a learner claims nothing");
}

#[test]
fn an_observer_follows_and_never_votes() {
    let mut town = three_and_one(LEASED);
    town.changes(1, MemberChange::Observe { member: p(4), contact: Contact::default() });
    town.talk(&[1, 2, 3, 4]);
    town.go_on(&[1, 2, 3, 4]);
    assert_eq!((town.list(1), town.list(4)), ("p1 p2 p3 (p4)".into(), "p1 p2 p3 (p4)".into()));
    assert_eq!(town.why_no_vote(4), Some(WhyNoVote::Observing));
    assert_eq!(town.refusal(1, MemberChange::Promote { member: p(4) }), NoChange::Observes);
}

#[test]
fn who_is_replaced_is_removed_once_the_new_one_votes() {
    for guarantee in [PeerGuarantee::Fenced, LEASED] {
        let mut town = three_and_one(guarantee);
        let contact = Contact::default();
        town.changes(1, MemberChange::Add { member: p(4), contact, replaces: Some(p(3)) });
        // p3 is gone already.
        town.talk(&[1, 2]);
        assert_eq!(town.list(1), "p1 p2 p3 (p4)");
        town.go_on(&[1, 2, 4]);
        assert_eq!(town.list(1), "p1 p2 p4");
        assert!(town.is_settled(1) && town.leads(1).is_some());
        assert_eq!(town.members[&1].roster().entry(p(4)).unwrap().replaces(), None);
    }
}

#[test]
fn a_leader_that_is_replaced_is_removed_by_the_next_one() {
    let mut town = three_and_one(PeerGuarantee::Fenced);
    let contact = Contact::default();
    town.changes(1, MemberChange::Add { member: p(4), contact, replaces: Some(p(1)) });
    town.go_on(&[1, 2, 3, 4]);
    assert_eq!(town.list(1), "p1 p2 p3 p4", "it does not remove itself");
    town.tell(1, Input::Transfer { to: p(2) });
    town.go_on(&[1, 2, 3, 4]);
    assert!(town.leads(2).is_some());
    assert_eq!(town.list(2), "p2 p3 p4");
    assert_eq!(town.why_no_vote(1), Some(WhyNoVote::NotAMember));
}

#[test]
fn what_cannot_be_changed_is_said_with_the_reason() {
    let mut town = three_and_one(PeerGuarantee::Fenced);
    let named = |member, name: &str, address: &str| MemberChange::Observe {
        member: p(member),
        contact: Contact { name: name.into(), address: address.into() },
    };
    let replaces = |old| {
        let contact = Contact::default();
        MemberChange::Add { member: p(4), contact, replaces: Some(p(old)) }
    };
    assert_eq!(town.refusal(2, adds(4)), NoChange::NotLeading);
    assert_eq!(town.refusal(1, adds(2)), NoChange::Known);
    assert_eq!(town.refusal(1, adds(0)), NoChange::UsedBefore);
    assert_eq!(town.refusal(1, named(4, &"x".repeat(MAX_NAME + 1), "")), NoChange::TooLong);
    assert_eq!(town.refusal(1, named(4, "", &"x".repeat(MAX_ADDRESS + 1))), NoChange::TooLong);
    assert_eq!(town.refusal(1, replaces(9)), NoChange::Unknown);
    assert_eq!(town.refusal(1, removes(9)), NoChange::Unknown);
    assert_eq!(town.refusal(1, MemberChange::Promote { member: p(9) }), NoChange::Unknown);
    assert_eq!(town.refusal(1, MemberChange::Promote { member: p(2) }), NoChange::Known);
    assert_eq!(town.refusal(1, removes(1)), NoChange::Leads);

    town.changes(1, named(4, "four", ""));
    town.talk(&[1, 2, 3]);
    assert_eq!(town.refusal(1, named(5, "four", "")), NoChange::NameTaken);
    town.changes(1, removes(4));
    town.talk(&[1, 2, 3]);
    assert_eq!(town.list(1), "p1 p2 p3");
    assert_eq!(town.refusal(1, adds(4)), NoChange::UsedBefore, "p4 was a member");
    town.changes(1, adds(5));
    town.talk(&[1, 2, 3]);
    assert_eq!(town.refusal(1, MemberChange::Promote { member: p(5) }), NoChange::NotFollowing);

    let mut alone = Town::fenced(1, None);
    assert!(alone.claims(1, &[1]));
    assert_eq!(alone.refusal(1, removes(1)), NoChange::LastVoter);
    for id in 2..=MAX_MEMBERS as u32 {
        alone.changes(1, named(id, "", ""));
        // What is done once a write is done.
        (0..2).for_each(|_| alone.due(Duration::ZERO, 1));
        assert!(alone.is_settled(1));
    }
    assert_eq!(alone.refusal(1, adds(99)), NoChange::TooMany);
}

#[test]
fn a_change_after_which_no_quorum_would_be_bound_is_not_made() {
    for guarantee in [PeerGuarantee::Fenced, LEASED] {
        let mut town = Town::of(3, guarantee, None);
        assert!(town.claims(1, &[1, 2]));
        assert_eq!(town.refusal(1, removes(2)), NoChange::NoQuorum, "p3 is not there");
        town.changes(1, removes(3));
        town.talk(&[1, 2]);
        assert_eq!(town.list(1), "p1 p2");
        assert!(town.is_settled(1));
    }
    // With leases only who is bound now counts.
    let mut town = Town::of(3, LEASED, None);
    assert!(town.claims(1, &[1, 2, 3]));
    (0..4).for_each(|_| town.pass(LEASE / 3, &[1, 2]));
    assert_eq!(town.refusal(1, removes(2)), NoChange::NoQuorum);
}

#[test]
fn a_second_change_waits_for_the_first() {
    let mut town = three_and_one(PeerGuarantee::Fenced);
    town.join(5);
    town.changes(1, adds(4));
    // The first step of this leader, and then a change that is not settled.
    assert_eq!(town.refusal(1, adds(5)), NoChange::UnderWay);
    let first = town.letters(1, 2);
    let claim = first.into_iter().rfind(|it| matches!(it, Message::Claim { .. })).unwrap();
    let Message::Claim { term, id, .. } = claim else { unreachable!() };
    town.hear(1, 2, Message::Promise { term, id });
    assert_eq!(town.list(1), "p1 p2 p3 (p4)");
    assert_eq!(town.refusal(1, adds(5)), NoChange::UnderWay);
    town.talk(&[1, 2, 3]);
    town.go_on(&[1, 2]);
    town.changes(1, adds(5));
    town.talk(&[1, 2]);
    assert_eq!(town.list(1), "p1 p2 p3 (p4) (p5)", "a learner that is not there blocks nothing");
}

#[test]
fn a_change_that_waits_is_given_up_with_the_leadership() {
    let mut town = three_and_one(PeerGuarantee::Fenced);
    town.changes(1, adds(4));
    town.told.clear();
    town.tell(1, Input::Resign);
    let lost = Event::NotChanged { change: adds(4), reason: NoChange::Lost };
    assert!(town.told.contains(&(1, lost)), "{:?}", town.told);
    assert_eq!(town.list(1), "p1 p2 p3");
}

#[test]
fn a_member_that_was_removed_is_promised_nothing_and_learns_that_it_is_none() {
    let mut town = Town::fenced(3, None);
    assert!(town.claims(1, &[1, 2, 3]));
    town.changes(1, removes(3));
    town.talk(&[1, 2]);
    assert!(town.is_settled(1));
    assert_eq!(town.list(3), "p1 p2 p3", "it has not heard of that");
    assert!(!town.claims(3, &[2, 3]));
    assert_eq!(town.why_no_vote(3), Some(WhyNoVote::NotAMember));
    assert_eq!(town.leads(1), Some(Term::new(1)), "and it is no trouble to the others");
    // What it says counts for nothing.
    town.hear(1, 3, Message::Refuse { term: Term::new(1), promised: Term::new(9) });
    town.hear(2, 3, Message::Release { term: Term::new(9), life: Incarnation::new(3), next: None });
    assert_eq!(town.leads(1), Some(Term::new(1)));
    assert_eq!(town.members[&2].highest(), Term::new(1));
    // Nor does it promise anything itself.
    assert!(!town.claims(1, &[1, 3]));
}

#[test]
fn a_claim_by_an_older_list_is_answered_with_the_newer_one() {
    let mut town = Town::fenced(3, None);
    assert!(town.claims(1, &[1, 2, 3]));
    town.changes(1, removes(3));
    town.talk(&[1, 2]);
    let promised = town.members[&2].promised();
    town.tell(3, Input::Claim { epoch: Term::new(7) });
    let [claim] = &town.letters(3, 2)[..] else { panic!("one claim") };
    town.hear(2, 3, claim.clone());
    assert_eq!(town.letters(2, 3), [town.members[&2].our_roster()]);
    assert_eq!(town.members[&2].promised(), promised);
}

#[test]
fn a_leader_that_has_not_heard_of_a_newer_list_finds_no_quorum() {
    let mut town = Town::of(5, LEASED, None);
    assert!(town.claims(1, &[1, 2, 3, 4, 5]));
    // p1 is cut off; p2 leads, and removes it.
    town.now += LEASE;
    assert!(town.claims(2, &[2, 3, 4]));
    town.changes(2, removes(1));
    town.talk(&[2, 3, 4]);
    assert!(town.is_settled(2));
    town.now += LEASE * 2;
    // By its list three of five are enough, of which p5 has not heard of the change either.
    assert_eq!(town.list(5), "p1 p2 p3 p4 p5");
    assert!(!town.claims(1, &[1, 3, 5]));
    assert_eq!(town.why_no_vote(1), Some(WhyNoVote::NotAMember));
    assert!(town.claims(5, &[3, 4, 5]), "who is a member may");
    assert_eq!(town.list(5), "p2 p3 p4 p5");
}

#[test]
fn a_process_that_joins_once_more_on_an_empty_disk_has_no_vote() {
    for voted in [false, true] {
        let mut town = three_and_one(PeerGuarantee::Fenced);
        town.changes(1, adds(4));
        town.go_on(if voted { &[1, 2, 3, 4] } else { &[1, 2, 3] });
        assert_eq!(town.members[&4].has_vote(), voted);
        town.join(4);
        town.claims(1, &[1, 2, 3, 4]);
        town.go_on(&[1, 2, 3, 4]);
        assert_eq!(town.list(4), "p1 p2 p3 p4");
        // One that has never been a voter has not promised anything that counts.
        let why = voted.then_some(WhyNoVote::Outdated);
        assert_eq!(town.why_no_vote(4), why);
        assert_eq!(town.claims(1, &[1, 2, 4]), !voted);
    }
}

#[test]
fn a_stored_list_wins_over_the_one_in_the_configuration() {
    let mut town = three_and_one(PeerGuarantee::Fenced);
    town.changes(1, adds(4));
    town.go_on(&[1, 2, 3, 4]);
    town.seed = [1, 2].map(p).to_vec();
    (1..=4).for_each(|id| town.restart(id));
    for id in 1..=4 {
        assert_eq!(town.list(id), "p1 p2 p3 p4");
        assert!(town.members[&id].has_vote());
    }
    assert!(!town.claims(1, &[1, 2]));
    assert!(town.claims(4, &[2, 3, 4]));
}

#[test]
fn a_group_of_one_grows() {
    for guarantee in [PeerGuarantee::Fenced, LEASED] {
        let mut town = Town::of(1, guarantee, None);
        assert!(town.claims(1, &[1]));
        for id in 2..=5 {
            town.join(id);
            town.changes(1, adds(id));
            let all: Vec<u32> = (1..=id).collect();
            town.go_on(&all);
            assert!(town.is_settled(1) && town.members[&id].has_vote(), "{}", town.list(1));
        }
        assert_eq!(town.list(5), "p1 p2 p3 p4 p5");
        town.now += LEASE;
        assert_eq!(town.leads(1).is_some(), guarantee == PeerGuarantee::Fenced, "alone it is not");
        assert!(town.claims(5, &[3, 4, 5]));
        assert!(!town.claims(1, &[1, 2]));
    }
}

#[test]
fn a_group_shrinks_to_one() {
    let mut town = Town::of(3, LEASED, None);
    assert!(town.claims(1, &[1, 2, 3]));
    town.changes(1, removes(3));
    town.talk(&[1, 2, 3]);
    town.changes(1, removes(2));
    town.talk(&[1]);
    assert!(town.is_settled(1) && town.list(1) == "p1");
    town.now += LEASE * 2;
    assert!(!town.claims(2, &[2, 3]), "p2 has the list before, and p3 was removed");
    assert!(town.claims(1, &[1]));
}

#[test]
fn a_leader_of_a_group_that_was_changed_makes_the_list_its_own_and_one_of_a_seed_does_not() {
    let mut town = three_and_one(PeerGuarantee::Fenced);
    assert_eq!(town.members[&1].roster().id(), RosterId::SEED);
    town.changes(1, adds(4));
    town.go_on(&[1, 2, 3, 4]);
    assert_eq!(town.members[&1].roster().id().term, Term::new(1));
    assert!(town.claims(2, &[1, 2, 3, 4]));
    let own = town.members[&2].roster().id();
    assert_eq!(own, RosterId { term: Term::new(2), version: 3 });
    assert!(town.is_settled(2));
    assert_eq!(town.list(3), "p1 p2 p3 p4");
}

/// The last claim of one that another has not heard yet.
fn last_claim(town: &Town, from: u32, to: u32) -> Message {
    let is_claim = |it: &Message| matches!(it, Message::Claim { .. });
    town.letters(from, to).into_iter().rfind(is_claim).expect("a claim")
}

#[test]
fn what_another_process_under_a_members_id_has_promised_does_not_count_for_it() {
    let mut town = Town::of(2, LEASED, None);
    assert!(town.claims(1, &[1, 2]));
    town.join(3);
    town.changes(1, adds(3));
    town.talk(&[1, 2]);
    // p3 promises a claim, and its answer is slow; another claim is sent meanwhile.
    let roster = town.members[&1].our_roster();
    town.hear(3, 1, roster);
    town.due(LEASE / 3, 1);
    let claim = last_claim(&town, 1, 3);
    town.hear(3, 1, claim);
    let follows = town.letters(3, 1).pop().unwrap();
    let bound_from = town.now;
    town.due(LEASE / 3, 1);
    let Message::Claim { term, id, .. } = last_claim(&town, 1, 3) else { unreachable!() };
    town.lose_letters();
    town.hear(1, 3, follows);
    assert_eq!(town.list(1), "p1 p2 p3");
    // The list reaches both, and no claim does. The other claim was answered by another process that joins as p3.
    let roster = town.members[&1].our_roster();
    town.hear(2, 1, roster.clone());
    town.hear(3, 1, roster);
    town.hear(1, 3, Message::Follow { term, id, joined: Incarnation::new(99) });
    town.now = bound_from + LEASE;
    assert!(town.claims(2, &[2, 3]));
    assert_eq!(town.leads(1), None, "p3 is bound to p1 no more");
}

#[test]
fn lists_that_nobody_can_have_made_are_not_taken() {
    let mut town = Town::fenced(3, None);
    let number = |version| RosterId { term: Term::new(1), version };
    let nobody =
        Roster::new(number(2), [Entry { part: Membership::Observer, ..Entry::voter(p(1)) }]);
    let late = Roster::new(number(u64::MAX), [1, 2, 3, 4].map(|id| Entry::voter(p(id))));
    let early =
        Roster::new(RosterId { term: Term::new(u64::MAX), version: 2 }, late.entries().to_vec());
    for roster in [nobody, late, early] {
        let config = ConfigId::of_roster(&roster, PeerGuarantee::Fenced);
        town.hear(1, 2, Message::Roster { roster, config });
        assert_eq!(town.members[&1].roster().id(), RosterId::SEED);
    }
}

#[test]
fn a_settled_list_is_not_undone_by_the_first_step_of_a_former_leader() {
    // p1 adds p5, and nobody but these two hears that it votes.
    let mut town = Town::fenced(4, None);
    assert!(town.claims(1, &[1, 2, 3, 4]));
    town.join(5);
    town.changes(1, adds(5));
    town.talk(&[1, 2, 3, 4]);
    town.pass(LEASE / 5, &[1, 5]);
    town.pass(LEASE / 5, &[1, 5]);
    assert_eq!((town.list(5), town.list(4)), ("p1 p2 p3 p4 p5".into(), "p1 p2 p3 p4 (p5)".into()));
    // p2 leads in between, and makes the list that it was elected by its own; nobody hears of that.
    town.tell(2, Input::Claim { epoch: Term::new(2) });
    for other in [3, 4] {
        town.arrive(2, other);
        town.arrive(other, 2);
    }
    assert_eq!(town.leads(2), Some(Term::new(2)));
    town.changes(2, removes(3));
    town.lose_letters();
    // p1 leads again by the list with p5, and is told that it is settled. Then it is gone.
    town.told.clear();
    assert!(town.claims(1, &[1, 4, 5]));
    town.go_on(&[1, 4, 5]);
    assert!(town.told.iter().any(|(id, it)| *id == 1 && matches!(it, Event::Settled { .. })));
    town.claims(2, &[2, 3, 4]);
    town.go_on(&[2, 3, 4]);
    assert!(town.leads(2).is_some());
    assert_eq!(town.list(2), "p1 p2 p3 p4 p5");
}

#[test]
fn a_member_without_a_disk_is_not_let_in_as_one_whose_list_was_edited() {
    for has_disk in [true, false] {
        let mut town = three_and_one(PeerGuarantee::Fenced);
        town.changes(1, adds(4));
        town.go_on(&[1, 2, 3, 4]);
        let stored = town.disks.get(&3).cloned().filter(|_| has_disk);
        let boot = town.boot(stored);
        town.start(3, Boot { is_changed: true, is_new: !has_disk, ..boot });
        town.go_on(&[1, 2, 3, 4]);
        assert_eq!(town.list(3), "p1 p2 p3 p4");
        let why = (!has_disk).then_some(WhyNoVote::Outdated);
        assert_eq!(town.why_no_vote(3), why, "it may have forgotten a newer list");
    }
}

#[test]
fn a_first_member_that_was_started_as_new_and_hears_of_its_group_has_lost_its_disk() {
    let mut town = Town::of(1, LEASED, None);
    assert!(town.claims(1, &[1]));
    for (id, among) in [(2, &[1, 2][..]), (3, &[1, 2, 3])] {
        town.join(id);
        town.changes(1, adds(id));
        town.go_on(among);
    }
    assert_eq!(town.list(3), "p1 p2 p3");
    // Its promise of this term to p2 is gone with its disk.
    town.now += LEASE;
    assert!(town.claims_term(2, 2, &[1, 2]));
    let boot = town.boot(None);
    town.start(1, Boot { is_new: true, ..boot });
    assert!(!town.claims_term(3, 2, &[1, 3]));
    assert_eq!(town.why_no_vote(1), Some(WhyNoVote::Outdated));
    town.now += LEASE;
    assert!(town.claims(3, &[2, 3]), "the others go on");
}
