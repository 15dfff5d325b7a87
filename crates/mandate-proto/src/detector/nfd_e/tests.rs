use super::*;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);
const ETA: Duration = Duration::from_millis(330);
const DETECT: Duration = Duration::from_millis(1000);

fn at(ms: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(ms)
}

/// The i-th heartbeat of a sender with the paper's interval.
fn beat(i: u64) -> Beat {
    Beat { label: Label::from_sequence(i, ETA), interval: ETA }
}

fn nfd_e() -> NfdE {
    NfdE::new(DETECT, 4)
}

#[test]
fn equation_1_expects_the_mean_offset_after_the_next_label() {
    let mut detector = nfd_e();
    // Offsets of 10, 20 and 60 ms, a gap at label 3.
    detector.arrive(beat(1), at(330 + 10));
    detector.arrive(beat(2), at(660 + 20));
    detector.arrive(beat(4), at(1320 + 60));
    assert_eq!(detector.expected_arrival(), Some(at(1650 + 30)));
    assert_eq!(detector.trusted_until(), Some(at(1650 + 30 + 670)));
}

#[test]
fn only_the_last_n_arrivals_count() {
    let mut detector = nfd_e();
    detector.arrive(beat(1), at(330 + 500));
    for i in 2..=5 {
        detector.arrive(beat(i), at(330 * i + 10));
    }
    assert_eq!(detector.expected_arrival(), Some(at(330 * 6 + 10)));
}

#[test]
fn algorithm_1_line_8_suspects_at_the_freshness_point_and_not_before() {
    let mut detector = nfd_e();
    assert_eq!(detector.verdict(at(0)), Verdict::Suspect);
    detector.arrive(beat(1), at(330));
    assert_eq!(detector.verdict(at(1329)), Verdict::Trust);
    assert_eq!(detector.verdict(at(1330)), Verdict::Suspect);
}

#[test]
fn algorithm_1_line_11_ignores_heartbeats_that_were_overtaken() {
    let mut detector = nfd_e();
    detector.arrive(beat(1), at(330));
    detector.arrive(beat(3), at(990));
    let before = detector.trusted_until();
    assert_eq!(detector.arrive(beat(2), at(995)), Arrival::Old);
    assert_eq!(detector.arrive(beat(3), at(996)), Arrival::Old);
    assert_eq!(detector.trusted_until(), before);
}

#[test]
fn algorithm_1_line_14_does_not_trust_on_a_heartbeat_after_its_own_freshness_point() {
    let mut detector = nfd_e();
    detector.arrive(beat(1), at(330));
    // Label 2 was due at 660; its successor's freshness point is 660 + 1000.
    assert_eq!(detector.arrive(beat(2), at(1661)), Arrival::Late);
    assert_eq!(detector.verdict(at(1661)), Verdict::Suspect);
}

#[test]
fn the_clocks_of_sender_and_monitor_may_differ_by_years() {
    let mut detector = nfd_e();
    let year = 365 * 24 * 3600 * 1000;
    let label = |i: i64| Beat { label: Label::from_nanos(5 * i), interval: ETA };
    for i in 1..5u64 {
        let sent = year / 330 + i;
        detector.arrive(beat(sent), at(330 * i + 7));
    }
    assert_eq!(detector.trusted_until(), Some(at(330 * 4 + 7 + 1000)));
    // And a monitor that has been up for a year may hear of a sender that has just started.
    let mut detector = nfd_e();
    detector.arrive(label(0), at(year));
    assert_eq!(detector.trusted_until(), Some(at(year + 1000)));
}

#[test]
fn a_label_that_jumps_an_hour_ahead_does_not_hide_a_crash() {
    let hour = 3600 * 1000 / 330;
    let mut detector = nfd_e();
    for i in 1..=4 {
        detector.arrive(beat(i), at(330 * i));
    }
    assert_eq!(detector.arrive(beat(5 + hour), at(330 * 5)), Arrival::Moved);
    // As printed the mean over n = 4 would trust for three quarters of an hour.
    assert_eq!(detector.trusted_until(), Some(at(330 * 5 + 1000)));
}

#[test]
fn a_straggler_revives_nobody_and_spoils_no_average() {
    let mut detector = nfd_e();
    for i in 1..=4 {
        detector.arrive(beat(i), at(330 * i));
    }
    assert_eq!(detector.arrive(beat(5), at(330 * 5 + 9000)), Arrival::Late);
    assert_eq!(detector.verdict(at(330 * 5 + 9000)), Verdict::Suspect);
    assert_eq!(detector.arrive(beat(33), at(330 * 33)), Arrival::Fresh);
    assert_eq!(detector.trusted_until(), Some(at(330 * 33 + 1000)));
}

#[test]
fn a_backlog_delivered_at_once_revives_nobody() {
    let mut detector = nfd_e();
    for i in 1..=4 {
        detector.arrive(beat(i), at(330 * i));
    }
    let thaw = at(330 * 40);
    for i in 5..=20 {
        assert_eq!(detector.arrive(beat(i), thaw), Arrival::Late, "label {i}");
    }
    assert_eq!(detector.verdict(thaw), Verdict::Suspect);
}

#[test]
fn a_sender_whose_clock_stood_still_is_trusted_again_at_its_third_heartbeat() {
    let mut detector = nfd_e();
    for i in 1..=4 {
        detector.arrive(beat(i), at(330 * i));
    }
    let asleep = 10_000;
    assert_eq!(detector.arrive(beat(5), at(330 * 5 + asleep)), Arrival::Late);
    assert_eq!(detector.arrive(beat(6), at(330 * 6 + asleep)), Arrival::Late);
    assert_eq!(detector.arrive(beat(7), at(330 * 7 + asleep)), Arrival::Moved);
    assert_eq!(detector.trusted_until(), Some(at(330 * 7 + asleep + 1000)));
}

#[test]
fn delays_that_alternate_do_not_hide_that_the_offset_moved() {
    let interval = MS * 10;
    let mut detector = NfdE::new(MS * 100, 32);
    let mut stood = 0;
    let mut suspected = 0;
    for i in 1..=1000u64 {
        if i == 500 {
            stood = 1000;
        }
        let label = Label::from_sequence(i, interval);
        // Two routes in turn, 2 and 9 ms: further apart than half an interval.
        let arrives = at(10 * i + stood + if i % 2 == 0 { 2 } else { 9 });
        if !detector.arrive(Beat { label, interval }, arrives).is_fresh() {
            suspected += 1;
        }
    }
    assert!(suspected <= 3, "{suspected} heartbeats proved nothing");
}

#[test]
fn an_offset_that_moved_by_more_than_the_margin_is_followed_at_the_third_heartbeat() {
    for moved in [750, 800, 990] {
        let mut detector = NfdE::new(DETECT, 32);
        for i in 1..=32 {
            detector.arrive(beat(i), at(330 * i));
        }
        detector.arrive(beat(33), at(330 * 33 + moved));
        detector.arrive(beat(34), at(330 * 34 + moved));
        detector.arrive(beat(35), at(330 * 35 + moved));
        // As printed, only three of the 32 in the average would be of the new kind.
        assert_eq!(detector.trusted_until(), Some(at(330 * 35 + moved + 1000)));
    }
}

#[test]
fn a_change_of_interval_moves_no_freshness_point() {
    for changed in [50, 200, 600, 990] {
        let mut detector = nfd_e();
        for i in 1..=4 {
            detector.arrive(beat(i), at(330 * i));
        }
        let before = detector.trusted_until();
        let switched = Beat { label: Label::from_sequence(5, ETA), interval: MS * changed };
        detector.arrive(switched, at(330 * 5));
        assert_eq!(detector.trusted_until().unwrap() - before.unwrap(), ETA);
        assert_eq!(detector.margin(), DETECT - MS * changed);
    }
}

#[test]
fn a_sender_slower_than_the_bound_is_allowed_one_missed_heartbeat() {
    let mut detector = nfd_e();
    let slow = Beat { label: Label::from_nanos(0), interval: MS * 5000 };
    detector.arrive(slow, at(0));
    assert!(!detector.keeps_bound());
    assert_eq!(detector.trusted_until(), Some(at(10_000)));
}

proptest! {
    /// The running sum against a slow and obvious mean over the last n in-order arrivals.
    #[test]
    fn the_window_agrees_with_a_plain_average(
        steps in prop::collection::vec((1u64..4, 0u64..600), 1..60),
        n in 1usize..9,
    ) {
        let mut detector = NfdE::new(DETECT, n);
        let mut label = 0;
        let mut offsets: Vec<u64> = Vec::new();
        for (gap, offset) in steps {
            label += gap;
            let arrival = label * 330 + offset;
            detector.arrive(beat(label), at(arrival));
            offsets.push(offset * 1_000_000);
            let last = &offsets[offsets.len().saturating_sub(n)..];
            let mean = last.iter().sum::<u64>() / last.len() as u64;
            let expected = (label + 1) * 330 * 1_000_000 + mean;
            let found = detector.expected_arrival().unwrap().as_nanos();
            prop_assert!(found.abs_diff(expected) <= 1, "{} against {}", found, expected);
        }
    }

    /// Nothing a sender says can make the detector panic, or trust it for longer than the bound
    /// allows from the moment it was last heard.
    #[test]
    fn no_heartbeat_buys_more_than_its_reach(
        beats in prop::collection::vec((any::<i64>(), any::<u64>(), 0u64..u64::MAX / 4), 0..40)
    ) {
        let mut detector = nfd_e();
        let mut now = 0;
        for (label, interval, pause) in beats {
            now = pause.max(now);
            let interval = Duration::from_nanos(interval >> 20);
            let beat = Beat { label: Label::from_nanos(label), interval };
            let before = detector.trusted_until();
            detector.arrive(beat, Instant::from_nanos(now));
            if detector.trusted_until() != before {
                let reach = DETECT.max(interval * 2);
                let most = Instant::from_nanos(now) + reach * 2;
                prop_assert!(detector.trusted_until().unwrap() <= most);
            }
        }
    }
}
