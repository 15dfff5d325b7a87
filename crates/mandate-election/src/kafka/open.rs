//! What of a member's setup is Kafka's.

use std::num::NonZeroU16;

use mandate_ledger::kafka::{KafkaConfig, KafkaLedger, MembershipProtocol};
use mandate_ledger::{Ledger, LedgerRoles, Setup, StartError, memory, start_with_value};
use mandate_proto::identity::MemberId;
use mandate_proto::neli::LedgerPlan;

use super::{Assignor, Builder, GroupProtocol};
use crate::error::Error;

impl Builder {
    /// Looks at broker and topic, and joins the group.
    pub(super) async fn open(&self, me: MemberId) -> Result<(LedgerRoles, LedgerPlan), Error> {
        let mut kafka = self.client_config();
        // By this name brokers and their tools show it.
        kafka.settings.entry("client.id".into()).or_insert_with(|| client_id(me));
        let ledger = KafkaLedger::open(kafka).await.map_err(StartError::from)?;
        let config = self.protocol_config(me);
        let plan = config.resolve(ledger.grants()).map_err(StartError::from)?;
        let setup = Setup { config, roles: self.roles };
        Ok((start_with_value(&ledger, setup, self.value().cloned())?, plan))
    }

    /// How Kafka is used: for those who look at a group without joining it.
    pub fn client_config(&self) -> KafkaConfig {
        let partitions = self.partitions_to_make();
        let config = KafkaConfig::new(&self.brokers, &self.topic(), &self.group, partitions);
        let protocol = match self.protocol {
            GroupProtocol::Auto => MembershipProtocol::Auto,
            GroupProtocol::Classic => MembershipProtocol::Classic,
            GroupProtocol::Consumer => MembershipProtocol::Consumer,
        };
        KafkaConfig {
            takes_any_partitions: self.partitions.is_none(),
            assignor: match self.assignor {
                Assignor::CooperativeSticky => memory::AssignmentRule::CooperativeSticky,
                Assignor::RoundRobin => memory::AssignmentRule::RoundRobin,
            },
            instance: self.instance.clone(),
            create: Some(self.tuning.replicas.map_or(0, NonZeroU16::get)),
            settings: self.settings.clone(),
            ..config.with_session(self.session).with_mode(self.mode).with_protocol(protocol)
        }
    }
}

fn client_id(me: MemberId) -> String {
    format!("mandate-{me}-{}-{}", crate::member::host(), std::process::id())
}
