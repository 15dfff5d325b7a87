//! What is asked of the leader by way of any member.
//!
//! An operator asks the member that is at hand to have leadership given up, handed over, or the members changed. The member sends that on
//! to the leader that it follows, and names the term: the leader carries it out in that term or not at all. A request may be under way
//! for long, and wait at the leader until commands of its host have ended; it does not end the reign of a later term. That makes it
//! harmless to ask twice, too: the second resignation from a term finds it over.
//!
//! Nothing is repeated. Who has asked gets one answer: the leader's, or after [`ANSWERED_WITHIN`] that there was none
//! ([`LeaderAnswer::Unknown`]); then it is not known whether it was done. The leader's application decides when a request is
//! carried out ([`Event::Asked`], [`Input::Serve`]) and what is answered ([`Input::Answer`]).
//!
//! Rejected: requests that the asking member repeats until it hears an answer, also of the next leader. They would end the term of a leader
//! that nobody has asked to resign.
//!
//! Bounded: [`MAX_ASKED`] requests of this member that wait, and [`MAX_SERVED`] of all members that this one carries out; any more
//! are refused.

use alloc::collections::{BTreeMap, BTreeSet};
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Effect, Event, Handover, Member, Message, Phase};
use crate::election::NoTransfer;
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine::Effects;
use crate::pole::installation::{MemberChange, NoChange, RosterId, Safeguard};
use crate::time::Instant;
use crate::wire::REQUESTS_SINCE;

/// Who has asked has an answer within this time. Longer than the leader may wait for commands of its host, which is 10 s.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(12);

/// Requests of one member that may wait for an answer.
pub const MAX_ASKED: usize = 16;

/// Requests of all members that a leader carries out at a time.
pub const MAX_SERVED: usize = 8;

/// What a leader is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaderRequest {
    /// Give leadership up, and leave it to the others.
    Resign,
    /// Hand leadership over.
    Transfer {
        /// The successor.
        to: MemberId,
    },
    /// Change the members of the group.
    Change(MemberChange),
}

/// What is asked for, in words: `to hand over to p2`.
impl fmt::Display for LeaderRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaderRequest::Resign => write!(f, "to resign"),
            LeaderRequest::Transfer { to } => write!(f, "to hand over to {to}"),
            LeaderRequest::Change(change) => match change {
                MemberChange::Add { member, replaces: Some(old), .. } => {
                    write!(f, "to replace {old} by {member}")
                }
                MemberChange::Add { member, .. } => write!(f, "to add {member}"),
                MemberChange::Observe { member, .. } => write!(f, "to let {member} observe"),
                MemberChange::Promote { member } => write!(f, "to promote {member}"),
                MemberChange::Remove { member } => write!(f, "to remove {member}"),
            },
        }
    }
}

/// Names a request: the leader's answer goes back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderRequestId {
    /// Who asks.
    pub by: MemberId,
    /// The incarnation of it that does: the next one does not wait for the answer.
    pub life: Incarnation,
    /// Which of its requests it is.
    pub number: u64,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaderAnswer {
    /// It was done.
    Done,
    /// The members were changed: a quorum has this list on disk.
    Changed(RosterId),
    /// Nothing was done: who was asked does not lead in that term any more.
    NotInTerm,
    /// Nothing was done: too many requests are under way.
    Busy,
    /// Nothing was done: leadership cannot be handed over.
    NoTransfer(NoTransfer),
    /// Nothing was done: the members cannot be changed so.
    NoChange(NoChange),
    /// It is not known whether it was done: leadership was lost on the way, or no answer came.
    Unknown,
    /// Nothing was done: the member that was asked knows of no leader. No leader answers so.
    NoLeader,
    /// Nothing was done: the leader is of a release that takes no requests. No leader answers so.
    TooOld,
}

/// Requests that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    /// Ours, and until when they wait.
    asked: BTreeMap<u64, Instant>,
    /// Those that our application carries out.
    served: BTreeSet<LeaderRequestId>,
}

impl Requests {
    /// When the first of ours has waited for long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.asked.values().min().copied()
    }
}

impl Member {
    /// Sends a request on to the leader.
    pub(super) fn ask(
        &mut self,
        number: u64,
        request: LeaderRequest,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let refusal = match self.phase {
            _ if self.requests.asked.len() >= MAX_ASKED => LeaderAnswer::Busy,
            Phase::Leading { term } => {
                self.requests.asked.insert(number, now + ANSWERED_WITHIN);
                let (by, life) = (self.config.me, self.incarnation);
                return self.requested(
                    LeaderRequestId { by, life, number },
                    (term, request),
                    now,
                    effects,
                );
            }
            Phase::Following(ref following) if self.is_too_old(following.leader) => {
                LeaderAnswer::TooOld
            }
            Phase::Following(ref following) => {
                let (to, term, life) = (following.leader, following.term, self.incarnation);
                self.requests.asked.insert(number, now + ANSWERED_WITHIN);
                let message = Message::Request { number, life, term, request };
                return effects.push(Effect::Send { to, message });
            }
            _ => LeaderAnswer::NoLeader,
        };
        effects.push(Effect::Tell(Event::Answered { number, answer: refusal }));
    }

    /// Whether a leader is of a release that takes no requests.
    fn is_too_old(&self, leader: MemberId) -> bool {
        let spoken = self.pings.spoken().find(|(id, _)| *id == leader);
        spoken.and_then(|(_, speaks)| speaks).is_some_and(|speaks| speaks < REQUESTS_SINCE)
    }

    /// We are asked for something, as the leader of that term.
    pub(super) fn requested(
        &mut self,
        id: LeaderRequestId,
        (term, request): (Term, LeaderRequest),
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if self.requests.served.contains(&id) {
            return;
        }
        let refusal = match &request {
            _ if !self.leads_in(term, now) => Some(LeaderAnswer::NotInTerm),
            _ if self.requests.served.len() >= MAX_SERVED => Some(LeaderAnswer::Busy),
            // Before anyone's command is ended for it.
            LeaderRequest::Transfer { to } => {
                self.may_transfer(*to, now).err().map(LeaderAnswer::NoTransfer)
            }
            LeaderRequest::Resign | LeaderRequest::Change(_) => None,
        };
        match refusal {
            Some(answer) => self.send_answer(id, answer, effects),
            None => {
                self.requests.served.insert(id);
                effects.push(Effect::Tell(Event::Asked { id, term, request }));
            }
        }
    }

    /// Carries a request out, if we still lead in the term that it was meant for.
    pub(super) fn serve(
        &mut self,
        term: Term,
        request: LeaderRequest,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let is_meant = self.leads_in(term, now);
        match request {
            LeaderRequest::Resign if is_meant => self.resign(now, effects),
            // What was asked for is so.
            LeaderRequest::Resign => {}
            LeaderRequest::Transfer { to } if is_meant => {
                self.transfer(to, Handover::Asked, now, effects)
            }
            LeaderRequest::Transfer { to } => {
                let reason = NoTransfer::NotLeading;
                effects.push(Effect::Tell(Event::NoTransfer { to, reason }));
            }
            LeaderRequest::Change(change) if is_meant => self.change(change, now, effects),
            LeaderRequest::Change(change) => {
                let reason = NoChange::NotLeading;
                effects.push(Effect::Tell(Event::NotChanged { change, reason }));
            }
        }
    }

    /// Answers a request, once.
    pub(super) fn answer(
        &mut self,
        id: LeaderRequestId,
        answer: LeaderAnswer,
        effects: &mut Effects<Effect>,
    ) {
        if self.requests.served.remove(&id) {
            self.send_answer(id, answer, effects);
        }
    }

    fn send_answer(
        &mut self,
        id: LeaderRequestId,
        answer: LeaderAnswer,
        effects: &mut Effects<Effect>,
    ) {
        let LeaderRequestId { by, life, number } = id;
        if by == self.config.me {
            return self.answered(life, number, answer, effects);
        }
        effects.push(Effect::Send { to: by, message: Message::Answer { number, life, answer } });
    }

    /// The leader has answered.
    pub(super) fn answered(
        &mut self,
        life: Incarnation,
        number: u64,
        answer: LeaderAnswer,
        effects: &mut Effects<Effect>,
    ) {
        if life == self.incarnation && self.requests.asked.remove(&number).is_some() {
            effects.push(Effect::Tell(Event::Answered { number, answer }));
        }
    }

    /// Whose answer has not come by now: it is not known what became of them.
    pub(super) fn give_up_requests(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.requests.asked.retain(|number, until| {
            let waits = *until > now;
            if !waits {
                let (number, answer) = (*number, LeaderAnswer::Unknown);
                effects.push(Effect::Tell(Event::Answered { number, answer }));
            }
            waits
        });
    }

    fn leads_in(&self, term: Term, now: Instant) -> bool {
        let held = self.mandate(now).map(|(held, _)| held);
        held == Some(term) || held.is_some() && !self.keeps(Safeguard::RequestOfTerm)
    }
}
