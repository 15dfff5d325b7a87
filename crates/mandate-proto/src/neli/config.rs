//! How a member is set up, and whether the ledger grants what that needs.
//!
//! A [`Config`] says what is wanted; [`Grants`] say what the ledger gives, read from it and never assumed;
//! [`Config::resolve`] makes a [`Plan`] of both, or says which of them does not fit and why.

use core::fmt;
use core::num::NonZeroU32;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::layout::Agreement;
use super::membership::MAX_REST;
use crate::identity::MemberId;

/// What "leader" means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// At least one leader for each role, whenever possible; several for a while when it changes hands.
    NonExclusive,
    /// At most one leader for each role at any instant, with a term that rises.
    Exclusive,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::NonExclusive => "non-exclusive",
            Mode::Exclusive => "exclusive",
        })
    }
}

/// Whom the ledger hands records to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordDelivery {
    /// Every process that asks: receiving records proves nothing. (Kafka: a fetch carries no membership.)
    Anyone,
    /// Only the member to whom the partition is assigned at that instant.
    AssignedOnly,
}

/// What a ledger gives, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grants {
    /// How many partitions it has; fixed as long as a group exists.
    pub partitions: NonZeroU32,
    /// After this long without a sign of life a member is taken for dead (`session.timeout.ms`).
    pub session: Duration,
    /// How often a member gives a sign of life, and learns of changes (`heartbeat.interval.ms`).
    pub heartbeat: Duration,
    /// How long the ledger waits for a member to release what it wants back (`max.poll.interval.ms`).
    pub barrier: Duration,
    /// Whether it refuses renewals of generations that it has replaced, and keeps marks for the next owner.
    pub fenced: bool,
    /// Whether it answers renewals of a member that waits at the barrier. Kafka's classic protocol does not, over one
    /// connection: a join is answered when everyone has joined, and what comes behind it waits.
    pub renews_through_joins: bool,
    /// Whom it hands records to.
    pub delivery: RecordDelivery,
}

/// What is wanted of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    me: MemberId,
    mode: Mode,
    threshold: Option<Duration>,
    interval: Option<Duration>,
    grace: Option<Duration>,
    drain: Option<Duration>,
    rest: Option<Duration>,
    allowance_per_mille: u32,
    sharing: u32,
    roles: u32,
}

/// What a member goes by; it fits its ledger by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerPlan {
    pub(super) me: MemberId,
    pub(super) mode: Mode,
    pub(super) grants: Grants,
    pub(super) threshold: Duration,
    pub(super) interval: Duration,
    pub(super) grace: Duration,
    pub(super) drain: Duration,
    pub(super) rest: Duration,
    pub(super) allowance_per_mille: u32,
    pub(super) roles: u32,
}

/// Why a configuration does not fit a ledger. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A threshold under which leaders would lapse before they are replaced.
    #[error(
        "in non-exclusive mode the threshold must be longer than the session, or roles have no leader \
         while they change hands: {threshold:?} against the {session:?} that the ledger grants"
    )]
    ThresholdNotAboveSession {
        /// The threshold.
        threshold: Duration,
        /// What the ledger grants.
        session: Duration,
    },
    /// Leaders would lapse between two signs.
    #[error(
        "what keeps a leader comes every {interval:?}; it must come at least {times} times in the threshold of \
         {threshold:?}"
    )]
    IntervalTooLong {
        /// Time between two.
        interval: Duration,
        /// How often at least.
        times: u32,
        /// The threshold.
        threshold: Duration,
    },
    /// A grace period in which the former leader may still lead.
    #[error(
        "a former leader may count on a partition when it is handed over: the grace period must be at least \
         {shortest:?}, not {grace:?}"
    )]
    GraceTooShort {
        /// The grace period.
        grace: Duration,
        /// The shortest that is safe.
        shortest: Duration,
    },
    /// A grace period that could only do harm.
    #[error(
        "a grace period makes gaps, and non-exclusive mode is there to have none: leave it out"
    )]
    GraceWithoutExclusion,
    /// The ledger cannot tell who owns a partition.
    #[error(
        "this ledger neither refuses renewals of members it has replaced nor keeps records from them: \
         nothing there can be led exclusively"
    )]
    CannotExclude,
    /// Work that may be drained for longer than the ledger waits.
    #[error(
        "work may take {drain:?} to drain, but the ledger waits for a release for {barrier:?} only, less what \
         clocks may drift: then it gives the partition away all the same"
    )]
    DrainTooLong {
        /// The bound on draining.
        drain: Duration,
        /// How long the ledger waits.
        barrier: Duration,
    },
    /// A drift allowance that leaves nothing.
    #[error("the drift allowance must be at most 200 parts of a thousand, not {0}")]
    Allowance(u32),
    /// A topic that nobody shares.
    #[error("the number of groups that share the ledger must be at least 1")]
    NobodyShares,
    /// A time that is no time.
    #[error("{0} must be more than nothing")]
    Zero(&'static str),
}

/// An exclusive threshold is this part of the session. A crash takes a session to be noticed, and then a threshold to be waited
/// out: with a half, about 1.5 times what a plain consumer group takes. With a fifth, as it once was, every join on Kafka made leaders lapse of
/// partitions that did not move: while members join, renewals wait for a heartbeat (a sixth of the session) and a retry.
const SHARE_OF_SESSION: u32 = 2;

/// The longest threshold by default where renewals are answered through joins: nothing that is normal takes so long, and the member that
/// comes after a crash waits for it. Sessions are long there (Kafka's consumer protocol: 45 s, by the broker's own setting).
const LONGEST_THRESHOLD: Duration = Duration::from_secs(3);

/// Signs in a threshold: one may be lost and another late.
const SIGNS_NON_EXCLUSIVE: u32 = 3;
/// Renewals in a threshold: one may be lost.
const SIGNS_EXCLUSIVE: u32 = 2;

impl Config {
    /// Member `me`, in this mode; everything else comes of what the ledger grants.
    pub fn new(me: MemberId, mode: Mode) -> Self {
        Config {
            me,
            mode,
            threshold: None,
            interval: None,
            grace: None,
            drain: None,
            rest: None,
            allowance_per_mille: 10,
            sharing: 1,
            roles: 1,
        }
    }

    /// For how long after the last proof a member leads (T). Default: twice the session in non-exclusive
    /// mode; in exclusive mode half of it, and 3 s at most where the ledger answers renewals while members join.
    #[must_use]
    pub fn with_threshold(mut self, threshold: Duration) -> Self {
        self.threshold = Some(threshold);
        self
    }

    /// Time between beats, or renewals. Default: an eighth of the threshold in non-exclusive mode, a
    /// quarter in exclusive mode.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// How long after an assignment a member does not lead yet, in exclusive mode, unless it knows that the term
    /// before its own is over (on a ledger that fences). Default: the threshold, and what clocks may drift.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How long work on a role that is revoked may take to end before the partition is released all the
    /// same. Default: half of what the ledger waits for.
    #[must_use]
    pub fn with_drain(mut self, drain: Duration) -> Self {
        self.drain = Some(drain);
        self
    }

    /// How long who resigns stays out of the group. Default: a session.
    #[must_use]
    pub fn with_rest(mut self, rest: Duration) -> Self {
        self.rest = Some(rest);
        self
    }

    /// By how many thousandths the rate of a clock may be off; default: 10.
    #[must_use]
    pub fn with_allowance(mut self, allowance_per_mille: u32) -> Self {
        self.allowance_per_mille = allowance_per_mille;
        self
    }

    /// How many groups publish to the same partitions; each then beats that much less often, as the paper
    /// recommends ("Topic reuse"). Default: 1.
    #[must_use]
    pub fn with_sharing(mut self, groups: u32) -> Self {
        self.sharing = groups;
        self
    }

    /// How many roles the group has, or hash slots: members that count differently do not lead beside each other. Default: 1.
    #[must_use]
    pub fn with_roles(mut self, roles: u32) -> Self {
        self.roles = roles;
        self
    }

    /// What this comes to on a ledger that grants so much.
    pub fn resolve(&self, grants: Grants) -> Result<LedgerPlan, Unfit> {
        if self.allowance_per_mille > 200 {
            return Err(Unfit::Allowance(self.allowance_per_mille));
        }
        if self.sharing == 0 {
            return Err(Unfit::NobodyShares);
        }
        let threshold = self.resolve_threshold(&grants)?;
        let interval = self.resolve_interval(threshold)?;
        let grace = self.resolve_grace(threshold)?;
        let drain = self.drain.unwrap_or(grants.barrier / 2);
        if drain > less(grants.barrier, self.allowance_per_mille) {
            return Err(Unfit::DrainTooLong { drain, barrier: grants.barrier });
        }
        let plan = LedgerPlan {
            me: self.me,
            mode: self.mode,
            grants,
            threshold,
            interval,
            grace,
            drain,
            rest: self.rest.unwrap_or(grants.session),
            allowance_per_mille: self.allowance_per_mille,
            roles: self.roles,
        };
        let times = [
            ("the session", grants.session),
            ("the time between heartbeats", grants.heartbeat),
            ("the time that the ledger waits for a release", grants.barrier),
            ("the threshold", threshold),
            ("the interval", interval),
            ("the time to drain", drain),
            ("the time of rest", plan.rest),
        ];
        match times.into_iter().find(|(_, time)| time.is_zero()) {
            Some((name, _)) => Err(Unfit::Zero(name)),
            None => Ok(plan),
        }
    }

    fn resolve_threshold(&self, grants: &Grants) -> Result<Duration, Unfit> {
        let share = match grants.session / SHARE_OF_SESSION {
            share if grants.renews_through_joins => share.min(LONGEST_THRESHOLD),
            share => share,
        };
        match (self.mode, grants.fenced) {
            (Mode::NonExclusive, _) => {
                let session = grants.session;
                let threshold = self.threshold.unwrap_or(session.saturating_mul(2));
                // By a slow clock at the ledger and a fast one here.
                if less(threshold, self.allowance_per_mille)
                    <= more(session, self.allowance_per_mille)
                {
                    return Err(Unfit::ThresholdNotAboveSession { threshold, session });
                }
                Ok(threshold)
            }
            (Mode::Exclusive, true) => Ok(self.threshold.unwrap_or(share)),
            (Mode::Exclusive, false) if grants.delivery == RecordDelivery::AssignedOnly => {
                Ok(self.threshold.unwrap_or(share))
            }
            (Mode::Exclusive, false) => Err(Unfit::CannotExclude),
        }
    }

    fn resolve_interval(&self, threshold: Duration) -> Result<Duration, Unfit> {
        let (share, times) = match self.mode {
            Mode::NonExclusive => (8, SIGNS_NON_EXCLUSIVE),
            Mode::Exclusive => (4, SIGNS_EXCLUSIVE),
        };
        let interval = self.interval.unwrap_or(threshold / share);
        let interval = match self.mode {
            Mode::NonExclusive => interval.saturating_mul(self.sharing),
            // Renewals are each group's own.
            Mode::Exclusive => interval,
        };
        if interval.saturating_mul(times) > threshold {
            return Err(Unfit::IntervalTooLong { interval, times, threshold });
        }
        Ok(interval)
    }

    fn resolve_grace(&self, threshold: Duration) -> Result<Duration, Unfit> {
        if self.mode == Mode::NonExclusive {
            return match self.grace {
                None => Ok(Duration::ZERO),
                Some(_) => Err(Unfit::GraceWithoutExclusion),
            };
        }
        // By a slow clock at the former leader and a fast one here.
        let shortest = more(more(threshold, self.allowance_per_mille), self.allowance_per_mille);
        let grace = self.grace.unwrap_or(shortest);
        if grace < shortest {
            return Err(Unfit::GraceTooShort { grace, shortest });
        }
        Ok(grace)
    }
}

fn less(duration: Duration, per_mille: u32) -> Duration {
    duration.saturating_mul(1000 - per_mille) / 1000
}

/// What a clock that is fast by the allowance shows for it, and a little more: 1 / (1 - mu) > 1 + mu.
pub(super) fn more(duration: Duration, per_mille: u32) -> Duration {
    duration.saturating_mul(1000) / (1000 - per_mille) + Duration::from_nanos(1)
}

impl LedgerPlan {
    /// This member.
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// What "leader" means.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What the ledger grants.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// For how long after the last proof a member leads (T).
    pub fn threshold(&self) -> Duration {
        self.threshold
    }

    /// Time between beats, or renewals.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// How long after an assignment a member does not lead yet, unless it knows that nobody else does.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// How long work may take to drain.
    pub fn drain(&self) -> Duration {
        self.drain
    }

    /// By how many thousandths the rate of a clock may be off.
    pub fn allowance_per_mille(&self) -> u32 {
        self.allowance_per_mille
    }

    /// What this member and all others of its group must have in common.
    pub fn agreement(&self) -> Agreement {
        let partitions = self.grants.partitions.get();
        Agreement { partitions, roles: self.roles, mode: self.mode }
    }

    /// Whether the ledger keeps marks, by which members see that others have another layout.
    pub(super) fn marks(&self) -> bool {
        self.grants.fenced
    }

    /// Whether renewals prove who leads.
    pub(super) fn renews(&self) -> bool {
        self.mode == Mode::Exclusive && self.grants.fenced
    }

    /// How long the ledger keeps a member of which it hears nothing, at least: as a clock shows it here that is fast, while the
    /// ledger's is slow.
    pub(super) fn session_at_least(&self) -> Duration {
        less(less(self.grants.session, self.allowance_per_mille), self.allowance_per_mille)
    }

    /// When a request is not waited for any longer: another must have its chance within the threshold.
    pub(super) fn patience(&self) -> Duration {
        self.threshold / 2
    }

    /// How long a member waits for an assignment before it says that the barrier is stuck.
    pub(super) fn stuck_after(&self) -> Duration {
        (self.grants.session + self.grants.barrier).saturating_mul(2)
    }

    /// Within how long after a leader's crash there is another for its roles, if ledger and network answer
    /// within `delay`, nobody holds the barrier up, and a member is there to take over.
    ///
    /// The ledger finds the silence; everyone learns of it with a heartbeat; then the partition is
    /// assigned. In exclusive mode it is claimed and confirmed, while the grace period passes; in
    /// non-exclusive mode a record has to come.
    pub fn fails_over_within(&self, delay: Duration) -> Duration {
        let assigned = more(self.grants.session, self.allowance_per_mille)
            + more(self.grants.heartbeat, self.allowance_per_mille)
            + delay.saturating_mul(4);
        match self.mode {
            Mode::NonExclusive => assigned + self.interval + delay.saturating_mul(4),
            Mode::Exclusive => {
                assigned
                    + self.grace.max(self.interval + delay.saturating_mul(8))
                    + self.interval * 2
            }
        }
    }

    /// The longest that a role is without a leader in non-exclusive mode after any one failure, if ledger and
    /// network otherwise answer within `delay`: a crash takes a session to be noticed, and a member that is
    /// cut off from a partition alone takes a threshold to give it back.
    pub fn gap_within(&self, delay: Duration) -> Duration {
        self.fails_over_within(delay) + self.threshold.saturating_sub(self.grants.session)
    }

    /// For how long a partition that is assigned may go without a proof before it is given back: a threshold, and at least a
    /// session. With a shorter one, a host that is busy for a moment would send everyone through the barrier, and stay out for
    /// longer than the proof would have taken. In exclusive mode it is both: while a barrier waits for a member that is dead, which it does for
    /// up to a session, a ledger may answer no renewals (Kafka takes one request of a connection at a time).
    pub fn dry_after(&self) -> Duration {
        match self.mode {
            Mode::NonExclusive => self.threshold.max(self.grants.session),
            Mode::Exclusive => self.threshold + self.grants.session,
        }
    }

    /// Within how long there is a leader again for every role, whatever happened before, once nothing
    /// more happens and ledger and network answer within `delay`.
    ///
    /// What is under way has to be given up first; members that are taken for dead find out, and join
    /// again; a barrier may have begun that waits for one that is gone; work drains; and a barrier
    /// that has ended may have to be followed by another, since partitions are given back first.
    pub fn recovers_within(&self, delay: Duration) -> Duration {
        let found_out =
            more(self.grants.session, self.allowance_per_mille) * 2 + self.grants.heartbeat * 2;
        let barriers = more(self.grants.barrier, self.allowance_per_mille)
            + self.drain * 2
            + self.rest * MAX_REST;
        let dry = self.grace + self.threshold + self.dry_after();
        found_out + dry + barriers + self.patience() * 2 + self.fails_over_within(delay) + delay * 8
    }
}

#[cfg(test)]
mod tests;
