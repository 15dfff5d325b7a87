//! Roles on a ledger: how a process becomes a member of a group on Kafka, from flags or a configuration.
//!
//! A role has a number. A name that is a number is that role; any other name is a key, and its role is its hash slot
//! ([`role_named`]): the same on every member. Every member of a group stands for all its roles, because
//! whoever assigns partitions does not ask who wants which. So commands that are not the same belong to different
//! groups, and `mandate run` names the group after the role.

use std::collections::BTreeMap;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use mandate_ledger::Roles;
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Config, Layout, Mode, Plan, RoleId};
use mandate_runtime::{Election, Promise};

use crate::input;
use crate::output::{plural, readable};

#[cfg(not(feature = "kafka"))]
mod absent;
mod args;
mod document;
#[cfg(feature = "kafka")]
mod open;
pub(crate) mod show;
mod table;
pub(crate) mod words;

pub(crate) use args::{AssignorName, LedgerArgs, ModeName, ProtocolName, ReachArgs};
pub(crate) use document::{RoleDocument, RoleMapDocument, named};
pub(crate) use table::LedgerTable;

/// Partitions of a topic that is made for a group with many roles: with fewer members than that, each has some.
const PARTITIONS: u32 = 16;

/// A file of settings is a page or two.
const MAX_SETTINGS_BYTES: u64 = 1 << 16;

/// Settings of a file: lines of `KEY=VALUE`, as Kafka's own tools write them; `#` begins a comment line.
pub(crate) fn read_settings(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text = input::read_text(path, MAX_SETTINGS_BYTES)?;
    let mut settings = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if !line.is_empty() && !line.starts_with('#') {
            // What is wrong is not shown: it may be a password.
            let setting: args::Setting = line.parse().map_err(|error| {
                anyhow::anyhow!("line {number} of {} is no setting: {error}", path.display())
            })?;
            settings.insert(setting.key, setting.value);
        }
    }
    Ok(settings)
}

/// How a member on a ledger is set up.
#[derive(Clone)]
pub(crate) struct LedgerConfig {
    pub(crate) group: String,
    /// `None`: a number is drawn.
    pub(crate) member: Option<MemberId>,
    pub(crate) brokers: String,
    /// `None`: one of the group's own.
    pub(crate) topic: Option<String>,
    /// `None`: what the topic has.
    pub(crate) partitions: Option<NonZeroU32>,
    pub(crate) roles: u32,
    pub(crate) session: Duration,
    pub(crate) mode: ModeName,
    pub(crate) assignor: AssignorName,
    pub(crate) protocol: ProtocolName,
    pub(crate) instance: Option<String>,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) tuning: Tuning,
}

/// What follows from the session unless it is told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tuning {
    /// For how long after the last proof a member leads.
    pub(crate) threshold: Option<Duration>,
    /// How long work on a role that is revoked may take to end.
    pub(crate) drain: Option<Duration>,
    /// How long who resigns stays out of the group.
    pub(crate) rest: Option<Duration>,
    /// By how many thousandths the rate of a clock may be off.
    pub(crate) drift_per_mille: Option<u32>,
    /// Copies of a topic that is made; `None`: as many as there are brokers, and three at most.
    pub(crate) replicas: Option<NonZeroU16>,
}

impl std::fmt::Debug for LedgerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerConfig").field("group", &self.group).finish_non_exhaustive()
    }
}

impl LedgerConfig {
    /// Starts the member. Whether its ledger can be used at all is seen before.
    pub(crate) async fn start(&self) -> anyhow::Result<LedgerMember> {
        let me = match self.member {
            Some(member) => member,
            None => draw()?,
        };
        let (roles, plan) = self.open(me).await?;
        Ok(LedgerMember { me, roles, plan, topic: self.topic() })
    }

    /// The topic.
    pub(crate) fn topic(&self) -> String {
        self.topic.clone().unwrap_or_else(|| format!("mandate-{}", self.group))
    }

    /// How many partitions a topic is made with.
    fn partitions_to_make(&self) -> NonZeroU32 {
        let several = NonZeroU32::new(self.roles.min(PARTITIONS)).unwrap_or(NonZeroU32::MIN);
        self.partitions.unwrap_or(several)
    }

    fn mode(&self) -> Mode {
        match self.mode {
            ModeName::Exclusive => Mode::Exclusive,
            ModeName::NonExclusive => Mode::NonExclusive,
        }
    }

    fn neli(&self, me: MemberId) -> Config {
        let Tuning { threshold, drain, rest, drift_per_mille, .. } = self.tuning;
        let mut config = Config::new(me, self.mode()).with_roles(self.roles);
        if let Some(threshold) = threshold {
            config = config.with_threshold(threshold);
        }
        if let Some(drain) = drain {
            config = config.with_drain(drain);
        }
        if let Some(rest) = rest {
            config = config.with_rest(rest);
        }
        match drift_per_mille {
            Some(allowance) => config.with_allowance(allowance),
            None => config,
        }
    }
}

/// A number that hardly anyone else has: members on a ledger do not know of each other.
fn draw() -> anyhow::Result<MemberId> {
    let number = getrandom::u32().context("the system gave no random number")?;
    Ok(MemberId::new(number.max(1 << 16)))
}

/// A member that runs.
#[derive(Debug)]
pub(crate) struct LedgerMember {
    me: MemberId,
    roles: Roles,
    plan: Plan,
    topic: String,
}

impl LedgerMember {
    pub(crate) fn me(&self) -> MemberId {
        self.me
    }

    pub(crate) fn roles(&self) -> &Roles {
        &self.roles
    }

    /// What it goes by: what the broker grants, and what follows from that.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    /// What leaders rely on.
    pub(crate) fn promise(&self) -> Promise {
        match self.plan.mode() {
            Mode::NonExclusive => Promise::Overlap,
            Mode::Exclusive => Promise::Leased { lease: self.plan.threshold() },
        }
    }

    /// Where it meets the others, and what it goes by, in words.
    pub(crate) fn meets(&self) -> String {
        let (grants, roles) = (self.plan.grants(), self.roles.layout().roles());
        format!(
            "{} over {} of topic {}, sessions of {}",
            plural(roles.into(), "role"),
            plural(grants.partitions.get().into(), "partition"),
            self.topic,
            readable(grants.session)
        )
    }

    /// The election of the role with this name.
    pub(crate) fn election(&self, name: &str) -> anyhow::Result<Election> {
        Ok(self.roles.election(role_named(name, self.roles.layout())?))
    }

    /// Gives everything back, leaves the group, and ends; bounded.
    pub(crate) async fn shutdown(&self) {
        self.roles.shutdown().await;
    }
}

/// Which role a name stands for: a number is that role, any other name is a key, and its role is its hash slot. With one
/// role, every name is that one's.
pub(crate) fn role_named(name: &str, layout: Layout) -> anyhow::Result<RoleId> {
    let roles = layout.roles();
    match name.parse::<u32>() {
        _ if roles == 1 => Ok(RoleId::new(0)),
        Ok(number) => {
            anyhow::ensure!(
                number < roles,
                "there is no role {number}: the group has {roles}, counted from 0"
            );
            Ok(RoleId::new(number))
        }
        Err(_) => layout.slot_of(name.as_bytes()).context("the group has no roles"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(roles: u32) -> Layout {
        Layout::new(NonZeroU32::new(4).unwrap(), roles)
    }

    #[test]
    fn a_number_is_a_role_and_any_other_name_a_key() {
        let named = |name, roles| role_named(name, layout(roles)).map(RoleId::get);
        assert_eq!(named("17", 100).unwrap(), 17);
        assert_eq!(named("backup", 1).unwrap(), 0);
        let slot = layout(100).slot_of(b"backup").unwrap();
        assert_eq!(named("backup", 100).unwrap(), slot.get());
        assert!(named("100", 100).unwrap_err().to_string().contains("counted from 0"));
    }
}
