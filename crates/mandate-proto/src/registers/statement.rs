//! What is in the database, and what is asked of it: rows, statements, answers.
//!
//! Every statement is one SQL statement, or one short batch that is sent whole and needs no answer in
//! between: first the conditional write, then a plain read of the control row, so that a member that was
//! refused sees by whom. Nothing is locked between two statements of a member.
//!
//! Every write of the control row names the [`Version`] that it replaces. So a statement that was held
//! up for an hour, behind a lock or on a connection that its client has given up, changes nothing when
//! something else was written meanwhile. The database has to keep one promise only: of two writers to one
//! row the first wins, and the second finds what the first has written.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::{Reason, SqlGuarantee};
use crate::election::RoleId;
use crate::identity::{MemberId, Term};
use crate::score::Score;
use crate::value::Value;

/// What this protocol is called in the control row. A row with another number is not touched.
pub const PROTOCOL: u16 = 1;

/// How many successors the leader publishes. Three are enough for two that die with the leader; each of
/// them reads the control row several times a round.
pub const MAX_SUCCESSORS: usize = 3;

/// One stay of a member in the group: a number that the database gives at each join, higher than all it
/// gave before. It tells a process's incarnations apart, and says who has been there for longest. (The
/// paper's process id, section 3.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StayId(u64);

impl StayId {
    /// The stay with this number.
    pub const fn new(number: u64) -> Self {
        StayId(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for StayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A member in one of its stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// The member.
    pub member: MemberId,
    /// Which of its stays.
    pub incarnation: StayId,
}

/// Which state of the control row is meant. Every write makes a higher one: a new leader a higher term,
/// anything else a higher beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The term.
    pub term: Term,
    /// How many times the row was written in it.
    pub beat: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.beat)
    }
}

/// Who is to take over, the first first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Successors([Option<MemberId>; MAX_SUCCESSORS]);

impl Successors {
    /// The members, in order.
    pub fn iter(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.0.iter().flatten().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// The place of a member, 0 for the first.
    pub fn rank_of(&self, member: MemberId) -> Option<usize> {
        self.iter().position(|successor| successor == member)
    }
}

impl FromIterator<MemberId> for Successors {
    /// The first few, each once.
    fn from_iter<I: IntoIterator<Item = MemberId>>(members: I) -> Self {
        let mut successors = Successors::default();
        let mut len = 0;
        for member in members {
            if len < MAX_SUCCESSORS && successors.rank_of(member).is_none() {
                successors.0[len] = Some(member);
                len += 1;
            }
        }
        successors
    }
}

/// What a leader says with each write: who is to follow it, how fast the group goes, and for how long
/// nobody else may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Published {
    /// Who is to take over.
    pub successors: Successors,
    /// Time between the heartbeats of members (T_p).
    pub round: Duration,
    /// How long this state of the row must have stood still before anyone else takes over.
    pub lease: Duration,
    /// What the leader relies on. Watchers go by this, and not by what they would rely on themselves. A row that does not
    /// say so, of a version of this program that did not write it, counts as [`SqlGuarantee::Leased`].
    pub guarantee: SqlGuarantee,
}

/// The control row of a group or of a role: the paper's register VARS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControlState {
    /// [`PROTOCOL`].
    pub protocol: u16,
    /// Which state this is.
    pub version: Version,
    /// Who leads; nobody, if the last has given its term back or there was none yet.
    pub leader: Option<Holder>,
    /// Why this term began; without a leader, why the term ended.
    pub reason: Reason,
    /// What the leader said last.
    pub published: Published,
    /// Rows of roles: whom the leader of the group would have lead here. Written beside the version,
    /// since it is advice.
    pub preferred: Option<MemberId>,
}

/// The row of a member: one of the paper's DESCRIPTORS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberRow {
    /// The member, and its stay in the group.
    pub holder: Holder,
    /// Rises with every heartbeat.
    pub counter: u64,
    /// What it is worth as a leader; `None` if it is no candidate.
    pub score: Option<Score>,
    /// It has joined again because it was evicted although it is alive: a sign of contention. (The
    /// paper's evict flag, section 4.3; in the member's own row, so that only leaders write the
    /// control row.)
    pub was_evicted: bool,
}

/// What is asked of the database. All conditions and changes of one statement take effect at one instant.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Read the control row.
    Look,
    /// Make the control row if there is none (nobody leads, [`Reason::First`], `first`); put a row for `member` in
    /// place of any that it has, counter 0, with a number higher than any given before.
    ///
    /// The term of a new row is 0 in a new group. Where the row was lost, it is the highest that the database still knows of,
    /// from the history and from the fence, and `floor` at least.
    Join {
        /// Who joins.
        member: MemberId,
        /// What it is worth.
        score: Option<Score>,
        /// Whether it was evicted.
        was_evicted: bool,
        /// For a new control row.
        first: Published,
        /// The highest term that this member has ever seen.
        floor: Term,
    },
    /// Own row, `where member and incarnation are mine`: counter + 1, and the score. It need not be
    /// durable.
    Heartbeat {
        /// Whose.
        me: Holder,
        /// What it is worth now.
        score: Option<Score>,
    },
    /// Control row, `where version is was and leader is me`: beat + 1, and what is published. Durable.
    Renew {
        /// The leader.
        me: Holder,
        /// The state to replace.
        was: Version,
        /// What is said with it.
        publish: Published,
        /// A value that the row does not have yet, with the term; without one, what is there stays.
        value: Option<Value>,
    },
    /// Control row, `where version is was and leader is of`: this term, beat 0, leader me. Durable. (A
    /// history of terms is a row more in the same batch.)
    Takeover {
        /// The new leader.
        me: Holder,
        /// The state to replace: the one that was watched for a whole lease.
        was: Version,
        /// Whose it was. A database that was restored may come to the same version another way.
        of: Option<Holder>,
        /// A term above all that were ever seen.
        term: Term,
        /// The reason for the takeover, for the history of terms.
        reason: Reason,
        /// What is said with it.
        publish: Published,
        /// What the new leader publishes with its term; without, what is there stays, and is of an earlier one.
        value: Option<Value>,
    },
    /// Control row, `where version is was and leader is me`: beat + 1, no leader. Durable.
    Vacate {
        /// Who led.
        me: Holder,
        /// The state to replace.
        was: Version,
        /// The reason for which the term ends, for the row.
        reason: Reason,
        /// Who is to take over.
        successors: Successors,
    },
    /// Remove the own row, `where member and incarnation are mine`.
    Leave {
        /// Whose.
        me: Holder,
    },
    /// Read the rows of all members.
    Sweep {
        /// No more than this many.
        limit: usize,
    },
    /// Remove a member's row, `where member, incarnation and counter are these`.
    Evict {
        /// Whose.
        holder: Holder,
        /// The counter that stood still.
        counter: u64,
    },
    /// Read who is preferred for each role of the group.
    ReadRoles,
    /// Rows of roles, `where the group's term is term`: whom to prefer.
    Prefer {
        /// The term of the group's leader.
        term: Term,
        /// What changes.
        changes: Box<[(RoleId, MemberId)]>,
    },
}

impl Statement {
    /// The state of the control row that it replaces, if it writes that row.
    pub fn replaces(&self) -> Option<Version> {
        match self {
            Statement::Renew { was, .. }
            | Statement::Takeover { was, .. }
            | Statement::Vacate { was, .. } => Some(*was),
            _ => None,
        }
    }
}

/// What the database said.
#[derive(Clone, Debug, PartialEq)]
pub enum DatabaseAnswer {
    /// To statements about the control row and the own row.
    Control {
        /// Whether the write found what it asked for, and changed a row. (False for a plain read.)
        changed: bool,
        /// The control row, read after the write; `None` if there is none yet.
        row: Option<ControlState>,
        /// The value in it, and the term in which that was published: an earlier one perhaps.
        value: Option<(Term, Value)>,
    },
    /// To [`Statement::Join`].
    Joined {
        /// The number given.
        incarnation: StayId,
        /// The control row, read after the write.
        row: ControlState,
        /// The value in it, and the term in which that was published: an earlier one perhaps.
        value: Option<(Term, Value)>,
    },
    /// To [`Statement::Sweep`].
    Members(Vec<MemberRow>),
    /// To [`Statement::ReadRoles`].
    Roles(Vec<(RoleId, MemberId)>),
    /// To [`Statement::Leave`], [`Statement::Evict`] and [`Statement::Prefer`]: whether rows were changed.
    Written(bool),
}

/// What became of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum StatementOutcome {
    /// It was carried out.
    Answered(DatabaseAnswer),
    /// It certainly was not: the database refused it (a lock timeout, a serialization failure, no
    /// connection to begin with).
    Failed,
    /// Nobody can tell: the connection broke, or the answer did not come in time. It may even be carried
    /// out later.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successors_are_the_first_few_each_once() {
        let ids = [5, 2, 5, 9, 7].map(MemberId::new);
        let successors: Successors = ids.into_iter().collect();
        assert_eq!(successors.iter().map(MemberId::get).collect::<Vec<_>>(), [5, 2, 9]);
        assert_eq!(successors.rank_of(MemberId::new(9)), Some(2));
        assert_eq!(successors.rank_of(MemberId::new(7)), None);
    }
}
