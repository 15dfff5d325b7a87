//! What goes into a member and what comes out of it.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::detector::configurator::Infeasible;
use crate::detector::{Beat, Label};
use crate::identity::{Incarnation, MemberId};
use crate::machine;
use crate::time::WallTime;

/// What members send each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The sender leads.
    Heartbeat(Heartbeat),
    /// The sender led, and has given up: nobody need wait until it has been silent for long enough.
    Farewell {
        /// The sender's incarnation.
        lifetime: Incarnation,
        /// What its next heartbeat would have been labelled.
        label: Label,
    },
    /// The sender follows, and asks for heartbeats every so often. The only message of a follower, and seldom.
    Ask {
        /// How often (eta).
        interval: Duration,
    },
}

/// What a leader broadcasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's incarnation.
    pub lifetime: Incarnation,
    /// Label and interval.
    pub beat: Beat,
    /// How long the sender has led, as its [`Seniority`](super::Seniority) counts it.
    pub uptime: Duration,
    /// The sender's [`Config::priority`](super::Config::priority).
    pub priority: u8,
}

impl Heartbeat {
    /// What the sender's label read when its present reign began.
    pub(super) fn reign_began(&self) -> Option<Label> {
        let uptime = i64::try_from(self.uptime.as_nanos()).ok()?;
        Some(Label::from_nanos(self.beat.label.as_nanos().checked_sub(uptime)?))
    }
}

/// What a member keeps on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stable {
    /// When the member was started for the first time, by its own wall clock.
    pub zero: WallTime,
}

/// What a start needs from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// What was found on stable storage.
    pub stored: Option<Stable>,
    /// The wall clock at the start.
    pub wall: WallTime,
    /// A random number that no other incarnation of this member has.
    pub lifetime: Incarnation,
}

/// What the machine can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A message arrived.
    Received {
        /// Who sent it.
        from: MemberId,
        /// What it says.
        message: Message,
    },
    /// How long messages from a member take, on average, as far as the driver knows. Taken off the detection
    /// bound where the plan is kept current.
    Delay {
        /// The member.
        member: MemberId,
        /// One way.
        delay: Duration,
    },
    /// Give leadership up, and leave it to the others for a while.
    Resign,
    /// Use other parameters from now on. Parameters that make no sense (an interval of zero, or
    /// not below `detect`) are ignored.
    Replan {
        /// Time between heartbeats (eta).
        interval: Duration,
        /// Detection bound (eta + alpha).
        detect: Duration,
    },
}

/// What the application is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The output changed.
    LeaderChanged {
        /// The leader now; `None` while listening.
        leader: Option<MemberId>,
        /// The rule by which it changed.
        reason: Reason,
    },
    /// The leader crashed and came back before anyone suspected it.
    LeaderRestarted {
        /// The leader.
        leader: MemberId,
    },
    /// The leader beats too seldom for our detection bound: a crash of it will be noticed late.
    /// Its interval and ours should be the same.
    LeaderTooSlow {
        /// The leader.
        leader: MemberId,
        /// Its interval.
        interval: Duration,
    },
    /// The quality of detection that is wanted cannot be had on the link from the leader as it is now.
    Unachievable {
        /// The leader.
        leader: MemberId,
        /// Why not.
        reason: Infeasible,
    },
    /// The wall clock reads less than when the member was first started.
    ClockBehind {
        /// By how much.
        by: Duration,
    },
    /// Another process uses our id.
    DuplicateId {
        /// Its incarnation.
        lifetime: Incarnation,
    },
}

/// Why the output changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A leader was heard, where none was known.
    Heard,
    /// No leader was heard for the time that a newcomer listens.
    NoneHeard,
    /// The leader fell silent.
    Silence,
    /// A leader with the longer reign (or, of equals, the higher id) was heard.
    Seniority,
    /// Our priority is higher than the leader's, or the other's is higher than ours.
    Priority,
    /// The leader gave up, or we did.
    Resigned,
    /// We led, and could not send for so long that the others must have given us up.
    Stalled,
}

/// What the machine asks for.
pub type Effect = machine::Effect<Message, Stable, Event>;
