//! The same program without Kafka: it says so.

use mandate::Error;
use mandate::kafka::Builder;

use super::show::{ClaimDocument, GroupDocument};

const ABSENT: Error = Error::NotBuilt { engine: "Kafka", feature: "kafka" };

pub(super) async fn look(_: &Builder) -> anyhow::Result<GroupDocument> {
    Err(ABSENT.into())
}

pub(super) async fn claims(_: &Builder) -> anyhow::Result<Vec<ClaimDocument>> {
    Err(ABSENT.into())
}
