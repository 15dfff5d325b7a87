//! What can be asked of Kafka's client: how partitions are divided, names that survive restarts, the new group protocol,
//! TLS and SASL, and errors that name the setting. On a private Apache Kafka, or on the one that `KAFKA_BROKERS` names.

// It uses some of it.
#[allow(dead_code)]
mod behaviour;
mod opening;
mod secured;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use behaviour::{is_divided, member, until};
use mandate_ledger::kafka::groups::{Group, claims};
use mandate_ledger::kafka::{KafkaConfig, KafkaLedger, MembershipProtocol};
use mandate_ledger::memory::AssignmentRule;
use mandate_ledger::{LedgerError, LedgerRoles};
use mandate_proto::election::RoleId;
use mandate_proto::neli::{Mark, Mode, Partition};
use opening::open;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use secured::Secured;

const BOUND: Duration = Duration::from_secs(120);

/// Where Kafka is, and which sessions it grants.
struct Broker {
    at: String,
    session: Duration,
}

impl Broker {
    /// A topic and a group of its own for each test.
    fn config(&self) -> KafkaConfig {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("client-{}-{number}", std::process::id());
        let partitions = NonZeroU32::new(4).unwrap();
        KafkaConfig::new(&self.at, &name, &name, partitions)
            .with_session(self.session)
            .with_protocol(MembershipProtocol::Classic)
    }
}

/// One server for everything.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_does_what_it_is_asked() {
    // A member's end is bounded, and so are these: they go one after the other, since the host is shared.
    match std::env::var("KAFKA_BROKERS") {
        Ok(at) => {
            let broker = Broker { at, session: Duration::from_secs(6) };
            everywhere(&broker).await;
        }
        Err(_) => {
            let secured = Secured::launch();
            // Long for a busy host: lapses are not excused.
            let broker = Broker { at: secured.plain(), session: Duration::from_secs(6) };
            everywhere(&broker).await;
            brokers_of_kafka_4_divide_by_themselves(&broker).await;
            for mechanism in secured::MECHANISMS {
                over_tls_with_a_password(&broker, &secured, mechanism).await;
            }
        }
    }
}

async fn everywhere(broker: &Broker) {
    round_robin_divides_evenly(broker).await;
    a_static_name_survives_a_restart(broker).await;
    a_broker_shows_who_leads(broker).await;
    what_is_wrong_is_named(broker).await;
}

async fn round_robin_divides_evenly(broker: &Broker) {
    let ledger =
        open(KafkaConfig { assignor: AssignmentRule::RoundRobin, ..broker.config() }).await;
    let first = member(&ledger, Mode::Exclusive, 4);
    until("the first leads everything", BOUND, || first.owned().len() == 4).await;
    let term = first.term(RoleId::new(0)).unwrap();
    let second = member(&ledger, Mode::Exclusive, 4);
    let halves = || is_divided(&[&first, &second]) && second.owned().len() == 2;
    until("two have two each", BOUND, halves).await;
    let again = first.term(RoleId::new(0)).or(second.term(RoleId::new(0))).unwrap();
    assert!(again > term, "everything was given back, also what its owner got again");
    first.shutdown().await;
    second.shutdown().await;
}

async fn a_static_name_survives_a_restart(broker: &Broker) {
    let config = broker.config();
    let named = |name: &str| KafkaConfig { instance: Some(name.into()), ..config.clone() };
    let (one, other) = (open(named("one")).await, open(named("other")).await);
    let first = member(&one, Mode::Exclusive, 4);
    let second = member(&other, Mode::Exclusive, 4);
    let halves = || is_divided(&[&first, &second]) && second.owned().len() == 2;
    until("two have two each", BOUND, halves).await;
    let (mine, theirs) = (first.owned(), second.owned());
    let terms = |roles: &LedgerRoles, of: &[RoleId]| {
        of.iter().map(|role| roles.term(*role)).collect::<Vec<_>>()
    };
    let before = terms(&second, &theirs);
    first.shutdown().await;
    let again = member(&one, Mode::Exclusive, 4);
    until("it leads the same roles again", BOUND, || again.owned() == mine).await;
    assert_eq!(terms(&second, &theirs), before, "nobody else was disturbed");
    again.shutdown().await;
    second.shutdown().await;
}

async fn a_broker_shows_who_leads(broker: &Broker) {
    let mut config = broker.config();
    config.settings.insert("client.id".into(), "shown".into());
    let ledger = open(config.clone()).await;
    let only = member(&ledger, Mode::Exclusive, 4);
    until("it leads everything", BOUND, || only.owned().len() == 4).await;
    let confirmed = |group: &Group| {
        let is_confirmed = |role| {
            let partition = only.layout().partition_of(role);
            let shown = group.partitions.iter().find(|shown| shown.partition == partition);
            let led = only.term(role);
            led.is_some_and(|led| {
                let is_of_it = |mark: Mark| matches!(mark, Mark::Held { term, .. } if term == led);
                shown.and_then(|shown| shown.mark).is_some_and(is_of_it)
            })
        };
        (0..4).map(RoleId::new).all(is_confirmed)
    };
    let began = Instant::now();
    let mut group = Group::look(&config).await.unwrap();
    while !confirmed(&group) {
        assert!(began.elapsed() < BOUND, "its claims are not shown: {group:?}");
        group = Group::look(&config).await.unwrap();
    }
    assert_eq!(
        (group.state.as_str(), group.partitions.len(), group.members.len()),
        ("Stable", 4, 1)
    );
    assert_eq!(group.members[0].client, "shown");
    assert_eq!(group.members[0].partitions, [0, 1, 2, 3].map(Partition::new));
    let claims = claims(&config).await.unwrap();
    assert!(claims.len() >= 4, "{claims:?}");
    assert!(claims.is_sorted_by_key(|claim| claim.at_ms), "{claims:?}");
    only.shutdown().await;
    let group = Group::look(&config).await.unwrap();
    assert_eq!((group.state.as_str(), group.members.len()), ("Empty", 0));
}

async fn what_is_wrong_is_named(broker: &Broker) {
    // A topic that loses records: those without keys cannot be compacted.
    let config = broker.config();
    let mut client = rdkafka::ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> =
        client.set("bootstrap.servers", &config.brokers).create().unwrap();
    let topic = NewTopic::new(&config.topic, 4, TopicReplication::Fixed(-1));
    let topic = topic.set("cleanup.policy", "compact");
    let made = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
    assert!(made[0].is_ok(), "{made:?}");
    let refused = until_seen(&config).await;
    assert!(refused.contains("cleanup.policy=compact, and needs delete"), "{refused}");

    // One that somebody else made is taken as it is, if that is wanted.
    let config = KafkaConfig { topic: broker.config().topic, ..config };
    open(config.clone()).await;
    let other = KafkaConfig { partitions: NonZeroU32::new(7).unwrap(), ..config.clone() };
    let refused = KafkaLedger::open(other.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("has 4 partitions, not 7"), "{refused}");
    let taken = open(KafkaConfig { takes_any_partitions: true, ..other }).await;
    assert_eq!(taken.config().partitions.get(), 4);

    let mut wrong = config.clone();
    wrong.settings.insert("no.such.setting".into(), "a secret".into());
    let refused = KafkaLedger::open(wrong).await.unwrap_err().to_string();
    assert!(refused.contains("no.such.setting") && !refused.contains("secret"), "{refused}");
}

/// A topic that was just made may take a moment to be seen everywhere.
async fn until_seen(config: &KafkaConfig) -> String {
    let unmade = KafkaConfig { create: None, ..config.clone() };
    loop {
        match KafkaLedger::open(unmade.clone()).await.expect_err("it is of no use") {
            LedgerError::NoTopic(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            error => return error.to_string(),
        }
    }
}

/// Kafka 4's own protocol: the broker sets the session, and it is read from there.
async fn brokers_of_kafka_4_divide_by_themselves(broker: &Broker) {
    let config =
        broker.config().with_mode(Mode::NonExclusive).with_protocol(MembershipProtocol::Consumer);
    let ledger = open(config).await;
    assert_eq!(ledger.config().session, secured::CONSUMER_SESSION, "read, not assumed");
    let first = member(&ledger, Mode::NonExclusive, 4);
    until("the first leads everything", BOUND, || first.owned().len() == 4).await;
    let second = member(&ledger, Mode::NonExclusive, 4);
    until("the second leads its half", BOUND, || second.owned().len() == 2).await;
    let led = |role| first.is_leader(role) || second.is_leader(role);
    assert!((0..4).map(RoleId::new).all(led), "no gap while roles change hands");
    until("the first has the other half", BOUND, || first.owned().len() == 2).await;
    first.shutdown().await;
    until("the second leads everything", BOUND, || second.owned().len() == 4).await;
    second.shutdown().await;
}

async fn over_tls_with_a_password(broker: &Broker, secured: &Secured, mechanism: &str) {
    let with = |password: &str, ca: &str| {
        let settings = BTreeMap::from([
            ("security.protocol".into(), "sasl_ssl".into()),
            ("ssl.ca.pem".into(), ca.into()),
            ("sasl.mechanism".into(), mechanism.into()),
            ("sasl.username".into(), secured::USER.into()),
            ("sasl.password".into(), password.into()),
        ]);
        KafkaConfig { brokers: secured.protected(), settings, ..broker.config() }
    };
    // The first handshake takes long on a busy host.
    let began = Instant::now();
    let ledger = loop {
        match KafkaLedger::open(with(secured::PASSWORD, secured.authority())).await {
            Ok(ledger) => break ledger,
            Err(error) => assert!(began.elapsed() < BOUND, "{error}"),
        }
    };
    let only = member(&ledger, Mode::Exclusive, 4);
    until("it leads over TLS", BOUND, || only.owned().len() == 4).await;
    only.shutdown().await;

    let stranger = secured::Certificates::new();
    for (password, authority, expected) in [
        ("wrong", secured.authority(), "uthentication failed"),
        (secured::PASSWORD, stranger.authority.as_str(), "certificate verify failed"),
    ] {
        let began = Instant::now();
        let refused = loop {
            let error = KafkaLedger::open(with(password, authority)).await.unwrap_err();
            let refused = error.to_string();
            // On a busy host the time for a handshake may be over before anyone is refused.
            let is_late = matches!(error, LedgerError::Unreachable { .. });
            if !is_late || refused.contains(expected) || began.elapsed() > BOUND {
                break refused;
            }
        };
        assert!(refused.contains(expected) && !refused.contains("wrong"), "{refused}");
    }
}
