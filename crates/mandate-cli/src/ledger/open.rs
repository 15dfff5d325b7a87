//! What of a member's setup is Kafka's, and what a broker shows of a group.

use mandate_ledger::kafka::groups::{Claim, Group, GroupMember, claims};
use mandate_ledger::kafka::{KafkaConfig, KafkaLedger, Protocol};
use mandate_ledger::memory::Assignor;
use mandate_ledger::{Ledger, Roles, Setup, start};
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Partition, Plan};

use super::show::{ClaimDocument, GroupDocument, MemberDocument, PartitionDocument};
use super::{AssignorName, LedgerConfig, ProtocolName};

impl LedgerConfig {
    /// Looks at broker and topic, and joins the group.
    pub(super) async fn open(&self, me: MemberId) -> anyhow::Result<(Roles, Plan)> {
        let mut kafka = self.kafka();
        // By this name brokers and their tools show it.
        kafka.settings.entry("client.id".into()).or_insert_with(|| client_id(me));
        let ledger = KafkaLedger::open(kafka).await?;
        let config = self.neli(me);
        let plan = config.resolve(ledger.grants())?;
        Ok((start(&ledger, Setup { config, roles: self.roles })?, plan))
    }

    fn kafka(&self) -> KafkaConfig {
        let partitions = self.partitions_to_make();
        let config = KafkaConfig::new(&self.brokers, &self.topic(), &self.group, partitions);
        let protocol = match self.protocol {
            ProtocolName::Classic => Protocol::Classic,
            ProtocolName::Consumer => Protocol::Consumer,
        };
        KafkaConfig {
            takes_any_partitions: self.partitions.is_none(),
            assignor: match self.assignor {
                AssignorName::CooperativeSticky => Assignor::CooperativeSticky,
                AssignorName::RoundRobin => Assignor::RoundRobin,
            },
            instance: self.instance.clone(),
            settings: self.settings.clone(),
            ..config.with_session(self.session).with_mode(self.mode()).with_protocol(protocol)
        }
    }

    /// The group, as its broker shows it.
    pub(super) async fn look(&self) -> anyhow::Result<GroupDocument> {
        let group = Group::look(&self.kafka()).await?;
        let partition = |number: u32| {
            let partition = Partition::new(number);
            let claim = group.claims.get(&partition);
            let mut members = group.members.iter();
            let assigned = members.find(|member| member.partitions.contains(&partition));
            // A claim of one that has since been replaced is history.
            let leads = claim.zip(assigned).filter(|(claim, member)| is_of(claim, member));
            PartitionDocument {
                partition: number,
                assigned: assigned.map(|member| member.client.clone()),
                leader: leads.map(|(_, member)| member.client.clone()),
                term: leads.map(|(claim, _)| claim.term.get()),
                since_ms: leads.map(|(claim, _)| claim.at_ms),
            }
        };
        let member = |member: &GroupMember| MemberDocument {
            client: member.client.clone(),
            host: member.host.clone(),
            partitions: member.partitions.iter().map(|one| one.get()).collect(),
        };
        Ok(GroupDocument {
            group: self.group.clone(),
            topic: self.topic(),
            state: group.state.clone(),
            partitions: (0..group.partitions).map(partition).collect(),
            members: group.members.iter().map(member).collect(),
        })
    }

    /// The claims that the topic still has, the oldest first.
    pub(super) async fn claims(&self) -> anyhow::Result<Vec<ClaimDocument>> {
        let document = |claim: &Claim| ClaimDocument {
            partition: claim.partition.get(),
            term: claim.term.get(),
            member: claim.member.to_string(),
            at_ms: claim.at_ms,
        };
        Ok(claims(&self.kafka()).await?.iter().map(document).collect())
    }
}

fn client_id(me: MemberId) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("mandate-{me}-{host}-{}", std::process::id())
}

/// Whether a claim is this client's, by the name that [`client_id`] gave it. Clients with names of their own cannot be
/// told apart so, and are believed.
fn is_of(claim: &Claim, member: &GroupMember) -> bool {
    match member.client.strip_prefix("mandate-") {
        Some(rest) => rest.starts_with(&format!("{}-", claim.member)),
        None => true,
    }
}
