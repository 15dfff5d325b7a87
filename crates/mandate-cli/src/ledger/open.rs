//! What of a member's setup is Kafka's, and what a broker shows of a group.

use std::num::NonZeroU16;

use mandate_ledger::kafka::groups::{Claim, Group, GroupMember, PartitionShown, claims};
use mandate_ledger::kafka::{KafkaConfig, KafkaLedger, Protocol};
use mandate_ledger::memory::Assignor;
use mandate_ledger::{Ledger, Roles, Setup, start};
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Mark, Plan};

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
            ProtocolName::Auto => Protocol::Auto,
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
            create: Some(self.tuning.replicas.map_or(0, NonZeroU16::get)),
            settings: self.settings.clone(),
            ..config.with_session(self.session).with_mode(self.mode()).with_protocol(protocol)
        }
    }

    /// The group, as its broker shows it.
    pub(super) async fn look(&self) -> anyhow::Result<GroupDocument> {
        let group = Group::look(&self.kafka()).await?;
        let partition = |shown: &PartitionShown| {
            let mut members = group.members.iter();
            let assigned = members.find(|member| member.partitions.contains(&shown.partition));
            let leads = leads(shown, assigned, group.is_listed);
            PartitionDocument {
                partition: shown.partition.get(),
                assigned: assigned.map(|member| member.client.clone()),
                leader: leads.as_ref().map(|(leader, _)| leader.clone()),
                term: leads.as_ref().and_then(|(_, term)| *term),
                since_ms: leads.and(shown.since_ms),
                layout: layout(shown),
                trouble: shown.trouble.clone(),
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
            state: match group.is_listed {
                true => group.state.clone(),
                false => format!(
                    "{} (a group that speaks the consumer protocol is not listed: who leads is read from its commits)",
                    group.state
                ),
            },
            partitions: group.partitions.iter().map(partition).collect(),
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

/// Who leads a partition, and in which term; `None` if nobody is known to. The mark says under which term it was renewed; that its
/// owner is still there, the assignment says, or in a group that is not listed, that it renews.
fn leads(
    shown: &PartitionShown,
    assigned: Option<&GroupMember>,
    is_listed: bool,
) -> Option<(String, Option<u64>)> {
    let Some(Mark::Held { term, holder, .. }) = shown.mark else { return None };
    let term = Some(term.get()).filter(|term| *term > 0);
    match (holder, assigned) {
        (Some(holder), _) if !holder.leads => None,
        // A mark of one that has since been replaced is history.
        (Some(holder), Some(member)) => {
            is_of(holder.member, member).then(|| (member.client.clone(), term))
        }
        (Some(holder), None) => {
            (!is_listed && shown.is_renewed).then(|| (holder.member.to_string(), term))
        }
        // Of an earlier release, which did not say who it was.
        (None, Some(member)) => Some((member.client.clone(), term)),
        (None, None) => None,
    }
}

fn layout(shown: &PartitionShown) -> Option<String> {
    match shown.mark {
        Some(Mark::Held { holder: Some(holder), .. }) => Some(holder.agreement.to_string()),
        _ => None,
    }
}

/// Whether a mark is this client's, by the name that [`client_id`] gave it. Clients with names of their own cannot be
/// told apart so, and are believed.
fn is_of(member: MemberId, client: &GroupMember) -> bool {
    match client.client.strip_prefix("mandate-") {
        Some(rest) => rest.starts_with(&format!("{member}-")),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_proto::identity::Term;
    use mandate_proto::neli::{Agreement, Holder, Mode, Partition};
    use std::time::Duration;

    fn shown(leads: bool, term: u64, is_renewed: bool) -> PartitionShown {
        let agreement = Agreement { partitions: 1, roles: 1, mode: Mode::Exclusive };
        let holder = Some(Holder { member: MemberId::new(7), agreement, leads, renewal: 3 });
        let mark = Mark::Held { term: Term::new(term), lease: Duration::from_secs(1), holder };
        let (partition, trouble) = (Partition::new(0), None);
        PartitionShown { partition, mark: Some(mark), is_renewed, since_ms: None, trouble }
    }

    fn client(name: &str) -> GroupMember {
        let partitions = vec![Partition::new(0)];
        GroupMember { client: name.into(), host: "127.0.0.1".into(), partitions }
    }

    #[test]
    fn who_leads_is_told_by_mark_and_assignment_though_the_claim_is_gone() {
        let (owner, other) = (client("mandate-p7-host-1"), client("mandate-p8-host-2"));
        let told = Some(("mandate-p7-host-1".to_owned(), Some(12)));
        assert_eq!(leads(&shown(true, 12, false), Some(&owner), true), told);
        assert_eq!(leads(&shown(false, 12, false), Some(&owner), true), None, "it only wants to");
        assert_eq!(leads(&shown(true, 12, false), Some(&other), true), None, "it was replaced");
        assert_eq!(leads(&shown(true, 12, false), None, true), None, "it is gone");
        let without_terms = Some(("mandate-p7-host-1".to_owned(), None));
        assert_eq!(leads(&shown(true, 0, false), Some(&owner), true), without_terms);
    }

    #[test]
    fn in_a_group_that_is_not_listed_who_renews_leads() {
        assert_eq!(leads(&shown(true, 12, true), None, false), Some(("p7".into(), Some(12))));
        assert_eq!(leads(&shown(true, 12, false), None, false), None);
    }
}
