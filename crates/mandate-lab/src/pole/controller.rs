//! Five processes of the key-value service at the data centres of an emulated network.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use mandate_kv::{Identity, KvClient, KvStatus};
use mandate_proto::identity::MemberId;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::deployment::{OBSERVER, SERVERS};
use crate::wan::{EmulatedHost, Wan};
use mandate_cli::topology::Topology;

/// The service's name, which certificates carry.
pub const SERVICE: &str = "kv";

/// Each host has an address of its own, so all can have the same ports.
const PORT: u16 = 7000;
const ELECTION_PORT: u16 = 7100;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(5);

/// Data is kept in memory: five members that wait for one disk add milliseconds that no distance explains.
pub(super) const MEMORY: &str = "/dev/shm";

/// The program that runs a member, and how its certificates are made: into `certs` of a directory, for a group.
#[derive(Clone, Debug)]
pub struct Program {
    /// The command, which `node` and what belongs to it are added to.
    pub command: Vec<PathBuf>,
    /// Makes `ca.pem`, and `p1.pem` and `p1.key` for each member.
    pub certificates: fn(&str, &Path, &[MemberId]) -> anyhow::Result<()>,
}

/// A process. It dies with this one.
struct Running {
    process: Child,
    /// When this ends, the process does.
    _input: ChildStdin,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The members of a service, and the network.
pub struct PoleController {
    members: BTreeMap<u32, Running>,
    observer: KvClient,
    // After the client, which runs on it.
    runtime: Option<Runtime>,
    directory: TempDir,
    /// What clients show: the certificate of the first member.
    identity: Identity,
    program: Program,
    flags: BTreeMap<u32, Vec<String>>,
    // After everything that runs on it.
    wan: Wan,
}

impl PoleController {
    /// Starts a new service, each member with these further flags.
    pub fn start(
        program: &Program,
        topology: &Topology,
        seed: u64,
        flags: impl Fn(u32) -> Vec<String>,
    ) -> anyhow::Result<Self> {
        let wan = Wan::start(topology, seed)?;
        let memory = Path::new(MEMORY);
        let within = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("mandate-").tempdir_in(within)?;
        let ids: Vec<_> = SERVERS.map(MemberId::new).collect();
        (program.certificates)(SERVICE, directory.path(), &ids)?;
        let certificate = |kind: &str| directory.path().join(format!("certs/p1.{kind}"));
        let ca = directory.path().join("certs/ca.pem");
        let identity = Identity::from_files(&ca, &certificate("pem"), &certificate("key"))?;
        let host = wan.host(OBSERVER).context("there is nowhere to look from")?;
        let runtime = host.runtime()?;
        let observer = {
            let _inside = runtime.enter();
            client_of(&wan, &identity, &SERVERS.collect::<Vec<_>>(), Duration::from_millis(500))?
        };
        let mut stage = PoleController {
            members: BTreeMap::new(),
            observer,
            runtime: Some(runtime),
            directory,
            identity,
            program: program.clone(),
            flags: SERVERS.map(|server| (server, flags(server))).collect(),
            wan,
        };
        for server in SERVERS {
            stage.spawn(server, true)?;
        }
        Ok(stage)
    }

    /// The network.
    pub fn wan(&self) -> &Wan {
        &self.wan
    }

    /// Where a server is.
    pub fn host(&self, server: u32) -> &EmulatedHost {
        self.wan.host(&format!("p{server}")).expect("every server has a host")
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    fn spawn(&mut self, server: u32, is_new: bool) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.path(log_of(server)))?;
        let (first, rest) = self.program.command.split_first().context("there is no program")?;
        let mut command = Command::new(first);
        command.args(rest).args(["node", "--attended", "--wan", "--service", SERVICE]);
        command.args(["--me", &format!("p{server}")]).arg("--scratch").arg(self.directory.path());
        command.arg("--directory").arg(self.path(format!("p{server}")));
        command.arg("--papers").arg(self.path("certs/ca.pem"));
        for kind in ["pem", "key"] {
            command.arg(self.path(format!("certs/p{server}.{kind}")));
        }
        for (flag, port) in [("--at", PORT), ("--peer", ELECTION_PORT)] {
            for member in SERVERS {
                let address = self.host(member).address;
                command.args([flag, &format!("p{member}={address}:{port}")]);
            }
        }
        command.args(&self.flags[&server]).args(is_new.then_some("--new"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut process = self.host(server).within(|| command.spawn())?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let running = Running { process, _input: input.context("it has no input")? };
        let mut line = String::new();
        BufReader::new(output.context("it has no output")?).read_line(&mut line)?;
        anyhow::ensure!(line == "ready\n", "p{server} does not start:\n{}", self.complaint(server));
        self.members.insert(server, running);
        Ok(())
    }

    /// What a member has said last.
    fn complaint(&self, server: u32) -> String {
        let log = fs::read_to_string(self.path(log_of(server))).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// A client of these servers, which asks the first of them first. To be made, and used, on the runtime of a host.
    pub fn client(&self, servers: &[u32], within: Duration) -> anyhow::Result<KvClient> {
        client_of(&self.wan, &self.identity, servers, within)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the end")
    }

    /// How a member is.
    pub fn status(&self, server: u32) -> Option<KvStatus> {
        self.runtime().block_on(self.observer.status(MemberId::new(server))).ok()
    }

    /// Asks all that are up, again and again, each by itself: an answer is seen when it comes, however late the others are. `seen`
    /// is told of each, and ends this by returning something. `None` if it does not within `patience`.
    pub fn watch<T>(
        &self,
        patience: Duration,
        seen: impl FnMut(KvStatus, Instant) -> Option<T>,
    ) -> Option<T> {
        let ask = |server: u32| async move {
            let answer = self.observer.status(MemberId::new(server)).await;
            (server, answer.ok(), Instant::now())
        };
        let watching = each_by_itself(self.up().collect(), ask, seen);
        self.runtime()
            .block_on(async { tokio::time::timeout(patience, watching).await })
            .ok()
            .flatten()
    }

    /// Who is up.
    pub fn up(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.keys().copied()
    }

    /// Who is not.
    pub fn down(&self) -> BTreeSet<u32> {
        SERVERS.filter(|server| !self.members.contains_key(server)).collect()
    }

    /// Waits until something holds of a member, and says since when it was seen to.
    pub fn until(
        &self,
        server: u32,
        what: &str,
        holds: impl Fn(&KvStatus) -> bool,
    ) -> anyhow::Result<Instant> {
        let began = Instant::now();
        loop {
            let status = self.status(server);
            let seen = Instant::now();
            if status.as_ref().is_some_and(&holds) {
                return Ok(seen);
            }
            anyhow::ensure!(
                began.elapsed() < PATIENCE,
                "waited in vain until p{server} {what}: {status:?}\n{}",
                self.complaint(server)
            );
            sleep(LOOK);
        }
    }

    /// Waits until one member leads both the election and Raft, and all that are up know it; who.
    pub fn settled(&self) -> anyhow::Result<u32> {
        let began = Instant::now();
        loop {
            let statuses: Vec<_> = self.up().filter_map(|server| self.status(server)).collect();
            let leader = statuses.iter().find(|status| status.leads).map(|status| status.member);
            if let Some(leader) = leader
                && statuses.len() == self.members.len()
                && statuses
                    .iter()
                    .all(|it| it.elected == Some(leader) && it.leader == Some(u64::from(leader)))
            {
                return Ok(leader);
            }
            anyhow::ensure!(
                began.elapsed() < PATIENCE,
                "nobody comes to lead: {statuses:#?}\n{}",
                self.up()
                    .map(|it| format!("--- p{it}\n{}\n", self.complaint(it)))
                    .collect::<String>()
            );
            sleep(LOOK);
        }
    }

    /// Asks the leader to hand over; whether it does is another matter.
    pub fn ask_to_move(&self, from: u32, to: u32) {
        let (from, to) = (MemberId::new(from), MemberId::new(to));
        let _ = self.runtime().block_on(self.observer.transfer(from, to));
    }

    /// Has this member lead.
    pub fn place(&self, server: u32) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let leader = self.settled()?;
            if leader == server {
                return Ok(());
            }
            // Looked at again above.
            self.ask_to_move(leader, server);
            anyhow::ensure!(
                began.elapsed() < PATIENCE,
                "leadership could not be moved to p{server}"
            );
            sleep(Duration::from_millis(50));
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self, server: u32) {
        self.members.remove(&server);
    }

    /// Stops a member, or lets it go on.
    pub fn signal(&self, server: u32, signal: Signal) -> anyhow::Result<()> {
        let member = self.members.get(&server).context("it is not up")?;
        Ok(kill_process(Pid::from_child(&member.process), signal)?)
    }

    /// Starts a member again, with what it has on disk.
    pub fn restart(&mut self, server: u32) -> anyhow::Result<()> {
        self.spawn(server, false)
    }
}

/// Asks each of these again [`LOOK`] after its last answer, and passes answers on in the order in which they come.
async fn each_by_itself<A, F, T>(
    servers: Vec<u32>,
    ask: impl Fn(u32) -> F,
    mut seen: impl FnMut(A, Instant) -> Option<T>,
) -> Option<T>
where
    F: Future<Output = (u32, Option<A>, Instant)>,
{
    let ask = &ask;
    let asking = |server: u32, pause: Duration| async move {
        tokio::time::sleep(pause).await;
        ask(server).await
    };
    let mut under_way: FuturesUnordered<_> =
        servers.into_iter().map(|server| asking(server, Duration::ZERO)).collect();
    while let Some((server, answer, at)) = under_way.next().await {
        if let Some(found) = answer.and_then(|answer| seen(answer, at)) {
            return Some(found);
        }
        under_way.push(asking(server, LOOK));
    }
    None
}

fn log_of(server: u32) -> String {
    format!("p{server}.log")
}

fn client_of(
    wan: &Wan,
    identity: &Identity,
    servers: &[u32],
    within: Duration,
) -> anyhow::Result<KvClient> {
    let preferred = *servers.first().context("a client asks somebody")?;
    let mut addresses = BTreeMap::new();
    for server in servers {
        let host = wan.host(&format!("p{server}")).context("there is no such server")?;
        addresses.insert(MemberId::new(*server), format!("{}:{PORT}", host.address));
    }
    Ok(KvClient::new(SERVICE, &addresses, identity, MemberId::new(preferred), within)?)
}

impl Drop for PoleController {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It answers when the others have been looked at ten times.
    #[tokio::test]
    async fn a_member_that_answers_late_delays_no_look_at_the_others() {
        let may_answer = tokio::sync::Notify::new();
        let ask = |server: u32| {
            let may_answer = &may_answer;
            async move {
                if server == 2 {
                    may_answer.notified().await;
                }
                (server, Some(server), Instant::now())
            }
        };
        let mut looks = BTreeMap::<u32, u32>::new();
        let seen = |server: u32, _: Instant| {
            *looks.entry(server).or_default() += 1;
            if [1, 3].iter().all(|it| looks.get(it).is_some_and(|looks| *looks >= 10)) {
                may_answer.notify_one();
            }
            (server == 2).then_some(())
        };
        let watching = each_by_itself(vec![1, 2, 3], ask, seen);
        tokio::time::timeout(PATIENCE, watching).await.expect("all are seen").unwrap();
    }
}
