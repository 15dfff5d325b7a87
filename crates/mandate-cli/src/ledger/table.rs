//! The table of a configuration that makes a daemon a member of a group on Kafka.

use std::collections::BTreeMap;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use mandate_proto::identity::MemberId;
use serde::Deserialize;

use super::args::{SESSION, TUNED};
use super::{AssignorName, LedgerConfig, ModeName, ProtocolName, Tuning, read_settings};

/// What stands in `[ledger]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerTable {
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
    assignor: AssignorName,
    #[serde(default)]
    protocol: ProtocolName,
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
    pub(crate) fn resolve(
        self,
        group: &str,
        member: Option<MemberId>,
        directory: &Path,
    ) -> anyhow::Result<LedgerConfig> {
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
        Ok(LedgerConfig {
            group: group.to_owned(),
            member,
            brokers: self.brokers,
            topic: self.topic,
            partitions: self.partitions,
            roles: self.roles.map_or(1, NonZeroU32::get),
            session,
            mode: self.mode,
            assignor: self.assignor,
            protocol: self.protocol,
            instance: self.instance,
            settings,
            tuning,
        })
    }
}

fn duration(name: &str, text: &str) -> anyhow::Result<Duration> {
    let time = humantime::parse_duration(text)
        .with_context(|| format!("[ledger] {name} is `{text}`: write a duration such as 6s"))?;
    anyhow::ensure!(!time.is_zero(), "[ledger] {name} must be longer than zero");
    Ok(time)
}

#[cfg(test)]
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
            delivery: mandate_proto::neli::Delivery::Anyone,
        };
        let plan = config.neli(MemberId::new(1)).resolve(grants).unwrap();
        assert_eq!((plan.threshold(), plan.drain()), (seconds(3), seconds(2)));
        assert_eq!((plan.allowance_per_mille(), plan.agreement().roles), (20, 8));
        let wrong: LedgerTable = toml::from_str("brokers = \"b:9092\"\ndrain = \"soon\"").unwrap();
        let error = wrong.resolve("orders", None, Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("[ledger] drain is `soon`"), "{error}");
    }
}
