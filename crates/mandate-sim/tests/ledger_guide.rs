//! The figures in docs/ledger.md are those that the simulator finds.
//!
//! `cargo test -p mandate-sim --test ledger_guide -- --nocapture` prints what it finds.

use std::thread;

use mandate_sim::neli::{Mutant, Options, run, run_overlapping};
use mandate_sim::runner::run_seeds;

const GUIDE: &str = include_str!("../../../docs/ledger.md");

/// The seeds that the guide is about.
const SEEDS: u64 = 500;

/// By the names that `mandate sim --mutant` knows.
const EXCLUSIVE: [(&str, Mutant); 16] = [
    ("from-answer", Mutant::FromAnswer),
    ("records-prove", Mutant::RecordsProve),
    ("unknown-is-accepted", Mutant::UnknownIsAccepted),
    ("claim-unconfirmed", Mutant::ClaimUnconfirmed),
    ("renews-what-is-gone", Mutant::RenewsWhatIsGone),
    ("released-while-led", Mutant::ReleasedWhileLed),
    ("cached-flag", Mutant::CachedFlag),
    ("no-grace", Mutant::NoGrace),
    ("over-while-led", Mutant::OverWhileLed),
    ("old-mark-counts", Mutant::OldMarkCounts),
    ("own-threshold", Mutant::OwnThreshold),
    ("no-drift-on-ledger", Mutant::NoAllowance),
    ("generation-is-term", Mutant::GenerationIsTerm),
    ("parked-renewals", Mutant::ParkedRenewals),
    ("one-dry-all-left", Mutant::OneDryAllLeft),
    ("silent-return", Mutant::SilentReturn),
];

const NON_EXCLUSIVE: [(&str, Mutant); 2] = [
    ("backlog-counts", Mutant::BacklogCounts),
    ("ends-with-assignment", Mutant::EndsWithAssignment),
];

/// What the guide says: the third column of the row that names the mutant.
fn told(name: &str) -> String {
    let row =
        GUIDE.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
    let row = row.unwrap_or_else(|| panic!("{name} is not in the guide"));
    row.split('|').nth(3).unwrap_or_default().trim().to_owned()
}

fn failing(mutant: Mutant, is_exclusive: bool) -> usize {
    let options = Options { mutant: Some(mutant) };
    let run = |seed| match is_exclusive {
        true => run(seed, &options, None),
        false => run_overlapping(seed, &options, None),
    };
    let cores = thread::available_parallelism().map_or(2, usize::from);
    run_seeds(0..SEEDS, cores, SEEDS as usize, run, |_| {}).failures.len()
}

#[test]
fn as_many_seeds_fail_without_each_rule_as_the_guide_says() {
    let exclusive = EXCLUSIVE.map(|(name, mutant)| (name, failing(mutant, true)));
    let other = NON_EXCLUSIVE.map(|(name, mutant)| (name, failing(mutant, false)));
    let mut wrong = Vec::new();
    for (name, found) in exclusive.into_iter().chain(other) {
        println!("{name}: {found}");
        if told(name) != found.to_string() {
            wrong.push(format!("{name}: the guide says {}, and it is {found}", told(name)));
        }
    }
    assert_eq!(wrong, [""; 0]);
}
