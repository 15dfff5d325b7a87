//! How a member is set up.

use core::time::Duration;

use super::Seniority;
use crate::detector::configurator::{Bounds, InvalidRequest, Plan};
use crate::detector::nfd_e::DEFAULT_WINDOW;
use crate::detector::planner::Wanted;
use crate::identity::MemberId;

/// A member's configuration; valid by construction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    id: MemberId,
    interval: Duration,
    detect: Duration,
    window: usize,
    priority: u8,
    seniority: Seniority,
    max_peers: usize,
    wanted: Option<Wanted>,
}

/// Why a configuration was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum InvalidConfig {
    /// Heartbeats without time between them.
    #[error("the interval between heartbeats must be longer than zero")]
    ZeroInterval,
    /// No margin left.
    #[error("the interval ({interval:?}) must be shorter than the detection time ({detect:?})")]
    NoMargin {
        /// Time between heartbeats.
        interval: Duration,
        /// Detection bound.
        detect: Duration,
    },
    /// A bound on mistakes that makes no sense.
    #[error(transparent)]
    Mistakes(InvalidRequest),
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
}

impl Config {
    /// Member `id`, beating every `interval` (eta) when it leads, and suspecting a leader
    /// `detect` (eta + alpha, T_D) after its last heartbeat was expected.
    ///
    /// `interval` must be longer than zero and shorter than `detect`. All members of a group
    /// should use the same.
    pub fn new(id: MemberId, interval: Duration, detect: Duration) -> Result<Self, InvalidConfig> {
        let mut config = Config {
            id,
            interval: Duration::from_millis(1),
            detect: Duration::from_millis(2),
            window: DEFAULT_WINDOW,
            priority: 0,
            seniority: Seniority::default(),
            max_peers: 1024,
            wanted: None,
        };
        config.replan(interval, detect)?;
        Ok(config)
    }

    /// The same from a plan of the configurator.
    pub fn from_plan(id: MemberId, plan: &Plan) -> Result<Self, InvalidConfig> {
        Config::new(id, plan.interval, plan.detect())
    }

    /// How many arrivals NFD-E averages; default 32, at least 1.
    #[must_use]
    pub fn with_window(mut self, window: usize) -> Self {
        self.window = window.max(1);
        self
    }

    /// A member of higher priority unseats a leader of lower, however senior; default 0 for all.
    /// Unequal priorities trade stability for preference: a preferred member that comes back
    /// takes over at once.
    #[must_use]
    pub fn with_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// How uptimes are compared; the default is the sound way.
    #[must_use]
    pub fn with_seniority(mut self, seniority: Seniority) -> Self {
        self.seniority = seniority;
        self
    }

    /// How many other members are remembered at most; default 1024, at least 2. Each takes about
    /// 900 bytes once it has led for a while, and nothing if it never led.
    #[must_use]
    pub fn with_max_peers(mut self, max_peers: usize) -> Self {
        self.max_peers = max_peers.max(2);
        self
    }

    /// Keeps the interval between heartbeats current: every member measures the link from its leader and asks
    /// for the largest interval with which it errs at most once per `every` (T_MR), for at most `lasts` (T_M),
    /// and still notices a crash within the detection time; never for less than `min_interval`. The same for all
    /// members.
    pub fn with_mistakes(
        mut self,
        every: Duration,
        lasts: Duration,
        min_interval: Duration,
    ) -> Result<Self, InvalidConfig> {
        let bounds = Bounds::new(self.detect, every, lasts).map_err(InvalidConfig::Mistakes)?;
        let interval = self.interval;
        if min_interval > interval {
            return Err(InvalidConfig::MinInterval { min_interval, interval });
        }
        self.wanted = Some(Wanted { bounds, min_interval });
        Ok(self)
    }

    pub(super) fn replan(
        &mut self,
        interval: Duration,
        detect: Duration,
    ) -> Result<(), InvalidConfig> {
        if interval.is_zero() {
            return Err(InvalidConfig::ZeroInterval);
        }
        if interval >= detect {
            return Err(InvalidConfig::NoMargin { interval, detect });
        }
        self.interval = interval;
        self.detect = detect;
        Ok(())
    }

    /// This member.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// Time between heartbeats (eta).
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

    /// How many arrivals are averaged.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Its priority.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// How uptimes are compared.
    pub fn seniority(&self) -> Seniority {
        self.seniority
    }

    /// How many other members are remembered at most.
    pub fn max_peers(&self) -> usize {
        self.max_peers
    }
}
