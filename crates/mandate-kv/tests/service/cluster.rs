//! Members as processes, gone at the end of the test however it ends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mandate_kv::{Identity, KvClient, KvStatus};
use mandate_proto::identity::MemberId;
use mandate_servers::testing;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) const SERVICE: &str = "kv";

/// Arguments with which nobody is ever a candidate of the election, so that nobody directs Raft.
pub(crate) const UNDIRECTED: [&str; 4] = ["--preference", "never", "--patience", "500ms"];

/// For what hangs.
pub(crate) const BOUND: Duration = Duration::from_secs(90);

/// How often is tried what a busy machine may get in the way of.
pub(crate) const ATTEMPTS: u32 = 10;

/// One cluster at a time: the tests inject faults, and clusters must not starve each other.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) struct Cluster {
    directory: TempDir,
    pub(crate) addresses: BTreeMap<MemberId, String>,
    peers: BTreeMap<MemberId, String>,
    extra: Vec<String>,
    running: BTreeMap<MemberId, Running>,
    _alone: MutexGuard<'static, ()>,
}

struct Running {
    process: Child,
    /// When this ends, the process does, too.
    _input: ChildStdin,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

impl Cluster {
    /// Starts so many members for the first time, each with these further arguments.
    pub(crate) fn start(size: u32, extra: &[&str]) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir().unwrap();
        let ports = mandate_servers::free_ports(2 * size as usize).unwrap();
        let at = |offset: usize| {
            let address =
                |id: u32| (p(id), format!("127.0.0.1:{}", ports[offset + id as usize - 1]));
            (1..=size).map(address).collect::<BTreeMap<_, _>>()
        };
        let mut cluster = Cluster {
            addresses: at(0),
            peers: at(size as usize),
            extra: extra.iter().map(ToString::to_string).collect(),
            running: BTreeMap::new(),
            directory,
            _alone: alone,
        };
        cluster.write_papers();
        for id in 1..=size {
            cluster.spawn(p(id), &["--new"]);
        }
        cluster
    }

    fn write_papers(&self) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        fs::write(self.path("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let members = self.addresses.keys().map(ToString::to_string);
        for name in members.chain(["client".to_owned()]) {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![format!("{name}.{SERVICE}.mandate")]).unwrap();
            let chain = params.signed_by(&key, &issuer).unwrap().pem();
            fs::write(self.path(&format!("{name}.pem")), chain).unwrap();
            fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
    }

    /// Of a client, or a member, by its name.
    fn identity(&self, name: &str) -> Identity {
        let file = |kind: &str| self.path(&format!("{name}.{kind}"));
        Identity::from_files(&self.path("ca.pem"), &file("pem"), &file("key")).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn spawn(&mut self, id: MemberId, extra: &[&str]) {
        self.try_spawn(id, extra, &[]).unwrap_or_else(|complaint| panic!("{complaint}"));
    }

    /// Starts a member, by a program that starts it if one is named; if it ends at once, what it complains of.
    fn try_spawn(&mut self, id: MemberId, extra: &[&str], wrapper: &[&str]) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(self.path(&format!("{id}.log")));
        let program = env!("CARGO_BIN_EXE_mandate-kv");
        let mut words = wrapper.iter().copied().chain([program]);
        let mut command = Command::new(words.next().unwrap_or(program));
        command.args(words);
        command.args(["node", "--attended", "--service", SERVICE, "--me", &id.to_string()]);
        command.arg("--directory").arg(self.data(id));
        command.arg("--papers").arg(self.path("ca.pem"));
        command.arg(self.path(&format!("{id}.pem"))).arg(self.path(&format!("{id}.key")));
        for (flag, addresses) in [("--at", &self.addresses), ("--peer", &self.peers)] {
            for (member, address) in addresses {
                command.args([flag, &format!("{member}={address}")]);
            }
        }
        command.args(["--interval", "50ms", "--detect", "500ms"]).args(&self.extra).args(extra);
        // What it complains of comes last, not where that was found.
        command.env_remove("RUST_BACKTRACE").env_remove("RUST_LIB_BACKTRACE");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.unwrap());
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let running = Running { process, _input: input };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        if line != "ready\n" {
            return Err(self.complaint(id));
        }
        self.running.insert(id, running);
        Ok(())
    }

    /// Where a member keeps log, snapshots and the election's state.
    pub(crate) fn data(&self, id: MemberId) -> PathBuf {
        self.path(&format!("{id}.data"))
    }

    /// Starts a member again; if it refuses, what it says.
    pub(crate) fn try_restart(&mut self, id: MemberId) -> Result<(), String> {
        self.try_spawn(id, &[], &[])
    }

    /// Starts a member again with files of at most so many kilobytes: a disk that is full.
    pub(crate) fn restart_with_a_disk_of(&mut self, id: MemberId, kilobytes: u64) {
        // Ignored, the signal leaves an error of the write.
        let script = format!("trap '' XFSZ; ulimit -f {kilobytes}; exec \"$@\"");
        self.try_spawn(id, &[], &["bash", "-c", &script, "bash"]).unwrap();
    }

    /// Waits until a member's process has ended by itself, and whether that was a success.
    pub(crate) async fn ends(&mut self, id: MemberId) -> bool {
        let began = Instant::now();
        loop {
            let running = self.running.get_mut(&id).unwrap();
            if let Some(status) = running.process.try_wait().unwrap() {
                self.running.remove(&id);
                return status.success();
            }
            assert!(began.elapsed() < BOUND, "{id} does not end: {}", self.complaint(id));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What a member has complained of.
    pub(crate) fn complaint(&self, id: MemberId) -> String {
        let log = fs::read_to_string(self.path(&format!("{id}.log"))).unwrap_or_default();
        let last: Vec<_> = log.lines().rev().take(20).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, id: MemberId) {
        self.running.remove(&id);
    }

    /// Starts it again, with what is on its disk.
    pub(crate) fn restart(&mut self, id: MemberId) {
        self.spawn(id, &[]);
    }

    /// Stops a member where it is. When this returns, it does nothing any more.
    pub(crate) fn pause(&self, id: MemberId) {
        testing::pause(&self.running[&id].process);
    }

    /// Lets it go on.
    pub(crate) fn resume(&self, id: MemberId) {
        testing::resume(&self.running[&id].process);
    }

    /// Asks it to end (SIGTERM).
    pub(crate) fn terminate(&self, id: MemberId) {
        kill_process(Pid::from_child(&self.running[&id].process), Signal::TERM).unwrap();
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = MemberId> + use<> {
        self.addresses.keys().copied().collect::<Vec<_>>().into_iter()
    }

    pub(crate) fn is_running(&self, id: MemberId) -> bool {
        self.running.contains_key(&id)
    }

    /// A client that asks one of them first.
    pub(crate) fn client(&self, preferred: MemberId, within: Duration) -> KvClient {
        KvClient::new(SERVICE, &self.addresses, &self.identity("client"), preferred, within)
            .unwrap()
    }

    /// Waits until a member leads both the election and Raft, and says who.
    pub(crate) async fn settled(&self) -> MemberId {
        self.wait("one member to lead election and Raft", |statuses| {
            let leader = self.leader_of_majority(statuses)?;
            let agreed = statuses.values().all(|status| {
                status.elected == Some(leader.member) && status.leader == Some(leader.member.into())
            });
            agreed.then_some(p(leader.member))
        })
        .await
    }

    /// Has leadership moved to the next member; who leads then.
    pub(crate) async fn move_on(&self) -> MemberId {
        let next = p(self.settled().await.get() % self.addresses.len() as u32 + 1);
        self.move_to(next).await;
        next
    }

    /// Has leadership moved to a member, if it does not lead already. Tried again where a busy machine made the group elect
    /// meanwhile.
    pub(crate) async fn move_to(&self, to: MemberId) {
        let began = Instant::now();
        loop {
            let leader = self.settled().await;
            if leader == to {
                return;
            }
            let asked = self.client(leader, BOUND).transfer(leader, to).await;
            assert!(began.elapsed() < BOUND, "leadership does not move to {to}: {asked:?}");
        }
    }

    /// Waits until a member leads Raft, whether or not anyone directs it, and says who.
    pub(crate) async fn led(&self) -> MemberId {
        p(self.leader().await.member)
    }

    /// The status of the member that leads Raft.
    pub(crate) async fn leader(&self) -> KvStatus {
        self.wait("a leader of Raft", |statuses| self.leader_of_majority(statuses).cloned()).await
    }

    /// The status of the member that leads Raft, once a majority has the list of members in its log: before that, the others depend
    /// on the member that made the service, and elect nobody when it is killed.
    fn leader_of_majority<'a>(
        &self,
        statuses: &'a BTreeMap<MemberId, KvStatus>,
    ) -> Option<&'a KvStatus> {
        let with_a_log = statuses.values().filter(|status| status.last_index.is_some()).count();
        let is_made = with_a_log * 2 > self.addresses.len();
        statuses.values().find(|status| is_made && status.leads)
    }

    /// Writes with a client that gives up early, until that is done.
    pub(crate) async fn put(&self, client: &mut KvClient, value: &str) {
        let began = Instant::now();
        while let Err(error) = client.put("key", value.to_owned()).await {
            assert!(began.elapsed() < BOUND, "{error}");
        }
    }

    /// Waits until something holds of the members that answer.
    pub(crate) async fn wait<T>(
        &self,
        what: &str,
        holds: impl Fn(&BTreeMap<MemberId, KvStatus>) -> Option<T>,
    ) -> T {
        let client = self.client(p(1), Duration::from_millis(500));
        let began = Instant::now();
        loop {
            let mut statuses = BTreeMap::new();
            for id in self.members().filter(|id| self.is_running(*id)) {
                if let Ok(status) = client.status(id).await {
                    statuses.insert(id, status);
                }
            }
            if let Some(found) = holds(&statuses) {
                return found;
            }
            let complaints: String =
                self.members().map(|id| format!("{id}: {}\n", self.complaint(id))).collect();
            assert!(
                began.elapsed() < BOUND,
                "waited in vain for {what}: {statuses:#?}\n{complaints}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
