//! Moving a leader that is well to where it would serve better.
//!
//! The leader compares what everyone would be worth in its place (scores *before resignation*: all
//! are up, itself included). It moves when another is better by a threshold, in three reviews in
//! succession, and has itself led for a minimum tenure. So near-equals do not take turns: the member that
//! leads now has to become worse by the threshold, too, and tenures bound how often a group moves
//! at all. What decides must be worth a move: ids and turns are not. The threshold is to be above
//! the noise of what is measured: a mean round trip is off by an eighth of its jitter.
//!
//! A move is a transfer to a member that answers. If it comes to nothing there is an election, like
//! after any resignation; nothing waits for the preferred one.
//!
//! Each move is recorded with its predicted effect, and later with the realised one: what the new
//! leader measures of itself once it has led for a review period. In shadow mode a leader only says
//! what it would do.

use core::time::Duration;

use crate::identity::MemberId;
use crate::oracle::{Criterion, Measure, Measured, Oracle, rank_standings};
use crate::time::Instant;

/// So many reviews in succession must find someone better.
const CONFIRMATIONS: u32 = 3;

/// Differences below this are nothing, whatever share they are of something near zero.
fn noise(measure: Measure) -> f64 {
    match measure {
        measure if measure.is_time() => 0.5,
        Measure::Requests => 1.0,
        _ => 0.0,
    }
}

/// When to move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moves {
    /// Time between reviews.
    pub every: Duration,
    /// By how much another must be better in what decides, as a share of the leader's own figure:
    /// 0.1 is a tenth less latency, or a tenth more requests; and by more than a class of the oracle
    /// is wide, and than half a millisecond or one request a second. Preferences decide by any
    /// difference.
    pub threshold: f64,
    /// How long a leader stays at least.
    pub tenure: Duration,
    /// Only say what would be done.
    pub shadow: bool,
}

impl Default for Moves {
    /// Reviews every 10 s, a tenth, a minute.
    fn default() -> Self {
        Moves {
            every: Duration::from_secs(10),
            threshold: 0.1,
            tenure: Duration::from_secs(60),
            shadow: false,
        }
    }
}

/// That another would lead better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advice {
    /// The leader.
    pub from: MemberId,
    /// Who is better.
    pub to: MemberId,
    /// In what.
    pub measure: Measure,
    /// What the leader measures of itself.
    pub present: f64,
    /// What the other would.
    pub predicted: f64,
    /// Whether it stays at that.
    pub shadow: bool,
}

/// What came of a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// What was expected.
    pub advice: Advice,
    /// What the new leader measures of itself now; `None` if somebody else leads.
    pub realised: Option<f64>,
}

/// Reviews, and the move that is under way.
#[derive(Clone, Debug)]
pub(super) struct Mover {
    config: Moves,
    next: Option<Instant>,
    /// At how many reviews in succession someone was better.
    better: u32,
    /// What was advised last: said once, until it changes.
    said: Option<MemberId>,
    /// A move whose effect is not known yet, and when it will be.
    pending: Option<(Advice, Option<Instant>)>,
}

impl Mover {
    pub(super) fn new(config: Moves) -> Self {
        Mover { config, next: None, better: 0, said: None, pending: None }
    }

    /// This member leads from now on.
    pub(super) fn installed(&mut self, now: Instant) {
        self.next = Some(now + self.config.tenure.max(self.config.every));
        self.better = 0;
        self.said = None;
        self.pending = None;
    }

    /// It does not lead any more.
    pub(super) fn ended(&mut self) {
        self.next = None;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let judged = self.pending.and_then(|(_, at)| at);
        self.next.into_iter().chain(judged).min()
    }

    /// Whether it is time for a review; the next is a period away then.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next.is_some_and(|next| next <= now);
        if due {
            self.next = Some(now + self.config.every);
        }
        due
    }

    /// Reviews the standings; what to do about them, if anything.
    pub(super) fn review(
        &mut self,
        oracle: &Oracle,
        own: (MemberId, Measured),
        others: impl Iterator<Item = (MemberId, Measured)>,
    ) -> Option<Advice> {
        let (me, ours) = own;
        let standings = others.map(|(id, measured)| (id, Ok(measured)));
        let ranking = rank_standings(oracle, standings);
        // The best that is worth a move: one that is better by a hair must not hide one that is
        // better by a mile.
        let better = ranking.candidates.iter().filter_map(|candidate| {
            let measured = candidate.measured.filter(|it| it.score > ours.score)?;
            self.weigh(oracle, (me, ours), (candidate.id, measured))
        });
        let Some(advice) = better.into_iter().next() else {
            self.better = 0;
            self.said = None;
            return None;
        };
        // Any candidate counts, not only the last: two that are much better and take turns must not keep the worst.
        self.better += 1;
        if self.better < CONFIRMATIONS {
            return None;
        }
        if advice.shadow {
            return (self.said.replace(advice.to) != Some(advice.to)).then_some(advice);
        }
        self.pending = Some((advice, None));
        Some(advice)
    }

    /// Whether what decides is worth a move.
    fn weigh(
        &self,
        oracle: &Oracle,
        (from, ours): (MemberId, Measured),
        (to, theirs): (MemberId, Measured),
    ) -> Option<Advice> {
        let place = theirs.score.decided_against(&ours.score)?;
        let Criterion { measure, class } = *oracle.terms().get(place)?;
        let present = *ours.values.components().get(place)?;
        let predicted = *theirs.values.components().get(place)?;
        // Neighbours in two classes may be as near as those in one.
        let least = class
            .unwrap_or(0.0)
            .max(noise(measure))
            .max(self.config.threshold * libm::fabs(present));
        let enough = match measure {
            Measure::Rotating | Measure::Constant => false,
            Measure::Preference => true,
            _ => libm::fabs(present - predicted) > least,
        };
        let shadow = self.config.shadow;
        enough.then_some(Advice { from, to, measure, present, predicted, shadow })
    }

    /// This member follows another: if a move brought that about, its effect will be known after a
    /// review period.
    pub(super) fn follows(&mut self, leader: MemberId, now: Instant) -> Option<Effect> {
        let (advice, _) = self.pending?;
        if advice.to == leader {
            self.pending = Some((advice, Some(now + self.config.every)));
            return None;
        }
        self.pending = None;
        Some(Effect { advice, realised: None })
    }

    /// The effect of a move, if it is time to judge it; `realised` is what its measure reads at the
    /// leader that is followed.
    pub(super) fn judge(
        &mut self,
        oracle: &Oracle,
        standing: impl Fn(MemberId) -> Option<Measured>,
        now: Instant,
    ) -> Option<Effect> {
        let (advice, at) = self.pending?;
        at.filter(|at| *at <= now)?;
        self.pending = None;
        let place = oracle.terms().iter().position(|term| term.measure == advice.measure)?;
        let measured = standing(advice.to)?;
        let realised = measured.values.components().get(place).copied();
        Some(Effect { advice, realised })
    }
}

#[cfg(test)]
mod tests;
