//! A group as its broker shows it: for whoever asks without being a member. Nobody is disturbed.
//!
//! The coordinator says who is in the group and what is assigned to whom. What a member has claimed stands in the
//! topic; which of the claims are the group's own, its commits say: in exclusive mode they stand behind the last claim
//! that was confirmed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::neli::{Kind, Mark, Partition, Record};
use mandate_proto::wire;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::groups::GroupMemberInfo;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::KafkaConfig;
use super::broker::{PATIENCE, failed, setting};
use super::mark::mark_of;
use crate::ledger::LedgerError;

/// How long the topic may stay silent while it is read.
const SILENCE: Duration = Duration::from_secs(3);

/// A group.
#[derive(Clone, Debug)]
pub struct Group {
    /// What the coordinator is about with it, in its words: `Stable`, `Empty`, `PreparingRebalance` ...
    pub state: String,
    /// Who is in it.
    pub members: Vec<GroupMember>,
    /// The confirmed claim of each partition that has one and of which nobody has said that it is over: whoever made it leads, if it
    /// is still in the group, or will when it has waited for those before it.
    pub claims: BTreeMap<Partition, Claim>,
    /// How many partitions the topic has.
    pub partitions: u32,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// What it calls itself (`client.id`).
    pub client: String,
    /// Where it is.
    pub host: String,
    /// What is assigned to it.
    pub partitions: Vec<Partition>,
}

/// A claim: a term of a partition began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Of which partition.
    pub partition: Partition,
    /// The term.
    pub term: Term,
    /// Who claims it.
    pub member: MemberId,
    /// When, in milliseconds since 1970 by the broker's clock.
    pub at_ms: i64,
}

impl Group {
    /// Looks at a group.
    pub async fn look(config: &KafkaConfig) -> Result<Self, LedgerError> {
        blocking(config, |reader| {
            let partitions = reader.partitions()?;
            let groups = reader.consumer.fetch_group_list(Some(&reader.group), PATIENCE);
            let groups = groups.map_err(failed("ask for the group"))?;
            let group = groups.groups().iter().find(|group| group.name() == reader.group);
            let members = group.map_or(&[][..], |group| group.members());
            let members = members.iter().map(|member| reader.member(member)).collect();
            let state = group.map_or("Dead", |group| group.state()).to_owned();
            let claims = reader.confirmed(partitions)?;
            Ok(Group { state, members, claims, partitions })
        })
        .await
    }
}

/// The claims that the topic still has, the oldest first: of every group that uses the topic, confirmed or not.
pub async fn claims(config: &KafkaConfig) -> Result<Vec<Claim>, LedgerError> {
    blocking(config, |reader| {
        let mut from = BTreeMap::new();
        for partition in (0..reader.partitions()?).map(Partition::new) {
            from.insert(partition, 0);
        }
        let mut claims = reader.read(&from, |_| false)?;
        claims.sort_by_key(|claim| (claim.at_ms, claim.partition, claim.term));
        Ok(claims)
    })
    .await
}

async fn blocking<T: Send + 'static>(
    config: &KafkaConfig,
    work: impl FnOnce(&Reader) -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, LedgerError> {
    let mut client = config.common();
    client.set("group.id", &config.group).set("enable.auto.commit", "false");
    client.set("auto.offset.reset", "earliest");
    let consumer = client.create().map_err(setting)?;
    let reader = Reader { consumer, topic: config.topic.clone(), group: config.group.clone() };
    let done = tokio::task::spawn_blocking(move || work(&reader));
    done.await.map_err(|error| LedgerError::Fatal(error.to_string()))?
}

/// A client that reads, and joins nothing.
struct Reader {
    consumer: BaseConsumer,
    topic: String,
    group: String,
}

impl Reader {
    fn partitions(&self) -> Result<u32, LedgerError> {
        let metadata = self.consumer.fetch_metadata(Some(&self.topic), PATIENCE);
        let metadata = metadata.map_err(failed("reach the broker"))?;
        let found = metadata.topics().iter().find(|found| found.name() == self.topic);
        match found.map_or(0, |found| found.partitions().len() as u32) {
            0 => Err(LedgerError::NoTopic(self.topic.clone())),
            partitions => Ok(partitions),
        }
    }

    fn member(&self, info: &GroupMemberInfo) -> GroupMember {
        let assigned = info.assignment().and_then(|bytes| assigned(bytes, &self.topic));
        GroupMember {
            client: info.client_id().to_owned(),
            host: info.client_host().trim_start_matches('/').to_owned(),
            partitions: assigned.unwrap_or_default(),
        }
    }

    /// The last confirmed claim of each partition: commits stand behind it.
    fn confirmed(&self, partitions: u32) -> Result<BTreeMap<Partition, Claim>, LedgerError> {
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition(&self.topic, partition as i32);
        }
        let committed = self.consumer.committed_offsets(list, PATIENCE);
        let committed = committed.map_err(failed("read what the group has committed"))?;
        let is_over = |one: &_| matches!(mark_of(one), Some(Mark::Over { .. }));
        let behind = committed.elements().into_iter().filter(|one| !is_over(one));
        let behind = behind.filter_map(|one| match one.offset() {
            Offset::Offset(offset) if offset > 0 => {
                Some((Partition::new(one.partition() as u32), offset - 1))
            }
            _ => None,
        });
        let from: BTreeMap<_, _> = behind.collect();
        let claims = self.read(&from, |_| true)?;
        let is_meant = |claim: &Claim| {
            from.get(&claim.partition).map(|at| *at as u64 + 1) == Some(claim.term.get())
        };
        Ok(claims.into_iter().filter(is_meant).map(|claim| (claim.partition, claim)).collect())
    }

    /// Reads claims from these offsets on, up to the end of each partition, or until `is_enough` says so of one.
    fn read(
        &self,
        from: &BTreeMap<Partition, i64>,
        is_enough: impl Fn(&Claim) -> bool,
    ) -> Result<Vec<Claim>, LedgerError> {
        let (mut list, mut ends) = (TopicPartitionList::new(), BTreeMap::new());
        for (partition, offset) in from {
            let number = partition.get() as i32;
            let marks = self.consumer.fetch_watermarks(&self.topic, number, PATIENCE);
            let (low, high) = marks.map_err(failed("read the topic"))?;
            let offset = (*offset).max(low);
            if offset < high {
                ends.insert(*partition, high);
                let mut one = list.add_partition(&self.topic, number);
                one.set_offset(Offset::Offset(offset)).map_err(failed("read the topic"))?;
            }
        }
        self.consumer.assign(&list).map_err(failed("read the topic"))?;
        let (mut claims, mut heard) = (Vec::new(), Instant::now());
        while !ends.is_empty() && heard.elapsed() < SILENCE {
            let Some(message) = self.consumer.poll(Duration::from_millis(100)) else { continue };
            let message = message.map_err(failed("read the topic"))?;
            heard = Instant::now();
            let partition = Partition::new(message.partition().max(0) as u32);
            let mut is_read = ends.get(&partition).is_some_and(|end| message.offset() + 1 >= *end);
            if let Some(claim) = claim(partition, &message) {
                is_read |= is_enough(&claim);
                claims.push(claim);
            }
            if is_read {
                ends.remove(&partition);
            }
        }
        Ok(claims)
    }
}

fn claim(partition: Partition, message: &impl Message) -> Option<Claim> {
    let record: Record = wire::decode(message.payload()?).ok()?;
    let term = Term::new(message.offset().max(0) as u64).next()?;
    let at_ms = message.timestamp().to_millis().unwrap_or(0);
    (record.kind == Kind::Claim).then_some(Claim { partition, term, member: record.member, at_ms })
}

/// What a member was assigned of a topic, in the coordinator's bytes (`ConsumerProtocolAssignment`): a version, then
/// topics, each a name and partitions. `None` if the bytes are something else.
fn assigned(bytes: &[u8], topic: &str) -> Option<Vec<Partition>> {
    let mut bytes = bytes.get(2..)?;
    let mut take = |count: usize| -> Option<&[u8]> {
        let (taken, rest) = bytes.split_at_checked(count)?;
        bytes = rest;
        Some(taken)
    };
    let topics = i32::from_be_bytes(take(4)?.try_into().ok()?);
    let mut found = Vec::new();
    for _ in 0..topics {
        let length = i16::from_be_bytes(take(2)?.try_into().ok()?);
        let is_meant = take(usize::try_from(length).ok()?)? == topic.as_bytes();
        let count = i32::from_be_bytes(take(4)?.try_into().ok()?);
        for _ in 0..count {
            let number = u32::from_be_bytes(take(4)?.try_into().ok()?);
            if is_meant {
                found.push(Partition::new(number));
            }
        }
    }
    found.sort_unstable();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_is_read_from_the_coordinators_bytes() {
        let mut bytes = vec![0, 1, 0, 0, 0, 2];
        for (topic, partitions) in [("other", &[7][..]), ("roles", &[3, 1])] {
            bytes.extend((topic.len() as i16).to_be_bytes());
            bytes.extend(topic.as_bytes());
            bytes.extend((partitions.len() as i32).to_be_bytes());
            partitions.iter().for_each(|one: &i32| bytes.extend(one.to_be_bytes()));
        }
        bytes.extend((-1_i32).to_be_bytes());
        assert_eq!(assigned(&bytes, "roles"), Some(vec![Partition::new(1), Partition::new(3)]));
        for length in 0..bytes.len() - 4 {
            assert_eq!(assigned(&bytes[..length], "roles"), None, "cut off at {length}");
        }
        assert_eq!(assigned(&[0, 0, 0, 0, 0, 0], "roles"), Some(Vec::new()));
    }
}
