//! The same program without Kafka: it says so.

use mandate_ledger::Roles;
use mandate_proto::identity::MemberId;
use mandate_proto::neli::Plan;

use super::LedgerConfig;
use super::show::{ClaimDocument, GroupDocument};

const ABSENT: &str = "this program was built without Kafka: build it with the feature `kafka`";

impl LedgerConfig {
    pub(super) async fn open(&self, _me: MemberId) -> anyhow::Result<(Roles, Plan)> {
        anyhow::bail!(ABSENT)
    }

    pub(super) async fn look(&self) -> anyhow::Result<GroupDocument> {
        anyhow::bail!(ABSENT)
    }

    pub(super) async fn claims(&self) -> anyhow::Result<Vec<ClaimDocument>> {
        anyhow::bail!(ABSENT)
    }
}
