//! The file that sets a member up.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use mandate_proto::identity::MemberId;
use mandate_proto::oracle::{Oracle, Preference};
use mandate_proto::pole::installation::Guarantee;
use mandate_proto::pole::member::{Config, Moves};
use serde::Deserialize;

use crate::input;

/// A configuration is a page or two.
const MAX_BYTES: u64 = 1 << 20;

/// What `mandate node --help` shows: a whole file, with what each line means.
pub(crate) const EXAMPLE: &str = r#"A configuration file:

  group = "orders"             # the same for all members
  member = "p1"                # this one
  listen = "127.0.0.1:7101"    # for the other members; UDP and TCP
  state = "p1.state"           # what must not be forgotten; beside this file unless absolute
  api = "127.0.0.1:8101"       # for you and your programs; only loopback for now

  [peers]                      # all others
  p2 = "127.0.0.1:7102"
  p3 = "127.0.0.1:7103"

  [tls]                        # see `mandate certs`
  ca = "certs/ca.pem"
  certificate = "certs/p1.pem"
  key = "certs/p1.key"

  # Everything below may be left out.
  [detection]
  interval = "330ms"           # between heartbeats; see `mandate qos plan`
  within = "1s"                # a crash is noticed

  [election]
  guarantee = "leased"         # or "fenced"
  lease = "1s"                 # default: as long as `within`
  drift_per_mille = 10         # how much of the lease is allowed for clocks that drift
  timeout = "500ms"            # longer than a round trip; default: `within`
  oracle = "latency/10ms, history"   # default: "constant"; see `mandate oracle rank`
  preference = 1               # higher is better, default 0; "never" is never a candidate

  [moves]                      # let scores move a leader that is well; default: not
  every = "10s"
  threshold = 0.1
  tenure = "60s"
  shadow = false               # true: only say what would be done"#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    group: String,
    member: String,
    listen: SocketAddr,
    state: PathBuf,
    api: SocketAddr,
    #[serde(default)]
    peers: BTreeMap<String, String>,
    tls: Tls,
    #[serde(default)]
    detection: Detection,
    #[serde(default)]
    election: Election,
    moves: Option<MovesTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Detection {
    interval: String,
    within: String,
}

impl Default for Detection {
    fn default() -> Self {
        Detection { interval: "330ms".into(), within: "1s".into() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Election {
    guarantee: Option<String>,
    lease: Option<String>,
    drift_per_mille: Option<u16>,
    timeout: Option<String>,
    oracle: Option<String>,
    preference: Option<toml::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MovesTable {
    every: Option<String>,
    threshold: Option<f64>,
    tenure: Option<String>,
    #[serde(default)]
    shadow: bool,
}

/// A member's setup, resolved and checked.
#[derive(Debug)]
pub(crate) struct NodeConfig {
    pub(crate) group: String,
    pub(crate) listen: SocketAddr,
    pub(crate) state: PathBuf,
    pub(crate) api: SocketAddr,
    pub(crate) peers: BTreeMap<MemberId, String>,
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) member: Config,
}

impl NodeConfig {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = input::read_text(path, MAX_BYTES)?;
        NodeConfig::parse(&text, path.parent().unwrap_or(Path::new("")))
            .with_context(|| format!("{} cannot be used", path.display()))
    }

    fn parse(text: &str, directory: &Path) -> anyhow::Result<Self> {
        let file: File = toml::from_str(text)?;
        anyhow::ensure!(
            file.api.ip().is_loopback(),
            "api is {}: only a loopback address is possible, such as 127.0.0.1:{}",
            file.api,
            file.api.port()
        );
        let me: MemberId = file.member.parse().context("member")?;
        let mut peers = BTreeMap::new();
        for (id, address) in &file.peers {
            let id: MemberId = id.parse().with_context(|| format!("[peers] {id}"))?;
            anyhow::ensure!(id != me, "[peers] names {me}, which is this member itself");
            let has_port =
                address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            anyhow::ensure!(has_port, "[peers] {id} is `{address}`: write host:port");
            peers.insert(id, address.clone());
        }
        let member = member(me, &peers, &file)?;
        let beside = |path: &Path| directory.join(path);
        Ok(NodeConfig {
            group: file.group,
            listen: file.listen,
            state: beside(&file.state),
            api: file.api,
            peers,
            ca: beside(&file.tls.ca),
            certificate: beside(&file.tls.certificate),
            key: beside(&file.tls.key),
            member,
        })
    }
}

fn member(me: MemberId, peers: &BTreeMap<MemberId, String>, file: &File) -> anyhow::Result<Config> {
    let interval = duration("[detection] interval", &file.detection.interval)?;
    let within = duration("[detection] within", &file.detection.within)?;
    let mut config = Config::new(me, peers.keys().copied(), interval, within)?;
    let election = &file.election;
    let lease = election.lease.as_deref().map(|text| duration("[election] lease", text));
    let lease = lease.transpose()?.unwrap_or(within);
    let guarantee = match election.guarantee.as_deref().unwrap_or("leased") {
        "leased" => {
            let allowance_per_mille = election.drift_per_mille.unwrap_or(10);
            Guarantee::Leased { lease, allowance_per_mille }
        }
        "fenced" => Guarantee::Fenced,
        other => anyhow::bail!("[election] guarantee is `{other}`, and must be leased or fenced"),
    };
    config = config.with_guarantee(guarantee)?;
    if let Some(timeout) = &election.timeout {
        config = config.with_timeout(duration("[election] timeout", timeout)?)?;
    }
    if let Some(oracle) = &election.oracle {
        let oracle: Oracle = oracle.parse().context("[election] oracle")?;
        config = config.with_oracle(oracle);
    }
    config = config.with_preference(preference(election.preference.as_ref())?);
    if let Some(table) = &file.moves {
        config = config.with_moves(moves(table)?)?;
    }
    Ok(config)
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

fn moves(table: &MovesTable) -> anyhow::Result<Moves> {
    let defaults = Moves::default();
    let time = |name, text: &Option<String>, default| {
        text.as_deref().map_or(Ok(default), |text| duration(name, text))
    };
    Ok(Moves {
        every: time("[moves] every", &table.every, defaults.every)?,
        threshold: table.threshold.unwrap_or(defaults.threshold),
        tenure: time("[moves] tenure", &table.tenure, defaults.tenure)?,
        shadow: table.shadow,
    })
}

fn duration(name: &str, text: &str) -> anyhow::Result<Duration> {
    humantime::parse_duration(text)
        .with_context(|| format!("{name} is `{text}`: write a duration such as 330ms or 1s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file of the help text itself.
    fn example() -> String {
        let lines = EXAMPLE.lines().skip(1);
        lines.map(|line| line.strip_prefix("  ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_example_of_the_help_can_be_used() {
        let config = NodeConfig::parse(&example(), Path::new("/etc/orders")).unwrap();
        assert_eq!(config.state, Path::new("/etc/orders/p1.state"));
        assert_eq!(config.member.members().len(), 3);
        assert!(config.member.moves().is_some());
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        let cases = [
            ("127.0.0.1:8101", "0.0.0.0:8101", "only a loopback address"),
            ("p2 = \"127.0.0.1:7102\"", "p1 = \"x:1\"", "which is this member itself"),
            ("\"127.0.0.1:7102\"", "\"127.0.0.1\"", "write host:port"),
            ("\"330ms\"", "\"fast\"", "[detection] interval is `fast`"),
            ("\"330ms\"", "\"2s\"", "must be shorter than the detection time"),
            ("\"leased\"", "\"safe\"", "must be leased or fenced"),
            ("latency/10ms", "latency/10", "10ms"),
            ("preference = 1", "preference = 1.5", "a whole number or \"never\""),
            ("group =", "gruop =", "unknown field `gruop`"),
        ];
        for (from, to, expected) in cases {
            let text = example().replacen(from, to, 1);
            let error = NodeConfig::parse(&text, Path::new("")).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
