//! Moving a leader that is well to where it would serve better.
//!
//! The leader compares what everyone would be worth in its place (scores *before resignation*: all
//! are up, itself included). It moves when another is better by a threshold, in three reviews in
//! succession, and has itself led for a minimum tenure. So near-equals do not take turns: whoever
//! was moved to has to become worse by the threshold, too, and tenures bound how often a group moves
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
use crate::oracle::{Decided, Measure, Measured, Oracle, Outcome, rank_standings};
use crate::time::Instant;

/// So many reviews in succession must find the same member better.
const CONFIRMATIONS: u32 = 3;

/// When to move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moves {
    /// Time between reviews.
    pub every: Duration,
    /// By how much another must be better in what decides, as a share of the leader's own figure:
    /// 0.1 is a tenth less latency, or a tenth more requests. Preferences decide by any difference.
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
    /// Who was better at the last reviews, and at how many in succession.
    better: Option<(MemberId, u32)>,
    /// What was advised last: said once, until it changes.
    said: Option<MemberId>,
    /// A move whose effect is not known yet, and when it will be.
    pending: Option<(Advice, Option<Instant>)>,
}

impl Mover {
    pub(super) fn new(config: Moves) -> Self {
        Mover { config, next: None, better: None, said: None, pending: None }
    }

    /// This member leads from now on.
    pub(super) fn installed(&mut self, now: Instant) {
        self.next = Some(now + self.config.tenure.max(self.config.every));
        self.better = None;
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
        let (me, _) = own;
        let standings = others.chain([own]).map(|(id, measured)| (id, Ok(measured)));
        let ranking = rank_standings(oracle, standings);
        let advice = ranking.winner.filter(|winner| *winner != me).and_then(|to| {
            let ours = ranking.candidates.iter().find(|candidate| candidate.id == me)?;
            let Outcome::Loses(decided) = &ours.outcome else { return None };
            self.weigh(me, to, decided)
        });
        let Some(advice) = advice else {
            self.better = None;
            self.said = None;
            return None;
        };
        let times = self.better.map_or(0, |(to, times)| if to == advice.to { times } else { 0 });
        self.better = Some((advice.to, times + 1));
        if times + 1 < CONFIRMATIONS {
            return None;
        }
        if advice.shadow {
            return (self.said.replace(advice.to) != Some(advice.to)).then_some(advice);
        }
        self.pending = Some((advice, None));
        Some(advice)
    }

    /// Whether what decides is worth a move.
    fn weigh(&self, from: MemberId, to: MemberId, decided: &Decided) -> Option<Advice> {
        let Decided::Term { measure, winner: predicted, other: present } = *decided else {
            return None;
        };
        let gain = libm::fabs(present - predicted);
        let enough = match measure {
            Measure::Rotating | Measure::Constant => false,
            Measure::Preference => true,
            _ => gain > self.config.threshold * libm::fabs(present),
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
