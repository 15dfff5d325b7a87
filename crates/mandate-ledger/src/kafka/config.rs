//! How Kafka is used, and what that comes to in settings of the client.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use mandate_proto::neli::{Grants, Mode, RecordDelivery};
use rdkafka::ClientConfig;

use super::topic;
use crate::ledger::LedgerError;
use crate::memory::AssignmentRule;

/// Settings that the engine decides, because what it promises rests on them; with the other names that the client has
/// for them.
const OWNED: [&str; 25] = [
    "allow.auto.create.topics",
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.protocol.type",
    "group.remote.assignor",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "acks",
    "request.required.acks",
    "linger.ms",
    "queue.buffering.max.ms",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "transactional.id",
    "enable.partition.eof",
    "isolation.level",
];

/// librdkafka looks after its group once a second, unless something wakes it.
const IDLE_LOOP: Duration = Duration::from_secs(1);

/// What a broker grants that nobody has tuned.
const UNTUNED: Duration = Duration::from_secs(6);

/// For brokers that were tuned: short enough for a crash to be noticed in about a second, and long enough for a
/// collection of garbage or a busy host.
const TUNED: Duration = Duration::from_secs(1);

/// A rebalance waits at least this long for a member that is alive. One whose thread does not run for half a second is seen on an
/// overloaded host, and throwing it out sends everyone through another rebalance; it is no more than a nuisance. But for as long as this a
/// stalled process keeps partitions that it does not lead, because its client beats on; and if a rebalance comes meanwhile, everyone waits for
/// it and nobody renews, because the coordinator answers one request of a connection at a time. So it is not longer.
const SHORTEST_BARRIER: Duration = Duration::from_secs(1);

/// So much longer than a rebalance may take, members wait for an answer, as the client does by itself when it joins: a commit may have
/// to wait behind a join. Unless told, it waits for a minute, and it joins no group while one of its commits is under way.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the client takes at most.
const LONGEST_PATIENCE: Duration = Duration::from_secs(300);

/// How a member and the coordinator speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MembershipProtocol {
    /// The one that every broker speaks. The client says how long a session lasts, within the broker's limits.
    Classic,
    /// The one of Kafka 4 (KIP-848), in which the broker decides how long a session lasts. Nothing waits for anyone to join: a
    /// member that is replaced, or comes, disturbs nobody but the member that gives partitions to it.
    Consumer,
    /// The consumer protocol where the broker has it with sessions no longer than the one that is asked for, and neither a static
    /// name nor a way to divide partitions is; otherwise the classic one.
    #[default]
    Auto,
}

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
    /// Whether a topic that is there may have another number of partitions: then that one counts.
    pub takes_any_partitions: bool,
    /// Whether the topic is made if there is none, with how many replicas; 0: as many as there are brokers, and three at most.
    pub create: Option<u16>,
    /// What is wanted of it.
    pub mode: Mode,
    /// How a member and the coordinator speak.
    pub protocol: MembershipProtocol,
    /// After this long without a sign of life a member is replaced. An untuned broker grants 6 s and more. In the
    /// consumer protocol the broker decides.
    pub session: Duration,
    /// Time between signs of life.
    pub heartbeat: Duration,
    /// How long a rebalance waits for a member that is alive, and for how long a process may stall before its client gives its
    /// partitions back. Nobody's safety rests on it.
    pub barrier: Duration,
    /// How partitions are divided, in the classic protocol.
    pub assignor: AssignmentRule,
    /// A name that survives restarts of the process (static membership). A restart takes effect at once,
    /// and who ends is not replaced before its session has.
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
            takes_any_partitions: false,
            create: Some(0),
            mode: Mode::Exclusive,
            protocol: MembershipProtocol::Auto,
            session: Duration::ZERO,
            heartbeat: Duration::ZERO,
            barrier: Duration::ZERO,
            assignor: AssignmentRule::default(),
            instance: None,
            settings: BTreeMap::new(),
        }
        .with_session(UNTUNED)
    }

    /// With sessions of this length, a sixth of it between heartbeats, and a barrier of two of them, but 1 s at least. Below 6 s
    /// the broker has to be tuned (`group.min.session.timeout.ms`).
    #[must_use]
    pub fn with_session(self, session: Duration) -> Self {
        self.with_times(session, session / 6)
    }

    /// With sessions of 1 s, for a broker whose `group.min.session.timeout.ms` is at most that.
    #[must_use]
    pub fn tuned(self) -> Self {
        self.with_session(TUNED)
    }

    /// With such sessions and heartbeats, and a barrier that fits: half of it is there for work to drain, and a member that is cut
    /// off is out after a session anyway.
    pub(super) fn with_times(mut self, session: Duration, heartbeat: Duration) -> Self {
        self.session = session;
        self.heartbeat = heartbeat;
        self.barrier = (session * 2).max(SHORTEST_BARRIER);
        self
    }

    /// In this mode; default: exclusive.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// In this protocol; default: the consumer protocol where the broker grants such sessions, or classic.
    #[must_use]
    pub fn with_protocol(mut self, protocol: MembershipProtocol) -> Self {
        self.protocol = protocol;
        self
    }

    pub(super) fn check(&self) -> Result<(), LedgerError> {
        topic::check_name(&self.topic)?;
        if let Some(key) = self.settings.keys().find(|key| OWNED.contains(&key.as_str())) {
            return Err(LedgerError::Owned(key.clone()));
        }
        self.check_tokens()
    }

    /// Tokens of OAUTHBEARER have to come from somewhere; the client would try in silence until it is given one.
    fn check_tokens(&self) -> Result<(), LedgerError> {
        let is = |key: &str, wanted: &str| {
            self.settings.get(key).is_some_and(|value| value.trim().eq_ignore_ascii_case(wanted))
        };
        let wants_token =
            is("sasl.mechanism", "OAUTHBEARER") || is("sasl.mechanisms", "OAUTHBEARER");
        let has_source = is("sasl.oauthbearer.method", "oidc")
            || is("enable.sasl.oauthbearer.unsecure.jwt", "true");
        match wants_token && !has_source {
            true => Err(LedgerError::NoToken),
            false => Ok(()),
        }
    }

    pub(super) fn common(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("socket.nagle.disable", "true");
        // A broker that is back is found at once.
        config.set("reconnect.backoff.ms", "20").set("reconnect.backoff.max.ms", "500");
        for (key, value) in &self.settings {
            config.set(key, value);
        }
        config.set("bootstrap.servers", &self.brokers);
        // A topic that was deleted is not made anew by the member that writes to it, with the broker's settings instead of ours.
        config.set("allow.auto.create.topics", "false");
        config
    }

    pub(super) fn consumer(&self) -> ClientConfig {
        let mut config = self.common();
        config
            .set("group.id", &self.group)
            // A member hears of a rebalance with a heartbeat, and gives back within the barrier from then on: before it is thrown out.
            .set("max.poll.interval.ms", ms(self.barrier.max(self.session) + self.heartbeat * 2))
            .set("auto.offset.reset", "latest")
            .set("enable.auto.offset.store", "false")
            // What is committed is read though a transaction beside it has not ended: it is no position.
            .set("isolation.level", "read_uncommitted")
            .set("fetch.wait.max.ms", "100");
        if !self.settings.contains_key("socket.timeout.ms") {
            let patience = self.barrier.max(self.session) + PATIENCE;
            config.set("socket.timeout.ms", ms(patience.min(LONGEST_PATIENCE)));
        }
        match self.protocol {
            MembershipProtocol::Classic | MembershipProtocol::Auto => self.classic(&mut config),
            MembershipProtocol::Consumer => {
                config.set("group.protocol", "consumer").set("enable.auto.commit", "false");
            }
        }
        if let Some(instance) = &self.instance {
            config.set("group.instance.id", instance);
        }
        config
    }

    fn classic(&self, config: &mut ClientConfig) {
        let assignor = match self.assignor {
            AssignmentRule::CooperativeSticky => "cooperative-sticky",
            AssignmentRule::RoundRobin => "roundrobin",
        };
        config
            .set("session.timeout.ms", ms(self.session))
            .set("heartbeat.interval.ms", ms(self.heartbeat))
            .set("partition.assignment.strategy", assignor);
        // Nothing is stored, so nothing is committed by this: it only wakes the loop that beats.
        let wakes = self.heartbeat < IDLE_LOOP;
        config.set("enable.auto.commit", wakes.to_string());
        if wakes {
            config.set("auto.commit.interval.ms", ms(self.heartbeat / 2));
        }
    }

    pub(super) fn producer(&self) -> ClientConfig {
        let mut config = self.common();
        config
            .set("acks", "all")
            .set("linger.ms", "0")
            .set("message.timeout.ms", self.session.as_millis().max(10).to_string());
        config
    }

    /// A producer that makes renewals while joins wait.
    pub(super) fn prover(&self, transactional_id: &str) -> ClientConfig {
        let mut config = self.common();
        // A transaction lasts some round trips; one that is left behind ends by itself soon.
        let patience = self.session.clamp(Duration::from_secs(1), Duration::from_secs(9));
        config
            .set("transactional.id", transactional_id)
            .set("transaction.timeout.ms", "10000")
            .set("socket.timeout.ms", ms(patience));
        config
    }

    pub(super) fn grants(&self) -> Grants {
        let Self { session, heartbeat, barrier, .. } = *self;
        Grants {
            partitions: self.partitions,
            session,
            heartbeat,
            barrier,
            fenced: true,
            renews_through_joins: self.protocol == MembershipProtocol::Consumer,
            delivery: RecordDelivery::Anyone,
        }
    }
}

fn ms(duration: Duration) -> String {
    duration.as_millis().max(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> KafkaConfig {
        KafkaConfig::new("127.0.0.1:1", "roles", "orders", NonZeroU32::new(8).unwrap())
    }

    #[test]
    fn what_the_engine_decides_cannot_be_set_and_is_named() {
        for key in OWNED {
            let mut config = config();
            config.settings.insert(key.into(), "100".into());
            let refused = config.check().unwrap_err();
            assert_eq!(refused, LedgerError::Owned(key.into()));
            assert!(refused.to_string().contains(key), "{refused}");
        }
        let mut config = config();
        config.settings.insert("security.protocol".into(), "ssl".into());
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn oauthbearer_is_refused_where_no_token_can_come_from() {
        let mut config = config();
        config.settings.insert("sasl.mechanism".into(), "OAUTHBEARER".into());
        let refused = config.check().unwrap_err();
        assert!(refused.to_string().contains("PLAIN or SCRAM"), "{refused}");
        config.settings.insert("enable.sasl.oauthbearer.unsecure.jwt".into(), "true".into());
        assert_eq!(config.check(), Ok(()));
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
    fn a_member_that_lives_is_waited_for_though_sessions_are_short() {
        assert_eq!(config().grants().barrier, Duration::from_secs(12));
        let short = config().with_session(Duration::from_millis(300));
        assert_eq!(short.grants().barrier, SHORTEST_BARRIER);
    }

    #[test]
    fn the_consumer_protocol_leaves_times_to_the_broker_and_renewals_go_on_through_joins() {
        let consumer = config().with_protocol(MembershipProtocol::Consumer);
        assert_eq!(consumer.check(), Ok(()));
        assert!(consumer.grants().fenced && consumer.grants().renews_through_joins);
        assert!(!config().with_protocol(MembershipProtocol::Classic).grants().renews_through_joins);
        let settings = consumer.consumer();
        assert_eq!(settings.get("group.protocol"), Some("consumer"));
        for key in ["session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"]
        {
            assert_eq!(settings.get(key), None, "the client refuses it");
        }
    }

    #[test]
    fn a_setting_of_the_user_goes_before_a_default_and_round_robin_can_be_had() {
        let mut config = KafkaConfig { assignor: AssignmentRule::RoundRobin, ..config() }.tuned();
        config.settings.insert("reconnect.backoff.ms".into(), "7".into());
        let settings = config.consumer();
        assert_eq!(settings.get("reconnect.backoff.ms"), Some("7"));
        assert_eq!(settings.get("partition.assignment.strategy"), Some("roundrobin"));
        assert_eq!(settings.get("session.timeout.ms"), Some("1000"));
        assert_eq!(
            settings.get("max.poll.interval.ms"),
            Some("2333"),
            "the barrier, and two heartbeats"
        );
        assert_eq!(settings.get("socket.timeout.ms"), Some("5000"), "a rebalance and 3 s");
        config.settings.insert("socket.timeout.ms".into(), "9000".into());
        assert_eq!(config.consumer().get("socket.timeout.ms"), Some("9000"));
        let hour = config.with_session(Duration::from_secs(3600));
        assert_eq!(hour.producer().get("socket.timeout.ms"), Some("9000"));
        let hour = KafkaConfig { settings: BTreeMap::new(), ..hour };
        assert_eq!(hour.consumer().get("socket.timeout.ms"), Some("300000"));
    }
}
