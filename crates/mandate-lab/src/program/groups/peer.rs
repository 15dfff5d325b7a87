//! The peer engine under test: members on loopback, with relays between them if their ways are to be cut.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::operator;
use anyhow::Context;
use mandate_cli::relay::Relays;
use mandate_conformance::cancellation::{Handle, Handles};
use mandate_conformance::subject::{EngineUnderTest, Members, NetworkFaults, SetupError};
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_runtime::{Election, Start};
use tokio::runtime::Runtime;

use super::guarantee_text;
use mandate_cli::certs;
use mandate_cli::init::{self, MemberFile};

pub(super) const GROUP: &str = "lab";

/// For elections: round trips are short on one host.
const TIMEOUT: Duration = Duration::from_millis(200);

/// A group of the peer engine, with the detection of a configuration that says nothing about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peers {
    pub(super) guarantee: PeerGuarantee,
    /// Whether members reach each other through relays.
    pub(super) with_cables: bool,
}

impl EngineUnderTest for Peers {
    fn name(&self) -> String {
        format!("peer, {}", guarantee_text(self.guarantee))
    }

    fn guarantee(&self) -> PeerGuarantee {
        self.guarantee
    }

    fn group(&self, size: u32, directory: &Path) -> Result<Box<dyn Members>, SetupError> {
        Ok(Box::new(PeerGroup::make(*self, size, directory)?))
    }
}

/// The files of a group, and the relays between its members.
pub(super) struct PeerGroup {
    program: PathBuf,
    directory: PathBuf,
    apis: BTreeMap<MemberId, SocketAddr>,
    relays: Option<Relays>,
    // Ends after the relays that run on it.
    _runtime: Option<Runtime>,
}

impl PeerGroup {
    pub(super) fn make(peers: Peers, size: u32, directory: &Path) -> anyhow::Result<Self> {
        let members: Vec<_> = (1..=size).map(MemberId::new).collect();
        certs::make_for_a_day(GROUP, directory, &members)?;
        let mut ports = free_addresses(members.len() * 4)?.into_iter();
        let mut listening = || members.iter().copied().zip(ports.by_ref()).collect();
        let [listen, apis, twins, twin_apis]: [BTreeMap<MemberId, SocketAddr>; 4] =
            std::array::from_fn(|_| listening());
        let (relays, runtime) = match peers.with_cables {
            true => {
                let runtime = Runtime::new().context("could not start the relays")?;
                let started = runtime.block_on(Relays::start(&listen));
                (Some(started.context("could not start the relays")?), Some(runtime))
            }
            false => (None, None),
        };
        let reach = |from, to| match &relays {
            Some(relays) => relays.address(from, to).unwrap_or(listen[&to]),
            None => listen[&to],
        };
        let tables = init::tables(&election(peers.guarantee, TIMEOUT));
        for me in &members {
            let others = members.iter().filter(|id| *id != me);
            let mut file = MemberFile {
                group: GROUP,
                me: *me,
                listen: listen[me],
                api: apis[me],
                peers: others.map(|id| (*id, reach(*me, *id).to_string())).collect(),
                tables: &tables,
            };
            write(&directory.join(format!("{me}.toml")), &file.text())?;
            (file.listen, file.api) = (twins[me], twin_apis[me]);
            write(&directory.join(format!("{me}-twin.toml")), &file.text())?;
        }
        let program = std::env::current_exe().context("could not find this program")?;
        let directory = directory.to_owned();
        Ok(PeerGroup { program, directory, apis, relays, _runtime: runtime })
    }

    pub(super) fn configuration(&self, member: MemberId) -> PathBuf {
        self.directory.join(format!("{member}.toml"))
    }

    /// Where a daemon of each member answers.
    pub(super) fn apis(&self) -> &BTreeMap<MemberId, SocketAddr> {
        &self.apis
    }

    /// A command of this program for a member, with its configuration.
    pub(super) fn run(&self, command: &[&str], configuration: &Path, start: Start) -> Command {
        member_command(&self.program, command, configuration, start)
    }
}

impl Members for PeerGroup {
    fn command(&self, member: MemberId, start: Start) -> Command {
        self.run(&["actor"], &self.configuration(member), start)
    }

    fn twin(&self, member: MemberId) -> Command {
        let configuration = self.directory.join(format!("{member}-twin.toml"));
        self.run(&["actor"], &configuration, Start::Stored)
    }

    fn wrapper(&self, member: MemberId, start: Start) -> Option<Command> {
        Some(self.run(
            &[operator::COMMAND, "run", "conformance"],
            &self.configuration(member),
            start,
        ))
    }

    fn cables(&self) -> Option<&dyn NetworkFaults> {
        self.relays.is_some().then_some(self)
    }
}

impl NetworkFaults for PeerGroup {
    fn isolate(&self, member: MemberId) {
        self.relays.iter().for_each(|relays| relays.isolate(member));
    }

    fn heal(&self) {
        self.relays.iter().for_each(Relays::heal_all);
    }
}

impl Handles for Peers {
    type Handle = PeerHandle;

    async fn start(&self, size: u32, directory: &Path) -> Result<Vec<PeerHandle>, SetupError> {
        let group = PeerGroup::make(Peers { with_cables: false, ..*self }, size, directory)?;
        let mut handles = Vec::new();
        for member in (1..=size).map(MemberId::new) {
            let builder = mandate::peer::from_file(group.configuration(member))?;
            handles.push(PeerHandle(builder.with_start(Start::New).start().await?));
        }
        Ok(handles)
    }
}

/// A member in this process.
pub(super) struct PeerHandle(mandate::Member);

impl Handle for PeerHandle {
    fn member(&self) -> MemberId {
        self.0.id()
    }

    fn election(&self) -> &Election {
        self.0.election()
    }

    async fn shutdown(&self) {
        self.0.shutdown().await;
    }
}

/// How a group elects.
pub(super) fn election(guarantee: PeerGuarantee, timeout: Duration) -> String {
    let guarantee = match guarantee {
        PeerGuarantee::Fenced => "guarantee = \"fenced\"\n".to_owned(),
        PeerGuarantee::Leased { lease, allowance_per_mille } => format!(
            "guarantee = \"leased\"\nlease = \"{}\"\ndrift_per_mille = {allowance_per_mille}\n",
            humantime::format_duration(lease)
        ),
    };
    format!("{guarantee}timeout = \"{}\"\n", humantime::format_duration(timeout))
}

/// A command of this program for a member, with its configuration.
pub(super) fn member_command(
    program: &Path,
    command: &[&str],
    configuration: &Path,
    start: Start,
) -> Command {
    let mut run = Command::new(program);
    run.args(command).arg("--config").arg(configuration);
    match start {
        Start::New => run.arg("--new"),
        Start::Lost => run.arg("--lost"),
        Start::Changed => run.arg("--members-changed"),
        Start::Join => run.arg("--join"),
        // That is in the configuration.
        Start::Stored | Start::Auto => &mut run,
    };
    run
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("could not write {}", path.display()))
}

/// Addresses on loopback, reserved for this process.
fn free_addresses(number: usize) -> anyhow::Result<Vec<SocketAddr>> {
    let ports = mandate_servers::free_ports(number).context("could not reserve ports")?;
    Ok(ports.into_iter().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).collect())
}
