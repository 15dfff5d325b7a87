//! Flags by which a process becomes a member of a group on Kafka, or finds one to look at.

use std::collections::BTreeMap;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use mandate_proto::identity::MemberId;

use mandate::kafka::{Assignor, Builder, GroupProtocol, Mode, SESSION, TUNED, read_settings};

use crate::args::positive_duration;

/// Where clients of Kafka look for brokers that nobody has named.
const BROKERS: &str = "KAFKA_BROKERS";

/// Given to each option by itself: a heading for "the next ones" would also be that of options of other structures.
const HEADING: &str = "On a ledger";

/// Where Kafka is. Group and member are named where they are for every engine.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ReachArgs {
    /// The Kafka at these hosts and ports, with commas between [env for `run`: KAFKA_BROKERS].
    #[arg(help_heading = HEADING, long, value_name = "HOST:PORT")]
    pub brokers: Option<String>,
    /// The topic, which nothing else should be in; mandate-GROUP unless told otherwise.
    #[arg(help_heading = HEADING, long, value_name = "NAME")]
    pub(super) topic: Option<String>,
    /// A setting of librdkafka, such as security.protocol=SASL_SSL; may be given several times.
    #[arg(help_heading = HEADING, short = 'X', long = "setting", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
    /// A file of such settings, one a line: where passwords belong.
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    settings_file: Option<PathBuf>,
}

impl ReachArgs {
    /// The settings of the file, and those of flags before them.
    pub(super) fn settings(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut settings = match &self.settings_file {
            Some(file) => read_settings(file)?,
            None => BTreeMap::new(),
        };
        settings.extend(self.settings.iter().cloned().map(|one| (one.key, one.value)));
        Ok(settings)
    }
}

/// A member on Kafka, and how it uses it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LedgerArgs {
    #[command(flatten)]
    pub reach: ReachArgs,
    /// How many partitions the topic has. Default: what it has; a new one is made with as many as there are roles, and 16
    /// at most.
    #[arg(help_heading = HEADING, long, value_name = "N")]
    partitions: Option<NonZeroU32>,
    /// How many roles the group has: the same for all its members.
    #[arg(help_heading = HEADING, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    roles: u32,
    /// After this long without a sign of life a member is replaced. Default: 6s, the shortest that a broker grants
    /// whose group.min.session.timeout.ms nobody has set.
    #[arg(help_heading = HEADING, long, value_parser = positive_duration, value_name = "TIME")]
    session: Option<Duration>,
    /// Sessions of 1s, for a broker whose group.min.session.timeout.ms is at most 1000.
    #[arg(help_heading = HEADING, long, conflicts_with = "session")]
    tuned: bool,
    /// Whether a role may have two leaders for a while when it changes hands.
    #[arg(help_heading = HEADING, long, value_enum, default_value_t)]
    mode: ModeName,
    /// How partitions are divided.
    #[arg(help_heading = HEADING, long, value_enum, default_value_t)]
    assignor: AssignorName,
    /// Which group protocol is spoken with the broker.
    #[arg(help_heading = HEADING, long, value_enum, default_value_t)]
    protocol: ProtocolName,
    /// A name that survives restarts of this process (group.instance.id): no other member may have it.
    #[arg(help_heading = HEADING, long, value_name = "NAME")]
    instance: Option<String>,
    /// For how long after the last renewal a member leads. A longer one survives more trouble of the brokers, and is waited
    /// for after a crash.
    #[arg(help_heading = HEADING, long, value_parser = positive_duration, value_name = "TIME")]
    threshold: Option<Duration>,
    /// Copies of a topic that is made. Default: as many as there are brokers, and 3 at most.
    #[arg(help_heading = HEADING, long, value_name = "N")]
    replicas: Option<NonZeroU16>,
}

/// For commands that look at a group and do not join it.
pub(super) fn to_look_at(reach: &ReachArgs, group: &str) -> anyhow::Result<Builder> {
    LedgerArgs { reach: reach.clone(), roles: 1, ..LedgerArgs::default() }.resolve(group, None)
}

/// What "leader" means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeName {
    /// At most one leader at any instant, with a term that rises.
    #[default]
    Exclusive,
    /// At least one leader; several for a while when a role changes hands.
    NonExclusive,
}

/// How partitions are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AssignorName {
    /// Evenly, and moving no more than needed: who keeps a partition leads on.
    #[default]
    CooperativeSticky,
    /// Evenly, and anew at every change: everyone gives everything back first.
    RoundRobin,
}

/// Which group protocol is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ProtocolName {
    /// The consumer protocol where the broker has it with sessions no longer than --session, otherwise the classic one.
    #[default]
    Auto,
    /// The one that every broker speaks. This member says how long a session lasts.
    Classic,
    /// The one of Kafka 4 (KIP-848): nobody waits for anyone to join. The broker sets session and heartbeat.
    Consumer,
}

/// A setting of librdkafka. Not shown whole: it may be a password.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) value: String,
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
    pub fn resolve(&self, group: &str, member: Option<MemberId>) -> anyhow::Result<Builder> {
        let brokers = self.reach.brokers.clone().or_else(|| std::env::var(BROKERS).ok());
        let brokers = brokers.filter(|brokers| !brokers.is_empty()).with_context(|| {
            format!("say where Kafka is: --brokers HOST:PORT, or {BROKERS} in the environment")
        })?;
        let mut builder = Builder::new(&brokers, group).roles(self.roles);
        builder.member = member;
        builder.topic = self.reach.topic.clone();
        builder.partitions = self.partitions;
        builder.session = self.session.unwrap_or(if self.tuned { TUNED } else { SESSION });
        builder.mode = self.mode.into();
        builder.assignor = self.assignor.into();
        builder.protocol = self.protocol.into();
        builder.instance = self.instance.clone();
        builder.settings = self.reach.settings()?;
        builder.tuning.threshold = self.threshold;
        builder.tuning.replicas = self.replicas;
        Ok(builder)
    }
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Exclusive => Mode::Exclusive,
            ModeName::NonExclusive => Mode::NonExclusive,
        }
    }
}

impl From<AssignorName> for Assignor {
    fn from(name: AssignorName) -> Self {
        match name {
            AssignorName::CooperativeSticky => Assignor::CooperativeSticky,
            AssignorName::RoundRobin => Assignor::RoundRobin,
        }
    }
}

impl From<ProtocolName> for GroupProtocol {
    fn from(name: ProtocolName) -> Self {
        match name {
            ProtocolName::Auto => GroupProtocol::Auto,
            ProtocolName::Classic => GroupProtocol::Classic,
            ProtocolName::Consumer => GroupProtocol::Consumer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
