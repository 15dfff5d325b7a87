//! How a member is set up.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::moves::Moves;
use crate::detector::configurator::{Bounds, InvalidRequest, Plan};
use crate::detector::planner::Wanted;
use crate::identity::MemberId;
use crate::oracle::{Oracle, Preference};
use crate::pole::installation::{
    self, Boot, ConfigId, Contact, MAX_LEASE, MAX_MEMBERS, PeerGuarantee, Roster, Safeguard,
};
use crate::pole::selection::{self, Rules};
use crate::value::Value;
use crate::wire;

/// The least time between heartbeats, pings or reviews, and the least election timeout.
pub const MIN_TIME: Duration = Duration::from_millis(1);

/// No time in a configuration is longer.
pub const MAX_TIME: Duration = MAX_LEASE;

/// A member's configuration; valid by construction.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub(super) me: MemberId,
    pub(super) members: Vec<MemberId>,
    pub(super) contacts: BTreeMap<MemberId, Contact>,
    pub(super) interval: Duration,
    pub(super) detect: Duration,
    pub(super) timeout: Duration,
    pub(super) ping_every: Duration,
    pub(super) first_wait: Duration,
    pub(super) guarantee: PeerGuarantee,
    pub(super) oracle: Oracle,
    pub(super) preference: Preference,
    pub(super) rules: Rules,
    pub(super) moves: Option<Moves>,
    pub(super) wanted: Option<Wanted>,
    pub(super) value: Option<Value>,
    /// The newest version of the protocol that it speaks.
    pub(super) speaks: u32,
    pub(super) without: Option<Safeguard>,
}

/// Why a configuration was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum InvalidConfig {
    /// No margin left.
    #[error("the interval ({interval:?}) must be shorter than the detection time ({detect:?})")]
    NoMargin {
        /// Time between heartbeats.
        interval: Duration,
        /// Detection bound.
        detect: Duration,
    },
    /// The plan could never ask for what is used first.
    #[error(
        "the least interval ({min_interval:?}) must not be longer than the first ({interval:?})"
    )]
    MinInterval {
        /// The least.
        min_interval: Duration,
        /// The first.
        interval: Duration,
    },
    /// It would be busy with nothing else.
    #[error("{0} must be at least {MIN_TIME:?}")]
    TooShort(&'static str),
    /// It would not end.
    #[error("{0} must be at most {MAX_TIME:?}")]
    TooLong(&'static str),
    /// Too many members.
    #[error("a group has at most {MAX_MEMBERS} members, not {0}")]
    TooManyMembers(usize),
    /// A lease that nobody would grant.
    #[error("a lease is longer than zero and at most {MAX_LEASE:?}, not {0:?}")]
    Lease(Duration),
    /// A drift allowance that leaves nothing of the lease.
    #[error("the drift allowance must be below 1000 parts of a thousand, not {0}")]
    Allowance(u16),
    /// A bound on mistakes that makes no sense.
    #[error(transparent)]
    Mistakes(InvalidRequest),
    /// A threshold that cannot be compared with.
    #[error("the threshold for moves must be a finite share, zero or more")]
    Threshold,
    /// A version that this release does not speak.
    #[error(
        "protocol {newest} is not spoken by this release, which speaks {} to {}",
        wire::OLDEST,
        wire::VERSION
    )]
    Protocol {
        /// It.
        newest: u32,
    },
}

impl Config {
    /// Member `me` of a group of `members` (itself included or not), with heartbeats every
    /// `interval` (eta) and a leader's crash noticed within `detect` (eta + alpha, T_D).
    ///
    /// Unless told otherwise: leases as long as the detection time, which so cost nothing when a
    /// leader crashes; elections by the constant oracle; scores do not move a leader.
    pub fn new(
        me: MemberId,
        members: impl IntoIterator<Item = MemberId>,
        interval: Duration,
        detect: Duration,
    ) -> Result<Self, InvalidConfig> {
        let mut members: Vec<_> = members.into_iter().chain([me]).collect();
        members.sort_unstable();
        members.dedup();
        if members.len() > MAX_MEMBERS {
            return Err(InvalidConfig::TooManyMembers(members.len()));
        }
        let mut config = Config {
            me,
            members,
            contacts: BTreeMap::new(),
            interval,
            detect,
            timeout: detect,
            ping_every: interval,
            first_wait: detect.saturating_mul(4).min(MAX_TIME),
            guarantee: PeerGuarantee::Leased { lease: detect, allowance_per_mille: 10 },
            oracle: Oracle::constant(),
            preference: Preference::default(),
            rules: Rules::default(),
            moves: None,
            wanted: None,
            value: None,
            speaks: wire::VERSION,
            without: None,
        };
        config.replan(interval, detect)?;
        Ok(config)
    }

    /// The same from a plan of the configurator.
    pub fn from_plan(
        me: MemberId,
        members: impl IntoIterator<Item = MemberId>,
        plan: &Plan,
    ) -> Result<Self, InvalidConfig> {
        Config::new(me, members, plan.interval, plan.detect())
    }

    /// How long an election waits for members that neither propose nor are suspected (T), and how
    /// long before it is tried again; longer than a round trip usually takes. Default: the
    /// detection time.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self, InvalidConfig> {
        self.timeout = checked(timeout, "the election timeout")?;
        Ok(self)
    }

    /// How often the others are pinged, for round trips and for who answers; default: the interval.
    pub fn with_ping_every(mut self, every: Duration) -> Result<Self, InvalidConfig> {
        self.ping_every = checked(every, "the time between pings")?;
        Ok(self)
    }

    /// How long the first election waits at most for scores; default: four detection times.
    pub fn with_first_wait(mut self, first_wait: Duration) -> Result<Self, InvalidConfig> {
        self.first_wait = checked(first_wait, "the wait of the first election")?;
        Ok(self)
    }

    /// What leaders may rely on.
    pub fn with_guarantee(mut self, guarantee: PeerGuarantee) -> Result<Self, InvalidConfig> {
        if let PeerGuarantee::Leased { lease, allowance_per_mille } = guarantee {
            if lease.is_zero() || lease > MAX_LEASE {
                return Err(InvalidConfig::Lease(lease));
            }
            if allowance_per_mille >= 1000 {
                return Err(InvalidConfig::Allowance(allowance_per_mille));
            }
        }
        self.guarantee = guarantee;
        Ok(self)
    }

    /// How candidates are scored; the same for all members.
    #[must_use]
    pub fn with_oracle(mut self, oracle: Oracle) -> Self {
        self.oracle = oracle;
        self
    }

    /// What the operator thinks of this member as a leader.
    #[must_use]
    pub fn with_preference(mut self, preference: Preference) -> Self {
        self.preference = preference;
        self
    }

    /// Improvements over the paper; default: all.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Lets scores move a leader that is well.
    pub fn with_moves(mut self, moves: Moves) -> Result<Self, InvalidConfig> {
        checked(moves.every, "the time between reviews")?;
        checked(moves.tenure.max(MIN_TIME), "the tenure")?;
        if !(moves.threshold.is_finite() && moves.threshold >= 0.0) {
            return Err(InvalidConfig::Threshold);
        }
        self.moves = Some(moves);
        Ok(self)
    }

    /// Keeps the interval between heartbeats current: every member measures the link from its leader and asks
    /// for the largest interval with which it errs at most once per `every` (T_MR), for at most `lasts` (T_M),
    /// and still notices a crash within the detection time; never for less than `min_interval`. The interval of
    /// this configuration is used until links are measured. The same for all members.
    pub fn with_mistakes(
        mut self,
        every: Duration,
        lasts: Duration,
        min_interval: Duration,
    ) -> Result<Self, InvalidConfig> {
        let bounds = Bounds::new(self.detect, every, lasts).map_err(InvalidConfig::Mistakes)?;
        let min_interval = checked(min_interval, "the least interval between heartbeats")?;
        if min_interval > self.interval {
            let interval = self.interval;
            return Err(InvalidConfig::MinInterval { min_interval, interval });
        }
        self.wanted = Some(Wanted { bounds, min_interval });
        Ok(self)
    }

    /// Where members are found, and under which names: what the group's list says of them once it is changed.
    #[must_use]
    pub fn with_contacts(
        mut self,
        contacts: impl IntoIterator<Item = (MemberId, Contact)>,
    ) -> Self {
        self.contacts = contacts.into_iter().collect();
        self
    }

    /// Where members are found, as far as this one was told.
    pub fn contacts(&self) -> &BTreeMap<MemberId, Contact> {
        &self.contacts
    }

    /// The list that a member goes by that starts from this: what is on its disk, or none if it is to be added, or the
    /// members that the group is set up with.
    pub fn first_roster(&self, boot: &Boot) -> Roster {
        boot.roster(&self.installation())
    }

    /// Speaks no newer version of the protocol than this, so that members of an older release can take this one's place: what began
    /// after that version does not begin while such a member is in the group.
    pub fn with_protocol(mut self, newest: u32) -> Result<Self, InvalidConfig> {
        if !(wire::OLDEST..=wire::VERSION).contains(&newest) {
            return Err(InvalidConfig::Protocol { newest });
        }
        self.speaks = newest;
        Ok(self)
    }

    /// The newest version of the protocol that this member speaks.
    pub fn speaks(&self) -> u32 {
        self.speaks
    }

    /// Publishes this with every term of this member, from its first moment on.
    #[must_use]
    pub fn with_value(mut self, value: Option<Value>) -> Self {
        self.value = value;
        self
    }

    /// What is published with every term of this member.
    pub fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    /// Leaves a rule out, so that a harness can show that it notices. Never in a real member.
    #[must_use]
    pub fn without(mut self, safeguard: Option<Safeguard>) -> Self {
        self.without = safeguard;
        self
    }

    /// What all members must have alike, in a group that was never changed: the list of members, and the guarantee.
    pub fn seed_id(&self) -> ConfigId {
        ConfigId::of(&self.members, self.guarantee)
    }

    pub(super) fn replan(
        &mut self,
        interval: Duration,
        detect: Duration,
    ) -> Result<(), InvalidConfig> {
        checked(interval, "the interval between heartbeats")?;
        checked(detect, "the detection time")?;
        if interval >= detect {
            return Err(InvalidConfig::NoMargin { interval, detect });
        }
        self.interval = interval;
        self.detect = detect;
        Ok(())
    }

    /// This member.
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// All members that the group is set up with, in order.
    pub fn members(&self) -> &[MemberId] {
        &self.members
    }

    /// What leaders may rely on.
    pub fn guarantee(&self) -> PeerGuarantee {
        self.guarantee
    }

    /// How candidates are scored.
    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// What the operator thinks of this member as a leader.
    pub fn preference(&self) -> Preference {
        self.preference
    }

    /// Which improvements over the paper are in force.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Time between heartbeats (eta), until links are measured.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Detection bound (eta + alpha, T_D).
    pub fn detect(&self) -> Duration {
        self.detect
    }

    /// What quality of detection is wanted, if the plan is to be kept current.
    pub fn wanted(&self) -> Option<&Wanted> {
        self.wanted.as_ref()
    }

    /// Whether scores move a leader, and when.
    pub fn moves(&self) -> Option<Moves> {
        self.moves
    }

    /// How long a member that has selected another waits for it to hold a mandate: the member that was
    /// selected may have to wait for a lease to run out before it can even claim.
    pub fn patience(&self) -> Duration {
        let lease = self.guarantee.lease();
        lease + lease / 16 + self.timeout.saturating_mul(2)
    }

    /// Within how long there is a leader, once some member exchanges messages with a quorum within
    /// `delay` each way, and processes neither crash nor are late by more than that.
    ///
    /// The leader before must be noticed to be gone, and who is out of reach to be so; then up to
    /// three selections in succession may name one that does not come to lead.
    pub fn recovers_within(&self, delay: Duration) -> Duration {
        let noticed = self.detect.max(self.answers_within()) + self.first_wait;
        noticed + (self.patience() + self.timeout + delay.saturating_mul(8)).saturating_mul(3)
    }

    /// How long it takes from the crash of a leader until another leads, in a group that is well, where messages take up to
    /// `delay`, writes and wake-ups included: its silence must be noticed and its lease be over, then everyone that is
    /// not suspected proposes, and a quorum promises.
    pub fn fails_over_within(&self, delay: Duration) -> Duration {
        let lease = self.guarantee.lease();
        self.detect.max(lease + lease / 16) + delay.saturating_mul(8)
    }

    /// How long a member that does not answer pings is still taken for one that does: two may be
    /// lost, and the answer to a third be under way.
    pub fn answers_within(&self) -> Duration {
        self.ping_every.saturating_mul(2) + self.timeout
    }

    pub(super) fn selection(&self) -> selection::Config {
        selection::Config {
            me: self.me,
            members: self.members.clone(),
            timeout: self.timeout,
            rules: self.rules,
        }
    }

    pub(super) fn installation(&self) -> installation::Config {
        installation::Config {
            me: self.me,
            members: self.members.clone(),
            contacts: self.contacts.clone(),
            guarantee: self.guarantee,
            retry: self.interval.min(self.timeout),
            give_up: self.timeout.saturating_mul(2),
            without: self.without,
        }
    }
}

fn checked(duration: Duration, name: &'static str) -> Result<Duration, InvalidConfig> {
    if duration < MIN_TIME {
        Err(InvalidConfig::TooShort(name))
    } else if duration > MAX_TIME {
        Err(InvalidConfig::TooLong(name))
    } else {
        Ok(duration)
    }
}
