//! The same without Kafka: it says so.

use mandate_ledger::LedgerRoles;
use mandate_proto::identity::MemberId;
use mandate_proto::neli::LedgerPlan;

use super::Builder;
use crate::error::Error;

impl Builder {
    pub(super) async fn open(&self, _me: MemberId) -> Result<(LedgerRoles, LedgerPlan), Error> {
        Err(Error::NotBuilt { engine: "Kafka", feature: "kafka" })
    }
}
