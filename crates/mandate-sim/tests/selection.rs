//! POLE's selection after the leader of five is known to be dead, in the paper's three
//! deployments and in random ones: whom it elects, and how long that takes with and without
//! ending early.

use std::time::Duration;

use mandate_proto::detector::quartiles::Quartiles;
use mandate_proto::pole::selection::{Config, Event, Rules, Selection};
use mandate_proto::score::Score;
use mandate_sim::clock::Clock;
use mandate_sim::fault::Fault;
use mandate_sim::link::{Delay, LinkModel};
use mandate_sim::member;
use mandate_sim::random::{Random, Stream};
use mandate_sim::selection::MemberConfig;
use mandate_sim::subject::{Moment, Observation};
use mandate_sim::time::SimTime;
use mandate_sim::world::{Machinery, World};

const MEMBERS: usize = 5;
/// The leader that is dead: p5.
const DEAD: usize = 4;
/// T: longer than any message takes, as it must be.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Round trips between five members, in milliseconds.
type RoundTrips = [[f64; MEMBERS]; MEMBERS];

/// Members at three sites (Fig. 5): D1 = {p4, p5}, D2 = {p2, p3}, D3 = {p1}.
fn deployment(d1_d2: f64, d1_d3: f64, d2_d3: f64) -> RoundTrips {
    let site = [3, 2, 2, 1, 1];
    let between = |a: usize, b: usize| match (site[a].min(site[b]), site[a].max(site[b])) {
        (1, 2) => d1_d2,
        (1, 3) => d1_d3,
        (2, 3) => d2_d3,
        _ => 0.1,
    };
    std::array::from_fn(|a| std::array::from_fn(|b| between(a, b)))
}

struct Outcome {
    /// When the last member that is up had a leader, in round trips to the farthest.
    round_trips: f64,
    leaders: Vec<u32>,
}

fn elect(seed: u64, round_trips: &RoundTrips, scores: [f64; MEMBERS], rules: Rules) -> Outcome {
    let ids: Vec<_> = (0..MEMBERS).map(member).collect();
    let hosts = (0..MEMBERS).map(|host| {
        let config = Config { me: member(host), members: ids.clone(), timeout: TIMEOUT, rules };
        let score = Score::new(&[scores[host]]).unwrap();
        (MemberConfig { config, score, suspected: vec![member(DEAD)] }, Clock::new(0))
    });
    let mut elected = Vec::new();
    let observer = |moment: Moment, what: &Observation<'_, Selection>| {
        if let Observation::Told(Event::Elected { leader, .. }) = what {
            elected.push((moment.now, leader.get()));
        }
    };
    let perfect = LinkModel::perfect(Duration::ZERO);
    let mut world = World::new(seed, hosts, perfect, Machinery::IDEAL, observer);
    for (from, row) in round_trips.iter().enumerate() {
        for (to, round_trip) in row.iter().enumerate() {
            // Half the round trip, with a jitter of 2 % as in section 4.1.
            let one_way = round_trip / 2000.0;
            let delay = Delay::LogNormal {
                mean: Duration::from_secs_f64(one_way),
                variance: (0.02 * one_way).powi(2),
            };
            let model = LinkModel { delay, max_delay: TIMEOUT, ..perfect };
            world.network_mut().set(from, to, model);
        }
    }
    // Dead before it could say anything.
    world.inject(Fault::Partition(1 << DEAD));
    world.start_all();
    world.inject(Fault::Crash(DEAD));
    world.run_until(SimTime::ZERO + Duration::from_secs(10));
    drop(world);
    let up = 0..DEAD;
    let farthest = up.clone().flat_map(|a| up.clone().map(move |b| round_trips[a][b]));
    let farthest = farthest.fold(0.0, f64::max);
    let last = elected.iter().map(|(at, _)| at.since_start().as_secs_f64() * 1000.0);
    Outcome {
        round_trips: last.fold(0.0, f64::max) / farthest,
        leaders: elected.iter().map(|(_, leader)| *leader).collect(),
    }
}

#[test]
fn the_best_score_is_elected_everywhere_within_a_round_trip_and_a_half() {
    let deployments = [
        deployment(9.88, 77.06, 53.26),
        deployment(9.88, 53.26, 77.06),
        deployment(53.26, 9.88, 77.06),
    ];
    let mut random = Random::new(1, Stream::Setting);
    for round_trips in deployments {
        let mut early = Vec::new();
        let mut printed = Vec::new();
        for seed in 0..200 {
            let scores = std::array::from_fn(|_| random.below(10) as f64);
            let candidates = (0..DEAD).max_by_key(|host| (scores[*host] as u64, *host));
            let best = candidates.unwrap() as u32 + 1;
            for (rules, times) in [(Rules::default(), &mut early), (Rules::PAPER, &mut printed)] {
                let outcome = elect(seed, &round_trips, scores, rules);
                assert_eq!(outcome.leaders, [best; DEAD], "seed {seed}, {rules:?}");
                times.push(outcome.round_trips);
            }
        }
        let early = Quartiles::of(early).unwrap();
        let printed = Quartiles::of(printed).unwrap();
        assert!(early.median <= 1.5, "{early:?}");
        assert!(printed.median > 4.0 * early.median, "as printed it waits out T: {printed:?}");
    }
}
