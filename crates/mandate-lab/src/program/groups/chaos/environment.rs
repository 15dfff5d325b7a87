//! Where chaos happens: members of the peer engine on emulated hosts, with small disks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use mandate_cli::topology::Topology;
use mandate_conformance::subject::{EngineUnderTest, Members, NetworkFaults, SetupError};
use mandate_lab::wan::Wan;
use mandate_lab::wan::fault::NetworkFault;
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_runtime::Start;

use super::disk::{Disk, leave_mounts};
use super::storm::{self, Kind, Strike};
use super::target::ChaosTarget;
use super::upgrade::OlderProgram;
use crate::groups::guarantee_text;
use crate::groups::peer::{GROUP, election, member_command};
use mandate_cli::certs;
use mandate_cli::init::{self, MemberFile};

/// Members are spread over these sites in turn.
pub(crate) const SITES: [&str; 3] = ["north", "south", "west"];

/// Distances within a continent, with the jitter of the paper's evaluation.
pub(crate) const CONTINENT: &str = "
[[rtt]]\na = 'north'\nb = 'south'\nms = 10\njitter_ms = 0.1
[[rtt]]\na = 'north'\nb = 'west'\nms = 20\njitter_ms = 0.2
[[rtt]]\na = 'south'\nb = 'west'\nms = 30\njitter_ms = 0.3
";

/// Each member has an address of its own, so all can have the same ports.
const PORT: u16 = 7100;
const API_PORT: u16 = 8100;

/// For elections: longer than a round trip on the longest link, slowed by the longest delay both ways.
const TIMEOUT: Duration = Duration::from_millis(600);

/// Sixteen pages: a member's state is one, and two while it is replaced.
const DISK: &str = "size=64k";

/// What is on a member's disk and does not come from itself.
const CONFIGURATION: &str = "member.toml";
const CERTIFICATES: &str = "certs";

/// The disks, which members use and faults fill.
type Disks = Rc<RefCell<BTreeMap<MemberId, Disk>>>;

/// The network and the disks of a group, and how its members are made.
pub(crate) struct ChaosEnvironment {
    wan: Rc<Wan>,
    disks: Disks,
    guarantee: PeerGuarantee,
    within: Duration,
    kinds: Vec<(Kind, usize)>,
    older: Option<Rc<OlderProgram>>,
}

impl ChaosEnvironment {
    /// Starts the network of so many hosts over [`SITES`], with these links. Hosts beyond the members of the group are for those
    /// that are added. Call it first of all: it leaves the machine's mounts, and threads that are there before do not come along.
    pub(crate) fn make(
        links: &str,
        guarantee: PeerGuarantee,
        hosts: u32,
        within: Duration,
        seed: u64,
    ) -> anyhow::Result<Self> {
        leave_mounts()?;
        let mut text = links.to_owned();
        for (number, site) in (1..=hosts).zip(SITES.iter().cycle()) {
            text += &format!("[[server]]\nid = 'p{number}'\nsite = '{site}'\n");
        }
        let topology = Topology::parse(&text).context("the field's own topology")?;
        let wan = Rc::new(Wan::start(&topology, seed)?);
        let kinds = storm::OF_PEERS.to_vec();
        Ok(ChaosEnvironment { wan, disks: Disks::default(), guarantee, within, kinds, older: None })
    }

    /// Some members are run by an older program, until they are upgraded.
    pub(super) fn with_older(self, older: Option<OlderProgram>) -> Self {
        ChaosEnvironment { older: older.map(Rc::new), ..self }
    }

    /// What can go wrong, and how often of all.
    pub(super) fn with_kinds(self, kinds: Vec<(Kind, usize)>) -> Self {
        ChaosEnvironment { kinds, ..self }
    }

    /// Whether members can be added and removed.
    fn come_and_go(&self) -> bool {
        self.kinds.iter().any(|(kind, _)| storm::changes_members(*kind))
    }

    fn fault(&self, fault: &NetworkFault) {
        self.wan.inflict(fault).expect("faults name members, and all of them are hosts");
    }

    fn sides(&self, side: &[usize]) -> (String, String) {
        let size = self.disks.borrow().len();
        let names = |inside: bool| {
            let places = (0..size).filter(|place| side.contains(place) == inside);
            places.map(|place| format!("p{}", place + 1)).collect::<Vec<_>>().join(",")
        };
        (names(true), names(false))
    }
}

impl ChaosTarget for ChaosEnvironment {
    fn kinds(&self) -> Vec<(Kind, usize)> {
        self.kinds.clone()
    }

    fn address(&self, member: MemberId) -> Option<SocketAddr> {
        // An older program knows nothing of members that come and go.
        let is_there = self.come_and_go() && self.older.is_none();
        is_there.then(|| address(&self.wan, member)).flatten()
    }

    fn lose_disk(&self, member: MemberId) -> anyhow::Result<()> {
        self.disks.borrow()[&member].clear(&[CONFIGURATION, CERTIFICATES])
    }

    fn older(&self) -> Vec<MemberId> {
        self.older.iter().flat_map(|older| older.members()).collect()
    }

    fn upgrade(&self, member: MemberId) {
        self.older.iter().for_each(|older| older.upgrade(member));
    }

    fn inflict(&self, fault: &Strike, member: MemberId) -> anyhow::Result<String> {
        let (name, all) = (member.to_string(), || "all".to_owned());
        Ok(match fault {
            Strike::Partition(side) => {
                let (one, other) = self.sides(side);
                self.fault(&NetworkFault::Cut { a: one.clone(), b: other.clone() });
                // Spare hosts are on the other side.
                let other = if self.come_and_go() { "all others" } else { &other };
                format!("partition {one} from {other}")
            }
            Strike::Mute(_) => {
                self.fault(&NetworkFault::OneWay { from: name, to: all() });
                format!("mute {member}: nobody hears it")
            }
            Strike::Deafen(_) => {
                self.fault(&NetworkFault::OneWay { from: all(), to: name });
                format!("deafen {member}: it hears nobody")
            }
            Strike::Loss(share) => {
                self.fault(&NetworkFault::Loss { a: all(), b: all(), share: *share });
                format!("lose {:.0} % everywhere", share * 100.0)
            }
            Strike::Delay { delay, jitter, .. } => {
                self.fault(&NetworkFault::Delay { a: name.clone(), b: all(), delay: *delay });
                self.fault(&NetworkFault::Jitter { a: name, b: all(), jitter: *jitter });
                format!("delay {member} by {delay:?}, jitter {jitter:?}")
            }
            Strike::FillDisk(_) => {
                self.disks.borrow()[&member].fill()?;
                format!("fill the disk of {member}")
            }
            other => anyhow::bail!("{} does not happen on a network", other.kind().name()),
        })
    }

    fn heal(&self) -> anyhow::Result<()> {
        self.wan.heal();
        self.disks.borrow().values().try_for_each(Disk::free)
    }
}

impl EngineUnderTest for ChaosEnvironment {
    fn name(&self) -> String {
        format!("peer on an emulated network, {}", guarantee_text(self.guarantee))
    }

    fn guarantee(&self) -> PeerGuarantee {
        self.guarantee
    }

    fn group(&self, size: u32, directory: &Path) -> Result<Box<dyn Members>, SetupError> {
        let group = FieldGroup::make(self, size, directory)?;
        Ok(Box::new(group))
    }

    fn patience(&self) -> Duration {
        self.within
    }
}

/// Where a member is found.
fn address(wan: &Wan, member: MemberId) -> Option<SocketAddr> {
    Some((wan.host(&member.to_string())?.address, PORT).into())
}

struct FieldGroup {
    program: PathBuf,
    directory: PathBuf,
    wan: Rc<Wan>,
    disks: Disks,
    older: Option<Rc<OlderProgram>>,
}

impl FieldGroup {
    fn make(field: &ChaosEnvironment, size: u32, directory: &Path) -> anyhow::Result<Self> {
        let hosts: Vec<_> = (1..=field.wan.hosts().len() as u32).map(MemberId::new).collect();
        certs::make_for_a_day(GROUP, directory, &hosts)?;
        let group = FieldGroup {
            program: std::env::current_exe().context("could not find this program")?,
            directory: directory.to_owned(),
            wan: field.wan.clone(),
            disks: field.disks.clone(),
            older: field.older.clone(),
        };
        let tables = init::tables(&election(field.guarantee, TIMEOUT));
        // Who is added has the same file as all: whom it names, it asks to be let in.
        let members = &hosts[..size as usize];
        for me in &hosts {
            let others = members.iter().filter(|id| *id != me);
            let file = MemberFile {
                group: GROUP,
                me: *me,
                listen: group.address(*me)?,
                api: (Ipv4Addr::LOCALHOST, API_PORT).into(),
                peers: others
                    .map(|id| Ok((*id, group.address(*id)?.to_string())))
                    .collect::<anyhow::Result<_>>()?,
                tables: &tables,
            };
            group.insert_disk(*me, &file.text())?;
        }
        Ok(group)
    }

    fn address(&self, member: MemberId) -> anyhow::Result<SocketAddr> {
        address(&self.wan, member).context("every member has a host")
    }

    fn home(&self, member: MemberId) -> PathBuf {
        self.directory.join(member.to_string())
    }

    /// Configuration and state are on the member's own disk; certificates are not.
    fn insert_disk(&self, member: MemberId, configuration: &str) -> anyhow::Result<()> {
        let home = self.home(member);
        self.disks.borrow_mut().insert(member, Disk::insert(&home, DISK)?);
        let path = home.join(CONFIGURATION);
        fs::write(&path, configuration)
            .with_context(|| format!("could not write {}", path.display()))?;
        symlink(self.directory.join("certs"), home.join(CERTIFICATES))
            .context("could not link certificates")
    }
}

impl Members for FieldGroup {
    fn command(&self, member: MemberId, start: Start) -> Command {
        let configuration = self.home(member).join(CONFIGURATION);
        let older = self.older.as_ref().and_then(|older| older.of(member));
        member_command(older.as_deref().unwrap_or(&self.program), &["actor"], &configuration, start)
    }

    fn place(&self, member: MemberId) -> Vec<OsString> {
        let host = self.wan.host(&member.to_string()).expect("every member has a host");
        let mut place = vec![OsString::from(&self.program)];
        place.extend(["wan", "enter"].map(OsString::from));
        place.push(host.namespace_path().into_os_string());
        place.push("--".into());
        place
    }

    fn cables(&self) -> Option<&dyn NetworkFaults> {
        Some(self)
    }
}

impl NetworkFaults for FieldGroup {
    fn isolate(&self, member: MemberId) {
        let cut = NetworkFault::Cut { a: member.to_string(), b: "all".into() };
        self.wan.inflict(&cut).expect("every member has a host");
    }

    fn heal(&self) {
        self.wan.heal();
    }
}

impl Drop for FieldGroup {
    fn drop(&mut self) {
        // Before the directory that they are mounted in.
        self.disks.borrow_mut().clear();
    }
}
