//! The handle on all links of a member.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use mandate_proto::identity::MemberId;
use mandate_runtime::Start;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::event::{Delivery, LinkEvent};
use super::failure::STOPPING;
use super::hello::{Hello, OWN_RELEASE};
use super::identity::Identity;
use super::limits::{CLOSE_TIMEOUT, EVENT_QUEUE, MAX_FRAME_BYTES, MAX_STREAM_FRAME_BYTES};
use super::peers::{self, Outgoing, Peers};
use super::renewal::{IdentityFiles, Renewal};
use super::settings::Settings;
use super::shared::{Counts, Dropped, Shared, TlsIdentity, Traffic};
use super::sockets::{self, Unbound};
use super::versions::Versions;
use super::{accept, name, watch};

/// What a member needs to know to link with the others.
#[derive(Clone, Debug)]
pub struct LinksConfig {
    /// Name of the group: a label of a DNS name in lower case, 63 bytes at most. The same at all members.
    pub group: String,
    /// This member. Its certificate names it.
    pub me: MemberId,
    /// Where to listen: QUIC (UDP) and watches (TCP) share the port number. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// `host:port` of every other member, resolved at each attempt to connect.
    pub peers: BTreeMap<MemberId, String>,
    /// Whom to believe, and what to show.
    pub identity: Identity,
    /// Versions of the protocol within frames: a link speaks the highest that both sides do.
    pub speaks: Versions,
    /// What else must be the same, and what is warned of.
    pub settings: Settings,
    /// The random number of this member's state, by which others notice another state under its id.
    pub disk: u64,
    /// What this member starts from.
    pub start: Start,
    /// Whether votes are kept in the state: then a member with another state than before is let in only if it says that
    /// its state was lost. The same at all members.
    pub keeps_votes: bool,
}

/// What the two sides of a link have agreed on, and said of themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    /// The version of the protocol.
    pub version: u32,
    /// The release of the other side; none said it up to version 4.
    pub release: Option<String>,
}

/// Why links could not be started. Nothing is running, and no port is taken.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The group's name cannot be part of a certificate's.
    #[error(
        "{0:?} cannot be a group's name; use lower-case letters, digits and hyphens, 63 at most"
    )]
    InvalidGroup(String),
    /// A member among its own peers.
    #[error("{0} is this member itself, but is also listed among its peers; remove it there")]
    PeerIsMyself(MemberId),
    /// An address without a port, or the like.
    #[error(
        "the address of {member} is {address:?}, but host:port is needed, such as db1.example.org:7400"
    )]
    InvalidAddress {
        /// Whose address.
        member: MemberId,
        /// As configured.
        address: String,
    },
    /// The certificate is another member's, or another group's.
    #[error("this member's own certificate is not for {expected}: {reason}")]
    NotMyCertificate {
        /// The name it should carry.
        expected: String,
        /// What it says instead.
        reason: String,
    },
    /// Certificates or key cannot be used.
    #[error("TLS cannot use this member's certificates or key: {0}; issue them anew")]
    Tls(String),
    /// The port is taken, or the address is not this host's.
    #[error("cannot listen on {address} ({protocol}): {source}; is another member running there?")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// UDP or TCP.
        protocol: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Links with all other members. Cheap to clone; when the last clone is dropped, all links end.
#[derive(Clone)]
pub struct Links {
    shared: Arc<Shared>,
    local_address: SocketAddr,
    _stop_when_dropped: Arc<DropGuard>,
}

impl Links {
    /// Listens, dials the members with higher ids, and keeps doing so. Must be called within a tokio
    /// runtime. Events have to be taken steadily: when nobody does, links come to stand.
    pub async fn start(
        config: LinksConfig,
    ) -> Result<(Links, mpsc::Receiver<LinkEvent>), LinkError> {
        check(&config)?;
        let (papers, server) = TlsIdentity::new(config.me, &config.group, config.identity)?;
        let unbound = |Unbound { protocol, source }| LinkError::Bind {
            address: config.listen,
            protocol,
            source,
        };
        let (udp, listener) = sockets::bind(config.listen).await.map_err(unbound)?;
        let endpoint = quinn::Endpoint::new(
            quinn::EndpointConfig::default(),
            Some(server),
            udp,
            Arc::new(quinn::TokioRuntime),
        );
        let udp_error = |source| unbound(Unbound { protocol: "UDP", source });
        let endpoint = endpoint.map_err(udp_error)?;
        let local_address = endpoint.local_addr().map_err(udp_error)?;

        let (events, receiver) = mpsc::channel(EVENT_QUEUE);
        let stop = CancellationToken::new();
        let hello = Hello {
            speaks: config.speaks,
            release: Some(OWN_RELEASE.to_owned()),
            life: rand::random(),
            disk: config.disk,
            start: config.start,
            group: config.group.clone(),
            settings: config.settings.clone(),
        };
        let shared = Arc::new(Shared {
            me: config.me,
            group: config.group,
            hello: RwLock::new(Arc::new(hello)),
            keeps_votes: config.keeps_votes,
            endpoint,
            papers: papers.into(),
            peers: Peers::new(config.peers),
            nonces: Default::default(),
            events,
            reports: Default::default(),
            troubles: Default::default(),
            twins_told: Default::default(),
            strangers: Default::default(),
            counts: Counts::default(),
            stop: stop.clone(),
            is_unheard: false.into(),
            tasks: TaskTracker::new(),
        });
        shared.tasks.spawn(watch::accept(shared.clone(), listener));
        shared.tasks.spawn(accept::run(shared.clone()));
        shared.set_members(&shared.peers.configured(), config.settings);
        let guard = Arc::new(stop.drop_guard());
        Ok((Links { shared, local_address, _stop_when_dropped: guard }, receiver))
    }

    /// Goes by this list of members from now on, and shows these settings: the other members, each with where it is, as
    /// `host:port`, or nothing where that is not known. An address that this member was [configured](LinksConfig::peers) with is
    /// tried first. Links that are up stay up; those with members that have left end three seconds later. Must be called within a
    /// tokio runtime.
    pub fn set_members(&self, members: &BTreeMap<MemberId, String>, settings: Settings) {
        self.shared.set_members(members, settings);
    }

    /// Sends a frame of at most [`MAX_FRAME_BYTES`], or [`MAX_STREAM_FRAME_BYTES`] on the stream. Never blocks: it is dropped when there is no link,
    /// when it is too long, or when the queue of the stream is full ([`Links::dropped`] counts them). Where
    /// datagrams cannot leave as fast as they come, the oldest are dropped, and not counted.
    pub fn send(&self, to: MemberId, delivery: Delivery, frame: Vec<u8>) {
        self.send_as(to, delivery, None, frame);
    }

    /// The same, of a frame in a version of the protocol: dropped, if the link speaks another by now.
    pub(crate) fn send_as(
        &self,
        to: MemberId,
        delivery: Delivery,
        version: Option<u32>,
        frame: Vec<u8>,
    ) {
        let counts = &self.shared.counts;
        let most = match delivery {
            Delivery::Datagram => MAX_FRAME_BYTES,
            Delivery::Stream => MAX_STREAM_FRAME_BYTES,
        };
        if frame.len() > most {
            return Counts::raise(&counts.too_long);
        }
        let Some(peer) = self.shared.peers.get(to) else {
            return Counts::raise(&counts.without_link);
        };
        let outgoing = peer.outgoing.read().unwrap_or_else(PoisonError::into_inner);
        let fits = |link: &&Outgoing| version.is_none_or(|version| link.spoken.version == version);
        let link = outgoing.as_ref().filter(fits);
        let Some(Outgoing { connection, queue, .. }) = link else {
            return Counts::raise(&counts.without_link);
        };
        match delivery {
            Delivery::Datagram => {
                if connection.send_datagram(frame.into()).is_err() {
                    Counts::raise(&counts.without_link);
                }
            }
            Delivery::Stream => match queue.try_send(frame) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(_)) => Counts::raise(&counts.queue_full),
                Err(mpsc::error::TrySendError::Closed(_)) => Counts::raise(&counts.without_link),
            },
        }
    }

    /// What the link with a member speaks; none, if there is none.
    pub fn spoken(&self, member: MemberId) -> Option<Spoken> {
        let peer = self.shared.peers.get(member)?;
        let outgoing = peer.outgoing.read().unwrap_or_else(PoisonError::into_inner);
        outgoing.as_ref().map(|link| link.spoken.clone())
    }

    /// The release that this member is of.
    pub fn release(&self) -> &'static str {
        OWN_RELEASE
    }

    /// The versions that this member speaks now.
    pub fn speaks(&self) -> Versions {
        self.shared.hello().speaks()
    }

    /// The version that the link with a member speaks.
    pub(crate) fn version(&self, member: MemberId) -> Option<u32> {
        let peer = self.shared.peers.get(member)?;
        let outgoing = peer.outgoing.read().unwrap_or_else(PoisonError::into_inner);
        outgoing.as_ref().map(|link| link.spoken.version)
    }

    /// The round trip to a member that is linked, as the connection measures it.
    pub fn round_trip(&self, to: MemberId) -> Option<Duration> {
        let peer = self.shared.peers.get(to)?;
        let outgoing = peer.outgoing.read().unwrap_or_else(PoisonError::into_inner);
        outgoing.as_ref().map(|outgoing| outgoing.connection.rtt())
    }

    /// Whether a watch stands beside the link with a member: without, its crash is noticed by timeouts only.
    pub fn is_watched(&self, member: MemberId) -> bool {
        self.shared.peers.get(member).is_some_and(|peer| peer.is_watched.load(Ordering::Relaxed))
    }

    /// Whether a member was reached where it listens since its link is up: then its crash is told from a watch that was reset,
    /// and noticed sooner.
    pub fn is_reachable(&self, member: MemberId) -> bool {
        let peer = self.shared.peers.get(member);
        peer.is_some_and(|peer| peer.is_reachable.load(Ordering::Relaxed))
    }

    /// Where this member listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_address
    }

    /// Frames dropped since the start.
    pub fn dropped(&self) -> Dropped {
        self.shared.counts.read()
    }

    /// How often a second process showed the id of a member, this one included, since the start.
    pub fn twins(&self) -> u64 {
        self.shared.counts.twins.load(Ordering::Relaxed)
    }

    /// Why there is no link with members, or what else is wrong with them, in words for an operator: what was found
    /// in the last half minute. Of this member itself, if another process shows its id.
    pub fn troubles(&self) -> BTreeMap<MemberId, String> {
        self.shared.troubles()
    }

    /// What all links have carried since the start.
    pub fn traffic(&self) -> Traffic {
        self.shared.peers.traffic()
    }

    /// This member's settings, as it greets with them now.
    pub fn settings(&self) -> Settings {
        self.shared.hello().settings.clone()
    }

    /// Members that are refused because they have another list of members or another guarantee, and what they have: those in
    /// our list, and such as are not and came lately.
    pub fn differing(&self) -> Vec<(MemberId, Settings)> {
        self.shared.differing()
    }

    /// Keeps certificates and key as these files are, by looking at them; see [`Renewal`].
    pub fn renewal(&self, files: IdentityFiles) -> Renewal {
        Renewal::new(self.shared.clone(), files)
    }

    /// When this member's certificate expires.
    pub fn certificate_expires(&self) -> Option<SystemTime> {
        self.shared.papers().expires
    }

    /// Ends all links, when the other members have read what was sent on the streams before, or after half
    /// a second. Takes a second at most; where all answer, a round trip. The ports are free once the last
    /// handle is dropped too, or shortly after where a member did not answer.
    pub async fn close(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        let ended = async {
            self.shared.tasks.wait().await;
            self.shared.endpoint.close(STOPPING, b"this member stops");
            // Who has answered needs no more packets from us.
            if self.shared.is_unheard.load(Ordering::Relaxed) {
                self.shared.endpoint.wait_idle().await;
            }
        };
        if timeout(CLOSE_TIMEOUT, ended).await.is_err() {
            tracing::debug!("some connections had not ended a second after they were told to");
        }
    }
}

fn check(config: &LinksConfig) -> Result<(), LinkError> {
    if !name::is_group(&config.group) {
        return Err(LinkError::InvalidGroup(config.group.clone()));
    }
    if config.peers.contains_key(&config.me) {
        return Err(LinkError::PeerIsMyself(config.me));
    }
    for (member, address) in &config.peers {
        if !peers::is_address(address) {
            return Err(LinkError::InvalidAddress { member: *member, address: address.clone() });
        }
    }
    Ok(())
}
