//! The POLE paper's three data centres, where requests arrive, and what arithmetic says about them.

use std::collections::BTreeSet;

use mandate_lab::topology::Topology;
use mandate_proto::identity::MemberId;
use mandate_proto::oracle::{Occasion, Oracle, rank};

/// Servers of each data centre, D1 to D3 (Fig. 5).
pub(super) const CENTRES: [&[u32]; 3] = [&[4, 5], &[2, 3], &[1]];

/// Names of the three data centres, D1 to D3, in each deployment (Table 3).
const DEPLOYMENTS: [[&str; 3]; 3] =
    [["caltech", "slac", "fnal"], ["slac", "caltech", "fnal"], ["slac", "fnal", "caltech"]];

/// Round trips (Table 2), and 2 % of jitter.
const ROUND_TRIPS: [(&str, &str, f64); 3] =
    [("slac", "caltech", 9.88), ("slac", "fnal", 53.26), ("caltech", "fnal", 77.06)];

/// Where requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distribution {
    pub(super) name: &'static str,
    /// Shares of the data centres, in thirds of a third.
    shares: [u32; 3],
}

/// Evenly, and all at one of them.
pub(super) const DISTRIBUTIONS: [Distribution; 4] = [
    Distribution { name: "even", shares: [1, 1, 1] },
    Distribution { name: "all at D1", shares: [1, 0, 0] },
    Distribution { name: "all at D2", shares: [0, 1, 0] },
    Distribution { name: "all at D3", shares: [0, 0, 1] },
];

impl Distribution {
    /// The share of a data centre.
    pub(super) fn share(self, centre: usize) -> f64 {
        f64::from(self.shares[centre]) / f64::from(self.shares.iter().sum::<u32>())
    }
}

/// Who takes the requests of a data centre: the first of its servers that is up.
pub(super) fn serves(centre: usize, down: &BTreeSet<u32>) -> Option<u32> {
    CENTRES[centre].iter().copied().find(|server| !down.contains(server))
}

/// A deployment, with requests.
pub(super) fn topology(
    deployment: usize,
    distribution: Distribution,
    rate: f64,
    down: &BTreeSet<u32>,
) -> Topology {
    let names = DEPLOYMENTS[deployment - 1];
    let mut text = String::new();
    for (a, b, ms) in ROUND_TRIPS {
        let jitter = ms / 2.0 * 0.02;
        text += &format!("[[rtt]]\na = '{a}'\nb = '{b}'\nms = {ms}\njitter_ms = {jitter}\n");
    }
    for server in 1..=5 {
        let is_there = |centre: &usize| CENTRES[*centre].contains(&server);
        let centre = (0..3).find(is_there).unwrap_or(0);
        let requests = match serves(centre, down) {
            Some(serving) if serving == server => rate * distribution.share(centre),
            _ => 0.0,
        };
        let site = names[centre];
        text +=
            &format!("[[server]]\nid = 'p{server}'\nsite = '{site}'\nrequests = {requests:?}\n");
    }
    Topology::parse(&text).expect("the paper's deployments are topologies")
}

/// What arithmetic says of a deployment while these servers are down.
pub(super) struct Predicted {
    /// Each server that is up, and the mean latency of requests if it led, in milliseconds; the best first.
    latencies: Vec<(u32, f64)>,
}

impl Predicted {
    pub(super) fn of(topology: &Topology, down: &BTreeSet<u32>) -> Self {
        let down: BTreeSet<_> = down.iter().copied().map(MemberId::new).collect();
        let views = topology.views(&down, None, Occasion::AfterCrash);
        let oracle: Oracle = "latency".parse().expect("it is one");
        let ranking = rank(&oracle, &views.expect("servers are those of the topology"));
        let latency = |candidate: &mandate_proto::oracle::Candidate| {
            Some((candidate.id.get(), *candidate.values().first()?))
        };
        Predicted { latencies: ranking.candidates.iter().filter_map(latency).collect() }
    }

    pub(super) fn latency(&self, server: u32) -> Option<f64> {
        self.latencies.iter().find(|(it, _)| *it == server).map(|(_, latency)| *latency)
    }

    /// The best, and those that are as good to within what can be measured.
    pub(super) fn best(&self) -> Vec<u32> {
        let Some((_, best)) = self.latencies.first() else { return Vec::new() };
        let is_as_good = |(_, latency): &&(u32, f64)| latency - best < 1.0;
        self.latencies.iter().filter(is_as_good).map(|(server, _)| *server).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(deployment: usize, distribution: usize, down: &[u32]) -> (Vec<u32>, f64) {
        let down: BTreeSet<_> = down.iter().copied().collect();
        let topology = topology(deployment, DISTRIBUTIONS[distribution], 300.0, &down);
        let predicted = Predicted::of(&topology, &down);
        let best = predicted.best();
        let latency = predicted.latency(best[0]).unwrap();
        (best, (latency * 100.0).round() / 100.0)
    }

    /// Figures 6 and 7, by arithmetic.
    #[test]
    fn the_best_are_those_of_the_paper() {
        assert_eq!(best(1, 0, &[5]), (vec![3, 2], 30.93));
        assert_eq!(best(2, 0, &[5]), (vec![4], 30.93));
        assert_eq!(best(1, 3, &[5]), (vec![1], 53.26));
        assert_eq!(best(3, 2, &[5]), (vec![3, 2], 53.26));
        assert_eq!(best(2, 3, &[5]), (vec![4], 63.14));
    }
}
