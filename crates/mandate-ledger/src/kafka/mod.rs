//! Kafka as a ledger: partitions of a topic, assigned by the group coordinator.
//!
//! What proves ownership in exclusive mode is an offset commit: the coordinator refuses one of a member or generation that it has
//! replaced, in the classic protocol and in the consumer protocol (KIP-848, where generations are member epochs). A fetch
//! carries no membership, so nothing is fetched. Plain commits of the classic protocol extend the session; those of the consumer
//! protocol, and those in transactions, do not. How long anyone waits does not rest on that, because the next owner waits from
//! its assignment on. One thing does: that a member was kept between two renewals that were accepted less than a session apart is so
//! because the coordinator has heard of it in between, by a commit or by a heartbeat, or has not removed it.
//!
//! Commits also carry [marks](mandate_proto::neli::Mark) for the next owner, as an offset and its metadata. An owner says that its
//! term is over before it gives a partition back; where it could not, because it was killed, or was thrown out while its last
//! commit was fresh, or another process took its static name, the next owner waits. So nothing rests on how long the coordinator
//! waits for anyone.

mod broker;
mod client;
mod committer;
mod config;
mod context;
mod durability;
pub mod groups;
mod mark;
mod member;
mod membership;
mod prover;
mod reading;
mod size;
mod topic;
mod wall_clock;

use mandate_proto::identity::Incarnation;
use mandate_proto::neli::{Grants, LedgerPlan};

pub use config::{KafkaConfig, MembershipProtocol};
pub use member::KafkaMember;

use crate::ledger::{Ledger, LedgerError};

/// A topic on Kafka, checked.
#[derive(Clone, Debug)]
pub struct KafkaLedger {
    config: KafkaConfig,
}

impl KafkaLedger {
    /// Looks at broker and topic; makes the topic, if that is wanted and there is none.
    pub async fn open(mut config: KafkaConfig) -> Result<Self, LedgerError> {
        config.check()?;
        let seen = broker::look(&config).await?;
        broker::settle_times(&mut config, &seen).await?;
        topic::prepare(&mut config, &seen).await?;
        Ok(KafkaLedger { config })
    }

    /// What is used: as it was asked for, and where the broker decides, as the broker says.
    pub fn config(&self) -> &KafkaConfig {
        &self.config
    }
}

impl Ledger for KafkaLedger {
    type Member = KafkaMember;

    fn grants(&self) -> Grants {
        self.config.grants()
    }

    fn member(
        &self,
        _incarnation: Incarnation,
        plan: &LedgerPlan,
    ) -> Result<KafkaMember, LedgerError> {
        KafkaMember::new(&self.config, plan.threshold())
    }
}
