//! What people do without the engine: a plain consumer group in which the partition's owner leads.
//!
//! Its members have the same handle as any other, so that the same harness injects faults into them and the same times are measured.
//! Nothing is claimed, nothing renewed, and nothing ends by itself: two may well lead at once. Terms are the time of
//! the assignment, on the clock that all processes of the host share.

use std::time::Duration;

use anyhow::Context as _;
use mandate_conformance::history::now;
use mandate_proto::election::{Lease, NoTransfer, State};
use mandate_proto::identity::Term;
use mandate_proto::pole::installation::NoChange;
use mandate_proto::time::Instant;
use mandate_proto::value::NoPublish;
use mandate_runtime::engine_side::{Command, EngineSide};
use mandate_runtime::{Election, Event};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::topic_partition_list::TopicPartitionList;
use tokio::sync::mpsc;
use tokio::time::{Instant as Timer, sleep_until};

use mandate::kafka::Builder;

/// The partition whose role is led.
const LED: i32 = 0;

/// Whether the partition was assigned, or taken back.
type Has = bool;

struct Context(mpsc::UnboundedSender<Has>);

impl Context {
    fn tell(&self, list: &TopicPartitionList, has: Has) {
        if list.elements().iter().any(|one| one.partition() == LED) {
            // Nobody drives it any more: nothing is led.
            let _ = self.0.send(has);
        }
    }
}

impl ClientContext for Context {}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(list) = rebalance {
            self.tell(list, false);
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance {
            self.tell(list, true);
        }
    }
}

/// Joins the group. The member ends with the last handle.
pub(super) fn start(config: &Builder) -> anyhow::Result<Election> {
    let (tells, told) = mpsc::unbounded_channel();
    let consumer: StreamConsumer<Context> =
        settings(config).create_with_context(Context(tells)).context("no consumer")?;
    let (election, side) = EngineSide::open(None);
    let member =
        Member { consumer, topic: config.topic(), rest: config.session, side, returns: None };
    member.consumer.subscribe(&[&member.topic]).context("could not subscribe")?;
    tokio::spawn(member.drive(told));
    Ok(election)
}

/// The same session, heartbeats, assignment and wakefulness as the engine's.
fn settings(config: &Builder) -> ClientConfig {
    let ms = |duration: Duration| duration.as_millis().max(1).to_string();
    let heartbeat = config.session / 6;
    let mut settings = ClientConfig::new();
    settings
        .set("bootstrap.servers", &config.brokers)
        .set("socket.nagle.disable", "true")
        .set("reconnect.backoff.ms", "20")
        .set("reconnect.backoff.max.ms", "500")
        .set("group.id", &config.group)
        .set("session.timeout.ms", ms(config.session))
        .set("heartbeat.interval.ms", ms(heartbeat))
        .set("max.poll.interval.ms", ms(config.session * 2 + heartbeat * 4))
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("auto.offset.reset", "latest")
        .set("enable.auto.offset.store", "false")
        .set("fetch.wait.max.ms", "100");
    // Heartbeats leave when something wakes the client's loop, and else once a second.
    let wakes = heartbeat < Duration::from_secs(1);
    settings.set("enable.auto.commit", wakes.to_string());
    if wakes {
        settings.set("auto.commit.interval.ms", ms(heartbeat / 2));
    }
    settings
}

struct Member {
    consumer: StreamConsumer<Context>,
    topic: String,
    /// How long who resigns stays out.
    rest: Duration,
    side: EngineSide,
    /// When it comes back, if it has resigned.
    returns: Option<Timer>,
}

impl Member {
    async fn drive(mut self, mut told: mpsc::UnboundedReceiver<Has>) {
        loop {
            let returns = self.returns;
            tokio::select! {
                biased;
                Some(has) = told.recv() => self.has(has),
                command = self.side.next() => {
                    if !self.obey(command) {
                        break;
                    }
                }
                () = sleep_until(returns.unwrap_or_else(Timer::now)), if returns.is_some() => {
                    self.returns = None;
                    let _ = self.consumer.subscribe(&[&self.topic]);
                }
                // Polling is all that matters.
                _ = self.consumer.recv() => {}
            }
        }
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    fn has(&mut self, has: Has) {
        if has {
            let term = Term::new(now());
            let held = Some(Lease { term, began: Instant::ORIGIN, until: None });
            self.side.tell(Event::Changed(State::Leading { term }), held);
        } else {
            self.side.settle(None);
            self.side.tell(Event::Changed(State::Electing), None);
        }
    }

    /// Whether to go on.
    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Resign { of, done } => {
                self.side.withdraw(of.as_ref());
                self.has(false);
                self.consumer.unsubscribe();
                self.returns = Some(Timer::now() + self.rest);
                done.map(|done| done.send(()));
            }
            Command::Transfer { done, .. } => {
                let _ = done.send(Err(NoTransfer::Unsupported));
            }
            Command::Publish { done, .. } => {
                let _ = done.send(Err(NoPublish::Unsupported));
            }
            Command::Change { done, .. } => {
                let _ = done.send(Err(NoChange::Unsupported.into()));
            }
            Command::Stop => return false,
            // Nobody asks it.
            Command::Figures(_)
            | Command::Status { .. }
            | Command::ResignFrom { .. }
            | Command::Ask { .. }
            | Command::Answer { .. } => {}
        }
        true
    }
}
