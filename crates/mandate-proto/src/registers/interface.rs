//! What goes into a member and what comes out of it.

use core::time::Duration;

use super::SqlGuarantee;
use super::statement::{Statement, StatementOutcome, StayId, Version};
use crate::election::{Figures, NoTransfer, State};
use crate::identity::{MemberId, Term};
use crate::value::Value;

/// Names a statement under way; rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatementId(pub(super) u64);

impl StatementId {
    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What a member can be told. What an application asks for has the names of
/// [`pole::member::Input`](crate::pole::member::Input), so that one handle serves both.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A statement has come to an end.
    Answered {
        /// The statement's id, as it was asked for.
        id: StatementId,
        /// Whether it was carried out, if that is known.
        outcome: StatementOutcome,
    },
    /// The control row may have changed: a notification, where the database has them.
    RowChanged,
    /// The session in which the leader of this term held a lock has ended: its process died, or it lost
    /// its connection.
    LeaderSessionGone {
        /// The term.
        term: Term,
    },
    /// What the application knows, from now on.
    Figures(Figures),
    /// Publish a value with the term that this member holds. Ignored if it holds none.
    Publish(Value),
    /// Give leadership up, and leave it to the others.
    Resign,
    /// Hand leadership over.
    Transfer {
        /// The successor.
        to: MemberId,
    },
    /// Give leadership up, and leave the group.
    Leave,
    /// Roles only: under which incarnation this process is in the group now, if it is.
    Joined(Option<StayId>),
}

/// What a member asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Carry a statement out, and say what became of it. Several may be under way at once.
    Execute {
        /// Its name.
        id: StatementId,
        /// The statement.
        statement: Statement,
    },
    /// Nobody waits for this one any more: cancel it or drop its connection, so that such statements do not pile up.
    Abandon {
        /// Its name.
        id: StatementId,
    },
    /// Tell the application.
    Tell(Event),
}

/// Why a term began, or ended without a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// There was no leader before.
    First,
    /// The leader let its lease run out.
    Silence,
    /// The leader let its lease run out, and took a new term itself before anyone else did.
    Lapsed,
    /// The leader's session ended, and terms are all that is relied on.
    SessionGone,
    /// The leader gave its term back.
    Resigned,
    /// The leader gave its term back for another to take over.
    Transferred,
    /// The leader could not have its writes acknowledged within the longest lease.
    TooSlow,
}

/// Why this member does not lead any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// Renewals were not acknowledged in time.
    Expired,
    /// Another leads, or the row was replaced by an older one.
    Superseded,
    /// It gave its term back; the reason is the one that it wrote.
    GaveBack(Reason),
    /// Members of another version of the protocol have taken the row over.
    Mismatched,
}

/// A change of who leads, as the control row told it: a line of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reign {
    /// The term.
    pub term: Term,
    /// Who leads in it; `None` if it was given back.
    pub leader: Option<MemberId>,
    /// Why it began, or was given back.
    pub reason: Reason,
    /// Who led before, as far as this member knows.
    pub former: Option<MemberId>,
}

/// What the application is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Who leads has changed, as far as this member can be sure.
    Changed(State),
    /// The leader has published this with its term, as the control row shows; gone when who leads changes.
    Published {
        /// Who leads.
        leader: MemberId,
        /// In which term.
        term: Term,
        /// What it has published.
        value: Value,
    },
    /// The control row shows another leader, or another term, than before.
    Reigned(Reign),
    /// This member does not hold this term any more, or did not come to hold it.
    Lost {
        /// The term.
        term: Term,
        /// The reason for which it was lost, or not had.
        loss: Loss,
    },
    /// This member is in the group.
    Joined {
        /// Under this number.
        incarnation: StayId,
    },
    /// This member was evicted although it is alive, and joins again.
    Evicted {
        /// What it was.
        incarnation: StayId,
    },
    /// As the leader, this member evicted another, whose counter stood still.
    Removed {
        /// Whom.
        member: MemberId,
    },
    /// The group goes slower or faster from now on.
    RoundChanged {
        /// Time between heartbeats.
        round: Duration,
    },
    /// The control row went back, or is gone: the database was restored from a backup, a standby took over that
    /// lacked writes, or rows were removed. Terms given out since may be given out again, unless the history still has them or
    /// the member that takes over has seen them. This member takes nothing over for the longest lease: what was lost may have been one.
    WentBack {
        /// What was last seen.
        from: Version,
        /// What is there now; `None` if there is no row.
        to: Option<Version>,
    },
    /// The control row was lost and made again: the history or the fence knows of terms, and the row of none. This member
    /// takes nothing over for the longest lease: what was lost may have been one.
    Remade {
        /// The highest term that the database still knew.
        term: Term,
    },
    /// The leader's guarantee is not this member's. While that one leads, this member does not join the group.
    Differs {
        /// Who leads.
        leader: MemberId,
        /// What it relies on.
        theirs: SqlGuarantee,
    },
    /// The control row is of another version of the protocol. This member takes no part until it is not.
    Mismatched {
        /// Its version.
        protocol: u16,
    },
    /// A transfer was asked for and not begun.
    NoTransfer {
        /// To whom.
        to: MemberId,
        /// Why not.
        reason: NoTransfer,
    },
    /// As the leader of the group, this member has changed whom it prefers for this many roles.
    RolesMoved {
        /// How many.
        roles: usize,
    },
    /// A statement failed, or its outcome is unknown; it is tried again after a pause.
    Failed {
        /// How many in succession.
        times: u32,
        /// Whether it may have been carried out.
        unknown: bool,
    },
    /// This member has left the group. Nothing more comes of it.
    Left,
}
