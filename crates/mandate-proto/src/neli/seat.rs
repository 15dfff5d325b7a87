//! What a member knows of one partition.

use core::time::Duration;

use super::interface::{BarrierId, Mark, RecordKind, RequestId};
use super::ledger_clock::LedgerClock;
use crate::identity::Term;
use crate::time::Instant;
use crate::value::Value;

/// One stretch of time in which a partition is assigned to this member. Answers to what was asked in an
/// earlier one say nothing of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    /// Rises with each, over all partitions.
    pub(super) epoch: u64,
    pub(super) since: Instant,
    /// When this member last knew that the ledger had kept it since then: at the beginning, and with each renewal that was
    /// accepted, counted from its sending.
    pub(super) proved: Instant,
}

/// A publication under way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) id: RequestId,
    pub(super) kind: RecordKind,
    pub(super) sent: Instant,
    /// Of the assignment in which it was asked for.
    pub(super) epoch: Option<u64>,
    pub(super) gives_up: Instant,
}

/// What the application does for a partition's roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Work {
    #[default]
    None,
    /// It leads.
    Leading,
    /// It has been told to stop, and has not said that it did.
    Ending,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Seat {
    pub(super) assigned: Option<Assignment>,
    /// The ledger waits for a release at this barrier; it gets it then at the latest.
    pub(super) wanted: Option<(BarrierId, Instant)>,
    pub(super) flight: Option<Flight>,
    /// No claim is published before.
    pub(super) not_before: Instant,
    /// The term of the claim that was published in this assignment and neither lapsed nor was refused.
    pub(super) claim: Option<Term>,
    /// What that claim carries.
    pub(super) value: Option<Value>,
    pub(super) clock: LedgerClock,
    /// Until when what is known proves that this member may lead.
    pub(super) until: Option<Instant>,
    pub(super) work: Work,
    /// The highest term that was ever seen here: of this member's own claims, and of marks that it has read.
    pub(super) highest: Term,
    /// Nobody leads under this term, or an earlier one, ever again.
    pub(super) over: Term,
    /// What earlier owners may count on, beyond what this one would; not known before the ledger was asked in
    /// this assignment.
    pub(super) others_lease: Option<Duration>,
    /// Whether a claim was made in this assignment, and marks with it.
    pub(super) has_claimed: bool,
    /// What the ledger keeps of it by a renewal of this assignment.
    pub(super) marked: Option<Mark>,
    /// When it is said that the partition is dry.
    pub(super) dry_at: Option<Instant>,
    /// No mark is left before: the one that is there is still needed.
    pub(super) mark_from: Instant,
    /// The claim under which nobody of another layout can lead.
    pub(super) agreed: Option<Term>,
    /// The ledger has said that nobody can publish there.
    pub(super) is_unserved: bool,
    /// A renewal was refused since the assignment began, and none was accepted since.
    pub(super) was_refused: bool,
}

impl Seat {
    pub(super) fn leads(&self) -> bool {
        self.work == Work::Leading
    }

    /// Assigned, and not wanted back.
    pub(super) fn kept(&self) -> Option<Assignment> {
        self.assigned.filter(|_| self.wanted.is_none())
    }

    /// Whether a claim comes just behind terms that are over.
    pub(super) fn follows(&self, claim: Term) -> bool {
        self.over.next().is_some_and(|next| claim <= next)
    }

    /// Work goes on though nobody waits for it any more: nothing is said of what is over.
    pub(super) fn overrun(&mut self) {
        self.work = Work::None;
        self.has_claimed = false;
    }

    /// Forgets the assignment, and what was proved in it.
    pub(super) fn give_up(&mut self) {
        self.assigned = None;
        self.wanted = None;
        self.claim = None;
        self.value = None;
        self.dry_at = None;
        self.others_lease = None;
        self.has_claimed = false;
        self.agreed = None;
        self.marked = None;
        self.is_unserved = false;
        self.was_refused = false;
    }
}
