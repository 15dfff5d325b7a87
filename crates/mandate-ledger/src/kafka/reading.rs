//! What the client library hands out, as the machine is told it.

use mandate_proto::neli::{Input, Mark, Partition};
use mandate_proto::time::WallTime;
use mandate_proto::wire;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message, Timestamp};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::KafkaConfig;
use super::mark::mark_of;
use crate::ledger::LedgerError;

/// `None` if one of them could not be read.
pub(super) fn marks(committed: &TopicPartitionList) -> Option<Vec<(Partition, Mark)>> {
    let elements = committed.elements();
    elements.iter().all(|one| one.error().is_ok()).then(|| {
        let partition = |number: i32| Partition::new(number.max(0) as u32);
        let mark = elements.iter().map(|one| Some((partition(one.partition()), mark_of(one)?)));
        mark.flatten().collect()
    })
}

pub(super) fn record(message: &BorrowedMessage<'_>) -> Input {
    Input::Record {
        partition: Partition::new(message.partition().max(0) as u32),
        offset: message.offset().max(0) as u64,
        stamp: wall(message.timestamp()),
        record: message.payload().and_then(|payload| wire::decode(payload).ok()),
    }
}

pub(super) fn wall(timestamp: Timestamp) -> WallTime {
    let millis = timestamp.to_millis().unwrap_or(0).max(0) as u64;
    WallTime::from_unix_nanos(millis.saturating_mul(1_000_000))
}

/// Whether an error is one to go on after.
pub(super) fn judge(error: KafkaError, config: &KafkaConfig) -> Result<(), LedgerError> {
    let is_fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::InvalidSessionTimeout) => {
            Err(LedgerError::SessionRefused { wanted_ms: config.session.as_millis() as u64 })
        }
        _ if is_fatal => Err(LedgerError::Fatal(error.to_string())),
        Some(
            RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::Authentication,
        ) => {
            // Rights can be given later: it goes on trying, and is heard.
            tracing::warn!(%error, "the broker does not let this member");
            Ok(())
        }
        _ => {
            tracing::debug!(%error, "the client goes on");
            Ok(())
        }
    }
}
