//! All that can happen within bounds: the machines of POLE under a model checker.
//!
//! The simulator draws runs at random; here every order of events in a small group is tried, with
//! the same machines (`Selection`, `Installation`) and not a copy of them. Two models:
//!
//! - `fenced`: both machines joined, without leases and without time;
//! - `leased`: the installation with leases, and a clock that all members read.
//!
//! `bounds` says how far they go and how many states that makes. Then bugs are put in on purpose,
//! around the machines and not in them: each must be found, and the shortest way there is printed
//! (`cargo test -p mandate-sim --test model -- --nocapture mutant`).
//!
//! The checker is stateright, with its own actors left aside: a crash between a write and what
//! follows it, and a network that may repeat forever, are easier to say in a model of our own.

mod bounds;
mod check;
mod fenced;
mod group;
mod host;
mod joined;
mod keyed;
mod leased;
mod memo;
mod network;
mod properties;
mod timed;

use bounds::Space;
use check::{shortest, visible, visit_all};
use fenced::Fenced;
use leased::Leased;

fn visit_fenced(space: &Space<fenced::Bounds>) {
    visit_all(space.name, Fenced::new(space.bounds, None), space.at_least);
}

fn visit_leased(space: &Space<leased::Bounds>) {
    visit_all(space.name, Leased::new(space.bounds, None), space.at_least);
}

#[test]
fn one_leader_per_term_with_a_crash_at_any_time() {
    visit_fenced(&bounds::FENCED_CRASH);
}

#[test]
fn one_leader_per_term_with_timers_that_run_out_early() {
    visit_fenced(&bounds::FENCED_TIMERS);
}

#[test]
fn one_mandate_at_a_time_with_crashes_at_any_time() {
    visit_leased(&bounds::LEASED_CRASH);
    visit_leased(&bounds::LEASED_CRASHES);
}

#[test]
fn one_mandate_at_a_time_with_resignations_and_transfers() {
    visit_leased(&bounds::LEASED_HAND_OVER);
    visit_leased(&bounds::LEASED_HAND_OVER_CRASH);
}

#[test]
fn one_mandate_at_a_time_with_a_disk_that_is_lost() {
    visit_leased(&bounds::LEASED_LOST_DISK);
}

#[test]
fn one_leader_per_term_with_members_that_do_not_know_whether_they_lost_their_disks() {
    let space = &bounds::LEASED_LOST_DISK;
    let model = Leased::new(space.bounds, None).with_disks(leased::Disks::Unsure);
    visit_all("leased, a disk that may be lost", model, 2_100_000);
}

#[test]
#[ignore = "minutes: the wider spaces"]
fn all_holds_in_wider_bounds() {
    visit_fenced(&bounds::FENCED_LONG);
    bounds::LEASED_LONG.iter().for_each(visit_leased);
}

/// See `group` on what is left out of the models; here nothing is.
#[test]
fn what_the_models_leave_out_is_nothing_that_could_be_seen() {
    let bounds = fenced::Bounds { crashes: 0, elections: 1, waits: 0, patience: 0 };
    let reduced = visible(&Fenced::new(bounds, None), fenced::State::at_rest);
    let all = visible(&Fenced::new(bounds, None).unreduced(), fenced::State::at_rest);
    assert_eq!(reduced, all);

    let crash =
        leased::Bounds { ticks: 2, claims: 2, crashes: 1, losses: 0, resignations: 0, timeouts: 0 };
    let renewal =
        leased::Bounds { ticks: 1, claims: 2, crashes: 0, losses: 0, resignations: 0, timeouts: 1 };
    let release =
        leased::Bounds { ticks: 0, claims: 2, crashes: 0, losses: 0, resignations: 1, timeouts: 0 };
    let loss = leased::Bounds { ticks: 1, losses: 1, ..crash };
    for bounds in [crash, renewal, release, loss] {
        let reduced = visible(&Leased::new(bounds, None), leased::State::at_rest);
        let all = visible(&Leased::new(bounds, None).unreduced(), leased::State::at_rest);
        assert_eq!(reduced, all, "{bounds:?}");
    }
}

/// The property that a mutant breaks first, and in how many steps.
fn fenced_mutant(mutant: fenced::Mutant) -> Option<(&'static str, usize)> {
    let bounds = bounds::FENCED_CRASH.bounds;
    shortest(&format!("{mutant:?}"), || Fenced::new(bounds, Some(mutant)))
}

fn leased_mutant(mutant: leased::Mutant, bounds: leased::Bounds) -> Option<(&'static str, usize)> {
    shortest(&format!("{mutant:?}"), || Leased::new(bounds, Some(mutant)))
}

#[test]
fn mutant_a_promise_that_is_not_durable_is_caught() {
    let caught = fenced_mutant(fenced::Mutant::PromiseNotDurable);
    assert_eq!(caught, Some((properties::TERMS_RISE, 8)));
}

#[test]
fn mutant_a_promise_sent_before_it_is_durable_is_caught() {
    let caught = fenced_mutant(fenced::Mutant::SentBeforeDurable);
    assert_eq!(caught, Some((properties::ONE_LEADER, 11)));
}

#[test]
fn mutant_a_lease_that_is_not_waited_out_after_a_restart_is_caught() {
    let bounds = bounds::LEASED_CRASH.bounds;
    let caught = leased_mutant(leased::Mutant::LeaseNotWaitedOut, bounds);
    assert_eq!(caught, Some((properties::ONE_MANDATE, 9)));
}

#[test]
fn mutant_a_leader_that_forgets_what_it_promised_itself_is_caught() {
    let bounds = bounds::LEASED_CRASH.bounds;
    let caught = leased_mutant(leased::Mutant::OwnPromiseForgotten, bounds);
    assert!(matches!(caught, Some((properties::ONE_MANDATE, _))), "{caught:?}");
}

#[test]
fn mutant_a_deadline_counted_from_the_answer_is_caught() {
    let bounds = leased::Bounds { crashes: 0, ..bounds::LEASED_CRASH.bounds };
    let caught = leased_mutant(leased::Mutant::DeadlineFromReply, bounds);
    assert_eq!(caught, Some((properties::ONE_MANDATE, 8)));
}

#[test]
fn mutant_a_vote_without_the_disk_is_caught() {
    let bounds = bounds::LEASED_LOST_DISK.bounds;
    let caught = leased_mutant(leased::Mutant::VoteWithoutDisk, bounds);
    assert_eq!(caught, Some((properties::ONE_LEADER, 9)));
}

#[test]
fn mutant_a_release_that_frees_those_who_promised_another_is_caught() {
    let bounds = leased::Bounds { claims: 3, ..bounds::LEASED_HAND_OVER.bounds };
    let caught = leased_mutant(leased::Mutant::ReleaseFreesAnyone, bounds);
    assert_eq!(caught, Some((properties::ONE_MANDATE, 9)));
}
