//! The figures in docs/registers.md are those that the simulator finds.
//!
//! `cargo test -p mandate-sim --test registers_guide -- --nocapture` prints what it finds.

use mandate_sim::mutant::Bug;
use mandate_sim::registers::printed::{self, Rounds};
use mandate_sim::registers::{Mutant, Options, run};
use mandate_sim::verdict::Violation;

const GUIDE: &str = include_str!("../../../docs/registers.md");

/// The seeds that the guide is about.
const SEEDS: u64 = 4_000;

/// Those whose first seed the guide tells.
const MUTANTS: [Mutant; 10] = [
    Mutant::TakeoverIgnoresBeat,
    Mutant::TermNotRaised,
    Mutant::SuspicionByRounds,
    Mutant::WatchFromSending,
    Mutant::LeaseFromAnswer,
    Mutant::NoAllowance,
    Mutant::LoweredAtOnce,
    Mutant::UnknownIsSuccess,
    Mutant::OwnGuarantee,
    Mutant::LostLeaseForgotten,
];

/// What the guide says: the third column of the row that names the mutant.
fn told(name: &str) -> String {
    let row =
        GUIDE.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
    let row = row.unwrap_or_else(|| panic!("{name} is not in the guide"));
    row.split('|').nth(3).unwrap_or_default().trim().to_owned()
}

fn first_that_fails(mutant: Mutant) -> Option<u64> {
    let losses = mutant.protocol() == "registers-losses";
    let options = Options { mutant: Some(mutant), losses, ..Options::default() };
    (0..SEEDS).find(|seed| {
        matches!(run(*seed, &options, None).verdict, Err(Violation::Correctness { .. }))
    })
}

#[test]
fn the_first_seed_that_fails_without_each_rule_is_the_one_in_the_guide() {
    let mut wrong = Vec::new();
    for mutant in MUTANTS {
        let name = mutant.name();
        let found = first_that_fails(mutant).map_or("none".to_owned(), |seed| seed.to_string());
        println!("{name}: {found}");
        if told(name) != found {
            wrong.push(format!("{name}: the guide says {}, and it is {found}", told(name)));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn the_printed_algorithm_lets_two_lead_as_often_as_the_guide_says() {
    let two_lead = |rounds| {
        let is_two = |seed: &u64| {
            let verdict = printed::run(*seed, rounds, None).verdict;
            verdict.is_err_and(|violation| violation.to_string().contains("hold at once"))
        };
        (0..3_000).filter(is_two).count()
    };
    let (printed, fixed) = (two_lead(Rounds::AsPrinted), two_lead(Rounds::FixedRate));
    println!("as printed: {printed}, at a fixed rate: {fixed}");
    let flat = GUIDE.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&format!("lets two lead at once in {printed} of 3,000")), "{printed}");
    assert!(flat.contains(&format!("at a fixed rate, in {fixed} (")), "{fixed}");
}
