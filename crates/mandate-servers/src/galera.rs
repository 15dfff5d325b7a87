//! Three private MariaDB servers that replicate to each other (Galera): each takes writes, and the second of two
//! that contradict each other is refused when it commits.
//!
//! A node that was killed finds out by itself what it has (`--wsrep-recover`) and is sent the rest by
//! another. The cluster is formed from copies of one data directory, so that this also holds for the first
//! start: sending a whole database takes seconds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::instance::Instance;
use crate::mariadb::{MariaDbConfig, PACKAGE, SYSTEM_USER, greets, sql};
use crate::{Server, ServerError, ports, programs, system};

/// How many nodes: the fewest of which one may be lost.
const SIZE: usize = 3;

/// Where the replication library is, by architecture and age of the package.
const PROVIDERS: [&str; 3] = [
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
];

/// A lost node is noticed after a second or so, where the defaults take five and more.
const TIMEOUTS: &str = "evs.keepalive_period=PT0.25S;evs.inactive_check_period=PT0.25S;\
                        evs.join_retrans_period=PT0.3S;evs.suspect_timeout=PT1S;\
                        evs.inactive_timeout=PT3S;evs.install_timeout=PT3S";

/// How long nodes may take to find each other again: several times what they take to give each other up.
const MERGE: Duration = Duration::from_secs(15);

/// A cluster of three.
#[derive(Debug)]
pub struct Galera {
    nodes: Vec<GaleraNode>,
}

impl Galera {
    /// Makes the system tables, copies them, and starts three servers on them.
    pub fn launch(config: &MariaDbConfig) -> Result<Self, ServerError> {
        let provider = PROVIDERS.iter().map(Path::new).find(|library| library.exists());
        let provider = provider.unwrap_or(Path::new(PROVIDERS[0]));
        programs::require(provider, "galera-4")?;
        programs::find("rsync", "rsync")?;
        let free = ports::free_ports(SIZE * 4).map_err(system("find ports"))?;
        let ports: Vec<_> = free.chunks(4).map(Ports::of).collect();
        let group: Vec<_> =
            ports.iter().map(|ports| format!("127.0.0.1:{}", ports.group)).collect();
        let group = group.join(",");
        let node = |(index, ports): (usize, &Ports)| {
            let name = format!("n{}", index + 1);
            let within = config.within.as_ref().map(|within| within.join(&name));
            Ok(GaleraNode {
                instance: Instance::new("galera", SYSTEM_USER, "", within.as_deref())?,
                name,
                ports: *ports,
                group: group.clone(),
                provider: provider.to_owned(),
                config: config.clone(),
            })
        };
        let nodes = ports.iter().enumerate().map(node).collect::<Result<_, ServerError>>()?;
        let mut cluster = Galera { nodes };
        cluster.form()?;
        Ok(cluster)
    }

    /// From nothing: one node alone makes the tables, so that all begin with the same.
    fn form(&mut self) -> Result<(), ServerError> {
        let (first, others) = self.nodes.split_at_mut(1);
        let first = &mut first[0];
        first.config.install(&first.instance)?;
        first.run(Entry::Founding)?;
        first.config.provide(&first.instance)?;
        first.stop()?;
        for node in &*others {
            let mut copy = Command::new("cp");
            copy.arg("-a").arg(first.directory().join("data")).arg(node.directory());
            first.instance.run_as_owner(&mut copy)?;
        }
        first.run(Entry::Founding)?;
        // One after the other: two that join at once take each other for lost.
        others.iter_mut().try_for_each(|node| node.run(Entry::Joining))
    }

    /// The nodes.
    pub fn nodes(&self) -> &[GaleraNode] {
        &self.nodes
    }

    /// The nodes, to inject a fault into one.
    pub fn nodes_mut(&mut self) -> &mut [GaleraNode] {
        &mut self.nodes
    }

    /// How clients find them.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// Starts every node that does not run. If none does, the one with the most begins.
    pub fn start(&mut self) -> Result<(), ServerError> {
        if !self.nodes.iter_mut().any(|node| node.instance.runs()) {
            let positions = self.nodes.iter().map(GaleraNode::position);
            let positions = positions.collect::<Result<Vec<_>, _>>()?;
            let count = |position: &String| {
                position.rsplit_once(':').and_then(|(_, count)| count.parse::<i64>().ok())
            };
            let most = (0..SIZE).max_by_key(|index| count(&positions[*index])).unwrap_or(0);
            self.nodes[most].run(Entry::Founding)?;
        }
        self.nodes.iter_mut().try_for_each(Server::start)
    }

    /// Brings everything back whatever was done to it, as an operator would: what is frozen goes on, what has
    /// ended is started, and where too few are left to be a cluster, it is formed anew from the node with
    /// the most.
    pub fn recover(&mut self) -> Result<(), ServerError> {
        for node in &mut self.nodes {
            if node.instance.runs() {
                node.resume()?;
            }
        }
        if self.until(|nodes| nodes.iter_mut().any(|node| node.takes_part()))
            && self.start().is_ok()
            && self.until(|nodes| nodes.iter_mut().all(|node| node.takes_part()))
        {
            return Ok(());
        }
        self.nodes.iter_mut().try_for_each(Server::kill)?;
        self.start()
    }

    /// Whether something comes to hold before the nodes must be thought to have lost each other.
    fn until(&mut self, holds: impl Fn(&mut [GaleraNode]) -> bool) -> bool {
        let began = Instant::now();
        while !holds(&mut self.nodes) {
            let runs = self.nodes.iter_mut().any(|node| node.instance.runs());
            if !runs || began.elapsed() > MERGE {
                return false;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        true
    }
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    clients: u16,
    group: u16,
    /// For what a node missed.
    increments: u16,
    /// For a whole database.
    snapshots: u16,
}

impl Ports {
    fn of(free: &[u16]) -> Self {
        Ports { clients: free[0], group: free[1], increments: free[2], snapshots: free[3] }
    }
}

/// How a node comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// It is the cluster, alone at first.
    Founding,
    /// It joins, and takes whatever it lacks.
    Joining,
}

/// One server of a cluster.
#[derive(Debug)]
pub struct GaleraNode {
    instance: Instance,
    name: String,
    ports: Ports,
    group: String,
    provider: PathBuf,
    config: MariaDbConfig,
}

impl GaleraNode {
    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.ports.clients
    }

    /// Has its own client, `mariadb`, run statements as the administrator; what it printed, without
    /// headings.
    pub fn sql(&self, statements: &str) -> Result<String, ServerError> {
        sql(&self.instance, "mandate", statements)
    }

    fn command(&self) -> Result<Command, ServerError> {
        let Ports { clients, group, increments, snapshots } = self.ports;
        let mut command = Command::new(programs::find("mariadbd", PACKAGE)?);
        command.args(self.config.options(self.directory(), clients));
        let mut set = |name: &str, value: &str| {
            command.arg(format!("--{name}={value}"));
        };
        set("binlog-format", "ROW");
        set("innodb-autoinc-lock-mode", "2");
        set("wsrep-on", "on");
        set("wsrep-provider", &self.provider.display().to_string());
        set("wsrep-cluster-address", &format!("gcomm://{}", self.group));
        set("wsrep-node-name", &self.name);
        set("wsrep-node-address", &format!("127.0.0.1:{group}"));
        set("wsrep-sst-method", "rsync");
        set("wsrep-sst-receive-address", &format!("127.0.0.1:{snapshots}"));
        let options = format!(
            "base_host=127.0.0.1;base_port={group};gmcast.listen_addr=tcp://127.0.0.1:{group};\
             ist.recv_addr=127.0.0.1:{increments};gcache.size=32M;pc.recovery=no;{TIMEOUTS}"
        );
        set("wsrep-provider-options", &options);
        Ok(command)
    }

    /// What it has: an identity of the cluster's history, and how far in it. After a kill only its tables
    /// know.
    fn position(&self) -> Result<String, ServerError> {
        let mut command = self.command()?;
        let log = self.directory().join("recovery.log");
        command.arg("--wsrep-recover").arg(format!("--log-error={}", log.display()));
        self.instance.run(&mut command)?;
        let said = fs::read_to_string(log).map_err(system("read what a node recovered"))?;
        let found = said
            .rsplit_once("Recovered position: ")
            .and_then(|(_, rest)| rest.split_ascii_whitespace().next().map(str::to_owned));
        found.ok_or_else(|| ServerError::Ended {
            program: "mariadbd --wsrep-recover".into(),
            status: "no position".into(),
            said,
        })
    }

    fn run(&mut self, entry: Entry) -> Result<(), ServerError> {
        let state = self.directory().join("data/grastate.dat");
        let state = fs::read_to_string(state).unwrap_or_default();
        let mut command = self.command()?;
        if state.contains("seqno:   -1") {
            command.arg(format!("--wsrep-start-position={}", self.position()?));
        }
        if entry == Entry::Founding {
            // Only the caller knows that no other has more.
            let allowed = state.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1");
            if allowed != state {
                self.instance.write("data/grastate.dat", &allowed)?;
            }
            command.arg("--wsrep-new-cluster");
        }
        let port = self.ports.clients;
        self.instance.launch(&mut command, |_| greets(port))?;
        self.instance.until("it has what the others have", has_all)
    }

    /// Whether it runs, and is one of the cluster.
    fn takes_part(&mut self) -> bool {
        self.instance.runs() && has_all(&self.instance)
    }
}

/// Whether a node is of the cluster, and has what the others have.
fn has_all(instance: &Instance) -> bool {
    let state = "show status where variable_name in ('wsrep_ready', 'wsrep_local_state')";
    let shown = sql(instance, "mysql", state).unwrap_or_default();
    // Four is "synced".
    shown.contains("wsrep_local_state\t4") && shown.contains("wsrep_ready\tON")
}

impl Server for GaleraNode {
    fn url(&self) -> String {
        self.config.url(self.ports.clients)
    }

    /// It joins the others; one of them must run. When none does, [`Galera::start`] finds out which has the
    /// most.
    fn start(&mut self) -> Result<(), ServerError> {
        match self.instance.runs() {
            true => Ok(()),
            false => self.run(Entry::Joining),
        }
    }

    crate::instance::faults!(Signal::TERM);
}
