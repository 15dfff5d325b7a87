//! How a member is set up.

use core::time::Duration;

use super::request_slot::{MAX_PATIENCE, MAX_PAUSE};
use super::statement::{MAX_SUCCESSORS, Published};
use crate::identity::MemberId;
use crate::oracle::{Oracle, Preference};
use crate::value::Value;

/// The most members of a group: what a leader remembers is bounded by it (about 100 bytes a member).
pub const MAX_MEMBERS: usize = 20_000;

/// The most roles of a group.
pub const MAX_ROLES: u32 = 100_000;

/// The shortest round.
pub const MIN_ROUND: Duration = Duration::from_millis(8);

/// No lease is longer: a row that says so is not believed, so that a wrong number cannot block a group.
pub const MAX_LEASE: Duration = Duration::from_secs(86_400);

/// What a leader may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SqlGuarantee {
    /// One leader per term: a resource that checks terms is safe. Nothing is assumed of time.
    Fenced,
    /// Besides, at any instant at most one member's mandate holds. Assumed: steady clocks that count
    /// suspension and whose rates are off by less than the drift allowance.
    Leased,
}

/// How a member takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// It is in the group, and may lead.
    Candidate,
    /// It only reads the control row, never contends, and nobody knows of it.
    Observer,
    /// It contends for one role of a group that this process is in: the part that keeps the process in the
    /// group tells it under which incarnation. It neither beats nor sweeps.
    Role,
}

/// A member's configuration; valid by construction. Rounds, leases and allowances may differ: leaders publish what binds
/// others. The guarantee may not: a member with another one than the leader's neither joins nor takes over from a living
/// leader, and says so ([`Event::Differs`](super::Event::Differs)).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub(super) me: MemberId,
    pub(super) part: Part,
    pub(super) guarantee: SqlGuarantee,
    pub(super) round: Duration,
    pub(super) max_round: Duration,
    pub(super) step: Duration,
    pub(super) calm_rounds: u32,
    pub(super) renewals: u32,
    pub(super) lease_per_mille: u32,
    pub(super) missed: u32,
    pub(super) allowance_per_mille: u32,
    pub(super) timeout: Duration,
    pub(super) threshold: f64,
    pub(super) roles: u32,
    pub(super) oracle: Oracle,
    pub(super) preference: Preference,
    pub(super) value: Option<Value>,
}

/// Why a configuration was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum InvalidConfig {
    /// A round nobody can keep, or that may not grow to what it is.
    #[error(
        "rounds must be at least {MIN_ROUND:?} and at most the longest round, not {round:?} of {max:?}"
    )]
    Round {
        /// The round.
        round: Duration,
        /// The longest.
        max: Duration,
    },
    /// A lease that is over before it can be renewed.
    #[error(
        "a lease of {lease_per_mille} thousandths of a round is too short for {renewals} renewals a round: \
         it must last for two renewals, and for a round"
    )]
    ShortLease {
        /// The lease.
        lease_per_mille: u32,
        /// Renewals in a round.
        renewals: u32,
    },
    /// A lease that blocks a group for too long.
    #[error("the longest round makes a lease of {0:?}; the longest is {MAX_LEASE:?}")]
    LongLease(Duration),
    /// Neither none nor too many.
    #[error("the number of renewals a round must be from 1 to 100, not {0}")]
    Renewals(u32),
    /// Nobody would stay.
    #[error("members must be allowed to miss from 1 to 1000 rounds, not {0}")]
    Missed(u32),
    /// A drift allowance that leaves nothing of the lease.
    #[error("the drift allowance must be at most 200 parts of a thousand, not {0}")]
    Allowance(u32),
    /// A round that cannot change.
    #[error("the round must grow by more than nothing")]
    NoStep,
    /// Statements that are given up before they are sent.
    #[error("the time allowed for a statement must be more than nothing")]
    NoTimeout,
    /// A threshold that cannot be compared with.
    #[error("the threshold between scores must be a finite share, zero or more")]
    Threshold,
    /// Too many roles.
    #[error("a group has at most {MAX_ROLES} roles, not {0}")]
    TooManyRoles(u32),
}

impl Config {
    /// Member `me` of a group whose members beat once a `round` (T_p).
    ///
    /// Unless told otherwise: `Leased`; four renewals a round and a lease of one and a quarter rounds, so
    /// that a dead leader is replaced within that; members may miss 2 rounds (Max_mhb); 1 % for drift
    /// (mu); rounds grow by a fortieth, up to eightfold, and shrink after 30 calm ones.
    pub fn new(me: MemberId, round: Duration) -> Result<Self, InvalidConfig> {
        Config {
            me,
            part: Part::Candidate,
            guarantee: SqlGuarantee::Leased,
            round,
            max_round: round.saturating_mul(8),
            step: round / 40,
            calm_rounds: 30,
            renewals: 4,
            lease_per_mille: 1250,
            missed: 2,
            allowance_per_mille: 10,
            timeout: round,
            threshold: 0.1,
            roles: 0,
            oracle: Oracle::constant(),
            preference: Preference::default(),
            value: None,
        }
        .checked()
    }

    /// For a database beside its clients: rounds of 100 ms, a lease of 125 ms.
    pub fn lan(me: MemberId) -> Self {
        let round = Duration::from_millis(100);
        Config::new(me, round).expect("a round of 100 ms is valid")
    }

    /// The paper's evaluation (section 6): rounds of 2 s, two of which may be missed, growing by 50 ms. With
    /// a lease of 2.3 s, a dead leader is replaced in 2.4 s as a rule, where the paper takes 5.
    pub fn paper(me: MemberId) -> Self {
        let round = Duration::from_secs(2);
        let config = Config::new(me, round).and_then(|config| config.with_lease(4, 1150));
        config.expect("a round of 2 s is valid")
    }

    /// The same for another member.
    #[must_use]
    pub fn with_me(mut self, me: MemberId) -> Self {
        self.me = me;
        self
    }

    /// How it takes part; default: as a candidate.
    #[must_use]
    pub fn with_part(mut self, part: Part) -> Self {
        self.part = part;
        self
    }

    /// What leaders may rely on; default: [`SqlGuarantee::Leased`].
    #[must_use]
    pub fn with_guarantee(mut self, guarantee: SqlGuarantee) -> Self {
        self.guarantee = guarantee;
        self
    }

    /// How far and in which steps (Delta) rounds grow under contention, and after how many calm rounds
    /// they shrink by a step; default: eightfold, a fortieth, 30.
    pub fn with_growth(
        mut self,
        max_round: Duration,
        step: Duration,
        calm_rounds: u32,
    ) -> Result<Self, InvalidConfig> {
        self.max_round = max_round;
        self.step = step;
        self.calm_rounds = calm_rounds;
        self.checked()
    }

    /// How often a leader renews in a round, and how long its lease is, in thousandths of a round;
    /// default: 4, and 1250.
    pub fn with_lease(
        mut self,
        renewals: u32,
        lease_per_mille: u32,
    ) -> Result<Self, InvalidConfig> {
        self.renewals = renewals;
        self.lease_per_mille = lease_per_mille;
        self.checked()
    }

    /// How many rounds a member may miss before it is evicted (Max_mhb); default: 2.
    pub fn with_missed(mut self, missed: u32) -> Result<Self, InvalidConfig> {
        self.missed = missed;
        self.checked()
    }

    /// By how many thousandths the rate of a clock may be off (mu, as a share); default: 10.
    pub fn with_allowance(mut self, allowance_per_mille: u32) -> Result<Self, InvalidConfig> {
        self.allowance_per_mille = allowance_per_mille;
        self.checked()
    }

    /// How long a statement may take before its outcome is called unknown; it doubles with each that
    /// fails, up to fourfold. Default: a round.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self, InvalidConfig> {
        self.timeout = timeout;
        self.checked()
    }

    /// By which share another's score must be better for it to be preferred to one that is a successor
    /// already; default: a tenth.
    pub fn with_threshold(mut self, threshold: f64) -> Result<Self, InvalidConfig> {
        self.threshold = threshold;
        self.checked()
    }

    /// How many roles the group's leader spreads over the living members; default: none.
    pub fn with_roles(mut self, roles: u32) -> Result<Self, InvalidConfig> {
        self.roles = roles;
        self.checked()
    }

    /// How members score themselves, by what the application tells them: history, requests, a score of
    /// its own, preference. (Nobody measures round trips on a database.) Default: all alike.
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

    fn checked(self) -> Result<Self, InvalidConfig> {
        let Config { round, max_round: max, lease_per_mille, renewals, .. } = self;
        if round < MIN_ROUND || max < round {
            return Err(InvalidConfig::Round { round, max });
        }
        if !(1..=100).contains(&renewals) {
            return Err(InvalidConfig::Renewals(renewals));
        }
        if lease_per_mille < 1000 || lease_per_mille.saturating_mul(renewals) < 2000 {
            return Err(InvalidConfig::ShortLease { lease_per_mille, renewals });
        }
        if self.lease(max) > MAX_LEASE {
            return Err(InvalidConfig::LongLease(self.lease(max)));
        }
        if !(1..=1000).contains(&self.missed) {
            return Err(InvalidConfig::Missed(self.missed));
        }
        if self.allowance_per_mille > 200 {
            return Err(InvalidConfig::Allowance(self.allowance_per_mille));
        }
        if self.step.is_zero() {
            return Err(InvalidConfig::NoStep);
        }
        if self.timeout.is_zero() {
            return Err(InvalidConfig::NoTimeout);
        }
        if !(self.threshold.is_finite() && self.threshold >= 0.0) {
            return Err(InvalidConfig::Threshold);
        }
        if self.roles > MAX_ROLES {
            return Err(InvalidConfig::TooManyRoles(self.roles));
        }
        Ok(self)
    }

    /// This member.
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// How it takes part.
    pub fn part(&self) -> Part {
        self.part
    }

    /// Whether the operator lets it lead.
    pub fn may_lead(&self) -> bool {
        self.part != Part::Observer && self.preference != Preference::Never
    }

    /// What leaders may rely on.
    pub fn guarantee(&self) -> SqlGuarantee {
        self.guarantee
    }

    /// How members score themselves.
    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// Time between heartbeats while there is no contention.
    pub fn round(&self) -> Duration {
        self.round
    }

    /// The lease that goes with a round.
    pub fn lease(&self, round: Duration) -> Duration {
        round.saturating_mul(self.lease_per_mille) / 1000
    }

    /// What a new control row says.
    pub fn first(&self) -> Published {
        let (round, lease) = (self.round, self.lease(self.round));
        Published { successors: Default::default(), round, lease, guarantee: self.guarantee }
    }

    /// The longest lease that a leader with this configuration publishes.
    pub fn longest_lease(&self) -> Duration {
        self.lease(self.max_round)
    }

    /// Time between renewals in a round of this length, between the looks of successors, and between
    /// their turns half of it.
    pub fn renew_every(&self, round: Duration) -> Duration {
        round / self.renewals
    }

    /// What a leader counts on of a lease, by its own clock, from before it asked for it.
    pub fn sure(&self, lease: Duration) -> Duration {
        lease.saturating_mul(1000 - self.allowance_per_mille) / 1000
    }

    /// How long others wait for a lease to run out, by their own clocks, from when they had seen it.
    pub fn wait(&self, lease: Duration) -> Duration {
        lease.saturating_mul(1000 + self.allowance_per_mille) / 1000 + Duration::from_nanos(1)
    }

    /// Time between the turns of two successors: half of what a leader has between renewals.
    pub(super) fn stagger(&self, round: Duration) -> Duration {
        self.renew_every(round) / 2
    }

    /// How long it takes until even the last has had its turn.
    pub fn turns(&self, round: Duration) -> Duration {
        self.stagger(round).saturating_mul(MAX_SUCCESSORS as u32 + 1) + round
    }

    /// The shortest pause after a statement that failed.
    pub(super) fn pause(&self, round: Duration) -> Duration {
        self.renew_every(round) / 4
    }

    /// Within how long there is a leader, once the database answers within `delay` (a quarter of a
    /// renewal's time at most), and some candidate neither crashes nor is late by more than that; at
    /// whatever round the group has come to, up to `round`.
    ///
    /// First whatever is under way has to be given up, and be tried again after a pause; then the lease
    /// is waited out from a look, a round later at most; then everyone has a turn. A takeover may come to
    /// nothing once: a last statement of the leader before may have been under way. (After a control row was lost or
    /// went back, the [longest lease](Config::longest_lease) comes before all this.)
    pub fn recovers_within(&self, round: Duration, delay: Duration) -> Duration {
        let given_up = self.timeout.saturating_mul(MAX_PATIENCE) * 2
            + self.pause(round).saturating_mul(MAX_PAUSE) * 2;
        let taken = self.wait(self.lease(round)) + round + self.turns(round);
        given_up + (taken + delay.saturating_mul(6)).saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const ME: MemberId = MemberId::new(1);

    #[test]
    fn presets_are_the_papers_and_a_fast_one() {
        let paper = Config::paper(ME);
        assert_eq!((paper.round, paper.missed), (Duration::from_secs(2), 2), "section 6");
        assert_eq!(paper.step, Duration::from_millis(50), "section 6: Delta");
        assert_eq!(paper.lease(paper.round), Duration::from_millis(2300));
        assert_eq!(Config::lan(ME).lease(Config::lan(ME).round), Duration::from_millis(125));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        let error = |config: Result<Config, InvalidConfig>| config.unwrap_err().to_string();
        let lan = || Config::lan(ME);
        assert!(error(Config::new(ME, Duration::from_millis(1))).contains("at least 8ms"));
        assert!(error(lan().with_lease(1, 1500)).contains("two renewals"));
        assert!(error(lan().with_lease(0, 1500)).contains("from 1 to 100"));
        assert!(error(lan().with_allowance(300)).contains("200 parts"));
        assert!(error(lan().with_missed(0)).contains("miss"));
        assert!(error(lan().with_roles(1_000_000)).contains("roles"));
        assert!(error(lan().with_threshold(f64::NAN)).contains("finite"));
        assert!(error(lan().with_timeout(Duration::ZERO)).contains("statement"));
        let growth = |max, step| lan().with_growth(max, step, 1);
        assert!(error(growth(Duration::from_millis(50), MIN_ROUND)).contains("longest round"));
        assert!(error(growth(MAX_LEASE, MIN_ROUND)).contains("longest is"));
        assert!(error(growth(Duration::from_secs(1), Duration::ZERO)).contains("grow"));
    }

    #[test]
    fn a_leader_counts_on_less_than_a_lease_and_others_wait_for_more() {
        let config = Config::lan(ME);
        let lease = Duration::from_secs(1);
        assert_eq!(config.sure(lease), Duration::from_millis(990));
        assert!(config.wait(lease) > Duration::from_millis(1010));
    }
}
