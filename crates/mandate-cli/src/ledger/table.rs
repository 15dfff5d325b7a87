//! The table of a configuration that makes a daemon a member of a group on Kafka.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use mandate_proto::identity::MemberId;
use serde::Deserialize;

use super::args::{SESSION, TUNED};
use super::{AssignorName, LedgerConfig, ModeName, ProtocolName, read_settings};

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
            (Some(text), false) => duration(text)?,
            (None, true) => TUNED,
            (None, false) => SESSION,
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
        })
    }
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let session = humantime::parse_duration(text)
        .with_context(|| format!("[ledger] session is `{text}`: write a duration such as 6s"))?;
    anyhow::ensure!(!session.is_zero(), "[ledger] session must be longer than zero");
    Ok(session)
}
