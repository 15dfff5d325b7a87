//! A member of a group: links, and an election over them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{
    ConfigId, Contact, MAX_ADDRESS, PeerGuarantee, Roster, RosterId,
};
use mandate_proto::wire;
use mandate_runtime::transport::{Delivery, Frame, Inbound, Transport};
use mandate_runtime::{Election, Protocol, Setup, Start, StartError};
use tokio::sync::mpsc;

use crate::links::{
    Identity, IdentityFiles, LinkError, LinkEvent, Links, LinksConfig, Renewal, Settings, Versions,
    is_reachable,
};

/// Frames that wait for the driver, which is busy only while it writes to disk.
const INBOX: usize = 1024;

/// The numbers of the protocols that members speak: members of two do not understand each other.
const POLE: u16 = 0;
const NFD_L: u16 = 1;

/// How a member is set up.
#[derive(Debug)]
pub struct PeerSetup {
    /// The group's name, which its certificates carry.
    pub group: String,
    /// Where to listen, for UDP and TCP.
    pub listen: SocketAddr,
    /// Where the others are, as `host:port`. Of members that are added while the group runs, the group's list says it.
    pub peers: BTreeMap<MemberId, String>,
    /// Where the others find this member, as `host:port`: so it is written into the group's list when the members are changed. Default: where
    /// it listens, if that is an address and a port of this host; otherwise the list says what the others are
    /// configured with, as soon as one of them leads and changes the members.
    pub advertise: Option<String>,
    /// Who this member is.
    pub identity: Identity,
    /// The protocol, and this member's part in it.
    pub protocol: Protocol,
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
    contacts: BTreeMap<MemberId, Contact>,
}

impl Peer {
    /// Starts a member on the current tokio runtime.
    pub async fn start(setup: PeerSetup) -> Result<Self, PeerError> {
        let PeerSetup { group, listen, peers, advertise, identity, protocol, state, start } = setup;
        if let Some(address) = advertise.as_ref().filter(|address| !is_reachable(address)) {
            let (member, address) = (protocol.me(), address.clone());
            return Err(LinkError::InvalidAddress { member, address }.into());
        }
        let protocol = with_contacts(protocol, &peers, advertise.or_else(|| fixed(listen)));
        let (me, speaks) = (protocol.me(), speaks(&protocol));
        let keeps_votes = matches!(protocol, Protocol::Pole(_));
        let shown = protocol.clone();
        let contacts = match &protocol {
            Protocol::Pole(config) => config.contacts().clone(),
            Protocol::NfdL { .. } => BTreeMap::new(),
        };
        // First: the links show whose state it is.
        let prepared = Election::prepare(Setup { protocol, group: group.clone(), state, start })?;
        let (disk, start) = (prepared.disk(), prepared.start_from());
        let settings = settings(&shown, prepared.roster().as_ref());
        let configured = peers.clone();
        let links = LinksConfig {
            group,
            me,
            listen,
            peers,
            identity,
            speaks,
            settings,
            disk,
            start,
            keeps_votes,
        };
        let (links, events) = Links::start(links).await?;
        let (inbox, inbound) = mpsc::channel(INBOX);
        let transport = LinkTransport { links: links.clone(), protocol: shown, configured };
        let election = prepared.start(Arc::new(transport), inbound);
        tokio::spawn(pass_on(events, inbox));
        Ok(Peer { election, links, contacts })
    }

    /// Names and places of members, as far as this one was set up to know them: what counts where the group's list says neither.
    pub fn contacts(&self) -> &BTreeMap<MemberId, Contact> {
        &self.contacts
    }

    /// The handle.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// Its links with the others.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.links.local_addr()
    }

    /// Keeps certificates and key as these files are, by looking at them; see [`Renewal`].
    pub fn renewal(&self, files: IdentityFiles) -> Renewal {
        self.links.renewal(files)
    }

    /// When this member's certificate expires.
    pub fn certificate_expires(&self) -> Option<SystemTime> {
        self.links.certificate_expires()
    }

    /// Gives leadership back, tells the others, and ends when they have heard it; bounded by three seconds.
    pub async fn shutdown(&self) {
        self.election.shutdown().await;
        self.links.close().await;
    }
}

/// What members must agree on before they exchange frames: which messages they are, and in which version.
/// Members of one group that speak different protocols refuse each other.
fn speaks(protocol: &Protocol) -> Versions {
    let (protocol, newest) = match protocol {
        Protocol::Pole(config) => (POLE, config.speaks()),
        Protocol::NfdL { .. } => (NFD_L, wire::VERSION),
    };
    Versions { protocol, oldest: wire::OLDEST, newest }
}

/// What members must have alike, so that they may count each other's votes, and what is hardly meant to differ.
fn settings(protocol: &Protocol, roster: Option<&Roster>) -> Settings {
    let (Protocol::Pole(config), Some(roster), Some(agreed)) =
        (protocol, roster, protocol.agreed())
    else {
        return Settings::default();
    };
    let id = ConfigId::of_roster(roster, config.guarantee());
    let members: Vec<_> = roster.members().collect();
    let settings = Settings::new(id, &members, &agreed.guarantee)
        .with("oracle", config.oracle())
        .with("detection", format_args!("{:?}", config.detect()));
    // Who speaks an older version knows of no other list than its own.
    let settings = match roster.id() {
        RosterId::SEED => settings,
        _ => settings.since(wire::CHANGES_SINCE),
    };
    match config.guarantee() {
        PeerGuarantee::Fenced => settings,
        PeerGuarantee::Leased { lease, allowance_per_mille } => settings
            .with("lease", format_args!("{lease:?}"))
            .with("drift_per_mille", allowance_per_mille),
    }
}

/// The protocol, with what this member is configured to know of where members are: for a leader that changes the members. What was said
/// of a member before stays.
fn with_contacts(
    protocol: Protocol,
    peers: &BTreeMap<MemberId, String>,
    own: Option<String>,
) -> Protocol {
    let Protocol::Pole(config) = protocol else { return protocol };
    let mut contacts = config.contacts().clone();
    let own = own.map(|address| (config.me(), address));
    for (member, address) in peers.clone().into_iter().chain(own) {
        let contact = contacts.entry(member).or_default();
        // One that is too long for the list stays where it is configured.
        if contact.address.is_empty() && address.len() <= MAX_ADDRESS {
            contact.address = address;
        }
    }
    Protocol::Pole(config.with_contacts(contacts))
}

/// Where others find who listens there, if that says it.
fn fixed(listen: SocketAddr) -> Option<String> {
    Some(listen.to_string()).filter(|address| is_reachable(address))
}

/// Links, as a driver sees them.
struct LinkTransport {
    links: Links,
    protocol: Protocol,
    /// Where members are, by this member's configuration.
    configured: BTreeMap<MemberId, String>,
}

impl Transport for LinkTransport {
    fn send(&self, to: MemberId, delivery: Delivery, frame: Frame) {
        self.links.send_as(to, delivery, Some(frame.version), frame.bytes);
    }

    fn speaks(&self, to: MemberId) -> u32 {
        self.links.version(to).unwrap_or(wire::VERSION)
    }

    fn round_trip(&self, to: MemberId) -> Option<Duration> {
        self.links.round_trip(to)
    }

    /// A process that is to be added asks whom it is configured with, if anyone; one that was removed asks nobody.
    fn goes_by(&self, roster: &Roster) {
        let me = self.protocol.me();
        let members = match roster.id() {
            RosterId::NONE => self.configured.clone(),
            _ if roster.has(me) => {
                let others = roster.entries().iter().filter(|entry| entry.id != me);
                others.map(|entry| (entry.id, entry.contact.address.clone())).collect()
            }
            _ => BTreeMap::new(),
        };
        self.links.set_members(&members, settings(&self.protocol, Some(roster)));
    }
}

/// Passes on what the links report, for as long as the driver listens.
async fn pass_on(mut events: mpsc::Receiver<LinkEvent>, inbox: mpsc::Sender<Inbound>) {
    while let Some(event) = events.recv().await {
        if let Some(inbound) = inbound(event)
            && inbox.send(inbound).await.is_err()
        {
            return;
        }
    }
}

/// What the driver is told of it.
fn inbound(event: LinkEvent) -> Option<Inbound> {
    Some(match event {
        LinkEvent::Received { from, version, frame } => {
            Inbound::Received { from, frame: Frame { version, bytes: frame } }
        }
        LinkEvent::Up { member } => Inbound::Up { member },
        LinkEvent::Deserted { member } | LinkEvent::Broken { member } => Inbound::Broken { member },
        LinkEvent::Twin { member } => Inbound::Twin { member },
        LinkEvent::Differs { member, config } => Inbound::Differs { member, config },
        // The link asks the other side itself, and waits longer than the driver would: a leader that is busy for some
        // milliseconds, or waits for its disk, answers no probe of the driver's.
        LinkEvent::WatchBroke { .. } => return None,
        // The links have logged it, once.
        LinkEvent::Refused { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use mandate_proto::pole::installation::Contact;
    use mandate_proto::pole::member;

    use super::*;

    #[test]
    fn what_members_compare_names_lease_and_drift_allowance() {
        let protocol = |allowance_per_mille| {
            let (interval, detect) = (Duration::from_millis(100), Duration::from_secs(1));
            let lease = Duration::from_secs(2);
            let me = MemberId::new(1);
            let config = member::Config::new(me, [me, MemberId::new(2)], interval, detect)
                .and_then(|it| {
                    it.with_guarantee(PeerGuarantee::Leased { lease, allowance_per_mille })
                });
            Protocol::Pole(config.unwrap())
        };
        let roster = Roster::seed([1, 2].map(MemberId::new));
        let shown = |protocol| settings(&protocol, Some(&roster));
        let (ours, theirs) = (shown(protocol(10)), shown(protocol(4)));
        assert!(ours.agrees(&theirs), "that is no reason to refuse");
        assert_eq!(ours.differences(&theirs), [("drift_per_mille", "10", "4".to_owned())]);
    }

    #[test]
    fn where_members_are_is_said_by_whoever_knows_it_best() {
        let id = MemberId::new;
        let (interval, detect) = (Duration::from_millis(100), Duration::from_secs(1));
        let named = Contact { name: "left".into(), address: String::new() };
        let moved = Contact { name: "right".into(), address: "said:3".into() };
        let config = member::Config::new(id(1), [1, 2, 3].map(id), interval, detect).unwrap();
        let protocol = Protocol::Pole(config.with_contacts([(id(2), named), (id(3), moved)]));
        let peers = BTreeMap::from([(id(2), "file:2".to_owned()), (id(3), "file:3".to_owned())]);
        let found = |own: Option<String>| {
            let Protocol::Pole(config) = with_contacts(protocol.clone(), &peers, own) else {
                panic!("another protocol")
            };
            let one = |number| {
                config.contacts().get(&id(number)).map_or("", |contact| &contact.address).to_owned()
            };
            ([one(1), one(2), one(3)], config.contacts()[&id(2)].name.clone())
        };
        let (addresses, name) = found(fixed("10.0.0.7:7101".parse().unwrap()));
        assert_eq!(addresses, ["10.0.0.7:7101", "file:2", "said:3"]);
        assert_eq!(name, "left");
        // Everywhere is nowhere in particular: the others say it.
        for listen in ["0.0.0.0:7101", "[::]:7101", "10.0.0.7:0"] {
            assert_eq!(found(fixed(listen.parse().unwrap())).0[0], "", "{listen}");
        }
        assert_eq!(found(Some("a".repeat(MAX_ADDRESS + 1))).0[0], "", "too long for the list");
    }

    #[test]
    fn a_watch_that_breaks_beside_a_living_link_hurries_nobody() {
        let member = MemberId::new(3);
        assert_eq!(inbound(LinkEvent::WatchBroke { member }), None);
        let hint = Some(Inbound::Broken { member });
        assert_eq!(inbound(LinkEvent::Deserted { member }), hint);
        assert_eq!(inbound(LinkEvent::Broken { member }), hint);
    }
}
