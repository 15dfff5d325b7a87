//! The client library's side of a member: what speaks with brokers, and ends as one.

use std::sync::Arc;

use mandate_proto::neli::Mode;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::producer::FutureProducer;
use tokio::sync::oneshot;

use super::broker::setting;
use super::committer::Committer;
use super::context::Context;
use super::prover::Prover;
use super::{KafkaConfig, MembershipProtocol};
use crate::ledger::LedgerError;

pub(super) struct Client {
    pub(super) consumer: Arc<StreamConsumer<Context>>,
    pub(super) committer: Committer,
    pub(super) context: Arc<Context>,
    pub(super) producer: FutureProducer,
    /// Where joins hold commits up. A standby has none.
    prover: Option<Prover>,
    is_held_up: bool,
}

impl Client {
    pub(super) fn start(config: &KafkaConfig) -> Result<Self, LedgerError> {
        let context = Context::new(config.mode == Mode::Exclusive);
        let consumer: StreamConsumer<Context> =
            config.consumer().create_with_context(context).map_err(setting)?;
        let consumer = Arc::new(consumer);
        let committer = Committer::start(consumer.clone());
        let committer = committer.map_err(|error| LedgerError::Fatal(error.to_string()))?;
        let (context, producer) = (consumer.context().clone(), config.producer().create());
        let is_held_up =
            config.mode == Mode::Exclusive && config.protocol != MembershipProtocol::Consumer;
        let producer = producer.map_err(setting)?;
        Ok(Client { context, consumer, committer, producer, prover: None, is_held_up })
    }

    /// Repeats renewals while joins hold commits up. It starts with the first renewal, so a standby has none.
    pub(super) fn prover(&mut self, config: &KafkaConfig) -> Option<&Prover> {
        if self.is_held_up && self.prover.is_none() {
            match Prover::start(config, self.context.clone()) {
                Ok(prover) => self.prover = Some(prover),
                Err(error) => tracing::warn!(%error, "no thread to renew on while members join"),
            }
        }
        self.prover.as_ref()
    }

    /// Ends it. That waits for the broker, if it hangs; the caller does not have to, nor does its runtime when it ends: it
    /// would wait for a blocking task of its own.
    pub(super) fn close(self) -> oneshot::Receiver<()> {
        let Client { consumer, committer, context, producer, prover, .. } = self;
        drop(prover);
        // Whatever the coordinator wants back on the way, it gets.
        context.is_out.store(true, std::sync::atomic::Ordering::SeqCst);
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("mandate-close".into());
        // Without a thread there is nobody to wait for: the receiver is told so.
        let _ = thread.spawn(move || {
            committer.end();
            drop((consumer, producer));
            // A caller that does not wait any more needs no answer.
            let _ = end.send(());
        });
        ended
    }
}
