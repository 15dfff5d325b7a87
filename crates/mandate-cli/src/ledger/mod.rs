//! Roles on a ledger: how a process becomes a member of a group on Kafka, from flags, and what the program says of one.
//!
//! Every member of a group stands for all its roles, because the coordinator that assigns partitions does not ask who wants which. So commands
//! that are not the same belong to different groups, and `mandate run` names the group after the role.

use mandate::kafka::KafkaDetails;

use crate::output::{plural, readable};

#[cfg(not(feature = "kafka"))]
mod absent;
mod args;
mod document;
#[cfg(feature = "kafka")]
mod open;
pub(crate) mod show;
pub(crate) mod words;

pub(crate) use args::ReachArgs;
pub use args::{AssignorName, LedgerArgs, ModeName, ProtocolName};
pub(crate) use document::{RoleDocument, RoleMapDocument, named};

/// Where a member meets the others, and what it goes by, in words.
pub(crate) fn meets(member: &KafkaDetails) -> String {
    let (grants, roles) = (member.plan().grants(), member.roles().layout().roles());
    format!(
        "{} over {} of topic {}, sessions of {}",
        plural(roles.into(), "role"),
        plural(grants.partitions.get().into(), "partition"),
        member.topic(),
        readable(grants.session)
    )
}
