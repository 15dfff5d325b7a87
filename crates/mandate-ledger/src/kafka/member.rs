//! A member's side of a topic on Kafka.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mandate_proto::neli::{
    BarrierId, Input, Mode, Partition, Published, Record, Renewed, Request, RequestId,
};
use mandate_proto::time::WallTime;
use mandate_proto::wire;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message, Timestamp};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::KafkaConfig;
use super::broker::setting;
use super::committer::Committer;
use super::context::{Context, Happened, partitions, unassign};
use crate::ledger::{LedgerError, Member};

/// A member's side of a topic.
pub struct KafkaMember {
    topic: String,
    consumer: Arc<StreamConsumer<Context>>,
    committer: Committer,
    context: Arc<Context>,
    producer: FutureProducer,
    /// Where records under way go.
    publishing: BTreeMap<RequestId, Partition>,
    /// The last offset of each partition that is known: what commits say.
    offsets: BTreeMap<Partition, i64>,
    /// What the coordinator wants back, at which barrier, and what of it is still to be released.
    revoking: Option<(TopicPartitionList, BarrierId, BTreeSet<Partition>)>,
    barriers: u64,
    session: Duration,
    /// Its static name, if it has one.
    instance: Option<String>,
}

impl std::fmt::Debug for KafkaMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaMember").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl KafkaMember {
    pub(super) fn new(config: &KafkaConfig) -> Result<Self, LedgerError> {
        let context = Context::new(config.mode == Mode::Exclusive);
        let consumer: StreamConsumer<Context> =
            config.consumer().create_with_context(context).map_err(setting)?;
        let consumer = Arc::new(consumer);
        let committer = Committer::start(consumer.clone());
        let committer = committer.map_err(|error| LedgerError::Fatal(error.to_string()))?;
        Ok(KafkaMember {
            topic: config.topic.clone(),
            context: consumer.context().clone(),
            consumer,
            committer,
            producer: config.producer().create().map_err(setting)?,
            publishing: BTreeMap::new(),
            offsets: BTreeMap::new(),
            revoking: None,
            barriers: 0,
            session: config.session,
            instance: config.instance.clone(),
        })
    }

    fn tell(&self, input: Input) {
        self.context.push(Happened::Tell(input));
    }

    fn publish(&mut self, id: RequestId, partition: Partition, record: &Record) {
        self.publishing.insert(id, partition);
        let mut payload = Vec::new();
        wire::encode(record, &mut payload);
        let message: FutureRecord<'_, (), [u8]> =
            FutureRecord::to(&self.topic).partition(partition.get() as i32).payload(&payload);
        let delivery = match self.producer.send_result(message) {
            Ok(delivery) => delivery,
            Err((error, _)) => {
                tracing::debug!(%error, "a record could not be sent");
                return self.tell(Input::Published { id, outcome: Published::Failed });
            }
        };
        let context = self.context.clone();
        tokio::spawn(async move {
            let outcome = match delivery.await {
                Ok(Ok(delivered)) => Published::Appended {
                    offset: delivered.offset.max(0) as u64,
                    stamp: wall(delivered.timestamp),
                },
                Ok(Err((error, _))) => {
                    tracing::debug!(%error, "a record may not have been delivered");
                    Published::Unknown
                }
                Err(_) => Published::Unknown,
            };
            context.push(Happened::Tell(Input::Published { id, outcome }));
        });
    }

    /// A commit that the coordinator takes of a member only.
    fn renew(&mut self, id: RequestId, renewed: &[Partition]) {
        let mut list = TopicPartitionList::new();
        for partition in renewed {
            let offset = self.offsets.get(partition).map_or(0, |offset| offset + 1);
            let mut one = list.add_partition(&self.topic, partition.get() as i32);
            let _ = one.set_offset(Offset::Offset(offset));
        }
        if !self.committer.commit(id, list) {
            self.tell(Input::Renewed { id, outcome: Renewed::Failed });
        }
    }

    fn committed(&self, id: RequestId, outcome: Renewed) -> Input {
        // The client may have lost the assignment, and its generation with it, before this was sent: then it was
        // taken from a stranger, because the group was empty.
        let is_lost = self.consumer.assignment_lost();
        let outcome = match outcome {
            Renewed::Accepted if is_lost => Renewed::Refused,
            outcome => outcome,
        };
        Input::Renewed { id, outcome }
    }

    fn wanted_back(&mut self, list: TopicPartitionList) -> Input {
        self.barriers += 1;
        let (barrier, partitions) = (BarrierId::new(self.barriers), partitions(&list));
        self.revoking = Some((list, barrier, partitions.iter().copied().collect()));
        Input::Revoking { barrier, partitions }
    }

    fn release(&mut self, barrier: BarrierId, released: &[Partition]) {
        if let Some((_, at, left)) = &mut self.revoking
            && *at == barrier
        {
            released.iter().for_each(|partition| {
                left.remove(partition);
            });
            if left.is_empty() {
                self.end_barrier();
            }
        }
    }

    fn end_barrier(&mut self) {
        if let Some((list, _, _)) = self.revoking.take()
            && let Err(error) = unassign(&*self.consumer, &list)
        {
            tracing::warn!(%error, "partitions could not be given back");
        }
    }

    fn join(&self) {
        self.context.is_out.store(false, Ordering::SeqCst);
        if let Err(error) = self.consumer.subscribe(&[&self.topic]) {
            tracing::warn!(%error, "could not subscribe");
        }
    }

    fn leave(&mut self) {
        self.context.is_out.store(true, Ordering::SeqCst);
        self.end_barrier();
        self.consumer.unsubscribe();
    }

    fn deal_with(&mut self, happened: Happened) -> Option<Input> {
        match happened {
            Happened::Tell(input) => {
                match &input {
                    Input::Lost { .. } => self.revoking = None,
                    Input::Published { id, outcome: Published::Appended { offset, .. } } => {
                        if let Some(partition) = self.publishing.remove(id) {
                            self.offsets.insert(partition, *offset as i64);
                        }
                    }
                    Input::Published { id, .. } => {
                        self.publishing.remove(id);
                    }
                    _ => {}
                }
                Some(input)
            }
            Happened::Revoking(list) if self.context.is_out.load(Ordering::SeqCst) => {
                let partitions = partitions(&list);
                self.revoking = Some((list, BarrierId::new(self.barriers), BTreeSet::new()));
                self.end_barrier();
                Some(Input::Lost { partitions })
            }
            Happened::Revoking(list) => Some(self.wanted_back(list)),
            Happened::Committed(id, outcome) => Some(self.committed(id, outcome)),
        }
    }
}

impl Member for KafkaMember {
    fn ask(&mut self, request: Request) {
        match request {
            Request::Join => self.join(),
            Request::Publish { id, partition, record } => self.publish(id, partition, &record),
            Request::Renew { id, partitions } => self.renew(id, &partitions),
            Request::Release { barrier, partitions } => self.release(barrier, &partitions),
            Request::Leave => self.leave(),
        }
    }

    fn abandon(&mut self, id: RequestId) {
        self.publishing.remove(&id);
    }

    async fn next(&mut self) -> Result<Input, LedgerError> {
        loop {
            while let Some(happened) = self.context.pop() {
                if let Some(input) = self.deal_with(happened) {
                    return Ok(input);
                }
            }
            let context = self.context.clone();
            tokio::select! {
                biased;
                received = self.consumer.recv() => match received {
                    Ok(message) => return Ok(record(&message)),
                    Err(error) => judge(error, self.session, self.instance.as_deref())?,
                },
                () = context.wakes.notified() => {}
            }
        }
    }

    /// Closing waits for the broker, if it hangs; the caller does not have to.
    async fn close(self) {
        let KafkaMember { consumer, committer, producer, .. } = self;
        let _ = tokio::task::spawn_blocking(move || drop((committer, consumer, producer))).await;
    }
}

fn record(message: &BorrowedMessage<'_>) -> Input {
    Input::Record {
        partition: Partition::new(message.partition().max(0) as u32),
        offset: message.offset().max(0) as u64,
        stamp: wall(message.timestamp()),
        record: message.payload().and_then(|payload| wire::decode(payload).ok()),
    }
}

fn wall(timestamp: Timestamp) -> WallTime {
    let millis = timestamp.to_millis().unwrap_or(0).max(0) as u64;
    WallTime::from_unix_nanos(millis.saturating_mul(1_000_000))
}

/// Whether an error is one to go on after.
fn judge(error: KafkaError, session: Duration, instance: Option<&str>) -> Result<(), LedgerError> {
    let is_fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
    match (error.rdkafka_error_code(), instance) {
        (Some(RDKafkaErrorCode::InvalidSessionTimeout), _) => {
            Err(LedgerError::SessionRefused { wanted_ms: session.as_millis() as u64 })
        }
        (Some(RDKafkaErrorCode::FencedInstanceId), Some(instance)) => {
            Err(LedgerError::Replaced(instance.to_owned()))
        }
        _ if is_fatal => Err(LedgerError::Fatal(error.to_string())),
        (
            Some(
                RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::Authentication,
            ),
            _,
        ) => {
            // Rights can be given later: it goes on trying, and is heard.
            tracing::warn!(%error, "the broker does not let this member");
            Ok(())
        }
        _ => {
            tracing::debug!(%error, "the client goes on");
            Ok(())
        }
    }
}
