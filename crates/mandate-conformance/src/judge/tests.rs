//! A history for each rule that breaks it, and one that breaks none.

use super::*;
use crate::protocol::{ActorReport, Seen};

const LEASED: PeerGuarantee =
    PeerGuarantee::Leased { lease: Duration::from_secs(1), allowance_per_mille: 10 };

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

fn t(term: u64) -> Term {
    Term::new(term)
}

/// Acts as (member, term, time).
fn acts(acts: &[(u32, u64, u64)]) -> History {
    let mut history = History::default();
    for (member, term, at) in acts {
        history.record(p(*member), &ActorReport::Act { term: t(*term), at: *at });
    }
    history
}

/// What members saw, as (member, what).
fn saw(mut history: History, views: &[(u32, Seen)]) -> History {
    for (at, (member, seen)) in (0..).zip(views) {
        history.record(p(*member), &ActorReport::View { at, seen: *seen });
    }
    history
}

fn following(leader: u32, term: u64) -> Seen {
    Seen::Following { leader: p(leader), term: t(term) }
}

fn both(history: &History) -> [Vec<HistoryViolation>; 2] {
    [judge(PeerGuarantee::Fenced, history), judge(LEASED, history)]
}

#[test]
fn leaders_that_follow_each_other_break_nothing_in_whatever_order_they_were_heard() {
    let history = acts(&[(2, 5, 30), (2, 5, 40), (1, 3, 10), (1, 3, 20), (1, 8, 50)]);
    let views = [
        (1, Seen::Leading { term: t(3) }),
        (2, following(1, 3)),
        (2, Seen::Electing),
        // Named, and died before it acted.
        (3, following(2, 4)),
        (2, Seen::Leading { term: t(5) }),
        (3, following(2, 5)),
        (1, Seen::Jeopardy { term: t(8) }),
    ];
    let mut history = saw(history, &views);
    let write = |member, term| Accepted { member: p(member), term: t(term) };
    history.accepted = vec![write(1, 3), write(2, 5), write(1, 8)];
    let refused = ActorReport::Refused { term: t(3), highest: t(5), held: false };
    history.record(p(1), &refused);
    assert_eq!(both(&history), [vec![], vec![]]);
}

#[test]
fn two_members_in_one_term_are_found_by_their_acts_and_by_what_they_wrote() {
    let expected = HistoryViolation::TwoInOneTerm { term: t(3), members: [p(1), p(2)] };
    let history = acts(&[(1, 3, 10), (2, 3, 99)]);
    for found in both(&history) {
        assert_eq!(found, [expected]);
    }
    let mut history = acts(&[(1, 3, 10)]);
    history.accepted = vec![Accepted { member: p(2), term: t(3) }; 2];
    assert_eq!(judge(PeerGuarantee::Fenced, &history), [expected]);
}

#[test]
fn an_act_after_the_first_of_a_newer_term_is_stale_under_leases_and_only_there() {
    let history = acts(&[(1, 3, 10), (2, 4, 20), (1, 3, 25), (2, 4, 30)]);
    let overlap = Duration::from_nanos(5);
    let stale = HistoryViolation::StaleAct { member: p(1), term: t(3), newer: t(4), overlap };
    assert_eq!(both(&history), [vec![], vec![stale]]);
    // However many terms lie between, and if the newer one was over already.
    let history = acts(&[(1, 3, 10), (2, 4, 20), (3, 5, 22), (1, 3, 25)]);
    assert_eq!(both(&history), [vec![], vec![stale]]);
}

#[test]
fn a_member_that_acts_in_its_own_older_term_is_wrong_under_any_guarantee() {
    let history = acts(&[(1, 3, 10), (1, 4, 20), (1, 3, 25)]);
    let overlap = Duration::from_nanos(5);
    let stale = HistoryViolation::StaleAct { member: p(1), term: t(3), newer: t(4), overlap };
    assert_eq!(both(&history), [vec![stale], vec![stale]]);
    let history = acts(&[(1, 4, 10), (1, 3, 20)]);
    let fell = HistoryViolation::TermsFell { member: p(1), term: t(3), newer: t(4) };
    assert_eq!(both(&history), [vec![fell], vec![fell]]);
}

#[test]
fn a_term_that_begins_after_a_higher_one_has_fallen() {
    let history = acts(&[(1, 9, 10), (2, 4, 20)]);
    let fell = HistoryViolation::TermsFell { member: p(2), term: t(4), newer: t(9) };
    assert_eq!(judge(LEASED, &history), [fell]);
}

#[test]
fn whoever_names_another_leader_of_a_term_than_acted_or_others_named_is_found() {
    let history = saw(acts(&[(1, 3, 10)]), &[(3, following(2, 3))]);
    let named = |named, other| HistoryViolation::NamedAnother {
        observer: p(3),
        term: t(3),
        named: p(named),
        other: p(other),
    };
    assert_eq!(judge(PeerGuarantee::Fenced, &history), [named(2, 1)]);
    let history = saw(History::default(), &[(2, following(1, 3)), (3, following(2, 3))]);
    assert_eq!(judge(LEASED, &history), [named(2, 1)]);
}

#[test]
fn a_view_that_falls_to_a_lower_term_is_found_also_with_nothing_seen_in_between() {
    let views = [(3, following(1, 5)), (3, Seen::Electing), (3, following(2, 4))];
    let fell = HistoryViolation::ViewFell { member: p(3), earlier: t(5), later: t(4) };
    for found in both(&saw(History::default(), &views)) {
        assert_eq!(found, [fell]);
    }
}

#[test]
fn a_register_that_takes_an_older_term_is_no_fence() {
    let mut history = History::default();
    let write = |member, term| Accepted { member: p(member), term: t(term) };
    history.accepted = vec![write(1, 3), write(2, 5), write(1, 3)];
    let fell = HistoryViolation::RegisterFell { write: write(1, 3), newer: t(5) };
    assert_eq!(both(&history), [vec![fell], vec![fell]]);
}

#[test]
fn a_mandate_that_holds_after_a_refusal_breaks_a_lease_and_not_a_fence() {
    let mut history = History::default();
    history.record(p(1), &ActorReport::Refused { term: t(3), highest: t(5), held: true });
    let refusal = RefusedWrite { member: p(1), term: t(3), highest: t(5), held: true };
    assert_eq!(both(&history), [vec![], vec![HistoryViolation::HeldAfterRefusal { refusal }]]);
}

#[test]
fn what_was_forgotten_act_by_act_is_still_judged() {
    let mut history = acts(&[(1, 3, 10), (1, 3, 25)]);
    history.forget_acts();
    history.record(p(2), &ActorReport::Act { term: t(4), at: 20 });
    assert_eq!((history.acts().len(), history.counted()), (1, 3));
    assert_eq!(judge(LEASED, &history).len(), 1);
}
