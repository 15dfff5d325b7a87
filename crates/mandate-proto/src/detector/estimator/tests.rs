use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

const ETA: Duration = Duration::from_millis(100);

fn beat(i: u64) -> Beat {
    Beat { label: Label::from_sequence(i, ETA), interval: ETA }
}

fn arrival(i: u64, delay_us: u64) -> Instant {
    Instant::ORIGIN + ETA * i as u32 + Duration::from_micros(delay_us)
}

fn fed(beats: impl IntoIterator<Item = (u64, u64)>) -> Estimate {
    let mut estimator = Estimator::new(DEFAULT_BLOCK);
    for (i, delay_us) in beats {
        estimator.arrive(beat(i), arrival(i, delay_us));
    }
    estimator.estimate().unwrap()
}

#[test]
fn every_tenth_lost_is_a_loss_of_a_tenth() {
    let estimate = fed((1..=1500).filter(|i| i % 10 != 5).map(|i| (i, 300)));
    assert!((estimate.loss - 0.1).abs() < 0.002, "{estimate:?}");
}

#[test]
fn overtaken_heartbeats_are_not_lost_and_repeated_ones_count_once() {
    let mut order: Vec<u64> = (1..=400).collect();
    for pair in order.chunks_mut(2) {
        pair.swap(0, 1);
    }
    order.extend(330..=400);
    let estimate = fed(order.into_iter().map(|i| (i, 300)));
    assert_eq!(
        (estimate.expected, estimate.received),
        (399, 399),
        "label 1 came before the first, and is not missed"
    );
    assert_eq!(estimate.loss, 0.0);
}

#[test]
fn the_variance_is_that_of_the_delay_whatever_the_clocks_differ_by() {
    // Delays of 10 and 20 ms in turn: a variance of 25 ms squared.
    let delays = (0..900u64).map(|i| (i + 1_000_000, if i % 2 == 0 { 10_000 } else { 20_000 }));
    let estimate = fed(delays);
    assert!((estimate.variance * 1e6 - 25.0).abs() < 0.1, "{estimate:?}");
}

#[test]
fn a_drift_of_the_clocks_is_not_taken_for_jitter() {
    // 200 ppm over 90 s is 18 ms; without the fit it would read as 27 ms squared.
    let drifting = (0..900u64).map(|i| (i, 20 * i + if i % 2 == 0 { 0 } else { 2_000 }));
    let estimate = fed(drifting);
    assert!((estimate.variance * 1e6 - 1.0).abs() < 0.02, "{estimate:?}");
    assert!((estimate.drift * 1e6 - 200.0).abs() < 1.0, "{estimate:?}");
}

#[test]
fn an_outage_is_not_loss() {
    let estimate = fed((1..300).chain(1_000..1_300).map(|i| (i, 300)));
    assert_eq!(estimate.loss, 0.0);
}

#[test]
fn a_restarted_sender_is_not_compared_with_its_former_self() {
    let mut estimator = Estimator::new(DEFAULT_BLOCK);
    for i in 0..50 {
        estimator.arrive(beat(i), arrival(i, 300));
    }
    estimator.interrupt();
    for i in 60..100 {
        // Back after ten intervals, its clock five seconds behind.
        estimator.arrive(beat(i - 50), arrival(i, 300));
    }
    let estimate = estimator.estimate().unwrap();
    assert_eq!(estimate.loss, 0.0);
    assert!(estimate.variance < 1e-12);
}

#[test]
fn a_link_that_changed_is_seen_as_it_is_now_after_two_blocks() {
    let mut estimator = Estimator::new(100);
    for i in (0..500).filter(|i| i % 2 == 0) {
        estimator.arrive(beat(i), arrival(i, 300));
    }
    assert!((estimator.estimate().unwrap().loss - 0.5).abs() < 0.02);
    for i in 500..750 {
        estimator.arrive(beat(i), arrival(i, 300));
    }
    assert_eq!(estimator.estimate().unwrap().loss, 0.0);
}

#[test]
fn a_change_of_interval_loses_nothing() {
    let mut estimator = Estimator::new(DEFAULT_BLOCK);
    let mut label: i64 = 0;
    for i in 0..300u64 {
        let interval = Duration::from_millis(if i < 100 {
            100
        } else if i < 200 {
            30
        } else {
            250
        });
        let beat = Beat { label: Label::from_nanos(label), interval };
        estimator.arrive(beat, Instant::from_nanos(label as u64 + 5_000_000));
        label += interval.as_nanos() as i64;
    }
    let estimate = estimator.estimate().unwrap();
    assert_eq!((estimate.expected, estimate.loss), (300, 0.0));
}

proptest! {
    #[test]
    fn no_sequence_of_heartbeats_makes_it_panic_or_leave_its_range(
        beats in prop::collection::vec((any::<i64>(), any::<u64>(), any::<u64>()), 0..100)
    ) {
        let mut estimator = Estimator::new(16);
        for (label, interval, now) in beats {
            let beat = Beat {
                label: Label::from_nanos(label),
                interval: Duration::from_nanos(interval),
            };
            estimator.arrive(beat, Instant::from_nanos(now));
            if let Some(estimate) = estimator.estimate() {
                prop_assert!((0.0..=1.0).contains(&estimate.loss));
                prop_assert!(estimate.variance >= 0.0);
            }
        }
    }
}
