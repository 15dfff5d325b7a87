//! What can go wrong with the network while it runs, and between whom.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::wan::link::Impairment;
use crate::wan::plan::NetworkPlan;

/// A fault. Places are names of hosts or sites, `all`, or several with commas; faults of different kinds add up on a
/// link, and of one kind the last counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum NetworkFault {
    /// Nothing passes between `a` and `b`, either way.
    Cut {
        /// One side.
        a: String,
        /// The other.
        b: String,
    },
    /// Nothing passes from `from` to `to`; the other way is as it was.
    OneWay {
        /// Who is not heard.
        from: String,
        /// By whom.
        to: String,
    },
    /// This share of packets is lost between `a` and `b`, besides what the link loses.
    Loss {
        /// One side.
        a: String,
        /// The other.
        b: String,
        /// From 0 to 1.
        share: f64,
    },
    /// Packets between `a` and `b` take so much longer, each way.
    Delay {
        /// One side.
        a: String,
        /// The other.
        b: String,
        /// How much.
        delay: Duration,
    },
    /// The delay between `a` and `b` varies by so much more, each way.
    Jitter {
        /// One side.
        a: String,
        /// The other.
        b: String,
        /// The standard deviation that is added.
        jitter: Duration,
    },
    /// The links between `a` and `b` are as they should be again.
    Heal {
        /// One side.
        a: String,
        /// The other.
        b: String,
    },
}

/// A name that is neither a host nor a site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` names no host or site; there are {known}, and `all`; several are written with commas"
)]
pub struct UnknownPlace {
    name: String,
    known: String,
}

/// A change of what is wrong with a link.
pub(crate) type Change = Box<dyn Fn(Impairment) -> Impairment + Send>;

impl NetworkFault {
    /// The directed links it touches, by places of hosts.
    pub(crate) fn pairs(&self, plan: &NetworkPlan) -> Result<Vec<(usize, usize)>, UnknownPlace> {
        let (a, b, both_ways) = match self {
            NetworkFault::OneWay { from, to } => (from, to, false),
            NetworkFault::Cut { a, b }
            | NetworkFault::Loss { a, b, .. }
            | NetworkFault::Delay { a, b, .. }
            | NetworkFault::Jitter { a, b, .. }
            | NetworkFault::Heal { a, b } => (a, b, true),
        };
        let (first, second) = (places(plan, a)?, places(plan, b)?);
        let mut pairs = Vec::new();
        for x in &first {
            for y in second.iter().filter(|y| *y != x) {
                pairs.push((*x, *y));
                if both_ways {
                    pairs.push((*y, *x));
                }
            }
        }
        // With sides that share hosts, such as `p1` and `all`, pairs come up twice.
        pairs.sort_unstable();
        pairs.dedup();
        Ok(pairs)
    }

    /// What it does to each of them.
    pub(crate) fn change(&self) -> Change {
        match *self {
            NetworkFault::Cut { .. } | NetworkFault::OneWay { .. } => {
                Box::new(|before| Impairment { cut: true, ..before })
            }
            NetworkFault::Loss { share, .. } => {
                Box::new(move |before| Impairment { loss: share, ..before })
            }
            NetworkFault::Delay { delay, .. } => {
                Box::new(move |before| Impairment { delay, ..before })
            }
            NetworkFault::Jitter { jitter, .. } => {
                Box::new(move |before| Impairment { jitter, ..before })
            }
            NetworkFault::Heal { .. } => Box::new(|_| Impairment::default()),
        }
    }
}

fn places(plan: &NetworkPlan, names: &str) -> Result<Vec<usize>, UnknownPlace> {
    plan.places(names).ok_or_else(|| {
        let mut known: Vec<_> = plan.hosts().iter().map(|host| host.name.clone()).collect();
        let mut sites: Vec<_> = plan.hosts().iter().map(|host| host.site.clone()).collect();
        sites.sort();
        sites.dedup();
        known.extend(sites);
        UnknownPlace { name: names.into(), known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_cli::topology::Topology;

    #[test]
    fn faults_touch_the_links_between_two_sides_and_name_who_is_unknown() {
        let servers: String =
            (1..=3).map(|i| format!("[[server]]\nid = 'p{i}'\nsite = 'x'\n")).collect();
        let plan = NetworkPlan::new(&Topology::parse(&servers).unwrap()).unwrap();
        let side = |name: &str| name.to_owned();
        let cut = NetworkFault::Cut { a: side("p1"), b: side("all") };
        assert_eq!(cut.pairs(&plan).unwrap(), [(0, 1), (0, 2), (1, 0), (2, 0)]);
        let one_way = NetworkFault::OneWay { from: side("p1,p2"), to: side("p3") };
        assert_eq!(one_way.pairs(&plan).unwrap(), [(0, 2), (1, 2)]);
        let unknown = NetworkFault::Cut { a: side("p1"), b: side("p9") }.pairs(&plan).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "`p9` names no host or site; there are p1, p2, p3, x, and `all`; several are written with commas"
        );
        let lossy = NetworkFault::Loss { a: side("p1"), b: side("p2"), share: 0.3 }.change();
        let both = lossy(Impairment { cut: true, ..Impairment::default() });
        assert!(both.cut && both.loss == 0.3, "kinds add up");
    }
}
