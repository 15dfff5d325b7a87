//! Five members of etcd at the data centres of an emulated network: what people would compare with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use mandate_servers::Server;
use mandate_servers::etcd::{Etcd, EtcdConfig};
use mandate_steer::etcd::client::{Endpoint, EtcdAccess, EtcdId, MemberStatus};
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use super::controller::MEMORY;
use super::deployment::SERVERS;
use crate::load::Writer;
use crate::wan::{EmulatedHost, Wan};
use mandate_cli::topology::Topology;

/// Each host has an address of its own, so all can have the same ports.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// For what etcd is asked by the controller itself.
const ANSWER: Duration = Duration::from_secs(1);

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client gives a write up after this.
const WRITE: Duration = Duration::from_secs(10);

/// The members of a cluster, and the network.
pub struct EtcdStage {
    members: BTreeMap<u32, Etcd>,
    ids: BTreeMap<u32, EtcdId>,
    // After everything that runs on it.
    wan: Wan,
}

impl EtcdStage {
    /// Starts a cluster without data, and waits until it has a leader.
    pub fn start(topology: &Topology, seed: u64) -> anyhow::Result<Self> {
        let wan = Wan::start(topology, seed)?;
        let memory = Path::new(MEMORY);
        let within = memory.is_dir().then(|| memory.to_owned());
        let host = |server: u32| wan.host(&format!("p{server}")).context("every server has a host");
        let mut cluster = Vec::new();
        for server in SERVERS {
            cluster
                .push((format!("p{server}"), SocketAddr::from((host(server)?.address, PEER_PORT))));
        }
        let mut members = BTreeMap::new();
        for (server, (name, peer)) in SERVERS.zip(&cluster) {
            let host = host(server)?;
            let config = EtcdConfig {
                name: name.clone(),
                client: SocketAddr::from((host.address, CLIENT_PORT)),
                peer: *peer,
                cluster: cluster.clone(),
                heartbeat: Duration::from_millis(100),
                election: Duration::from_millis(1000),
                tls: None,
                within: within.clone(),
            };
            members.insert(server, host.within(|| Etcd::launch(config))?);
        }
        let mut stage = EtcdStage { members, ids: BTreeMap::new(), wan };
        let began = Instant::now();
        while stage.leader().is_none() {
            anyhow::ensure!(began.elapsed() < PATIENCE, "etcd elects no leader");
            sleep(Duration::from_millis(20));
        }
        for server in SERVERS {
            let position = stage.position(server).context("a member of etcd does not answer")?;
            stage.ids.insert(server, position.member);
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

    /// Where clients find a member that is up.
    pub fn url(&self, server: u32) -> Option<String> {
        self.members.get(&server).map(Etcd::url)
    }

    /// Who is up.
    pub fn up(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.keys().copied()
    }

    /// Who is not.
    pub fn down(&self) -> BTreeSet<u32> {
        SERVERS.filter(|server| !self.members.contains_key(server)).collect()
    }

    /// What a member says, asked beside it.
    fn position(&self, server: u32) -> Option<MemberStatus> {
        let endpoint = Endpoint::new(&self.url(server)?, &EtcdAccess::default()).ok()?;
        self.host(server).within(|| endpoint.position(ANSWER).ok())
    }

    /// Who leads, as it says itself.
    pub fn leader(&self) -> Option<u32> {
        self.up()
            .find(|server| self.position(*server).is_some_and(|it| it.leader == Some(it.member)))
    }

    /// Has this member lead.
    pub fn place(&self, server: u32) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let leader = self.leader();
            if leader == Some(server) {
                return Ok(());
            }
            if let Some((leader, url)) = leader.and_then(|leader| Some((leader, self.url(leader)?)))
            {
                let endpoint = Endpoint::new(&url, &EtcdAccess::default())?;
                let to = self.ids[&server];
                // Looked at again below.
                let _ =
                    self.host(leader).within(|| endpoint.move_leader(to, Duration::from_secs(3)));
            }
            anyhow::ensure!(
                began.elapsed() < PATIENCE,
                "leadership could not be moved to p{server}"
            );
            sleep(Duration::from_millis(50));
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self, server: u32) -> anyhow::Result<()> {
        if let Some(mut member) = self.members.remove(&server) {
            member.kill()?;
        }
        Ok(())
    }

    /// A client of a member, as its own clients speak: gRPC. To be made on the runtime of a host.
    pub fn writer(
        &self,
        server: u32,
        key: String,
        value: &'static [u8],
    ) -> anyhow::Result<EtcdWriter> {
        let url = self.url(server).context("it is not up")?;
        let channel = Channel::from_shared(url)?.tcp_nodelay(true).timeout(WRITE).connect_lazy();
        Ok(EtcdWriter { client: Grpc::new(channel), key, value })
    }
}

/// `etcdserverpb.PutRequest`, as far as it is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `etcdserverpb.PutResponse`; nothing of it is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

/// A client that writes to a member of etcd.
pub struct EtcdWriter {
    client: Grpc<Channel>,
    key: String,
    value: &'static [u8],
}

impl Writer for EtcdWriter {
    async fn write(&mut self) -> bool {
        if self.client.ready().await.is_err() {
            return false;
        }
        let request = PutRequest { key: self.key.clone().into(), value: self.value.into() };
        let path = "/etcdserverpb.KV/Put".parse().expect("it is a path");
        let codec = ProstCodec::<PutRequest, PutResponse>::default();
        self.client.unary(tonic::Request::new(request), path, codec).await.is_ok()
    }
}
