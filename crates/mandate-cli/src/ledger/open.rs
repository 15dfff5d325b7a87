//! What a broker shows of a group.

use mandate::MemberId;
use mandate::kafka::Builder;
use mandate::kafka::engine::kafka::groups::{self, Claim, Group, GroupMember, PartitionShown};
use mandate_proto::neli::Mark;

use super::show::{ClaimDocument, GroupDocument, MemberDocument, PartitionDocument};

/// The group, as its broker shows it.
pub(super) async fn look(at: &Builder) -> anyhow::Result<GroupDocument> {
    let group = Group::look(&at.client_config()).await?;
    let partition = |shown: &PartitionShown| {
        let mut members = group.members.iter();
        let assigned = members.find(|member| member.partitions.contains(&shown.partition));
        let leads = leads(shown, assigned, group.is_listed);
        PartitionDocument {
            partition: shown.partition.get(),
            assigned: assigned.map(|member| member.client.clone()),
            leader: leads.as_ref().map(|(leader, _)| leader.clone()),
            term: leads.as_ref().and_then(|(_, term)| *term),
            value: leads.as_ref().and(shown.value.as_ref()).map(|value| value.to_string()),
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
        group: at.group.clone(),
        topic: at.topic(),
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
pub(super) async fn claims(at: &Builder) -> anyhow::Result<Vec<ClaimDocument>> {
    let document = |claim: &Claim| ClaimDocument {
        partition: claim.partition.get(),
        term: claim.term.get(),
        member: claim.member.to_string(),
        at_ms: claim.at_ms,
        value: claim.value.as_ref().map(|value| value.to_string()),
    };
    Ok(groups::claims(&at.client_config()).await?.iter().map(document).collect())
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

/// Whether a mark is this client's, by the name that a member gives itself. Clients with names of their own cannot be
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
    use mandate_proto::neli::{Agreement, Mode, Partition, PartitionHolder};
    use std::time::Duration;

    fn shown(leads: bool, term: u64, is_renewed: bool) -> PartitionShown {
        let agreement = Agreement { partitions: 1, roles: 1, mode: Mode::Exclusive };
        let holder =
            Some(PartitionHolder { member: MemberId::new(7), agreement, leads, renewal: 3 });
        let mark = Mark::Held { term: Term::new(term), lease: Duration::from_secs(1), holder };
        let (partition, trouble) = (Partition::new(0), None);
        let (mark, since_ms, value) = (Some(mark), None, None);
        PartitionShown { partition, mark, is_renewed, since_ms, value, trouble }
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
