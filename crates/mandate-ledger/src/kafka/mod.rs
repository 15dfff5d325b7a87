//! Kafka as a ledger: partitions of a topic, assigned by the group coordinator.
//!
//! What proves ownership in exclusive mode is an offset commit in the classic group protocol: the coordinator
//! refuses one of a member that it has replaced. (A fetch carries no membership; the commits of the new
//! consumer protocol do not extend the session.) So that mode uses the classic protocol, and fetches nothing.
//!
//! The coordinator holds a partition for a session after a commit, but not beyond the end of a rebalance, which it
//! ends after `max.poll.interval.ms` without whoever did not rejoin. A member knows of a rebalance by its next
//! heartbeat, unless it is cut off, and then for a session at most. [`KafkaConfig::barrier`] leaves room for that, and
//! [`Grants::fenced`] says what is left.

mod committer;
mod context;
mod member;
mod topic;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use mandate_proto::identity::Lifetime;
use mandate_proto::neli::{Delivery, Grants, Mode};
use rdkafka::ClientConfig;

pub use member::KafkaMember;

use crate::ledger::{Ledger, LedgerError};
use crate::memory::Assignor;

/// Settings that the engine decides, because what it promises rests on them.
const OWNED: [&str; 15] = [
    "bootstrap.servers",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "acks",
    "linger.ms",
    "message.timeout.ms",
];

/// librdkafka looks after its group once a second, unless something wakes it.
const IDLE_LOOP: Duration = Duration::from_secs(1);

/// How Kafka is used.
#[derive(Clone, Debug)]
pub struct KafkaConfig {
    /// Where brokers are: hosts and ports, with commas between.
    pub brokers: String,
    /// The topic. Nothing else should be in it.
    pub topic: String,
    /// The consumer group; a part of the topic's roles for each.
    pub group: String,
    /// How many partitions the topic has.
    pub partitions: NonZeroU32,
    /// Whether the topic is made if there is none, with how many replicas.
    pub create: Option<u16>,
    /// What is wanted of it.
    pub mode: Mode,
    /// After this long without a sign of life a member is replaced. An untuned broker grants 6 s and more.
    pub session: Duration,
    /// Time between signs of life.
    pub heartbeat: Duration,
    /// How long a rebalance waits for a member that lives.
    pub barrier: Duration,
    /// How partitions are divided.
    pub assignor: Assignor,
    /// A name that survives restarts of the process (static membership). A restart takes effect at once, so a
    /// grace period is needed in exclusive mode.
    pub instance: Option<String>,
    /// Further settings of librdkafka: security, SASL, client ids.
    pub settings: BTreeMap<String, String>,
}

impl KafkaConfig {
    /// As it works on a broker that nobody has tuned: sessions of 6 s.
    pub fn new(brokers: &str, topic: &str, group: &str, partitions: NonZeroU32) -> Self {
        KafkaConfig {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            group: group.to_owned(),
            partitions,
            create: Some(1),
            mode: Mode::Exclusive,
            session: Duration::ZERO,
            heartbeat: Duration::ZERO,
            barrier: Duration::ZERO,
            assignor: Assignor::default(),
            instance: None,
            settings: BTreeMap::new(),
        }
        .with_session(Duration::from_secs(6))
    }

    /// With sessions of this length, a sixth of it between heartbeats, and as long a barrier as needed for
    /// partitions to be held for a whole session. Below 6 s the broker has to be tuned
    /// (`group.min.session.timeout.ms`).
    #[must_use]
    pub fn with_session(mut self, session: Duration) -> Self {
        self.session = session;
        self.heartbeat = session / 6;
        self.barrier = session * 2 + self.heartbeat * 4;
        self
    }

    /// In this mode; default: exclusive.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    fn check(&self) -> Result<(), LedgerError> {
        topic::check_name(&self.topic)?;
        match self.settings.keys().find(|key| OWNED.contains(&key.as_str())) {
            Some(key) => Err(LedgerError::Owned(key.clone())),
            None => Ok(()),
        }
    }

    fn common(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (key, value) in &self.settings {
            config.set(key, value);
        }
        config.set("bootstrap.servers", &self.brokers).set("socket.nagle.disable", "true");
        // A broker that is back is found at once.
        config.set("reconnect.backoff.ms", "20").set("reconnect.backoff.max.ms", "500");
        config
    }

    fn consumer(&self) -> ClientConfig {
        let ms = |duration: Duration| duration.as_millis().max(1).to_string();
        let mut config = self.common();
        let assignor = match self.assignor {
            Assignor::CooperativeSticky => "cooperative-sticky",
            Assignor::RoundRobin => "roundrobin",
        };
        config
            .set("group.id", &self.group)
            .set("session.timeout.ms", ms(self.session))
            .set("heartbeat.interval.ms", ms(self.heartbeat))
            .set("max.poll.interval.ms", ms(self.barrier.max(self.session)))
            .set("partition.assignment.strategy", assignor)
            .set("auto.offset.reset", "latest")
            .set("enable.auto.offset.store", "false")
            .set("fetch.wait.max.ms", "100");
        // Nothing is stored, so nothing is committed by this: it only wakes the loop that beats.
        let wakes = self.heartbeat < IDLE_LOOP;
        config.set("enable.auto.commit", wakes.to_string());
        if wakes {
            config.set("auto.commit.interval.ms", ms(self.heartbeat / 2));
        }
        if let Some(instance) = &self.instance {
            config.set("group.instance.id", instance);
        }
        config
    }

    fn producer(&self) -> ClientConfig {
        let mut config = self.common();
        config
            .set("acks", "all")
            .set("linger.ms", "0")
            .set("message.timeout.ms", self.session.as_millis().max(10).to_string());
        config
    }

    fn grants(&self) -> Grants {
        let Self { session, heartbeat, barrier, .. } = *self;
        let left = barrier.saturating_sub(session + heartbeat * 2);
        Grants {
            partitions: self.partitions,
            session,
            heartbeat,
            barrier,
            fenced: Some(session.min(left)),
            may_hand_over_early: self.instance.is_some(),
            delivery: Delivery::Anyone,
        }
    }
}

/// A topic on Kafka, checked.
#[derive(Clone, Debug)]
pub struct KafkaLedger {
    config: KafkaConfig,
}

impl KafkaLedger {
    /// Looks at broker and topic; makes the topic, if that is wanted and there is none.
    pub async fn open(config: KafkaConfig) -> Result<Self, LedgerError> {
        config.check()?;
        topic::prepare(&config).await?;
        Ok(KafkaLedger { config })
    }
}

impl Ledger for KafkaLedger {
    type Member = KafkaMember;

    fn grants(&self) -> Grants {
        self.config.grants()
    }

    fn member(&self, _life: Lifetime) -> Result<KafkaMember, LedgerError> {
        KafkaMember::new(&self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> KafkaConfig {
        KafkaConfig::new("127.0.0.1:1", "roles", "orders", NonZeroU32::new(8).unwrap())
    }

    #[test]
    fn what_the_engine_decides_cannot_be_set() {
        let mut config = config();
        config.settings.insert("session.timeout.ms".into(), "100".into());
        assert_eq!(config.check(), Err(LedgerError::Owned("session.timeout.ms".into())));
    }

    #[test]
    fn names_that_are_no_topics_are_refused() {
        for name in ["", ".", "..", "a b", "ä", &"x".repeat(250)] {
            let config = KafkaConfig { topic: name.to_owned(), ..config() };
            assert_eq!(config.check(), Err(LedgerError::Topic(name.to_owned())));
        }
        assert_eq!(config().check(), Ok(()));
    }

    #[test]
    fn a_partition_is_held_for_a_session_by_default_and_less_if_the_barrier_is_short() {
        assert_eq!(config().grants().fenced, Some(Duration::from_secs(6)));
        let short = KafkaConfig { barrier: Duration::from_secs(10), ..config() };
        assert_eq!(short.grants().fenced, Some(Duration::from_secs(2)));
    }
}
