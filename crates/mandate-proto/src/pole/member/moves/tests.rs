//! What is worth a move.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::score::Score;

const SECOND: Duration = Duration::from_secs(1);
const MOVES: Moves =
    Moves { every: SECOND, threshold: 0.1, tenure: Duration::from_secs(10), shadow: false };

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

/// What each member measures by `oracle`; classes are applied as the oracle does.
fn measured(oracle: &Oracle, values: &[f64]) -> Measured {
    let class = |(term, value): (&Criterion, &f64)| {
        let width = term.class.unwrap_or(0.0);
        let classed = if width > 0.0 { libm::floor(value / width) * width } else { *value };
        if term.measure.is_time() { -classed } else { classed }
    };
    let components: Vec<_> = oracle.terms().iter().zip(values).map(class).collect();
    Measured { values: Score::new(values).unwrap(), score: Score::new(&components).unwrap() }
}

/// Reviews `times` times what p3 leads and the others would; the first advice.
fn reviewed(oracle: &str, times: u32, figures: impl Fn(u32) -> [Vec<f64>; 3]) -> Option<Advice> {
    let oracle: Oracle = oracle.parse().unwrap();
    let mut mover = Mover::new(MOVES);
    mover.installed(Instant::ORIGIN);
    (0..times).find_map(|review| {
        let now = Instant::ORIGIN + MOVES.tenure + SECOND * review;
        assert!(mover.is_due(now));
        let [one, two, own] = figures(review).map(|values| measured(&oracle, &values));
        let others = [(p(1), one), (p(2), two)];
        mover.review(&oracle, (p(3), own), others.into_iter())
    })
}

#[test]
fn nothing_is_reviewed_before_the_tenure_is_over() {
    let mut mover = Mover::new(MOVES);
    assert!(!mover.is_due(Instant::ORIGIN + SECOND * 99), "it does not lead");
    mover.installed(Instant::ORIGIN);
    assert!(!mover.is_due(Instant::ORIGIN + SECOND * 9));
    assert!(mover.is_due(Instant::ORIGIN + SECOND * 10));
    mover.ended();
    assert!(!mover.is_due(Instant::ORIGIN + SECOND * 20));
}

#[test]
fn a_better_one_must_be_better_three_times_in_succession() {
    let better = |_| [vec![50.0], vec![100.0], vec![100.0]];
    assert_eq!(reviewed("latency", 2, better), None);
    let advice = reviewed("latency", 3, better).unwrap();
    assert_eq!((advice.to, advice.present, advice.predicted), (p(1), 100.0, 50.0));
    let at_times =
        |review| [vec![if review % 3 == 2 { 100.0 } else { 50.0 }], vec![100.0], vec![100.0]];
    assert_eq!(reviewed("latency", 60, at_times), None);
}

#[test]
fn what_is_not_worth_a_move_moves_nobody() {
    let hair = |_| [vec![91.0], vec![99.0], vec![100.0]];
    assert_eq!(reviewed("latency", 9, hair), None, "less than the threshold");
    let tiny = |_| [vec![0.1], vec![0.2], vec![0.4]];
    assert_eq!(reviewed("latency", 9, tiny), None, "less than half a millisecond");
    let idle = |_| [vec![0.0], vec![0.9], vec![0.0]];
    assert_eq!(reviewed("requests", 9, idle), None, "a request now and then");
    let edge = |_| [vec![19.9], vec![25.0], vec![20.1]];
    assert_eq!(reviewed("latency/10ms", 9, edge), None, "neighbours in two classes");
    let turn = |_| [vec![-1.0], vec![-2.0], vec![-3.0]];
    assert_eq!(reviewed("rotating", 9, turn), None, "turns");
    assert_eq!(reviewed("constant", 9, |_| [vec![0.0], vec![0.0], vec![0.0]]), None, "ids");
}

#[test]
fn any_preference_is_worth_a_move() {
    let advice = reviewed("preference", 9, |_| [vec![0.0], vec![1.0], vec![0.0]]).unwrap();
    assert_eq!(advice.to, p(2));
}

#[test]
fn one_that_is_better_by_a_hair_does_not_hide_one_that_is_better_by_a_mile() {
    let figures = |_| [vec![9.9, 500.0], vec![10.1, 0.0], vec![9.9, 0.0]];
    let advice = reviewed("requests/10, application", 9, figures).unwrap();
    assert_eq!((advice.to, advice.measure), (p(1), Measure::Application));
}

#[test]
fn two_much_better_ones_that_take_turns_do_not_keep_the_worst() {
    let figures = |review| {
        let (one, two) = if review % 2 == 0 { (10.0, 11.0) } else { (11.0, 10.0) };
        [vec![one], vec![two], vec![100.0]]
    };
    assert!(reviewed("latency", 3, figures).is_some());
}
