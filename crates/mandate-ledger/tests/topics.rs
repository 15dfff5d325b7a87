//! What becomes of topics: made with copies, and not made anew once they were deleted. On private Apache Kafkas, one after the other.

// It uses some of it.
#[allow(dead_code)]
mod behaviour;
mod opening;

use std::num::NonZeroU32;
use std::time::Duration;

use behaviour::{member, until};
use mandate_ledger::kafka::KafkaConfig;
use mandate_proto::neli::Mode;
use mandate_servers::kafka::{Kafka, KafkaServerConfig as ServerConfig};
use opening::open;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;

const BOUND: Duration = Duration::from_secs(120);

fn config(brokers: &str, session: Duration) -> KafkaConfig {
    let partitions = NonZeroU32::new(4).unwrap();
    KafkaConfig::new(brokers, "topics", "topics", partitions).with_session(session)
}

fn admin(brokers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers).create().expect("a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_have_copies_and_are_not_made_anew() {
    a_topic_that_was_deleted_is_not_made_anew_though_kafka_would().await;
    on_three_nodes_a_topic_has_three_copies_of_which_two_must_be_in_sync().await;
}

/// By default Kafka makes a topic when a client asks for it, with settings of its own.
async fn a_topic_that_was_deleted_is_not_made_anew_though_kafka_would() {
    let server = Kafka::launch(&ServerConfig::STOCK).expect("Kafka starts");
    let config = config(&server.brokers(), Duration::from_secs(6));
    let only = member(&open(config.clone()).await, Mode::Exclusive, 4);
    until("it leads", BOUND, || only.owned().len() == 4).await;
    let admin = admin(&server.brokers());
    let deleted = admin.delete_topics(&[&config.topic], &AdminOptions::new()).await;
    assert!(deleted.expect("it is asked")[0].is_ok());
    until("it sees that", BOUND, || only.standing().other_size == Some(0)).await;
    until("it leads nothing", BOUND, || only.owned().is_empty()).await;
    // It has looked at it, at least, and tried to write to it.
    until("it goes on trying", BOUND, || only.standing().counts.failed > 0).await;
    let topics = admin.inner().fetch_metadata(None, BOUND).expect("they are listed");
    assert!(topics.topics().iter().all(|topic| topic.name() != config.topic));
    only.shutdown().await;
}

async fn on_three_nodes_a_topic_has_three_copies_of_which_two_must_be_in_sync() {
    let config = ServerConfig { nodes: 3, ..ServerConfig::TUNED };
    let server = Kafka::launch(&config).expect("Kafka starts");
    let config = self::config(&server.brokers(), Duration::from_secs(6));
    let only = member(&open(config.clone()).await, Mode::Exclusive, 4);
    until("it leads", BOUND, || only.owned().len() == 4).await;
    let admin = admin(&server.brokers());
    let found = admin.inner().fetch_metadata(Some(&config.topic), BOUND).expect("it is there");
    let copies: Vec<_> =
        found.topics()[0].partitions().iter().map(|one| one.replicas().len()).collect();
    assert_eq!(copies, [3; 4]);
    let topic = ResourceSpecifier::Topic(&config.topic);
    let settings = admin.describe_configs([&topic], &AdminOptions::new()).await;
    let settings = settings.expect("they are read").remove(0).expect("they are told");
    let in_sync = settings.get("min.insync.replicas").and_then(|entry| entry.value.as_deref());
    assert_eq!(in_sync, Some("2"));
    only.shutdown().await;
}
