//! Instruction counts, which do not depend on how busy the machine is: a heartbeat at each
//! detector, a heartbeat at an NFD-L member, a plan.
//!
//! Each detector is fed a thousand heartbeats with its window full; divide by a thousand. The
//! phi-accrual detector is the named alternative.

// What gungraun's macros expand to is neither documented nor silent.
#![allow(missing_docs, clippy::disallowed_macros)]

use std::hint::black_box;
use std::time::Duration;

use gungraun::prelude::*;
use mandate_proto::detector::configurator::{Bounds, LinkQuality, Plan, plan};
use mandate_proto::detector::estimator::{DEFAULT_BLOCK, Estimator};
use mandate_proto::detector::fixed_timeout::FixedTimeout;
use mandate_proto::detector::nfd_e::NfdE;
use mandate_proto::detector::phi_accrual::{PhiAccrual, PhiAccrualConfig};
use mandate_proto::detector::{Beat, FailureDetector, Label};
use mandate_proto::identity::{Incarnation, MemberId};
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::nfd_l::{Boot, Config, Heartbeat, Input, Message, NfdL};
use mandate_proto::time::{Instant, WallTime};

const INTERVAL: Duration = Duration::from_millis(330);
const DETECT: Duration = Duration::from_secs(1);
const WARM: u64 = 2_000;
const BEATS: u64 = 1_000;

/// The i-th heartbeat, with a little jitter and one in 64 lost.
fn arrival(i: u64) -> (Beat, Instant) {
    let i = i + i / 64;
    let label = Label::from_sequence(i, INTERVAL);
    let jitter = Duration::from_micros(i * 7919 % 10_000);
    (Beat { label, interval: INTERVAL }, Instant::ORIGIN + INTERVAL * i as u32 + jitter)
}

fn warm<D: FailureDetector>(mut detector: D) -> D {
    feed(&mut detector, 0..WARM);
    detector
}

fn feed(detector: &mut impl FailureDetector, beats: std::ops::Range<u64>) {
    for i in beats {
        let (beat, now) = arrival(i);
        detector.heartbeat(black_box(beat), black_box(now));
        black_box(detector.trusted_until());
    }
}

fn phi_accrual() -> PhiAccrual {
    PhiAccrual::new(PhiAccrualConfig {
        threshold: 8.0,
        window: 1000,
        min_deviation: Duration::from_millis(1),
        first_interval: INTERVAL,
    })
}

#[library_benchmark]
#[bench::window_32(warm(NfdE::new(DETECT, 32)))]
#[bench::window_1000(warm(NfdE::new(DETECT, 1000)))]
fn nfd_e(mut detector: NfdE) -> NfdE {
    feed(&mut detector, WARM..WARM + BEATS);
    detector
}

#[library_benchmark]
#[bench::window_1000(warm(phi_accrual()))]
fn phi(mut detector: PhiAccrual) -> PhiAccrual {
    feed(&mut detector, WARM..WARM + BEATS);
    detector
}

#[library_benchmark]
#[bench::any(warm(FixedTimeout::new(DETECT)))]
fn fixed(mut detector: FixedTimeout) -> FixedTimeout {
    feed(&mut detector, WARM..WARM + BEATS);
    detector
}

#[library_benchmark]
#[bench::default(Estimator::new(DEFAULT_BLOCK))]
fn estimator(mut estimator: Estimator) -> Estimator {
    for i in 0..BEATS {
        let (beat, now) = arrival(i);
        estimator.arrive(black_box(beat), black_box(now));
    }
    estimator
}

fn follower() -> NfdL {
    let config = Config::new(MemberId::new(2), INTERVAL, DETECT).unwrap();
    let boot =
        Boot { stored: None, wall: WallTime::from_unix_nanos(1), lifetime: Incarnation::new(1) };
    let mut member = NfdL::start(config, boot, Instant::ORIGIN, &mut Effects::new());
    follow(&mut member, 0..WARM);
    member
}

fn follow(member: &mut NfdL, beats: std::ops::Range<u64>) {
    let mut effects = Effects::new();
    for i in beats {
        let (beat, now) = arrival(i);
        let uptime = INTERVAL * i as u32;
        let heartbeat = Heartbeat { lifetime: Incarnation::new(9), beat, uptime, priority: 0 };
        let input =
            Input::Received { from: MemberId::new(1), message: Message::Heartbeat(heartbeat) };
        member.handle(black_box(input), now, &mut effects);
        black_box(member.deadline());
    }
}

#[library_benchmark]
#[bench::heartbeat(follower())]
fn nfd_l(mut member: NfdL) -> NfdL {
    follow(&mut member, WARM..WARM + BEATS);
    member
}

fn request(detect_ms: u64, loss: f64, variance: f64) -> (Bounds, LinkQuality) {
    let hour = Duration::from_secs(3600);
    let bounds = Bounds::new(Duration::from_millis(detect_ms), hour, DETECT).unwrap();
    (bounds, LinkQuality::new(loss, variance, Duration::ZERO).unwrap())
}

#[library_benchmark]
#[bench::paper(request(1000, 0.0175917, 25.3356e-6))]
#[bench::lossy(request(1000, 0.5, 400e-6))]
fn planned((bounds, link): (Bounds, LinkQuality)) -> Plan {
    plan(black_box(&bounds), black_box(&link), Duration::from_millis(1)).unwrap()
}

library_benchmark_group!(
    name = detectors,
    benchmarks = [nfd_e, phi, fixed, estimator, nfd_l, planned]
);
main!(library_benchmark_groups = detectors);
