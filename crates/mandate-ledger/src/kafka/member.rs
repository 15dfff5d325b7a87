//! A member's side of a topic on Kafka.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mandate_proto::neli::{
    BarrierId, Input, Mark, Partition, Published, Record, Renewed, Request, RequestId,
};
use mandate_proto::time::WallTime;
use mandate_proto::wire;
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message, Timestamp};
use rdkafka::producer::FutureRecord;
use rdkafka::topic_partition_list::TopicPartitionList;
use tokio::time::{MissedTickBehavior, interval};

use super::KafkaConfig;
use super::calendar::Calendar;
use super::client::Client;
use super::context::{Happened, partitions, unassign};
use super::mark::{commit_of, mark_of};
use crate::ledger::{LedgerError, Member};

/// How often the calendar is looked at, at most: a thread that sleeps for so much longer does no harm.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);

/// A member's side of a topic.
pub struct KafkaMember {
    config: KafkaConfig,
    client: Client,
    /// What the coordinator wants back, at which barrier, and what of it is still to be released.
    revoking: Option<(TopicPartitionList, BarrierId, BTreeSet<Partition>)>,
    barriers: u64,
    calendar: Calendar,
    /// When to look at it.
    looks: tokio::time::Interval,
}

impl std::fmt::Debug for KafkaMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaMember").field("topic", &self.config.topic).finish_non_exhaustive()
    }
}

impl KafkaMember {
    pub(super) fn new(config: &KafkaConfig) -> Result<Self, LedgerError> {
        let mut looks = interval(config.heartbeat.max(SHORTEST_LOOK));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(KafkaMember {
            client: Client::start(config)?,
            config: config.clone(),
            revoking: None,
            barriers: 0,
            calendar: Calendar::new(),
            looks,
        })
    }

    fn tell(&self, input: Input) {
        self.client.context.push(Happened::Tell(input));
    }

    fn publish(&mut self, id: RequestId, partition: Partition, record: &Record) {
        let mut payload = Vec::new();
        wire::encode(record, &mut payload);
        let message: FutureRecord<'_, (), [u8]> = FutureRecord::to(&self.config.topic)
            .partition(partition.get() as i32)
            .payload(&payload);
        let delivery = match self.client.producer.send_result(message) {
            Ok(delivery) => delivery,
            Err((error, _)) => {
                tracing::debug!(%error, "a record could not be sent");
                return self.tell(Input::Published { id, outcome: Published::Failed });
            }
        };
        let context = self.client.context.clone();
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
    fn renew(&self, id: RequestId, marks: &[(Partition, Mark)]) {
        if !self.client.committer.commit(id, commit_of(&self.config.topic, marks)) {
            self.tell(Input::Renewed { id, outcome: Renewed::Failed });
        }
    }

    /// Hands a commit to the client ahead of whatever gives the partitions back. The client ends a revocation when its
    /// commits have ended, and the coordinator takes what comes over a connection in order: so the next owner finds it. If it
    /// comes to nothing, the next owner waits.
    fn last_words(&self, marks: &[(Partition, Mark)]) {
        if !marks.is_empty()
            && let Err(error) = self
                .client
                .consumer
                .commit(&commit_of(&self.config.topic, marks), CommitMode::Async)
        {
            tracing::debug!(%error, "the next owner is not told that this one has ended");
        }
    }

    /// Asks the coordinator for what was committed. The call waits for it; renewals should not.
    fn inspect(&self, id: RequestId, inspected: &[Partition]) {
        let mut list = TopicPartitionList::new();
        for partition in inspected {
            list.add_partition(&self.config.topic, partition.get() as i32);
        }
        let (consumer, patience) = (self.client.consumer.clone(), self.config.session / 4);
        tokio::spawn(async move {
            let context = consumer.context().clone();
            let read = move || marks(&consumer.committed_offsets(list, patience).ok()?);
            // The client library panics at words that are not UTF-8.
            let marks = tokio::task::spawn_blocking(read).await.ok().flatten();
            context.push(Happened::Tell(Input::Inspected { id, marks }));
        });
    }

    fn committed(&self, id: RequestId, outcome: Renewed) -> Input {
        // The client may have lost the assignment, and its generation with it, before this was sent: then it was
        // taken from a stranger, because the group was empty.
        let is_lost = self.client.consumer.assignment_lost();
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

    fn release(&mut self, barrier: BarrierId, released: &[Partition], marks: &[(Partition, Mark)]) {
        if self.revoking.as_ref().is_none_or(|(_, at, _)| *at != barrier) {
            return;
        }
        self.last_words(marks);
        if let Some((_, _, left)) = &mut self.revoking {
            released.iter().for_each(|partition| {
                left.remove(partition);
            });
            if left.is_empty() {
                self.end_barrier();
            }
        }
    }

    fn end_barrier(&mut self) {
        if let Some((list, _, _)) = self.revoking.take() {
            self.give_back(&list);
        }
    }

    fn give_back(&self, list: &TopicPartitionList) {
        if let Err(error) = unassign(&*self.client.consumer, list) {
            tracing::warn!(%error, "partitions could not be given back");
        }
    }

    fn join(&mut self) {
        // Asked to leave while a rebalance goes on, the client puts that off, and forgets it when it is to join again: it would go on
        // holding partitions of which nobody here knows.
        let holds_on = self.client.consumer.assignment().is_ok_and(|held| held.count() > 0);
        if holds_on && let Err(error) = self.replace_client() {
            tracing::warn!(%error, "the client could not be started anew");
        }
        self.client.context.is_out.store(false, Ordering::SeqCst);
        if let Err(error) = self.client.consumer.subscribe(&[&self.config.topic]) {
            tracing::warn!(%error, "could not subscribe");
        }
    }

    /// The client's threads sleep by the calendar, and one that was set back by an hour has them sleep for an hour: nobody
    /// would join, beat or be heard. So there is another client, which knows nothing of the former one's partitions.
    fn look_at_calendar(&mut self) -> Result<(), LedgerError> {
        let Some(back) = self.calendar.set_back(self.looks.period()) else { return Ok(()) };
        tracing::warn!(
            "the calendar of this host was set back by {back:?}: the client of Kafka is started anew"
        );
        let is_out = self.replace_client()?;
        let partitions = (0..self.config.partitions.get()).map(Partition::new).collect();
        self.tell(Input::Lost { partitions });
        if !is_out {
            self.join();
        }
        Ok(())
    }

    /// Ends the client, and starts another, which is in no group. Whether the former one was to be in none.
    fn replace_client(&mut self) -> Result<bool, LedgerError> {
        let is_out = self.client.context.is_out.swap(true, Ordering::SeqCst);
        // What the coordinator waits for, it gets: a client that has been asked, and not answered, never ends.
        self.end_barrier();
        while let Some(happened) = self.client.context.pop() {
            if let Happened::Revoking(list) = happened {
                self.give_back(&list);
            }
        }
        let former = std::mem::replace(&mut self.client, Client::start(&self.config)?);
        drop(former.close());
        self.client.context.is_out.store(is_out, Ordering::SeqCst);
        Ok(is_out)
    }

    fn leave(&mut self, marks: &[(Partition, Mark)]) {
        self.client.context.is_out.store(true, Ordering::SeqCst);
        self.last_words(marks);
        self.end_barrier();
        self.client.consumer.unsubscribe();
    }

    fn deal_with(&mut self, happened: Happened) -> Option<Input> {
        match happened {
            Happened::Tell(input) => {
                if matches!(input, Input::Lost { .. }) {
                    self.revoking = None;
                }
                Some(input)
            }
            Happened::Revoking(list) if self.client.context.is_out.load(Ordering::SeqCst) => {
                self.give_back(&list);
                Some(Input::Lost { partitions: partitions(&list) })
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
            Request::Renew { id, marks } => self.renew(id, &marks),
            Request::Inspect { id, partitions } => self.inspect(id, &partitions),
            Request::Release { barrier, partitions, marks } => {
                self.release(barrier, &partitions, &marks);
            }
            Request::Leave { marks } => self.leave(&marks),
        }
    }

    fn abandon(&mut self, _id: RequestId) {}

    async fn next(&mut self) -> Result<Input, LedgerError> {
        loop {
            while let Some(happened) = self.client.context.pop() {
                if let Some(input) = self.deal_with(happened) {
                    return Ok(input);
                }
            }
            let context = self.client.context.clone();
            tokio::select! {
                biased;
                received = self.client.consumer.recv() => match received {
                    Ok(message) => return Ok(record(&message)),
                    Err(error) => judge(error, &self.config)?,
                },
                () = context.wakes.notified() => {}
                _ = self.looks.tick() => self.look_at_calendar()?,
            }
        }
    }

    async fn close(self) {
        let _ = self.client.close().await;
    }
}

/// `None` if one of them could not be read.
fn marks(committed: &TopicPartitionList) -> Option<Vec<(Partition, Mark)>> {
    let elements = committed.elements();
    elements.iter().all(|one| one.error().is_ok()).then(|| {
        let partition = |number: i32| Partition::new(number.max(0) as u32);
        let mark = elements.iter().map(|one| Some((partition(one.partition()), mark_of(one)?)));
        mark.flatten().collect()
    })
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
fn judge(error: KafkaError, config: &KafkaConfig) -> Result<(), LedgerError> {
    let is_fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
    match (error.rdkafka_error_code(), &config.instance) {
        (Some(RDKafkaErrorCode::InvalidSessionTimeout), _) => {
            Err(LedgerError::SessionRefused { wanted_ms: config.session.as_millis() as u64 })
        }
        (Some(RDKafkaErrorCode::FencedInstanceId), Some(instance)) => {
            Err(LedgerError::Replaced(instance.clone()))
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
