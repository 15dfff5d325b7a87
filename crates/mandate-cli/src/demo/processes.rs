//! The members of the demo: real processes of this very program.
//!
//! They die with the demo, whatever ends it: each asks the kernel to be killed with its parent before it becomes
//! `mandate node`. A stopped one dies, too. What they have written goes with a process that waits for the end of
//! its input, which is the end of the demo.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::relay::Relays;
use anyhow::Context;
use mandate_proto::identity::MemberId;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::certs;
use crate::init::MemberFile;

/// Where the members are, as far as delays go.
pub(super) const PLACES: [&str; 5] = ["Geneva", "London", "New York", "Chicago", "Seattle"];

/// Round trips between them in milliseconds, about as the wide area has them.
const ROUND_TRIPS: [[u64; 5]; 5] = [
    [0, 16, 74, 80, 80],
    [16, 0, 62, 74, 80],
    [74, 62, 0, 18, 56],
    [80, 74, 18, 0, 42],
    [80, 80, 56, 42, 0],
];

/// How they detect and elect: short times, so that there is something to see.
const TABLES: &str = "[detection]\ninterval = \"150ms\"\nwithin = \"700ms\"\n\n\
    [election]\nguarantee = \"leased\"\nlease = \"700ms\"\ntimeout = \"400ms\"\noracle = \"latency/10ms, history\"\n\n\
    [moves]\nevery = \"500ms\"\nthreshold = 0.1\ntenure = \"3s\"\n";

/// Below what systems give to outgoing connections, so that a member's port is still free when it is revived.
const FIRST_PORT: u32 = 20_000;
const LAST_PORT: u32 = 32_000;

/// Two for each member, and some for those that are taken. Demos at the same time look in different blocks: a port
/// that is found free is not taken before its member starts.
const BLOCK: u32 = 12;

/// What a member has said.
pub(super) struct Line {
    pub(super) member: MemberId,
    pub(super) text: String,
}

/// How a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Condition {
    Running,
    Paused,
    CutOff,
    Dead,
}

/// All members.
pub(super) struct DemoProcesses {
    directory: TempDir,
    members: BTreeMap<MemberId, Actor>,
    relays: Relays,
    /// Who is cut off.
    cut: BTreeSet<MemberId>,
    said: mpsc::UnboundedSender<Line>,
    /// Waits for the end of the demo, and removes what it has written.
    _sweeper: Child,
}

struct Actor {
    api: SocketAddr,
    process: Option<Child>,
    is_paused: bool,
    has_lived: bool,
}

impl DemoProcesses {
    /// Certificates, configurations and relays; nobody runs yet.
    pub(super) async fn prepare(said: mpsc::UnboundedSender<Line>) -> anyhow::Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("mandate-demo-").tempdir().context("no directory")?;
        let sweeper = sweeper(directory.path())?;
        let ids: Vec<_> = (1..=PLACES.len() as u32).map(MemberId::new).collect();
        certs::make_for_a_day("demo", directory.path(), &ids)?;
        let blocks = (LAST_PORT - FIRST_PORT) / BLOCK;
        let first = FIRST_PORT + std::process::id() % blocks * BLOCK;
        let mut ports = (first..LAST_PORT).filter_map(|port| u16::try_from(port).ok());
        let mut free = || free_address(&mut ports);
        let places = ids.iter().map(|id| Ok((*id, (free()?, free()?))));
        let places: BTreeMap<_, _> = places.collect::<anyhow::Result<_>>()?;
        let listening = places.iter().map(|(id, (listen, _))| (*id, *listen)).collect();
        let relays = Relays::start(&listening).await.context("could not start the relays")?;
        let mut members = BTreeMap::new();
        for (me, (listen, api)) in &places {
            let mut peers = Vec::new();
            for other in places.keys().filter(|other| *other != me) {
                let delay = Duration::from_millis(ROUND_TRIPS[place(*me)][place(*other)]) / 2;
                relays.delay(*me, *other, delay);
                let relay = relays.address(*me, *other).context("every pair has a relay")?;
                peers.push((*other, relay.to_string()));
            }
            let file = MemberFile {
                group: "demo",
                me: *me,
                listen: *listen,
                api: *api,
                peers,
                tables: TABLES,
            };
            file.write(directory.path())?;
            let actor = Actor { api: *api, process: None, is_paused: false, has_lived: false };
            members.insert(*me, actor);
        }
        Ok(DemoProcesses {
            directory,
            members,
            relays,
            cut: BTreeSet::new(),
            said,
            _sweeper: sweeper,
        })
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (MemberId, SocketAddr)> + '_ {
        self.members.iter().map(|(id, actor)| (*id, actor.api))
    }

    pub(super) fn condition(&self, id: MemberId) -> Condition {
        match &self.members[&id] {
            Actor { process: None, .. } => Condition::Dead,
            Actor { is_paused: true, .. } => Condition::Paused,
            _ if self.cut.contains(&id) => Condition::CutOff,
            _ => Condition::Running,
        }
    }

    /// Starts a member that does not run.
    fn start(&mut self, id: MemberId) -> anyhow::Result<()> {
        let actor = self.members.get_mut(&id).context("no such member")?;
        let program = std::env::current_exe().context("could not find this program")?;
        let log = self.directory.path().join(format!("{id}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = Command::new(&program);
        let demo = std::process::id().to_string();
        command.args(["become", "--guard", &demo, "--"]).arg(&program).args(["node", "--config"]);
        command.arg(self.directory.path().join(format!("{id}.toml")));
        if !actor.has_lived {
            command.arg("--new");
        }
        // A group of its own: the terminal's Ctrl-C is for the demo, which then ends all.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut process =
            command.kill_on_drop(true).spawn().with_context(|| format!("could not start {id}"))?;
        if let Some(out) = process.stdout.take() {
            let said = self.said.clone();
            tokio::spawn(async move {
                let mut lines = BufReader::new(out).lines();
                while let Ok(Some(text)) = lines.next_line().await {
                    let _ = said.send(Line { member: id, text });
                }
            });
        }
        actor.process = Some(process);
        actor.has_lived = true;
        Ok(())
    }

    pub(super) fn start_all(&mut self) -> anyhow::Result<()> {
        let ids: Vec<_> = self.members.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.start(id))
    }

    pub(super) async fn kill(&mut self, id: MemberId) -> anyhow::Result<()> {
        let actor = self.members.get_mut(&id).context("no such member")?;
        actor.is_paused = false;
        if let Some(mut process) = actor.process.take() {
            process.kill().await.with_context(|| format!("could not kill {id}"))?;
        }
        Ok(())
    }

    pub(super) fn pause(&mut self, id: MemberId) -> anyhow::Result<()> {
        self.signal(id, Signal::STOP)?;
        self.set_paused(id, true);
        Ok(())
    }

    pub(super) fn cut_off(&mut self, id: MemberId) {
        self.cut.insert(id);
        self.relays.isolate(id);
    }

    /// Undoes whatever was done to a member.
    pub(super) fn revive(&mut self, id: MemberId) -> anyhow::Result<()> {
        self.cut.remove(&id);
        self.relays.heal_all();
        self.cut.iter().for_each(|other| self.relays.isolate(*other));
        if self.members[&id].process.is_none() {
            return self.start(id);
        }
        self.signal(id, Signal::CONT)?;
        self.set_paused(id, false);
        Ok(())
    }

    /// A member that has ended by itself, with the end of its log.
    pub(super) fn ended(&mut self) -> Option<(MemberId, String)> {
        let has_ended = |actor: &mut Actor| {
            actor.process.as_mut().is_some_and(|it| !matches!(it.try_wait(), Ok(None)))
        };
        let (id, actor) =
            self.members.iter_mut().find_map(|(id, it)| has_ended(it).then_some((id, it)))?;
        actor.process = None;
        let log = self.directory.path().join(format!("{id}.log"));
        let log = std::fs::read_to_string(log).unwrap_or_default();
        Some((*id, log.lines().next_back().unwrap_or("it said nothing").to_owned()))
    }

    /// Ends all, and removes what they have written.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        let ids: Vec<_> = self.members.keys().copied().collect();
        for id in ids {
            self.kill(id).await?;
        }
        let shown = self.directory.path().display().to_string();
        self.directory.close().with_context(|| format!("could not remove {shown}"))
    }

    fn signal(&self, id: MemberId, signal: Signal) -> anyhow::Result<()> {
        let process = self.members[&id].process.as_ref().and_then(Child::id);
        let process = process.with_context(|| format!("{id} does not run"))?;
        let process = Pid::from_raw(i32::try_from(process)?).context("a process has a number")?;
        kill_process(process, signal).with_context(|| format!("could not signal {id}"))
    }

    fn set_paused(&mut self, id: MemberId, is_paused: bool) {
        if let Some(actor) = self.members.get_mut(&id) {
            actor.is_paused = is_paused;
        }
    }
}

pub(super) fn place(id: MemberId) -> usize {
    id.get() as usize - 1
}

/// An address on loopback that is free for UDP and TCP.
fn free_address(ports: &mut impl Iterator<Item = u16>) -> anyhow::Result<SocketAddr> {
    let is_free = |port: &u16| {
        let address = (Ipv4Addr::LOCALHOST, *port);
        TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
    };
    let port = ports.find(is_free).context("no port is free")?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// A process that removes the directory when the demo has ended, however that came about.
fn sweeper(directory: &Path) -> anyhow::Result<Child> {
    let script = "cat > /dev/null; rm -rf -- \"$0\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(directory).stdin(Stdio::piped()).stdout(Stdio::null());
    // Not in our group, whose signals are not for it.
    command.process_group(0).spawn().context("could not start `sh`, which would clean up")
}
