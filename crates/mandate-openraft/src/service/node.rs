//! One process of the service: log, state, Raft, election and driver put together.
//!
//! This is also the worked example of how a service that has a Raft adopts a driver: start the peer engine, start
//! the driver with both, pass writes through its gate, and carry its requests.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mandate_peer::{Peer, PeerError, PeerSetup};
use mandate_proto::identity::MemberId;
use mandate_runtime::Start;
use mandate_runtime::event::Figures;
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::interval;

use super::batch::Batcher;
use super::load::Load;
use super::log::Log;
use super::machine::Machine;
use super::member::{Member, Mutant};
use super::network::Peers;
use super::server;
use super::snapshot::Snapshots;
use super::wire::Status;
use crate::driver::{Driver, DriverConfig, NotDriven};

/// How often the election is told how long the log is and how many requests come.
const FIGURES: Duration = Duration::from_millis(200);

/// How a process of the service is set up.
#[derive(Debug)]
pub struct NodeConfig {
    /// The service's name; members of another refuse each other.
    pub service: String,
    /// Where all members answer, this one included, as `host:port`.
    pub addresses: BTreeMap<MemberId, String>,
    /// Where log and snapshots are kept.
    pub directory: PathBuf,
    /// This member's part in the election. Its start decides whether the service is made
    /// ([`Start::New`], by the member with the lowest id) or found on disk.
    pub election: PeerSetup,
    /// Bounds of the driver.
    pub driver: DriverConfig,
    /// Raft's own timing.
    pub timing: RaftTiming,
    /// After how many entries a snapshot is made. Default of the program: 10,000.
    pub snapshot_every: u64,
    /// How many entries that are in a snapshot are kept in the log, for followers that lag a little. Default of the
    /// program: 5,000.
    pub keep_entries: u64,
    /// Whether a leader that the election did not want serves until the winner has caught up. True but for
    /// comparison: if not, the service waits for the winner, as in POLE's paper.
    pub interim_serves: bool,
    /// A bug to put back; `None` but for tests.
    pub mutant: Option<Mutant>,
}

/// Raft's own timing: how it detects and elects when nobody directs it, and how long its messages may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftTiming {
    /// Time between heartbeats of a leader, and how long an answer to a message may take. Longer than a round trip
    /// and a forced write to disk.
    pub heartbeat: Duration,
    /// The least and the most time without a leader before a member stands for election. Longer than a heartbeat.
    pub election: (Duration, Duration),
}

impl RaftTiming {
    /// Members in one place: heartbeats every 200 ms, elections after 500 to 1000 ms.
    pub const LAN: RaftTiming = RaftTiming {
        heartbeat: Duration::from_millis(200),
        election: (Duration::from_millis(500), Duration::from_millis(1000)),
    };

    /// Members up to 300 ms from each other: heartbeats every second, elections after 2 to 4 s.
    pub const WAN: RaftTiming = RaftTiming {
        heartbeat: Duration::from_secs(1),
        election: (Duration::from_secs(2), Duration::from_secs(4)),
    };
}

/// Why a process of the service cannot start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// It is not in the list.
    #[error("there is no address for {0}; name one for every member, this one included")]
    NoAddress(MemberId),
    /// It cannot listen.
    #[error("cannot listen on {0}: {1}")]
    Listen(String, io::Error),
    /// Log or snapshots cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Storage {
        /// What.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It cannot take part in the election.
    #[error(transparent)]
    Election(#[from] PeerError),
    /// Raft cannot be started.
    #[error("Raft: {0}")]
    Raft(String),
    /// It cannot be driven.
    #[error(transparent)]
    Driver(#[from] NotDriven),
}

/// A process of the service that runs.
pub struct Node {
    member: Arc<Member>,
    peer: Peer,
    tasks: JoinSet<()>,
}

impl Node {
    /// Starts it on the current tokio runtime.
    pub async fn start(config: NodeConfig) -> Result<Self, NodeError> {
        let me = config.election.protocol.me();
        let node = u64::from(me.get());
        let address = config.addresses.get(&me).ok_or(NodeError::NoAddress(me))?;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| NodeError::Listen(address.clone(), error))?;
        let by_node = |(id, address): (&MemberId, &String)| (u64::from(id.get()), address.clone());
        let addresses: BTreeMap<_, _> = config.addresses.iter().map(by_node).collect();
        let (log, machine) = storage(&config)?;
        let peers = Peers::new(&config.service, node, &addresses, log.clone(), config.mutant);
        let store = machine.store();
        let raft = Raft::new(node, raft_config(&config)?, peers.clone(), log, machine).await;
        let raft = raft.map_err(|error| NodeError::Raft(error.to_string()))?;
        let is_new = config.election.start == Start::New;
        let peer = Peer::start(config.election).await?;
        let members = config.addresses.keys().map(|id| (*id, u64::from(id.get()))).collect();
        let election = peer.election().clone();
        let driver =
            Driver::start(raft.clone(), &election, me, members, peers.clone(), config.driver)?;
        let batcher = Batcher::start(raft.clone(), driver.gate().clone());
        let member = Member {
            me,
            raft,
            driver,
            election,
            peers,
            batcher,
            store,
            load: Load::default(),
            interim_serves: config.interim_serves,
            mutant: config.mutant,
        };
        let member = Arc::new(member);

        if is_new && config.addresses.keys().next() == Some(&me) {
            let node = |(id, address): (u64, String)| (id, BasicNode::new(address));
            let members: BTreeMap<_, _> = addresses.into_iter().map(node).collect();
            let made = member.raft.initialize(members).await;
            made.map_err(|error| NodeError::Raft(error.to_string()))?;
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(server::accept(listener, member.clone(), config.service.into()));
        tasks.spawn(tell_figures(member.clone()));
        Ok(Node { member, peer, tasks })
    }

    /// How it is.
    pub fn status(&self) -> Status {
        self.member.status()
    }

    /// The election it takes part in.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Gives leadership back and stops.
    pub async fn shutdown(mut self) {
        self.peer.shutdown().await;
        self.tasks.shutdown().await;
        let _ = self.member.raft.shutdown().await;
    }
}

fn storage(config: &NodeConfig) -> Result<(Log, Machine), NodeError> {
    let at = |path: PathBuf| |source| NodeError::Storage { path, source };
    let directory = &config.directory;
    std::fs::create_dir_all(directory).map_err(at(directory.clone()))?;
    let path = directory.join("log.redb");
    let log = Log::open(&path, config.mutant).map_err(at(path))?;
    let path = directory.join("snapshots");
    let machine = Snapshots::new(&path).and_then(Machine::open).map_err(at(path))?;
    Ok((log, machine))
}

fn raft_config(config: &NodeConfig) -> Result<Arc<Config>, NodeError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let timing = config.timing;
    let raft = Config {
        cluster_name: config.service.clone(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election.0),
        election_timeout_max: millis(timing.election.1),
        // For the last piece, which includes reading the whole file.
        install_snapshot_timeout: 60_000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_every),
        // Who lags further than the log reaches back gets a snapshot in any case.
        replication_lag_threshold: u64::MAX,
        max_in_snapshot_log_to_keep: config.keep_entries,
        purge_batch_size: 256,
        snapshot_max_chunk_size: 1 << 20,
        // The driver says when.
        enable_elect: false,
        ..Config::default()
    };
    raft.validate().map(Arc::new).map_err(|error| NodeError::Raft(error.to_string()))
}

async fn tell_figures(member: Arc<Member>) {
    let mut ticks = interval(FIGURES);
    loop {
        ticks.tick().await;
        let history = member.raft.metrics().borrow().last_log_index;
        let requests = member.load.rate(Instant::now());
        member.election.set_figures(Figures { history, requests, application: None });
    }
}
