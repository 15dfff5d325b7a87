//! A member of a group: links, and an election over them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::pole::member::Config;
use mandate_proto::wire;
use mandate_runtime::transport::{Delivery, Inbound, Transport};
use mandate_runtime::{Election, Setup, Start, StartError};
use tokio::sync::mpsc;

use crate::links::{Identity, LinkError, LinkEvent, Links, LinksConfig};

/// Frames that wait for the driver, which is busy only while it writes to disk.
const INBOX: usize = 1024;

/// What the last words may take to arrive: some round trips on most links. If they do not, the others wait
/// for the lease, as after a crash.
const FLUSH: Duration = Duration::from_millis(150);

/// How a member is set up.
#[derive(Debug)]
pub struct PeerSetup {
    /// The group's name, which its certificates carry.
    pub group: String,
    /// Where to listen, for UDP and TCP.
    pub listen: SocketAddr,
    /// Where the others are, as `host:port`.
    pub peers: BTreeMap<MemberId, String>,
    /// Who this member is.
    pub identity: Identity,
    /// The protocol.
    pub member: Config,
    /// Where its state is kept.
    pub state: PathBuf,
    /// What it starts from.
    pub start: Start,
}

/// Why a member cannot start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It cannot listen, or not as who it is.
    #[error(transparent)]
    Links(#[from] LinkError),
    /// Its state cannot be used.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A member that runs. Its handle is [`Peer::election`].
pub struct Peer {
    election: Election,
    links: Links,
}

impl Peer {
    /// Starts a member on the current tokio runtime.
    pub async fn start(setup: PeerSetup) -> Result<Self, PeerError> {
        let (links, events) = Links::start(LinksConfig {
            group: setup.group.clone(),
            me: setup.member.me(),
            listen: setup.listen,
            peers: setup.peers,
            identity: setup.identity,
            version: wire::VERSION,
        })
        .await?;
        let (inbox, inbound) = mpsc::channel(INBOX);
        let transport = Arc::new(Carrier(links.clone()));
        let PeerSetup { member: config, group, state, start, .. } = setup;
        let started = Election::start(Setup { config, group, state, start }, transport, inbound);
        let election = match started {
            Ok(election) => election,
            Err(error) => {
                links.close().await;
                return Err(error.into());
            }
        };
        tokio::spawn(pass_on(events, inbox));
        Ok(Peer { election, links })
    }

    /// The handle.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.links.local_addr()
    }

    /// Gives leadership back, tells the others, and ends; bounded by three seconds.
    pub async fn shutdown(&self) {
        self.election.shutdown().await;
        // What was said last is still on its way; closing a link drops what has not arrived.
        tokio::time::sleep(FLUSH).await;
        self.links.close().await;
    }
}

/// Links, as a driver sees them.
struct Carrier(Links);

impl Transport for Carrier {
    fn send(&self, to: MemberId, delivery: Delivery, frame: Vec<u8>) {
        self.0.send(to, delivery, frame);
    }
}

/// Passes on what the links report, for as long as the driver listens.
async fn pass_on(mut events: mpsc::Receiver<LinkEvent>, inbox: mpsc::Sender<Inbound>) {
    while let Some(event) = events.recv().await {
        let inbound = match event {
            LinkEvent::Received { from, frame } => Inbound::Received { from, frame },
            LinkEvent::Up { member } => Inbound::Up { member },
            LinkEvent::Broken { member } => Inbound::Broken { member },
            // The links have logged it, once.
            LinkEvent::Refused { .. } => continue,
        };
        if inbox.send(inbound).await.is_err() {
            return;
        }
    }
}
