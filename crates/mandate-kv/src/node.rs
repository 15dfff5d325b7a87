//! One process of the service: log, state, Raft, election and driver put together.
//!
//! This is also the worked example of how a service that has a Raft adopts a driver: start the peer engine, start
//! the driver with both, pass writes through its gate, and carry its requests.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mandate_peer::links::{StreamTls, StreamTlsError};
use mandate_peer::{Peer, PeerError, PeerSetup};
use mandate_proto::election::Figures;
use mandate_proto::identity::MemberId;
use mandate_runtime::{ElectionState, StartError};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use tokio::net::TcpListener;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{interval, sleep};

use super::batch::Batcher;
use super::link::Service;
use super::load::Load;
use super::log::Log;
use super::member::{Member, Mutant};
use super::network::Peers;
use super::room::Replies;
use super::storage::{Places, Storage, StorageError};
use super::wire::{self, KvStatus};
use super::{server, storage};
use mandate_openraft::driver::{DriverConfig, Ended, NotDriven, RaftDriver};

/// How often it is looked whether the election's state is on disk, at a first start.
const LOOK: Duration = Duration::from_millis(2);

/// How often the election is told how long the log is and how many requests come.
const FIGURES: Duration = Duration::from_millis(200);

/// How a process of the service is set up.
#[derive(Debug)]
pub struct KvNodeConfig {
    /// The service's name; members of another refuse each other.
    pub service: String,
    /// Where all members answer, this one included, as `host:port`.
    pub addresses: BTreeMap<MemberId, String>,
    /// Where log and snapshots are kept.
    pub directory: PathBuf,
    /// This member's part in the election. Its start decides whether the service is made
    /// ([`Start::New`](mandate_runtime::Start::New), by the member with the lowest id) or found on disk.
    pub election: PeerSetup,
    /// Bounds of the driver.
    pub driver: DriverConfig,
    /// Raft's own timing.
    pub timing: RaftTiming,
    /// After how many entries a snapshot is made. Default of the program: 10,000.
    pub snapshot_every: u64,
    /// After how many bytes of keys and values a snapshot is made, if that comes first. Default of the program: 256 MiB.
    pub snapshot_bytes: u64,
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
    /// Its certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] StreamTlsError),
    /// What it has on disk cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It cannot take part in the election.
    #[error(transparent)]
    Election(#[from] PeerError),
    /// The election ended before it had begun.
    #[error("the election has ended at once: see the log of the process for the reason")]
    NoElection,
    /// Raft cannot be started.
    #[error("Raft: {0}")]
    Raft(String),
    /// It cannot be driven.
    #[error(transparent)]
    RaftDriver(#[from] NotDriven),
}

/// A process of the service that runs.
pub struct KvNode {
    member: Arc<Member>,
    peer: Peer,
    log: Log,
    tasks: JoinSet<()>,
}

impl KvNode {
    /// Starts it on the current tokio runtime. What is on disk is opened before the election starts: checking a log and
    /// reading a snapshot take seconds, and a member that takes part without a Raft could be elected for nothing. Where
    /// Raft has never run, the election is asked first: if it refuses, no log is made.
    pub async fn start(config: KvNodeConfig) -> Result<Self, NodeError> {
        let me = config.election.protocol.me();
        let address = config.addresses.get(&me).ok_or(NodeError::NoAddress(me))?;
        let tls = StreamTls::new(&config.election.identity, &config.service, wire::PROTOCOL)?;
        let service = Service { name: config.service.as_str().into(), tls };
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| NodeError::Listen(address.clone(), error))?;
        let places = Places {
            directory: config.directory.clone(),
            state: config.election.state.clone(),
            service: config.service.clone(),
            me,
        };
        let checked = places.check(config.election.start)?;
        let storage = match checked.is_made() {
            true => Opening::Opened(open(checked, config.mutant).await?),
            false => Opening::Later(checked),
        };
        let peer = match Peer::start(config.election).await {
            Ok(peer) => peer,
            Err(error) => {
                if let Opening::Opened(storage) = storage {
                    // So that it need not be checked by the next start.
                    let _ = storage.log.close().await;
                }
                return Err(election_error(error));
            }
        };
        let settings = Settings {
            me,
            service: config.service,
            addresses: config.addresses,
            driver: config.driver,
            timing: config.timing,
            snapshot_every: config.snapshot_every,
            snapshot_bytes: config.snapshot_bytes,
            keep_entries: config.keep_entries,
            interim_serves: config.interim_serves,
            mutant: config.mutant,
        };
        match run(settings, service, listener, storage, &peer).await {
            Ok((member, log, tasks)) => Ok(KvNode { member, peer, log, tasks }),
            Err(error) => {
                peer.shutdown().await;
                Err(error)
            }
        }
    }

    #[cfg(test)]
    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    /// How it is.
    pub fn status(&self) -> KvStatus {
        self.member.status()
    }

    /// The election it takes part in.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Waits until it can do nothing any more, and says why: Raft has ended because of its disk, for instance. It does
    /// not lead any more then. End the process.
    pub async fn ended(&self) -> String {
        let ended = self.member.driver.ended().await;
        let failure = self.member.status().failed;
        match (ended, failure) {
            (Ended::Raft, Some(failure)) => format!("Raft has ended: {failure}"),
            (ended, _) => ended.to_string(),
        }
    }

    /// Gives leadership back and stops.
    pub async fn shutdown(mut self) {
        self.peer.shutdown().await;
        self.tasks.shutdown().await;
        let _ = self.member.raft.shutdown().await;
        // It fails if the disk was the reason to stop, and that has been told.
        let _ = self.log.close().await;
    }
}

/// A [`KvNodeConfig`] without the election.
struct Settings {
    me: MemberId,
    service: String,
    addresses: BTreeMap<MemberId, String>,
    driver: DriverConfig,
    timing: RaftTiming,
    snapshot_every: u64,
    snapshot_bytes: u64,
    keep_entries: u64,
    interim_serves: bool,
    mutant: Option<Mutant>,
}

/// In words of this service: those of the election advise what the service does not have.
fn election_error(error: PeerError) -> NodeError {
    match error {
        PeerError::Start(StartError::NoState(path)) => StorageError::NoState(path).into(),
        PeerError::Start(StartError::HasState(path)) => StorageError::TookPart(path).into(),
        PeerError::Start(StartError::Durable(error)) => StorageError::from(error).into(),
        PeerError::Start(StartError::Differs { path, before, now }) => {
            let (before, now) = (before.to_string(), now.to_string());
            StorageError::Differs { path, before, now }.into()
        }
        PeerError::Start(StartError::NobodyToAsk) => StorageError::Lost.into(),
        error => error.into(),
    }
}

/// What a member has on disk.
enum Opening {
    Opened(Storage),
    /// Raft has never run: it is opened when the election has its state.
    Later(storage::Checked),
}

/// Opens it, beside the runtime's own threads.
async fn open(checked: storage::Checked, mutant: Option<Mutant>) -> Result<Storage, NodeError> {
    let opened = spawn_blocking(move || checked.open(mutant)).await;
    Ok(opened.map_err(|error| NodeError::Raft(error.to_string()))??)
}

type Running = (Arc<Member>, Log, JoinSet<()>);

/// Starts everything but the election, which runs.
async fn run(
    config: Settings,
    service: Service,
    listener: TcpListener,
    storage: Opening,
    peer: &Peer,
) -> Result<Running, NodeError> {
    let (me, election) = (config.me, peer.election().clone());
    let storage = match storage {
        Opening::Opened(storage) => storage,
        Opening::Later(checked) => {
            // Raft must not have run when the election's state is not there: nobody could tell the member from a new one.
            while !checked.has_state()? {
                if matches!(*election.state().borrow(), ElectionState::Stopped) {
                    return Err(NodeError::NoElection);
                }
                sleep(LOOK).await;
            }
            open(checked, config.mutant).await?
        }
    };
    let Storage { log, machine, record } = storage;
    let replies = Replies::default();
    let peers = Peers::new(&service, me, &config.addresses, log.clone(), &replies, config.mutant);
    let store = machine.store();
    let raft_error = |error: &dyn std::fmt::Display| NodeError::Raft(error.to_string());
    let node = u64::from(me.get());
    let raft = Raft::new(node, raft_config(&config)?, peers.clone(), log.clone(), machine).await;
    let raft = raft.map_err(|error| raft_error(&error))?;
    let members = config.addresses.keys().map(|id| (*id, u64::from(id.get()))).collect();
    let driver =
        RaftDriver::start(raft.clone(), &election, me, members, peers.clone(), config.driver)?;
    let batcher = Batcher::start(raft.clone(), driver.gate().clone());
    let member = Arc::new(Member {
        me,
        raft,
        driver,
        election,
        peers,
        batcher,
        store,
        replies,
        load: Load::default(),
        interim_serves: config.interim_serves,
        mutant: config.mutant,
        _record: record,
    });

    // A log that is empty and not a lost one: this member has never taken part, so nobody has, and it makes the service.
    let is_first = config.addresses.keys().next() == Some(&me);
    let is_made = member.raft.is_initialized().await.map_err(|error| raft_error(&error))?;
    if is_first && !is_made {
        let node = |(id, at): (&MemberId, &String)| (u64::from(id.get()), BasicNode::new(at));
        let members: BTreeMap<_, _> = config.addresses.iter().map(node).collect();
        let made = member.raft.initialize(members).await;
        made.map_err(|error| raft_error(&error))?;
    }
    let mut tasks = JoinSet::new();
    tasks.spawn(server::accept(listener, member.clone(), service));
    tasks.spawn(tell_figures(member.clone()));
    tasks.spawn(make_snapshots(member.clone(), log.clone(), config.snapshot_bytes));
    Ok((member, log, tasks))
}

fn raft_config(config: &Settings) -> Result<Arc<Config>, NodeError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let timing = config.timing;
    let raft = Config {
        cluster_name: config.service.clone(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election.0),
        election_timeout_max: millis(timing.election.1),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_every),
        // Who lags further than the log reaches back gets a snapshot in any case.
        replication_lag_threshold: u64::MAX,
        max_in_snapshot_log_to_keep: config.keep_entries,
        purge_batch_size: 256,
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

/// Has a snapshot made after so many bytes, and as many kept in the log: few large entries can be more than the disk
/// holds.
async fn make_snapshots(member: Arc<Member>, log: Log, bytes: u64) {
    let mut ticks = interval(FIGURES);
    let mut cut_off = None;
    loop {
        ticks.tick().await;
        if member.store.written() >= bytes && member.raft.trigger().snapshot().await.is_err() {
            return;
        }
        let in_snapshot = member.raft.metrics().borrow().snapshot.map(|last| last.index);
        let older = log.older_than(bytes).min(in_snapshot);
        if older > cut_off {
            cut_off = older;
            if let Some(upto) = older
                && member.raft.trigger().purge_log(upto).await.is_err()
            {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Subcommand;
    use mandate_runtime::durable::{Agreed, DurableError};

    use super::*;
    use crate::program::KvCommand;

    /// Options that the program has.
    fn options() -> BTreeSet<String> {
        let program = KvCommand::augment_subcommands(clap::Command::new("mandate-kv"));
        let of = |command: &clap::Command| -> Vec<String> {
            command.get_arguments().filter_map(|it| it.get_long()).map(str::to_owned).collect()
        };
        program.get_subcommands().flat_map(of).collect()
    }

    #[test]
    fn errors_advise_no_option_that_the_program_lacks() {
        let path = || PathBuf::from("/data/election");
        let io = || io::Error::other("broken");
        let agreed = || Box::new(Agreed { members: vec!["p1".into()], guarantee: "fenced".into() });
        let start = |error| election_error(PeerError::Start(error));
        let durable = |error| start(StartError::Durable(error));
        let stored = |error: StorageError| NodeError::from(error);
        let errors = [
            NodeError::NoAddress(MemberId::new(1)),
            NodeError::Listen("here".into(), io()),
            NodeError::NoElection,
            NodeError::Raft("broken".into()),
            start(StartError::NoState(path())),
            start(StartError::HasState(path())),
            start(StartError::Differs { path: path(), before: agreed(), now: agreed() }),
            start(StartError::TooFewKept { before: "p1".into(), kept: 0, needed: 1 }),
            start(StartError::NobodyToAsk),
            durable(DurableError::InUse { path: path() }),
            durable(DurableError::Damaged { path: path(), what: "cut short".into() }),
            durable(DurableError::Io { what: "read", path: path(), source: io() }),
            stored(StorageError::NoState(path())),
            stored(StorageError::TookPart(path())),
            stored(StorageError::Lost),
            stored(StorageError::NoRecord(path())),
            stored(StorageError::NoLog(path())),
            stored(StorageError::OtherLog(path())),
            stored(StorageError::NoSnapshot(path())),
            stored(StorageError::OtherSnapshot(path())),
            stored(StorageError::Random(io())),
            stored(StorageError::Unusable { path: path(), source: io() }),
        ];
        let options = options();
        assert!(options.contains("new") && !options.contains("lost"), "{options:?}");
        for error in errors {
            let text = error.to_string();
            let named = text.split(|it: char| it != '-' && !it.is_ascii_alphanumeric());
            for option in named.filter_map(|word| word.strip_prefix("--")) {
                assert!(options.contains(option), "--{option} is no option: {text}");
            }
        }
    }
}
