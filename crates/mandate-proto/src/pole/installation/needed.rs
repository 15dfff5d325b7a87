//! That each rule of changing members is needed: a schedule in which leaving it out breaks what is promised, and keeping it does
//! not. Most are without leases: whom a term belongs to does not depend on time.

use alloc::vec::Vec;

use super::changes::{Town, adds, removes};
use super::schedules::{LEASE, LEASED};
use super::*;

/// Plays a schedule with all rules, and without one: what comes of it.
fn with_and_without<T>(rule: Safeguard, play: impl Fn(Option<Safeguard>) -> T) -> (T, T) {
    (play(None), play(Some(rule)))
}

/// Those that lead at this moment, and in which terms.
fn leaders(town: &Town) -> Vec<(u32, u64)> {
    let leads = |id: &u32| town.leads(*id).map(|term| (*id, term.get()));
    town.members.keys().filter_map(leads).collect()
}

#[test]
fn a_leader_that_changes_a_list_that_is_not_its_own_leaves_a_former_leaders_list_alive() {
    // Ongaro's schedule. p1 adds p5, and nobody but these two hears of it; p2 removes p1.
    let play = |without| {
        let mut town = Town::fenced(4, without);
        assert!(town.claims(1, &[1, 2, 3, 4]));
        town.join(5);
        town.changes(1, adds(5));
        town.talk(&[1, 2, 3, 4]);
        town.pass(LEASE / 5, &[1, 5]);
        town.pass(LEASE / 5, &[1, 5]);
        assert_eq!((town.list(1), town.list(5)), ("p1 p2 p3 p4 p5".into(), town.list(1)));
        assert_eq!(town.list(2), "p1 p2 p3 p4 (p5)");
        // p4 promises, and hears nothing more.
        assert!(town.claims(2, &[2, 3, 4]));
        town.lose_letters();
        if without.is_none() {
            town.pass(LEASE / 5, &[2, 3, 4]);
        }
        town.changes(2, removes(1));
        town.talk(&[2, 3]);
        assert_eq!(town.list(2), "p2 p3 p4 (p5)");
        assert!(town.claims_term(2, 3, &[2, 3]), "two of three");
        town.claims_term(1, 3, &[1, 4, 5]);
        leaders(&town)
    };
    let (with, without) = with_and_without(Safeguard::OwnTermFirst, play);
    assert_eq!(with, [(2, 3)]);
    assert_eq!(without, [(1, 3), (2, 3)]);
}

#[test]
fn two_changes_at_once_make_two_quorums() {
    let play = |without| {
        let mut town = Town::fenced(5, without);
        assert!(town.claims(1, &[1, 2, 3, 4, 5]));
        // The first step is settled; what follows nobody hears but p2.
        town.changes(1, removes(3));
        (2..=5).for_each(|id| town.arrive(1, id));
        (2..=5).for_each(|id| town.arrive(id, 1));
        assert_eq!((town.list(1), town.list(5)), ("p1 p2 p4 p5".into(), "p1 p2 p3 p4 p5".into()));
        town.changes(1, removes(4));
        town.talk(&[1, 2]);
        town.claims_term(1, 2, &[1, 2]);
        town.claims_term(3, 2, &[3, 4, 5]);
        leaders(&town)
    };
    let (with, without) = with_and_without(Safeguard::OneChangeAtATime, play);
    assert_eq!(with, [(3, 2)]);
    assert_eq!(without, [(1, 2), (3, 2)]);
}

#[test]
fn promises_that_are_counted_by_the_old_list_make_two_mandates() {
    let play = |without| {
        let mut town = Town::of(1, LEASED, without);
        assert!(town.claims(1, &[1]));
        for (id, among) in [(2, &[1, 2][..]), (3, &[1, 2, 3])] {
            town.join(id);
            town.changes(1, adds(id));
            town.go_on(among);
        }
        assert_eq!(town.list(3), "p1 p2 p3");
        // p1 is cut off, and goes on claiming.
        (0..4).for_each(|_| town.pass(LEASE / 3, &[1]));
        assert!(town.claims(3, &[2, 3]));
        leaders(&town).len()
    };
    assert_eq!(with_and_without(Safeguard::NewQuorum, play), (1, 2));
}

#[test]
fn who_promises_by_a_list_that_it_knows_to_be_old_makes_two_leaders_and_undoes_a_change() {
    let play = |without| {
        let mut town = Town::fenced(3, without);
        assert!(town.claims(1, &[1, 2, 3]));
        town.join(4);
        town.changes(1, adds(4));
        town.talk(&[1, 2, 3]);
        // p2 hears nothing more.
        town.go_on(&[1, 3, 4]);
        assert!(town.is_settled(1));
        let settled = town.members[&1].roster().id();
        town.join(5);
        town.changes(1, adds(5));
        town.go_on(&[1, 3, 4, 5]);
        assert_eq!((town.list(3), town.list(2)), ("p1 p2 p3 p4 p5".into(), "p1 p2 p3 (p4)".into()));
        assert!(town.claims_term(1, 2, &[1, 4, 5]));
        town.lose_letters();
        town.tell(2, Input::Claim { epoch: Term::new(2) });
        town.arrive(2, 3);
        town.arrive(3, 2);
        let is_undone = town.leads(2).is_some() && town.members[&2].roster().id() > settled;
        (is_undone, leaders(&town))
    };
    let (with, without) = with_and_without(Safeguard::NewerRoster, play);
    assert_eq!(with, (false, Vec::from([(1, 2)])));
    assert_eq!(without, (true, Vec::from([(1, 2), (2, 2)])));
}

#[test]
fn promises_of_learners_that_count_make_two_leaders() {
    let play = |without| {
        let mut town = Town::fenced(3, without);
        assert!(town.claims(1, &[1, 2, 3]));
        town.join(4);
        town.changes(1, adds(4));
        // p4 is told, and is no voter before it has answered.
        let roster = town.members[&1].our_roster();
        town.talk(&[1, 2, 3]);
        assert!(town.is_settled(1) && town.list(1) == "p1 p2 p3 (p4)");
        town.hear(4, 1, roster);
        town.claims_term(1, 2, &[1, 4]);
        assert!(town.claims_term(3, 2, &[2, 3]));
        leaders(&town)
    };
    let (with, without) = with_and_without(Safeguard::OnlyVoters, play);
    assert_eq!(with, [(3, 2)]);
    assert_eq!(without, [(1, 2), (3, 2)]);
}

/// p1 and p2, who have added p3; only p1 and p3 know that it votes. p1 loses its disk, and hears p2.
fn a_disk_that_had_the_newest_list_is_lost(without: Option<Safeguard>) -> Town {
    let mut town = Town::fenced(2, without);
    assert!(town.claims(1, &[1, 2]));
    town.join(3);
    town.changes(1, adds(3));
    town.talk(&[1, 2]);
    town.pass(LEASE / 5, &[1, 3]);
    town.pass(LEASE / 5, &[1, 3]);
    assert!(town.is_settled(1));
    assert_eq!((town.list(1), town.list(2)), ("p1 p2 p3".into(), "p1 p2 (p3)".into()));
    town
}

#[test]
fn a_lost_disk_that_votes_again_undoes_a_settled_change() {
    let play = |without| {
        let mut town = a_disk_that_had_the_newest_list_is_lost(without);
        let settled = town.members[&1].roster().id();
        town.lose_disk(1);
        town.go_on(&[1, 2]);
        assert_eq!(town.list(1), "p1 p2 (p3)");
        let is_elected = town.claims(2, &[1, 2]);
        is_elected
            && town.members[&2].roster().entries().iter().filter(|it| it.is_voter()).count() == 2
            && town.members[&2].roster().id() > settled
    };
    assert_eq!(with_and_without(Safeguard::LostForGood, play), (false, true));
}

#[test]
fn a_lost_disk_that_votes_again_makes_two_leaders() {
    let play = |without| {
        let mut town = a_disk_that_had_the_newest_list_is_lost(without);
        // p2 is removed, and has heard of nothing; p4 is added, and votes: three, of which p3 and p4 are a quorum.
        town.changes(1, removes(2));
        town.talk(&[1, 3]);
        town.join(4);
        town.changes(1, adds(4));
        town.go_on(&[1, 3, 4]);
        assert_eq!((town.list(4), town.list(2)), ("p1 p3 p4".into(), "p1 p2 (p3)".into()));
        town.lose_disk(1);
        town.go_on(&[1, 2]);
        assert!(town.claims_term(3, 2, &[3, 4]));
        town.claims_term(2, 2, &[1, 2]);
        leaders(&town)
    };
    let (with, without) = with_and_without(Safeguard::LostForGood, play);
    assert_eq!(with, [(3, 2)]);
    assert_eq!(without, [(2, 2), (3, 2)]);
}

#[test]
fn a_member_that_joins_once_more_and_votes_makes_two_leaders() {
    let play = |without| {
        let mut town = Town::fenced(2, without);
        assert!(town.claims(1, &[1, 2]));
        town.join(3);
        town.changes(1, adds(3));
        town.go_on(&[1, 2, 3]);
        assert_eq!(town.list(2), "p1 p2 p3");
        assert!(town.claims_term(1, 2, &[1, 3]));
        town.join(3);
        town.claims_term(2, 2, &[2, 3]);
        leaders(&town)
    };
    let (with, without) = with_and_without(Safeguard::SameDisk, play);
    assert_eq!(with, [(1, 2)]);
    assert_eq!(without, [(1, 2), (2, 2)]);
}
