//! What the broker grants: read from it, never assumed.
//!
//! A member that may not read the broker's settings (`DescribeConfigs` on the cluster) is told so. In the classic protocol the
//! join will then tell whether the session is granted; in the consumer protocol the session is the broker's, and
//! nothing can be promised without knowing it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::{Metadata, MetadataTopic};

use super::{KafkaConfig, MembershipProtocol};
use crate::ledger::LedgerError;

/// For questions to the broker.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// For one of several.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Things that a client may have said before a call failed.
const SAID: u32 = 64;

pub(super) type Admin = AdminClient<DefaultClientContext>;

pub(super) fn failed(what: &'static str) -> impl Fn(KafkaError) -> LedgerError {
    move |error| LedgerError::Broker { what, reason: error.to_string() }
}

/// A client that the broker can be asked by.
pub(super) fn admin(config: &KafkaConfig) -> Result<Admin, LedgerError> {
    config.common().create().map_err(setting)
}

/// What is wrong with a setting. Its value is not shown: it may be a password.
pub(super) fn setting(error: KafkaError) -> LedgerError {
    match error {
        KafkaError::ClientConfig(_, what, key, _) => LedgerError::Setting(format!("{key}: {what}")),
        error => LedgerError::Setting(error.to_string()),
    }
}

/// Keeps what the client complains of: a call that failed only says that it did.
#[derive(Debug, Default)]
pub(super) struct Heard {
    reason: Mutex<Option<String>>,
    /// Whether trying again would not help: who is not let in is not let in later.
    is_final: AtomicBool,
}

impl Heard {
    fn keep(&self, reason: &str) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }
}

impl ClientContext for Heard {
    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            // It follows from something else, which was said before.
            Some(RDKafkaErrorCode::AllBrokersDown) => return,
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL) => {
                self.is_final.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        self.keep(reason);
    }

    fn log(&self, level: RDKafkaLogLevel, _facility: &str, message: &str) {
        tracing::debug!(?level, message, "the client says");
        let is_grave = level as i32 <= RDKafkaLogLevel::Error as i32;
        if is_grave && !message.ends_with("brokers are down") {
            // Behind the name of its thread.
            self.keep(message.split_once("]: ").map_or(message, |(_, said)| said));
        }
    }
}

impl ConsumerContext for Heard {}

/// What brokers and topic there are. Why they cannot be asked is said in the client's own words, where it has some.
fn metadata(client: &BaseConsumer<Heard>, topic: &str) -> Result<Metadata, LedgerError> {
    let (began, heard) = (Instant::now(), client.context());
    loop {
        let error = match client.fetch_metadata(Some(topic), ATTEMPT) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => error,
        };
        // One thing that was said at a time, and most is log.
        (0..SAID).for_each(|_| drop(client.poll(Duration::from_millis(1))));
        let is_final = heard.is_final.load(Ordering::Relaxed);
        if is_final || began.elapsed() >= PATIENCE {
            let said = heard.reason.lock().unwrap_or_else(PoisonError::into_inner).take();
            let reason = match said {
                Some(said) => format!("{said} ({error})"),
                None => error.to_string(),
            };
            return Err(match is_final {
                true => LedgerError::Broker { what: "reach the broker", reason },
                false => LedgerError::Unreachable { reason },
            });
        }
    }
}

/// What a first look shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// How many partitions the topic has, if there is one.
    pub(super) partitions: Option<u32>,
    /// A broker that can be asked.
    some_broker: Option<i32>,
    /// How many brokers there are.
    pub(super) brokers: u32,
}

/// How many copies a topic has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copies {
    /// How many brokers there are.
    pub(super) brokers: u32,
    /// Of the partition that has the fewest.
    pub(super) replicas: u32,
}

/// How many copies there are of a topic; `None` if there is no such topic.
pub(super) async fn copies(
    config: &KafkaConfig,
    topic: &str,
) -> Result<Option<Copies>, LedgerError> {
    asked(config, topic, |metadata, topic| {
        let partitions = topic.map_or(&[][..], |topic| topic.partitions());
        let replicas = partitions.iter().map(|one| one.replicas().len() as u32).min();
        replicas.map(|replicas| Copies { brokers: metadata.brokers().len() as u32, replicas })
    })
    .await
}

/// Whether a broker answers, and whether there is a topic.
pub(super) async fn look(config: &KafkaConfig) -> Result<Seen, LedgerError> {
    asked(config, &config.topic, |metadata, topic| {
        let partitions = topic.map_or(0, |found| found.partitions().len() as u32);
        let some_broker = metadata.brokers().first().map(|broker| broker.id());
        let (partitions, brokers) = (Some(partitions), metadata.brokers().len() as u32);
        Seen { partitions: partitions.filter(|count| *count > 0), some_broker, brokers }
    })
    .await
}

/// What can be made of the metadata of a topic. The call waits for the broker; others of this runtime should not.
async fn asked<T: Send + 'static>(
    config: &KafkaConfig,
    topic: &str,
    read: impl FnOnce(&Metadata, Option<&MetadataTopic>) -> T + Send + 'static,
) -> Result<T, LedgerError> {
    let client: BaseConsumer<Heard> =
        config.common().create_with_context(Heard::default()).map_err(setting)?;
    let topic = topic.to_owned();
    let looked = tokio::task::spawn_blocking(move || {
        let metadata = metadata(&client, &topic)?;
        Ok(read(&metadata, metadata.topics().iter().find(|found| found.name() == topic)))
    });
    looked.await.map_err(|error| LedgerError::Fatal(error.to_string()))?
}

/// The settings of a broker, a topic or a group; `None` where they may not be read.
pub(super) async fn describe(
    admin: &Admin,
    of: ResourceSpecifier<'_>,
) -> Result<Option<HashMap<String, String>>, LedgerError> {
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    let described = admin.describe_configs([&of], &options).await;
    let mut described = described.map_err(failed("read the broker's settings"))?;
    Ok(match described.pop() {
        Some(Ok(resource)) => {
            let entries = resource.entries.into_iter();
            Some(entries.filter_map(|entry| Some((entry.name, entry.value?))).collect())
        }
        Some(Err(code)) => {
            tracing::debug!(?of, %code, "settings may not be read");
            None
        }
        None => None,
    })
}

/// Sees to it that the session is one that the broker grants: said now, and not by a member that never joins.
pub(super) async fn settle_times(config: &mut KafkaConfig, seen: &Seen) -> Result<(), LedgerError> {
    let admin = admin(config)?;
    let broker = match seen.some_broker {
        Some(id) => describe(&admin, ResourceSpecifier::Broker(id)).await?,
        None => None,
    };
    if config.protocol == MembershipProtocol::Classic {
        return check_session(config, broker.as_ref());
    }
    let group = describe(&admin, ResourceSpecifier::Group(&config.group)).await;
    // A broker that knows no such settings knows no such protocol.
    let group = match config.protocol {
        MembershipProtocol::Auto => group.unwrap_or(None),
        _ => group?,
    };
    if config.protocol == MembershipProtocol::Auto {
        config.protocol = choose(config, broker.as_ref(), group.as_ref());
        tracing::info!("chose the group protocol {:?}", config.protocol);
    }
    match config.protocol {
        MembershipProtocol::Consumer => take_times(config, broker.as_ref(), group.as_ref()),
        _ => check_session(config, broker.as_ref()),
    }
}

/// The consumer protocol, if the broker has it with sessions no longer than the one that is asked for: by it a crash is noticed as
/// soon, and nothing waits for anyone to join. Its coordinator divides partitions its own way, and does not let a process take the static
/// name of one that has crashed before that one's session is over.
fn choose(
    config: &KafkaConfig,
    broker: Option<&HashMap<String, String>>,
    group: Option<&HashMap<String, String>>,
) -> MembershipProtocol {
    let protocols = broker.and_then(|broker| broker.get("group.coordinator.rebalance.protocols"));
    let is_offered = protocols.is_none_or(|offered| offered.contains("consumer"));
    let session = number(group, "consumer.session.timeout.ms")
        .or_else(|| number(broker, "group.consumer.session.timeout.ms"));
    let is_short = session.is_some_and(|session| u128::from(session) <= config.session.as_millis());
    let is_plain = config.instance.is_none() && config.assignor.is_cooperative();
    match is_offered && is_short && is_plain {
        true => MembershipProtocol::Consumer,
        false => MembershipProtocol::Classic,
    }
}

fn number(settings: Option<&HashMap<String, String>>, name: &str) -> Option<u64> {
    settings?.get(name)?.parse().ok()
}

fn check_session(
    config: &KafkaConfig,
    broker: Option<&HashMap<String, String>>,
) -> Result<(), LedgerError> {
    let shortest_ms = number(broker, "group.min.session.timeout.ms");
    let longest_ms = number(broker, "group.max.session.timeout.ms");
    let wanted_ms = config.session.as_millis() as u64;
    let (Some(shortest_ms), Some(longest_ms)) = (shortest_ms, longest_ms) else {
        tracing::warn!(
            "the broker does not tell which sessions it grants (that needs DescribeConfigs on the cluster): whether it \
             grants {wanted_ms} ms will show when this member joins"
        );
        return Ok(());
    };
    match (shortest_ms..=longest_ms).contains(&wanted_ms) {
        true => Ok(()),
        false => Err(LedgerError::Session { wanted_ms, shortest_ms, longest_ms }),
    }
}

/// In the consumer protocol the broker says how long a session lasts: for the group, or for all groups.
fn take_times(
    config: &mut KafkaConfig,
    broker: Option<&HashMap<String, String>>,
    group: Option<&HashMap<String, String>>,
) -> Result<(), LedgerError> {
    let time = |name: &'static str| {
        let of_group = number(group, name.trim_start_matches("group."));
        let ms = of_group.or_else(|| number(broker, name)).ok_or(LedgerError::Untold(name))?;
        Ok(Duration::from_millis(ms))
    };
    let session = time("group.consumer.session.timeout.ms")?;
    let heartbeat = time("group.consumer.heartbeat.interval.ms")?;
    *config = config.clone().with_times(session, heartbeat);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn settings(entries: &[(&str, &str)]) -> HashMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    fn config() -> KafkaConfig {
        KafkaConfig::new("127.0.0.1:1", "roles", "orders", NonZeroU32::MIN)
    }

    #[test]
    fn a_session_that_is_not_granted_is_refused_and_one_that_nobody_tells_of_is_tried() {
        let limits = settings(&[
            ("group.min.session.timeout.ms", "7000"),
            ("group.max.session.timeout.ms", "1800000"),
        ]);
        let refused = check_session(&config(), Some(&limits)).unwrap_err();
        assert!(refused.to_string().contains("from 7000 ms to 1800000 ms"), "{refused}");
        assert_eq!(check_session(&config(), None), Ok(()));
    }

    #[test]
    fn in_the_consumer_protocol_the_groups_session_goes_before_the_brokers() {
        let broker = settings(&[
            ("group.consumer.session.timeout.ms", "45000"),
            ("group.consumer.heartbeat.interval.ms", "5000"),
        ]);
        let group = settings(&[("consumer.session.timeout.ms", "50000")]);
        let mut config = config();
        take_times(&mut config, Some(&broker), Some(&group)).unwrap();
        let seconds = |time: Duration| time.as_secs();
        assert_eq!((seconds(config.session), seconds(config.heartbeat)), (50, 5));
        let untold = take_times(&mut config, None, None).unwrap_err();
        assert!(untold.to_string().contains("group.consumer.session.timeout.ms"), "{untold}");
    }
}
