//! Terms and leases over many seeds, and the harness against bugs put back on purpose.

use std::thread;

use mandate_sim::installation::{Mutant, Options, run};
use mandate_sim::runner::{FailedSeed, Summary, run_seeds};
use mandate_sim::verdict::Violation;

fn seeds(count: u64, max_failures: usize, mutant: Option<Mutant>) -> Summary {
    run_all(count, max_failures, Options { mutant, ..Options::default() })
}

fn run_all(count: u64, max_failures: usize, options: Options) -> Summary {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    run_seeds(0..count, cores, max_failures, |seed| run(seed, &options, None), |_| {})
}

#[test]
fn ten_thousand_seeds_violate_nothing() {
    let summary = seeds(10_000, 3, None);
    assert_eq!(summary.failures, []);
    assert!(summary.reigns > 70_000, "seven leaders a run: {}", summary.reigns);
}

/// The invariant of correctness that a seed violates.
fn correctness(failure: &FailedSeed) -> Option<&'static str> {
    match failure.violation {
        Violation::Correctness { invariant, .. } => Some(invariant),
        _ => None,
    }
}

/// The invariant of correctness that caught the mutant; it may upset liveness before.
fn caught(mutant: Mutant, count: u64) -> &'static str {
    let options = Options { mutant: Some(mutant), ..Options::default() };
    let summary = run_all(count, 100, options);
    let correctness = summary.failures.iter().find_map(correctness);
    correctness.unwrap_or_else(|| panic!("{mutant:?} came away with {:?}", summary.failures))
}

#[test]
fn a_promise_that_is_not_durable_is_caught() {
    let invariant = caught(Mutant::PromiseNotDurable, 20_000);
    assert!(["terms rise", "one leader per term", "one mandate at a time"].contains(&invariant));
}

#[test]
fn a_lease_that_is_not_waited_out_after_a_restart_is_caught() {
    assert_eq!(caught(Mutant::LeaseNotWaitedOut, 20_000), "one mandate at a time");
}

#[test]
fn leadership_as_a_cached_flag_is_caught() {
    assert_eq!(caught(Mutant::CachedCheck, 20_000), "one mandate at a time");
}

#[test]
fn a_deadline_counted_from_the_answer_is_caught() {
    assert_eq!(caught(Mutant::DeadlineFromReply, 20_000), "one mandate at a time");
}

#[test]
fn a_vote_without_the_disk_is_caught() {
    let invariant = caught(Mutant::VoteWithoutDisk, 20_000);
    assert!(["one leader per term", "one mandate at a time"].contains(&invariant));
}

#[test]
fn a_leader_that_allows_for_no_drift_is_caught() {
    assert_eq!(caught(Mutant::NoAllowance, 20_000), "one mandate at a time");
}

#[test]
fn votes_across_different_lists_and_guarantees_are_caught() {
    let invariant = caught(Mutant::ConfigIgnored, 20_000);
    assert!(["terms rise", "one leader per term", "one mandate at a time"].contains(&invariant));
}

#[test]
fn a_leader_that_forgets_what_it_promised_itself_is_caught() {
    assert_eq!(caught(Mutant::OwnPromiseForgotten, 20_000), "one mandate at a time");
}

#[test]
fn another_incarnation_that_passes_for_the_one_promised_is_caught() {
    assert_eq!(caught(Mutant::IncarnationIgnored, 20_000), "one mandate at a time");
}

#[test]
fn a_recovered_member_that_waits_for_the_lease_of_the_highest_term_is_caught() {
    assert_eq!(caught(Mutant::LeaseOfHighest, 20_000), "one mandate at a time");
}

#[test]
fn a_leader_that_frees_the_others_before_its_mandate_has_ended_is_caught() {
    assert_eq!(caught(Mutant::FreedBeforeEnded, 20_000), "one mandate at a time");
}

#[test]
fn a_disk_that_answers_before_it_has_written_is_caught() {
    let invariant = caught(Mutant::AnsweredBeforeWritten, 20_000);
    assert!(["one leader per term", "one mandate at a time"].contains(&invariant), "{invariant}");
}

#[test]
fn new_members_that_vote_before_all_of_their_list_have_answered_are_caught() {
    let invariant = caught(Mutant::NewVotesAtOnce, 2_000);
    assert!(["one leader per term", "one mandate at a time"].contains(&invariant), "{invariant}");
}

#[test]
fn six_thousand_seeds_in_which_members_come_and_go_violate_nothing() {
    let summary = run_all(6_000, 3, Options { changes: true, ..Options::default() });
    assert_eq!(summary.failures, []);
    assert!(summary.reigns > 30_000, "five leaders a run: {}", summary.reigns);
}

/// What finds a bug, a thousand seeds at a time, twenty times at most: the first that `find` makes of a failure.
fn first_of<T>(options: Options, find: impl Fn(&FailedSeed) -> Option<T>) -> Option<T> {
    (0..20).find_map(|thousand| {
        let (first, cores) =
            (thousand * 1_000, thread::available_parallelism().map_or(2, usize::from));
        let seeds = first..first + 1_000;
        let summary = run_seeds(seeds, cores, 1_000, |seed| run(seed, &options, None), |_| {});
        summary.failures.iter().find_map(&find)
    })
}

/// What catches a bug of changes: two leaders, a change that was settled and is undone, or a promise that is forgotten.
fn caught_in_changes(mutant: Mutant) {
    let options = Options { mutant: Some(mutant), changes: true, auto: false };
    let correctness = first_of(options, correctness);
    let expected = ["one leader per term", "one mandate at a time", "changes stay", "terms rise"];
    assert!(correctness.is_some_and(|it| expected.contains(&it)), "{mutant:?}: {correctness:?}");
}

#[test]
fn changes_before_the_leader_has_its_own_term_in_the_list_are_caught() {
    caught_in_changes(Mutant::ChangeBeforeOwnTerm);
}

#[test]
fn changes_that_overlap_are_caught() {
    caught_in_changes(Mutant::OverlappingChanges);
}

#[test]
fn changes_that_count_before_a_quorum_has_them_are_caught() {
    caught_in_changes(Mutant::SettledAlone);
}

#[test]
fn votes_counted_by_the_old_list_after_a_change_are_caught() {
    caught_in_changes(Mutant::OldQuorumOnly);
}

#[test]
fn votes_for_a_member_that_was_removed_are_caught() {
    caught_in_changes(Mutant::RemovedStillVotes);
}

#[test]
fn votes_of_members_that_only_learn_are_caught() {
    caught_in_changes(Mutant::LearnersCount);
}

#[test]
fn a_lost_disk_that_gets_its_vote_back_in_a_changed_group_is_caught() {
    caught_in_changes(Mutant::LostDiskVotesAgain);
}

#[test]
fn a_lost_disk_that_is_taken_for_a_new_one_in_a_changed_group_is_caught() {
    caught_in_changes(Mutant::JoinsAgain);
}

#[test]
fn six_thousand_seeds_that_start_without_a_human_violate_nothing() {
    let summary = run_all(6_000, 8, Options { auto: true, ..Options::default() });
    assert_eq!(summary.failures, []);
    assert!(summary.reigns > 20_000, "three leaders a run: {}", summary.reigns);
}

/// What is wrong with a first start without a human shows as two leaders.
fn caught_in_first_starts(mutant: Mutant) {
    let options = Options { mutant: Some(mutant), changes: false, auto: true };
    let correctness = first_of(options, correctness);
    let expected = ["one leader per term", "one mandate at a time"];
    assert!(correctness.is_some_and(|it| expected.contains(&it)), "{mutant:?}: {correctness:?}");
}

#[test]
fn unsure_members_that_count_as_knowledge_are_caught() {
    caught_in_first_starts(Mutant::UnsureCount);
}

#[test]
fn a_first_start_that_waits_for_no_lease_is_caught() {
    caught_in_first_starts(Mutant::FirstLeaseSkipped);
}

#[test]
fn a_first_start_with_low_terms_is_caught() {
    caught_in_first_starts(Mutant::FirstTermLow);
}

#[test]
fn a_group_that_forgets_its_founders_stays_without_those_that_come_late() {
    let options = Options { mutant: Some(Mutant::FoundersForgotten), changes: false, auto: true };
    let stalled = first_of(options, |failure| match failure.violation {
        Violation::Liveness { .. } => Some(()),
        _ => None,
    });
    assert_eq!(stalled, Some(()), "late founders recover like members that have lost their disks");
}
