//! POLE, as the driver sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::oracle::Occasion;
use mandate_proto::pole::installation::{NoVote, Roster, Stored};
use mandate_proto::pole::member::{self, Input, Member, Message};
use mandate_proto::time::Instant;

use super::PeerProtocol;
use crate::election::Status;
use crate::event::Event;
use crate::requests::{RequestEvent, Wanted};
use crate::transport::{Delivery, Inbound};

impl PeerProtocol for Member {
    type Message = Message;
    type Stable = Stored;
    type Event = member::Event;

    fn received(from: MemberId, message: Message) -> Input {
        Input::Received { from, message }
    }

    fn delivery(message: &Message) -> Delivery {
        match message {
            Message::Ping { .. } | Message::Pong { .. } | Message::Heartbeat { .. } => {
                Delivery::Datagram
            }
            Message::Selection(_)
            | Message::Installation(_)
            | Message::Handover { .. }
            | Message::Value { .. }
            | Message::ValueTaken { .. }
            | Message::Request { .. }
            | Message::Answer { .. } => Delivery::Stream,
        }
    }

    fn link(change: &Inbound) -> Option<Input> {
        match *change {
            Inbound::Up { member } => Some(Input::LinkUp { member }),
            Inbound::Broken { member } => Some(Input::LinkBroken { member }),
            Inbound::Differs { member, config } => Some(Input::Differs { member, config }),
            Inbound::Received { .. } | Inbound::Twin { .. } => None,
        }
    }

    /// It measures round trips itself.
    fn delay(_: MemberId, _: Duration) -> Option<Input> {
        None
    }

    fn roster(&self) -> Option<&Roster> {
        Some(Member::roster(self))
    }

    fn request(event: &member::Event) -> Option<RequestEvent> {
        match event {
            member::Event::Asked { id, term, request } => {
                let (id, term, request) = (*id, *term, request.clone());
                Some(RequestEvent::Asked(Wanted { id, term, request }))
            }
            member::Event::Answered { number, answer } => {
                Some(RequestEvent::Answered { number: *number, answer: *answer })
            }
            _ => None,
        }
    }

    fn known(&self, _: BTreeMap<MemberId, Duration>, now: Instant, status: Status) -> Status {
        Status {
            suspected: Some(self.suspected().collect()),
            view: Some(self.view(Occasion::BeforeResignation)),
            candidacy: Some(self.standing(Occasion::BeforeResignation, now)),
            has_vote: Some(self.has_vote()),
            no_vote: self.no_vote(),
            lists: self.said().map(|(id, _, list)| (id, list)).collect(),
            without_vote: self.said().filter_map(|(id, why, _)| Some((id, why?))).collect(),
            detection: Some(self.detection(now)),
            ..status
        }
    }

    fn no_vote(&self) -> Option<NoVote> {
        Member::no_vote(self)
    }

    fn told(&self, event: member::Event) -> Vec<Event> {
        if let member::Event::WentBack { member, term } = event {
            let whose = if member == self.config().me() {
                "this member".into()
            } else {
                member.to_string()
            };
            tracing::error!(
                %member, %term,
                "the state on the disk of {whose} is older than what it has promised: it was restored from a copy, or \
                 another process uses its id. It has no vote until all others have told it what they promised. Never \
                 restore a state file; if its disk was lost, start it with `Start::Lost` (--lost)"
            );
        }
        Event::of_pole(event).into_iter().collect()
    }
}
