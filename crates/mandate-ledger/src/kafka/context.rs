//! What librdkafka calls back, put in a queue for the member.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mandate_proto::neli::{Input, Partition, Renewed, RequestId};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{
    BaseConsumer, Consumer, ConsumerContext, ConsumerGroupMetadata, RebalanceProtocol,
};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use tokio::sync::Notify;

use super::membership::Membership;

/// Something that the member is to deal with.
#[derive(Debug)]
pub(super) enum Happened {
    Tell(Input),
    /// The coordinator wants these back, and waits.
    Revoking(TopicPartitionList),
    /// The commit of a renewal has ended.
    Committed(RequestId, Renewed),
    /// A renewal that was made beside a join has ended.
    Proved(RequestId, Renewed),
}

#[derive(Default)]
pub(super) struct Context {
    queue: Mutex<VecDeque<Happened>>,
    pub(super) wakes: Notify,
    /// Records are not wanted.
    pauses: bool,
    /// The member has left: whatever the coordinator wants back, it gets.
    pub(super) is_out: AtomicBool,
    /// Member and generation of the last assignment.
    membership: Mutex<Membership<ConsumerGroupMetadata>>,
    /// When the client last complained of each kind of thing.
    said: Mutex<BTreeMap<String, Instant>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("is_out", &self.is_out).finish_non_exhaustive()
    }
}

/// Between two log lines of one kind: a broker that is down makes the client complain several times a second.
const QUIET: Duration = Duration::from_secs(30);

/// Kinds of complaints that are kept in mind.
const KINDS: usize = 64;

impl Context {
    pub(super) fn new(pauses: bool) -> Self {
        Context { pauses, ..Context::default() }
    }

    pub(super) fn push(&self, happened: Happened) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(happened);
        self.wakes.notify_one();
    }

    pub(super) fn pop(&self) -> Option<Happened> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// As whom the last assignment was made.
    pub(super) fn membership(&self) -> MutexGuard<'_, Membership<ConsumerGroupMetadata>> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing of this kind was said for a while.
    fn is_news(&self, kind: &str) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= KINDS {
            said.clear();
        }
        let is_news = said.get(kind).is_none_or(|at| at.elapsed() >= QUIET);
        if is_news {
            said.insert(kind.to_owned(), Instant::now());
        }
        is_news
    }

    fn assign(&self, consumer: &BaseConsumer<Self>, list: &mut TopicPartitionList) {
        let partitions = partitions(list);
        let metadata = consumer.group_metadata();
        self.membership().note(metadata);
        // What is committed is no position: only that the commit is taken matters.
        let placed = list.set_all_offsets(Offset::End);
        let assigned = placed.and_then(|()| match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(list),
            _ => consumer.assign(list),
        });
        let paused = assigned.and_then(|()| match self.pauses && list.count() > 0 {
            true => consumer.pause(list),
            false => Ok(()),
        });
        match paused {
            Ok(()) => self.push(Happened::Tell(Input::Assigned { partitions })),
            Err(error) => {
                tracing::warn!(%error, "could not take an assignment: giving it back");
                self.give_up(consumer, list);
            }
        }
    }

    /// The client waits for an answer to every callback, without a bound.
    fn give_up(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        // Told first: it is led no more before the coordinator hears of it.
        self.push(Happened::Tell(Input::Lost { partitions: partitions(list) }));
        if let Err(error) = unassign(consumer, list) {
            tracing::warn!(%error, "could not give partitions up");
        }
    }
}

/// Gives partitions back.
pub(super) fn unassign<C: Consumer<Context>>(
    consumer: &C,
    list: &TopicPartitionList,
) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(list),
        _ => consumer.unassign(),
    }
}

pub(super) fn partitions(list: &TopicPartitionList) -> Vec<Partition> {
    list.elements().iter().map(|one| Partition::new(one.partition().max(0) as u32)).collect()
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "the client says");
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let is_grave = level as i32 <= RDKafkaLogLevel::Warning as i32;
        // An end in good order commits to a group that it leaves.
        let is_normal = facility == "COMMITFAIL" && self.is_out.load(Ordering::SeqCst);
        if is_grave && !is_normal && self.is_news(facility) {
            tracing::warn!(target: "librdkafka", "{facility} {message}");
        } else {
            tracing::debug!(target: "librdkafka", ?level, "{facility} {message}");
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        error: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assign(consumer, list),
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => {
                let is_lost = consumer.assignment_lost();
                if is_lost {
                    self.membership().note(None);
                }
                if is_lost || self.is_out.load(Ordering::SeqCst) {
                    self.give_up(consumer, list);
                } else {
                    self.push(Happened::Revoking(list.clone()));
                }
            }
            error => {
                tracing::warn!(?error, "the client could not rebalance: giving everything up");
                let held = consumer.assignment().unwrap_or_default();
                self.push(Happened::Tell(Input::Lost { partitions: partitions(&held) }));
                if let Err(error) = consumer.unassign() {
                    tracing::warn!(%error, "could not give partitions up");
                }
            }
        }
    }
}
