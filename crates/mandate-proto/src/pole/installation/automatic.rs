//! First starts without a human, by hand.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::changes::{Town, adds, p};
use super::schedules::{LEASE, LEASED};
use super::*;

const ALL: [u32; 3] = [1, 2, 3];

/// Starts a member on an empty disk, without a word on whether it is new.
fn start_above(town: &mut Town, me: u32, floor: u64) {
    let boot = Boot { auto: Some(Term::new(floor)), ..town.boot(None) };
    town.start(me, boot);
}

fn start(town: &mut Town, me: u32) {
    start_above(town, me, 0);
}

/// Three that have just been started, and have said nothing to each other.
fn started(guarantee: PeerGuarantee, without: Option<Safeguard>) -> Town {
    let mut town = Town::of(3, guarantee, without);
    town.lose_letters();
    town.members.clear();
    ALL.iter().for_each(|id| start(&mut town, *id));
    town
}

/// One asks another, and is answered; nothing else is heard.
fn asks(town: &mut Town, one: u32, other: u32) {
    town.lose_letters();
    town.tell(one, Input::Reached { member: p(other) });
    town.arrive(one, other);
    town.arrive(other, one);
}

fn voters(town: &Town) -> Vec<u32> {
    ALL.into_iter().filter(|id| town.members[id].has_vote()).collect()
}

fn why(town: &Town, id: u32) -> Option<WhyNoVote> {
    town.members[&id].no_vote().map(|it| it.why)
}

#[test]
fn all_of_a_group_start_it_and_wait_for_a_lease() {
    let mut town = started(LEASED, None);
    town.talk(&[1, 2]);
    town.pass(LEASE / 10, &[1, 2]);
    assert_eq!(voters(&town), [], "the third may know more");
    let waits = town.members[&1].no_vote().unwrap().to_string();
    assert!(waits.contains("is new or has lost its disk; waiting for an answer of p3"), "{waits}");
    (0..3).for_each(|_| town.pass(LEASE / 10, &ALL));
    assert_eq!(voters(&town), ALL);
    assert!(!town.claims(1, &ALL), "a lease of a former life of the group may run");
    town.pass(LEASE, &ALL);
    town.pass(LEASE / 10, &ALL);
    assert!(town.leads(1).is_some());
    for id in ALL {
        let founders = &town.members[&id].founders;
        assert_eq!(founders.len(), 3, "p{id} knows with whom the group was started: {founders:?}");
    }
}

#[test]
fn terms_begin_above_the_highest_floor() {
    let mut town = Town::fenced(3, None);
    town.lose_letters();
    for (id, floor) in [(1, 700), (2, 900), (3, 800)] {
        start_above(&mut town, id, floor);
    }
    town.go_on(&ALL);
    assert!(town.claims(1, &ALL));
    assert!(town.leads(1) > Some(Term::new(900)), "{:?}", town.leads(1));
    // A floor that nobody can have reached is not taken, and its member is waited for.
    let mut town = Town::fenced(3, None);
    for (id, floor) in [(1, 700), (2, 900), (3, u64::MAX)] {
        start_above(&mut town, id, floor);
    }
    town.go_on(&ALL);
    assert_eq!(why(&town, 1), Some(WhyNoVote::Unsure));
}

/// p1 and p2 have started the group, and p3 has not heard that yet.
fn founded_without_p3(without: Option<Safeguard>) -> Town {
    let mut town = started(PeerGuarantee::Fenced, without);
    for _ in 0..2 {
        asks(&mut town, 1, 2);
        asks(&mut town, 1, 3);
    }
    asks(&mut town, 2, 1);
    town.lose_letters();
    assert_eq!(voters(&town), [1, 2]);
    town
}

#[test]
fn who_comes_late_is_known_by_its_disk() {
    let mut town = founded_without_p3(None);
    assert!(town.claims(1, &[1, 2]));
    // p3 restarts with its disk, and p1 is gone.
    town.restart(3);
    assert_eq!(why(&town, 3), Some(WhyNoVote::Unsure));
    town.talk(&[2, 3]);
    assert_eq!(voters(&town), ALL);
    // And so is p2, restarted, by what p3 has been told.
    town.restart(2);
    assert_eq!(town.members[&2].founders, town.members[&1].founders);
}

#[test]
fn a_founder_that_is_not_known_has_lost_its_disk() {
    let mut town = founded_without_p3(None);
    start(&mut town, 3);
    asks(&mut town, 3, 1);
    assert_eq!(why(&town, 3), Some(WhyNoVote::NoState));
    let waits = town.members[&3].no_vote().unwrap();
    assert_eq!(waits.awaits, [p(2)]);
    assert!(
        waits.to_string().contains("so this member has lost its disk; waiting for what"),
        "{waits}"
    );
    asks(&mut town, 3, 2);
    assert_eq!(voters(&town), ALL, "both others have told it");
}

#[test]
fn two_of_three_that_lost_their_disks_do_not_repeat_a_term() {
    let play = |without| {
        let mut town = founded_without_p3(without);
        asks(&mut town, 3, 1);
        assert!(town.claims_term(1, 1, &[1, 2]));
        [1, 2].iter().for_each(|id| start(&mut town, *id));
        town.go_on(&ALL);
        town.claims_term(2, 1, &ALL);
        (town.leads(2), why(&town, 2))
    };
    assert_eq!(play(None), (None, Some(WhyNoVote::NoState)));
    assert_eq!(play(Some(Safeguard::UnsureKnowNothing)), (Some(Term::new(1)), None));
}

#[test]
fn an_answer_from_before_a_disk_was_lost_counts_for_nothing() {
    let play = |without| {
        let mut town = started(PeerGuarantee::Fenced, without);
        for _ in 0..2 {
            asks(&mut town, 3, 1);
            asks(&mut town, 3, 2);
        }
        assert_eq!(voters(&town), [3]);
        // p1 loses its disk, and p2 answers it before it votes for p3.
        start(&mut town, 1);
        asks(&mut town, 1, 2);
        asks(&mut town, 2, 3);
        assert!(town.claims_term(3, 1, &[2, 3]));
        // p3 loses its disk, and p1 hears of that.
        start(&mut town, 3);
        asks(&mut town, 1, 3);
        asks(&mut town, 3, 1);
        town.claims_term(1, 1, &[1, 3]);
        let again = town.leads(1);
        town.go_on(&ALL);
        (again, why(&town, 1))
    };
    assert_eq!(play(None), (None, Some(WhyNoVote::NoState)));
    assert_eq!(play(Some(Safeguard::DisksKnown)), (Some(Term::new(1)), None));
}

#[test]
fn who_comes_late_to_a_group_that_was_changed_votes_with_its_disk_and_not_without() {
    for has_disk in [true, false] {
        let mut town = founded_without_p3(None);
        assert!(town.claims(1, &[1, 2]));
        town.join(4);
        town.changes(1, adds(4));
        town.go_on(&[1, 2, 4]);
        assert_eq!(town.list(2), "p1 p2 p3 p4");
        match has_disk {
            true => town.restart(3),
            false => start(&mut town, 3),
        }
        town.go_on(&[1, 2, 3, 4]);
        assert_eq!(town.list(3), "p1 p2 p3 p4");
        assert_eq!(why(&town, 3), (!has_disk).then_some(WhyNoVote::Outdated));
    }
}
