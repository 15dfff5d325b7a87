//! Whole schedules, by hand: what random storms hardly reach.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::*;

pub(super) const LEASE: Duration = Duration::from_millis(1000);
pub(super) const LEASED: PeerGuarantee =
    PeerGuarantee::Leased { lease: LEASE, allowance_per_mille: 10 };

pub(super) fn at(ms: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(ms)
}

/// A group, each member of which is driven by hand.
pub(super) struct Group {
    pub(super) members: Vec<Installation>,
    incarnations: u64,
    guarantee: PeerGuarantee,
}

impl Group {
    /// Members that have answered each other, and have promised nothing yet.
    pub(super) fn new(size: u32, guarantee: PeerGuarantee) -> Self {
        let mut group = Group { members: Vec::new(), incarnations: 0, guarantee };
        for me in 1..=size {
            let member = group.start(me, size, false, Some(Promised::ADMITTED), at(0));
            group.members.push(member);
        }
        group
    }

    fn start(
        &mut self,
        me: u32,
        size: u32,
        is_new: bool,
        stored: Option<Promised>,
        now: Instant,
    ) -> Installation {
        self.incarnations += 1;
        let config = Config {
            me: MemberId::new(me),
            members: (1..=size).map(MemberId::new).collect(),
            contacts: BTreeMap::new(),
            guarantee: self.guarantee,
            retry: LEASE / 10,
            give_up: LEASE,
            without: None,
        };
        let boot = Boot {
            stored: stored.map(Into::into),
            is_new,
            is_changed: false,
            joins: false,
            auto: None,
            lifetime: Incarnation::new(self.incarnations),
        };
        Installation::start(config, boot, now, &mut Effects::new())
    }

    /// Starts a member again, without its disk.
    fn lose_disk(&mut self, me: u32, now: Instant) {
        let size = self.members.len() as u32;
        self.members[me as usize - 1] = self.start(me, size, false, None, now);
    }

    /// Starts a member again, with its disk.
    pub(super) fn restart(&mut self, me: u32, now: Instant) {
        let size = self.members.len() as u32;
        let stored = Some(self.member(me).promised());
        self.members[me as usize - 1] = self.start(me, size, false, stored, now);
    }

    fn digest(&self) -> ConfigId {
        self.members[0].config_id()
    }

    pub(super) fn member(&mut self, id: u32) -> &mut Installation {
        &mut self.members[id as usize - 1]
    }

    pub(super) fn tell(&mut self, id: u32, input: Input, now: Instant) -> Vec<Effect> {
        let mut effects = Effects::new();
        self.member(id).handle(input, now, &mut effects);
        effects.drain().collect()
    }

    /// Has `to` hear a message; what it answers, if anything.
    pub(super) fn hear(
        &mut self,
        to: u32,
        from: u32,
        message: Message,
        now: Instant,
    ) -> Option<Message> {
        let input = Input::Received { from: MemberId::new(from), message };
        self.tell(to, input, now).into_iter().find_map(|effect| match effect {
            Effect::Send { message, .. } | Effect::Broadcast(message) => Some(message),
            _ => None,
        })
    }

    pub(super) fn claim(&mut self, id: u32, epoch: u64, now: Instant) -> Message {
        let effects = self.tell(id, Input::Claim { epoch: Term::new(epoch) }, now);
        broadcast(effects).expect("a claim")
    }

    /// A claim by `from` that `to` hears and answers, and the answer arrives.
    pub(super) fn promised(&mut self, from: u32, to: u32, claim: Message, now: Instant) {
        if let Some(answer) = self.hear(to, from, claim, now) {
            self.hear(from, to, answer, now);
        }
    }

    /// `asks` asks `asked`, whose answer arrives; the question that is asked then, if any.
    pub(super) fn asks(
        &mut self,
        asks: u32,
        asked: u32,
        question: Message,
        now: Instant,
    ) -> Option<Message> {
        let report = self.hear(asked, asks, question, now)?;
        self.hear(asks, asked, report, now)
    }

    pub(super) fn holds(&mut self, id: u32, now: Instant) -> Option<Term> {
        self.member(id).mandate(now).map(|(term, _)| term)
    }
}

pub(super) fn broadcast(effects: Vec<Effect>) -> Option<Message> {
    effects.into_iter().find_map(|effect| match effect {
        Effect::Broadcast(message) => Some(message),
        _ => None,
    })
}

#[test]
fn reports_from_before_a_claimants_end_do_not_count_beside_its_empty_disk() {
    for guarantee in [PeerGuarantee::Fenced, LEASED] {
        let mut group = Group::new(5, guarantee);
        // p2 promises p1 term 1, loses its disk, and asks; p3, p4 and p5 know of nothing.
        let claim = group.claim(1, 1, at(0));
        let late = group.hear(2, 1, claim.clone(), at(1)).unwrap();
        group.lose_disk(2, at(2));
        let life = Incarnation::new(6);
        let ask = Message::Ask { life, round: 0, config: group.digest() };
        for asked in 3..=5 {
            assert_eq!(group.asks(2, asked, ask.clone(), at(3)), None);
        }
        assert!(!group.member(2).has_vote(), "a quorum is not enough: p1 knows better");
        // Now p3 promises too, and p1 holds term 1. Then p1 loses its disk as well.
        group.promised(1, 3, claim, at(5));
        group.hear(1, 2, late, at(6));
        assert_eq!(group.holds(1, at(6)), Some(Term::new(1)));
        group.lose_disk(1, at(7));
        // p1 has nothing to report: p2 asks everyone anew, and p3 knows of term 1 by now.
        let again = group.asks(2, 1, ask, at(8)).unwrap();
        assert_eq!(again, Message::Ask { life, round: 1, config: group.digest() });
        for asked in [1, 3, 4, 5] {
            group.asks(2, asked, again.clone(), at(9));
        }
        assert!(group.member(2).has_vote());
        // Neither p2 nor p3 promises term 1 again.
        let claim = group.claim(4, 1, at(2000));
        for to in [2, 3, 5] {
            group.promised(4, to, claim.clone(), at(2001));
        }
        assert_eq!(group.holds(4, at(2002)), None);
    }
}

#[test]
fn what_a_former_life_claimed_and_released_frees_nobody_of_the_present_one() {
    for restarted in [false, true] {
        let mut group = Group::new(3, LEASED);
        // p1 claims term 1 and resigns; both messages are late. It loses its disk and recovers.
        let old_claim = group.claim(1, 1, at(0));
        let resigned = group.tell(1, Input::Resign, at(1));
        let old_release = broadcast(resigned).unwrap();
        group.lose_disk(1, at(2));
        let ask = Message::Ask { life: Incarnation::new(4), round: 0, config: group.digest() };
        for asked in [2, 3] {
            group.asks(1, asked, ask.clone(), at(3));
        }
        // It claims term 1 again, not knowing better, and holds it by p2's promise.
        let claim = group.claim(1, 1, at(1100));
        group.promised(1, 2, claim, at(1101));
        assert_eq!(group.holds(1, at(1102)), Some(Term::new(1)));
        if restarted {
            group.restart(2, at(1102));
        }
        // The late messages arrive. p2 is bound nevertheless.
        group.hear(2, 1, old_claim, at(1103));
        group.hear(2, 1, old_release, at(1104));
        let claim = group.claim(3, 2, at(1105));
        group.promised(3, 2, claim, at(1106));
        assert_eq!(group.holds(1, at(1107)), Some(Term::new(1)));
        assert_eq!(group.holds(3, at(1107)), None);
    }
}

#[test]
fn two_members_recover_a_lost_disk_from_each_other() {
    let mut group = Group::new(2, PeerGuarantee::Fenced);
    let claim = group.claim(1, 3, at(0));
    group.promised(1, 2, claim, at(1));
    assert_eq!(group.holds(1, at(2)), Some(Term::new(3)));
    group.lose_disk(2, at(3));
    let ask = Message::Ask { life: Incarnation::new(3), round: 0, config: group.digest() };
    group.asks(2, 1, ask, at(4));
    assert!(group.member(2).has_vote());
    assert_eq!(group.member(2).promised().term, Term::new(3));
}
