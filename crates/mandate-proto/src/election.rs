//! What no engine owns: who leads, what leaders rely on, what an application says of its member, and the few inputs
//! that the handle of any election needs of any protocol.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::{MemberId, Term};
use crate::machine::Machine;
use crate::oracle::{Measured, NoScore};
use crate::pole::installation::{MemberChange, NoChange};
use crate::pole::member::{LeaderAnswer, LeaderRequest, LeaderRequestId};
use crate::score::Score;
use crate::time::Instant;
use crate::value::{NoPublish, Value};

/// What a member knows of who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody, as far as it knows.
    Electing,
    /// Another.
    Following {
        /// The leader that it follows.
        leader: MemberId,
        /// In which term.
        term: Term,
    },
    /// Itself. Whether it still does at a given instant is [`Elector::held`]'s to say.
    Leading {
        /// In which term.
        term: Term,
    },
}

/// What leaders rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guarantee {
    /// At least one leader, eventually one. There is no term to fence with.
    Overlap,
    /// One leader per term, without any assumption on time: a system that refuses lower terms is safe.
    Fenced,
    /// Besides, at any instant at most one mandate holds, given clocks whose rates differ by no more than the drift
    /// allowance.
    Leased {
        /// How long a lease lasts.
        lease: Duration,
    },
}

impl Guarantee {
    /// How long a lease lasts, with leases.
    pub fn lease(self) -> Option<Duration> {
        match self {
            Guarantee::Leased { lease } => Some(lease),
            Guarantee::Overlap | Guarantee::Fenced => None,
        }
    }
}

/// What a member holds: the term under which it leads, and until when it is sure of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The fencing token; zero under [`Guarantee::Overlap`].
    pub term: Term,
    /// What tells apart two reigns where terms do not; the origin where they do.
    pub began: Instant,
    /// Until when it is sure; `None` without leases.
    pub until: Option<Instant>,
}

impl Lease {
    /// Of a protocol whose terms tell reigns apart.
    pub const fn of_term(term: Term, until: Option<Instant>) -> Self {
        Lease { term, began: Instant::ORIGIN, until }
    }
}

/// A role of the group, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleId(u32);

impl RoleId {
    /// The role with this number.
    pub const fn new(number: u32) -> Self {
        RoleId(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What the application knows of a member and an oracle may want to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// The position of its log.
    pub history: Option<u64>,
    /// Requests that clients send to it, a second.
    pub requests: f64,
    /// The application's own score, a component for each time that the oracle names `application`.
    pub application: Option<Score>,
}

/// What a member is worth as a leader, or why it is no candidate.
pub type Candidacy = Result<Measured, NoScore>;

/// Why a transfer was not begun. Leadership is where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum NoTransfer {
    /// There is nothing to hand over.
    #[error("this member does not lead; ask the leader")]
    NotLeading,
    /// A stranger, or the leader itself.
    #[error("that is not another member of the group")]
    NotAMember,
    /// It would find nobody.
    #[error("that member does not answer")]
    NoAnswer,
    /// The protocol knows no transfer: with NFD-L the leader that has led longest stays, and a ledger says itself to whom
    /// it assigns what.
    #[error("this engine has no transfer to a member that is named; the leader can resign")]
    Unsupported,
    /// On a ledger nobody chooses a successor.
    #[error(
        "the coordinator assigns partitions, and cannot be told to whom; to give up what is led here, resign"
    )]
    Assigned,
    /// It could not take over.
    #[error("that member has no vote yet: its status says what it waits for")]
    NoVote,
}

/// A majority of `size` members.
pub fn quorum(size: usize) -> usize {
    size / 2 + 1
}

/// A protocol under a handle: what an application asks for, as inputs of the machine.
pub trait Elector: Machine {
    /// Gives leadership up, and leaves it to the others.
    fn resign() -> Self::Input;

    /// Gives leadership up because the process ends, in good order.
    fn stop() -> Self::Input {
        Self::resign()
    }

    /// Hands leadership over to another member, or says why this protocol never does.
    fn transfer(_to: MemberId) -> Result<Self::Input, NoTransfer> {
        Err(NoTransfer::Unsupported)
    }

    /// What the application knows, from now on; `None` if this protocol has no use for it.
    fn figures(_figures: Figures) -> Option<Self::Input> {
        None
    }

    /// Publishes a value with the term that is held, or says why this protocol never does.
    fn publish(_value: Value) -> Result<Self::Input, NoPublish> {
        Err(NoPublish::Unsupported)
    }

    /// Changes the members of the group, or says why this protocol never does.
    fn change(_change: MemberChange) -> Result<Self::Input, NoChange> {
        Err(NoChange::Unsupported)
    }

    /// Asks the leader, which may be another member, for something; `None` if this protocol has no messages for that.
    fn ask(_number: u64, _request: LeaderRequest) -> Option<Self::Input> {
        None
    }

    /// Carries out what is meant for one term, if it is the one that is held; `None` if this protocol does not compare terms.
    fn serve(_term: Term, _request: LeaderRequest) -> Option<Self::Input> {
        None
    }

    /// Answers what a member has asked for.
    fn answer(_id: LeaderRequestId, _answer: LeaderAnswer) -> Option<Self::Input> {
        None
    }

    /// What this member holds at `now`; `None` also where one machine leads many roles.
    fn held(&self, now: Instant) -> Option<Lease>;
}
