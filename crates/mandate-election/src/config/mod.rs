//! The configuration file of a member: the one that the daemon `mandate node` reads, without what is the daemon's alone (`api`,
//! `[api_access]`, which are left to it).
//!
//! Every table is read whatever was built, so that a missing engine is named and not an unknown key.
#![cfg_attr(
    not(all(feature = "peer", feature = "sql", feature = "ledger")),
    allow(dead_code, unreachable_pub, unused_imports)
)]

use std::collections::BTreeMap;
use std::fs::File as OpenFile;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use mandate_proto::identity::MemberId;
use mandate_proto::value::Value;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::{ConfigError, Error};
#[cfg(feature = "ledger")]
use crate::kafka;
use crate::member::Member;
#[cfg(feature = "peer")]
use crate::peer;
#[cfg(feature = "sql")]
use crate::sql;

mod environment;
pub(crate) mod ledger;
mod tables;

use environment::Environment;
use ledger::LedgerTable;
use tables::Tables;

/// A configuration is a page or two.
const MAX_BYTES: u64 = 1 << 20;

/// A whole file for each engine, with what each line means: what `mandate node --help` shows.
pub const EXAMPLE: &str = r#"A configuration file. Values may take variables of the environment: ${NAME}, ${NAME:-otherwise}. MANDATE_MEMBER and
MANDATE_LISTEN take the place of `member` and `listen`: with them all members can share one file, which then names all in [peers].

  group = "orders"             # the same for all members
  member = "p1"                # this one
  listen = "127.0.0.1:7101"    # for the other members; UDP and TCP
  state = "p1.state"           # what must not be forgotten; beside this file unless absolute
  api = "127.0.0.1:8101"       # for you and your programs, and a page for your browser
  value = "10.0.0.7:8080"      # may be left out: shown with the leader wherever this member leads, up to 4 KiB
  protocol = 5                 # left out, but while a group may have to go back to an older release: speak nothing newer
  first_start = "auto"         # may be left out: without a state the member finds out by itself whether it is new, instead of --new

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
  value = "10.0.0.7:8080"      # may be left out: shown with the leader wherever this member leads

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
    value: Option<String>,
    protocol: Option<u32>,
    first_start: Option<String>,
    #[serde(rename = "api")]
    _api: Option<IgnoredAny>,
    #[serde(rename = "api_access")]
    _api_access: Option<IgnoredAny>,
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

/// A member that is set up and does not run yet, of the engine that its file names.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Builder {
    /// Of the peer engine.
    #[cfg(feature = "peer")]
    Peer(Box<peer::Builder>),
    /// On a database.
    #[cfg(feature = "sql")]
    Sql(Box<sql::Builder>),
    /// On Kafka.
    #[cfg(feature = "ledger")]
    Kafka(Box<kafka::Builder>),
}

impl Builder {
    /// Starts the member, with one attempt: whether another may succeed, [`Error::is_final`] says.
    pub async fn start(&self) -> Result<Member, Error> {
        match self {
            #[cfg(feature = "peer")]
            Builder::Peer(builder) => builder.start().await,
            #[cfg(feature = "sql")]
            Builder::Sql(builder) => builder.start().await,
            #[cfg(feature = "ledger")]
            Builder::Kafka(builder) => builder.start().await,
        }
    }

    /// Publishes this with every term of this member, from its first moment on, instead of what the file says.
    #[must_use]
    pub fn with_value(self, value: Option<Value>) -> Self {
        match self {
            #[cfg(feature = "peer")]
            Builder::Peer(builder) => Builder::Peer(Box::new(builder.with_value(value))),
            #[cfg(feature = "sql")]
            Builder::Sql(builder) => Builder::Sql(Box::new(builder.with_value(value))),
            #[cfg(feature = "ledger")]
            Builder::Kafka(builder) => Builder::Kafka(Box::new(builder.with_value(value))),
        }
    }

    /// What is published with every term of this member.
    pub fn value(&self) -> Option<&Value> {
        match self {
            #[cfg(feature = "peer")]
            Builder::Peer(builder) => builder.value(),
            #[cfg(feature = "sql")]
            Builder::Sql(builder) => builder.value(),
            #[cfg(feature = "ledger")]
            Builder::Kafka(builder) => builder.value(),
        }
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        match self {
            #[cfg(feature = "peer")]
            Builder::Peer(builder) => builder.group(),
            #[cfg(feature = "sql")]
            Builder::Sql(builder) => &builder.group,
            #[cfg(feature = "ledger")]
            Builder::Kafka(builder) => &builder.group,
        }
    }
}

/// Reads the configuration of a member, of whatever engine.
pub fn from_file(path: impl AsRef<Path>) -> Result<Builder, Error> {
    let path = path.as_ref();
    let text = read_text(path, MAX_BYTES).map_err(ConfigError::new)?;
    parse(&text, path.parent().unwrap_or(Path::new(""))).map_err(|error| match error {
        Error::Config(error) => error.of(path).into(),
        error => error,
    })
}

/// The same for a text that was read already. Relative paths within are below `directory`.
pub fn parse(text: &str, directory: &Path) -> Result<Builder, Error> {
    parse_with(text, directory, &Environment::of_process())
}

/// Reads another part of the same text, with variables of the environment put in: what a program has in it for itself.
pub fn parse_part<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    Environment::of_process().read(text).map_err(invalid)
}

fn parse_with(text: &str, directory: &Path, environment: &Environment) -> Result<Builder, Error> {
    let file: File = environment.read(text).map_err(invalid)?;
    let file = file.placed(environment).map_err(invalid)?;
    match file.engine.as_deref().unwrap_or("peer") {
        "peer" => of_peers(file, directory),
        "sql" => on_database(file, directory),
        "ledger" => on_ledger(file, directory),
        other => {
            Err(invalid(anyhow::anyhow!("engine is `{other}`, and must be peer, sql or ledger")))
        }
    }
}

fn invalid(error: anyhow::Error) -> Error {
    ConfigError::new(error).into()
}

#[cfg(feature = "peer")]
fn of_peers(file: File, directory: &Path) -> Result<Builder, Error> {
    Ok(Builder::Peer(Box::new(file.peer(directory).map_err(invalid)?)))
}

#[cfg(not(feature = "peer"))]
fn of_peers(_: File, _: &Path) -> Result<Builder, Error> {
    Err(Error::NotBuilt { engine: "the peer engine", feature: "peer" })
}

#[cfg(feature = "sql")]
fn on_database(file: File, directory: &Path) -> Result<Builder, Error> {
    Ok(Builder::Sql(Box::new(file.sql(directory).map_err(invalid)?)))
}

#[cfg(not(feature = "sql"))]
fn on_database(_: File, _: &Path) -> Result<Builder, Error> {
    Err(Error::NotBuilt { engine: "databases", feature: "sqlite`, `postgres` or `mysql" })
}

#[cfg(feature = "ledger")]
fn on_ledger(file: File, directory: &Path) -> Result<Builder, Error> {
    Ok(Builder::Kafka(Box::new(file.ledger(directory).map_err(invalid)?)))
}

#[cfg(not(feature = "ledger"))]
fn on_ledger(_: File, _: &Path) -> Result<Builder, Error> {
    Err(Error::NotBuilt { engine: "Kafka", feature: "kafka" })
}

/// What a member starts from, unless a human says it.
#[cfg(feature = "peer")]
fn start(first_start: Option<&str>) -> anyhow::Result<mandate_runtime::Start> {
    use mandate_runtime::Start;
    match first_start {
        Some("auto") => Ok(Start::Auto),
        Some("manual") | None => Ok(Start::Stored),
        Some(other) => anyhow::bail!("first_start is `{other}`, and must be auto or manual"),
    }
}

/// What a file says is to be published.
fn published(text: Option<&str>) -> anyhow::Result<Option<Value>> {
    text.map(|text| Value::new(text).context("value")).transpose()
}

/// Reads a whole text of up to `limit` bytes.
/// The protocol in versions up to this one.
#[cfg(feature = "peer")]
fn held_back(
    protocol: mandate_runtime::Protocol,
    newest: Option<u32>,
) -> anyhow::Result<mandate_runtime::Protocol> {
    use mandate_runtime::Protocol;
    Ok(match (protocol, newest) {
        (protocol, None) => protocol,
        (Protocol::Pole(config), Some(newest)) => Protocol::Pole(config.with_protocol(newest)?),
        (Protocol::NfdL { .. }, Some(_)) => anyhow::bail!(
            "protocol has no meaning with guarantee = \"overlap\", whose messages are the same in all versions"
        ),
    })
}

fn read_text(path: &Path, limit: u64) -> anyhow::Result<String> {
    let file = OpenFile::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut text = String::new();
    let read = file.take(limit + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {} as text", path.display()))?;
    anyhow::ensure!(text.len() as u64 <= limit, "{} is longer than {limit} bytes", path.display());
    Ok(text)
}

impl File {
    /// Which member this is, and where it listens, if the environment says so. A file that all members share names all of them.
    fn placed(mut self, environment: &Environment) -> anyhow::Result<Self> {
        if let Some(member) = environment.get(environment::MEMBER) {
            self.peers.remove(member);
            self.member = Some(member.to_owned());
        }
        if let Some(listen) = environment.get(environment::LISTEN) {
            let listen = listen.parse();
            let name = environment::LISTEN;
            self.listen = Some(listen.with_context(|| format!("{name} is no ADDRESS:PORT"))?);
        }
        Ok(self)
    }

    #[cfg(feature = "peer")]
    fn peer(self, directory: &Path) -> anyhow::Result<peer::Builder> {
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
        let protocol = held_back(tables.protocol(me, peers.keys().copied())?, self.protocol)?;
        let value = published(self.value.as_deref())?;
        let has_terms = !matches!(protocol, mandate_runtime::Protocol::NfdL { .. });
        anyhow::ensure!(
            value.is_none() || has_terms,
            "value has no meaning with guarantee = \"overlap\", which has no terms"
        );
        let tls = self.tls.context("[tls] is missing; see `mandate certs`")?;
        let state =
            self.state.context("state is missing: a file for what must not be forgotten")?;
        let beside = |path: &Path| directory.join(path);
        let files = mandate_peer::links::IdentityFiles {
            ca: beside(&tls.ca),
            chain: beside(&tls.certificate),
            key: beside(&tls.key),
        };
        let listen = self.listen.context("listen is missing: an address for the other members")?;
        Ok(peer::Builder {
            group: self.group,
            listen,
            state: beside(&state),
            peers,
            files,
            protocol,
            start: start(self.first_start.as_deref())?,
        }
        .with_value(value))
    }

    #[cfg(feature = "sql")]
    fn sql(self, directory: &Path) -> anyhow::Result<sql::Builder> {
        self.refuse("sql", &[("[ledger]", self.ledger.is_some())])?;
        let member = self.member.map(|member| member.parse().context("member")).transpose()?;
        let database = self.database.context("[database] is missing: say at least its url")?;
        let address = database.address(directory)?;
        let config = self.election.on_database(member.unwrap_or(MemberId::new(0)), &database)?;
        let mut builder = sql::Builder::new(address, &self.group, config);
        builder.member = member;
        Ok(builder.with_value(published(self.value.as_deref())?))
    }

    #[cfg(feature = "ledger")]
    fn ledger(self, directory: &Path) -> anyhow::Result<kafka::Builder> {
        let more =
            [("[database]", self.database.is_some()), ("[election]", self.election.is_there())];
        self.refuse("ledger", &more)?;
        let member = self.member.map(|member| member.parse().context("member")).transpose()?;
        let ledger = self.ledger.context("[ledger] is missing: say at least its brokers")?;
        let value = published(self.value.as_deref())?;
        let builder = ledger.resolve(&self.group, member, directory)?;
        let has_terms = builder.mode == kafka::Mode::Exclusive;
        anyhow::ensure!(
            value.is_none() || has_terms,
            "value has no meaning with mode = \"non-exclusive\", which has no terms"
        );
        Ok(builder.with_value(value))
    }

    /// Refuses what is only for members that exchange messages, and more, if it is there.
    fn refuse(&self, engine: &str, more: &[(&str, bool)]) -> anyhow::Result<()> {
        let meaningless = [
            ("listen", self.listen.is_some()),
            ("state", self.state.is_some()),
            ("protocol", self.protocol.is_some()),
            ("first_start", self.first_start.is_some()),
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

#[cfg(all(test, feature = "peer", feature = "sql", feature = "ledger"))]
mod tests {
    use mandate_runtime::Protocol;

    use super::*;

    /// An error with its causes in one line.
    #[test]
    fn members_that_share_a_file_are_told_apart_by_the_environment() {
        let shared = example()
            .replacen("member = \"p1\"", "", 1)
            .replacen("127.0.0.1:7101", "0.0.0.0:7101", 1)
            .replacen("p1.state", "/var/lib/${MANDATE_MEMBER}.state", 1)
            .replacen(
                "p2 = \"127.0.0.1:7102\"",
                "p1 = \"db1:7101\"\np2 = \"${SECOND:-db2:7101}\"",
                1,
            )
            .replace("certs/p1", "certs/${MANDATE_MEMBER}");
        let of = |variables: &[(&str, &str)]| {
            parse_with(&shared, Path::new("etc"), &Environment::of(variables))
        };
        let Builder::Peer(second) = of(&[("MANDATE_MEMBER", "p2")]).unwrap() else { panic!() };
        let others: Vec<_> = second.peers.iter().map(|(id, at)| format!("{id}={at}")).collect();
        assert_eq!(others, ["p1=db1:7101", "p3=127.0.0.1:7103"]);
        assert_eq!(second.state, Path::new("/var/lib/p2.state"));
        assert_eq!(second.files.key, Path::new("etc/certs/p2.key"));
        let variables =
            [("MANDATE_MEMBER", "p1"), ("SECOND", "[fd00::2]:7101"), ("MANDATE_LISTEN", "[::]:7")];
        let Builder::Peer(first) = of(&variables).unwrap() else { panic!() };
        assert_eq!(first.peers[&MemberId::new(2)], "[fd00::2]:7101");
        assert_eq!(first.listen.to_string(), "[::]:7");
        for (variables, expected) in [
            (&[][..], "the environment has no MANDATE_MEMBER"),
            (&[("MANDATE_MEMBER", "first")], "member"),
            (&[("MANDATE_MEMBER", "p1"), ("MANDATE_LISTEN", "7101")], "MANDATE_LISTEN is no"),
        ] {
            let error = format!("{:#}", anyhow::Error::from(of(variables).map(drop).unwrap_err()));
            assert!(error.contains(expected), "{error}");
        }
    }

    fn parsed(text: &str, directory: &Path) -> anyhow::Result<Builder> {
        Ok(parse(text, directory)?)
    }

    /// The first file of the help text itself.
    fn example() -> String {
        let lines = EXAMPLE
            .lines()
            .skip_while(|line| !line.starts_with("  group"))
            .take_while(|line| !line.starts_with("On a database"));
        lines.map(|line| line.strip_prefix("  ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_example_of_the_help_can_be_used() {
        let config = parsed(&example(), Path::new("/etc/orders")).unwrap();
        let Builder::Peer(config) = config else { panic!("no database is named") };
        assert_eq!(config.state, Path::new("/etc/orders/p1.state"));
        assert_eq!(config.protocol.members().len(), 3);
        assert_eq!(config.start, mandate_runtime::Start::Auto);
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
        let config = parsed(&text, Path::new("")).unwrap();
        let Builder::Kafka(config) = config else { panic!("a ledger is named") };
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
            let error = format!("{:#}", parsed(&text, Path::new("")).unwrap_err());
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[cfg(not(feature = "postgres"))]
    #[test]
    fn a_database_that_this_build_does_not_have_is_refused_with_its_feature() {
        let error = parsed(&on_database(), Path::new("")).unwrap_err();
        let shown = error.to_string();
        assert!(shown.contains("the feature `postgres`"), "{shown}");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_member_on_a_database_needs_little_and_is_told_what_has_no_meaning() {
        let config = parsed(&on_database(), Path::new("")).unwrap();
        let Builder::Sql(config) = config else { panic!("a database is named") };
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
            let error = format!("{:#}", parsed(&text, Path::new("")).unwrap_err());
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
            let parsed = parsed(&text, Path::new(""));
            assert_eq!(parsed.is_ok(), is_measured, "{oracle}");
            if let Err(error) = parsed {
                let error = format!("{error:#}");
                let named = oracle.rsplit(", ").next().unwrap().split('/').next().unwrap();
                assert!(error.contains(&format!("oracle names `{named}`")), "{error}");
            }
        }
        let lease = format!("{}\n[election]\nlease = \"1s\"", on_database());
        let error = format!("{:#}", parsed(&lease, Path::new("")).unwrap_err());
        assert!(error.contains("[election] lease has no meaning"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        let cases = [
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
            ("\"auto\" ", "\"new\" ", "first_start is `new`, and must be auto or manual"),
            ("group =", "gruop =", "unknown field `gruop`"),
            ("protocol = 5", "protocol = 3", "is not spoken by this release, which speaks 4 to 5"),
        ];
        for (from, to, expected) in cases {
            let text = example().replacen(from, to, 1);
            let error = parsed(&text, Path::new("")).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
