//! The SQL engine under test: members on a database that is there, or on a private one that is started for them.

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::operator;
use anyhow::Context;
use mandate_cli::relay::Relays;
use mandate_conformance::cancellation::{Handle, Handles};
use mandate_conformance::subject::{EngineUnderTest, Members, NetworkFaults, SetupError};
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_proto::registers::{self, Config};
use mandate_runtime::{Election, Start};
use mandate_servers::Server;
use mandate_servers::galera::Galera;
use mandate_servers::mariadb::{MariaDb, MariaDbConfig};
use mandate_servers::postgres::{Postgres, PostgresConfig};
use mandate_sql::{Address, Database, Setup, Sql};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::guarantee_text;

/// A bound for what hangs, not for speed.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// Before another attempt, where the database cannot be reached.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// The database, to the relays: no member has this number.
const DATABASE: MemberId = MemberId::new(u32::MAX);

/// What is started, if no database is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServerName {
    /// A file.
    #[default]
    Sqlite,
    /// A private PostgreSQL.
    Postgres,
    /// A private MariaDB.
    Mariadb,
    /// A private cluster of three MariaDB servers; members are spread over its nodes.
    Galera,
}

/// What members elect on.
pub(crate) enum Base {
    /// A file in the group's directory.
    File,
    /// Somebody's, that stays.
    Named(Address),
    Postgres(Mutex<Postgres>),
    MariaDb(Mutex<MariaDb>),
    Galera(Mutex<Galera>),
}

impl Base {
    /// Starts a private server of this kind, with its files in this directory if one is named.
    pub(crate) fn launch(server: ServerName, within: Option<&Path>) -> anyhow::Result<Self> {
        let within = within.map(Path::to_owned);
        let mariadb = MariaDbConfig { within: within.clone(), ..MariaDbConfig::default() };
        Ok(match server {
            ServerName::Sqlite => Base::File,
            ServerName::Postgres => {
                let defaults = PostgresConfig::default();
                let config = PostgresConfig { max_connections: 900, within, ..defaults };
                Base::Postgres(Mutex::new(Postgres::launch(&config)?))
            }
            ServerName::Mariadb => Base::MariaDb(Mutex::new(MariaDb::launch(&mariadb)?)),
            ServerName::Galera => Base::Galera(Mutex::new(Galera::launch(&mariadb)?)),
        })
    }

    /// Where its nodes are.
    pub(crate) fn addresses(&self, directory: &Path) -> anyhow::Result<Vec<Address>> {
        let urls = match self {
            Base::File => return Ok(vec![Address::Sqlite(directory.join("mandate.db"))]),
            Base::Named(address) => return Ok(vec![address.clone()]),
            Base::Postgres(server) => vec![lock(server).url()],
            Base::MariaDb(server) => vec![lock(server).url()],
            Base::Galera(cluster) => lock(cluster).urls(),
        };
        urls.iter().map(|url| Ok(url.parse()?)).collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Base::File => "SQLite",
            Base::Named(address) => address.kind(),
            Base::Postgres(_) => "PostgreSQL",
            Base::MariaDb(_) => "MariaDB",
            Base::Galera(_) => "Galera",
        }
    }
}

pub(crate) fn lock<T>(server: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A group that elects on a database.
#[derive(Clone)]
pub(crate) struct OnDatabase {
    pub(crate) base: Arc<Base>,
    pub(crate) guarantee: PeerGuarantee,
    /// Time between heartbeats.
    pub(crate) round: Duration,
    /// Whether members reach the database through relays.
    pub(crate) with_cables: bool,
    /// Whether leaders write to a table of their own, too, and every other member has an oracle.
    pub(crate) guarded: bool,
}

impl OnDatabase {
    fn config(&self, me: MemberId) -> anyhow::Result<Config> {
        let guarantee = match self.guarantee {
            PeerGuarantee::Fenced => registers::SqlGuarantee::Fenced,
            PeerGuarantee::Leased { .. } => registers::SqlGuarantee::Leased,
        };
        Ok(Config::new(me, self.round)?.with_guarantee(guarantee))
    }

    /// Addresses that have the tables. Each is asked to make them: a node of a cluster has applied what came before its own answer,
    /// and another may be behind.
    async fn prepared(&self, directory: &Path) -> anyhow::Result<Vec<Address>> {
        let addresses = self.base.addresses(directory)?;
        for address in &addresses {
            make_tables(address).await?;
        }
        Ok(addresses)
    }
}

/// Makes the members' tables. A server that has just been started on a busy host may keep its first clients waiting: what passes is tried
/// again.
pub(crate) async fn make_tables(address: &Address) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match Database::make_schema(address).await {
            Err(error) if !error.is_final() && began.elapsed() < STARTS_WITHIN => {
                sleep(PAUSE).await;
            }
            made => return Ok(made?),
        }
    }
}

impl EngineUnderTest for OnDatabase {
    fn name(&self) -> String {
        format!("sql on {}, {}", self.base.name(), guarantee_text(self.guarantee))
    }

    fn guarantee(&self) -> PeerGuarantee {
        self.guarantee
    }

    fn group(&self, size: u32, directory: &Path) -> Result<Box<dyn Members>, SetupError> {
        Ok(Box::new(self.actors(size, directory)?))
    }
}

impl OnDatabase {
    /// How the members of a new group are started.
    pub(crate) fn actors(&self, size: u32, directory: &Path) -> anyhow::Result<Actors> {
        let addresses = Runtime::new()?.block_on(self.prepared(directory))?;
        let members: Vec<_> = (1..=size).map(MemberId::new).collect();
        let cables = match (&*self.base, self.with_cables) {
            (Base::File, _) | (_, false) => None,
            _ => Some(Wires::lay(&addresses, &members)?),
        };
        let reach = |member: MemberId| {
            let node = member.get() as usize % addresses.len();
            match &cables {
                Some(wires) => wires.reach(node, member, &addresses[node]),
                None => Ok(addresses[node].clone()),
            }
        };
        let reach: Result<_, anyhow::Error> =
            members.iter().map(|member| Ok((*member, reach(*member)?.url()))).collect();
        let program = std::env::current_exe().context("could not find this program")?;
        let OnDatabase { round, guarantee, guarded, .. } = *self;
        let (group, reach) = (new_group()?, reach?);
        Ok(Actors { program, group, reach, cables, round, guarantee, guarded })
    }
}

/// A name that no earlier group on the same database has.
pub(super) fn new_group() -> anyhow::Result<String> {
    let number = getrandom::u64().context("the system gave no random number")?;
    Ok(format!("lab-{number:x}"))
}

/// How the members of a group are started.
pub(crate) struct Actors {
    program: PathBuf,
    pub(crate) group: String,
    reach: std::collections::BTreeMap<MemberId, String>,
    cables: Option<Wires>,
    round: Duration,
    guarantee: PeerGuarantee,
    guarded: bool,
}

impl Actors {
    /// A command of this program for a member.
    fn run(&self, command: &[&str], member: MemberId) -> Command {
        let mut run = Command::new(&self.program);
        run.args(command).args(["--group", &self.group]);
        run.arg("--member").arg(member.to_string());
        run.arg("--round").arg(format!("{}us", self.round.as_micros()));
        run.arg("--guarantee").arg(match self.guarantee {
            PeerGuarantee::Fenced => "fenced",
            PeerGuarantee::Leased { .. } => "leased",
        });
        // Not among the arguments, where every user of the host could read a password.
        run.env("MANDATE_URL", &self.reach[&member]);
        run
    }
}

impl Members for Actors {
    fn command(&self, member: MemberId, _: Start) -> Command {
        let mut run = self.run(&["actor"], member);
        if self.guarded {
            run.arg("--guarded");
            // Some members score themselves, the others are all alike.
            if member.get().is_multiple_of(2) {
                run.args(["--oracle", "application"]);
            }
        }
        run
    }

    fn wrapper(&self, member: MemberId, _: Start) -> Option<Command> {
        Some(self.run(&[operator::COMMAND, "run", "conformance"], member))
    }

    fn cables(&self) -> Option<&dyn NetworkFaults> {
        self.cables.as_ref().map(|wires| wires as &dyn NetworkFaults)
    }
}

/// Relays between members and the nodes of a database.
struct Wires {
    nodes: Vec<Relays>,
    // Ends after the relays that run on it.
    _runtime: Runtime,
}

impl Wires {
    fn lay(addresses: &[Address], members: &[MemberId]) -> anyhow::Result<Self> {
        let runtime = Runtime::new().context("could not start the relays")?;
        let mut nodes = Vec::new();
        for address in addresses {
            let place = address.host_and_port();
            let place = place.context("only the way to one host can be cut, not to a file")?;
            let mut sockets = place.to_socket_addrs().context("could not find the database")?;
            let socket = sockets.next().context("the database has no address")?;
            // Nobody dials members.
            let ends = members.iter().map(|id| (*id, socket)).chain([(DATABASE, socket)]);
            let relays = runtime.block_on(Relays::start(&ends.collect()));
            nodes.push(relays.context("could not start the relays")?);
        }
        Ok(Wires { nodes, _runtime: runtime })
    }

    fn reach(&self, node: usize, member: MemberId, address: &Address) -> anyhow::Result<Address> {
        let relay = self.nodes[node].address(member, DATABASE).context("there is no relay")?;
        Ok(address.through("127.0.0.1", relay.port()))
    }
}

impl NetworkFaults for Wires {
    fn isolate(&self, member: MemberId) {
        self.nodes.iter().for_each(|relays| relays.isolate(member));
    }

    fn heal(&self) {
        self.nodes.iter().for_each(Relays::heal_all);
    }
}

impl Handles for OnDatabase {
    type Handle = Member;

    async fn start(&self, size: u32, directory: &Path) -> Result<Vec<Member>, SetupError> {
        let addresses = self.prepared(directory).await?;
        let group = new_group()?;
        let mut members = Vec::new();
        for id in (1..=size).map(MemberId::new) {
            let address = &addresses[id.get() as usize % addresses.len()];
            let database = Database::open(address, self.round).await?;
            let (config, label) = (self.config(id)?, id.to_string());
            let setup = Setup { group: group.clone(), label, config };
            members.push(Member(Sql::start(&database, setup)?));
        }
        Ok(members)
    }
}

/// A member in this process.
pub(crate) struct Member(Sql);

impl Handle for Member {
    fn member(&self) -> MemberId {
        self.0.me()
    }

    fn election(&self) -> &Election {
        self.0.election()
    }

    async fn shutdown(&self) {
        self.0.shutdown().await;
    }
}
