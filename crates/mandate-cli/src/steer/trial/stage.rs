//! Five members of etcd at three data centres of an emulated network, and a sidecar beside each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use mandate_etcd::client::{Access, Endpoint, EtcdId, Position};
use mandate_lab::topology::Topology;
use mandate_lab::wan::Wan;
use mandate_proto::identity::MemberId;
use mandate_servers::Server;
use mandate_servers::etcd::{Etcd, EtcdConfig};
use tempfile::TempDir;

use crate::certs;
use crate::init::MemberFile;

/// Each host has an address of its own, so all can have the same ports.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
const SIDECAR_PORT: u16 = 7100;
const API_PORT: u16 = 8100;

/// For what etcd is asked by the stage itself.
const ANSWER: Duration = Duration::from_secs(1);

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where clients went after a death is known a moment later: what is best for that moment is not what was waited for.
const STAYS: Duration = Duration::from_secs(3);

/// Data is kept in memory: five members that wait for one disk add up to 27 ms, which no distance explains.
const MEMORY: &str = "/dev/shm";

/// The stage.
pub(super) struct Stage {
    sidecars: BTreeMap<u32, Child>,
    members: BTreeMap<u32, Etcd>,
    ids: BTreeMap<u32, EtcdId>,
    directory: TempDir,
    program: PathBuf,
    // After everything that runs on it.
    pub(super) wan: Wan,
}

impl Stage {
    pub(super) fn start(topology: &Topology, seed: u64) -> anyhow::Result<Self> {
        let wan = Wan::start(topology, seed)?;
        let directory = tempfile::Builder::new().prefix("mandate-").tempdir()?;
        let memory = Path::new(MEMORY);
        let within = memory.is_dir().then(|| memory.to_owned());
        let at = |server: u32, port: u16| SocketAddr::from((address(&wan, server), port));
        let cluster: Vec<_> = (1..=5).map(|id| (format!("p{id}"), at(id, PEER_PORT))).collect();
        let mut members = BTreeMap::new();
        for server in 1..=5 {
            let config = EtcdConfig {
                name: format!("p{server}"),
                client: at(server, CLIENT_PORT),
                peer: at(server, PEER_PORT),
                cluster: cluster.clone(),
                heartbeat: Duration::from_millis(100),
                election: Duration::from_millis(1000),
                tls: None,
                within: within.clone(),
            };
            let host = wan.host(&format!("p{server}")).context("every server has a host")?;
            members.insert(server, host.within(|| Etcd::launch(config))?);
        }
        let program = std::env::current_exe().context("could not find this program")?;
        let mut stage = Stage {
            sidecars: BTreeMap::new(),
            members,
            ids: BTreeMap::new(),
            directory,
            program,
            wan,
        };
        let began = Instant::now();
        while stage.leader().is_none() {
            anyhow::ensure!(began.elapsed() < PATIENCE, "etcd elects no leader");
            sleep(Duration::from_millis(20));
        }
        for server in 1..=5 {
            let position = stage.position(server).context("a member of etcd does not answer")?;
            stage.ids.insert(server, position.member);
        }
        Ok(stage)
    }

    /// Where clients find each member.
    pub(super) fn urls(&self) -> BTreeMap<u32, String> {
        self.members.iter().map(|(server, member)| (*server, member.url())).collect()
    }

    fn up(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.keys().copied()
    }

    fn on<T: Send>(&self, server: u32, work: impl FnOnce() -> T + Send) -> T {
        self.wan.host(&format!("p{server}")).expect("every server has a host").within(work)
    }

    /// What a member says, asked beside it.
    fn position(&self, server: u32) -> Option<Position> {
        let url = self.members.get(&server)?.url();
        let endpoint = Endpoint::new(&url, &Access::default()).ok()?;
        self.on(server, || endpoint.position(ANSWER).ok())
    }

    /// Who leads, as it says itself.
    pub(super) fn leader(&self) -> Option<u32> {
        self.up()
            .find(|server| self.position(*server).is_some_and(|it| it.leader == Some(it.member)))
    }

    /// Has this member lead.
    pub(super) fn place(&self, server: u32) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let leader = self.leader();
            if leader == Some(server) {
                return Ok(());
            }
            if let Some(leader) = leader {
                let url = self.members[&leader].url();
                let endpoint = Endpoint::new(&url, &Access::default())?;
                let to = self.ids[&server];
                // Looked at again below.
                let _ = self.on(leader, || endpoint.move_leader(to, Duration::from_secs(3)));
            }
            anyhow::ensure!(
                began.elapsed() < PATIENCE,
                "leadership could not be moved to p{server}"
            );
            sleep(Duration::from_millis(50));
        }
    }

    /// Waits until one of these leads and stays so; how long it took until that began.
    pub(super) fn until_leads(&self, wanted: &[u32]) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let mut since = None;
        loop {
            if self.leader().is_some_and(|leader| wanted.contains(&leader)) {
                let since = *since.get_or_insert_with(Instant::now);
                if since.elapsed() >= STAYS {
                    return Ok(since - began);
                }
            } else {
                since = None;
            }
            anyhow::ensure!(
                began.elapsed() < PATIENCE,
                "p{wanted:?} should lead, and {} does\n{}",
                self.leader().map_or("nobody".into(), |leader| format!("p{leader}")),
                self.logs()
            );
            sleep(Duration::from_millis(5));
        }
    }

    /// Starts a sidecar beside each member.
    pub(super) fn steer(&mut self, tables: &str) -> anyhow::Result<()> {
        let members: Vec<_> = self.up().map(MemberId::new).collect();
        certs::make_for_a_day("lab", self.directory.path(), &members)?;
        for me in members.iter().copied() {
            let at = |member: MemberId| {
                SocketAddr::from((address(&self.wan, member.get()), SIDECAR_PORT))
            };
            let others = members.iter().filter(|id| **id != me);
            let file = MemberFile {
                group: "lab",
                me,
                listen: at(me),
                api: (Ipv4Addr::LOCALHOST, API_PORT).into(),
                peers: others.map(|id| (*id, at(*id).to_string())).collect(),
                tables,
            };
            let config = file.write(self.directory.path())?;
            let log = File::create(self.log(me.get()))?;
            let host = self.wan.host(&me.to_string()).context("every server has a host")?;
            let mut command = Command::new(&self.program);
            command.args(["lab", "wan", "enter"]).arg(host.namespace_path()).arg("--");
            // It dies with this process, however that ends.
            command.arg(&self.program).arg("become").arg("--guard");
            command.arg(std::process::id().to_string()).arg("--").arg(&self.program);
            command.args(["steer", "etcd", "--new", "--config"]).arg(config);
            command.args(["--every", "200ms", "--pause", "1s", "--etcd"]);
            command.arg(self.members[&me.get()].url()).stdin(Stdio::null());
            command.stdout(log.try_clone()?).stderr(log);
            let child = command.spawn().context("could not start a sidecar")?;
            self.sidecars.insert(me.get(), child);
        }
        Ok(())
    }

    /// Ends a member and its sidecar, as a crash of their host does.
    pub(super) fn crash(&mut self, server: u32) -> anyhow::Result<()> {
        if let Some(mut sidecar) = self.sidecars.remove(&server) {
            sidecar.kill()?;
            sidecar.wait()?;
        }
        if let Some(mut member) = self.members.remove(&server) {
            member.kill()?;
        }
        Ok(())
    }

    /// Those that are not up.
    pub(super) fn down(&self) -> BTreeSet<u32> {
        (1..=5).filter(|server| !self.members.contains_key(server)).collect()
    }

    fn log(&self, server: u32) -> PathBuf {
        self.directory.path().join(format!("p{server}.log"))
    }

    /// What sidecars said.
    fn logs(&self) -> String {
        let log = |server: &u32| {
            let text = fs::read_to_string(self.log(*server)).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            format!("--- p{server}\n{}\n", lines[lines.len().saturating_sub(15)..].join("\n"))
        };
        self.sidecars.keys().map(log).collect()
    }
}

fn address(wan: &Wan, server: u32) -> Ipv4Addr {
    wan.host(&format!("p{server}")).expect("every server has a host").address
}

impl Drop for Stage {
    fn drop(&mut self) {
        for sidecar in self.sidecars.values_mut() {
            let _ = sidecar.kill();
            let _ = sidecar.wait();
        }
    }
}
