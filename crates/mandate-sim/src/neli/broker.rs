//! A broker as a node: it answers whoever called.

use std::collections::BTreeMap;

use mandate_ledger::memory::{Broker, ClientId};
use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effect, Effects};
use mandate_proto::time::{Instant, WallTime};

use super::{Message, NodeEffect, NodeInput};

/// What can befall a broker.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// It starts again.
    Restart,
    /// Somebody sets its calendar, by so many nanoseconds.
    StepClock(i64),
    /// Inspections are answered by one that was deposed now, or no more.
    OldMarks(bool),
}

/// A broker and its calendar.
pub struct BrokerNode {
    broker: Broker,
    callers: BTreeMap<ClientId, MemberId>,
    calendar_nanos: i64,
}

/// The calendar at the beginning: an arbitrary day in 2023, far from every member's steady clock.
const EPOCH_NANOS: i64 = 1_700_000_000_000_000_000;

impl BrokerNode {
    pub(super) fn new(broker: Broker) -> Self {
        BrokerNode { broker, callers: BTreeMap::new(), calendar_nanos: EPOCH_NANOS }
    }

    /// The broker.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// What its calendar reads.
    pub fn wall(&self, now: Instant) -> WallTime {
        let nanos = self.calendar_nanos.saturating_add_unsigned(now.as_nanos());
        WallTime::from_unix_nanos(nanos.max(0) as u64)
    }

    pub(super) fn handle(&mut self, input: NodeInput, now: Instant, effects: &mut Fx) {
        match input {
            NodeInput::Received(from, Message::Call(group, id, call)) => {
                self.callers.insert(id, from);
                let wall = self.wall(now);
                self.broker.call(group, id, call, (now, wall));
            }
            NodeInput::Broker(Trouble::Restart) => self.broker.restart(now),
            NodeInput::Broker(Trouble::OldMarks(are_old)) => self.broker.show_old_marks(are_old),
            NodeInput::Broker(Trouble::StepClock(by)) => {
                self.calendar_nanos = self.calendar_nanos.saturating_add(by);
            }
            _ => {}
        }
        self.pass_on(effects);
    }

    pub(super) fn time_out(&mut self, now: Instant, effects: &mut Fx) {
        self.broker.advance(now);
        self.pass_on(effects);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.broker.deadline()
    }

    fn pass_on(&mut self, effects: &mut Fx) {
        while let Some((id, reply)) = self.broker.reply() {
            if let Some(to) = self.callers.get(&id) {
                effects.push(Effect::Send { to: *to, message: Message::Reply(id, reply) });
            }
        }
    }
}

type Fx = Effects<NodeEffect>;
