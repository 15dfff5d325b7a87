//! What the broker itself says of a group: no daemon is asked, and nobody is disturbed.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use mandate::kafka::Builder;

use super::ReachArgs;
#[cfg(not(feature = "kafka"))]
use super::absent::{claims, look};
#[cfg(feature = "kafka")]
use super::open::{claims, look};
use crate::exit::Exit;
use crate::output::{self, Format};

/// Between two looks.
const EVERY: Duration = Duration::from_millis(500);

/// So many claims are shown.
const SHOWN: usize = 50;

/// A group, as its broker shows it.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(super) struct GroupDocument {
    pub(super) group: String,
    pub(super) topic: String,
    /// What the coordinator is about with it, in its words.
    pub(super) state: String,
    pub(super) partitions: Vec<PartitionDocument>,
    pub(super) members: Vec<MemberDocument>,
}

/// A partition.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(super) struct PartitionDocument {
    pub(super) partition: u32,
    /// The client that the coordinator has assigned it to.
    pub(super) assigned: Option<String>,
    /// Who leads it, by its last commit, and is in the group still.
    pub(super) leader: Option<String>,
    pub(super) term: Option<u64>,
    /// When the claim was made, in milliseconds since 1970 by the broker's clock; absent when the topic retains it no more.
    pub(super) since_ms: Option<i64>,
    /// What the leader has published with its term; absent when the topic retains the claim no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    /// The layout of the member that committed last.
    pub(super) layout: Option<String>,
    /// What is wrong with the partition.
    pub(super) trouble: Option<String>,
}

/// A member.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(super) struct MemberDocument {
    pub(super) client: String,
    pub(super) host: String,
    pub(super) partitions: Vec<u32>,
}

/// A term that began.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub(super) struct ClaimDocument {
    pub(super) partition: u32,
    pub(super) term: u64,
    pub(super) member: String,
    pub(super) at_ms: i64,
    /// What it carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
}

/// Who is asked, and a runtime to ask on.
struct Reader {
    runtime: tokio::runtime::Runtime,
    config: Builder,
}

impl Reader {
    fn open(reach: &ReachArgs, group: Option<&str>) -> anyhow::Result<Self> {
        let group = group.context("name the group with --group")?;
        let config = super::args::to_look_at(reach, group)?;
        Ok(Reader { runtime: tokio::runtime::Runtime::new()?, config })
    }

    fn look(&self) -> anyhow::Result<GroupDocument> {
        self.runtime.block_on(look(&self.config))
    }
}

pub(crate) fn status(
    reach: &ReachArgs,
    group: Option<&str>,
    format: Format,
) -> anyhow::Result<Exit> {
    let seen = Reader::open(reach, group)?.look()?;
    match format {
        Format::Json => output::print_json(&seen)?,
        Format::Text => output::print(text(&seen))?,
    }
    Ok(Exit::Success)
}

fn text(seen: &GroupDocument) -> String {
    let count = |number: usize, what| output::plural(number as u64, what);
    let led = seen.partitions.iter().filter(|one| one.leader.is_some()).count();
    let mut text = match (seen.members.len(), &seen.partitions[..]) {
        (0, _) if led == 0 => format!("nobody is in the group {}", seen.group),
        (_, [PartitionDocument { leader: Some(leader), term: Some(term), .. }]) => {
            format!("{leader} leads {} in term {term}", seen.group)
        }
        (_, [PartitionDocument { leader: Some(leader), term: None, .. }]) => {
            format!("{leader} leads {}", seen.group)
        }
        (0, partitions) => {
            format!("{led} of {} of {} led", count(partitions.len(), "partition"), seen.group)
        }
        (members, partitions) => format!(
            "{} of {} of {} led, by {}",
            led,
            count(partitions.len(), "partition"),
            seen.group,
            count(members, "member")
        ),
    };
    text += &format!("\n\n  topic {}; the coordinator says: {}\n", seen.topic, seen.state);
    text += "\n  partition       term  since                 leader";
    for one in &seen.partitions {
        let term = one.term.map_or("-".into(), |term| term.to_string());
        let mut leader = match (&one.leader, &one.assigned) {
            (Some(leader), _) => leader.clone(),
            (None, Some(client)) => format!("none that has claimed it; assigned to {client}"),
            (None, None) => "none".into(),
        };
        if let Some(trouble) = &one.trouble {
            leader += &format!(" ({trouble})");
        }
        let since = one.since_ms.map_or("-".into(), time);
        text += &format!("\n  {:>9} {term:>10}  {since:<21} {leader}", one.partition);
        if let Some(value) = &one.value {
            text += &format!("\n  value       {}", output::indented(value));
        }
    }
    let mut layouts: Vec<_> =
        seen.partitions.iter().filter_map(|one| one.layout.as_ref()).collect();
    layouts.sort_unstable();
    layouts.dedup();
    match layouts[..] {
        [] => {}
        [layout] => text += &format!("\n\n  layout: {layout}"),
        _ => {
            text += "\n\n  LAYOUTS DIFFER: members of one of them do not lead; give all the same";
            layouts.iter().for_each(|layout| text += &format!("\n    {layout}"));
        }
    }
    for member in &seen.members {
        let part = match member.partitions.len() {
            0 => "stands by".into(),
            _ => format!("assigned {}", super::document::named(&member.partitions)),
        };
        text += &format!("\n\n  {} at {}: {part}", member.client, member.host);
    }
    text
}

fn time(ms: i64) -> String {
    let since = Duration::from_millis(ms.unsigned_abs());
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + since).to_string()
}

/// The claims that the topic still has.
pub(crate) fn history(
    reach: &ReachArgs,
    group: Option<&str>,
    format: Format,
) -> anyhow::Result<Exit> {
    let reader = Reader::open(reach, group)?;
    let mut claimed = reader.runtime.block_on(claims(&reader.config))?;
    claimed.reverse();
    claimed.truncate(SHOWN);
    match format {
        Format::Json => output::print_json(&claimed)?,
        Format::Text if claimed.is_empty() => {
            output::print(
                "the topic has no claims any more: they are kept for as long as it retains records",
            )?;
        }
        Format::Text => {
            for claim in &claimed {
                output::print(format!(
                    "partition {:<5} term {:<8} {}  claimed by {}",
                    claim.partition,
                    claim.term,
                    time(claim.at_ms),
                    claim.member
                ))?;
            }
        }
    }
    Ok(Exit::Success)
}

/// Says who leads, whenever that changes, until interrupted.
pub(crate) fn observe(
    reach: &ReachArgs,
    group: Option<&str>,
    format: Format,
) -> anyhow::Result<Exit> {
    let reader = Reader::open(reach, group)?;
    let mut before: Option<GroupDocument> = None;
    loop {
        match reader.look() {
            Ok(seen) if before.as_ref() != Some(&seen) => {
                match format {
                    Format::Json => output::print_json_line(&seen)?,
                    Format::Text => output::print(changes(before.as_ref(), &seen))?,
                }
                before = Some(seen);
            }
            Ok(_) => {}
            Err(error) => output::complain(format!("{error:#}")),
        }
        std::thread::sleep(EVERY);
    }
}

/// What is new, a line each.
fn changes(before: Option<&GroupDocument>, seen: &GroupDocument) -> String {
    let was =
        |one: &PartitionDocument| before.is_some_and(|before| before.partitions.contains(one));
    let mut lines = Vec::new();
    if before.is_none_or(|before| before.members.len() != seen.members.len()) {
        let members = output::plural(seen.members.len() as u64, "member");
        lines.push(format!("{members} in {}", seen.group));
    }
    for one in seen.partitions.iter().filter(|one| !was(one)) {
        lines.push(match (&one.leader, one.term) {
            (Some(leader), Some(term)) => {
                format!("partition {}: {leader} leads in term {term}", one.partition)
            }
            (Some(leader), None) => format!("partition {}: {leader} leads", one.partition),
            _ => format!("partition {}: no leader is known", one.partition),
        });
    }
    if lines.is_empty() {
        lines.push(format!("the coordinator says: {}", seen.state));
    }
    lines.join("\n")
}

/// On a ledger nobody stands for election.
pub(crate) fn explain() -> anyhow::Result<Exit> {
    anyhow::bail!(
        "on a ledger the coordinator of the group assigns partitions: nobody stands for election, and there are no scores. \
         `mandate history` says who claimed what, and `mandate status` who leads"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(leader: Option<&str>, term: u64) -> GroupDocument {
        let partition = PartitionDocument {
            partition: 0,
            assigned: Some("mandate-p7-host-1".into()),
            leader: leader.map(str::to_owned),
            term: leader.map(|_| term),
            since_ms: leader.map(|_| 1_700_000_000_000),
            value: None,
            layout: Some("1 role over 1 partition, exclusive".into()),
            trouble: None,
        };
        GroupDocument {
            group: "backup".into(),
            topic: "mandate-backup".into(),
            state: "Stable".into(),
            partitions: vec![partition],
            members: vec![MemberDocument {
                client: "mandate-p7-host-1".into(),
                host: "127.0.0.1".into(),
                partitions: vec![0],
            }],
        }
    }

    #[test]
    fn a_group_with_one_role_says_who_leads_it() {
        let shown = text(&group(Some("mandate-p7-host-1"), 12));
        assert!(shown.starts_with("mandate-p7-host-1 leads backup in term 12"), "{shown}");
        let shown = text(&group(None, 0));
        assert!(shown.contains("none that has claimed it; assigned to mandate-p7"), "{shown}");
    }

    #[test]
    fn layouts_that_differ_and_partitions_in_trouble_are_shown() {
        let mut seen = group(Some("mandate-p7-host-1"), 12);
        let mut second = seen.partitions[0].clone();
        (second.partition, second.leader, second.term) = (1, None, None);
        second.layout = Some("2 roles over 1 partition, exclusive".into());
        second.trouble = Some("no broker leads this partition: nobody can claim it".into());
        seen.partitions.push(second);
        let shown = text(&seen);
        assert!(shown.starts_with("1 of 2 partitions of backup led"), "{shown}");
        assert!(shown.contains("LAYOUTS DIFFER") && shown.contains("(no broker leads"), "{shown}");
    }

    #[test]
    fn only_what_is_new_is_told() {
        let (first, second) = (group(Some("a"), 1), group(Some("b"), 2));
        assert_eq!(changes(None, &first), "1 member in backup\npartition 0: a leads in term 1");
        assert_eq!(changes(Some(&first), &second), "partition 0: b leads in term 2");
    }
}
