//! What an application is told, whatever protocol or engine elects.

use std::time::Duration;

use mandate_proto::detector::configurator::Infeasible;
use mandate_proto::election::{NoTransfer, State};
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::neli;
use mandate_proto::nfd_l;
use mandate_proto::pole::installation::{MemberChange, NoChange, Roster, RosterId};
use mandate_proto::pole::member;
pub use mandate_proto::pole::member::{Advice, Cause, Handover, MoveEffect, Record};
use mandate_proto::registers;
use mandate_proto::value::Value;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Who leads has changed.
    Changed(State),
    /// The leader has published a value with its term: shown until who leads changes.
    Published {
        /// Who leads.
        leader: MemberId,
        /// In which term.
        term: Term,
        /// What it has published.
        value: Value,
    },
    /// An election has ended, and this is how it went.
    Elected(Box<Record>),
    /// A member is suspected to be down, or is not any more.
    Suspected {
        /// The member that is, or was, suspected.
        member: MemberId,
        /// Whether it is.
        suspected: bool,
    },
    /// A transfer was asked for and not begun.
    NoTransfer {
        /// To whom.
        to: MemberId,
        /// Why not.
        reason: NoTransfer,
    },
    /// Another would lead better. Unless in shadow mode, leadership is handed over now.
    Advised(Advice),
    /// What came of a move.
    Moved(MoveEffect),
    /// This member had no vote, because it was new or had lost its disk, or because the group was changed; all others have
    /// answered, and it has one.
    Recovered,
    /// The state on a member's disk, this one's perhaps, is older than what it has promised: it has no vote until it has
    /// asked all others.
    WentBack {
        /// Whose.
        member: MemberId,
        /// What it had promised.
        term: Term,
    },
    /// A member has another list of members, or another guarantee: neither counts the other's votes.
    Differs {
        /// The member that has another configuration.
        member: MemberId,
    },
    /// This member goes by another list of members from now on.
    RosterChanged(Roster),
    /// This member leads, and a quorum has the list with this number on disk: the last change will not be undone.
    RosterSettled(RosterId),
    /// The members are as they were.
    NotChanged {
        /// What was asked for.
        change: MemberChange,
        /// Why that was not done.
        reason: NoChange,
    },
    /// The quality of detection that is wanted cannot be had on the link from the leader as it is now.
    Unachievable {
        /// The leader.
        leader: MemberId,
        /// Why not.
        reason: Infeasible,
    },
    /// The leader changed, without an election (NFD-L): why.
    Because(nfd_l::Reason),
    /// The leader crashed and came back before anyone suspected it.
    LeaderRestarted {
        /// The leader.
        leader: MemberId,
    },
    /// The leader beats too seldom for this member's detection bound: their configurations differ.
    LeaderTooSlow {
        /// The leader.
        leader: MemberId,
        /// Its interval.
        interval: Duration,
    },
    /// The wall clock reads less than when the member was first started.
    ClockBehind {
        /// By how much.
        by: Duration,
    },
    /// Another process uses this member's id.
    DuplicateId,
    /// Two processes run under the id of a member, as the links have found out: the other one was refused.
    Twin {
        /// The member, which may be this one.
        member: MemberId,
    },
    /// Something that only happens to elections on a database.
    OnDatabase(registers::Event),
    /// Something that only happens to roles on a ledger.
    OnLedger(neli::Event),
}

impl Event {
    /// What the application is told of what election by score tells; requests to the leader are the driver's.
    pub(crate) fn of_pole(event: member::Event) -> Option<Self> {
        Some(match event {
            member::Event::Asked { .. } | member::Event::Answered { .. } => return None,
            member::Event::Changed(state) => Event::Changed(state),
            member::Event::Published { leader, term, value } => {
                Event::Published { leader, term, value }
            }
            member::Event::Elected(record) => Event::Elected(record),
            member::Event::Suspected { member, suspected } => {
                Event::Suspected { member, suspected }
            }
            member::Event::NoTransfer { to, reason } => Event::NoTransfer { to, reason },
            member::Event::Advised(advice) => Event::Advised(advice),
            member::Event::Moved(effect) => Event::Moved(effect),
            member::Event::Recovered => Event::Recovered,
            member::Event::WentBack { member, term } => Event::WentBack { member, term },
            member::Event::Differs { member, .. } => Event::Differs { member },
            member::Event::RosterChanged(roster) => Event::RosterChanged(roster),
            member::Event::Settled(roster) => Event::RosterSettled(roster),
            member::Event::NotChanged { change, reason } => Event::NotChanged { change, reason },
            member::Event::Unachievable { leader, reason } => {
                Event::Unachievable { leader, reason }
            }
        })
    }
}
