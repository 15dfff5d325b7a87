use super::*;
use proptest::prelude::*;

const MIN: Duration = Duration::from_millis(1);

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1000.0)
}

fn bounds(detect_ms: f64, every_ms: f64, lasts_ms: f64) -> Bounds {
    Bounds::new(ms(detect_ms), ms(every_ms), ms(lasts_ms)).unwrap()
}

fn link(loss: f64, variance_ms2: f64) -> LinkQuality {
    LinkQuality::new(loss, variance_ms2 * 1e-6, Duration::ZERO).unwrap()
}

#[test]
fn section_4_1_gives_the_papers_interval_and_margin() {
    let paper = link(0.0175917, 25.3356);
    let plan = plan(&bounds(1000.0, 3_600_000.0, 1000.0), &paper, MIN).unwrap();
    assert!((plan.interval.as_secs_f64() - 0.33063).abs() < 1e-5, "{plan:?}");
    assert!((plan.margin.as_secs_f64() - 0.66937).abs() < 1e-5, "{plan:?}");
    assert!(plan.prediction.mistake_every >= 3600.0);
    assert!(plan.prediction.mistake_lasts <= 1.0);
    assert!(plan.prediction.accuracy > 0.999);
}

#[test]
fn the_rounded_parameters_of_the_paper_meet_its_bounds_too() {
    let prediction = predict(&link(0.0175917, 25.3356), ms(330.0), ms(1000.0));
    assert!(prediction.mistake_every >= 3600.0, "{prediction:?}");
}

#[test]
fn a_known_delay_is_taken_off_the_detection_time() {
    let far = LinkQuality::new(0.01, 4e-6, ms(150.0)).unwrap();
    let plan = plan(&bounds(1000.0, 60_000.0, 1000.0), &far, MIN).unwrap();
    assert_eq!(plan.detect(), ms(850.0));
}

#[test]
fn a_perfect_link_needs_no_more_than_one_heartbeat_in_time() {
    let plan = plan(&bounds(1000.0, 3_600_000.0, 10_000.0), &link(0.0, 0.0), MIN).unwrap();
    assert_eq!((plan.interval, plan.margin), (ms(999.0), MIN), "but it leaves a margin");
    assert_eq!(plan.prediction.mistake_every, f64::INFINITY);
}

#[test]
fn hopeless_requests_are_answered_at_once() {
    // Delays that vary by minutes, noticed within a second: what one stopped clock can look like.
    let erratic = LinkQuality::new(0.01, 1e4, Duration::ZERO).unwrap();
    assert!(plan(&bounds(1000.0, 3_600_000.0, 1000.0), &erratic, MIN).is_err());
    assert!(plan(&bounds(1000.0, 3_600_000.0, 1000.0), &erratic, Duration::ZERO).is_err());
    let hours = bounds(3.6e6, 3.15e10, 1000.0);
    assert!(plan(&hours, &link(0.999, 1e12), Duration::ZERO).is_err());
}

#[test]
fn a_prediction_for_no_interval_or_no_time_promises_nothing() {
    let paper = link(0.0175917, 25.3356);
    assert_eq!(predict(&paper, Duration::ZERO, ms(1000.0)).mistake_every, 0.0);
    assert!(predict(&paper, ms(10.0), Duration::ZERO).mistake_every <= 0.01);
    assert!(predict(&paper, Duration::from_nanos(1), ms(1e6)).mistake_every > 0.0);
}

#[test]
fn a_link_that_loses_everything_is_said_to() {
    let found = plan(&bounds(1000.0, 1000.0, 1000.0), &link(1.0, 1.0), MIN);
    assert_eq!(found, Err(Infeasible::NothingArrives));
}

#[test]
fn news_cannot_outrun_the_link() {
    let slow = LinkQuality::new(0.0, 1e-6, ms(200.0)).unwrap();
    let found = plan(&bounds(150.0, 1000.0, 1000.0), &slow, MIN);
    assert_eq!(found, Err(Infeasible::DelayTooLong { delay: ms(200.0), detect: ms(150.0) }));
}

#[test]
fn what_is_said_to_be_the_nearest_is_possible_and_what_is_nearer_is_not() {
    // Half of all messages lost, noticed within 20 ms, one mistake a year.
    let (asked, poor) = (bounds(20.0, 3.15e10, 20.0), link(0.5, 25.0));
    let Err(Infeasible::IntervalTooShort { limit, nearest, .. }) = plan(&asked, &poor, MIN) else {
        panic!("expected an interval that is too short");
    };
    assert_eq!(limit, Quantity::MistakeRecurrence);
    let detect = nearest.detect.unwrap();
    let with = |detect| Bounds { detect, ..asked };
    assert!(plan(&with(detect), &poor, MIN).is_ok());
    assert!(plan(&with(detect.mul_f64(0.999)), &poor, MIN).is_err());
    let every = nearest.mistake_every.unwrap();
    let with = |mistake_every| Bounds { mistake_every, ..asked };
    assert!(plan(&with(every.mul_f64(0.999)), &poor, MIN).is_ok());
    assert!(plan(&with(every.mul_f64(1.001)), &poor, MIN).is_err());
    assert_eq!(nearest.mistake_lasts, None, "longer mistakes would not help");
}

#[test]
fn mistakes_shorter_than_a_heartbeat_are_refused_with_the_shortest_possible() {
    let Err(Infeasible::IntervalTooShort { limit, nearest, needed, .. }) =
        plan(&bounds(1000.0, 1000.0, 0.5), &link(0.2, 1.0), MIN)
    else {
        panic!("expected an interval that is too short");
    };
    assert_eq!(limit, Quantity::MistakeDuration);
    assert!((nearest.mistake_lasts.unwrap().as_secs_f64() - 0.00125).abs() < 1e-5);
    assert!((needed.unwrap().as_secs_f64() - 0.0004).abs() < 1e-5);
}

#[test]
fn nonsense_is_refused_by_name() {
    assert_eq!(LinkQuality::new(1.5, 0.0, Duration::ZERO), Err(InvalidRequest::Loss(1.5)));
    assert!(LinkQuality::new(f64::NAN, 0.0, Duration::ZERO).is_err());
    assert_eq!(LinkQuality::new(0.1, -1.0, Duration::ZERO), Err(InvalidRequest::Variance(-1.0)));
    assert_eq!(
        Bounds::new(ms(1.0), Duration::ZERO, ms(1.0)),
        Err(InvalidRequest::ZeroBound(Quantity::MistakeRecurrence))
    );
}

/// Every interval on a fine grid, the formula written out once more and plainly.
fn brute_force(detect: f64, every: f64, lasts: f64, p: f64, v: f64, min: f64) -> Option<f64> {
    let g = (1.0 - p) * detect * detect / (v + detect * detect);
    let most = (g * lasts).min(detect - min);
    let steps = 40_000;
    (0..steps).map(|i| most * (1.0 - f64::from(i) / f64::from(steps))).find(|&h| {
        let mut f = h;
        let mut j = 1.0;
        while j < (detect / h).ceil() {
            let x = detect - j * h;
            f *= (v + x * x) / (v + p * x * x);
            j += 1.0;
        }
        h >= min && f >= every
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_configurator_agrees_with_brute_force(
        detect in 5.0f64..5_000.0,
        every_exp in 1.0f64..11.0,
        lasts in 5.0f64..5_000.0,
        p in prop_oneof![Just(0.0), 0.0f64..0.9, 1e-6f64..1e-2],
        v in prop_oneof![1e-4f64..1.0, 1.0f64..1e4],
    ) {
        let every = 10f64.powf(every_exp);
        let found = plan(&bounds(detect, every, lasts), &link(p, v), MIN);
        let expected = brute_force(detect, every, lasts, p, v, 1.0);
        match (found, expected) {
            (Ok(plan), expected) => {
                let h = plan.interval.as_secs_f64() * 1000.0;
                prop_assert!(plan.prediction.mistake_every * 1000.0 >= every * (1.0 - 1e-6));
                prop_assert!(plan.prediction.mistake_lasts * 1000.0 <= lasts * (1.0 + 1e-6));
                // Brute force sees only its grid: it may miss a little above, never find more.
                if let Some(best) = expected {
                    prop_assert!(h >= best - 1e-6 * best, "{} below {}", h, best);
                }
            }
            (Err(_), Some(best)) => prop_assert!(best < 1.0 + 1e-6, "missed {}", best),
            (Err(_), None) => {}
        }
    }

    #[test]
    fn an_impossible_request_names_a_nearest_bound_that_is_possible(
        detect in 2.0f64..50.0, every_exp in 6.0f64..12.0, p in 0.3f64..0.95, v in 1.0f64..400.0,
    ) {
        let asked = bounds(detect, 10f64.powf(every_exp), 1000.0);
        let poor = link(p, v);
        if let Err(Infeasible::IntervalTooShort { nearest, .. }) = plan(&asked, &poor, MIN) {
            if let Some(detect) = nearest.detect {
                let possible = plan(&Bounds { detect, ..asked }, &poor, MIN).is_ok();
                prop_assert!(possible);
            }
            if let Some(every) = nearest.mistake_every {
                let mistake_every = every.mul_f64(0.9999);
                let possible = plan(&Bounds { mistake_every, ..asked }, &poor, MIN).is_ok();
                prop_assert!(possible);
            }
        }
    }
}
