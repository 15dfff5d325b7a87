//! Roles on a ledger over many seeds, and the harness against bugs put back on purpose.
//!
//! A longer run: `mandate sim --protocol neli --seeds 100000`, and with `--protocol neli-overlap`.

use std::thread;

use mandate_sim::neli::{Mutant, Options, run, run_layouts, run_overlapping};
use mandate_sim::runner::{Summary, run_seeds};
use mandate_sim::verdict::Violation;

fn seeds(count: u64, max_failures: usize, options: Options) -> Summary {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    run_seeds(0..count, cores, max_failures, |seed| run(seed, &options, None), |_| {})
}

fn overlapping(count: u64, max_failures: usize, options: Options) -> Summary {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    run_seeds(0..count, cores, max_failures, |seed| run_overlapping(seed, &options, None), |_| {})
}

#[test]
fn two_thousand_seeds_of_exclusive_mode_violate_nothing() {
    let summary = seeds(2_000, 3, Options::default());
    assert_eq!(summary.failures, []);
    assert!(summary.reigns > 20_000, "ten leaders a run: {}", summary.reigns);
}

#[test]
fn no_role_is_without_a_leader_for_longer_than_stated_in_non_exclusive_mode() {
    let summary = overlapping(2_000, 3, Options::default());
    assert_eq!(summary.failures, []);
    assert!(
        summary.slowest_agreement > 0.5,
        "the bound is not idle: {}",
        summary.slowest_agreement
    );
}

fn layouts(count: u64, max_failures: usize, options: Options) -> Summary {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    run_seeds(0..count, cores, max_failures, |seed| run_layouts(seed, &options, None), |_| {})
}

#[test]
fn members_that_go_by_different_layouts_do_not_lead_beside_each_other_and_one_layout_does() {
    let summary = layouts(2_000, 3, Options::default());
    assert_eq!(summary.failures, []);
    assert!(summary.reigns > 5_000, "leaders there are: {}", summary.reigns);
}

#[test]
fn members_that_do_not_mind_another_layout_are_caught() {
    let mutant = Some(Mutant::IgnoresLayout);
    assert_eq!(caught(layouts(100, 1, Options { mutant })), "one layout at a time");
}

/// The invariant of correctness that caught the mutant first.
fn caught(summary: Summary) -> &'static str {
    let correctness = summary.failures.iter().find_map(|failure| match failure.violation {
        Violation::Correctness { invariant, .. } => Some(invariant),
        _ => None,
    });
    correctness.unwrap_or_else(|| panic!("came away with {:?}", summary.failures))
}

/// The demand that caught the mutant first.
fn stalled(summary: Summary) -> &'static str {
    let liveness = summary.failures.iter().find_map(|failure| match failure.violation {
        Violation::Liveness { invariant, .. } => Some(invariant),
        _ => None,
    });
    liveness.unwrap_or_else(|| panic!("came away with {:?}", summary.failures))
}

fn exclusive(mutant: Mutant, count: u64) -> &'static str {
    caught(seeds(count, 1, Options { mutant: Some(mutant) }))
}

fn non_exclusive(mutant: Mutant, count: u64) -> &'static str {
    caught(overlapping(count, 1, Options { mutant: Some(mutant) }))
}

const ONE_HOLDER: &str = "one holder at a time";

#[test]
fn a_threshold_counted_from_the_answer_is_caught() {
    assert_eq!(exclusive(Mutant::FromAnswer, 2_000), ONE_HOLDER);
}

/// Section "Exclusivity of role assignment": if the check passes, a record was published no longer than T
/// ago. On a ledger that hands records to every process that asks, that says nothing of who owns the partition.
#[test]
fn the_papers_exclusive_rule_lets_two_lead_on_a_ledger_that_hands_records_to_anyone() {
    assert_eq!(exclusive(Mutant::RecordsProve, 1_000), ONE_HOLDER);
}

#[test]
fn an_unknown_outcome_taken_for_an_accepted_renewal_is_caught() {
    assert_eq!(exclusive(Mutant::UnknownIsAccepted, 1_000), ONE_HOLDER);
}

#[test]
fn leading_under_a_claim_that_is_not_confirmed_is_caught() {
    assert_eq!(exclusive(Mutant::ClaimUnconfirmed, 1_000), ONE_HOLDER);
}

#[test]
fn a_renewal_that_counts_for_what_was_given_back_is_caught() {
    assert_eq!(exclusive(Mutant::RenewsWhatIsGone, 1_000), ONE_HOLDER);
}

#[test]
fn releasing_what_is_still_led_is_caught() {
    assert_eq!(exclusive(Mutant::ReleasedWhileLed, 1_000), ONE_HOLDER);
}

#[test]
fn a_value_told_with_a_former_term_is_caught() {
    assert_eq!(exclusive(Mutant::FormerTermsValue, 1_000), "a value is of its term");
}

#[test]
fn leadership_as_a_cached_flag_is_caught() {
    assert_eq!(exclusive(Mutant::CachedFlag, 1_000), ONE_HOLDER);
}

#[test]
fn no_allowance_for_drift_is_caught() {
    assert_eq!(exclusive(Mutant::NoAllowance, 5_000), ONE_HOLDER);
}

#[test]
fn not_waiting_for_a_holder_that_did_not_say_that_it_ended_is_caught() {
    assert_eq!(exclusive(Mutant::NoGrace, 1_000), ONE_HOLDER);
}

#[test]
fn saying_that_a_term_is_over_while_it_is_led_under_is_caught() {
    assert_eq!(exclusive(Mutant::OverWhileLed, 1_000), ONE_HOLDER);
}

#[test]
fn a_term_that_is_over_but_was_not_the_last_is_caught() {
    assert_eq!(exclusive(Mutant::OldMarkCounts, 5_000), ONE_HOLDER);
}

#[test]
fn waiting_for_no_longer_than_ones_own_threshold_is_caught() {
    assert_eq!(exclusive(Mutant::OwnThreshold, 2_000), ONE_HOLDER);
}

#[test]
fn renewals_that_wait_behind_joins_are_caught() {
    let summary = seeds(1_000, 1, Options { mutant: Some(Mutant::ParkedRenewals) });
    assert_eq!(stalled(summary), "what does not move keeps its leader and term");
}

#[test]
fn giving_everything_up_because_one_partition_is_dry_is_caught() {
    let invariant = exclusive(Mutant::OneDryAllLeft, 2_000);
    assert_eq!(invariant, "what is led is not given up unasked");
}

#[test]
fn a_client_that_comes_back_in_silence_is_caught_if_nobody_counts_the_time() {
    assert_eq!(exclusive(Mutant::SilentReturn, 5_000), ONE_HOLDER);
}

#[test]
fn a_generation_used_as_a_term_is_caught() {
    assert_eq!(exclusive(Mutant::GenerationIsTerm, 1_000), "terms rise");
}

#[test]
fn records_that_count_from_when_they_are_read_are_caught() {
    let invariant = non_exclusive(Mutant::BacklogCounts, 2_000);
    assert_eq!(invariant, "records that waited revive nobody");
}

#[test]
fn leadership_that_ends_with_the_assignment_is_caught() {
    let invariant = non_exclusive(Mutant::EndsWithAssignment, 1_000);
    assert_eq!(invariant, "handing over leaves no gap");
}
