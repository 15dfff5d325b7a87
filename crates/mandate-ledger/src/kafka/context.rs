//! What librdkafka calls back, put in a queue for the member.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mandate_proto::neli::{Input, Partition, Renewed, RequestId};
use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use tokio::sync::Notify;

/// Something that the member is to deal with.
#[derive(Debug)]
pub(super) enum Happened {
    Tell(Input),
    /// The coordinator wants these back, and waits.
    Revoking(TopicPartitionList),
    /// The commit of a renewal has ended.
    Committed(RequestId, Renewed),
}

#[derive(Debug, Default)]
pub(super) struct Context {
    queue: Mutex<VecDeque<Happened>>,
    pub(super) wakes: Notify,
    /// Records are not wanted.
    pauses: bool,
    /// The member has left: whatever the coordinator wants back, it gets.
    pub(super) is_out: AtomicBool,
}

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

    fn assign(&self, consumer: &BaseConsumer<Self>, list: &mut TopicPartitionList) {
        let partitions = partitions(list);
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
            Err(error) => tracing::warn!(%error, "an assignment could not be taken"),
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
                if is_lost || self.is_out.load(Ordering::SeqCst) {
                    // Told first: it is led no more before the coordinator hears of it.
                    self.push(Happened::Tell(Input::Lost { partitions: partitions(list) }));
                    if let Err(error) = unassign(consumer, list) {
                        tracing::warn!(%error, "partitions could not be given up");
                    }
                } else {
                    self.push(Happened::Revoking(list.clone()));
                }
            }
            error => tracing::warn!(?error, "the client could not rebalance"),
        }
    }
}
