//! The file that sets a member up.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use mandate_peer::links::IdentityFiles;
use mandate_proto::identity::MemberId;
use mandate_runtime::Protocol;
use serde::Deserialize;

use super::access::{AccessFiles, AccessTable};
use super::tables::{self, Tables};
use crate::input;
use crate::ledger::{LedgerConfig, LedgerTable};
use crate::sql::SqlConfig;

/// A configuration is a page or two.
const MAX_BYTES: u64 = 1 << 20;

/// What `mandate node --help` shows: a whole file, with what each line means.
pub(crate) const EXAMPLE: &str = r#"A configuration file:

  group = "orders"             # the same for all members
  member = "p1"                # this one
  listen = "127.0.0.1:7101"    # for the other members; UDP and TCP
  state = "p1.state"           # what must not be forgotten; beside this file unless absolute
  api = "127.0.0.1:8101"       # for you and your programs, and a page for your browser

  [peers]                      # all others
  p2 = "127.0.0.1:7102"
  p3 = "127.0.0.1:7103"

  [tls]                        # see `mandate certs`
  ca = "certs/ca.pem"
  certificate = "certs/p1.pem"
  key = "certs/p1.key"

  # Everything below may be left out.
  [api_access]                 # needed where `api` is no loopback address: a token, or TLS, or both
  token_file = "api.token"     # 16 characters or more, in a file that only you can read
  certificate = "api.pem"      # what browsers and `--ca` trust
  key = "api.key"

  [detection]
  interval = "330ms"           # between heartbeats; see `mandate qos plan`
  within = "1s"                # a crash is noticed
  mistake_every = "1h"         # with this, links are measured and the interval is kept such that a leader is
  mistake_lasts = "1s"         #   wrongly suspected at most so often and so long; without, it stays as it is
  min_interval = "10ms"        # never closer together, whatever the link is like

  [election]
  guarantee = "leased"         # or "fenced", or "overlap" (nfd-l: lightest, no terms, no scores)
  lease = "1s"                 # default: as long as `within`
  drift_per_mille = 10         # how much of the lease is allowed for clocks that drift
  timeout = "500ms"            # longer than a round trip; default: `within`
  oracle = "latency/10ms, history"   # default: "constant"; see `mandate oracle rank`
  preference = 1               # higher is better, default 0; "never" is never a candidate

  [moves]                      # let scores move a leader that is well; default: not
  every = "10s"
  threshold = 0.1
  tenure = "60s"
  shadow = false               # true: only say what would be done

On a database instead, with nothing but `group` and `api` from above, and [election] without `lease` and `timeout`:

  engine = "sql"
  group = "orders"
  member = "p1"                # may be left out: a number is drawn
  api = "127.0.0.1:8101"

  [database]
  url = "postgres://mandate@db.example/orders"   # or url_file, where it holds a password
  round = "1s"                 # between heartbeats; a lease is a round and a quarter

On Kafka, where a group may have many roles, with nothing but `group` and `api` from above:

  engine = "ledger"
  group = "orders"             # a consumer group
  member = "p1"                # may be left out: a number is drawn
  api = "127.0.0.1:8101"

  [ledger]
  brokers = "kafka1.example:9092,kafka2.example:9092"
  # Everything below may be left out.
  roles = 10000                # the same for all members; default: 1
  topic = "mandate-orders"     # default: mandate- and the group; made if there is none
  partitions = 64              # default: what the topic has; of a new one as many as roles, and 16 at most
  session = "6s"               # a silent member is replaced after it; shorter needs group.min.session.timeout.ms
  mode = "exclusive"           # or "non-exclusive": two may lead for a while when a role changes hands
  assignor = "cooperative-sticky"   # or "round-robin"
  protocol = "classic"         # or "consumer" (KIP-848), for non-exclusive mode
  instance = "orders-1"        # a name that survives restarts (group.instance.id); each member its own
  settings_file = "kafka.properties"   # settings of librdkafka, one a line: passwords

  [ledger.settings]
  "security.protocol" = "ssl"
  "ssl.ca.location" = "/etc/ssl/kafka.pem""#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    engine: Option<String>,
    group: String,
    member: Option<String>,
    listen: Option<SocketAddr>,
    state: Option<PathBuf>,
    api: SocketAddr,
    #[serde(default)]
    api_access: AccessTable,
    #[serde(default)]
    peers: BTreeMap<String, String>,
    tls: Option<Tls>,
    detection: Option<tables::Detection>,
    #[serde(default)]
    election: tables::Election,
    moves: Option<tables::Moves>,
    database: Option<tables::Database>,
    ledger: Option<LedgerTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// A member's setup, resolved and checked.
#[derive(Debug)]
pub(crate) struct NodeConfig {
    pub(crate) group: String,
    pub(crate) api: SocketAddr,
    pub(crate) access: AccessFiles,
    pub(crate) engine: EngineConfig,
}

/// What elects.
#[derive(Debug)]
pub(crate) enum EngineConfig {
    Peer(Box<PeerConfig>),
    Sql(Box<SqlConfig>),
    Ledger(Box<LedgerConfig>),
}

/// A member of the peer engine.
#[derive(Debug)]
pub(crate) struct PeerConfig {
    pub(crate) group: String,
    pub(crate) listen: SocketAddr,
    pub(crate) state: PathBuf,
    pub(crate) peers: BTreeMap<MemberId, String>,
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) protocol: Protocol,
}

impl PeerConfig {
    /// Where certificates and key are.
    pub(crate) fn identity_files(&self) -> IdentityFiles {
        let (ca, chain, key) = (self.ca.clone(), self.certificate.clone(), self.key.clone());
        IdentityFiles { ca, chain, key }
    }
}

impl NodeConfig {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = input::read_text(path, MAX_BYTES)?;
        NodeConfig::parse(&text, path.parent().unwrap_or(Path::new("")))
            .with_context(|| format!("{} cannot be used", path.display()))
    }

    /// The same, of a member of the peer engine.
    pub(crate) fn read_peer(path: &Path) -> anyhow::Result<PeerConfig> {
        match NodeConfig::read(path)?.engine {
            EngineConfig::Peer(config) => Ok(*config),
            EngineConfig::Sql(_) | EngineConfig::Ledger(_) => {
                anyhow::bail!("{} is of another engine", path.display())
            }
        }
    }

    fn parse(text: &str, directory: &Path) -> anyhow::Result<Self> {
        let file: File = toml::from_str(text)?;
        let (group, api) = (file.group.clone(), file.api);
        let access = file.api_access.resolve(api, directory)?;
        let engine = match file.engine.as_deref().unwrap_or("peer") {
            "peer" => EngineConfig::Peer(Box::new(file.peer(directory)?)),
            "sql" => EngineConfig::Sql(Box::new(file.sql(directory)?)),
            "ledger" => EngineConfig::Ledger(Box::new(file.ledger(directory)?)),
            other => anyhow::bail!("engine is `{other}`, and must be peer, sql or ledger"),
        };
        Ok(NodeConfig { group, api, access, engine })
    }
}

impl File {
    fn peer(self, directory: &Path) -> anyhow::Result<PeerConfig> {
        anyhow::ensure!(self.database.is_none(), "[database] needs engine = \"sql\"");
        anyhow::ensure!(self.ledger.is_none(), "[ledger] needs engine = \"ledger\"");
        let me = self.member.context("member is missing: which one is this?")?;
        let me: MemberId = me.parse().context("member")?;
        let mut peers = BTreeMap::new();
        for (id, address) in &self.peers {
            let id: MemberId = id.parse().with_context(|| format!("[peers] {id}"))?;
            anyhow::ensure!(id != me, "[peers] names {me}, which is this member itself");
            let has_port =
                address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            anyhow::ensure!(has_port, "[peers] {id} is `{address}`: write host:port");
            peers.insert(id, address.clone());
        }
        let detection = self.detection.unwrap_or_default();
        let tables = Tables { detection, election: self.election, moves: self.moves };
        let protocol = tables.protocol(me, peers.keys().copied())?;
        let tls = self.tls.context("[tls] is missing; see `mandate certs`")?;
        let state =
            self.state.context("state is missing: a file for what must not be forgotten")?;
        let beside = |path: &Path| directory.join(path);
        Ok(PeerConfig {
            group: self.group,
            listen: self.listen.context("listen is missing: an address for the other members")?,
            state: beside(&state),
            peers,
            ca: beside(&tls.ca),
            certificate: beside(&tls.certificate),
            key: beside(&tls.key),
            protocol,
        })
    }

    fn sql(self, directory: &Path) -> anyhow::Result<SqlConfig> {
        self.refuse("sql", &[("[ledger]", self.ledger.is_some())])?;
        let member = self.member.map(|member| member.parse().context("member")).transpose()?;
        let database = self.database.context("[database] is missing: say at least its url")?;
        let address = database.address(directory)?;
        let config = self.election.on_database(member.unwrap_or(MemberId::new(0)), &database)?;
        Ok(SqlConfig { group: self.group, address, member, config })
    }

    fn ledger(self, directory: &Path) -> anyhow::Result<LedgerConfig> {
        let more =
            [("[database]", self.database.is_some()), ("[election]", self.election.is_there())];
        self.refuse("ledger", &more)?;
        let member = self.member.map(|member| member.parse().context("member")).transpose()?;
        let ledger = self.ledger.context("[ledger] is missing: say at least its brokers")?;
        ledger.resolve(&self.group, member, directory)
    }

    /// Refuses what is only for members that exchange messages, and more, if it is there.
    fn refuse(&self, engine: &str, more: &[(&str, bool)]) -> anyhow::Result<()> {
        let meaningless = [
            ("listen", self.listen.is_some()),
            ("state", self.state.is_some()),
            ("[peers]", !self.peers.is_empty()),
            ("[tls]", self.tls.is_some()),
            ("[detection]", self.detection.is_some()),
            ("[moves]", self.moves.is_some()),
        ];
        for (name, is_there) in meaningless.iter().chain(more) {
            anyhow::ensure!(
                !is_there,
                "{name} has no meaning with engine = \"{engine}\": take it out"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first file of the help text itself.
    fn example() -> String {
        let lines = EXAMPLE.lines().skip(1).take_while(|line| !line.starts_with("On a database"));
        lines.map(|line| line.strip_prefix("  ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_example_of_the_help_can_be_used() {
        let config = NodeConfig::parse(&example(), Path::new("/etc/orders")).unwrap();
        let EngineConfig::Peer(config) = config.engine else { panic!("no database is named") };
        assert_eq!(config.state, Path::new("/etc/orders/p1.state"));
        assert_eq!(config.protocol.members().len(), 3);
        let Protocol::Pole(member) = config.protocol else { panic!("leases are by score") };
        assert!(member.moves().is_some() && member.wanted().is_some());
    }

    /// The other one.
    fn on_database() -> String {
        part("On a database", "On Kafka")
    }

    /// What stands between two lines of the help text that begin so.
    fn part(from: &str, to: &str) -> String {
        let lines = EXAMPLE.lines().skip_while(|line| !line.starts_with(from)).skip(1);
        let lines = lines.take_while(|line| to.is_empty() || !line.starts_with(to));
        lines.map(|line| line.strip_prefix("  ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_member_on_a_ledger_needs_little_and_is_told_what_has_no_meaning() {
        let text = part("On Kafka", "").replacen("settings_file", "# settings_file", 1);
        let config = NodeConfig::parse(&text, Path::new("")).unwrap();
        let EngineConfig::Ledger(config) = config.engine else { panic!("a ledger is named") };
        assert_eq!((config.roles, config.partitions.unwrap().get()), (10_000, 64));
        assert_eq!(config.settings["security.protocol"], "ssl");
        for (from, to, expected) in [
            ("group =", "listen = \"127.0.0.1:1\"\ngroup =", "listen has no meaning"),
            (
                "[ledger]",
                "[election]\noracle = \"constant\"\n[ledger]",
                "[election] has no meaning",
            ),
            ("brokers =", "broker =", "unknown field `broker`"),
            ("roles = 10000", "roles = 0", "nonzero"),
            ("\"6s\"", "\"soon\"", "[ledger] session is `soon`"),
            ("session =", "tuned = true\nsession =", "session or tuned, not both"),
            ("\"exclusive\"", "\"sole\"", "exclusive"),
        ] {
            let text = text.replacen(from, to, 1);
            let error = format!("{:#}", NodeConfig::parse(&text, Path::new("")).unwrap_err());
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn a_member_on_a_database_needs_little_and_is_told_what_has_no_meaning() {
        let config = NodeConfig::parse(&on_database(), Path::new("")).unwrap();
        let EngineConfig::Sql(config) = config.engine else { panic!("a database is named") };
        assert_eq!(config.member, Some(MemberId::new(1)));
        assert_eq!(config.config.round().as_secs(), 1);
        for (from, to, expected) in [
            ("group =", "listen = \"127.0.0.1:1\"\ngroup =", "listen has no meaning"),
            ("\"sql\"", "\"etcd\"", "must be peer, sql or ledger"),
            ("url =", "url_file = \"u\"\nurl =", "url or url_file, not both"),
            ("\"postgres:", "\"oracle:", "must begin with"),
            ("\"1s\" ", "\"1ms\" ", "rounds must be at least"),
            ("round =", "rounds =", "unknown field"),
        ] {
            let text = on_database().replacen(from, to, 1);
            let error = format!("{:#}", NodeConfig::parse(&text, Path::new("")).unwrap_err());
            assert!(error.contains(expected), "{to}: {error}");
        }
        for (oracle, is_measured) in [
            ("latency/10ms", false),
            ("history, consensus", false),
            ("worst", false),
            ("rotating", false),
            ("history, requests, application, preference", true),
            ("constant", true),
        ] {
            let text = format!("{}\n[election]\noracle = \"{oracle}\"", on_database());
            let parsed = NodeConfig::parse(&text, Path::new(""));
            assert_eq!(parsed.is_ok(), is_measured, "{oracle}");
            if let Err(error) = parsed {
                let error = format!("{error:#}");
                let named = oracle.rsplit(", ").next().unwrap().split('/').next().unwrap();
                assert!(error.contains(&format!("oracle names `{named}`")), "{error}");
            }
        }
        let lease = format!("{}\n[election]\nlease = \"1s\"", on_database());
        let error = format!("{:#}", NodeConfig::parse(&lease, Path::new("")).unwrap_err());
        assert!(error.contains("[election] lease has no meaning"), "{error}");
    }

    #[test]
    fn an_api_that_others_can_reach_needs_a_token_or_tls() {
        let text = example().replacen("127.0.0.1:8101", "0.0.0.0:8101", 1);
        let access = |lines: &[&str]| {
            let without = |text: String, line: &&str| text.replacen(line, "", 1);
            let text = lines.iter().fold(text.clone(), without);
            NodeConfig::parse(&text, Path::new("")).map(drop)
        };
        let token = "token_file = \"api.token\"";
        let tls = ["certificate = \"api.pem\"", "key = \"api.key\""];
        assert!(access(&[]).is_ok() && access(&[token]).is_ok() && access(&tls).is_ok());
        let error = access(&[token, tls[0], tls[1]]).unwrap_err();
        assert!(format!("{error:#}").contains("needs [api_access] with a token_file"), "{error:#}");
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        let cases = [
            ("\nkey = \"api.key\"", "", "give both, or neither"),
            ("p2 = \"127.0.0.1:7102\"", "p1 = \"x:1\"", "which is this member itself"),
            ("\"127.0.0.1:7102\"", "\"127.0.0.1\"", "write host:port"),
            ("\"330ms\"", "\"fast\"", "[detection] interval is `fast`"),
            ("\"330ms\"", "\"2s\"", "must be shorter than the detection time"),
            ("\"leased\"", "\"safe\"", "must be leased, fenced or overlap"),
            (
                "\"leased\"",
                "\"overlap\"",
                "[election] lease has no meaning with guarantee = \"overlap\"",
            ),
            ("mistake_every = \"1h\"", "", "[detection] mistake_lasts needs mistake_every"),
            ("mistake_every = \"1h\"", "mistake_every = \"0s\"", "must be longer than zero"),
            ("\"10ms\"        #", "\"1s\"        #", "least interval"),
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
