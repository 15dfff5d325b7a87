//! How well a member watches its leaders: what is wanted, the plan that is in force, what was delivered.
//!
//! What both protocols that follow a leader by its heartbeats have in common. A member is now a monitor, now a
//! sender: so it plans for the leader that it follows, and keeps what others ask of it for when it leads.

use core::time::Duration;

use super::Beat;
use super::configurator::{Bounds, Infeasible};
use super::delivered::{Delivered, Service};
use super::estimator::Estimate;
use super::nfd_e::NfdE;
use super::planner::{Planner, Requests, Review, Wanted};
use crate::identity::MemberId;
use crate::time::Instant;

/// How well a member watches its leader.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Detection {
    /// What is wanted, if the plan is kept current.
    pub wanted: Option<Bounds>,
    /// Why that cannot be had on the link as it is, if it cannot.
    pub unachievable: Option<Infeasible>,
    /// The leader that is watched, and how.
    pub watched: Option<Watched>,
    /// What was delivered so far.
    pub service: Service,
}

/// A leader that is watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watched {
    /// The leader's id.
    pub leader: MemberId,
    /// The interval that it announces (eta).
    pub interval: Duration,
    /// How much later than expected its heartbeats may be (alpha).
    pub margin: Duration,
    /// The link from it, as measured.
    pub link: Option<Estimate>,
}

impl Watched {
    /// What is known of a leader by its detector and its link.
    pub fn new(leader: MemberId, detector: &NfdE, link: Option<Estimate>) -> Self {
        Watched { leader, interval: detector.interval(), margin: detector.margin(), link }
    }
}

/// What came of a look at the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// The detection bound without what the delay takes of it.
    pub detect: Duration,
    /// The bounds cannot be met any more, and this is news.
    pub unachievable: Option<Infeasible>,
}

/// A member's plan, what is asked of it, and what it delivered.
#[derive(Clone, Debug)]
pub struct Quality {
    planner: Option<Planner>,
    /// What others ask of this member.
    pub requests: Requests,
    /// What this member delivered.
    pub delivered: Delivered,
}

impl Quality {
    /// Without `wanted`, nothing is planned, and what was delivered is counted all the same.
    pub fn new(wanted: Option<Wanted>) -> Self {
        Quality {
            planner: wanted.map(Planner::new),
            requests: Requests::default(),
            delivered: Delivered::default(),
        }
    }

    /// Another leader: the link from it is not known.
    pub fn new_leader(&mut self) {
        if let Some(planner) = &mut self.planner {
            planner.restart();
        }
    }

    /// Counts a heartbeat of the leader, and sometimes looks at the plan again, by the link as `estimate` gives
    /// it and its mean one-way `delay`.
    pub fn heartbeat(
        &mut self,
        beat: Beat,
        delay: Duration,
        estimate: impl FnOnce() -> Option<Estimate>,
    ) -> Option<Look> {
        let planner = self.planner.as_mut()?;
        if !planner.counts() {
            return None;
        }
        let review = planner.review(&estimate()?, delay, beat.interval);
        let detect = planner.wanted().bounds.detect().saturating_sub(delay);
        Some(Look {
            // If it can be, not so short that one lost heartbeat is a suspicion, whatever the delay seems to be.
            detect: detect
                .max(beat.interval.saturating_mul(2))
                .min(planner.wanted().bounds.detect()),
            unachievable: match review {
                Some(Review::Unachievable(reason)) => Some(reason),
                _ => None,
            },
        })
    }

    /// What is asked of the leader, once the link from it is known.
    pub fn asked(&self) -> Option<Duration> {
        self.planner.as_ref().and_then(Planner::asked)
    }

    /// All of it.
    pub fn detection(&self, watched: Option<Watched>, now: Instant) -> Detection {
        Detection {
            wanted: self.planner.as_ref().map(|planner| planner.wanted().bounds),
            unachievable: self.planner.as_ref().and_then(Planner::unachievable),
            watched,
            service: self.delivered.service(now),
        }
    }
}
