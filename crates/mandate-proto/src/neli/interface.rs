//! What goes into a member and what comes out of it.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::layout::Agreement;
use crate::identity::{Incarnation, MemberId, Term};
use crate::time::{Instant, WallTime};
use crate::value::Value;

/// A partition of the ledger, counted from 0: an element of the paper's M.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Partition(u32);

impl Partition {
    /// The partition with this number.
    pub const fn new(number: u32) -> Self {
        Partition(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}", self.0)
    }
}

/// Names a request under way; rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub(super) u64);

impl RequestId {
    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Names a barrier at which the ledger waits for releases; no two of a member's have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BarrierId(u64);

impl BarrierId {
    /// The barrier with this number.
    pub const fn new(number: u64) -> Self {
        BarrierId(number)
    }
}

/// A record on the ledger. The paper's have neither key nor value; ours say whose they are, so that a
/// member knows its own again and how long ago it sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRecord {
    /// The version of the protocol that wrote it.
    pub protocol: u16,
    /// Who published it.
    pub member: MemberId,
    /// The sender's incarnation.
    pub life: Incarnation,
    /// When it was sent, on that incarnation's monotonic clock: nanoseconds since its origin.
    pub sent_nanos: u64,
    /// What for.
    pub kind: RecordKind,
    /// What its publisher goes by.
    pub agreement: Agreement,
}

/// What a record is for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordBytes", into = "RecordBytes")]
pub enum RecordKind {
    /// It keeps the partition from drying up.
    Beat,
    /// Its offset is a term, if its publisher can confirm it.
    Claim {
        /// What its publisher publishes with that term.
        value: Option<Value>,
    },
}

/// As it was written before there were values, where there is none.
impl fmt::Debug for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordKind::Beat => f.write_str("Beat"),
            RecordKind::Claim { value: None } => f.write_str("Claim"),
            RecordKind::Claim { value: Some(value) } => write!(f, "Claim({value:?})"),
        }
    }
}

/// The same as bytes. A claim without a value has the bytes that it had before there were values; one with a value is a
/// record of no version that earlier members know, and counts all the same.
#[derive(Clone, Serialize, Deserialize)]
enum RecordBytes {
    Beat,
    Claim,
    ClaimWithValue(Value),
}

impl From<RecordBytes> for RecordKind {
    fn from(bytes: RecordBytes) -> Self {
        match bytes {
            RecordBytes::Beat => RecordKind::Beat,
            RecordBytes::Claim => RecordKind::Claim { value: None },
            RecordBytes::ClaimWithValue(value) => RecordKind::Claim { value: Some(value) },
        }
    }
}

impl From<RecordKind> for RecordBytes {
    fn from(kind: RecordKind) -> Self {
        match kind {
            RecordKind::Beat => RecordBytes::Beat,
            RecordKind::Claim { value: None } => RecordBytes::Claim,
            RecordKind::Claim { value: Some(value) } => RecordBytes::ClaimWithValue(value),
        }
    }
}

/// What the ledger keeps of a partition for its next owner: the last word of a member of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
    /// It was renewed under this term.
    Held {
        /// The term of the claim that was renewed.
        term: Term,
        /// For how long after a renewal anyone may count on it who counted on it then.
        lease: Duration,
        /// Who renewed it; `None` if an earlier release did, which did not say.
        holder: Option<PartitionHolder>,
    },
    /// Nobody leads under this term, or an earlier one, ever again.
    Over {
        /// The last term that is over.
        term: Term,
    },
}

impl Mark {
    /// Whether this one need not be written in the place of the other: they differ at most in which renewal left them.
    pub(super) fn says_as_much_as(&self, other: &Mark) -> bool {
        match (*self, *other) {
            (
                Mark::Held { term, lease, holder: Some(one) },
                Mark::Held { term: of, lease: other_lease, holder: Some(other) },
            ) => {
                let other = PartitionHolder { renewal: one.renewal, ..other };
                (term, lease, one) == (of, other_lease, other)
            }
            (one, other) => one == other,
        }
    }
}

/// What a partition's holder says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionHolder {
    /// Who it is.
    pub member: MemberId,
    /// What it goes by.
    pub agreement: Agreement,
    /// Whether it led the partition when the mark was sent, or only wanted to.
    pub leads: bool,
    /// Rises with every renewal of a member: who looks twice sees whether the holder is alive.
    pub renewal: u64,
}

/// The version of the protocol that this is.
pub const PROTOCOL: u16 = 2;

/// What a member asks of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerRequest {
    /// Become a member of the group, and say what is assigned ([`Input::Assigned`]); keep trying.
    Join,
    /// Append a record to a partition, and say where it came to stand ([`Input::Published`]).
    Publish {
        /// Its name.
        id: RequestId,
        /// Where to.
        partition: Partition,
        /// The record to append.
        record: LedgerRecord,
    },
    /// Have it confirmed that this member is still one to whom partitions are assigned, all of those that it was told of
    /// ([`Input::Renewed`]), and keep these marks. The ledger must refuse a member that has been replaced.
    Renew {
        /// Its name.
        id: RequestId,
        /// What the ledger is to keep, of some of them. At least one.
        marks: Vec<(Partition, Mark)>,
    },
    /// Say what the ledger keeps for this group ([`Input::Inspected`]): of these partitions, and of all others that the ledger
    /// has by now, also of those that this member does not know.
    Inspect {
        /// Its name.
        id: RequestId,
        /// Which; none, if it only matters what others go by.
        partitions: Vec<Partition>,
    },
    /// The partitions may go to others. It may be asked for in parts; the barrier ends with the last.
    Release {
        /// For which barrier: the partition may since have been lost and assigned again.
        barrier: BarrierId,
        /// The partitions to give back.
        partitions: Vec<Partition>,
        /// What the ledger is to keep of them, before anyone else gets them. It is asked as a member of the
        /// group, like a renewal; nobody waits for an answer, and if it is refused or lost the next leader
        /// has to wait instead.
        marks: Vec<(Partition, Mark)>,
    },
    /// Leave the group: everything assigned may go to others at once.
    Leave {
        /// As with a release.
        marks: Vec<(Partition, Mark)>,
    },
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// It is on the ledger.
    Appended {
        /// Its place in the partition.
        offset: u64,
        /// The ledger's clock when it was appended.
        stamp: WallTime,
    },
    /// It was not published, and will not be.
    Failed,
    /// It may have been, or may yet be.
    Unknown,
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Renewed {
    /// The ledger took it: the partitions were this member's at some instant between asking and answer.
    Accepted,
    /// The ledger knows this member no more, or has gone on to another generation.
    Refused,
    /// It was not taken, for a reason that says nothing of who owns what.
    Failed,
    /// It may have been taken.
    Unknown,
}

/// What a member can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// These are assigned to this member from now on, besides those that are already. None at all is
    /// an assignment, too: the barrier is over.
    Assigned {
        /// The new partitions, possibly none.
        partitions: Vec<Partition>,
    },
    /// The ledger wants these back, and waits for [`LedgerRequest::Release`].
    Revoking {
        /// The barrier.
        barrier: BarrierId,
        /// The partitions to give back.
        partitions: Vec<Partition>,
    },
    /// These are not this member's any more, and others may have them already.
    Lost {
        /// The partitions that were taken away.
        partitions: Vec<Partition>,
    },
    /// A record of a partition that is assigned to this member.
    Record {
        /// The partition that holds it.
        partition: Partition,
        /// Its place there.
        offset: u64,
        /// The ledger's clock when it was appended.
        stamp: WallTime,
        /// What it says; `None` if it is of no version that is known here. It counts all the same.
        record: Option<LedgerRecord>,
    },
    /// A publication has come to an end.
    Published {
        /// The publication's request.
        id: RequestId,
        /// Whether it is on the ledger, if that is known.
        outcome: PublishOutcome,
    },
    /// A renewal has come to an end.
    Renewed {
        /// The renewal's request.
        id: RequestId,
        /// Whether the ledger accepted it.
        outcome: Renewed,
    },
    /// An inspection has come to an end.
    Inspected {
        /// The inspection's request.
        id: RequestId,
        /// What the ledger keeps, of those of which it keeps something; `None` if it could not be read. What was kept
        /// a while ago will do.
        marks: Option<Vec<(Partition, Mark)>>,
    },
    /// The ledger has so many partitions by now; none, if it is gone.
    Sized {
        /// How many.
        partitions: u32,
    },
    /// Nobody can publish to these, the ledger says: they have no broker. To all others one can.
    Unserved {
        /// All partitions without a broker at present.
        partitions: Vec<Partition>,
    },
    /// The application's work on a partition that is being revoked has ended.
    Drained {
        /// The partition that is being revoked.
        partition: Partition,
    },
    /// What every claim of this member carries, from the next one on.
    Value(Option<Value>),
    /// Give up everything, rest for a while, and join again.
    Resign,
    /// Give up everything, and leave.
    Leave,
}

/// What a member asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Of the ledger. Several requests may be under way at once; none may hold up another.
    Ask(LedgerRequest),
    /// Nobody waits for this one any more.
    Abandon {
        /// Its name.
        id: RequestId,
    },
    /// Tell the application.
    Tell(Event),
}

/// Why a member does not lead a partition's roles any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleLoss {
    /// Nothing came in time that proves that it may.
    Lapsed,
    /// The ledger wanted the partition back.
    Revoked,
    /// The ledger had given it up for dead.
    Lost,
    /// The ledger refused to renew.
    Fenced,
    /// It resigned or left.
    Left,
}

/// What is under way between member and ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Undertaking {
    /// A claim or a beat.
    Publishing,
    /// A renewal.
    Renewing,
    /// A look at what the ledger keeps.
    Inspecting,
}

/// What the application is told. A partition stands for its roles ([`Layout::roles_of`]).
///
/// [`Layout::roles_of`]: super::Layout::roles_of
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This member leads the partition's roles.
    Acquired {
        /// The partition that is led from now on.
        partition: Partition,
        /// The fencing token; only in exclusive mode is there one.
        term: Option<Term>,
    },
    /// What this member publishes with the term that it has just acquired: its claim says so.
    Published {
        /// The partition that was acquired.
        partition: Partition,
        /// The term.
        term: Term,
        /// What the claim carries.
        value: Value,
    },
    /// It does not lead them any more. In exclusive mode, if the ledger wants the partition back, it waits
    /// until [`Input::Drained`], with a bound.
    Ended {
        /// The partition that is led no more.
        partition: Partition,
        /// The term that has ended.
        term: Option<Term>,
        /// The reason for which leadership ended.
        loss: RoleLoss,
    },
    /// Work on the partition took longer than was allowed, and the partition was released.
    DrainOverran {
        /// The partition that was released.
        partition: Partition,
    },
    /// The partition is assigned, and for a whole threshold and session nothing came by which it could be led. It is given
    /// back, unless this member leads others, or nobody could lead it.
    Dry {
        /// The partition that stayed dry.
        partition: Partition,
    },
    /// The member joins, and the ledger has not assigned anything for longer than any member may hold it
    /// up.
    BarrierStuck {
        /// Since when.
        since: Instant,
    },
    /// The partition's offsets went back: the topic was made anew, or lost its end. It is not led here
    /// under a lower term than one that was seen.
    WentBack {
        /// The partition whose offsets went back.
        partition: Partition,
        /// The highest term that was seen.
        from: Term,
        /// What would be next.
        to: Term,
    },
    /// A request failed, or its outcome is unknown; it is made again.
    Failed {
        /// Which kind.
        undertaking: Undertaking,
        /// How many in succession.
        times: u32,
        /// Whether it may have been carried out.
        unknown: bool,
    },
    /// Another member goes by another layout or mode: this one does not lead, or not before that one is gone.
    Disagrees {
        /// What this member goes by.
        ours: Agreement,
        /// What the other goes by.
        theirs: Agreement,
        /// Whether the other leads.
        leads: bool,
    },
    /// Nobody goes by another layout any more.
    Agrees,
    /// The ledger does not have as many partitions as this member counts, or has as many again.
    Resized {
        /// What this member counts.
        counted: u32,
        /// What there is.
        found: u32,
    },
    /// This member has left the group. Nothing more comes of it, unless it only rests.
    Left,
}

impl Event {
    /// The partition that it is about, if it is about one.
    pub fn partition(&self) -> Option<Partition> {
        match self {
            Event::Acquired { partition, .. }
            | Event::Published { partition, .. }
            | Event::Ended { partition, .. }
            | Event::DrainOverran { partition }
            | Event::Dry { partition }
            | Event::WentBack { partition, .. } => Some(*partition),
            Event::BarrierStuck { .. }
            | Event::Failed { .. }
            | Event::Disagrees { .. }
            | Event::Agrees
            | Event::Resized { .. }
            | Event::Left => None,
        }
    }
}
