//! Promises and leases by hand.

use super::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const LIFE: Incarnation = Incarnation::new(7);
const LEASE: Duration = Duration::from_millis(1000);
const RETRY: Duration = Duration::from_millis(100);

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

fn at(ms: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(ms)
}

fn config(me: u32, guarantee: PeerGuarantee) -> Config {
    Config {
        me: p(me),
        members: (1..=3).map(p).collect(),
        contacts: BTreeMap::new(),
        guarantee,
        retry: RETRY,
        give_up: RETRY * 4,
        without: None,
    }
}

fn digest() -> ConfigId {
    config(1, LEASED).seed_id()
}

const LEASED: PeerGuarantee = PeerGuarantee::Leased { lease: LEASE, allowance_per_mille: 10 };

fn start(me: u32, guarantee: PeerGuarantee) -> Installation {
    let stored = Some(Promised::ADMITTED.into());
    let boot =
        Boot { stored, is_new: false, is_changed: false, joins: false, auto: None, lifetime: LIFE };
    let mut member = Installation::start(config(me, guarantee), boot, at(0), &mut Effects::new());
    member.persisted(at(0));
    member
}

fn tell(member: &mut Installation, input: Input, now: Instant) -> Vec<Effect> {
    let mut effects = Effects::new();
    member.handle(input, now, &mut effects);
    let effects: Vec<_> = effects.drain().collect();
    // Disks take no time here.
    let writes = effects.iter().filter(|effect| matches!(effect, Effect::Persist(_)));
    writes.for_each(|_| member.persisted(now));
    effects
}

/// Has a member hear another that is configured like it.
fn hear(member: &mut Installation, from: u32, mut message: Message, now: Instant) -> Vec<Effect> {
    if let Message::Claim { id, .. } | Message::Promise { id, .. } = &mut message {
        id.config = member.config_id();
    }
    tell(member, Input::Received { from: p(from), message }, now)
}

fn id(count: u64) -> ClaimId {
    ClaimId { life: LIFE, count, config: digest() }
}

fn claim_of(term: Term) -> Message {
    Message::Claim { term, id: id(1), lease: LEASE, freed: None }
}

fn claim(member: &mut Installation, now: Instant) -> Vec<Effect> {
    tell(member, Input::Claim { epoch: Term::new(1) }, now)
}

fn tick(member: &mut Installation, now: Instant) -> Vec<Effect> {
    let mut effects = Effects::new();
    member.handle_timeout(now, &mut effects);
    effects.drain().collect()
}

const TERM: Term = Term::new(1);

fn answer(to: u32, message: Message) -> Effect {
    Effect::Send { to: p(to), message }
}

#[test]
fn a_promise_is_durable_before_it_is_said() {
    let mut member = start(2, LEASED);
    let effects = hear(&mut member, 1, claim_of(TERM), at(0));
    let promised = Promised {
        term: TERM,
        to: Some(p(1)),
        life: LIFE,
        lease: LEASE,
        recovered: false,
        released: false,
    };
    let said = answer(1, Message::Promise { term: TERM, id: id(1) });
    let told = Effect::Tell(Event::Promised { to: p(1), term: TERM });
    assert_eq!(effects, [Effect::Persist(promised.into()), said, told]);
    // A renewal is not written again.
    let effects = hear(
        &mut member,
        1,
        Message::Claim { term: TERM, id: id(2), lease: LEASE, freed: None },
        at(300),
    );
    assert_eq!(effects, [answer(1, Message::Promise { term: TERM, id: id(2) })]);
}

#[test]
fn a_term_is_promised_to_one_leader_only() {
    for guarantee in [PeerGuarantee::Fenced, LEASED] {
        let mut member = start(2, guarantee);
        hear(&mut member, 1, claim_of(TERM), at(0));
        let effects = hear(&mut member, 3, claim_of(TERM), at(5000));
        assert_eq!(effects, [answer(3, Message::Refuse { term: TERM, promised: TERM })]);
    }
}

#[test]
fn a_leader_holds_its_term_once_a_quorum_has_promised() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    assert_eq!(leader.mandate(at(1)), None);
    let effects = hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(40));
    assert_eq!(effects, [Effect::Tell(Event::Installed { term: TERM })]);
    // Counted from the sending, less one per cent; not from the answer.
    assert_eq!(leader.mandate(at(41)), Some((TERM, Some(at(990)))));
    assert_eq!(leader.mandate(at(990)), None);
}

#[test]
fn renewals_move_the_deadline_and_their_absence_ends_the_mandate() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(40));
    tick(&mut leader, at(100));
    assert_eq!(leader.deadline(), Some(at(100) + LEASE / 3));
    let sent = tick(&mut leader, at(440));
    assert_eq!(
        sent,
        [Effect::Broadcast(Message::Claim { term: TERM, id: id(3), lease: LEASE, freed: None })]
    );
    hear(&mut leader, 3, Message::Promise { term: TERM, id: id(3) }, at(800));
    assert_eq!(leader.mandate(at(800)), Some((TERM, Some(at(1430)))));
    let lost = Event::Lost { term: TERM, reason: Reason::Expired };
    assert_eq!(tick(&mut leader, at(1430)), [Effect::Tell(lost)]);
}

#[test]
fn a_lease_blocks_others_until_it_ends_or_is_released() {
    let mut member = start(2, LEASED);
    hear(&mut member, 1, claim_of(TERM), at(0));
    let higher = Message::Claim { term: Term::new(2), id: id(1), lease: LEASE, freed: None };
    let refused = answer(3, Message::Refuse { term: Term::new(2), promised: TERM });
    assert_eq!(hear(&mut member, 3, higher.clone(), at(999)), [refused]);
    let mut released = member.clone();
    hear(&mut released, 1, Message::Release { term: TERM, life: LIFE, next: None }, at(500));
    for (member, when) in [(&mut member, 1000), (&mut released, 501)] {
        let effects = hear(member, 3, higher.clone(), at(when));
        let promise = answer(3, Message::Promise { term: Term::new(2), id: id(1) });
        assert_eq!(effects[1], promise);
    }
    // Who is not the leader cannot release.
    let mut member = start(2, LEASED);
    hear(&mut member, 1, claim_of(TERM), at(0));
    hear(&mut member, 3, Message::Release { term: TERM, life: LIFE, next: None }, at(1));
    let refused = answer(3, Message::Refuse { term: Term::new(2), promised: TERM });
    assert_eq!(hear(&mut member, 3, higher, at(500)), [refused]);
}

#[test]
fn a_restarted_member_waits_a_full_lease_of_the_length_it_had_granted() {
    let stored = Some(Promised {
        term: TERM,
        to: Some(p(1)),
        life: LIFE,
        lease: LEASE,
        recovered: false,
        released: false,
    });
    let short = PeerGuarantee::Leased { lease: LEASE / 10, allowance_per_mille: 10 };
    let stored = stored.map(Into::into);
    let boot =
        Boot { stored, is_new: false, is_changed: false, joins: false, auto: None, lifetime: LIFE };
    let mut member = Installation::start(config(2, short), boot, at(0), &mut Effects::new());
    let higher = Message::Claim { term: Term::new(2), id: id(1), lease: LEASE, freed: None };
    let refused = answer(3, Message::Refuse { term: Term::new(2), promised: TERM });
    assert_eq!(hear(&mut member, 3, higher.clone(), at(999)), [refused]);
    assert_eq!(hear(&mut member, 3, higher, at(1000)).len(), 3);
}

#[test]
fn a_new_member_writes_down_that_it_exists() {
    let boot = Boot {
        stored: None,
        is_new: true,
        is_changed: false,
        joins: false,
        auto: None,
        lifetime: LIFE,
    };
    let mut effects = Effects::new();
    Installation::start(config(2, LEASED), boot, at(0), &mut effects);
    let ask = Message::Ask { life: LIFE, round: 0, config: digest() };
    let expected = [Effect::Persist(Promised::NOTHING.into()), Effect::Broadcast(ask)];
    assert_eq!(effects.drain().collect::<Vec<_>>(), expected);
}

fn without_disk(me: u32) -> (Installation, Vec<Effect>) {
    let boot = Boot {
        stored: None,
        is_new: false,
        is_changed: false,
        joins: false,
        auto: None,
        lifetime: LIFE,
    };
    let mut effects = Effects::new();
    let member = Installation::start(config(me, LEASED), boot, at(0), &mut effects);
    (member, effects.drain().collect())
}

fn report(promised: Option<Promised>) -> Message {
    Message::Report { life: LIFE, round: 0, by: Incarnation::new(5), promised }
}

fn promised(term: u64, to: Option<u32>) -> Option<Promised> {
    Some(Promised {
        term: Term::new(term),
        to: to.map(p),
        life: LIFE,
        lease: LEASE * 2,
        recovered: false,
        released: false,
    })
}

#[test]
fn a_member_without_its_disk_has_no_vote_and_asks() {
    let (mut member, asked) = without_disk(2);
    assert_eq!(asked, [Effect::Broadcast(Message::Ask { life: LIFE, round: 0, config: digest() })]);
    let effects = hear(&mut member, 1, claim_of(TERM), at(9000));
    assert_eq!(effects, [answer(1, Message::Refuse { term: TERM, promised: Term::NONE })]);
    let lost = Event::Lost { term: Term::new(2), reason: Reason::NoVote };
    assert_eq!(claim(&mut member, at(9000)), [Effect::Tell(lost)]);
    // One that is in the same case has nothing to report.
    let ask = Message::Ask { life: Incarnation::new(8), round: 0, config: digest() };
    let nothing = Message::Report { life: Incarnation::new(8), round: 0, by: LIFE, promised: None };
    assert_eq!(hear(&mut member, 1, ask, at(9000)), [answer(1, nothing)]);
    assert_eq!(
        tick(&mut member, at(9000)),
        [Effect::Broadcast(Message::Ask { life: LIFE, round: 0, config: digest() })]
    );
}

#[test]
fn it_recovers_once_all_others_have_reported_and_is_bound_by_what_they_say() {
    let (mut member, _) = without_disk(2);
    // One is not enough, and what a former incarnation asked does not count.
    assert!(hear(&mut member, 1, report(promised(4, Some(1))), at(10)).is_empty());
    let stale = Message::Report {
        life: Incarnation::new(1),
        round: 0,
        by: Incarnation::new(5),
        promised: promised(9, Some(3)),
    };
    assert!(hear(&mut member, 3, stale, at(10)).is_empty());
    let effects = hear(&mut member, 3, report(promised(4, Some(1))), at(20));
    let stored = Promised {
        term: Term::new(4),
        to: Some(p(1)),
        life: LIFE,
        lease: LEASE * 2,
        recovered: true,
        released: false,
    };
    let told = Event::Recovered { term: Term::new(4) };
    assert_eq!(effects, [Effect::Persist(stored.into()), Effect::Tell(told)]);
    // It may follow whom all others follow, but nobody before the longest lease has run out.
    for (from, term) in [(1, Term::new(4)), (3, Term::new(5))] {
        let refused = Message::Refuse { term, promised: Term::new(4) };
        let effects = hear(&mut member.clone(), from, claim_of(term), at(2019));
        assert_eq!(effects, [answer(from, refused)]);
        assert_eq!(hear(&mut member.clone(), from, claim_of(term), at(2020)).len(), 3);
    }
}

#[test]
fn where_the_others_disagree_it_promises_that_term_to_nobody() {
    let (mut member, _) = without_disk(2);
    hear(&mut member, 1, report(promised(4, Some(1))), at(10));
    let effects = hear(&mut member, 3, report(promised(4, Some(3))), at(20));
    let stored = Promised {
        term: Term::new(4),
        to: None,
        life: LIFE,
        lease: LEASE * 2,
        recovered: true,
        released: false,
    };
    assert_eq!(effects[0], Effect::Persist(stored.into()));
    let refused = Message::Refuse { term: Term::new(4), promised: Term::new(4) };
    assert_eq!(hear(&mut member, 1, claim_of(Term::new(4)), at(9000)), [answer(1, refused)]);
}

#[test]
fn two_of_three_without_disks_do_not_help_each_other() {
    let (mut member, _) = without_disk(2);
    // The other has no disk either: all are asked anew, and it may say so again.
    let asked = hear(&mut member, 1, report(None), at(10));
    assert_eq!(asked, [Effect::Broadcast(Message::Ask { life: LIFE, round: 1, config: digest() })]);
    for (from, promised) in [(1, None), (3, promised(4, Some(3)))] {
        let by = Incarnation::new(5);
        let report = Message::Report { life: LIFE, round: 1, by, promised };
        assert!(hear(&mut member, from, report, at(20)).is_empty());
    }
    assert!(!member.has_vote());
}

#[test]
fn of_several_reports_of_one_member_the_highest_counts() {
    let (mut member, _) = without_disk(2);
    hear(&mut member, 1, report(promised(4, Some(1))), at(10));
    hear(&mut member, 1, report(promised(3, Some(3))), at(11));
    let effects = hear(&mut member, 3, report(promised(2, Some(3))), at(12));
    assert!(matches!(&effects[0], Effect::Persist(it) if it.promised.term == Term::new(4)));
}

#[test]
fn fenced_a_higher_term_deposes_at_once_and_a_lower_one_is_refused() {
    let mut leader = start(1, PeerGuarantee::Fenced);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(40));
    assert_eq!(leader.mandate(at(1_000_000)), Some((TERM, None)));
    let higher = Message::Claim { term: Term::new(5), id: id(1), lease: LEASE, freed: None };
    let effects = hear(&mut leader, 3, higher, at(50));
    let lost = Event::Lost { term: TERM, reason: Reason::Superseded };
    assert_eq!(effects[0], Effect::Tell(lost));
    assert_eq!(leader.mandate(at(51)), None);
    let lower = Message::Claim { term: Term::new(4), id: id(1), lease: LEASE, freed: None };
    let refused = Message::Refuse { term: Term::new(4), promised: Term::new(5) };
    assert_eq!(hear(&mut leader, 2, lower, at(60)), [answer(2, refused)]);
}

#[test]
fn leased_a_leader_refuses_to_be_deposed_while_its_mandate_holds() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(40));
    let higher = Message::Claim { term: Term::new(5), id: id(1), lease: LEASE, freed: None };
    let refused = answer(3, Message::Refuse { term: Term::new(5), promised: TERM });
    assert_eq!(hear(&mut leader, 3, higher.clone(), at(989)), [refused]);
    assert_eq!(hear(&mut leader, 3, higher, at(990)).len(), 4);
}

#[test]
fn a_claim_that_is_refused_for_a_higher_term_is_given_up_and_the_next_is_higher_still() {
    let mut member = start(1, LEASED);
    claim(&mut member, at(0));
    let refuse = Message::Refuse { term: TERM, promised: Term::new(7) };
    let lost = Event::Lost { term: TERM, reason: Reason::Superseded };
    let release = Effect::Broadcast(Message::Release { term: TERM, life: LIFE, next: None });
    assert_eq!(hear(&mut member, 3, refuse, at(10)), [Effect::Tell(lost), release]);
    let effects = claim(&mut member, at(20));
    let freed = Some(Freed { term: TERM, by: p(1), life: LIFE });
    let higher = Message::Claim { term: Term::new(8), id: id(2), lease: LEASE, freed };
    assert!(effects.contains(&Effect::Broadcast(higher)));
}

#[test]
fn a_resignation_is_immediate_and_told_to_all() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(40));
    let effects = tell(&mut leader, Input::Resign, at(50));
    let lost = Event::Lost { term: TERM, reason: Reason::Resigned };
    assert_eq!(
        effects,
        [
            Effect::Tell(lost),
            Effect::Broadcast(Message::Release { term: TERM, life: LIFE, next: None })
        ]
    );
    assert_eq!(leader.mandate(at(51)), None);
    // It follows the next leader at once.
    let next = Message::Claim { term: Term::new(2), id: id(1), lease: LEASE, freed: None };
    assert_eq!(hear(&mut leader, 2, next, at(52)).len(), 3);
}

#[test]
fn a_claim_that_no_quorum_promises_is_given_up_and_frees_those_who_did() {
    let mut member = start(1, LEASED);
    claim(&mut member, at(0));
    for ms in (100..1000).step_by(100) {
        assert_eq!(tick(&mut member, at(ms)).len(), 1, "repeated");
    }
    let effects = tick(&mut member, at(1000));
    let lost = Event::Lost { term: TERM, reason: Reason::NoQuorum };
    assert_eq!(
        effects,
        [
            Effect::Tell(lost),
            Effect::Broadcast(Message::Release { term: TERM, life: LIFE, next: None })
        ]
    );
    assert_eq!(member.deadline(), None);
}

#[test]
fn a_claim_is_given_up_at_once_when_so_many_have_promised_its_term_to_another_that_no_quorum_is_left()
 {
    let mut member = start(1, LEASED);
    claim(&mut member, at(0));
    let refused = Message::Refuse { term: TERM, promised: TERM };
    assert_eq!(
        hear(&mut member, 2, refused.clone(), at(1)),
        [],
        "with the third there is a quorum"
    );
    assert_eq!(hear(&mut member, 2, refused.clone(), at(2)), [], "one member counts once");
    // Who is bound but has promised a lower term may promise this one later.
    let bound = Message::Refuse { term: TERM, promised: Term::NONE };
    assert_eq!(hear(&mut member, 3, bound, at(3)), []);
    let effects = hear(&mut member, 3, refused.clone(), at(4));
    let lost = Event::Lost { term: TERM, reason: Reason::Refused };
    assert_eq!(effects[0], Effect::Tell(lost));
    assert!(matches!(effects[1], Effect::Broadcast(Message::Release { .. })), "{effects:?}");
    // A leader is not deposed by it: it has its quorum.
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(1));
    hear(&mut leader, 3, refused, at(2));
    assert!(leader.mandate(at(2)).is_some());
}

#[test]
fn a_promise_binds_for_as_long_as_the_leader_relies_on_it() {
    let short = PeerGuarantee::Leased { lease: LEASE / 10, allowance_per_mille: 10 };
    let mut member = start(2, short);
    let effects = hear(&mut member, 1, claim_of(TERM), at(0));
    assert_eq!(
        effects[0],
        Effect::Persist(
            Promised {
                term: TERM,
                to: Some(p(1)),
                life: LIFE,
                lease: LEASE,
                recovered: false,
                released: false,
            }
            .into()
        )
    );
    let higher = Message::Claim { term: Term::new(2), id: id(1), lease: LEASE / 10, freed: None };
    assert_eq!(hear(&mut member, 3, higher, at(999)).len(), 1, "refused");
    // And one that asks for years is not believed.
    let greedy =
        Message::Claim { term: Term::new(3), id: id(1), lease: Duration::MAX, freed: None };
    assert_eq!(hear(&mut member, 3, greedy, at(2000)).len(), 1, "refused");
}

#[test]
fn answers_that_come_too_late_install_nobody() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    assert!(hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(5000)).is_empty());
    assert_eq!(leader.mandate(at(5000)), None);
}

#[test]
fn terms_that_nobody_can_have_reached_are_ignored() {
    let mut member = start(1, PeerGuarantee::Fenced);
    for term in [Term::new(u64::MAX), Term::new((1 << 32) + 1)] {
        assert!(
            hear(
                &mut member,
                2,
                Message::Claim { term, id: id(1), lease: LEASE, freed: None },
                at(0)
            )
            .is_empty()
        );
        hear(&mut member, 2, Message::Refuse { term: TERM, promised: term }, at(0));
    }
    let effects = claim(&mut member, at(1));
    let ours =
        |effect: &Effect| matches!(effect, Effect::Broadcast(Message::Claim { term: TERM, .. }));
    assert!(effects.iter().any(ours), "{effects:?}");
}

#[test]
fn a_leased_leader_that_a_minority_refuses_claims_a_higher_term_once_a_lease() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(40));
    let refuse = Message::Refuse { term: TERM, promised: Term::new(9) };
    assert!(hear(&mut leader, 3, refuse.clone(), at(50)).is_empty());
    assert!(leader.mandate(at(51)).is_some());
    tick(&mut leader, at(900));
    hear(&mut leader, 2, Message::Promise { term: TERM, id: id(2) }, at(940));
    let effects = hear(&mut leader, 3, refuse, at(1000));
    let lost = Event::Lost { term: TERM, reason: Reason::Superseded };
    assert_eq!(effects[0], Effect::Tell(lost));
    let claims = |effect: &Effect| matches!(effect, Effect::Broadcast(Message::Claim { term, .. }) if *term == Term::new(10));
    assert!(effects.iter().any(claims), "{effects:?}");
    assert_eq!(leader.mandate(at(1000)), None);
    // What acts on the old term may do so until its deadline: nobody else can lead before.
    let frees = |effect: &Effect| match effect {
        Effect::Broadcast(Message::Release { .. }) => true,
        Effect::Broadcast(Message::Claim { freed, .. }) => freed.is_some(),
        _ => false,
    };
    assert!(!effects.iter().any(frees), "{effects:?}");
}

#[test]
fn who_is_bound_to_another_claims_as_soon_as_it_is_free() {
    let mut member = start(1, LEASED);
    hear(&mut member, 2, claim_of(TERM), at(0));
    assert!(claim(&mut member, at(10)).is_empty());
    assert_eq!(member.deadline(), Some(at(1000)));
    let mut renewed = member.clone();
    let effects = tick(&mut member, at(1000));
    assert!(matches!(effects[..], [Effect::Persist(_), Effect::Broadcast(Message::Claim { .. })]));
    // If the other is heard again, there is no need to.
    let lost = Event::Lost { term: TERM, reason: Reason::Superseded };
    let effects = hear(&mut renewed, 2, claim_of(TERM), at(500));
    assert_eq!(effects[0], Effect::Tell(lost));
    assert_eq!(renewed.deadline(), None);
}

#[test]
fn a_transfer_ends_the_mandate_and_the_successor_claims_the_next_term() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(40));
    for nonsense in [1, 77] {
        assert!(tell(&mut leader, Input::Transfer { to: p(nonsense) }, at(50)).is_empty());
    }
    let effects = tell(&mut leader, Input::Transfer { to: p(2) }, at(50));
    let lost = Event::Lost { term: TERM, reason: Reason::Transferred };
    let release = Message::Release { term: TERM, life: LIFE, next: Some(p(2)) };
    assert_eq!(effects, [Effect::Tell(lost), Effect::Broadcast(release.clone())]);
    assert_eq!(leader.mandate(at(50)), None);

    let mut successor = start(2, LEASED);
    hear(&mut successor, 1, claim_of(TERM), at(0));
    let effects = hear(&mut successor, 1, release, at(60));
    let freed = Some(Freed { term: TERM, by: p(1), life: LIFE });
    let next = Message::Claim { term: Term::new(2), id: id(1), lease: LEASE, freed };
    assert_eq!(effects.last(), Some(&Effect::Broadcast(next.clone())));

    // A third that has not heard of the release learns of it from the claim.
    let mut third = start(3, LEASED);
    hear(&mut third, 1, claim_of(TERM), at(0));
    let promise = answer(2, Message::Promise { term: Term::new(2), id: id(1) });
    assert!(hear(&mut third, 2, next, at(70)).contains(&promise));
}

#[test]
fn a_release_by_a_former_life_frees_nobody() {
    let mut member = start(2, LEASED);
    hear(&mut member, 1, claim_of(TERM), at(0));
    let former = Incarnation::new(1);
    hear(&mut member, 1, Message::Release { term: TERM, life: former, next: None }, at(10));
    let refused = answer(3, Message::Refuse { term: Term::new(2), promised: TERM });
    assert_eq!(hear(&mut member, 3, claim_of(Term::new(2)), at(500)), [refused]);
}

#[test]
fn fenced_only_those_who_have_not_promised_are_asked_again() {
    let mut leader = start(1, PeerGuarantee::Fenced);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(40));
    let asked = tick(&mut leader, at(100));
    assert!(matches!(asked[..], [Effect::Send { to, .. }] if to == p(3)));
    hear(&mut leader, 3, Message::Promise { term: TERM, id: id(2) }, at(140));
    assert!(tick(&mut leader, at(200)).is_empty());
}

#[test]
fn answers_to_claims_of_another_time_or_term_count_for_nothing() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    assert!(
        hear(&mut leader, 2, Message::Promise { term: Term::new(9), id: id(1) }, at(1)).is_empty()
    );
    assert!(hear(&mut leader, 2, Message::Promise { term: TERM, id: id(99) }, at(1)).is_empty());
    let former = ClaimId { life: Incarnation::new(1), count: 1, config: digest() };
    assert!(hear(&mut leader, 2, Message::Promise { term: TERM, id: former }, at(1)).is_empty());
    assert!(hear(&mut leader, 77, Message::Promise { term: TERM, id: id(1) }, at(1)).is_empty());
    assert_eq!(leader.mandate(at(2)), None);
}

#[test]
fn an_answer_that_comes_after_the_lease_has_lapsed_revives_nothing() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, id: id(1) }, at(40));
    tick(&mut leader, at(900));
    assert_eq!(leader.mandate(at(1000)), None);
    let lost = Event::Lost { term: TERM, reason: Reason::Expired };
    let late = Message::Promise { term: TERM, id: id(2) };
    assert_eq!(hear(&mut leader, 2, late, at(1000)), [Effect::Tell(lost)]);
    assert_eq!(leader.mandate(at(1001)), None);
}
