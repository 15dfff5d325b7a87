//! The paper's data centres (section 4.1), where requests arrive, and what plain arithmetic says about them.

use std::collections::BTreeSet;
use std::fmt;

use mandate_cli::topology::Topology;

/// Servers, as the paper numbers them.
pub const SERVERS: std::ops::RangeInclusive<u32> = 1..=5;

/// A host at no distance from any other, for the observer.
pub const OBSERVER: &str = "observer";

/// Who leads first, and crashes.
pub const FIRST: u32 = 5;

/// The paper's jitter, as a share of the mean.
const JITTER: f64 = 0.02;

/// Data centres, D1 and so on, with their servers and the round trips between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// What the paper calls it.
    pub name: String,
    /// Servers of each data centre.
    pub centres: Vec<Vec<u32>>,
    /// By pair of data centres, the lower first.
    round_trips: Vec<(usize, usize, f64)>,
}

impl Deployment {
    /// Two data centres that far from each other (Fig. 4a): D1 = {p1, p2}, D2 = {p3, p4, p5}.
    pub fn two(round_trip_ms: f64) -> Self {
        Deployment {
            name: format!("two data centres, {round_trip_ms} ms"),
            centres: vec![vec![1, 2], vec![3, 4, 5]],
            round_trips: vec![(0, 1, round_trip_ms)],
        }
    }

    /// Three data centres (Fig. 5): D1 = {p4, p5}, D2 = {p2, p3}, D3 = {p1}, with the round trips D1-D2, D1-D3 and
    /// D2-D3.
    fn three(name: &str, [d1_d2, d1_d3, d2_d3]: [f64; 3]) -> Self {
        Deployment {
            name: name.into(),
            centres: vec![vec![4, 5], vec![2, 3], vec![1]],
            round_trips: vec![(0, 1, d1_d2), (0, 2, d1_d3), (1, 2, d2_d3)],
        }
    }

    /// Deployment 1 to 3 of Table 3, of slac, caltech and fnal.
    pub fn numbered(number: u8) -> Self {
        let round_trips = match number {
            1 => [9.88, 77.06, 53.26],
            2 => [9.88, 53.26, 77.06],
            _ => [53.26, 9.88, 77.06],
        };
        Deployment::three(&format!("Deployment {number}"), round_trips)
    }

    /// The three data centres of Fig. 8b.
    pub fn of_figure_8b() -> Self {
        Deployment::three("three data centres of Fig. 8b", [77.06, 9.88, 20.75])
    }

    /// Where a server is, counted from 0.
    pub fn centre_of(&self, server: u32) -> usize {
        self.centres.iter().position(|servers| servers.contains(&server)).unwrap_or(0)
    }

    /// The round trip between two servers, in milliseconds.
    pub fn round_trip_ms(&self, a: u32, b: u32) -> f64 {
        let (a, b) = (self.centre_of(a), self.centre_of(b));
        let pair = (a.min(b), a.max(b));
        let known = self.round_trips.iter().find(|(a, b, _)| (*a, *b) == pair);
        known.map_or(0.0, |(_, _, ms)| *ms)
    }

    /// Servers of a data centre that are up.
    pub fn up(&self, centre: usize, down: &BTreeSet<u32>) -> Vec<u32> {
        self.centres[centre].iter().copied().filter(|server| !down.contains(server)).collect()
    }

    /// Where requests arrive that do not arrive at these servers, if each data centre spreads its own evenly.
    pub fn without(&self, gone: &BTreeSet<u32>, shares: &Shares) -> Shares {
        let left = |(centre, share): (usize, &f64)| {
            share * self.up(centre, gone).len() as f64 / self.centres[centre].len() as f64
        };
        let left: Vec<f64> = shares.0.iter().enumerate().map(left).collect();
        let all: f64 = left.iter().sum();
        Shares(left.iter().map(|share| share / all).collect())
    }

    /// The network, and what its servers get of so many requests a second.
    pub fn topology(&self, shares: &Shares, rate: f64, down: &BTreeSet<u32>) -> Topology {
        let mut text = format!("[[host]]\nname = '{OBSERVER}'\nsite = 'none'\n");
        for (a, b, ms) in &self.round_trips {
            let jitter = ms / 2.0 * JITTER;
            text += &format!("[[rtt]]\na = 'd{a}'\nb = 'd{b}'\nms = {ms}\njitter_ms = {jitter}\n");
        }
        for centre in 0..self.centres.len() {
            text += &format!("[[rtt]]\na = 'd{centre}'\nb = 'none'\nms = 0\n");
        }
        for server in SERVERS {
            let centre = self.centre_of(server);
            let up = self.up(centre, down);
            let requests = match up.contains(&server) {
                true => rate * shares.0[centre] / up.len() as f64,
                false => 0.0,
            };
            text += &format!(
                "[[server]]\nid = 'p{server}'\nsite = 'd{centre}'\nrequests = {requests:?}\nhistory = 7\n"
            );
        }
        Topology::parse(&text).expect("the paper's deployments are topologies")
    }

    /// What arithmetic says of a leader while these servers are down.
    pub fn predict(&self, leader: u32, shares: &Shares, down: &BTreeSet<u32>) -> Predicted {
        let up = SERVERS.filter(|server| !down.contains(server));
        let mut round_trips: Vec<_> = up.map(|other| self.round_trip_ms(leader, other)).collect();
        round_trips.sort_by(f64::total_cmp);
        let quorum = SERVERS.count() / 2 + 1;
        let consensus_ms = round_trips.get(quorum - 1).copied().unwrap_or(f64::INFINITY);
        let far = |servers: &Vec<u32>| consensus_ms + self.round_trip_ms(leader, servers[0]);
        let at_ms: Vec<f64> = self.centres.iter().map(far).collect();
        let mean_ms = at_ms.iter().zip(&shares.0).map(|(ms, share)| ms * share).sum();
        let worst_ms = consensus_ms + round_trips.last().copied().unwrap_or(0.0);
        Predicted { consensus_ms, at_ms, mean_ms, worst_ms }
    }

    /// Who has the lowest of these figures, and those that have it to within what can be measured; the highest id
    /// first.
    pub fn best(
        &self,
        shares: &Shares,
        down: &BTreeSet<u32>,
        figure: impl Fn(&Predicted) -> f64,
    ) -> Vec<u32> {
        let up = SERVERS.rev().filter(|server| !down.contains(server));
        let of: Vec<_> =
            up.map(|server| (server, figure(&self.predict(server, shares, down)))).collect();
        let best = of.iter().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
        of.into_iter().filter(|(_, ms)| ms - best < 1.0).map(|(server, _)| server).collect()
    }
}

/// Where requests arrive: the share of each data centre.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares(pub Vec<f64>);

impl Shares {
    /// Evenly over so many data centres.
    pub fn even(centres: usize) -> Self {
        Shares(vec![1.0 / centres as f64; centres])
    }

    /// A share at one of so many data centres, the rest evenly at the others (Fig. 7).
    pub fn at(centre: usize, share: f64, centres: usize) -> Self {
        let others = (1.0 - share) / (centres - 1) as f64;
        Shares((0..centres).map(|it| if it == centre { share } else { others }).collect())
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.0.iter().enumerate().filter(|(_, share)| **share > 0.0);
        let each = each.map(|(centre, share)| format!("D{} {:.0} %", centre + 1, share * 100.0));
        f.write_str(&each.collect::<Vec<_>>().join(", "))
    }
}

/// How long requests take, by arithmetic, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Until a quorum has a request.
    pub consensus_ms: f64,
    /// For requests that arrive at each data centre.
    pub at_ms: Vec<f64>,
    /// In the mean.
    pub mean_ms: f64,
    /// At the farthest server that is up.
    pub worst_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_proto::identity::MemberId;
    use mandate_proto::oracle::{Occasion, Oracle, rank};

    fn crashed() -> BTreeSet<u32> {
        [FIRST].into()
    }

    fn rounded(ms: f64) -> f64 {
        (ms * 100.0).round() / 100.0
    }

    /// Fig. 6: leader, consensus, latencies at D1 to D3, mean and worst.
    #[test]
    fn latencies_are_those_of_plain_arithmetic() {
        let cases = [
            (1, 1, 53.26, [130.32, 106.52, 53.26], 96.70, 130.32),
            (1, 3, 9.88, [19.76, 9.88, 63.14], 30.93, 63.14),
            (1, 4, 9.88, [9.88, 19.76, 86.94], 38.86, 86.94),
            (2, 1, 77.06, [130.32, 154.12, 77.06], 120.50, 154.12),
            (2, 2, 9.88, [19.76, 9.88, 86.94], 38.86, 86.94),
            (2, 4, 9.88, [9.88, 19.76, 63.14], 30.93, 63.14),
            (3, 1, 77.06, [86.94, 154.12, 77.06], 106.04, 154.12),
            (3, 3, 53.26, [106.52, 53.26, 130.32], 96.70, 130.32),
            (3, 4, 53.26, [53.26, 106.52, 63.14], 74.31, 106.52),
        ];
        for (number, leader, consensus, at, mean, worst) in cases {
            let found = Deployment::numbered(number).predict(leader, &Shares::even(3), &crashed());
            let at_ms: Vec<_> = found.at_ms.iter().copied().map(rounded).collect();
            assert_eq!(at_ms, at, "p{leader} in {number}");
            let others = [found.consensus_ms, found.mean_ms, found.worst_ms].map(rounded);
            assert_eq!(others, [consensus, mean, worst], "p{leader} in {number}");
        }
    }

    /// Fig. 7.
    #[test]
    fn the_best_are_those_of_the_paper() {
        let best = |number, centre, share| {
            let shares = Shares::at(centre, share, 3);
            Deployment::numbered(number).best(&shares, &crashed(), |it| it.mean_ms)
        };
        assert_eq!(best(1, 2, 1.0 / 3.0), [3, 2]);
        assert_eq!(best(2, 2, 1.0 / 3.0), [4]);
        assert_eq!(best(1, 2, 0.0), [4, 3, 2]);
        assert_eq!(best(1, 2, 1.0), [1]);
        assert_eq!(best(3, 1, 1.0), [3, 2]);
        assert_eq!(best(2, 2, 1.0), [4]);
    }

    #[test]
    fn the_oracles_compute_what_arithmetic_does() {
        let down = crashed();
        for number in 1..=3 {
            for share in [0.0, 0.3, 1.0] {
                let (deployment, shares) = (Deployment::numbered(number), Shares::at(2, share, 3));
                let topology = deployment.topology(&shares, 900.0, &down);
                let gone = BTreeSet::from([MemberId::new(FIRST)]);
                let views = topology.views(&gone, None, Occasion::AfterCrash).unwrap();
                let oracle: Oracle = "latency".parse().unwrap();
                for candidate in rank(&oracle, &views).candidates {
                    let predicted = deployment.predict(candidate.id.get(), &shares, &down);
                    assert!((candidate.values()[0] - predicted.mean_ms).abs() < 0.01);
                }
            }
        }
    }
}
