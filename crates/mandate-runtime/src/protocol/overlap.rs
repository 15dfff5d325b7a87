//! NFD-L, as the driver sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use mandate_proto::election::State;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::nfd_l::{self, Input, Message, NfdL, Stable};
use mandate_proto::oracle::View;
use mandate_proto::time::Instant;

use super::PeerProtocol;
use crate::election::Status;
use crate::event::Event;
use crate::transport::{Delivery, Inbound};

impl PeerProtocol for NfdL {
    type Message = Message;
    type Stable = Stable;
    type Event = nfd_l::Event;

    fn received(from: MemberId, message: Message) -> Input {
        Input::Received { from, message }
    }

    fn delivery(message: &Message) -> Delivery {
        match message {
            Message::Heartbeat(_) => Delivery::Datagram,
            Message::Farewell { .. } | Message::Ask { .. } => Delivery::Stream,
        }
    }

    /// Nothing: it judges by heartbeats alone.
    fn link(_: &Inbound) -> Option<Input> {
        None
    }

    fn delay(member: MemberId, delay: Duration) -> Option<Input> {
        Some(Input::Delay { member, delay })
    }

    fn known(
        &self,
        round_trips: BTreeMap<MemberId, Duration>,
        now: Instant,
        status: Status,
    ) -> Status {
        let me = self.config().id();
        let others: Vec<_> = round_trips.keys().copied().collect();
        let mut view = View::new(me, others.iter().copied().chain([me]));
        view.leader = self.leader();
        view.round_trips = round_trips;
        let suspected = others.into_iter().filter(|id| self.is_suspected(*id, now)).collect();
        let detection = Some(self.detection(now));
        Status { suspected: Some(suspected), view: Some(view), detection, ..status }
    }

    fn told(&self, event: nfd_l::Event) -> Vec<Event> {
        match event {
            nfd_l::Event::LeaderChanged { leader, reason } => {
                let state = match leader {
                    None => State::Electing,
                    Some(me) if me == self.config().id() => State::Leading { term: Term::NONE },
                    Some(leader) => State::Following { leader, term: Term::NONE },
                };
                vec![Event::Because(reason), Event::Changed(state)]
            }
            nfd_l::Event::LeaderRestarted { leader } => vec![Event::LeaderRestarted { leader }],
            nfd_l::Event::LeaderTooSlow { leader, interval } => {
                vec![Event::LeaderTooSlow { leader, interval }]
            }
            nfd_l::Event::Unachievable { leader, reason } => {
                vec![Event::Unachievable { leader, reason }]
            }
            nfd_l::Event::ClockBehind { by } => vec![Event::ClockBehind { by }],
            nfd_l::Event::DuplicateId { .. } => vec![Event::DuplicateId],
        }
    }
}
