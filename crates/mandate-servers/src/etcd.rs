//! Private members of etcd: alone, or a cluster.
//!
//! A member may be started on another host of an emulated network: whatever thread starts it decides where it
//! runs.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::instance::Instance;
use crate::{Server, ServerError, ports, programs, system};

const PACKAGE: &str = "etcd-server";

/// For the answer of a member that listens.
const ANSWER: Duration = Duration::from_millis(500);

/// How a member is set up.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// Its name.
    pub name: String,
    /// Where it serves clients.
    pub client: SocketAddr,
    /// Where it serves other members.
    pub peer: SocketAddr,
    /// All members, itself too: name, and where it serves members.
    pub cluster: Vec<(String, SocketAddr)>,
    /// Between the leader's heartbeats.
    pub heartbeat: Duration,
    /// Without heartbeats for so long, a member stands for election.
    pub election: Duration,
    /// Certificates with which clients are served: https instead of http.
    pub tls: Option<EtcdTls>,
    /// Where its directory is made; where temporary files are, by default.
    pub within: Option<PathBuf>,
}

/// Certificates.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The member's.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Clients have to show one of this authority.
    pub client_ca: PathBuf,
}

impl EtcdConfig {
    /// A cluster of so many on loopback, named p1, p2 ..., with etcd's own defaults.
    pub fn on_loopback(size: usize) -> Result<Vec<Self>, ServerError> {
        let free = ports::free_ports(size * 2).map_err(system("find ports"))?;
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let name = |index: usize| format!("p{}", index + 1);
        let cluster: Vec<_> = (0..size).map(|index| (name(index), at(free[index]))).collect();
        let config = |index: usize| EtcdConfig {
            name: name(index),
            client: at(free[size + index]),
            peer: cluster[index].1,
            cluster: cluster.clone(),
            heartbeat: Duration::from_millis(100),
            election: Duration::from_millis(1000),
            tls: None,
            within: None,
        };
        Ok((0..size).map(config).collect())
    }
}

/// A member.
#[derive(Debug)]
pub struct Etcd {
    instance: Instance,
    config: EtcdConfig,
}

impl Etcd {
    /// Starts a member without data. It listens when this returns; it serves once most of its cluster are there.
    pub fn launch(config: EtcdConfig) -> Result<Self, ServerError> {
        programs::find("etcd", PACKAGE)?;
        let instance = Instance::new("etcd", "etcd", "", config.within.as_deref())?;
        let mut member = Etcd { instance, config };
        member.start()?;
        Ok(member)
    }

    /// Starts a cluster on loopback and waits until it serves.
    pub fn cluster(configs: Vec<EtcdConfig>) -> Result<Vec<Self>, ServerError> {
        let mut members = configs.into_iter().map(Etcd::launch).collect::<Result<Vec<_>, _>>()?;
        members.iter_mut().try_for_each(Etcd::until_healthy)?;
        Ok(members)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Waits until it has a leader and serves, unless it speaks https only.
    pub fn until_healthy(&mut self) -> Result<(), ServerError> {
        let (client, is_open) = (self.config.client, self.config.tls.is_some());
        self.instance.until("it serves", |_| is_open || is_healthy(client))
    }

    fn command(&self) -> Result<Command, ServerError> {
        let config = &self.config;
        let mut etcd = Command::new(programs::find("etcd", PACKAGE)?);
        let data = self.instance.directory().join("data");
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let client = format!("{scheme}://{}", config.client);
        let peer = format!("http://{}", config.peer);
        let cluster: Vec<_> =
            config.cluster.iter().map(|(name, at)| format!("{name}=http://{at}")).collect();
        etcd.arg("--name").arg(&config.name).arg("--data-dir").arg(data);
        etcd.arg("--listen-client-urls").arg(&client).arg("--advertise-client-urls").arg(client);
        etcd.arg("--listen-peer-urls").arg(&peer).arg("--initial-advertise-peer-urls").arg(peer);
        etcd.arg("--initial-cluster").arg(cluster.join(","));
        etcd.arg("--heartbeat-interval").arg(config.heartbeat.as_millis().to_string());
        etcd.arg("--election-timeout").arg(config.election.as_millis().to_string());
        // Who was cut off and returns does not depose the leader.
        etcd.args(["--pre-vote", "--logger=zap", "--log-level=warn"]);
        if let Some(tls) = &config.tls {
            etcd.arg("--cert-file").arg(&tls.certificate).arg("--key-file").arg(&tls.key);
            etcd.arg("--trusted-ca-file").arg(&tls.client_ca).arg("--client-cert-auth");
        }
        Ok(etcd)
    }
}

/// What `/health` says, in so many words as it takes.
fn is_healthy(client: SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&client, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        write!(stream, "GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"health\":\"true\""))
}

impl Server for Etcd {
    fn url(&self) -> String {
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.config.client)
    }

    fn start(&mut self) -> Result<(), ServerError> {
        let (mut command, client) = (self.command()?, self.config.client);
        self.instance.launch(&mut command, |_| TcpStream::connect_timeout(&client, ANSWER).is_ok())
    }

    crate::instance::faults!(Signal::TERM);
}
