//! Keeps a plan current: the monitor's side looks again at its link every so often, the sender's side
//! gathers what monitors ask for.
//!
//! A sender beats for all its monitors at once, each behind a link of its own, so it beats as often as the
//! most demanding of them asks. Who has not measured its link yet asks for nothing, and the interval of the
//! configuration stands for it. Nothing is agreed beforehand: every heartbeat announces the next, see "What the
//! margin is" in [`nfd_e`](super::nfd_e).

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::configurator::{Bounds, Infeasible, LinkQuality, Plan, plan};
use super::estimator::Estimate;
use crate::identity::MemberId;

/// The plan is reviewed after this many heartbeats.
pub const REVIEW_EVERY: u32 = 128;

/// A new plan is worth asking for when its interval differs by more than this share: smaller
/// differences are within the error of the estimate and would make the sender restless.
pub const WORTHWHILE: f64 = 0.2;

/// What is wanted of a detector whose plan is kept current.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// Detection time, and how often and how long it may be wrong.
    pub bounds: Bounds,
    /// The least interval that may be asked of a sender.
    pub min_interval: Duration,
}

/// What came of looking at the plan again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Review {
    /// The sender should use this plan's interval from now on.
    Renew(Plan),
    /// The bounds can no longer be met on this link. The old plan stays in force.
    Unachievable(Infeasible),
}

/// The monitor's side.
#[derive(Clone, Copy, Debug)]
pub struct Planner {
    wanted: Wanted,
    since_review: u32,
    /// The interval last asked for, so that it is asked for once.
    asked: Option<Duration>,
    unachievable: Option<Infeasible>,
}

impl Planner {
    /// A planner that has seen nothing yet.
    pub fn new(wanted: Wanted) -> Self {
        Planner { wanted, since_review: 0, asked: None, unachievable: None }
    }

    /// What is wanted.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// The interval that the sender is asked for, once the link is known.
    pub fn asked(&self) -> Option<Duration> {
        self.asked
    }

    /// Why the bounds cannot be met at present, if they cannot.
    pub fn unachievable(&self) -> Option<Infeasible> {
        self.unachievable
    }

    /// Another sender, or the same in another incarnation: what was asked of it is forgotten.
    pub fn restart(&mut self) {
        *self = Planner::new(self.wanted);
    }

    /// Counts a heartbeat; whether it is time to [review](Planner::review).
    pub fn counts(&mut self) -> bool {
        self.since_review += 1;
        self.since_review >= REVIEW_EVERY
    }

    /// Looks again: the link as measured, its mean one-way delay as far as it is known, and the sender's
    /// interval. Says something only if it is news.
    pub fn review(
        &mut self,
        estimate: &Estimate,
        delay: Duration,
        in_use: Duration,
    ) -> Option<Review> {
        self.since_review = 0;
        let link = LinkQuality::new(estimate.cautious_loss(), estimate.variance, delay).ok()?;
        match plan(&self.wanted.bounds, &link, self.wanted.min_interval) {
            Ok(plan) => {
                self.unachievable = None;
                let asked = self.asked.unwrap_or(in_use);
                let change = plan.interval.as_secs_f64() / asked.as_secs_f64().max(1e-9);
                let worthwhile = !(1.0 - WORTHWHILE..=1.0 + WORTHWHILE).contains(&change);
                // A request may have been lost: repeat it while the sender does otherwise.
                (worthwhile || self.asked.is_some_and(|asked| asked != in_use)).then(|| {
                    self.asked = Some(if worthwhile { plan.interval } else { asked });
                    Review::Renew(plan)
                })
            }
            Err(reason) => {
                let news = self.unachievable.replace(reason).is_none();
                news.then_some(Review::Unachievable(reason))
            }
        }
    }
}

/// Requests that are not repeated for so many heartbeats are forgotten: monitors repeat theirs with every review.
pub const FORGOTTEN_AFTER: u32 = REVIEW_EVERY * 4;

/// The sender's side: what its monitors ask for. One entry for each.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// The interval, and for how many heartbeats it was not repeated.
    asked: BTreeMap<MemberId, (Duration, u32)>,
}

impl Requests {
    /// Takes what a monitor asks for; `None` takes it back.
    pub fn take(&mut self, from: MemberId, interval: Option<Duration>) {
        match interval {
            Some(interval) => self.asked.insert(from, (interval, 0)),
            None => self.asked.remove(&from),
        };
    }

    /// A heartbeat is sent: requests age.
    pub fn age(&mut self) {
        self.asked.retain(|_, (_, age)| {
            *age += 1;
            *age <= FORGOTTEN_AFTER
        });
    }

    /// Who asks for something.
    pub fn monitors(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.asked.keys().copied()
    }

    /// As often as the most demanding of `monitors` asks, where `first` stands for who asks for nothing; within
    /// `min` and `max`, whatever is asked. With no monitor, `first`.
    pub fn interval(
        &self,
        monitors: impl Iterator<Item = MemberId>,
        first: Duration,
        min: Duration,
        max: Duration,
    ) -> Duration {
        let asked = monitors.map(|id| self.asked.get(&id).map_or(first, |(interval, _)| *interval));
        asked.min().unwrap_or(first).min(max).max(min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_sender_beats_for_the_most_demanding_of_its_monitors_within_its_own_limits() {
        let p = MemberId::new;
        let mut requests = Requests::default();
        let of = |requests: &Requests, ids: &[u32]| {
            let ids = ids.iter().map(|id| MemberId::new(*id));
            requests.interval(ids, MS * 330, MS * 10, MS * 900)
        };
        assert_eq!(of(&requests, &[1, 2]), MS * 330);
        requests.take(p(1), Some(MS * 500));
        assert_eq!(of(&requests, &[1, 2]), MS * 330, "p2 has not measured yet");
        requests.take(p(2), Some(MS * 400));
        assert_eq!(of(&requests, &[1, 2]), MS * 400);
        assert_eq!(of(&requests, &[1]), MS * 500, "p2 is gone");
        requests.take(p(2), Some(MS));
        assert_eq!(of(&requests, &[1, 2]), MS * 10, "no more often than that");
        requests.take(p(1), Some(MS * 5000));
        assert_eq!(of(&requests, &[1]), MS * 900);
        requests.take(p(1), None);
        assert_eq!(of(&requests, &[1]), MS * 330);
        assert_eq!(of(&requests, &[]), MS * 330);
    }
}
