//! A broker: coordinators of groups, and partitions.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use crate::neli::{Grants, Partition, RecordDelivery};
use crate::time::{Instant, WallTime};

use super::assignment::AssignmentRule;
use super::epochs::{EpochGroup, Sign};
use super::group::{Division, Group, Joining, Replies};
use super::log::Log;
use super::protocol::{Call, ClientId, GroupId, Reply};

/// What a broker is like.
#[derive(Clone, Copy, Debug)]
pub struct BrokerConfig {
    /// How many partitions.
    pub partitions: NonZeroU32,
    /// How they are divided.
    pub assignor: AssignmentRule,
    /// No session is shorter.
    pub shortest_session: Duration,
    /// Whom records are handed to.
    pub delivery: RecordDelivery,
    /// How groups are coordinated.
    pub coordination: Coordination,
}

/// How a group's members come to have what they are to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coordination {
    /// All join, and go on together in the next generation (Kafka's classic protocol).
    #[default]
    Generations,
    /// Each is brought there by itself, and has an epoch of its own (Kafka's consumer protocol, KIP-848).
    Epochs,
}

/// A broker.
#[derive(Clone, Debug)]
pub struct Broker {
    config: BrokerConfig,
    groups: BTreeMap<GroupId, Group>,
    /// Those that are coordinated by epochs.
    by_epochs: BTreeMap<GroupId, EpochGroup>,
    log: Log,
    replies: Replies,
}

impl Broker {
    /// A new one.
    pub fn new(config: BrokerConfig) -> Self {
        let log = Log::new(config.partitions.get());
        let (groups, by_epochs) = (BTreeMap::new(), BTreeMap::new());
        Broker { config, groups, by_epochs, log, replies: Vec::new() }
    }

    /// What it grants to a client that asks for such a session and barrier and beats so often.
    pub fn grants(&self, session: Duration, heartbeat: Duration, barrier: Duration) -> Grants {
        Grants {
            partitions: self.config.partitions,
            session,
            heartbeat,
            barrier,
            fenced: true,
            renews_through_joins: true,
            delivery: self.config.delivery,
        }
    }

    /// A call has come; answers are ready at once, or later.
    pub fn call(
        &mut self,
        group: GroupId,
        id: ClientId,
        call: Call,
        (now, wall): (Instant, WallTime),
    ) {
        self.advance(now);
        let division = self.division();
        let replies = &mut self.replies;
        let reply = match call {
            Call::Join { session, .. } if session < self.config.shortest_session => {
                Some(Reply::SessionRefused { shortest: self.config.shortest_session })
            }
            Call::Join { attempt, session, barrier, is_member, owned, instance } => {
                let joining = Joining { attempt, session, barrier, is_member, owned, instance };
                let group = self.groups.entry(group).or_default();
                group.join(id, joining, (now, division), replies);
                None
            }
            Call::Heartbeat { generation } => {
                let group = self.groups.entry(group).or_default();
                Some(Reply::Beat(group.heartbeat(id, generation, now)))
            }
            Call::Sign { attempt, epoch, session, barrier, owned } => {
                let sign = Sign { attempt, epoch, session, barrier, owned };
                let group = self.by_epochs.entry(group).or_default();
                group.sign(id, sign, (now, division), replies);
                None
            }
            Call::Commit { id: request, generation, is_sign, marks } => {
                let outcome = match self.config.coordination {
                    Coordination::Generations => {
                        let group = self.groups.entry(group).or_default();
                        group.commit(id, generation, &marks, is_sign.then_some(now))
                    }
                    Coordination::Epochs => {
                        let group = self.by_epochs.entry(group).or_default();
                        group.commit(id, generation, &marks)
                    }
                };
                request.map(|id| Reply::Renewed { id, generation, outcome })
            }
            Call::Inspect { id } => {
                let marks = match self.config.coordination {
                    Coordination::Generations => self.groups.entry(group).or_default().marks(),
                    Coordination::Epochs => self.by_epochs.entry(group).or_default().marks(),
                };
                Some(Reply::Marks { id, marks })
            }
            Call::Leave => {
                match self.config.coordination {
                    Coordination::Generations => {
                        self.groups.entry(group).or_default().leave(id, (now, division), replies);
                    }
                    Coordination::Epochs => {
                        self.by_epochs.entry(group).or_default().leave(id, division);
                    }
                }
                None
            }
            Call::Append { id: request, partition, record } => {
                let offset = self.log.append(partition, record, wall);
                offset.map(|offset| Reply::Appended { id: request, offset, stamp: wall })
            }
            Call::Fetch { from } => Some(self.fetch(group, id, &from)),
        };
        self.replies.extend(reply.map(|reply| (id, reply)));
    }

    fn fetch(&self, group: GroupId, id: ClientId, from: &[(Partition, Option<u64>)]) -> Reply {
        let owner = |partition| self.owner(group, partition);
        let mut records = Vec::new();
        let mut next = Vec::new();
        for (partition, from) in from {
            let may =
                self.config.delivery == RecordDelivery::Anyone || owner(*partition) == Some(id);
            if may {
                let (fetched, end) = self.log.fetch(*partition, *from);
                records.extend(fetched);
                next.push((*partition, end));
            }
        }
        Reply::Fetched { records, next }
    }

    /// Does what is due.
    pub fn advance(&mut self, now: Instant) {
        let division = self.division();
        for group in self.groups.values_mut() {
            group.advance(now, division, &mut self.replies);
        }
        self.by_epochs.values_mut().for_each(|group| group.advance(now, division));
    }

    /// When [`advance`](Self::advance) is due.
    pub fn deadline(&self) -> Option<Instant> {
        let by_epochs = self.by_epochs.values().filter_map(EpochGroup::deadline);
        self.groups.values().filter_map(Group::deadline).chain(by_epochs).min()
    }

    /// The next answer, and for whom it is.
    pub fn reply(&mut self) -> Option<(ClientId, Reply)> {
        (!self.replies.is_empty()).then(|| self.replies.remove(0))
    }

    /// It starts again, with what it had on disk.
    pub fn restart(&mut self, now: Instant) {
        self.replies.clear();
        for group in self.groups.values_mut() {
            group.restart(now);
        }
        self.by_epochs.values_mut().for_each(|group| group.restart(now));
    }

    /// From now on inspections are answered by one that was deposed: as it was at this instant. Or they are answered as
    /// it is.
    pub fn show_old_marks(&mut self, is_old: bool) {
        self.groups.values_mut().for_each(|group| group.show_old_marks(is_old));
        self.by_epochs.values_mut().for_each(|group| group.show_old_marks(is_old));
    }

    /// To whom a partition belongs.
    pub fn owner(&self, group: GroupId, partition: Partition) -> Option<ClientId> {
        match self.config.coordination {
            Coordination::Generations => self.groups.get(&group)?.owner(partition),
            Coordination::Epochs => self.by_epochs.get(&group)?.owner(partition),
        }
    }

    /// Whether a client has joined and was not answered yet.
    pub fn is_joining(&self, group: GroupId, id: ClientId) -> bool {
        self.groups.get(&group).is_some_and(|group| group.is_joining(id))
    }

    /// How many times the group was divided anew since it was last empty.
    pub fn generation(&self, group: GroupId) -> u64 {
        match self.config.coordination {
            Coordination::Generations => self.groups.get(&group).map_or(0, Group::generation),
            Coordination::Epochs => self.by_epochs.get(&group).map_or(0, EpochGroup::epoch),
        }
    }

    fn division(&self) -> Division {
        Division { assignor: self.config.assignor, partitions: self.config.partitions.get() }
    }
}
