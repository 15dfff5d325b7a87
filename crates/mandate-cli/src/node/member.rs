//! What the program says of a member, and asks of it, whatever engine elects it.

use std::sync::Arc;

use mandate::peer::engine::links::Settings;
use mandate::{Builder, Member, MemberId, MemberInfo, Start};

use super::document::DifferingDocument;
use crate::ledger;

/// Refuses what only members with a state file can start from.
pub(crate) fn without_state(start: Start, place: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        start == Start::Stored,
        "--new, --lost and --members-changed are for members with a state of their own: {place} they have none"
    );
    Ok(())
}

/// The member that a configuration describes, to be started so; as the configuration says, if no flag says otherwise.
pub(crate) fn starting(member: Builder, start: Start) -> anyhow::Result<Builder> {
    Ok(match member {
        Builder::Peer(_) if start == Start::Stored => member,
        Builder::Peer(peer) => Builder::Peer(Box::new(peer.with_start(start))),
        Builder::Sql(_) => {
            without_state(start, "on a database")?;
            member
        }
        _ => {
            without_state(start, "on a ledger")?;
            member
        }
    })
}

/// Waits until a member has ended by itself, and says why. A member of the other engines than the ledger does not.
pub(crate) async fn until_ended(member: &Member) -> String {
    match member.kafka() {
        Some(ledger) => ledger.roles().until_ended().await,
        None => std::future::pending().await,
    }
}

/// Why other processes of this host cannot act on its mandate, if they cannot.
pub(crate) fn cannot_be_held(member: &Member) -> Option<&'static str> {
    let many = member.roles().is_some_and(|roles| roles.count() > 1);
    match (member.protocol().is_some_and(|protocol| protocol.moves_leaders()), many) {
        (true, _) => Some(
            "[moves] hands leadership over before a command has ended: leave it out of this member's configuration, \
             or set shadow = true",
        ),
        (_, true) => Some(
            "this member's group has many roles: have the command be a member of its own, with \
             `mandate run ROLE --config FILE`",
        ),
        _ => None,
    }
}

/// Members that are refused, because they have another list of members or another guarantee.
pub(crate) fn differing(member: &Member) -> Vec<DifferingDocument> {
    let Some(links) = member.peer().map(|peer| peer.links()) else { return Vec::new() };
    let document = |(member, theirs): (MemberId, Settings)| DifferingDocument {
        member: member.to_string(),
        theirs: theirs.to_string(),
        ours: links.settings().to_string(),
    };
    links.differing().into_iter().map(document).collect()
}

/// Where it meets the others, in words.
pub(crate) fn meets(member: &Member) -> String {
    match (member.peer(), member.sql(), member.kafka()) {
        (Some(peer), _, _) => format!("members at {}", peer.local_addr()),
        (_, Some(sql), _) => format!("electing on {}", sql.database().address()),
        (_, _, Some(kafka)) => ledger::meets(kafka),
        (None, None, None) => String::new(),
    }
}

/// All others, as far as they are known now.
pub(crate) async fn others(member: &Member) -> Arc<[MemberInfo]> {
    let members = member.members().await.unwrap_or_default();
    members.iter().filter(|other| other.id != member.id()).cloned().collect()
}
