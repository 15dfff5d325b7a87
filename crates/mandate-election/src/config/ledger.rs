//! The table of a configuration that makes a daemon a member of a group on Kafka.

use std::collections::BTreeMap;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use mandate_proto::identity::MemberId;
use serde::Deserialize;

use super::read_text;

/// What a broker grants that nobody has tuned.
pub const SESSION: Duration = Duration::from_secs(6);

/// A session for brokers that were tuned for short ones.
pub const TUNED: Duration = Duration::from_secs(1);

/// A file of settings is a page or two.
const MAX_SETTINGS_BYTES: u64 = 1 << 16;

/// Settings of a file: lines of `KEY=VALUE`, as Kafka's own tools write them; `#` begins a comment line.
pub(crate) fn read_settings(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text = read_text(path, MAX_SETTINGS_BYTES)?;
    let mut settings = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // What is wrong is not shown: it may be a password.
        let (key, value) =
            line.split_once('=').filter(|(key, _)| !key.trim().is_empty()).with_context(|| {
                format!("line {number} of {} is no setting: write KEY=VALUE", path.display())
            })?;
        settings.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    Ok(settings)
}

/// What "leader" means.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeName {
    #[default]
    Exclusive,
    NonExclusive,
}

/// How the partitions of a group are divided among its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Assignor {
    /// Evenly, and moving no more than needed: who keeps a partition leads on.
    #[default]
    CooperativeSticky,
    /// Evenly, and anew at every change: everyone gives everything back first.
    RoundRobin,
}

/// Which group protocol is spoken with the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GroupProtocol {
    /// The consumer protocol where the broker has it with sessions no longer than the one asked for, otherwise the classic one.
    #[default]
    Auto,
    /// The one that every broker speaks. The member says how long a session lasts.
    Classic,
    /// The one of Kafka 4 (KIP-848): nobody waits for anyone to join. The broker sets session and heartbeat.
    Consumer,
}

/// What stands in `[ledger]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LedgerTable {
    brokers: String,
    topic: Option<String>,
    partitions: Option<NonZeroU32>,
    roles: Option<NonZeroU32>,
    session: Option<String>,
    #[serde(default)]
    tuned: bool,
    #[serde(default)]
    mode: ModeName,
    #[serde(default)]
    assignor: Assignor,
    #[serde(default)]
    protocol: GroupProtocol,
    instance: Option<String>,
    threshold: Option<String>,
    drain: Option<String>,
    rest: Option<String>,
    drift_per_mille: Option<u32>,
    replicas: Option<NonZeroU16>,
    settings_file: Option<PathBuf>,
    /// Of librdkafka.
    #[serde(default)]
    settings: BTreeMap<String, String>,
}

impl LedgerTable {
    /// How the member of that group is set up. A file of settings is beside the configuration unless its path is
    /// absolute.
    #[cfg(feature = "ledger")]
    pub(super) fn resolve(
        self,
        group: &str,
        member: Option<MemberId>,
        directory: &Path,
    ) -> anyhow::Result<crate::kafka::Builder> {
        use crate::kafka::{Builder, Tuning};
        use mandate_proto::neli::Mode;

        let mut settings = match &self.settings_file {
            Some(file) => read_settings(&directory.join(file))?,
            None => BTreeMap::new(),
        };
        settings.extend(self.settings);
        let session = match (&self.session, self.tuned) {
            (Some(_), true) => anyhow::bail!("[ledger] needs session or tuned, not both"),
            (Some(text), false) => duration("session", text)?,
            (None, true) => TUNED,
            (None, false) => SESSION,
        };
        let time = |name, text: &Option<String>| {
            text.as_deref().map(|text| duration(name, text)).transpose()
        };
        let tuning = Tuning {
            threshold: time("threshold", &self.threshold)?,
            drain: time("drain", &self.drain)?,
            rest: time("rest", &self.rest)?,
            drift_per_mille: self.drift_per_mille,
            replicas: self.replicas,
        };
        Ok(Builder {
            member,
            topic: self.topic,
            partitions: self.partitions,
            roles: self.roles.map_or(1, NonZeroU32::get),
            session,
            mode: match self.mode {
                ModeName::Exclusive => Mode::Exclusive,
                ModeName::NonExclusive => Mode::NonExclusive,
            },
            assignor: self.assignor,
            protocol: self.protocol,
            instance: self.instance,
            settings,
            tuning,
            ..Builder::new(&self.brokers, group)
        })
    }
}

fn duration(name: &str, text: &str) -> anyhow::Result<Duration> {
    let time = humantime::parse_duration(text)
        .with_context(|| format!("[ledger] {name} is `{text}`: write a duration such as 6s"))?;
    anyhow::ensure!(!time.is_zero(), "[ledger] {name} must be longer than zero");
    Ok(time)
}

#[cfg(all(test, feature = "ledger"))]
mod tests {
    use super::*;

    #[test]
    fn times_and_replicas_can_be_told() {
        let text = "brokers = \"b:9092\"\nthreshold = \"3s\"\ndrain = \"2s\"\nrest = \"9s\"\n\
                    drift_per_mille = 20\nreplicas = 3\nroles = 8";
        let table: LedgerTable = toml::from_str(text).unwrap();
        let config = table.resolve("orders", None, Path::new(".")).unwrap();
        let seconds = Duration::from_secs;
        assert_eq!(config.tuning.threshold, Some(seconds(3)));
        assert_eq!((config.tuning.drain, config.tuning.rest), (Some(seconds(2)), Some(seconds(9))));
        assert_eq!(config.tuning.replicas.map(NonZeroU16::get), Some(3));
        let grants = mandate_proto::neli::Grants {
            partitions: NonZeroU32::MIN,
            session: seconds(6),
            heartbeat: seconds(1),
            barrier: seconds(12),
            fenced: true,
            renews_through_joins: false,
            delivery: mandate_proto::neli::RecordDelivery::Anyone,
        };
        let plan = config.protocol_config(MemberId::new(1)).resolve(grants).unwrap();
        assert_eq!((plan.threshold(), plan.drain()), (seconds(3), seconds(2)));
        assert_eq!((plan.allowance_per_mille(), plan.agreement().roles), (20, 8));
        let wrong: LedgerTable = toml::from_str("brokers = \"b:9092\"\ndrain = \"soon\"").unwrap();
        let error = wrong.resolve("orders", None, Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("[ledger] drain is `soon`"), "{error}");
    }
}
