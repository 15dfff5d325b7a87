//! Which roles a member leads, as JSON: the same for the API, the metrics and the commands that show it.

use mandate::kafka::engine::{LedgerRoles, PartitionStanding, RoleCounts};
use mandate_proto::election::RoleId;
use mandate_proto::neli::{Layout, Partition};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::node::chronicle::now_ms;
use crate::output::ms;
use mandate::kafka::KafkaDetails;

/// Roles that a line names; the others are counted.
const NAMED: usize = 4;

/// The roles of a group, by partition, as a member knows them: what others lead, it does not know.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RoleMapDocument {
    pub topic: String,
    /// `exclusive` or `non-exclusive`.
    pub(crate) mode: String,
    /// How many roles the group has.
    pub roles: u32,
    /// What this member goes by, in words: all of its group must have the same.
    #[serde(default)]
    pub layout: String,
    /// What another member goes by and because of which this one does not lead; absent where all agree.
    pub disagrees_with: Option<String>,
    /// How many partitions the topic has by now, if not as many as this member counts.
    pub topic_partitions: Option<u32>,
    /// How many of them this member leads now.
    pub roles_led: u32,
    /// How long this member has waited to be assigned anything; absent unless it does.
    pub waiting_ms: Option<f64>,
    /// Whether that is longer than any member may hold it up.
    pub stuck: bool,
    pub partitions: Vec<PartitionDocument>,
    /// What has happened since the start.
    pub counts: CountsDocument,
}

/// A partition.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PartitionDocument {
    pub partition: u32,
    pub roles: Vec<u32>,
    /// Whether it is assigned to this member.
    pub assigned: bool,
    /// Whether this member leads its roles now.
    pub leads: bool,
    /// Absent in non-exclusive mode, and where it does not lead.
    pub term: Option<u64>,
    /// Since when it leads, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// How long it leads at least.
    pub remaining_ms: Option<f64>,
    /// When it was found dry, if nothing was assigned since.
    pub dry_since_ms: Option<u64>,
}

/// How often something has happened.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CountsDocument {
    pub acquired: u64,
    pub lapsed: u64,
    pub revoked: u64,
    pub lost: u64,
    pub fenced: u64,
    pub left: u64,
    pub dry: u64,
    pub stuck: u64,
    pub overran: u64,
    pub failed: u64,
    /// A member with another layout or mode was found.
    #[serde(default)]
    pub disagreed: u64,
}

/// A role, as a member knows it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RoleDocument {
    pub role: u32,
    pub partition: u32,
    /// Whether this member leads it now.
    pub leads: bool,
    pub term: Option<u64>,
    pub since_ms: Option<u64>,
    pub remaining_ms: Option<f64>,
}

impl RoleMapDocument {
    /// What this member knows now.
    pub fn of(member: &KafkaDetails) -> Self {
        let roles = member.roles();
        let (layout, standing) = (roles.layout(), roles.standing());
        let partitions: Vec<_> =
            standing.partitions.iter().map(|one| PartitionDocument::new(one, layout)).collect();
        let led = partitions.iter().filter(|one| one.leads).map(|one| one.roles.len() as u32);
        RoleMapDocument {
            topic: member.topic().to_owned(),
            mode: member.plan().mode().to_string(),
            roles: layout.roles(),
            layout: standing.agreement.to_string(),
            disagrees_with: standing.disagrees_with.map(|theirs| theirs.to_string()),
            topic_partitions: standing.other_size,
            roles_led: led.sum(),
            waiting_ms: standing.waits_for.map(ms),
            stuck: standing.is_stuck,
            partitions,
            counts: CountsDocument::new(standing.counts),
        }
    }

    /// Why this member cannot do its part, if it cannot.
    pub fn trouble(&self) -> Option<String> {
        let counted = self.partitions.len() as u32;
        match (&self.disagrees_with, self.topic_partitions) {
            (Some(theirs), _) => Some(format!(
                "another member has {theirs}, this one {}: it does not lead until all have the same",
                self.layout
            )),
            (None, Some(found)) if found < counted => Some(format!(
                "the topic has {found} partitions, and this member counts {counted}: was it made anew?"
            )),
            _ if self.waiting_ms.is_some() => Some("nothing is assigned yet".into()),
            _ => None,
        }
    }

    /// Role by role.
    pub fn by_role(&self) -> Vec<RoleDocument> {
        let each = |one: &PartitionDocument| {
            let of = one.clone();
            one.roles.clone().into_iter().map(move |role| of.role(role))
        };
        let mut roles: Vec<_> = self.partitions.iter().flat_map(each).collect();
        roles.sort_unstable_by_key(|one| one.role);
        roles
    }

    /// For people: what this member leads, and what an operator should look at.
    pub fn text(&self) -> String {
        let led: Vec<_> = self.partitions.iter().filter(|one| one.leads).collect();
        let mut text = format!(
            "  topic       {}, {}\n  roles       {} of {} led here, with {} of {} partitions\n",
            self.topic,
            self.mode,
            self.roles_led,
            self.roles,
            led.len(),
            self.partitions.len()
        );
        if let Some(theirs) = &self.disagrees_with {
            text += &format!(
                "  DISAGREES   another member has {theirs}, this one {}: it does not lead\n",
                self.layout
            );
        }
        if let Some(found) = self.topic_partitions {
            text += &format!(
                "  RESIZED     the topic has {found} partitions by now, this member counts {}\n",
                self.partitions.len()
            );
        }
        if self.stuck {
            let waited = self.waiting_ms.unwrap_or_default() / 1000.0;
            text += &format!(
                "  STUCK       nothing was assigned for {waited:.0} s: a member of the group holds the barrier up\n"
            );
        }
        for one in self.partitions.iter().filter(|one| one.dry_since_ms.is_some()) {
            text += &format!(
                "  DRY         partition {}: nothing came by which it could be led; it was given back\n",
                one.partition
            );
        }
        if !led.is_empty() {
            text += "\n  partition       term  for           roles\n";
        }
        for one in led {
            let term = one.term.map_or("-".into(), |term| term.to_string());
            let lasted = one.since_ms.map_or(0, |since| now_ms().saturating_sub(since));
            let lasted = std::time::Duration::from_secs(lasted / 1000);
            text += &format!(
                "  {:>9} {term:>10}  {:<13} {}\n",
                one.partition,
                humantime::format_duration(lasted).to_string(),
                named(&one.roles)
            );
        }
        text
    }
}

/// The first of many roles, and how many there are.
pub(crate) fn named(roles: &[u32]) -> String {
    let shown: Vec<_> = roles.iter().take(NAMED).map(u32::to_string).collect();
    match roles.len() > NAMED {
        true => format!("{} ... ({} in all)", shown.join(", "), roles.len()),
        false => shown.join(", "),
    }
}

impl PartitionDocument {
    fn new(standing: &PartitionStanding, layout: Layout) -> Self {
        let ago = |age: std::time::Duration| now_ms().saturating_sub(age.as_millis() as u64);
        let lead = standing.lead;
        PartitionDocument {
            partition: standing.partition.get(),
            roles: layout.roles_of(standing.partition).map(RoleId::get).collect(),
            assigned: standing.is_assigned,
            leads: lead.is_some(),
            term: lead.map(|lead| lead.term.get()).filter(|term| *term > 0),
            since_ms: lead.map(|lead| ago(lead.lasted)),
            remaining_ms: lead.map(|lead| ms(lead.lasts)),
            dry_since_ms: standing.dry_for.map(ago),
        }
    }

    fn role(&self, role: u32) -> RoleDocument {
        RoleDocument {
            role,
            partition: self.partition,
            leads: self.leads,
            term: self.term,
            since_ms: self.since_ms,
            remaining_ms: self.remaining_ms,
        }
    }
}

impl RoleDocument {
    /// One role.
    pub fn of(roles: &LedgerRoles, role: RoleId) -> Self {
        let (layout, standing) = (roles.layout(), roles.standing());
        let partition: Partition = layout.partition_of(role);
        let one = &standing.partitions[partition.get() as usize];
        PartitionDocument::new(one, layout).role(role.get())
    }
}

impl CountsDocument {
    fn new(counts: RoleCounts) -> Self {
        let RoleCounts { acquired, lapsed, revoked, lost, fenced, left, .. } = counts;
        let RoleCounts { dry, stuck, overran, failed, disagreed, .. } = counts;
        Self {
            acquired,
            lapsed,
            revoked,
            lost,
            fenced,
            left,
            dry,
            stuck,
            overran,
            failed,
            disagreed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_roles_are_counted_and_few_are_named() {
        assert_eq!(named(&[1, 5]), "1, 5");
        assert_eq!(named(&[1, 5, 9, 13, 17]), "1, 5, 9, 13 ... (5 in all)");
        assert_eq!(named(&[]), "");
    }
}
