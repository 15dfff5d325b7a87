//! What goes into a member and what comes out of it.

use alloc::boxed::Box;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::moves::{Advice, Effect as MoveEffect};
use super::record::{Handover, Record};
use super::requests::{LeaderAnswer, LeaderRequest, LeaderRequestId};
use crate::detector::Beat;
use crate::detector::configurator::Infeasible;
use crate::election::{Figures, NoTransfer, State};
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine;
use crate::oracle::Measured;
use crate::pole::installation::{
    self, ConfigId, MemberChange, NoChange, Reason, Roster, RosterId, Stored, WhyNoVote,
};
use crate::pole::selection;
use crate::value::Value;

/// What members send each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Are you there? With what an oracle needs to know of the sender.
    Ping {
        /// Which; answered with it.
        number: u64,
        /// Requests that clients send to the sender, a second.
        requests: f64,
        /// How often the sender wants heartbeats from the leader, once it knows its link.
        interval: Option<Duration>,
        /// Among which members, and for which guarantee, the sender counts votes.
        config: ConfigId,
    },
    /// I am.
    Pong {
        /// Of the ping.
        number: u64,
        /// Requests that clients send to the sender, a second.
        requests: f64,
        /// The sender's incarnation.
        life: Incarnation,
        /// Why the sender could promise nothing; `None` if it could: it has its disk, or has recovered.
        no_vote: Option<WhyNoVote>,
        /// What it would be worth as the leader in place of the present one.
        standing: Option<Measured>,
        /// Among which members, and for which guarantee, the sender counts votes.
        config: ConfigId,
        /// The highest term that the sender has promised: who remembers a higher one knows that its disk
        /// went back.
        promised: Term,
        /// The newest version of the protocol that the sender speaks, as far as this link shows it: see [`wire`](crate::wire).
        speaks: u32,
    },
    /// The sender leads.
    Heartbeat {
        /// In this term.
        term: Term,
        /// Label and interval.
        beat: Beat,
    },
    /// Who should lead.
    Selection(selection::Message),
    /// Who does.
    Installation(installation::Message),
    /// The sender hands leadership over: why, so that everyone can explain it. Nothing is decided by it.
    Handover {
        /// The term that it gives back.
        term: Term,
        /// The successor.
        to: MemberId,
        /// The reason, for explanations only.
        why: Handover,
    },
    /// The sender leads, and has published this with its term.
    Value {
        /// Its term.
        term: Term,
        /// Rises with every value that the sender publishes.
        revision: u64,
        /// What it has published.
        value: Value,
    },
    /// The sender has taken what was published.
    ValueTaken {
        /// In this term.
        term: Term,
        /// Which revision.
        revision: u64,
        /// The incarnation of the sender that has it: the next one does not.
        life: Incarnation,
    },
    /// Of the leader of this term: an operator asks the sender for it.
    Request {
        /// Answered with it.
        number: u64,
        /// The sender's incarnation; answered with it.
        life: Incarnation,
        /// In this term or not at all.
        term: Term,
        /// What is asked for.
        request: LeaderRequest,
    },
    /// What came of a request.
    Answer {
        /// Of the request.
        number: u64,
        /// Of the request.
        life: Incarnation,
        /// What came of it.
        answer: LeaderAnswer,
    },
}

/// What a member can be told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A message arrived.
    Received {
        /// Who sent it.
        from: MemberId,
        /// What it says.
        message: Message,
    },
    /// What the application knows, from now on.
    Figures(Figures),
    /// A connection to this member was made: it is pinged at once, so that nobody has to wait for the
    /// next round to know how far away it is.
    LinkUp {
        /// The member.
        member: MemberId,
    },
    /// A connection to this member broke: a hint, which starts a probe.
    LinkBroken {
        /// The member.
        member: MemberId,
    },
    /// This member was heard to have another configuration, by who carries messages: it is refused there and here.
    Differs {
        /// The member.
        member: MemberId,
        /// What its configuration comes to.
        config: ConfigId,
    },
    /// Give leadership up, and leave it to the others.
    Resign,
    /// The same because the process ends, in good order: its next incarnation need not wait for a lease.
    Stop,
    /// Hand leadership over.
    Transfer {
        /// The successor.
        to: MemberId,
    },
    /// Publish a value with the term that this member holds. Ignored if it holds none.
    Publish(Value),
    /// Change the members of the group, which this member leads. Answered by [`Event::RosterChanged`] and then
    /// [`Event::Settled`], or by [`Event::NotChanged`].
    Change(MemberChange),
    /// Ask the leader for this, which may be another member. Answered by [`Event::Answered`], once, within
    /// [`ANSWERED_WITHIN`](super::ANSWERED_WITHIN).
    Ask {
        /// No other request of this incarnation has this number.
        number: u64,
        /// What is asked for.
        request: LeaderRequest,
    },
    /// Do this if this member leads in that term, and nothing otherwise. Answered as [`Input::Resign`], [`Input::Transfer`] and
    /// [`Input::Change`] are.
    Serve {
        /// The term that it is meant for.
        term: Term,
        /// What is to be done.
        request: LeaderRequest,
    },
    /// Answer what was [asked](Event::Asked) of this member.
    Answer {
        /// Which request.
        id: LeaderRequestId,
        /// What came of it.
        answer: LeaderAnswer,
    },
    /// Use other parameters from now on. Parameters that make no sense (an interval below a millisecond, or
    /// not below `detect`) are ignored.
    Replan {
        /// Time between heartbeats (eta).
        interval: Duration,
        /// Detection bound (eta + alpha).
        detect: Duration,
    },
}

/// Why a leader is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This member was started.
    Start,
    /// The leader fell silent.
    Silence,
    /// A connection to the leader broke, or another member has lost it, and it answered no probe.
    NoAnswer,
    /// The leader itself looks for one: it was restarted.
    LeaderRestarted,
    /// The leader gave its term back.
    Released,
    /// The leader was asked to hand over to this one.
    Transferred,
    /// The leader handed over to one that serves better, by score.
    Moved,
    /// Who was selected held no mandate in time.
    NotInstalled,
    /// Who was selected does not answer.
    SelectedGone,
    /// Another looks for one, and we know of none.
    Invited,
    /// We led, or were to, and do not.
    Lost(Reason),
    /// We led, and did not hear a quorum any more.
    CutOff,
    /// The leader, or this member, was removed from the group.
    Removed,
}

/// What the application is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Who leads has changed.
    Changed(State),
    /// The leader has published this with its term; gone when who leads changes.
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
    /// A member's disk went back to an older state, this member's own perhaps: it had promised this term before and does
    /// not know any more. It has no vote until it has recovered.
    WentBack {
        /// Whose.
        member: MemberId,
        /// What it had promised.
        term: Term,
    },
    /// A member has another list of members or another guarantee than this one: neither counts the other's votes.
    /// Told once, until they agree.
    Differs {
        /// The member that has another configuration.
        member: MemberId,
        /// What its configuration comes to.
        config: ConfigId,
    },
    /// This member goes by another list of members from now on.
    RosterChanged(Roster),
    /// This member leads, and a quorum has the list with this number on disk: the last change will not be undone.
    Settled(RosterId),
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
    /// A member asks this one, which leads, for something: to be carried out with [`Input::Serve`] when it can be, and answered with
    /// [`Input::Answer`].
    Asked {
        /// Which request.
        id: LeaderRequestId,
        /// The term that it is meant for.
        term: Term,
        /// What is asked for.
        request: LeaderRequest,
    },
    /// What came of a request of this member.
    Answered {
        /// Which one.
        number: u64,
        /// What came of it.
        answer: LeaderAnswer,
    },
}

/// What a member asks for.
pub type Effect = machine::Effect<Message, Stored, Event>;
