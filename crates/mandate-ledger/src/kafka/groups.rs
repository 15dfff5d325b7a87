//! A group as its broker shows it to a process that is no member. Nobody is disturbed.
//!
//! The coordinator says who is in the group and what is assigned to whom, and what each partition's owner has committed: its
//! [mark](mandate_proto::neli::Mark), with the term and who leads. The claim, a record of the topic, only adds since when, for as
//! long as the topic retains it. A group that speaks the consumer protocol is not listed by the client library: then marks alone tell, and
//! who renews between two looks is there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::neli::{LedgerRecord, Mark, Partition, RecordKind};
use mandate_proto::value::Value;
use mandate_proto::wire;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::groups::GroupMemberInfo;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};

use super::KafkaConfig;
use super::broker::{PATIENCE, failed, setting};
use super::mark::mark_of;
use crate::ledger::LedgerError;

/// How long the topic may stay silent while it is read.
const SILENCE: Duration = Duration::from_secs(3);

/// How long to wait between two looks, at most.
const LONGEST_LOOK: Duration = Duration::from_secs(3);

/// A group.
#[derive(Clone, Debug)]
pub struct Group {
    /// What the coordinator is about with it, in its words: `Stable`, `Empty`, `PreparingRebalance` ...
    pub state: String,
    /// Who is in it.
    pub members: Vec<GroupMember>,
    /// Whether the coordinator lists the group. If it does not, nobody is in it, or it speaks the consumer protocol.
    pub is_listed: bool,
    /// Each partition of the topic.
    pub partitions: Vec<PartitionShown>,
}

/// What can be seen of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionShown {
    /// Its number in the topic, from 0.
    pub partition: Partition,
    /// What its owner has committed last, in the group.
    pub mark: Option<Mark>,
    /// Whether the member that left the mark has renewed something between two looks; only asked where the group is not listed.
    pub is_renewed: bool,
    /// When the mark's claim was made, in milliseconds since 1970 by the broker's clock, if the topic still has it.
    pub since_ms: Option<i64>,
    /// What that claim carries, if the topic still has it.
    pub value: Option<Value>,
    /// What is wrong with it, in words.
    pub trouble: Option<String>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Of which partition.
    pub partition: Partition,
    /// The term.
    pub term: Term,
    /// Who claims it.
    pub member: MemberId,
    /// When, in milliseconds since 1970 by the broker's clock.
    pub at_ms: i64,
    /// What it carries.
    pub value: Option<Value>,
}

impl Group {
    /// Looks at a group.
    pub async fn look(config: &KafkaConfig) -> Result<Self, LedgerError> {
        blocking(config, |reader| {
            let mut partitions = reader.shown()?;
            let groups = reader.consumer.fetch_group_list(Some(&reader.group), PATIENCE);
            let groups = groups.map_err(failed("ask for the group"))?;
            let group = groups.groups().iter().find(|group| group.name() == reader.group);
            let members = group.map_or(&[][..], |group| group.members());
            let members: Vec<_> = members.iter().map(|member| reader.member(member)).collect();
            let state = group.map_or("Dead", |group| group.state()).to_owned();
            let is_listed = !members.is_empty();
            if !is_listed {
                reader.look_again(&mut partitions)?;
            }
            reader.add_since(&mut partitions);
            Ok(Group { state, members, is_listed, partitions })
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

    /// Each partition, with its mark and what is wrong with it.
    fn shown(&self) -> Result<Vec<PartitionShown>, LedgerError> {
        let metadata = self.consumer.fetch_metadata(Some(&self.topic), PATIENCE);
        let metadata = metadata.map_err(failed("reach the broker"))?;
        let found = metadata.topics().iter().find(|found| found.name() == self.topic);
        let found = found.map_or(&[][..], |found| found.partitions());
        if found.is_empty() {
            return Err(LedgerError::NoTopic(self.topic.clone()));
        }
        let marks = self.marks(found.len() as u32)?;
        let mut shown: Vec<_> = found
            .iter()
            .map(|one| {
                let partition = Partition::new(one.id().max(0) as u32);
                let trouble = (one.leader() < 0)
                    .then(|| "no broker leads this partition: nobody can claim it".to_owned());
                let mark = marks.get(&partition).copied();
                PartitionShown {
                    partition,
                    mark,
                    is_renewed: false,
                    since_ms: None,
                    value: None,
                    trouble,
                }
            })
            .collect();
        shown.sort_unstable_by_key(|one| one.partition);
        Ok(shown)
    }

    /// What the group has committed of each partition.
    fn marks(&self, partitions: u32) -> Result<BTreeMap<Partition, Mark>, LedgerError> {
        let mut list = TopicPartitionList::new();
        list.add_partition_range(&self.topic, 0, partitions as i32 - 1);
        let committed = self.consumer.committed_offsets(list, PATIENCE);
        let committed = committed.map_err(failed("read what the group has committed"))?;
        let mark = |one: &TopicPartitionListElem<'_>| {
            Some((Partition::new(one.partition().max(0) as u32), mark_of(one)?))
        };
        Ok(committed.elements().iter().filter_map(mark).collect())
    }

    /// Looks again, after as long as a renewal takes at most: who is there has renewed.
    fn look_again(&self, shown: &mut [PartitionShown]) -> Result<(), LedgerError> {
        let held = |one: &PartitionShown| match one.mark {
            Some(Mark::Held { lease, holder: Some(holder), .. }) => Some((holder, lease)),
            _ => None,
        };
        let Some(longest) = shown.iter().filter_map(held).map(|(_, lease)| lease).max() else {
            return Ok(());
        };
        std::thread::sleep(longest.min(LONGEST_LOOK));
        let now = self.marks(shown.len() as u32)?;
        let lives = |member: MemberId, renewal: u64| {
            now.values().any(|mark| match mark {
                Mark::Held { holder: Some(holder), .. } => {
                    holder.member == member && holder.renewal > renewal
                }
                _ => false,
            })
        };
        for one in shown {
            let held = held(one);
            one.is_renewed = held.is_some_and(|(holder, _)| lives(holder.member, holder.renewal));
        }
        Ok(())
    }

    /// Since when marks are held, of those whose claims the topic still has. That it cannot be read is no reason to say nothing.
    fn add_since(&self, shown: &mut [PartitionShown]) {
        let term = |one: &PartitionShown| match one.mark {
            Some(Mark::Held { term, .. }) if term > Term::NONE && one.trouble.is_none() => {
                Some((one.partition, term))
            }
            _ => None,
        };
        let terms: BTreeMap<_, _> = shown.iter().filter_map(term).collect();
        let from: BTreeMap<_, _> =
            terms.iter().map(|(partition, term)| (*partition, term.get() as i64 - 1)).collect();
        let claims = match self.read(&from, |_| true) {
            Ok(claims) => claims,
            Err(error) => {
                tracing::debug!(%error, "since when partitions are led is not known");
                return;
            }
        };
        for claim in claims.iter().filter(|one| terms.get(&one.partition) == Some(&one.term)) {
            let mut places = shown.iter_mut();
            if let Some(one) = places.find(|one| one.partition == claim.partition) {
                one.since_ms = Some(claim.at_ms);
                one.value = claim.value.clone();
            }
        }
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
            // One that nobody leads, or that cannot be reached, keeps nobody from reading the others.
            let marks = self.consumer.fetch_watermarks(&self.topic, number, SILENCE);
            let Ok((low, high)) = marks else { continue };
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
            let Ok(message) = message else { continue };
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
    let record: LedgerRecord = wire::decode(message.payload()?).ok()?;
    let term = Term::new(message.offset().max(0) as u64).next()?;
    let at_ms = message.timestamp().to_millis().unwrap_or(0);
    match record.kind {
        RecordKind::Claim { value } => {
            Some(Claim { partition, term, member: record.member, at_ms, value })
        }
        RecordKind::Beat => None,
    }
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
