//! What outlives an incarnation, and what members must have alike: by hand.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::schedules::{Group, LEASE, LEASED, at};
use super::*;

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

/// p1 leads term 1 of three since 2 ms, by the promise of p2.
fn led() -> Group {
    let mut group = Group::new(3, LEASED);
    let claim = group.claim(1, 1, at(0));
    group.promised(1, 2, claim, at(1));
    assert_eq!(group.holds(1, at(2)), Some(Term::new(1)));
    group
}

/// Whether p3, which has promised nobody, can make this member lead now.
fn leads_with_p3(group: &mut Group, id: u32, now: Instant) -> bool {
    let effects = group.tell(id, Input::Claim { epoch: Term::new(2) }, now);
    if let Some(claim) = super::schedules::broadcast(effects) {
        group.promised(id, 3, claim, now);
    }
    group.holds(id, now).is_some()
}

#[test]
fn a_leader_that_crashed_waits_for_what_acts_on_its_former_mandate() {
    let mut group = led();
    group.restart(1, at(10));
    assert!(!leads_with_p3(&mut group, 1, at(11)), "a guarded command may act until 990 ms");
    assert!(group.member(1).is_claiming(), "it will claim when the lease is over");
    assert_eq!(group.member(1).deadline(), Some(at(10) + LEASE));
    // Nor does it promise another meanwhile.
    let claim = group.claim(3, 2, at(500));
    assert!(matches!(group.hear(1, 3, claim, at(501)), Some(Message::Refuse { .. })));
    let mut effects = Effects::new();
    group.member(1).handle_timeout(at(1010), &mut effects);
    assert!(effects.drain().any(|effect| matches!(effect, Effect::Persist(_))));
}

#[test]
fn a_leader_that_ended_in_good_order_does_not_wait() {
    let mut group = led();
    let effects = group.tell(1, Input::Stop, at(5));
    let release =
        effects.iter().position(|e| matches!(e, Effect::Broadcast(Message::Release { .. })));
    let written =
        effects.iter().position(|e| matches!(e, Effect::Persist(p) if p.promised.released));
    assert!(release < written && release.is_some(), "nobody waits for the write: {effects:?}");
    assert_eq!(group.holds(1, at(6)), None);
    group.restart(1, at(10));
    assert!(leads_with_p3(&mut group, 1, at(11)));
}

#[test]
fn another_incarnation_of_a_leader_is_another_claimant() {
    // p1's disk went back to when it had promised nothing: it does not know that it should wait.
    let mut group = led();
    let nothing = group.member(3).promised();
    assert_eq!(nothing, Promised::ADMITTED);
    group.members[0] = {
        let config = group.member(1).config.clone();
        let lifetime = Incarnation::new(99);
        let boot = Boot {
            stored: Some(nothing.into()),
            is_new: false,
            is_changed: false,
            joins: false,
            auto: None,
            lifetime,
        };
        Installation::start(config, boot, at(10), &mut Effects::new())
    };
    let claim = group.claim(1, 2, at(11));
    assert!(matches!(group.hear(2, 1, claim.clone(), at(12)), Some(Message::Refuse { .. })));
    assert!(matches!(group.hear(2, 1, claim, at(1001)), Some(Message::Promise { .. })));
}

#[test]
fn who_has_another_list_or_guarantee_is_promised_nothing_and_told_nothing() {
    for other in [
        Config { members: (1..=5).map(p).collect(), ..config(LEASED) },
        Config { guarantee: PeerGuarantee::Fenced, ..config(LEASED) },
    ] {
        let differs = other.seed_id();
        let mut group = Group::new(3, LEASED);
        let claim = group.claim(1, 1, at(0));
        let Message::Claim { term, id, lease, freed } = claim else { panic!("a claim") };
        let id = ClaimId { config: differs, ..id };
        let effects = received(&mut group, 2, Message::Claim { term, id, lease, freed });
        assert_eq!(effects, [Effect::Tell(Event::Differs { member: p(1), config: differs })]);
        let ask = Message::Ask { life: Incarnation::new(9), round: 0, config: differs };
        let effects = received(&mut group, 2, ask);
        assert_eq!(effects, [Effect::Tell(Event::Differs { member: p(1), config: differs })]);
        // A promise that names another configuration answers no claim of ours.
        received_by(&mut group, 1, 2, Message::Promise { term, id });
        assert_eq!(group.holds(1, at(2)), None);
    }
}

#[test]
fn before_its_first_promise_a_member_does_not_vote_in_a_group_that_differs() {
    let mut group = led();
    group.member(3).set_disputed(true);
    assert!(!group.member(3).has_vote(), "it may be part of a quorum of either list");
    group.member(2).set_disputed(true);
    assert!(group.member(2).has_vote(), "the group that has elected goes on without who differs");
    group.member(3).set_disputed(false);
    assert!(group.member(3).has_vote());
}

fn config(guarantee: PeerGuarantee) -> Config {
    Config {
        me: p(1),
        members: (1..=3).map(p).collect(),
        contacts: BTreeMap::new(),
        guarantee,
        retry: LEASE / 10,
        give_up: LEASE,
        without: None,
    }
}

fn received(group: &mut Group, to: u32, message: Message) -> Vec<Effect> {
    received_by(group, to, 1, message)
}

fn received_by(group: &mut Group, to: u32, from: u32, message: Message) -> Vec<Effect> {
    group.tell(to, Input::Received { from: p(from), message }, at(1))
}

/// Members 1 to 3 of a group that was changed, each with what it has on disk.
fn changed(stored: [Option<u64>; 3]) -> Vec<Installation> {
    let start = |(me, stored): (u32, Option<u64>)| {
        let term = |term| Promised { term: Term::new(term), lease: LEASE, ..Promised::NOTHING };
        let boot = Boot {
            stored: stored.map(term).map(Into::into),
            is_new: false,
            is_changed: true,
            joins: false,
            auto: None,
            lifetime: Incarnation::new(u64::from(me)),
        };
        let config = Config { me: p(me), ..config(LEASED) };
        Installation::start(config, boot, at(0), &mut Effects::new())
    };
    (1..=3).zip(stored).map(start).collect()
}

#[test]
fn after_a_change_of_members_nobody_votes_before_all_have_reported_and_all_know_the_highest_term() {
    let mut members = changed([Some(3), Some(7), None]);
    assert!(members.iter().all(|member| !member.has_vote()));
    for asking in 1..=3u32 {
        let life = Incarnation::new(u64::from(asking));
        for asked in (1..=3u32).filter(|asked| *asked != asking) {
            assert!(!members[asking as usize - 1].has_vote());
            let config = members[0].config_id();
            let ask = Input::Received {
                from: p(asking),
                message: Message::Ask { life, round: 0, config },
            };
            let mut effects = Effects::new();
            members[asked as usize - 1].handle(ask, at(1), &mut effects);
            let Some(Effect::Send { message, .. }) = effects.pop() else { panic!("a report") };
            let report = Input::Received { from: p(asked), message };
            members[asking as usize - 1].handle(report, at(2), &mut effects);
        }
    }
    for member in &members {
        assert!(member.has_vote());
        assert_eq!(member.promised().term, Term::new(7));
        assert!(!member.may_promise((p(1), Incarnation::new(50)), at(3)), "old leases count");
    }
}

#[test]
fn a_disk_that_went_back_costs_the_vote_until_all_others_have_reported() {
    let mut group = led();
    let effects = received_by(&mut group, 2, 1, Message::Behind { term: Term::new(1) });
    assert_eq!(effects, [], "it knows of term 1");
    let effects = received_by(&mut group, 2, 1, Message::Behind { term: Term::new(2) });
    assert_eq!(effects[0], Effect::Tell(Event::WentBack { by: p(1), term: Term::new(2) }));
    assert!(!group.member(2).has_vote());
    let Effect::Broadcast(ask) = effects[1].clone() else { panic!("it asks: {effects:?}") };
    group.asks(2, 1, ask.clone(), at(3));
    group.asks(2, 3, ask, at(3));
    assert!(group.member(2).has_vote());
}

#[test]
fn a_claim_is_given_up_after_it_was_sent_and_later_each_time() {
    let mut group = Group::new(3, LEASED);
    let mut effects = Effects::new();
    group.claim(1, 1, at(0));
    // The promise to itself takes 1.5 s.
    assert!(group.member(1).deadline() < Some(at(1500)), "claims wait behind the write");
    group.member(1).persisted(at(1500));
    // 1 s of patience, and twice as long as the write took.
    let lost = |effects: &mut Effects<Effect>| {
        effects
            .drain()
            .any(|e| matches!(e, Effect::Tell(Event::Lost { reason: Reason::NoQuorum, .. })))
    };
    group.member(1).handle_timeout(at(5490), &mut effects);
    assert!(!lost(&mut effects));
    group.member(1).handle_timeout(at(5500), &mut effects);
    assert!(lost(&mut effects));
    group.claim(1, 2, at(6000));
    group.member(1).persisted(at(6000));
    // Twice as patient; and one quick write does not make the group's disks quick: half of the slow one is remembered, 750 ms.
    group.member(1).handle_timeout(at(9499), &mut effects);
    assert!(!lost(&mut effects));
    group.member(1).handle_timeout(at(9500), &mut effects);
    assert!(lost(&mut effects));
}
