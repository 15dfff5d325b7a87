//! The tables of a configuration that say how a group elects: detection, election, moves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use mandate_proto::identity::MemberId;
use mandate_proto::nfd_l;
use mandate_proto::oracle::{Measure, Oracle, Preference};
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_proto::pole::member::{self, Config};
use mandate_proto::registers;
use mandate_runtime::Protocol;
use serde::Deserialize;

use super::read_text;

/// Heartbeats closer together than this are hardly anyone's wish.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Time between heartbeats on a database, unless told otherwise.
const DEFAULT_ROUND: Duration = Duration::from_secs(1);

/// An address is a line.
const MAX_URL_BYTES: u64 = 4096;

/// All of them.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) detection: Detection,
    pub(super) election: Election,
    pub(super) moves: Option<Moves>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Detection {
    interval: String,
    within: String,
    mistake_every: Option<String>,
    mistake_lasts: Option<String>,
    min_interval: Option<String>,
}

impl Default for Detection {
    fn default() -> Self {
        Detection {
            interval: "330ms".into(),
            within: "1s".into(),
            mistake_every: None,
            mistake_lasts: None,
            min_interval: None,
        }
    }
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Election {
    guarantee: Option<String>,
    lease: Option<String>,
    drift_per_mille: Option<u16>,
    timeout: Option<String>,
    oracle: Option<String>,
    preference: Option<toml::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Moves {
    every: Option<String>,
    threshold: Option<f64>,
    tenure: Option<String>,
    #[serde(default)]
    shadow: bool,
}

/// Where members meet that elect on a database.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Database {
    url: Option<String>,
    url_file: Option<PathBuf>,
    round: Option<String>,
}

impl Database {
    /// Which one. A file with the line is beside the configuration unless its path is absolute.
    #[cfg(feature = "sql")]
    pub(super) fn address(&self, directory: &Path) -> anyhow::Result<mandate_sql::Address> {
        use mandate_sql::Address;

        let text = match (&self.url, &self.url_file) {
            (Some(url), None) => url.clone(),
            (None, Some(file)) => read_text(&directory.join(file), MAX_URL_BYTES)?,
            _ => anyhow::bail!("[database] needs url or url_file, not both"),
        };
        let address: Address = text.trim().parse().context("[database] url")?;
        Ok(match address {
            #[cfg(feature = "sqlite")]
            Address::Sqlite(path) => Address::Sqlite(directory.join(path)),
            address => address,
        })
    }
}

impl Election {
    /// Whether anything of it is said.
    pub(super) fn is_there(&self) -> bool {
        *self != Election::default()
    }

    /// How a member elects on a database.
    pub(super) fn on_database(
        &self,
        me: MemberId,
        database: &Database,
    ) -> anyhow::Result<registers::Config> {
        for (name, is_there) in
            [("lease", self.lease.is_some()), ("timeout", self.timeout.is_some())]
        {
            anyhow::ensure!(
                !is_there,
                "[election] {name} has no meaning with engine = \"sql\": [database] round decides it"
            );
        }
        let round = time("[database] round", &database.round)?.unwrap_or(DEFAULT_ROUND);
        let guarantee = match self.guarantee.as_deref() {
            None | Some("leased") => registers::SqlGuarantee::Leased,
            Some("fenced") => registers::SqlGuarantee::Fenced,
            Some(other) => anyhow::bail!(
                "[election] guarantee is `{other}`, and must be leased or fenced with engine = \"sql\""
            ),
        };
        let mut config = registers::Config::new(me, round).context("[database] round")?;
        config = config.with_guarantee(guarantee);
        if let Some(allowance) = self.drift_per_mille {
            config =
                config.with_allowance(allowance.into()).context("[election] drift_per_mille")?;
        }
        if let Some(oracle) = &self.oracle {
            let oracle: Oracle = oracle.parse().context("[election] oracle")?;
            measurable(&oracle)?;
            config = config.with_oracle(oracle);
        }
        Ok(config.with_preference(preference(self.preference.as_ref())?))
    }
}

/// Refuses what members on a database cannot measure: they exchange no messages, so there are no round trips, and the
/// row does not say whose turn it is.
fn measurable(oracle: &Oracle) -> anyhow::Result<()> {
    for term in oracle.terms() {
        let name = match term.measure {
            Measure::Latency | Measure::Consensus | Measure::Worst | Measure::Rotating => {
                term.measure.name()
            }
            Measure::History
            | Measure::Requests
            | Measure::Preference
            | Measure::Constant
            | Measure::Application => continue,
        };
        anyhow::bail!(
            "[election] oracle names `{name}`, which has no meaning with engine = \"sql\": members on a database do not \
             measure it. Use history, requests, application, preference or constant"
        );
    }
    Ok(())
}

/// How often and how long a leader may be wrongly suspected.
struct Mistakes {
    every: Duration,
    lasts: Duration,
    min_interval: Duration,
}

impl Tables {
    /// What they say, for member `me`.
    pub(super) fn protocol(
        &self,
        me: MemberId,
        peers: impl Iterator<Item = MemberId>,
    ) -> anyhow::Result<Protocol> {
        match self.election.guarantee.as_deref().unwrap_or("leased") {
            "overlap" => self.overlap(me, peers),
            "leased" | "fenced" => Ok(Protocol::Pole(self.scored(me, peers)?)),
            other => anyhow::bail!(
                "[election] guarantee is `{other}`, and must be leased, fenced or overlap"
            ),
        }
    }

    fn scored(
        &self,
        me: MemberId,
        peers: impl Iterator<Item = MemberId>,
    ) -> anyhow::Result<Config> {
        let (interval, within) = self.detection.times()?;
        let mut config = Config::new(me, peers, interval, within)?;
        let election = &self.election;
        let lease = time("[election] lease", &election.lease)?.unwrap_or(within);
        let guarantee = match election.guarantee.as_deref() {
            Some("fenced") => PeerGuarantee::Fenced,
            _ => {
                let allowance_per_mille = election.drift_per_mille.unwrap_or(10);
                PeerGuarantee::Leased { lease, allowance_per_mille }
            }
        };
        config = config.with_guarantee(guarantee)?;
        if let Some(timeout) = time("[election] timeout", &election.timeout)? {
            config = config.with_timeout(timeout)?;
        }
        if let Some(oracle) = &election.oracle {
            let oracle: Oracle = oracle.parse().context("[election] oracle")?;
            config = config.with_oracle(oracle);
        }
        config = config.with_preference(preference(election.preference.as_ref())?);
        if let Some(Mistakes { every, lasts, min_interval }) = self.detection.mistakes(within)? {
            config = config.with_mistakes(every, lasts, min_interval).context("[detection]")?;
        }
        if let Some(table) = &self.moves {
            config = config.with_moves(table.resolved()?)?;
        }
        Ok(config)
    }

    fn overlap(
        &self,
        me: MemberId,
        peers: impl Iterator<Item = MemberId>,
    ) -> anyhow::Result<Protocol> {
        let election = &self.election;
        let meaningless = [
            ("[election] lease", election.lease.is_some()),
            ("[election] drift_per_mille", election.drift_per_mille.is_some()),
            ("[election] timeout", election.timeout.is_some()),
            ("[election] oracle", election.oracle.is_some()),
            ("[moves]", self.moves.is_some()),
        ];
        for (name, is_there) in meaningless {
            anyhow::ensure!(
                !is_there,
                "{name} has no meaning with guarantee = \"overlap\": take it out, or choose leased or fenced"
            );
        }
        let priority = match preference(election.preference.as_ref())? {
            Preference::Rank(rank) => u8::try_from(rank).ok(),
            Preference::Never => None,
        };
        let priority = priority
            .context("[election] preference must be from 0 to 255 with guarantee = \"overlap\"")?;
        let (interval, within) = self.detection.times()?;
        let mut config = nfd_l::Config::new(me, interval, within)?.with_priority(priority);
        if let Some(Mistakes { every, lasts, min_interval }) = self.detection.mistakes(within)? {
            config = config.with_mistakes(every, lasts, min_interval).context("[detection]")?;
        }
        let mut members: Vec<_> = peers.chain([me]).collect();
        members.sort_unstable();
        Ok(Protocol::NfdL { config, members })
    }
}

impl Detection {
    fn times(&self) -> anyhow::Result<(Duration, Duration)> {
        let interval = duration("[detection] interval", &self.interval)?;
        Ok((interval, duration("[detection] within", &self.within)?))
    }

    fn mistakes(&self, within: Duration) -> anyhow::Result<Option<Mistakes>> {
        let every = time("[detection] mistake_every", &self.mistake_every)?;
        let lasts = time("[detection] mistake_lasts", &self.mistake_lasts)?;
        let min_interval = time("[detection] min_interval", &self.min_interval)?;
        let Some(every) = every else {
            for (name, is_there) in
                [("mistake_lasts", lasts.is_some()), ("min_interval", min_interval.is_some())]
            {
                anyhow::ensure!(!is_there, "[detection] {name} needs mistake_every beside it");
            }
            return Ok(None);
        };
        Ok(Some(Mistakes {
            every,
            lasts: lasts.unwrap_or(within),
            min_interval: min_interval.unwrap_or(MIN_INTERVAL),
        }))
    }
}

impl Moves {
    fn resolved(&self) -> anyhow::Result<member::Moves> {
        let defaults = member::Moves::default();
        Ok(member::Moves {
            every: time("[moves] every", &self.every)?.unwrap_or(defaults.every),
            threshold: self.threshold.unwrap_or(defaults.threshold),
            tenure: time("[moves] tenure", &self.tenure)?.unwrap_or(defaults.tenure),
            shadow: self.shadow,
        })
    }
}

fn preference(value: Option<&toml::Value>) -> anyhow::Result<Preference> {
    match value {
        None => Ok(Preference::default()),
        Some(toml::Value::Integer(rank)) => {
            Ok(Preference::Rank(i32::try_from(*rank).context("[election] preference")?))
        }
        Some(toml::Value::String(word)) if word == "never" => Ok(Preference::Never),
        Some(other) => anyhow::bail!(
            "[election] preference is {other}, and must be a whole number or \"never\""
        ),
    }
}

fn time(name: &str, text: &Option<String>) -> anyhow::Result<Option<Duration>> {
    text.as_deref().map(|text| duration(name, text)).transpose()
}

fn duration(name: &str, text: &str) -> anyhow::Result<Duration> {
    humantime::parse_duration(text)
        .with_context(|| format!("{name} is `{text}`: write a duration such as 330ms or 1s"))
}
