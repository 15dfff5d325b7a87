use super::*;
use crate::score::Score;
use alloc::string::ToString;
use alloc::vec;
use core::time::Duration;

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

/// Member 1 of five, with round trips to the others in milliseconds.
fn view(round_trips: [Option<f64>; 4]) -> View {
    let mut view = View::new(p(1), (1..=5).map(p));
    for (id, round_trip) in (2..).zip(round_trips) {
        if let Some(ms) = round_trip {
            view.round_trips.insert(p(id), Duration::from_secs_f64(ms / 1000.0));
        }
    }
    view
}

fn oracle(text: &str) -> Oracle {
    text.parse().unwrap()
}

fn value(text: &str, view: &View) -> f64 {
    oracle(text).measure(view).unwrap().values.components()[0]
}

#[test]
fn section_2_2_consensus_latency_is_the_round_trip_to_the_quorums_slowest() {
    let near = view([Some(10.0), Some(30.0), Some(20.0), Some(90.0)]);
    assert_eq!(value("consensus", &near), 20.0);
}

#[test]
fn equation_1_weighs_round_trips_by_where_requests_arrive() {
    let mut view = view([Some(10.0), Some(20.0), Some(30.0), Some(40.0)]);
    view.request_rates = [(p(1), 100.0), (p(5), 300.0)].into();
    assert_eq!(value("latency", &view), 20.0 + 0.75 * 40.0);
    view.request_rates.clear();
    assert_eq!(value("latency", &view), 20.0 + 20.0, "without requests all weigh alike");
}

#[test]
fn equation_2_adds_the_round_trip_to_the_farthest() {
    let view = view([Some(10.0), Some(20.0), Some(30.0), Some(40.0)]);
    assert_eq!(value("worst", &view), 20.0 + 40.0);
}

#[test]
fn the_leader_counts_before_a_resignation_and_not_after_a_crash() {
    let mut view = view([Some(10.0), Some(20.0), Some(30.0), Some(1.0)]);
    view.leader = Some(p(5));
    assert_eq!(value("consensus", &view), 20.0);
    view.occasion = Occasion::BeforeResignation;
    assert_eq!(value("consensus", &view), 10.0);
}

#[test]
fn who_does_not_hear_a_quorum_is_no_candidate_and_says_so() {
    let cut_off = view([Some(10.0), None, None, None]);
    let reason = oracle("history").measure(&cut_off).unwrap_err();
    assert_eq!(reason.to_string(), "hears 2 of 5 members, and a quorum is 3");
}

#[test]
fn who_is_never_to_lead_is_no_candidate_whatever_the_oracle() {
    let mut view = view([Some(1.0); 4]);
    view.preference = Preference::Never;
    assert_eq!(oracle("constant").measure(&view), Err(NoScore::Never));
}

#[test]
fn what_is_not_known_yet_is_named() {
    let view = view([Some(1.0); 4]);
    assert_eq!(oracle("history").measure(&view), Err(NoScore::Unknown(Measure::History)));
    assert_eq!(oracle("application").measure(&view), Err(NoScore::Unknown(Measure::Application)));
}

#[test]
fn classes_make_near_equals_tie_and_the_next_term_decide() {
    let score = |latency: f64, history: u64| {
        let mut view = view([Some(latency), Some(latency), Some(latency), Some(latency)]);
        view.history = Some(history);
        oracle("consensus/10ms, history").measure(&view).unwrap().score
    };
    assert!(score(12.0, 9) > score(18.0, 5), "same class");
    assert!(score(18.0, 9) > score(12.0, 5), "same class");
    assert!(score(9.0, 1) > score(12.0, 9), "another class");
    assert_eq!(score(18.0, 9), Score::new(&[-10.0, 9.0]).unwrap());
}

#[test]
fn turns_go_round_and_skip_nobody_that_is_alive() {
    let turn = |me: u32, leader: Option<u32>| {
        let mut view = view([Some(1.0); 4]);
        view.me = p(me);
        view.round_trips.insert(p(1), Duration::from_millis(1));
        view.leader = leader.map(p);
        value("rotating", &view)
    };
    assert_eq!(turn(1, Some(5)), -1.0);
    assert_eq!(turn(2, Some(5)), -2.0);
    assert_eq!(turn(1, Some(1)), -5.0);
    assert_eq!(turn(4, Some(3)), -1.0);
    assert_eq!(turn(1, None), -1.0);
}

#[test]
fn oracles_read_back_as_written() {
    for text in ["latency/10ms, history", "worst", "requests/50, constant", "consensus/0.5ms"] {
        assert_eq!(oracle(text).to_string(), text);
    }
    assert_eq!(oracle(" latency / 2s ,history "), oracle("latency/2000ms, history"));
    assert_eq!(oracle("worst/500us"), oracle("worst/0.5ms"));
}

#[test]
fn what_is_no_oracle_says_what_is_wrong_and_what_to_write() {
    let cases = [
        ("", "at least one term"),
        ("latency,", "there is no ``"),
        ("speed", "there is no `speed`: a term is one of history"),
        ("latency/10", "`10` is no width for classes of `latency`: write a time, such as 10ms"),
        ("latency/fast", "write a time"),
        ("latency/0ms", "write a time"),
        ("latency/-5ms", "write a time"),
        ("history/10ms", "write a number above zero"),
        ("history/inf", "write a number"),
        ("constant,constant,constant,constant,constant", "at most 4 terms, not 5"),
    ];
    for (text, expected) in cases {
        let error = text.parse::<Oracle>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?} gives {error:?}");
    }
}

#[test]
fn no_value_and_no_class_makes_a_score_that_cannot_be_compared() {
    let mut view = view([Some(1.0); 4]);
    for value in [1e308, -1e308, f64::MAX, f64::MIN, 5e-324] {
        view.application = Score::new(&[value]).ok();
        for text in ["application", "application/0.01", "application/1e-300", "application/1e300"] {
            assert!(oracle(text).measure(&view).is_ok(), "{value} by {text}");
        }
    }
    for class in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let term = Criterion { measure: Measure::History, class: Some(class) };
        assert_eq!(Oracle::new(vec![term]), Err(InvalidOracle::UnsoundClass("history")));
    }
}

#[test]
fn an_application_may_say_a_whole_score_and_its_components_stand_where_they_are_named() {
    let view = |components: &[f64]| {
        let mut view = view([Some(1.0); 4]);
        (view.history, view.application) = (Some(5), Score::new(components).ok());
        view
    };
    let oracle = oracle("application, history, application/10");
    let measured = oracle.measure(&view(&[1.0, 27.0])).unwrap();
    assert_eq!(measured.values.components(), [1.0, 5.0, 27.0]);
    assert_eq!(measured.score.components(), [1.0, 5.0, 20.0]);
    let better = oracle.measure(&view(&[1.0, 31.0])).unwrap();
    assert_eq!(better.score.decided_against(&measured.score), Some(2));
    let unknown = Err(NoScore::Unknown(Measure::Application));
    assert_eq!(oracle.measure(&view(&[1.0])), unknown, "the second is not known");
}

#[test]
fn a_ranking_says_what_decided() {
    let mut near = view([Some(10.0); 4]);
    near.history = Some(5);
    let mut also_near = near.clone();
    also_near.me = p(2);
    also_near.round_trips = near.round_trips.clone();
    also_near.round_trips.remove(&p(2));
    also_near.round_trips.insert(p(1), Duration::from_millis(10));
    let mut ahead = also_near.clone();
    ahead.me = p(3);
    ahead.round_trips.insert(p(2), Duration::from_millis(10));
    ahead.round_trips.remove(&p(3));
    ahead.history = Some(9);
    let mut never = near.clone();
    never.me = p(4);
    never.preference = Preference::Never;
    let views = [near, also_near, ahead, never];
    let ranking = rank(&oracle("consensus/10ms, history"), &views);
    assert_eq!(ranking.winner, Some(p(3)));
    let outcomes: Vec<_> = ranking.candidates.iter().map(|c| (c.id, c.outcome.clone())).collect();
    let by_history = Decided::Term { measure: Measure::History, winner: 9.0, other: 5.0 };
    let expected = vec![
        (p(3), CandidateOutcome::Wins(Some(by_history))),
        (p(2), CandidateOutcome::Loses(by_history)),
        (p(1), CandidateOutcome::Loses(by_history)),
        (p(4), CandidateOutcome::NotEligible(NoScore::Never)),
    ];
    assert_eq!(outcomes, expected);
    let ranking = rank(&oracle("constant"), &views);
    let by_id = Decided::Id { winner: p(3), other: p(2) };
    assert_eq!(ranking.candidates[0].outcome, CandidateOutcome::Wins(Some(by_id)));
}

#[test]
fn what_is_unknown_is_worse_than_anything_known_where_that_is_allowed() {
    let lenient = Leniency { unknown: true, ..Leniency::default() };
    for text in ["history", "application", "latency/10ms, application"] {
        let oracle = oracle(text);
        let mut view = view([Some(1.0), Some(2.0), Some(3.0), Some(4.0)]);
        let unknown = oracle.measure_with(&view, lenient).unwrap();
        view.history = Some(0);
        view.application = Score::new(&[-1e300]).ok();
        let known = oracle.measure(&view).unwrap();
        assert!(known.score > unknown.score, "{text}: {known:?} {unknown:?}");
    }
    assert_eq!(describe(Measure::History, f64::MIN), "unknown");
}
