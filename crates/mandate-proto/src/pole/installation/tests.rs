//! Promises and leases by hand.

use super::*;

const LEASE: Duration = Duration::from_millis(1000);
const RETRY: Duration = Duration::from_millis(100);

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

fn at(ms: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(ms)
}

fn config(me: u32, guarantee: Guarantee) -> Config {
    Config { me: p(me), members: (1..=3).map(p).collect(), guarantee, retry: RETRY }
}

const LEASED: Guarantee = Guarantee::Leased { lease: LEASE, allowance_per_mille: 10 };

fn start(me: u32, guarantee: Guarantee) -> Installation {
    let boot = Boot { stored: None, is_new: true };
    Installation::start(config(me, guarantee), boot, at(0), &mut Effects::new())
}

fn tell(member: &mut Installation, input: Input, now: Instant) -> Vec<Effect> {
    let mut effects = Effects::new();
    member.handle(input, now, &mut effects);
    effects.drain().collect()
}

fn hear(member: &mut Installation, from: u32, message: Message, now: Instant) -> Vec<Effect> {
    tell(member, Input::Received { from: p(from), message }, now)
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
    let effects =
        hear(&mut member, 1, Message::Claim { term: TERM, number: 1, lease: LEASE }, at(0));
    let promised = Promised { term: TERM, to: p(1), lease: LEASE };
    let said = answer(1, Message::Promise { term: TERM, number: 1 });
    assert_eq!(effects, [Effect::Persist(promised), said]);
    // A renewal is not written again.
    let effects =
        hear(&mut member, 1, Message::Claim { term: TERM, number: 2, lease: LEASE }, at(300));
    assert_eq!(effects, [answer(1, Message::Promise { term: TERM, number: 2 })]);
}

#[test]
fn a_term_is_promised_to_one_leader_only() {
    for guarantee in [Guarantee::Fenced, LEASED] {
        let mut member = start(2, guarantee);
        hear(&mut member, 1, Message::Claim { term: TERM, number: 1, lease: LEASE }, at(0));
        let effects =
            hear(&mut member, 3, Message::Claim { term: TERM, number: 1, lease: LEASE }, at(5000));
        assert_eq!(effects, [answer(3, Message::Refuse { term: TERM, promised: TERM })]);
    }
}

#[test]
fn a_leader_holds_its_term_once_a_quorum_has_promised() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    assert_eq!(leader.mandate(at(1)), None);
    let effects = hear(&mut leader, 2, Message::Promise { term: TERM, number: 1 }, at(40));
    assert_eq!(effects, [Effect::Tell(Event::Installed { term: TERM })]);
    // Counted from the sending, less one per cent; not from the answer.
    assert_eq!(leader.mandate(at(41)), Some((TERM, Some(at(990)))));
    assert_eq!(leader.mandate(at(990)), None);
}

#[test]
fn renewals_move_the_deadline_and_their_absence_ends_the_mandate() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, number: 1 }, at(40));
    tick(&mut leader, at(100));
    assert_eq!(leader.deadline(), Some(at(100) + LEASE / 3));
    let sent = tick(&mut leader, at(440));
    assert_eq!(sent, [Effect::Broadcast(Message::Claim { term: TERM, number: 3, lease: LEASE })]);
    hear(&mut leader, 3, Message::Promise { term: TERM, number: 3 }, at(800));
    assert_eq!(leader.mandate(at(800)), Some((TERM, Some(at(1430)))));
    let lost = Event::Lost { term: TERM, reason: Reason::Expired };
    assert_eq!(tick(&mut leader, at(1430)), [Effect::Tell(lost)]);
}

#[test]
fn a_lease_blocks_others_until_it_ends_or_is_released() {
    let mut member = start(2, LEASED);
    hear(&mut member, 1, Message::Claim { term: TERM, number: 1, lease: LEASE }, at(0));
    let higher = Message::Claim { term: Term::new(2), number: 1, lease: LEASE };
    let refused = answer(3, Message::Refuse { term: Term::new(2), promised: TERM });
    assert_eq!(hear(&mut member, 3, higher, at(999)), [refused]);
    let mut released = member.clone();
    hear(&mut released, 1, Message::Release { term: TERM }, at(500));
    for (member, when) in [(&mut member, 1000), (&mut released, 501)] {
        let effects = hear(member, 3, higher, at(when));
        let promise = answer(3, Message::Promise { term: Term::new(2), number: 1 });
        assert_eq!(effects[1], promise);
    }
    // Who is not the leader cannot release.
    let mut member = start(2, LEASED);
    hear(&mut member, 1, Message::Claim { term: TERM, number: 1, lease: LEASE }, at(0));
    hear(&mut member, 3, Message::Release { term: TERM }, at(1));
    let refused = answer(3, Message::Refuse { term: Term::new(2), promised: TERM });
    assert_eq!(hear(&mut member, 3, higher, at(500)), [refused]);
}

#[test]
fn a_restarted_member_waits_a_full_lease_of_the_length_it_had_granted() {
    let stored = Some(Promised { term: TERM, to: p(1), lease: LEASE });
    let short = Guarantee::Leased { lease: LEASE / 10, allowance_per_mille: 10 };
    let boot = Boot { stored, is_new: false };
    let mut member = Installation::start(config(2, short), boot, at(0), &mut Effects::new());
    let higher = Message::Claim { term: Term::new(2), number: 1, lease: LEASE };
    let refused = answer(3, Message::Refuse { term: Term::new(2), promised: TERM });
    assert_eq!(hear(&mut member, 3, higher, at(999)), [refused]);
    assert_eq!(hear(&mut member, 3, higher, at(1000)).len(), 2);
}

#[test]
fn a_new_member_writes_down_that_it_exists() {
    let boot = Boot { stored: None, is_new: true };
    let mut effects = Effects::new();
    Installation::start(config(2, LEASED), boot, at(0), &mut effects);
    let blank = Promised { term: Term::NONE, to: p(2), lease: Duration::ZERO };
    assert_eq!(effects.drain().collect::<Vec<_>>(), [Effect::Persist(blank)]);
}

#[test]
fn a_member_without_its_disk_has_no_vote() {
    let boot = Boot { stored: None, is_new: false };
    let mut member = Installation::start(config(2, LEASED), boot, at(0), &mut Effects::new());
    let effects =
        hear(&mut member, 1, Message::Claim { term: TERM, number: 1, lease: LEASE }, at(9000));
    assert_eq!(effects, [answer(1, Message::Refuse { term: TERM, promised: Term::NONE })]);
    let bound = Event::Lost { term: Term::new(2), reason: Reason::Bound };
    assert_eq!(claim(&mut member, at(9000)), [Effect::Tell(bound)]);
}

#[test]
fn fenced_a_higher_term_deposes_at_once_and_a_lower_one_is_refused() {
    let mut leader = start(1, Guarantee::Fenced);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, number: 1 }, at(40));
    assert_eq!(leader.mandate(at(1_000_000)), Some((TERM, None)));
    let higher = Message::Claim { term: Term::new(5), number: 1, lease: LEASE };
    let effects = hear(&mut leader, 3, higher, at(50));
    let lost = Event::Lost { term: TERM, reason: Reason::Superseded };
    assert_eq!(effects[0], Effect::Tell(lost));
    assert_eq!(leader.mandate(at(51)), None);
    let lower = Message::Claim { term: Term::new(4), number: 1, lease: LEASE };
    let refused = Message::Refuse { term: Term::new(4), promised: Term::new(5) };
    assert_eq!(hear(&mut leader, 2, lower, at(60)), [answer(2, refused)]);
}

#[test]
fn leased_a_leader_refuses_to_be_deposed_while_its_mandate_holds() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, number: 1 }, at(40));
    let higher = Message::Claim { term: Term::new(5), number: 1, lease: LEASE };
    let refused = answer(3, Message::Refuse { term: Term::new(5), promised: TERM });
    assert_eq!(hear(&mut leader, 3, higher, at(989)), [refused]);
    assert_eq!(hear(&mut leader, 3, higher, at(990)).len(), 3);
}

#[test]
fn a_claim_that_is_refused_for_a_higher_term_is_given_up_and_the_next_is_higher_still() {
    let mut member = start(1, LEASED);
    claim(&mut member, at(0));
    let refuse = Message::Refuse { term: TERM, promised: Term::new(7) };
    let lost = Event::Lost { term: TERM, reason: Reason::Superseded };
    let release = Effect::Broadcast(Message::Release { term: TERM });
    assert_eq!(hear(&mut member, 3, refuse, at(10)), [Effect::Tell(lost), release]);
    let effects = claim(&mut member, at(20));
    assert!(effects.contains(&Effect::Broadcast(Message::Claim {
        term: Term::new(8),
        number: 2,
        lease: LEASE
    })));
}

#[test]
fn a_resignation_is_immediate_and_told_to_all() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, number: 1 }, at(40));
    let effects = tell(&mut leader, Input::Resign, at(50));
    let lost = Event::Lost { term: TERM, reason: Reason::Resigned };
    assert_eq!(effects, [Effect::Tell(lost), Effect::Broadcast(Message::Release { term: TERM })]);
    assert_eq!(leader.mandate(at(51)), None);
    // It follows whoever comes next, at once.
    let next = Message::Claim { term: Term::new(2), number: 1, lease: LEASE };
    assert_eq!(hear(&mut leader, 2, next, at(52)).len(), 2);
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
    assert_eq!(effects, [Effect::Tell(lost), Effect::Broadcast(Message::Release { term: TERM })]);
    assert_eq!(member.deadline(), None);
}

#[test]
fn a_promise_binds_for_as_long_as_the_leader_relies_on_it() {
    let short = Guarantee::Leased { lease: LEASE / 10, allowance_per_mille: 10 };
    let mut member = start(2, short);
    let effects =
        hear(&mut member, 1, Message::Claim { term: TERM, number: 1, lease: LEASE }, at(0));
    assert_eq!(effects[0], Effect::Persist(Promised { term: TERM, to: p(1), lease: LEASE }));
    let higher = Message::Claim { term: Term::new(2), number: 1, lease: LEASE / 10 };
    assert_eq!(hear(&mut member, 3, higher, at(999)).len(), 1, "refused");
    // And one that asks for years is not believed.
    let greedy = Message::Claim { term: Term::new(3), number: 1, lease: Duration::MAX };
    assert_eq!(hear(&mut member, 3, greedy, at(2000)).len(), 1, "refused");
}

#[test]
fn answers_that_come_too_late_install_nobody() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    assert!(hear(&mut leader, 2, Message::Promise { term: TERM, number: 1 }, at(5000)).is_empty());
    assert_eq!(leader.mandate(at(5000)), None);
}

#[test]
fn terms_that_nobody_can_have_reached_are_ignored() {
    let mut member = start(1, Guarantee::Fenced);
    for term in [Term::new(u64::MAX), Term::new(1 << 62)] {
        assert!(
            hear(&mut member, 2, Message::Claim { term, number: 1, lease: LEASE }, at(0))
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
fn a_refusal_by_a_minority_does_not_depose_a_leased_leader() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    hear(&mut leader, 2, Message::Promise { term: TERM, number: 1 }, at(40));
    let refuse = Message::Refuse { term: TERM, promised: Term::new(9) };
    assert!(hear(&mut leader, 3, refuse, at(50)).is_empty());
    assert!(leader.mandate(at(51)).is_some());
}

#[test]
fn who_is_bound_to_another_says_that_it_cannot_claim() {
    let mut member = start(1, LEASED);
    hear(&mut member, 2, Message::Claim { term: TERM, number: 1, lease: LEASE }, at(0));
    let lost = Event::Lost { term: Term::new(2), reason: Reason::Bound };
    assert_eq!(claim(&mut member, at(10)), [Effect::Tell(lost)]);
}

#[test]
fn answers_to_claims_of_another_time_or_term_count_for_nothing() {
    let mut leader = start(1, LEASED);
    claim(&mut leader, at(0));
    assert!(
        hear(&mut leader, 2, Message::Promise { term: Term::new(9), number: 1 }, at(1)).is_empty()
    );
    assert!(hear(&mut leader, 2, Message::Promise { term: TERM, number: 99 }, at(1)).is_empty());
    assert!(hear(&mut leader, 77, Message::Promise { term: TERM, number: 1 }, at(1)).is_empty());
    assert_eq!(leader.mandate(at(2)), None);
}
