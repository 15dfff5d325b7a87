//! A cluster of etcd at three data centres of an emulated network, and a sidecar beside each member.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::operator;
use anyhow::Context;
use mandate_cli::topology::Topology;
use mandate_lab::pole::etcd::EtcdStage;
use mandate_proto::identity::MemberId;
use tempfile::TempDir;

use mandate_cli::certs;
use mandate_cli::init::MemberFile;

/// Each host has an address of its own, so all can have the same ports.
const SIDECAR_PORT: u16 = 7100;
const API_PORT: u16 = 8100;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where clients went after a death is known a moment later: what is best for that moment is not what was waited for.
const STAYS: Duration = Duration::from_secs(3);

/// The controller.
pub(super) struct SteerController {
    sidecars: BTreeMap<u32, Child>,
    directory: TempDir,
    program: PathBuf,
    // After everything that runs on its network.
    pub(super) etcd: EtcdStage,
}

impl SteerController {
    pub(super) fn start(topology: &Topology, seed: u64) -> anyhow::Result<Self> {
        let etcd = EtcdStage::start(topology, seed)?;
        let directory = tempfile::Builder::new().prefix("mandate-").tempdir()?;
        let program = std::env::current_exe().context("could not find this program")?;
        Ok(SteerController { sidecars: BTreeMap::new(), directory, program, etcd })
    }

    /// Waits until one of these leads and stays so; how long it took until that began.
    pub(super) fn until_leads(&self, wanted: &[u32]) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let mut since = None;
        loop {
            if self.etcd.leader().is_some_and(|leader| wanted.contains(&leader)) {
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
                self.etcd.leader().map_or("nobody".into(), |leader| format!("p{leader}")),
                self.logs()
            );
            sleep(Duration::from_millis(5));
        }
    }

    /// Starts a sidecar beside each member.
    pub(super) fn steer(&mut self, tables: &str) -> anyhow::Result<()> {
        let members: Vec<_> = self.etcd.up().map(MemberId::new).collect();
        certs::make_for_a_day("lab", self.directory.path(), &members)?;
        for me in members.iter().copied() {
            let at = |member: MemberId| {
                SocketAddr::from((self.etcd.host(member.get()).address, SIDECAR_PORT))
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
            let host = self.etcd.host(me.get());
            let mut command = Command::new(&self.program);
            command.args(["wan", "enter"]).arg(host.namespace_path()).arg("--");
            // It dies with this process, however that ends.
            command.arg(&self.program).args([operator::COMMAND, "become"]).arg("--guard");
            command.arg(std::process::id().to_string()).arg("--").arg(&self.program);
            command.args([operator::COMMAND, "steer", "etcd", "--new", "--config"]).arg(config);
            command.args(["--every", "200ms", "--pause", "1s", "--etcd"]);
            command.arg(self.etcd.url(me.get()).context("it is up")?).stdin(Stdio::null());
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
        self.etcd.kill(server)
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

impl Drop for SteerController {
    fn drop(&mut self) {
        for sidecar in self.sidecars.values_mut() {
            let _ = sidecar.kill();
            let _ = sidecar.wait();
        }
    }
}
