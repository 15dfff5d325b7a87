//! A service that has a Raft adopts a driver: three members in one process, for brevity.
//!
//! `cargo run -p mandate-openraft --example adopt` starts them, lets the election choose a leader by preference, moves
//! leadership, and writes all the while. What a service of your own needs is between the lines `adopt` in this file;
//! storage and network (`store.rs`) stand for those that it has already.

mod store;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mandate_openraft::{Answer, DriverConfig, Messenger, RaftDriver, Request};
use mandate_peer::links::Identity;
use mandate_peer::{Peer, PeerSetup};
use mandate_proto::identity::MemberId;
use mandate_proto::pole::member::Config as ElectionConfig;
use mandate_runtime::Start;
use openraft::error::{ClientWriteError, RaftError};
use openraft::{BasicNode, Config, Raft};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use store::{Log, Machine, Network, Types};

const GROUP: &str = "example";

/// The members, so that each can call the others. A service has its RPC instead.
pub(crate) type Everyone = Arc<OnceLock<BTreeMap<u64, Member>>>;

pub(crate) struct Member {
    pub(crate) raft: Raft<Types>,
    pub(crate) driver: RaftDriver<Types>,
    pub(crate) peer: Peer,
    everyone: Everyone,
}

/// Why a write was not carried out here.
type Refused = RaftError<u64, ClientWriteError<u64, BasicNode>>;

// adopt: one more message of the service's RPC
// The other side has to know for certain who asks: connections with certificates, in a service of several processes.
struct Rpc(Everyone, MemberId);

impl Messenger for Rpc {
    async fn ask(
        &self,
        to: MemberId,
        request: Request,
    ) -> Result<Answer, Box<dyn Error + Send + Sync>> {
        let everyone = self.0.get().ok_or("not started yet")?;
        let member = everyone.get(&u64::from(to.get())).ok_or("no such member")?;
        Ok(member.driver.answer(self.1, request).await)
    }
}
// adopt

impl Member {
    async fn start(id: u32, setup: PeerSetup, everyone: Everyone) -> Result<Self, Box<dyn Error>> {
        // Raft's own elections are off from the start; the driver says when they are to be on.
        let config = Config { enable_elect: false, ..Config::default() };
        let network = Network(everyone.clone());
        let node = u64::from(id);
        let raft =
            Raft::new(node, Arc::new(config), network, Log::default(), Machine::default()).await?;

        // adopt: an election beside Raft, and a driver for both
        let peer = Peer::start(setup).await?;
        let members = (1..=3).map(|id| (MemberId::new(id), u64::from(id))).collect();
        let config = DriverConfig::default();
        let me = MemberId::new(id);
        let rpc = Rpc(everyone.clone(), me);
        let driver = RaftDriver::start(raft.clone(), peer.election(), me, members, rpc, config)?;
        // adopt
        Ok(Member { raft, driver, peer, everyone })
    }

    // adopt: writes wait while leadership moves, and go where it is then
    async fn write(&self, line: String) -> Result<u64, Box<dyn Error>> {
        let everyone = self.everyone.get().ok_or("not started yet")?;
        let mut asked = self;
        loop {
            let error = match asked.write_here(line.clone()).await {
                Ok(number) => return Ok(number),
                Err(error) => error,
            };
            // Another leads. A leader that was deposed while a write was under way says this, too, and it may have been
            // carried out: where that matters, number the writes, as the key-value service does.
            let Some(forward) = error.forward_to_leader() else { return Err(error.into()) };
            match forward.leader_id.and_then(|leader| everyone.get(&leader)) {
                // In a service of several processes: a call to that one.
                Some(leader) => asked = leader,
                // Nobody leads, as far as that one knows: until its Raft has something new.
                None => asked.raft.metrics().changed().await?,
            }
        }
    }

    pub(crate) async fn write_here(&self, line: String) -> Result<u64, Refused> {
        let pass = self.driver.gate().enter().await;
        let written = self.raft.client_write(line).await;
        drop(pass);
        written.map(|written| written.data)
    }
    // adopt
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let everyone = start(directory.path()).await?;
    let members = everyone.get().ok_or("not started")?;
    let leader = led_by(members, None).await?;
    println!("p{leader} leads");
    println!("line {}", members[&leader].write("hello".into()).await?);
    let next = leader % 3 + 1;
    let began = Instant::now();
    members[&leader].peer.election().transfer(MemberId::new(next as u32)).await?;
    led_by(members, Some(next)).await?;
    println!("p{next} leads {:?} later", began.elapsed());
    // At the one that led before: it is passed on.
    println!("line {}", members[&leader].write("world".into()).await?);
    for member in members.values() {
        member.peer.shutdown().await;
        member.raft.shutdown().await?;
    }
    Ok(())
}

/// Three members, and a Raft among them.
pub(crate) async fn start(directory: &Path) -> Result<Everyone, Box<dyn Error>> {
    let everyone = Everyone::default();
    let mut members = BTreeMap::new();
    for (id, setup) in setups(directory)? {
        members.insert(u64::from(id), Member::start(id, setup, everyone.clone()).await?);
    }
    let first = members[&1].raft.clone();
    everyone.set(members).map_err(|_| "started twice")?;
    let nodes = (1..=3).map(|id| (id, BasicNode::default())).collect::<BTreeMap<_, _>>();
    first.initialize(nodes).await?;
    Ok(everyone)
}

/// Waits until a member leads, or that one does.
pub(crate) async fn led_by(
    members: &BTreeMap<u64, Member>,
    wanted: Option<u64>,
) -> Result<u64, Box<dyn Error>> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(120) {
        let leads = |(id, member): (&u64, &Member)| member.driver.report().leads.map(|_| *id);
        let settled = |id: &u64| {
            let elected = members[id].peer.election().state().borrow().mandate().is_some();
            elected && wanted.is_none_or(|wanted| wanted == *id)
        };
        if let Some(leader) = members.iter().filter_map(leads).find(settled) {
            return Ok(leader);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err("nobody leads".into())
}

/// Certificates, ports and configurations for three members. Yours come from `mandate init`, or your own authority.
fn setups(directory: &Path) -> Result<Vec<(u32, PeerSetup)>, Box<dyn Error>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let ca = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let ports = mandate_servers::free_ports(3)?;
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let addresses: BTreeMap<u32, _> = (1..).zip(ports.into_iter().map(at)).collect();
    let mut setups = Vec::new();
    for (id, listen) in &addresses {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec![format!("p{id}.{GROUP}.mandate")])?;
        let chain = params.signed_by(&key, &issuer)?.pem();
        let key = key.serialize_pem();
        let members = (1..=3).map(MemberId::new);
        let times = (Duration::from_millis(100), Duration::from_secs(2));
        let config = ElectionConfig::new(MemberId::new(*id), members, times.0, times.1)?;
        let others = addresses.iter().filter(|(other, _)| *other != id);
        setups.push((
            *id,
            PeerSetup {
                group: GROUP.into(),
                listen: *listen,
                peers: others.map(|(id, at)| (MemberId::new(*id), at.to_string())).collect(),
                advertise: None,
                identity: Identity::from_pem(ca.as_bytes(), chain.as_bytes(), key.as_bytes())?,
                protocol: config.into(),
                state: directory.join(format!("p{id}")),
                start: Start::New,
            },
        ));
    }
    Ok(setups)
}
