//! Roles on a ledger: how a process becomes a member of a group on Kafka, from flags or a configuration.
//!
//! A role has a number. A name that is a number is that role; any other name is a key, and its role is its hash slot
//! ([`role_named`]): the same on every member. Every member of a group stands for all its roles, because
//! whoever assigns partitions does not ask who wants which. So commands that are not the same belong to different
//! groups, and `mandate run` names the group after the role.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use mandate_ledger::Roles;
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Config, Layout, Mode, Plan, RoleId};
use mandate_runtime::{Election, Promise};

use crate::args::positive_duration;
use crate::input;

#[cfg(feature = "kafka")]
mod open;

/// Where clients of Kafka look for brokers that nobody has named.
const BROKERS: &str = "KAFKA_BROKERS";

/// Partitions of a topic that is made for a group with many roles: with fewer members than that, each has some.
const PARTITIONS: u32 = 16;

/// What a broker grants that nobody has tuned.
const SESSION: Duration = Duration::from_secs(6);

/// A session for brokers that were tuned for short ones.
const TUNED: Duration = Duration::from_secs(1);

/// A file of settings is a page or two.
const MAX_SETTINGS_BYTES: u64 = 1 << 16;

/// Which Kafka, and how it is used. Group and member are named where they are for every engine.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Options of --engine ledger")]
pub(crate) struct LedgerArgs {
    /// Elect on the Kafka at these hosts and ports, with commas between [env: KAFKA_BROKERS].
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) brokers: Option<String>,
    /// The topic, which nothing else should be in; mandate-GROUP unless told otherwise. It is made if there is none.
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// How many partitions the topic has. Default: what it has; of a new one as many as roles, and 16 at most.
    #[arg(long, value_name = "N")]
    partitions: Option<NonZeroU32>,
    /// How many roles the group has: the same for all its members.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    roles: Option<u32>,
    /// After this long without a sign of life a member is replaced. Default: 6s, the shortest that a broker grants
    /// whose group.min.session.timeout.ms nobody has set.
    #[arg(long, value_parser = positive_duration, value_name = "TIME")]
    session: Option<Duration>,
    /// For a broker with group.min.session.timeout.ms=1000 or less: sessions of 1s.
    #[arg(long, conflicts_with = "session")]
    tuned: bool,
    /// Whether a role may have two leaders for a while when it changes hands.
    #[arg(long, value_enum, default_value_t)]
    mode: ModeName,
    /// How partitions are divided.
    #[arg(long, value_enum, default_value_t)]
    assignor: AssignorName,
    /// Which group protocol the broker speaks with its members.
    #[arg(long, value_enum, default_value_t)]
    protocol: ProtocolName,
    /// A name that survives restarts of this process (group.instance.id): no other member may have it.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// A setting of librdkafka, such as security.protocol=SASL_SSL; may be given several times.
    #[arg(short = 'X', long = "setting", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
    /// A file of such settings, one a line: where passwords belong.
    #[arg(long, value_name = "FILE")]
    settings_file: Option<PathBuf>,
}

/// What "leader" means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModeName {
    /// At most one leader at any instant, with a term that rises.
    #[default]
    Exclusive,
    /// At least one leader; several for a while when a role changes hands.
    NonExclusive,
}

/// How partitions are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AssignorName {
    /// Evenly, and moving no more than needed: who keeps a partition leads on.
    #[default]
    CooperativeSticky,
    /// Evenly, and anew at every change: everyone gives everything back first.
    RoundRobin,
}

/// Which group protocol is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProtocolName {
    /// The one that every broker speaks, and that exclusive mode rests on.
    #[default]
    Classic,
    /// The one of Kafka 4 (KIP-848); for non-exclusive mode. The broker sets session and heartbeat.
    Consumer,
}

/// A setting of librdkafka. Not shown whole: it may be a password.
#[derive(Clone)]
pub(crate) struct Setting {
    key: String,
    value: String,
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=...", self.key)
    }
}

impl FromStr for Setting {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(Setting { key: key.trim().to_owned(), value: value.trim().to_owned() })
            }
            _ => Err("write KEY=VALUE"),
        }
    }
}

impl LedgerArgs {
    /// The member's setup, in that group. Without a number, one is drawn.
    pub(crate) fn resolve(
        &self,
        group: &str,
        member: Option<MemberId>,
    ) -> anyhow::Result<LedgerConfig> {
        let brokers = self.brokers.clone().or_else(|| std::env::var(BROKERS).ok());
        let brokers = brokers.filter(|brokers| !brokers.is_empty()).with_context(|| {
            format!("say where Kafka is: --brokers HOST:PORT, or {BROKERS} in the environment")
        })?;
        let mut settings = match &self.settings_file {
            Some(file) => read_settings(file)?,
            None => BTreeMap::new(),
        };
        settings.extend(self.settings.iter().cloned().map(|one| (one.key, one.value)));
        Ok(LedgerConfig {
            group: group.to_owned(),
            member,
            brokers,
            topic: self.topic.clone(),
            partitions: self.partitions,
            roles: self.roles.unwrap_or(1),
            session: self.session.unwrap_or(if self.tuned { TUNED } else { SESSION }),
            mode: self.mode,
            assignor: self.assignor,
            protocol: self.protocol,
            instance: self.instance.clone(),
            settings,
        })
    }
}

/// Settings of a file: lines of `KEY=VALUE`, as Kafka's own tools write them; `#` begins a comment line.
pub(crate) fn read_settings(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text = input::read_text(path, MAX_SETTINGS_BYTES)?;
    let mut settings = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if !line.is_empty() && !line.starts_with('#') {
            // What is wrong is not shown: it may be a password.
            let setting: Setting = line.parse().map_err(|error| {
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
        Ok(LedgerMember { me, roles, plan, group: self.group.clone(), topic: self.topic() })
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

    fn neli(&self, me: MemberId) -> Config {
        let mode = match self.mode {
            ModeName::Exclusive => Mode::Exclusive,
            ModeName::NonExclusive => Mode::NonExclusive,
        };
        Config::new(me, mode)
    }

    #[cfg(not(feature = "kafka"))]
    async fn open(&self, _me: MemberId) -> anyhow::Result<(Roles, Plan)> {
        anyhow::bail!("this program was built without Kafka: build it with the feature `kafka`")
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
    group: String,
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

    pub(crate) fn group(&self) -> &str {
        &self.group
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

    #[test]
    fn settings_are_keys_and_values_and_are_not_shown() {
        let setting: Setting = "sasl.password = a=b ".parse().unwrap();
        assert_eq!((setting.key.as_str(), setting.value.as_str()), ("sasl.password", "a=b"));
        assert!(!format!("{setting:?}").contains("a=b"));
        assert!("sasl.password".parse::<Setting>().is_err());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# a comment\n\nsasl.username=me\nsecret\n").unwrap();
        let error = read_settings(file.path()).unwrap_err().to_string();
        assert!(error.contains("line 4") && !error.contains("secret"), "{error}");
    }
}
