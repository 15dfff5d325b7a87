//! NFD-L over many seeds, and the harness against bugs put back on purpose.
//!
//! Longer runs are a command: `cargo run --release -- sim --seeds 1000000`.

use std::thread;

use mandate_sim::nfd_l::{Mutant, Options, run};
use mandate_sim::runner::{Summary, run_seeds};
use mandate_sim::verdict::Violation;

fn cores() -> usize {
    thread::available_parallelism().map_or(2, usize::from)
}

fn seeds(count: u64, mutant: Option<Mutant>) -> Summary {
    let options = Options { mutant };
    run_seeds(0..count, cores(), 3, |seed| run(seed, &options, None), |_| {})
}

#[test]
fn a_hundred_thousand_seeds_violate_nothing() {
    let summary = seeds(100_000, None);
    assert_eq!(summary.failures, []);
    assert_eq!(summary.seeds, 100_000);
    assert!(summary.slowest_agreement > 0.3, "a bound that nothing comes near tests nothing");
}

#[test]
fn one_seed_gives_the_same_bytes_of_trace_every_time() {
    for seed in [1, 2, 3] {
        let trace = || {
            let mut bytes = Vec::new();
            let outcome = run(seed, &Options::default(), Some(&mut bytes));
            (bytes, outcome)
        };
        let (first, outcome) = trace();
        assert_eq!(trace(), (first.clone(), outcome.clone()));
        assert!(first.len() > 10_000);
        // Watching it changes nothing.
        assert_eq!(run(seed, &Options::default(), None), outcome);
    }
}

/// The invariant that caught the mutant within `count` seeds.
fn caught(mutant: Mutant, count: u64) -> &'static str {
    let summary = seeds(count, Some(mutant));
    match summary.failures.first().map(|failure| &failure.violation) {
        Some(Violation::Correctness { invariant, .. }) => invariant,
        Some(Violation::Liveness { invariant, .. }) => invariant,
        other => panic!("{mutant:?} came away with {other:?}"),
    }
}

#[test]
fn labels_that_restart_at_zero_after_a_crash_are_caught() {
    assert_eq!(caught(Mutant::LabelsRestart, 200), "labels rise");
}

#[test]
fn a_second_write_to_disk_is_caught() {
    assert_eq!(caught(Mutant::WritesEveryStart, 200), "one write");
}

#[test]
fn a_newcomer_that_unseats_the_leader_is_caught() {
    assert_eq!(caught(Mutant::PushyNewcomer, 200), "stability");
}

#[test]
fn the_papers_own_comparison_of_uptimes_is_caught_leaving_two_leaders() {
    assert_eq!(caught(Mutant::PrintedSeniority, 2_000), "agreement");
}

#[test]
fn a_detector_that_is_an_interval_late_is_caught() {
    assert_eq!(caught(Mutant::SlowDetector, 200), "detection time");
}
