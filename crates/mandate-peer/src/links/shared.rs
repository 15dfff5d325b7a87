//! What the tasks of all links have in common.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Instant, SystemTime};

use mandate_proto::identity::MemberId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection_limit::{self, Full};
use super::event::LinkEvent;
use super::failure::{Refusal, printable};
use super::handle::LinkError;
use super::hello::Hello;
use super::identity::Identity;
use super::limits::{LEAVES_WITHIN, MAX_STRANGERS, TROUBLE_FADES, TWIN_AGAIN};
use super::nonce::Nonces;
use super::peers::{self, Peers, Relisted};
use super::renewal::RenewalError;
use super::reports::Reports;
use super::settings::Settings;
use super::sockets::canonical;
use super::{dial, name, tls};

/// What the tasks of all links have in common.
pub(crate) struct Shared {
    pub(crate) me: MemberId,
    pub(crate) group: String,
    /// What the next greeting says: settings follow the list of members.
    pub(crate) hello: RwLock<Arc<Hello>>,
    /// Whether a state that was replaced has forgotten votes.
    pub(crate) keeps_votes: bool,
    pub(crate) endpoint: quinn::Endpoint,
    pub(crate) papers: RwLock<TlsIdentity>,
    pub(crate) peers: Peers,
    pub(crate) nonces: Nonces,
    pub(crate) events: mpsc::Sender<LinkEvent>,
    pub(crate) reports: Reports,
    /// Why members are refused, and since when they have not come again.
    pub(crate) troubles: Mutex<BTreeMap<MemberId, (String, Instant)>>,
    /// When a twin of a member was told of.
    pub(crate) twins_told: Mutex<BTreeMap<MemberId, Instant>>,
    /// Members that are not in our list and have another one, and when they last came.
    pub(crate) strangers: Mutex<BTreeMap<MemberId, (Settings, Instant)>>,
    pub(crate) counts: Counts,
    pub(crate) stop: CancellationToken,
    /// Somebody did not say that it has heard the last words.
    pub(crate) is_unheard: AtomicBool,
    pub(crate) tasks: TaskTracker,
}

/// What the next handshake is made with.
pub(crate) struct TlsIdentity {
    pub(crate) identity: Identity,
    pub(crate) client: quinn::ClientConfig,
    /// When the certificate expires, if it says so in a way that can be read.
    pub(crate) expires: Option<SystemTime>,
}

impl TlsIdentity {
    /// For dialling and accepting; or what is wrong with the identity.
    pub(crate) fn new(
        me: MemberId,
        group: &str,
        identity: Identity,
    ) -> Result<(Self, quinn::ServerConfig), LinkError> {
        name::check_own(me, group, &identity)?;
        let unusable = |error: tls::TlsError| LinkError::Tls(error.to_string());
        let server = tls::server(&identity).map_err(unusable)?;
        let client = tls::client(&identity).map_err(unusable)?;
        Ok((TlsIdentity { client, expires: identity.expires(), identity }, server))
    }
}

/// UDP packets since the start, of links that were up; what the watches send is next to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Packets sent.
    pub sent_packets: u64,
    /// Their bytes, without the headers of UDP and IP.
    pub sent_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

impl Traffic {
    pub(crate) fn of(connection: &quinn::Connection) -> Self {
        let stats = connection.stats();
        Traffic {
            sent_packets: stats.udp_tx.datagrams,
            sent_bytes: stats.udp_tx.bytes,
            received_packets: stats.udp_rx.datagrams,
            received_bytes: stats.udp_rx.bytes,
        }
    }
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Traffic {
            sent_packets: self.sent_packets + other.sent_packets,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_packets: self.received_packets + other.received_packets,
            received_bytes: self.received_bytes + other.received_bytes,
        }
    }
}

/// Frames that were dropped, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// To send, while there was no link.
    pub without_link: u64,
    /// To send on the stream, while its queue was full.
    pub queue_full: u64,
    /// To send, but longer than a frame may be.
    pub too_long: u64,
    /// Received as datagrams while the consumer did not take its events.
    pub not_taken: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) without_link: AtomicU64,
    pub(crate) queue_full: AtomicU64,
    pub(crate) too_long: AtomicU64,
    pub(crate) not_taken: AtomicU64,
    /// How often a second process showed the id of a member.
    pub(crate) twins: AtomicU64,
}

impl Counts {
    pub(crate) fn raise(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Dropped {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Dropped {
            without_link: read(&self.without_link),
            queue_full: read(&self.queue_full),
            too_long: read(&self.too_long),
            not_taken: read(&self.not_taken),
        }
    }
}

impl Shared {
    /// What this member says of itself in a greeting now.
    pub(crate) fn hello(&self) -> Arc<Hello> {
        self.hello.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Goes by this list from now on: greets with these settings, dials who is new, and ends the links of those that left
    /// when they have had time to hear of it.
    pub(crate) fn set_members(
        self: &Arc<Self>,
        members: &BTreeMap<MemberId, String>,
        settings: Settings,
    ) {
        let hello = Arc::new(Hello { settings, ..Hello::clone(&self.hello()) });
        *self.hello.write().unwrap_or_else(PoisonError::into_inner) = hello.clone();
        if self.stop.is_cancelled() {
            return;
        }
        for (member, address) in members.iter().filter(|(_, it)| !it.is_empty()) {
            if !peers::is_address(address) {
                let (address, ours) = (printable(address), self.me);
                tracing::warn!(%member, address, "{ours} cannot dial this member: its address is no host:port");
            }
        }
        let Relisted { listed, left } = self.peers.list(members);
        let oldest = hello.speaks().oldest;
        for (_, peer) in self.peers.all() {
            peer.end_below(oldest);
            if peer.differing().is_some_and(|theirs| hello.settings.agrees(&theirs)) {
                peer.set_differing(None);
            }
        }
        for listed in listed {
            self.tasks.spawn(dial::keep(self.clone(), listed));
        }
        for member in left {
            tracing::info!(%member, "it is not on the list of members any more");
            let shared = self.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = shared.stop.cancelled() => {}
                    () = tokio::time::sleep(LEAVES_WITHIN) => {
                        if shared.peers.forget(member) {
                            shared.forget_trouble(member);
                        }
                    }
                }
            });
        }
    }

    pub(crate) fn papers(&self) -> RwLockReadGuard<'_, TlsIdentity> {
        self.papers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses an identity from the next handshake on; whether it is another than before.
    pub(crate) fn renew(&self, identity: Identity) -> Result<bool, RenewalError> {
        if self.papers().identity.is_same(&identity) {
            return Ok(false);
        }
        let (papers, server) = TlsIdentity::new(self.me, &self.group, identity)?;
        tls::vouch(&papers.identity).map_err(RenewalError::NotVouchedFor)?;
        if !self.stop.is_cancelled() {
            self.endpoint.set_server_config(Some(server));
        }
        *self.papers.write().unwrap_or_else(PoisonError::into_inner) = papers;
        Ok(true)
    }

    /// Tells the consumer, and waits for it if it is slow; but not when we are to stop.
    pub(crate) async fn tell(&self, event: LinkEvent) {
        tokio::select! {
            biased;
            // An error means that nobody listens any more, which is the consumer's choice.
            _ = self.events.send(event) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Takes note of a refusal that is about settings, at every attempt: the protocol has to know.
    pub(crate) async fn note_settings(&self, member: MemberId, refusal: &Refusal) {
        let Refusal::OtherSettings { theirs, .. } = refusal else { return };
        match self.peers.get(member) {
            Some(peer) => peer.set_differing(Some((**theirs).clone())),
            None => self.note_stranger(member, theirs),
        }
        if let Some(config) = theirs.config() {
            self.tell(LinkEvent::Differs { member, config }).await;
        }
    }

    fn note_stranger(&self, member: MemberId, theirs: &Settings) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|_, (_, when)| when.elapsed() < TROUBLE_FADES);
        if strangers.len() < MAX_STRANGERS || strangers.contains_key(&member) {
            strangers.insert(member, (theirs.clone(), Instant::now()));
        }
    }

    /// Members that are refused because they have other settings, and what they have.
    pub(crate) fn differing(&self) -> Vec<(MemberId, Settings)> {
        let strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        let strangers = strangers.iter().filter(|(_, (_, when))| when.elapsed() < TROUBLE_FADES);
        let strangers = strangers.map(|(id, (settings, _))| (*id, settings.clone()));
        let peers = self.peers.all().into_iter();
        let peers = peers.filter_map(|(id, peer)| Some((id, peer.differing()?)));
        peers.chain(strangers).collect()
    }

    /// A member with the right settings was greeted: warns of others that are hardly meant to differ.
    pub(crate) fn compare_settings(&self, member: MemberId, theirs: &Settings) {
        if let Some(peer) = self.peers.get(member) {
            peer.set_differing(None);
        }
        for (name, ours, theirs) in self.hello().settings.differences(theirs) {
            tracing::warn!(
                %member,
                "{member} has {name} = {theirs}, and this member {name} = {ours}: that is safe, but give all members the same"
            );
        }
    }

    /// Tells that a newcomer found no place, unless that was told of its host before. Waits for nobody:
    /// there may be thousands.
    pub(crate) fn turn_away(&self, address: SocketAddr, full: Full) {
        let host = match full {
            Full::Host => connection_limit::host(address.ip()),
            Full::All => IpAddr::from([0, 0, 0, 0]),
        };
        let (address, reason) = (SocketAddr::new(host, 0), full.to_string());
        if self.reports.is_news(address, &reason, Instant::now()) {
            tracing::warn!(%host, "no link: {reason}");
            let _ = self.events.try_send(LinkEvent::Refused { member: None, address, reason });
        }
    }

    /// A second process shows the id of a member.
    pub(crate) async fn found_twin(&self, member: MemberId) {
        Counts::raise(&self.counts.twins);
        if self.is_twin_news(member) {
            self.tell(LinkEvent::Twin { member }).await;
        }
    }

    /// A second process has shown this member's id, to that one.
    pub(crate) async fn found_my_twin(&self, by: MemberId) {
        Counts::raise(&self.counts.twins);
        let reason = Refusal::Twin(self.me).to_string();
        if self.is_twin_news(self.me) {
            tracing::warn!(refused_by = %by, "{reason}");
            self.tell(LinkEvent::Twin { member: self.me }).await;
        }
        self.note_trouble(self.me, reason);
    }

    fn is_twin_news(&self, member: MemberId) -> bool {
        let mut told = self.twins_told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = told.get(&member).is_none_or(|when| when.elapsed() >= TWIN_AGAIN);
        if is_news {
            told.insert(member, Instant::now());
        }
        is_news
    }

    fn note_trouble(&self, member: MemberId, reason: String) {
        // Only of members: a stranger's certificate may name anyone.
        if member == self.me || self.peers.get(member).is_some() {
            let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
            troubles.insert(member, (reason, Instant::now()));
        }
    }

    /// A watch stands beside the link with this member, or does not any more.
    pub(crate) fn set_watched(&self, member: MemberId, is_watched: bool) {
        if let Some(peer) = self.peers.get(member) {
            peer.is_watched.store(is_watched, Ordering::Relaxed);
        }
    }

    /// A member was reached where it listens, or its link has ended.
    pub(crate) fn set_reachable(&self, member: MemberId, is_reachable: bool) {
        if let Some(peer) = self.peers.get(member) {
            peer.is_reachable.store(is_reachable, Ordering::Relaxed);
        }
    }

    pub(crate) fn forget_trouble(&self, member: MemberId) {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).remove(&member);
    }

    /// What is wrong with members, as far as it was found lately.
    pub(crate) fn troubles(&self) -> BTreeMap<MemberId, String> {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.retain(|_, (_, when)| when.elapsed() < TROUBLE_FADES);
        troubles.iter().map(|(member, (reason, _))| (*member, reason.clone())).collect()
    }

    /// Tells of a refusal, unless it was told before.
    pub(crate) async fn refuse(
        &self,
        member: Option<MemberId>,
        address: SocketAddr,
        reason: String,
    ) {
        let address = canonical(address);
        if let Some(member) = member {
            self.note_trouble(member, reason.clone());
        }
        if !self.reports.is_news(address, &reason, Instant::now()) {
            return;
        }
        match member {
            Some(member) => tracing::warn!(%member, %address, "no link: {reason}"),
            None => tracing::warn!(%address, "no link: {reason}"),
        }
        self.tell(LinkEvent::Refused { member, address, reason }).await;
    }
}
