//! A member's side of a topic on Kafka.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mandate_proto::neli::{
    BarrierId, Input, LedgerRecord, LedgerRequest, Mark, Partition, PublishOutcome, Renewed,
    RequestId,
};
use mandate_proto::time::Instant as BootInstant;
use mandate_proto::wire;
use mandate_runtime::clock::Clock;
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::FutureRecord;
use rdkafka::topic_partition_list::TopicPartitionList;
use tokio::time::{MissedTickBehavior, interval};

use super::KafkaConfig;
use super::client::Client;
use super::context::{Happened, partitions, unassign};
use super::mark::commit_of;
use super::membership::Signs;
use super::prover::Proof;
use super::reading::{judge, marks, record, wall};
use super::size;
use super::wall_clock::WallClock;
use crate::ledger::{LedgerClient, LedgerError};

/// A renewal that is not answered within this part of the session, or of the threshold, is made once more, beside the join behind which it may
/// wait. A threshold is half a session by default, with four renewals in it: then both are the same, and two are left.
const HEDGE_OF_SESSION: u32 = 16;
const HEDGE_OF_THRESHOLD: u32 = 8;

/// How often the wall clock is looked at, at most: a thread that sleeps for so much longer does no harm.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);

/// A member's side of a topic.
pub struct KafkaMember {
    config: KafkaConfig,
    client: Client,
    /// What the coordinator wants back.
    revoking: Option<Revoking>,
    barriers: u64,
    /// Commits that were not answered yet.
    unanswered: u32,
    /// How long a commit may go unanswered before it is made once more.
    patience: Duration,
    /// A renewal that is made once more, unless it is answered by then.
    hedge: Option<(Instant, RequestId, TopicPartitionList)>,
    signs: Signs,
    /// When a renewal was last accepted, counted from its sending.
    renewed: Option<BootInstant>,
    sent: Option<Sent>,
    clock: Clock,
    /// Another has taken its static name, or so it was told: it goes on without one, once.
    is_renamed: bool,
    /// When it joins again, if it waits for its static name.
    joins_at: Option<Instant>,
    /// Partitions without a broker are asked for.
    asks_who_serves: Arc<AtomicBool>,
    wall_clock: WallClock,
    /// When to look at it.
    looks: tokio::time::Interval,
    /// When to look at how many partitions the topic has.
    sizes: tokio::time::Interval,
}

/// The renewal that was sent last.
#[derive(Clone, Copy)]
struct Sent {
    id: RequestId,
    at: BootInstant,
    /// Which membership had been noted by then.
    membership: u64,
}

/// What the coordinator wants back, at which barrier, and what of it is still to be released, until when.
struct Revoking {
    list: TopicPartitionList,
    barrier: BarrierId,
    left: BTreeSet<Partition>,
    until: Instant,
}

impl std::fmt::Debug for KafkaMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaMember").field("topic", &self.config.topic).finish_non_exhaustive()
    }
}

impl KafkaMember {
    pub(super) fn new(config: &KafkaConfig, threshold: Duration) -> Result<Self, LedgerError> {
        let mut looks = interval(config.heartbeat.max(SHORTEST_LOOK));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sizes = interval(size::EVERY);
        sizes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(KafkaMember {
            client: Client::start(config)?,
            config: config.clone(),
            revoking: None,
            barriers: 0,
            unanswered: 0,
            patience: (config.session / HEDGE_OF_SESSION).min(threshold / HEDGE_OF_THRESHOLD),
            hedge: None,
            signs: Signs::default(),
            renewed: None,
            sent: None,
            clock: Clock::start(),
            is_renamed: false,
            joins_at: None,
            asks_who_serves: Arc::default(),
            wall_clock: WallClock::new(),
            looks,
            sizes,
        })
    }

    fn tell(&self, input: Input) {
        self.client.context.push(Happened::Tell(input));
    }

    fn publish(&mut self, id: RequestId, partition: Partition, record: &LedgerRecord) {
        let mut payload = Vec::new();
        wire::encode(record, &mut payload);
        let message: FutureRecord<'_, (), [u8]> = FutureRecord::to(&self.config.topic)
            .partition(partition.get() as i32)
            .payload(&payload);
        let delivery = match self.client.producer.send_result(message) {
            Ok(delivery) => delivery,
            Err((error, _)) => {
                tracing::debug!(%error, "a record could not be sent");
                return self.tell(Input::Published { id, outcome: PublishOutcome::Failed });
            }
        };
        let context = self.client.context.clone();
        tokio::spawn(async move {
            let outcome = match delivery.await {
                Ok(Ok(delivered)) => PublishOutcome::Appended {
                    offset: delivered.offset.max(0) as u64,
                    stamp: wall(delivered.timestamp),
                },
                Ok(Err((error, _))) => {
                    tracing::debug!(%error, "a record may not have been delivered");
                    PublishOutcome::Unknown
                }
                Err(_) => PublishOutcome::Unknown,
            };
            context.push(Happened::Tell(Input::Published { id, outcome }));
        });
    }

    /// A commit that the coordinator takes of a member only.
    fn renew(&mut self, id: RequestId, marks: &[(Partition, Mark)]) {
        let (now, list) = (Instant::now(), commit_of(&self.config.topic, marks));
        let membership = self.client.context.membership().number();
        self.sent = Some(Sent { id, at: self.clock.now(), membership });
        // One that is not answered keeps the next from being sent.
        let delay = match self.unanswered {
            0 => self.patience,
            _ => Duration::ZERO,
        };
        let is_hedged = self.client.prover(&self.config).is_some();
        self.hedge = is_hedged.then(|| (now + delay, id, list.clone()));
        if self.client.committer.commit(id, list) {
            self.unanswered += 1;
        } else if self.hedge.is_none() {
            self.tell(Input::Renewed { id, outcome: Renewed::Failed });
        }
    }

    /// Makes a renewal once more, beside the commit that waits.
    fn prove(&mut self) {
        let Some((_, id, list)) = self.hedge.take() else { return };
        let membership = self.client.context.membership().proven();
        if let Some((prover, membership)) = self.client.prover(&self.config).zip(membership) {
            prover.prove(Proof { id, list, membership });
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

    /// Asks the coordinator for what was committed of all partitions that the topic has by now: members that count more of them than
    /// this one leave marks there, too. The calls wait; renewals should not.
    fn inspect(&self, id: RequestId) {
        let (topic, counted) = (self.config.topic.clone(), self.config.partitions.get());
        let (consumer, patience) = (self.client.consumer.clone(), self.config.session / 4);
        tokio::spawn(async move {
            let context = consumer.context().clone();
            let read = move || {
                let found = size::look(&*consumer, &topic, patience)?;
                let mut list = TopicPartitionList::new();
                list.add_partition_range(&topic, 0, found.max(counted) as i32 - 1);
                marks(&consumer.committed_offsets(list, patience).ok()?)
            };
            // The client library panics at words that are not UTF-8.
            let marks = tokio::task::spawn_blocking(read).await.ok().flatten();
            context.push(Happened::Tell(Input::Inspected { id, marks }));
        });
    }

    /// Has it seen how many partitions the topic has.
    fn look_at_size(&self) {
        let (consumer, topic) = (self.client.consumer.clone(), self.config.topic.clone());
        tokio::task::spawn_blocking(move || size::look(&*consumer, &topic, size::PATIENCE));
    }

    fn committed(&mut self, id: RequestId, outcome: Renewed) -> Input {
        // The client may have lost the assignment, and its generation with it, before this was sent: then it was
        // taken from a stranger, because the group was empty.
        let is_lost = self.client.consumer.assignment_lost();
        let outcome = match outcome {
            Renewed::Accepted if is_lost => Renewed::Refused,
            outcome => outcome,
        };
        self.hedge = self.hedge.take().filter(|(_, of, _)| *of != id);
        if outcome == Renewed::Accepted {
            let sent = self.sent.filter(|sent| sent.id == id).map(|sent| sent.at);
            self.renewed = self.renewed.max(sent);
        }
        Input::Renewed { id, outcome }
    }

    /// A plain commit was answered. One of a static name that was accepted after a session without another proves nothing: the member may
    /// have been removed and have come back in silence.
    fn kept(&mut self, id: RequestId, outcome: Renewed) -> Renewed {
        let is_named = self.config.instance.is_some() && outcome == Renewed::Accepted;
        let sent = self.sent.filter(|sent| is_named && sent.id == id);
        let session = self.config.session;
        match sent.is_none_or(|sent| self.signs.accepted(sent.at, self.clock.now(), session)) {
            true => outcome,
            false => Renewed::Refused,
        }
    }

    /// A renewal beside a join has ended. One that failed tells nothing: the commit may yet be answered.
    fn proved(&mut self, id: RequestId, outcome: Renewed) -> Option<Input> {
        (outcome != Renewed::Failed).then(|| self.committed(id, outcome))
    }

    /// What the coordinator waits for, it gets, if work ends or not, and if the machine knows of it or not.
    fn end_barrier_that_is_over(&mut self) {
        if let Some(Revoking { left, .. }) = &self.revoking {
            let partitions: Vec<_> = left.iter().copied().collect();
            tracing::warn!("{partitions:?} were not released in time: giving them back");
            self.tell(Input::Lost { partitions });
            self.end_barrier();
        }
    }

    /// When something is to be done that nobody asks for.
    fn due(&self) -> Option<Instant> {
        let barrier = self.revoking.as_ref().map(|revoking| revoking.until);
        let hedge = self.hedge.as_ref().map(|(at, ..)| *at);
        [barrier, hedge, self.joins_at].into_iter().flatten().min()
    }

    fn do_what_is_due(&mut self) {
        let now = Instant::now();
        if self.hedge.as_ref().is_some_and(|(at, ..)| *at <= now) {
            self.prove();
        }
        if self.revoking.as_ref().is_some_and(|revoking| revoking.until <= now) {
            self.end_barrier_that_is_over();
        }
        if self.joins_at.take_if(|at| *at <= now).is_some() {
            self.join();
        }
    }

    /// Asks which partitions have no broker, one question at a time: nobody could lead them.
    fn ask_who_serves(&self) {
        if self.asks_who_serves.swap(true, Ordering::SeqCst) {
            return;
        }
        let (consumer, is_asked) = (self.client.consumer.clone(), self.asks_who_serves.clone());
        let (topic, patience) = (self.config.topic.clone(), self.config.session / 4);
        tokio::spawn(async move {
            let context = consumer.context().clone();
            let ask = move || consumer.fetch_metadata(Some(&topic), patience).ok();
            if let Ok(Some(metadata)) = tokio::task::spawn_blocking(ask).await {
                let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
                let unserved = partitions.filter(|one| one.leader() < 0);
                let unserved = unserved.map(|one| Partition::new(one.id().max(0) as u32));
                let partitions = unserved.collect();
                context.push(Happened::Tell(Input::Unserved { partitions }));
            }
            is_asked.store(false, Ordering::SeqCst);
        });
    }

    fn wanted_back(&mut self, list: TopicPartitionList) -> Input {
        self.barriers += 1;
        let (barrier, partitions) = (BarrierId::new(self.barriers), partitions(&list));
        let (left, until) =
            (partitions.iter().copied().collect(), Instant::now() + self.config.barrier);
        self.revoking = Some(Revoking { list, barrier, left, until });
        Input::Revoking { barrier, partitions }
    }

    fn release(&mut self, barrier: BarrierId, released: &[Partition], marks: &[(Partition, Mark)]) {
        if self.revoking.as_ref().is_none_or(|revoking| revoking.barrier != barrier) {
            return;
        }
        self.last_words(marks);
        if let Some(Revoking { left, .. }) = &mut self.revoking {
            released.iter().for_each(|partition| {
                left.remove(partition);
            });
            if left.is_empty() {
                self.end_barrier();
            }
        }
    }

    fn end_barrier(&mut self) {
        if let Some(Revoking { list, .. }) = self.revoking.take() {
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

    /// The client's threads sleep by the wall clock, and one that was set back by an hour has them sleep for an hour: nobody
    /// would join, beat or be heard. So there is another client, which knows nothing of the former one's partitions.
    fn look_at_wall_clock(&mut self) -> Result<(), LedgerError> {
        let Some(back) = self.wall_clock.set_back(self.looks.period()) else { return Ok(()) };
        tracing::warn!(
            "the wall clock of this host was set back by {back:?}: the Kafka client is started again"
        );
        self.start_anew()
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
        self.unanswered = 0;
        self.hedge = None;
        let former = std::mem::replace(&mut self.client, Client::start(&self.config)?);
        drop(former.close());
        self.client.context.is_out.store(is_out, Ordering::SeqCst);
        Ok(is_out)
    }

    fn leave(&mut self, marks: &[(Partition, Mark)]) {
        self.joins_at = None;
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
                if matches!(input, Input::Lost { .. } | Input::Assigned { .. }) {
                    self.signs.begin();
                }
                Some(input)
            }
            Happened::Revoking(list) if self.client.context.is_out.load(Ordering::SeqCst) => {
                self.give_back(&list);
                Some(Input::Lost { partitions: partitions(&list) })
            }
            Happened::Revoking(list) => Some(self.wanted_back(list)),
            Happened::Committed(id, outcome) => {
                self.unanswered = 0;
                let outcome = self.kept(id, outcome);
                let input = self.committed(id, outcome);
                if let (Input::Renewed { outcome: Renewed::Accepted, .. }, Some(sent)) =
                    (&input, self.sent.filter(|sent| sent.id == id))
                {
                    self.client.context.membership().confirm(sent.membership);
                }
                Some(input)
            }
            Happened::Proved(id, outcome) => self.proved(id, outcome),
        }
    }

    /// The coordinator says that another process has this member's static name. That may be so; but a client that was
    /// cut off for a session, and comes back as another, is told the same. A member that was heard of within a session knows that it
    /// was replaced. Any other goes on without a name, which does no harm to the process that has it.
    fn renamed(&mut self, instance: String) -> Result<(), LedgerError> {
        let since = self.renewed.map(|at| self.clock.now().since(at));
        let is_sure = since.is_some_and(|since| since < self.config.session);
        if is_sure || self.is_renamed {
            return Err(LedgerError::Replaced(instance));
        }
        tracing::warn!(
            "lost the static name {instance} while the coordinator was out of reach: going on without it, and with it again \
             after a restart; if another process has that name, give each its own"
        );
        self.is_renamed = true;
        self.config.instance = None;
        self.start_anew()
    }

    /// Goes on with another client, which knows nothing of the former one's partitions.
    fn start_anew(&mut self) -> Result<(), LedgerError> {
        let is_out = self.replace_client()?;
        let partitions = (0..self.config.partitions.get()).map(Partition::new).collect();
        self.tell(Input::Lost { partitions });
        if !is_out {
            self.join();
        }
        Ok(())
    }

    fn judge(&mut self, error: KafkaError) -> Result<(), LedgerError> {
        match (error.rdkafka_error_code(), self.config.instance.clone()) {
            (Some(RDKafkaErrorCode::FencedInstanceId), Some(instance)) => self.renamed(instance),
            // In the consumer protocol a name is free when its session is over.
            (Some(RDKafkaErrorCode::UnreleasedInstanceId), Some(instance)) => {
                tracing::warn!("the static name {instance} is not free yet: trying again");
                let is_out = self.replace_client()?;
                self.joins_at = (!is_out).then(|| Instant::now() + self.config.heartbeat);
                Ok(())
            }
            _ => judge(error, &self.config),
        }
    }
}

impl LedgerClient for KafkaMember {
    fn ask(&mut self, request: LedgerRequest) {
        match request {
            LedgerRequest::Join => self.join(),
            LedgerRequest::Publish { id, partition, record } => {
                self.publish(id, partition, &record)
            }
            LedgerRequest::Renew { id, marks } => self.renew(id, &marks),
            LedgerRequest::Inspect { id, .. } => self.inspect(id),
            LedgerRequest::Release { barrier, partitions, marks } => {
                self.release(barrier, &partitions, &marks);
            }
            LedgerRequest::Leave { marks } => self.leave(&marks),
        }
    }

    fn abandon(&mut self, id: RequestId) {
        // A claim that does not come through: perhaps nobody's would.
        if self.sent.is_none_or(|sent| sent.id != id) {
            self.ask_who_serves();
        }
    }

    async fn next(&mut self) -> Result<Input, LedgerError> {
        loop {
            while let Some(happened) = self.client.context.pop() {
                if let Some(input) = self.deal_with(happened) {
                    return Ok(input);
                }
            }
            let (context, due) = (self.client.context.clone(), self.due());
            let failed = tokio::select! {
                biased;
                received = self.client.consumer.recv() => match received {
                    Ok(message) => return Ok(record(&message)),
                    Err(error) => Some(error),
                },
                () = context.wakes.notified() => None,
                () = until(due) => {
                    self.do_what_is_due();
                    None
                }
                _ = self.looks.tick() => {
                    self.look_at_wall_clock()?;
                    None
                }
                _ = self.sizes.tick() => {
                    self.look_at_size();
                    None
                }
            };
            if let Some(error) = failed {
                self.judge(error)?;
            }
        }
    }

    async fn close(self) {
        let _ = self.client.close().await;
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
