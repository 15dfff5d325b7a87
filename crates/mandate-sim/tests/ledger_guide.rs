//! The figures in docs/ledger.md are those that the simulator finds.
//!
//! `cargo test -p mandate-sim --test ledger_guide -- --nocapture` prints what it finds.

use std::thread;

use mandate_sim::mutant::Bug;
use mandate_sim::neli::{Mutant, Options, run, run_overlapping};
use mandate_sim::runner::run_seeds;

const GUIDE: &str = include_str!("../../../docs/ledger.md");

/// The seeds that the guide is about.
const SEEDS: u64 = 500;

/// What the guide says: the third column of the row that names the mutant.
fn told(name: &str) -> String {
    let row =
        GUIDE.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
    let row = row.unwrap_or_else(|| panic!("{name} is not in the guide"));
    row.split('|').nth(3).unwrap_or_default().trim().to_owned()
}

fn failing(mutant: Mutant) -> usize {
    let options = Options { mutant: Some(mutant) };
    let run = |seed| match mutant.protocol() {
        "neli" => run(seed, &options, None),
        _ => run_overlapping(seed, &options, None),
    };
    let cores = thread::available_parallelism().map_or(2, usize::from);
    run_seeds(0..SEEDS, cores, SEEDS as usize, run, |_| {}).failures.len()
}

#[test]
fn as_many_seeds_fail_without_each_rule_as_the_guide_says() {
    let mut wrong = Vec::new();
    // The guide is about members that agree on a layout.
    for mutant in Mutant::ALL.iter().filter(|mutant| mutant.protocol() != "neli-layouts") {
        let (name, found) = (mutant.name(), failing(*mutant));
        println!("{name}: {found}");
        if told(name) != found.to_string() {
            wrong.push(format!("{name}: the guide says {}, and it is {found}", told(name)));
        }
    }
    assert_eq!(wrong, [""; 0]);
}
