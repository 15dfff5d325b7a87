//! What client and broker say to each other. It can be written down, so that they may be of different processes.

use alloc::vec::Vec;
use core::time::Duration;

use crate::identity::Incarnation;
use crate::neli::{LedgerRecord, Mark, Partition, Renewed, RequestId};
use crate::time::WallTime;
use serde::{Deserialize, Serialize};

/// A group of members among which partitions are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A name that survives restarts of its process, where one was given (static membership).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId(pub u32);

/// One session of one client: after it was lost, the client comes back as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId {
    /// Of the process.
    pub life: Incarnation,
    /// Rises with each session.
    pub session: u32,
}

/// Which part of a broker a call is for. On a cluster they are different hosts, and one may be out of
/// reach while the other is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Membership and renewals.
    Coordinator,
    /// Records.
    Log,
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// To be a member, or to go through the barrier again.
    Join {
        /// Rises with each attempt of a session; a repetition has the same.
        attempt: u32,
        /// How long a silence may last.
        session: Duration,
        /// How long others may have to wait for this one.
        barrier: Duration,
        /// Whether it has been a member in this session, and so should be known.
        is_member: bool,
        /// What it has not released.
        owned: Vec<Partition>,
        /// Its static name.
        instance: Option<InstanceId>,
    },
    /// A sign of life.
    Heartbeat {
        /// In which generation.
        generation: u64,
    },
    /// A sign of life in a group that is coordinated by epochs; the first is the join.
    Sign {
        /// Rises with each: an answer to another than the last tells nothing.
        attempt: u32,
        /// The epoch that it was told last; 0 if it joins.
        epoch: u64,
        /// How long a silence may last.
        session: Duration,
        /// How long it may take to let go of partitions.
        barrier: Duration,
        /// What it has not released.
        owned: Vec<Partition>,
    },
    /// To keep marks, as a member: a renewal, or last words.
    Commit {
        /// Its name, if an answer is wanted.
        id: Option<RequestId>,
        /// In which generation.
        generation: u64,
        /// Whether it is a sign of life, too.
        is_sign: bool,
        /// What to keep of which partitions.
        marks: Vec<(Partition, Mark)>,
    },
    /// For the marks that are kept.
    Inspect {
        /// Its name.
        id: RequestId,
    },
    /// To be no member any more.
    Leave,
    /// To append a record.
    Append {
        /// Its name.
        id: RequestId,
        /// The partition to append to.
        partition: Partition,
        /// The record to append.
        record: LedgerRecord,
    },
    /// For records.
    Fetch {
        /// From which offset on; `None`: from the end on.
        from: Vec<(Partition, Option<u64>)>,
    },
}

impl Call {
    /// Who answers it.
    pub fn side(&self) -> Side {
        match self {
            Call::Append { .. } | Call::Fetch { .. } => Side::Log,
            _ => Side::Coordinator,
        }
    }
}

/// What a broker says to a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeartbeatReply {
    /// All is well.
    Fine,
    /// Everyone is to go through the barrier.
    Rebalancing,
    /// Nobody knows this client, or not in this generation.
    Unknown,
}

/// A record as it is handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    /// Of which partition.
    pub partition: Partition,
    /// Its place.
    pub offset: u64,
    /// The broker's clock when it was appended.
    pub stamp: WallTime,
    /// What it says.
    pub record: LedgerRecord,
}

/// What a broker answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The barrier is over.
    Joined {
        /// Which attempt.
        attempt: u32,
        /// The new generation.
        generation: u64,
        /// What is assigned to this client now.
        assigned: Vec<Partition>,
    },
    /// Nobody knows this client, which says that it is a member: it was removed, and has to come back as another.
    NotAMember {
        /// Which attempt.
        attempt: u32,
    },
    /// The session that was asked for is shorter than the broker allows.
    SessionRefused {
        /// What it allows.
        shortest: Duration,
    },
    /// To a sign of life.
    Beat(HeartbeatReply),
    /// To a sign of life in a group that is coordinated by epochs.
    Reconciled {
        /// To which.
        attempt: u32,
        /// The member's epoch.
        epoch: u64,
        /// What it is to have: it lets go of everything else.
        assigned: Vec<Partition>,
    },
    /// To a renewal.
    Renewed {
        /// The renewal's request.
        id: RequestId,
        /// The generation in which it was asked.
        generation: u64,
        /// Whether it was accepted.
        outcome: Renewed,
    },
    /// To an inspection.
    Marks {
        /// The inspection's request.
        id: RequestId,
        /// What is kept, where something is.
        marks: Vec<(Partition, Mark)>,
    },
    /// A record was appended.
    Appended {
        /// The request to append.
        id: RequestId,
        /// Its place.
        offset: u64,
        /// The broker's clock.
        stamp: WallTime,
    },
    /// Records.
    Fetched {
        /// In order.
        records: Vec<Fetched>,
        /// Where to go on.
        next: Vec<(Partition, u64)>,
    },
}

impl Reply {
    /// Who gives it.
    pub fn side(&self) -> Side {
        match self {
            Reply::Appended { .. } | Reply::Fetched { .. } => Side::Log,
            _ => Side::Coordinator,
        }
    }
}
