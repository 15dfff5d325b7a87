//! The topic: made with sound settings, or checked. And what the broker grants.

use std::collections::HashMap;
use std::time::Duration;

use mandate_proto::neli::Mode;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaErrorCode;

use super::KafkaConfig;
use crate::ledger::LedgerError;

/// For questions to the broker.
const PATIENCE: Duration = Duration::from_secs(10);

/// Records are read at once or never; an hour is for people who look.
const RETENTION_MS: &str = "3600000";

type Admin = AdminClient<DefaultClientContext>;

/// Whether a name can be a topic's: Kafka's own rule.
pub(super) fn check_name(name: &str) -> Result<(), LedgerError> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = !name.is_empty() && name.len() <= 249 && name.chars().all(is_fine);
    match is_name && name != "." && name != ".." {
        true => Ok(()),
        false => Err(LedgerError::Topic(name.to_owned())),
    }
}

fn broker(what: &'static str) -> impl Fn(rdkafka::error::KafkaError) -> LedgerError {
    move |error| LedgerError::Broker { what, reason: error.to_string() }
}

/// Looks at the broker and the topic, and makes the topic where that is wanted.
pub(super) async fn prepare(config: &KafkaConfig) -> Result<(), LedgerError> {
    let admin: Admin = config.common().create().map_err(|error| match error {
        rdkafka::error::KafkaError::ClientConfig(_, what, key, value) => {
            LedgerError::Setting(format!("{key}={value}: {what}"))
        }
        error => LedgerError::Setting(error.to_string()),
    })?;
    let (found, some_broker) = look(config).await?;
    if let Some(id) = some_broker {
        check_session(&admin, config, id).await?;
    }
    let found = match (found, config.create) {
        (Some(found), _) => found,
        (None, None) => return Err(LedgerError::NoTopic(config.topic.clone())),
        (None, Some(replicas)) => {
            create(&admin, config, replicas).await?;
            config.partitions.get()
        }
    };
    let wanted = config.partitions.get();
    if found != wanted {
        let topic = config.topic.clone();
        return Err(LedgerError::Partitions { topic, found, wanted });
    }
    check_topic(&admin, config).await
}

/// How many partitions the topic has, if there is one, and a broker that can be asked.
async fn look(config: &KafkaConfig) -> Result<(Option<u32>, Option<i32>), LedgerError> {
    // The call waits for the broker; others of this runtime should not.
    let (consumer, topic) = (config.common(), config.topic.clone());
    let looked = tokio::task::spawn_blocking(move || {
        let client: rdkafka::consumer::BaseConsumer = consumer.create()?;
        let metadata =
            rdkafka::consumer::Consumer::fetch_metadata(&client, Some(&topic), PATIENCE)?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let partitions = found.map_or(0, |found| found.partitions().len() as u32);
        let some_broker = metadata.brokers().first().map(|broker| broker.id());
        Ok((Some(partitions).filter(|count| *count > 0), some_broker))
    });
    let joined = looked.await.map_err(|error| LedgerError::Fatal(error.to_string()))?;
    joined.map_err(broker("reach the broker"))
}

async fn describe(
    admin: &Admin,
    of: ResourceSpecifier<'_>,
) -> Result<HashMap<String, String>, LedgerError> {
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    let described = admin.describe_configs([&of], &options).await;
    let described = described.map_err(broker("read the broker's settings"))?;
    let entries = described.into_iter().flatten().flat_map(|resource| resource.entries);
    Ok(entries.filter_map(|entry| Some((entry.name, entry.value?))).collect())
}

/// A session that the broker does not grant is said now, and not by a member that never joins.
async fn check_session(admin: &Admin, config: &KafkaConfig, id: i32) -> Result<(), LedgerError> {
    let settings = describe(admin, ResourceSpecifier::Broker(id)).await?;
    let number = |name: &str| settings.get(name).and_then(|value| value.parse::<u64>().ok());
    // Managed brokers may keep their settings to themselves: then the join will tell.
    let shortest_ms = number("group.min.session.timeout.ms").unwrap_or(0);
    let longest_ms = number("group.max.session.timeout.ms").unwrap_or(u64::MAX);
    let wanted_ms = config.session.as_millis() as u64;
    match (shortest_ms..=longest_ms).contains(&wanted_ms) {
        true => Ok(()),
        false => Err(LedgerError::Session { wanted_ms, shortest_ms, longest_ms }),
    }
}

async fn create(admin: &Admin, config: &KafkaConfig, replicas: u16) -> Result<(), LedgerError> {
    let partitions = config.partitions.get() as i32;
    let in_sync = if replicas > 2 { "2" } else { "1" };
    let topic = NewTopic::new(&config.topic, partitions, TopicReplication::Fixed(replicas.into()))
        .set("cleanup.policy", "delete")
        .set("retention.ms", RETENTION_MS)
        .set("message.timestamp.type", "LogAppendTime")
        .set("min.insync.replicas", in_sync);
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let created =
        admin.create_topics([&topic], &options).await.map_err(broker("create the topic"))?;
    for result in created {
        match result {
            // Another was first.
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((_, code)) => {
                let (what, reason) = ("create the topic", code.to_string());
                return Err(LedgerError::Broker { what, reason });
            }
        }
    }
    Ok(())
}

async fn check_topic(admin: &Admin, config: &KafkaConfig) -> Result<(), LedgerError> {
    let settings = describe(admin, ResourceSpecifier::Topic(&config.topic)).await?;
    let wrong = |setting, wanted, is_fine: fn(&str) -> bool| match settings.get(setting) {
        Some(found) if !is_fine(found) => {
            let (topic, found) = (config.topic.clone(), found.clone());
            Err(LedgerError::TopicSetting { topic, setting, found, wanted })
        }
        _ => Ok(()),
    };
    wrong("cleanup.policy", "delete: records have no keys", |found| found == "delete")?;
    if config.mode == Mode::NonExclusive {
        let wanted = "LogAppendTime: how old a record is, is told by the broker";
        wrong("message.timestamp.type", wanted, |found| found == "LogAppendTime")?;
    }
    Ok(())
}
