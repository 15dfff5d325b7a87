//! NFD-L, as the driver sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::nfd_l::{Event as Told, Input, Message, NfdL, Stable};
use mandate_proto::oracle::{Leniency, Oracle, View};
use mandate_proto::pole::member::{NoTransfer, State};
use mandate_proto::time::Instant;

use super::{Knowledge, Spoken};
use crate::event::{Event, Figures};
use crate::mandate::Held;
use crate::transport::{Delivery, Inbound};

impl Spoken for NfdL {
    type Message = Message;
    type Stable = Stable;
    type Event = Told;

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

    fn resign() -> Input {
        Input::Resign
    }

    fn stop() -> Input {
        Input::Resign
    }

    fn transfer(_: MemberId) -> Result<Input, NoTransfer> {
        Err(NoTransfer::Unsupported)
    }

    fn figures(_: Figures) -> Option<Input> {
        None
    }

    /// Who has sent nothing for a whole detection time has been given up by the others.
    fn held(&self, now: Instant) -> Option<Held> {
        let began = self.leads_since()?;
        let until = self.believed_until()?;
        (now < until).then_some(Held { term: Term::NONE, began, until: Some(until) })
    }

    fn knowledge(&self, round_trips: BTreeMap<MemberId, Duration>, now: Instant) -> Knowledge {
        let me = self.config().id();
        let others: Vec<_> = round_trips.keys().copied().collect();
        let mut view = View::new(me, others.iter().copied().chain([me]));
        view.leader = self.leader();
        view.round_trips = round_trips;
        let leniency = Leniency { unheard: true, unknown: true };
        Knowledge {
            suspected: others.into_iter().filter(|id| self.is_suspected(*id, now)).collect(),
            standing: Oracle::constant().measure_with(&view, leniency),
            view,
            has_vote: true,
            detection: self.detection(now),
        }
    }

    fn told(&self, event: Told) -> Vec<Event> {
        match event {
            Told::LeaderChanged { leader, reason } => {
                let state = match leader {
                    None => State::Electing,
                    Some(me) if me == self.config().id() => State::Leading { term: Term::NONE },
                    Some(leader) => State::Following { leader, term: Term::NONE },
                };
                vec![Event::Because(reason), Event::Changed(state)]
            }
            Told::LeaderRestarted { leader } => vec![Event::LeaderRestarted { leader }],
            Told::LeaderTooSlow { leader, interval } => {
                vec![Event::LeaderTooSlow { leader, interval }]
            }
            Told::Unachievable { leader, reason } => vec![Event::Unachievable { leader, reason }],
            Told::ClockBehind { by } => vec![Event::ClockBehind { by }],
            Told::DuplicateId { .. } => vec![Event::DuplicateId],
        }
    }
}
