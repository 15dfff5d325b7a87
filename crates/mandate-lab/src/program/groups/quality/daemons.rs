//! Daemons on an emulated network: real `mandate node` processes, one on each host.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::operator;
use anyhow::Context;
use mandate_cli::topology::Topology;
use mandate_conformance::process::ChildProcess;
use mandate_lab::wan::fault::NetworkFault;
use mandate_lab::wan::{EmulatedHost, Wan};
use mandate_proto::identity::MemberId;
use tempfile::TempDir;

use crate::groups::chaos::environment::SITES;
use mandate_cli::certs;
use mandate_cli::client::DaemonClient;
use mandate_cli::init::MemberFile;
use mandate_cli::node::chronicle::EventDocument;
use mandate_cli::node::document::StatusDocument;

const GROUP: &str = "lab";

/// Each member has an address of its own, so all can have the same ports.
const PORT: u16 = 7100;
const API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8100);

/// What a daemon said, and when this process read it, in milliseconds since 1970 by the clock of all.
pub(super) struct Said {
    pub(super) member: MemberId,
    pub(super) event: EventDocument,
}

pub(super) struct Daemons {
    wan: Wan,
    directory: TempDir,
    processes: BTreeMap<MemberId, ChildProcess>,
    said: Arc<Mutex<Vec<Said>>>,
}

impl Daemons {
    /// Starts a group of so many over these links.
    pub(super) fn start(
        links: &str,
        tables: &str,
        members: u32,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let mut text = links.to_owned();
        for (number, site) in (1..=members).zip(SITES.iter().cycle()) {
            text += &format!("[[server]]\nid = 'p{number}'\nsite = '{site}'\n");
        }
        let topology = Topology::parse(&text).context("the experiment's own topology")?;
        let wan = Wan::start(&topology, seed)?;
        let directory = tempfile::Builder::new().prefix("mandate-quality-").tempdir()?;
        let ids: Vec<_> = (1..=members).map(MemberId::new).collect();
        certs::make_for_a_day(GROUP, directory.path(), &ids)?;
        let mut daemons =
            Daemons { wan, directory, processes: BTreeMap::new(), said: Arc::default() };
        for me in &ids {
            let others = ids.iter().filter(|id| *id != me);
            let peers = others.map(|id| Ok((*id, daemons.address(*id)?.to_string())));
            let file = MemberFile {
                group: GROUP,
                me: *me,
                listen: daemons.address(*me)?,
                api: API,
                peers: peers.collect::<anyhow::Result<_>>()?,
                tables,
            };
            file.write(daemons.directory.path())?;
        }
        for id in ids {
            daemons.run(id, true)?;
        }
        Ok(daemons)
    }

    fn host(&self, member: MemberId) -> anyhow::Result<&EmulatedHost> {
        self.wan.host(&member.to_string()).context("every member has a host")
    }

    fn address(&self, member: MemberId) -> anyhow::Result<SocketAddr> {
        Ok((self.host(member)?.address, PORT).into())
    }

    fn run(&mut self, member: MemberId, is_new: bool) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("could not find this program")?;
        let mut command = Command::new(&program);
        command.args(["wan", "enter"]).arg(self.host(member)?.namespace_path()).arg("--");
        // It dies with this process, whatever ends that.
        let me = std::process::id().to_string();
        command
            .arg(&program)
            .args([operator::COMMAND, "become", "--guard", &me, "--"])
            .arg(&program);
        command.args([operator::COMMAND, "node", "--config"]);
        command.arg(self.directory.path().join(format!("{member}.toml")));
        if is_new {
            command.arg("--new");
        }
        let log = self.log(member)?;
        let process = ChildProcess::spawn(&mut command, log, |_| {});
        let process = process.with_context(|| format!("could not start {member}"))?;
        self.processes.insert(member, process);
        self.listen(member)
    }

    fn log(&self, member: MemberId) -> anyhow::Result<File> {
        let path = self.directory.path().join(format!("{member}.log"));
        Ok(OpenOptions::new().create(true).append(true).open(path)?)
    }

    /// Reads what a daemon says, from its start until its end.
    fn listen(&self, member: MemberId) -> anyhow::Result<()> {
        let said = self.said.clone();
        let namespace = self.host(member)?.namespace_path();
        thread::Builder::new().name(format!("{member} says")).spawn(move || {
            if mandate_lab::wan::namespace::enter(&namespace).is_err() {
                return;
            }
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(10) {
                let client = DaemonClient::on_loopback(API);
                let Ok(lines) = client.lines("/v1/events?after=0") else {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                };
                for line in lines.map_while(Result::ok) {
                    let data = line.strip_prefix("data:").map(str::trim);
                    if let Some(Ok(event)) = data.map(serde_json::from_str) {
                        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                        said.push(Said { member, event });
                    }
                }
                return;
            }
        })?;
        Ok(())
    }

    /// Members that run.
    pub(super) fn running(&self) -> Vec<MemberId> {
        self.processes.keys().copied().collect()
    }

    pub(super) fn status(&self, member: MemberId) -> anyhow::Result<StatusDocument> {
        self.host(member)?.within(|| DaemonClient::on_loopback(API).get("/v1/status"))
    }

    /// A page of a daemon, as it is.
    pub(super) fn page(&self, member: MemberId, path: &str) -> anyhow::Result<String> {
        self.host(member)?.within(|| DaemonClient::on_loopback(API).page(path))
    }

    /// Waits until all that run name the same leader, and it is one of them.
    pub(super) fn agree(&self, within: Duration) -> anyhow::Result<MemberId> {
        let began = Instant::now();
        loop {
            let named: Vec<_> = self
                .running()
                .into_iter()
                .map(|id| self.status(id).ok().and_then(|status| status.leader))
                .collect();
            if let Some(Some(leader)) = named.first()
                && named.iter().all(|other| other.as_ref() == Some(leader))
            {
                let leader: MemberId = leader.parse()?;
                if self.processes.contains_key(&leader) {
                    return Ok(leader);
                }
            }
            anyhow::ensure!(
                began.elapsed() < within,
                "no agreement within {within:?}: {named:?}; logs are lost with this run, so repeat it with \
                 a shorter --time"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The host of a member dies: nothing of it reaches anyone any more, not even that it died.
    pub(super) fn crash(&mut self, member: MemberId) -> anyhow::Result<()> {
        self.wan.inflict(&NetworkFault::Cut { a: member.to_string(), b: "all".into() })?;
        let process = self.processes.remove(&member);
        process.context("it runs")?.kill().with_context(|| format!("could not kill {member}"))
    }

    /// And comes back.
    pub(super) fn revive(&mut self, member: MemberId) -> anyhow::Result<()> {
        self.wan.heal();
        self.run(member, false)
    }

    /// What was said since this was last asked.
    pub(super) fn said(&self) -> Vec<Said> {
        std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
