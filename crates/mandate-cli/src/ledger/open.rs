//! What of a member's setup is Kafka's.

use mandate_ledger::kafka::{KafkaConfig, KafkaLedger};
use mandate_ledger::memory::Assignor;
use mandate_ledger::{Ledger, Roles, Setup, start};
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Mode, Plan};

use super::{AssignorName, LedgerConfig, ModeName};

impl LedgerConfig {
    /// Looks at broker and topic, and joins the group.
    pub(super) async fn open(&self, me: MemberId) -> anyhow::Result<(Roles, Plan)> {
        let ledger = KafkaLedger::open(self.kafka(me)).await?;
        let config = self.neli(me);
        let plan = config.resolve(ledger.grants())?;
        Ok((start(&ledger, Setup { config, roles: self.roles })?, plan))
    }

    fn kafka(&self, me: MemberId) -> KafkaConfig {
        let partitions = self.partitions_to_make();
        let mut config = KafkaConfig::new(&self.brokers, &self.topic(), &self.group, partitions)
            .with_session(self.session)
            .with_mode(match self.mode {
                ModeName::Exclusive => Mode::Exclusive,
                ModeName::NonExclusive => Mode::NonExclusive,
            });
        config.assignor = match self.assignor {
            AssignorName::CooperativeSticky => Assignor::CooperativeSticky,
            AssignorName::RoundRobin => Assignor::RoundRobin,
        };
        config.instance.clone_from(&self.instance);
        config.settings = self.settings.clone();
        // By this name brokers and their tools show it.
        config.settings.entry("client.id".into()).or_insert_with(|| client_id(me));
        config
    }
}

fn client_id(me: MemberId) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("mandate-{me}-{host}-{}", std::process::id())
}
