//! Which runs each of the paper's figures is made of, and what the paper says of them.

use std::fmt;
use std::str::FromStr;

use super::deployment::{Deployment, Shares};
use super::{crash, recovery};
use crash::ByOracle;

/// The round trip between tud and cern, the paper's two data centres.
pub const TUD_CERN: f64 = 20.75;

/// A figure of the paper, or one that it leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Latency before and after a crash, two data centres.
    F4b,
    /// Latency by leader, three data centres.
    F6,
    /// Uneven requests, two data centres.
    F7a,
    /// Uneven requests, three data centres: mean.
    F7b,
    /// Uneven requests, three data centres: worst case.
    F7c,
    /// Recovery by size of the snapshot, two data centres.
    F8a,
    /// Recovery by size of the snapshot, three data centres.
    F8b,
    /// Recovery and steady state together.
    Open,
}

impl Figure {
    /// All of them.
    pub const ALL: [Figure; 8] = [
        Figure::F4b,
        Figure::F6,
        Figure::F7a,
        Figure::F7b,
        Figure::F7c,
        Figure::F8a,
        Figure::F8b,
        Figure::Open,
    ];
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Figure::F4b => "4b",
            Figure::F6 => "6",
            Figure::F7a => "7a",
            Figure::F7b => "7b",
            Figure::F7c => "7c",
            Figure::F8a => "8a",
            Figure::F8b => "8b",
            Figure::Open => "open",
        })
    }
}

/// A name that is no figure's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are figures 4b, 6, 7a, 7b, 7c, 8a, 8b and open, not `{0}`")]
pub struct NoSuchFigure(String);

impl FromStr for Figure {
    type Err = NoSuchFigure;

    fn from_str(text: &str) -> Result<Self, NoSuchFigure> {
        let named = Figure::ALL.into_iter().find(|figure| figure.to_string() == text);
        named.ok_or_else(|| NoSuchFigure(text.into()))
    }
}

/// How fine figures are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Grain {
    /// Shares of the requests at one data centre (p), for figures 7a to 7c.
    pub shares: Vec<f64>,
    /// Megabytes that are lacking, for figures 8a, 8b and open.
    pub megabytes: Vec<u32>,
    /// Round trips, for figure 8a.
    pub round_trips: Vec<f64>,
    /// Deployments, for figures 6, 7b and 7c.
    pub deployments: Vec<u8>,
    /// Whether figure 8b has a run with p4 outdated, whom history elects of equals. Figure 8a has such runs anyway.
    pub outdates_p4: bool,
}

impl Grain {
    /// As in the paper, as far as its text says.
    pub fn paper() -> Self {
        Grain {
            shares: vec![0.0, 0.25, 0.5, 0.75, 1.0],
            megabytes: vec![0, 50, 100, 150, 200, 250],
            round_trips: vec![0.0, 9.88, 20.75, 77.06],
            deployments: vec![1, 2, 3],
            outdates_p4: false,
        }
    }

    /// Fewer points.
    pub fn coarse() -> Self {
        Grain {
            shares: vec![0.0, 0.5, 1.0],
            megabytes: vec![0, 100, 250],
            round_trips: vec![0.0, 20.75, 77.06],
            deployments: vec![1, 2, 3],
            outdates_p4: false,
        }
    }

    /// As few as show anything at all.
    pub fn least() -> Self {
        Grain {
            shares: vec![1.0],
            megabytes: vec![20],
            round_trips: vec![20.75],
            deployments: vec![1],
            outdates_p4: true,
        }
    }
}

/// What has to be run.
#[derive(Clone, Debug, Default)]
pub struct RunPlan {
    /// Crashes and what oracles make of them.
    pub crashes: Vec<crash::CrashCase>,
    /// Deployments in which each leader is timed.
    pub leaders: Vec<Deployment>,
    /// Recoveries.
    pub recoveries: Vec<recovery::RecoveryCase>,
}

impl RunPlan {
    /// For these figures. What several need is run once.
    pub fn new(figures: &[Figure], grain: &Grain) -> Self {
        let mut plan = RunPlan::default();
        for figure in figures {
            match figure {
                Figure::F4b => plan.crash(
                    &Deployment::two(TUD_CERN),
                    &Shares::even(2),
                    &[ByOracle::History, ByOracle::Rotating],
                ),
                Figure::F6 => plan.figure_6(grain),
                Figure::F7a => plan.figure_7a(grain),
                Figure::F7b | Figure::F7c => plan.figure_7bc(grain),
                Figure::F8a => plan.figure_8a(grain),
                Figure::F8b => plan.figure_8b(grain),
                Figure::Open => plan.open(grain),
            }
        }
        plan
    }

    fn crash(&mut self, deployment: &Deployment, shares: &Shares, oracles: &[ByOracle]) {
        for oracle in oracles {
            let (deployment, shares) = (deployment.clone(), shares.clone());
            let case = crash::CrashCase { deployment, shares, oracle: *oracle };
            if !self.crashes.contains(&case) {
                self.crashes.push(case);
            }
        }
    }

    fn figure_6(&mut self, grain: &Grain) {
        for number in &grain.deployments {
            let deployment = Deployment::numbered(*number);
            self.crash(&deployment, &Shares::even(3), &ByOracle::ALL);
            self.leaders.push(deployment);
        }
    }

    /// p is the share of D2.
    fn figure_7a(&mut self, grain: &Grain) {
        let oracles = [
            ByOracle::History,
            ByOracle::Rotating,
            ByOracle::Consensus,
            ByOracle::Requests,
            ByOracle::Latency,
        ];
        for share in &grain.shares {
            self.crash(&Deployment::two(TUD_CERN), &Shares::at(1, *share, 2), &oracles);
        }
    }

    /// p is the share of D3 in Deployment 1 and of D2 in Deployment 3. With it goes the counter-example of the request
    /// oracle: Deployment 2 with all requests at D3.
    fn figure_7bc(&mut self, grain: &Grain) {
        for (number, centre) in [(1, 2), (3, 1)] {
            for share in grain.shares.iter().filter(|_| grain.deployments.contains(&number)) {
                let deployment = Deployment::numbered(number);
                self.crash(&deployment, &Shares::at(centre, *share, 3), &ByOracle::ALL);
            }
        }
        if grain.deployments.contains(&2) {
            let oracles = [ByOracle::Requests, ByOracle::Latency];
            self.crash(&Deployment::numbered(2), &Shares::at(2, 1.0, 3), &oracles);
        }
    }

    /// p1 is outdated. History elects another, p4 if it is equal to the others, rotating p1, with p2 beside it as the
    /// interim; the operator's preference p1, with p4 at the other data centre as the interim. Where p4 is outdated, history
    /// must elect another than p4, whom it elects of equals.
    fn figure_8a(&mut self, grain: &Grain) {
        let largest = grain.megabytes.iter().max().copied();
        for (round_trip, megabytes) in grain.round_trips.iter().zip(std::iter::repeat(largest)) {
            self.recoveries.extend(megabytes.map(|megabytes| recovery::RecoveryCase {
                deployment: Deployment::two(*round_trip),
                shares: Shares::even(2),
                oracle: ByOracle::History,
                outdated: vec![4],
                megabytes,
                interim: true,
            }));
        }
        for round_trip in &grain.round_trips {
            for megabytes in &grain.megabytes {
                for (oracle, interim) in [
                    (ByOracle::History, true),
                    (ByOracle::Rotating, true),
                    (ByOracle::Preference, true),
                    (ByOracle::Preference, false),
                ] {
                    self.recoveries.push(recovery::RecoveryCase {
                        deployment: Deployment::two(*round_trip),
                        shares: Shares::even(2),
                        oracle,
                        outdated: vec![1],
                        megabytes: *megabytes,
                        interim,
                    });
                }
            }
        }
    }

    /// Both servers of D2 are outdated. Where p4 is instead, history must elect another.
    fn figure_8b(&mut self, grain: &Grain) {
        for megabytes in &grain.megabytes {
            let both = [(ByOracle::History, vec![2, 3]), (ByOracle::Rotating, vec![2, 3])];
            let p4 = grain.outdates_p4.then(|| (ByOracle::History, vec![4]));
            for (oracle, outdated) in both.into_iter().chain(p4) {
                self.recoveries.push(recovery::RecoveryCase {
                    deployment: Deployment::of_figure_8b(),
                    shares: Shares::even(3),
                    oracle,
                    outdated,
                    megabytes: *megabytes,
                    interim: true,
                });
            }
        }
    }

    /// All requests arrive at D3 of Deployment 1, so that p1 is the best, and p1 is outdated. It is named by the
    /// operator: it was away, so that no oracle has seen its clients.
    fn open(&mut self, grain: &Grain) {
        for megabytes in &grain.megabytes {
            for (oracle, interim) in [
                (ByOracle::History, true),
                (ByOracle::Preference, false),
                (ByOracle::Preference, true),
            ] {
                self.recoveries.push(recovery::RecoveryCase {
                    deployment: Deployment::numbered(1),
                    shares: Shares::at(2, 1.0, 3),
                    oracle,
                    outdated: vec![1],
                    megabytes: *megabytes,
                    interim,
                });
            }
        }
    }
}

/// What the paper says of the latency under a leader with even requests: at a data centre, or the mean.
pub fn paper_by_leader(deployment: &str, leader: u32, centre: Option<usize>) -> Option<f64> {
    match (deployment, leader, centre) {
        ("Deployment 1", 4, Some(centre)) => Some([12.0, 22.0, 92.0][centre]),
        ("Deployment 1", 4, None) => Some(42.0),
        ("Deployment 1", 3, None) => Some(33.0),
        _ => None,
    }
}

/// What the paper says of the mean latency with an oracle, where requests arrive so.
pub fn paper_by_oracle(case: &crash::CrashCase) -> Option<f64> {
    let all_at = |centre: usize| case.shares.0.get(centre).is_some_and(|share| *share == 1.0);
    let none_at = |centre: usize| case.shares.0.get(centre).is_some_and(|share| *share == 0.0);
    match (case.deployment.name.as_str(), case.oracle) {
        ("Deployment 1", ByOracle::Latency) if none_at(2) => Some(16.5),
        ("Deployment 1", ByOracle::Rotating) if none_at(2) => Some(125.8),
        ("Deployment 1" | "Deployment 3", ByOracle::Latency)
            if all_at(2) && case.deployment.name.ends_with('1')
                || all_at(1) && case.deployment.name.ends_with('3') =>
        {
            Some(57.4)
        }
        ("Deployment 1", ByOracle::Worst) if all_at(2) => Some(66.6),
        ("Deployment 3", ByOracle::Consensus) if all_at(1) => Some(111.3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_figures_share_is_run_once() {
        let each: usize = [Figure::F7b, Figure::F7c]
            .map(|figure| RunPlan::new(&[figure], &Grain::coarse()).crashes.len())
            .iter()
            .sum();
        let both = RunPlan::new(&[Figure::F7b, Figure::F7c], &Grain::coarse()).crashes.len();
        assert_eq!(2 * both, each);
        assert_eq!("8c".parse::<Figure>(), Err(NoSuchFigure("8c".into())));
        for figure in Figure::ALL {
            assert_eq!(figure.to_string().parse(), Ok(figure));
            let plan = RunPlan::new(&[figure], &Grain::least());
            assert!(!plan.crashes.is_empty() || !plan.recoveries.is_empty(), "{figure}");
        }
    }

    /// Of equals it elects p4: only where p4 is outdated does an election tell that it looks at logs.
    #[test]
    fn history_is_asked_where_the_highest_id_is_outdated() {
        for figure in [Figure::F8a, Figure::F8b] {
            let plan = RunPlan::new(&[figure], &Grain::least());
            let tells = |case: &recovery::RecoveryCase| {
                case.oracle == ByOracle::History && case.outdated.contains(&4)
            };
            assert!(plan.recoveries.iter().any(tells), "{figure}");
        }
    }

    #[test]
    fn the_oracles_elect_whom_the_paper_says() {
        let even = Shares::even(3);
        let elects =
            |number, oracle: ByOracle| oracle.elects(&Deployment::numbered(number), &even).unwrap();
        assert_eq!(elects(1, ByOracle::Worst), [3, 2]);
        assert_eq!(elects(2, ByOracle::Worst), [4]);
        assert_eq!(elects(1, ByOracle::Requests), [1]);
        assert_eq!(ByOracle::History.elects(&Deployment::numbered(1), &even), None);
        let all_at_d3 = Shares::at(2, 1.0, 3);
        let deployment = Deployment::numbered(2);
        assert_eq!(ByOracle::Requests.elects(&deployment, &all_at_d3).unwrap(), [1]);
        assert_eq!(ByOracle::Latency.elects(&deployment, &all_at_d3).unwrap(), [4]);
        // With p5's clients, p4 would be the better one here.
        let half_at_d2 = Shares::at(1, 0.5, 3);
        let elected = ByOracle::Latency.elects(&Deployment::numbered(3), &half_at_d2);
        assert_eq!(elected.unwrap(), [3, 2]);
    }
}
