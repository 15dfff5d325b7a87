//! The ledger in memory under test: the harness keeps it, and serves it to member processes over Unix sockets.
//!
//! What goes over a socket are the calls and replies of [`mandate_proto::neli::memory`], one a line. Each member has a socket
//! of its own, so that its calls can be lost: that is what it is to be cut off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use mandate_conformance::cancellation::{Handle, Handles};
use mandate_conformance::subject::{Ability, EngineUnderTest, Members, NetworkFaults, SetupError};
use mandate_ledger::memory::MemoryLedger;
use mandate_ledger::{Ledger, LedgerClient, LedgerError, LedgerRoles, Setup, start};
use mandate_proto::election::RoleId;
use mandate_proto::identity::{Incarnation, MemberId};
use mandate_proto::neli::memory::{
    AssignmentRule, Broker, BrokerConfig, Call, ClientConfig, ClientId, Coordination, GroupId,
    MemoryClient, Outgoing, Renewals, Reply,
};
use mandate_proto::neli::{
    Config, Grants, Input, LedgerPlan, LedgerRequest, Mode, RecordDelivery, RequestId,
};
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_proto::time::{Instant, WallTime};
use mandate_runtime::clock::Clock;
use mandate_runtime::{Election, Start};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::ledger::lacks;
use mandate_cli::output::readable;

/// What goes before a socket's path where a broker's address is expected.
pub(super) const SCHEME: &str = "unix:";

/// The group: there is one on each ledger.
const GROUP: GroupId = GroupId(0);

/// How long last words may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Members are looked after at least this often.
const LOOK: Duration = Duration::from_secs(1);

fn broker_config() -> BrokerConfig {
    BrokerConfig {
        partitions: NonZeroU32::MIN,
        assignor: AssignmentRule::default(),
        shortest_session: Duration::ZERO,
        delivery: RecordDelivery::Anyone,
        coordination: Coordination::Generations,
    }
}

fn client_config(session: Duration) -> ClientConfig {
    let heartbeat = session / 6;
    ClientConfig {
        session,
        heartbeat,
        barrier: session * 2,
        assignor: AssignmentRule::default(),
        instance: None,
        hides_losses: false,
        renewals: Renewals::WithTheRest,
        coordination: Coordination::Generations,
        fetches: None,
    }
}

/// A group that leads a role on a ledger in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InMemory {
    pub(crate) session: Duration,
}

impl EngineUnderTest for InMemory {
    fn name(&self) -> String {
        format!("ledger in memory, exclusive, sessions of {}", readable(self.session))
    }

    fn guarantee(&self) -> PeerGuarantee {
        let allowance_per_mille = super::ALLOWANCE_PER_MILLE;
        PeerGuarantee::Leased { lease: self.session, allowance_per_mille }
    }

    fn group(&self, size: u32, directory: &Path) -> Result<Box<dyn Members>, SetupError> {
        let program = std::env::current_exe().context("could not find this program")?;
        let (session, server) = (self.session, Server::start(size, directory)?);
        Ok(Box::new(Actors { program, session, directory: directory.to_owned(), server }))
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        lacks(ability).filter(|_| ability != Ability::Exclude)
    }
}

impl Handles for InMemory {
    type Handle = InThisProcess;

    async fn start(&self, size: u32, _: &Path) -> Result<Vec<InThisProcess>, SetupError> {
        let ledger = MemoryLedger::new(broker_config(), client_config(self.session), GROUP);
        let member = |id| InThisProcess::start(&ledger, MemberId::new(id));
        (1..=size).map(member).collect()
    }
}

/// A member in this process.
pub(crate) struct InThisProcess {
    me: MemberId,
    roles: LedgerRoles,
    election: Election,
}

impl InThisProcess {
    fn start<L: Ledger>(ledger: &L, me: MemberId) -> Result<Self, SetupError> {
        let roles = start(ledger, Setup { config: Config::new(me, Mode::Exclusive), roles: 1 })?;
        let election = roles.election(RoleId::new(0));
        Ok(InThisProcess { me, roles, election })
    }
}

impl Handle for InThisProcess {
    fn member(&self) -> MemberId {
        self.me
    }

    fn election(&self) -> &Election {
        &self.election
    }

    async fn shutdown(&self) {
        self.roles.shutdown().await;
    }
}

/// Joins the group whose ledger is served at this path.
pub(super) fn join(
    path: &Path,
    session: Duration,
    me: MemberId,
) -> Result<InThisProcess, SetupError> {
    let ledger = SocketLedger { path: path.to_owned(), config: client_config(session) };
    InThisProcess::start(&ledger, me)
}

/// How the members of a group are started.
struct Actors {
    program: PathBuf,
    session: Duration,
    directory: PathBuf,
    server: Server,
}

impl Members for Actors {
    fn command(&self, member: MemberId, _: Start) -> Command {
        let mut run = Command::new(&self.program);
        run.args(["actor", "--member"]).arg(member.to_string());
        let socket = socket(&self.directory, member);
        run.arg("--brokers").arg(format!("{SCHEME}{}", socket.display()));
        run.arg("--session").arg(format!("{}us", self.session.as_micros()));
        run
    }

    fn cables(&self) -> Option<&dyn NetworkFaults> {
        Some(&self.server)
    }
}

fn socket(directory: &Path, member: MemberId) -> PathBuf {
    directory.join(format!("{member}.ledger"))
}

/// The ledger, and the sockets where it is served. All end when this is dropped.
struct Server {
    served: Arc<Served>,
    _runtime: Runtime,
}

struct Served {
    clock: Clock,
    state: Mutex<State>,
    /// Told when something may be due earlier.
    wakes: Notify,
}

struct State {
    broker: Broker,
    /// By which member's socket a client was last heard, and how it is answered.
    clients: BTreeMap<Incarnation, (MemberId, mpsc::UnboundedSender<String>)>,
    is_cut: BTreeSet<MemberId>,
}

impl Server {
    fn start(size: u32, directory: &Path) -> anyhow::Result<Self> {
        let runtime = Runtime::new().context("could not start the ledger")?;
        let (clients, is_cut) = (BTreeMap::new(), BTreeSet::new());
        let state = State { broker: Broker::new(broker_config()), clients, is_cut };
        let served =
            Served { clock: Clock::start(), state: Mutex::new(state), wakes: Notify::new() };
        let served = Arc::new(served);
        let _within = runtime.enter();
        for member in (1..=size).map(MemberId::new) {
            let listener = UnixListener::bind(socket(directory, member));
            let listener = listener.context("could not make a socket for the ledger")?;
            runtime.spawn(accept(served.clone(), listener, member));
        }
        runtime.spawn(keep_time(served.clone()));
        drop(_within);
        Ok(Server { served, _runtime: runtime })
    }
}

impl NetworkFaults for Server {
    fn isolate(&self, member: MemberId) {
        self.served.state().is_cut.insert(member);
    }

    fn heal(&self) {
        self.served.state().is_cut.clear();
    }
}

impl Served {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, from: MemberId, answers: &mpsc::UnboundedSender<String>, line: &str) {
        let Ok((id, call)) = serde_json::from_str::<(ClientId, Call)>(line) else { return };
        let now = self.clock.now();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        let mut state = self.state();
        if !state.is_cut.contains(&from) {
            state.clients.insert(id.life, (from, answers.clone()));
            state.broker.call(GROUP, id, call, (now, wall));
            state.answer();
            self.wakes.notify_one();
        }
    }
}

impl State {
    fn answer(&mut self) {
        while let Some((id, reply)) = self.broker.reply() {
            let Some((member, answers)) = self.clients.get(&id.life) else { continue };
            if let Ok(line) = serde_json::to_string(&(id, reply))
                && !self.is_cut.contains(member)
            {
                // A member that has gone needs no answer.
                let _ = answers.send(line);
            }
        }
    }
}

async fn keep_time(served: Arc<Served>) {
    loop {
        let pause = {
            let mut state = served.state();
            let now = served.clock.now();
            state.broker.advance(now);
            state.answer();
            state.broker.deadline().map_or(LOOK, |due| due - now)
        };
        let _ = timeout(pause.min(LOOK), served.wakes.notified()).await;
    }
}

async fn accept(served: Arc<Served>, listener: UnixListener, member: MemberId) {
    while let Ok((stream, _)) = listener.accept().await {
        let served = served.clone();
        tokio::spawn(async move {
            let (input, output) = stream.into_split();
            let (answers, lines) = mpsc::unbounded_channel();
            tokio::spawn(write(output, lines));
            let mut input = BufReader::new(input).lines();
            while let Ok(Some(line)) = input.next_line().await {
                served.call(member, &answers, &line);
            }
        });
    }
}

/// Writes lines for as long as there are any, and someone who reads them.
async fn write(mut output: OwnedWriteHalf, mut lines: mpsc::UnboundedReceiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        if output.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The ledger as a member process finds it.
struct SocketLedger {
    path: PathBuf,
    config: ClientConfig,
}

impl Ledger for SocketLedger {
    type Member = SocketMember;

    fn grants(&self) -> Grants {
        let ClientConfig { session, heartbeat, barrier, .. } = self.config;
        Broker::new(broker_config()).grants(session, heartbeat, barrier)
    }

    fn member(
        &self,
        incarnation: Incarnation,
        _: &LedgerPlan,
    ) -> Result<SocketMember, LedgerError> {
        let failed = |error: std::io::Error| LedgerError::Broker {
            what: "reach the ledger",
            reason: error.to_string(),
        };
        let stream = std::os::unix::net::UnixStream::connect(&self.path).map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        let (input, output) = UnixStream::from_std(stream).map_err(failed)?.into_split();
        let (calls, lines) = mpsc::unbounded_channel();
        Ok(SocketMember {
            client: MemoryClient::new(self.config, incarnation),
            clock: Clock::start(),
            input: BufReader::new(input).lines(),
            calls,
            writing: tokio::spawn(write(output, lines)),
            told: VecDeque::new(),
        })
    }
}

/// A member's side of it.
struct SocketMember {
    client: MemoryClient,
    clock: Clock,
    input: Lines<BufReader<OwnedReadHalf>>,
    calls: mpsc::UnboundedSender<String>,
    writing: JoinHandle<()>,
    told: VecDeque<Input>,
}

impl SocketMember {
    fn pass_on(&mut self, out: Vec<Outgoing>) {
        for outgoing in out {
            match outgoing {
                Outgoing::Call(id, call) => {
                    let line = serde_json::to_string(&(id, call)).expect("calls are plain data");
                    // If nobody listens, reading says so.
                    let _ = self.calls.send(line);
                }
                Outgoing::Tell(input) => self.told.push_back(input),
            }
        }
    }

    fn advance(&mut self, reply: Option<(ClientId, Reply)>) -> Option<Instant> {
        let (now, mut out) = (self.clock.now(), Vec::new());
        self.client.polled(now, &mut out);
        if let Some((id, reply)) = reply {
            self.client.replied(id, reply, now, &mut out);
        }
        self.client.advance(now, &mut out);
        self.pass_on(out);
        self.client.deadline()
    }
}

impl LedgerClient for SocketMember {
    fn ask(&mut self, request: LedgerRequest) {
        let mut out = Vec::new();
        self.client.ask(request, self.clock.now(), &mut out);
        self.pass_on(out);
    }

    fn abandon(&mut self, _: RequestId) {}

    async fn next(&mut self) -> Result<Input, LedgerError> {
        let mut reply = None;
        loop {
            let due = self.advance(reply.take());
            if let Some(input) = self.told.pop_front() {
                return Ok(input);
            }
            let pause = due.map_or(LOOK, |due| (due - self.clock.now()).min(LOOK));
            tokio::select! {
                line = self.input.next_line() => {
                    let gone = || LedgerError::Fatal("the ledger is gone".into());
                    let line = line.ok().flatten().ok_or_else(gone)?;
                    reply = serde_json::from_str(&line).ok();
                }
                () = sleep(pause) => {}
            }
        }
    }

    async fn close(self) {
        drop(self.calls);
        let _ = timeout(LAST_WORDS, self.writing).await;
    }
}
