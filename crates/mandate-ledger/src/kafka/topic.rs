//! The topic: made with sound settings, or checked.

use std::num::NonZeroU32;

use mandate_proto::neli::Mode;
use rdkafka::admin::{AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::types::RDKafkaErrorCode;

use super::KafkaConfig;
use super::broker::{Admin, PATIENCE, Seen, admin, describe, failed};
use super::durability;
use crate::ledger::LedgerError;

/// Records are read at once or never; an hour is for people who look.
const RETENTION_MS: &str = "3600000";

/// Whether a name can be a topic's: Kafka's own rule.
pub(super) fn check_name(name: &str) -> Result<(), LedgerError> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = !name.is_empty() && name.len() <= 249 && name.chars().all(is_fine);
    match is_name && name != "." && name != ".." {
        true => Ok(()),
        false => Err(LedgerError::Topic(name.to_owned())),
    }
}

/// Looks at the topic that was seen, or makes it where there is none and that is wanted.
pub(super) async fn prepare(config: &mut KafkaConfig, seen: &Seen) -> Result<(), LedgerError> {
    let admin = admin(config)?;
    let found = match (seen.partitions, config.create) {
        (Some(found), _) => found,
        (None, None) => return Err(LedgerError::NoTopic(config.topic.clone())),
        (None, Some(replicas)) => {
            let replicas = match replicas {
                0 => durability::replicas(seen.brokers),
                replicas => replicas.into(),
            };
            create(&admin, config, replicas).await?;
            // Another may have made it, of another size.
            super::broker::look(config).await?.partitions.unwrap_or(config.partitions.get())
        }
    };
    match NonZeroU32::new(found) {
        Some(found) if config.takes_any_partitions => config.partitions = found,
        _ => check_count(config, found)?,
    }
    check_settings(&admin, config).await?;
    durability::check(&admin, config).await;
    Ok(())
}

fn check_count(config: &KafkaConfig, found: u32) -> Result<(), LedgerError> {
    let (wanted, topic) = (config.partitions.get(), config.topic.clone());
    match found == wanted {
        true => Ok(()),
        false => Err(LedgerError::Partitions { topic, found, wanted }),
    }
}

async fn create(admin: &Admin, config: &KafkaConfig, replicas: u32) -> Result<(), LedgerError> {
    let partitions = config.partitions.get() as i32;
    let in_sync = durability::in_sync(replicas).to_string();
    let topic = NewTopic::new(&config.topic, partitions, TopicReplication::Fixed(replicas as i32))
        .set("cleanup.policy", "delete")
        .set("retention.ms", RETENTION_MS)
        .set("message.timestamp.type", "LogAppendTime")
        .set("min.insync.replicas", &in_sync);
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let created =
        admin.create_topics([&topic], &options).await.map_err(failed("create the topic"))?;
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

async fn check_settings(admin: &Admin, config: &KafkaConfig) -> Result<(), LedgerError> {
    let Some(settings) = describe(admin, ResourceSpecifier::Topic(&config.topic)).await? else {
        tracing::warn!(
            "the broker does not tell how topic {} is set up (that needs DescribeConfigs on the topic): make sure of \
             cleanup.policy=delete and message.timestamp.type=LogAppendTime",
            config.topic
        );
        return Ok(());
    };
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
