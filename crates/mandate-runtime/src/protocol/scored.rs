//! POLE, as the driver sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::oracle::Occasion;
use mandate_proto::pole::installation::{NoVote, Promised};
use mandate_proto::pole::member::{Event as Told, Input, Member, Message, NoTransfer};
use mandate_proto::time::Instant;

use super::{Knowledge, Spoken};
use crate::event::{Event, Figures};
use crate::mandate::Held;
use crate::transport::{Delivery, Inbound};

impl Spoken for Member {
    type Message = Message;
    type Stable = Promised;
    type Event = Told;

    fn received(from: MemberId, message: Message) -> Input {
        Input::Received { from, message }
    }

    fn delivery(message: &Message) -> Delivery {
        match message {
            Message::Ping { .. } | Message::Pong { .. } | Message::Heartbeat { .. } => {
                Delivery::Datagram
            }
            Message::Selection(_) | Message::Installation(_) | Message::Handover { .. } => {
                Delivery::Stream
            }
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

    fn resign() -> Input {
        Input::Resign
    }

    fn stop() -> Input {
        Input::Stop
    }

    fn transfer(to: MemberId) -> Result<Input, NoTransfer> {
        Ok(Input::Transfer { to })
    }

    fn figures(figures: Figures) -> Option<Input> {
        Some(Input::Figures(figures))
    }

    fn held(&self, now: Instant) -> Option<Held> {
        let (term, until) = self.mandate(now)?;
        Some(Held { term, began: Instant::ORIGIN, until })
    }

    fn knowledge(&self, _: BTreeMap<MemberId, Duration>, now: Instant) -> Knowledge {
        Knowledge {
            suspected: self.suspected().collect(),
            view: self.view(Occasion::BeforeResignation),
            standing: self.standing(Occasion::BeforeResignation, now),
            has_vote: self.has_vote(),
            detection: self.detection(now),
        }
    }

    fn no_vote(&self) -> Option<NoVote> {
        Member::no_vote(self)
    }

    fn told(&self, event: Told) -> Vec<Event> {
        if let Told::WentBack { member, term } = event {
            let whose = if member == self.config().me() {
                "this member".into()
            } else {
                member.to_string()
            };
            tracing::error!(
                %member, %term,
                "the state on the disk of {whose} is older than what it has promised: it was restored from a copy, or \
                 another process uses its id. It has no vote until all others have told it what they promised. Never \
                 restore a state file; if its disk was lost, start it with --lost"
            );
        }
        vec![event.into()]
    }
}
