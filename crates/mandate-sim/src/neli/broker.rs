//! A broker as a node: it answers every caller, one call of a connection after the other.
//!
//! A join is answered when everyone has joined, or the barrier is over. Until then whatever else came over its
//! connection waits, as on Kafka: renewals, too, unless they have a connection of their own.

use std::collections::BTreeMap;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effect, Effects};
use mandate_proto::neli::memory::{Broker, Call, ClientId, GroupId};
use mandate_proto::time::{Instant, WallTime};

use super::{Connection, Message, NodeEffect, NodeInput};

/// What can befall a broker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// It starts again.
    Restart,
    /// Somebody sets its wall clock, by so many nanoseconds.
    StepClock(i64),
    /// Inspections are answered by one that was deposed now, or no more.
    OldMarks(bool),
}

/// A broker and its wall clock.
pub(crate) struct BrokerNode {
    broker: Broker,
    callers: BTreeMap<ClientId, MemberId>,
    /// Of each member whose join is not answered yet: as whom it joins, and what came behind that.
    parked: BTreeMap<MemberId, (GroupId, ClientId, Vec<Waiting>)>,
    wall_nanos: i64,
}

type Waiting = (GroupId, ClientId, Call);

/// The wall clock at the beginning: an arbitrary day in 2023, far from every member's monotonic clock.
const EPOCH_NANOS: i64 = 1_700_000_000_000_000_000;

impl BrokerNode {
    pub(super) fn new(broker: Broker) -> Self {
        let (callers, parked) = (BTreeMap::new(), BTreeMap::new());
        BrokerNode { broker, callers, parked, wall_nanos: EPOCH_NANOS }
    }

    /// What its wall clock reads.
    pub(crate) fn wall(&self, now: Instant) -> WallTime {
        let nanos = self.wall_nanos.saturating_add_unsigned(now.as_nanos());
        WallTime::from_unix_nanos(nanos.max(0) as u64)
    }

    pub(super) fn handle(&mut self, input: NodeInput, now: Instant, effects: &mut Fx) {
        match input {
            NodeInput::Received(from, Message::Call(group, id, call, connection)) => {
                self.callers.insert(id, from);
                if let Some(call) = self.park(from, (group, id, call), connection) {
                    self.answer(call, now);
                }
            }
            NodeInput::Broker(Trouble::Restart) => {
                // Connections break, and what waited is lost.
                self.parked.clear();
                self.broker.restart(now);
            }
            NodeInput::Broker(Trouble::OldMarks(are_old)) => self.broker.show_old_marks(are_old),
            NodeInput::Broker(Trouble::StepClock(by)) => {
                self.wall_nanos = self.wall_nanos.saturating_add(by);
            }
            _ => {}
        }
        self.pass_on(now, effects);
    }

    pub(super) fn time_out(&mut self, now: Instant, effects: &mut Fx) {
        self.broker.advance(now);
        self.pass_on(now, effects);
    }

    fn answer(&mut self, (group, id, call): Waiting, now: Instant) {
        let wall = self.wall(now);
        self.broker.call(group, id, call, (now, wall));
    }

    /// Keeps a call whose connection waits for a join. A join that is made again, and leaving, come over another: the former one
    /// is given up, with what waited there.
    fn park(&mut self, from: MemberId, call: Waiting, over: Connection) -> Option<Waiting> {
        match (&call.2, self.parked.get_mut(&from)) {
            (Call::Join { .. }, _) => {
                self.parked.insert(from, (call.0, call.1, Vec::new()));
                Some(call)
            }
            (Call::Leave, _) => {
                self.parked.remove(&from);
                Some(call)
            }
            (_, Some((_, _, waiting))) if over == Connection::Group => {
                waiting.push(call);
                None
            }
            _ => Some(call),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.broker.deadline()
    }

    fn pass_on(&mut self, now: Instant, effects: &mut Fx) {
        loop {
            while let Some((id, reply)) = self.broker.reply() {
                if let Some(to) = self.callers.get(&id) {
                    effects.push(Effect::Send { to: *to, message: Message::Reply(id, reply) });
                }
            }
            // What waited behind a join that has been answered, or was of no account.
            let is_over =
                |parked: &(GroupId, ClientId, _)| !self.broker.is_joining(parked.0, parked.1);
            let over =
                self.parked.iter().find(|(_, parked)| is_over(parked)).map(|(from, _)| *from);
            let Some((_, _, waited)) = over.and_then(|from| self.parked.remove(&from)) else {
                break;
            };
            waited.into_iter().for_each(|call| self.answer(call, now));
        }
    }
}

type Fx = Effects<NodeEffect>;
