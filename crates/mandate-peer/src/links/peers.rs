//! Who this member links with: the members of its list, those that left it a moment ago, and guests.
//!
//! The list follows the protocol's ([`Links::set_members`](super::Links::set_members)): a new member is dialled or asked
//! for, one that left is not dialled any more, and its link ends some time later, so that it can still be told. *Guests* are
//! processes that the group's authority vouches for, that are not on our list, and that go by another list than ours: one
//! that is to be added, a member that was removed and does not know yet, or one of a newer list that we have not heard of.
//! They are let in so that the protocol can tell who has the newer list. There are only so many.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use mandate_proto::identity::MemberId;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::handle::Spoken;
use super::limits::{LEAVES_WITHIN, MAX_GUESTS};
use super::settings::Settings;
use super::shared::Traffic;
use super::twins::Shown;

/// A member or a guest, and its link if there is one.
pub(crate) struct Peer {
    /// As `host:port`, resolved at each attempt: first the one that is configured here, then the one of the list.
    addresses: Mutex<Vec<String>>,
    /// The addresses have changed.
    pub(crate) moved: Notify,
    standing: Mutex<Standing>,
    /// It has left for good: its link is to end.
    pub(crate) gone: CancellationToken,
    /// Held by the one link that is up, so that its `Broken` comes before the next one's `Up`.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Ends the newest link, or the one that waits for its turn; and which version that speaks.
    newest: Mutex<Option<(u32, CancellationToken)>>,
    pub(crate) outgoing: RwLock<Option<Outgoing>>,
    /// What it has shown of itself.
    pub(crate) shown: Shown,
    /// Whether a watch stands beside the link.
    pub(crate) is_watched: AtomicBool,
    /// Whether it was reached where it listens, since the link is up.
    pub(crate) is_reachable: AtomicBool,
    /// What links that have ended carried.
    carried: Mutex<Traffic>,
    /// What it was last heard to be configured with, if that keeps us from linking.
    differing: Mutex<Option<Settings>>,
}

/// What a peer is to us.
enum Standing {
    /// On our list. The token ends who dials it or asks it.
    Listed(CancellationToken),
    /// It was on our list until then.
    Leaving(Instant),
    /// It is not, and may have something to hear or to say.
    Guest,
}

/// Where frames to a member go while its link is up.
pub(crate) struct Outgoing {
    pub(crate) connection: quinn::Connection,
    pub(crate) queue: mpsc::Sender<Vec<u8>>,
    /// Which version it speaks, and what release the other side says that it is of.
    pub(crate) spoken: Spoken,
}

impl Peer {
    fn new(standing: Standing) -> Self {
        Peer {
            addresses: Default::default(),
            moved: Notify::new(),
            standing: Mutex::new(standing),
            gone: CancellationToken::new(),
            turn: Default::default(),
            newest: Default::default(),
            outgoing: Default::default(),
            shown: Shown::default(),
            is_watched: Default::default(),
            is_reachable: Default::default(),
            carried: Default::default(),
            differing: Default::default(),
        }
    }

    /// Where it may be found; nowhere, if nobody has said.
    pub(crate) fn addresses(&self) -> Vec<String> {
        locked(&self.addresses).clone()
    }

    fn set_addresses(&self, addresses: Vec<String>) {
        let before = std::mem::replace(&mut *locked(&self.addresses), addresses.clone());
        if before != addresses {
            self.moved.notify_one();
        }
    }

    /// Whether it is on our list.
    pub(crate) fn is_listed(&self) -> bool {
        matches!(*locked(&self.standing), Standing::Listed(_))
    }

    /// What it has other settings than we do, as far as is known.
    pub(crate) fn differing(&self) -> Option<Settings> {
        locked(&self.differing).clone()
    }

    pub(crate) fn set_differing(&self, settings: Option<Settings>) {
        *locked(&self.differing) = settings;
    }

    /// Where frames go from now on. What the link before has carried stays counted.
    pub(crate) fn set_outgoing(&self, outgoing: Option<Outgoing>) {
        let mut present = self.outgoing.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(Outgoing { connection, .. }) = &*present {
            let mut carried = locked(&self.carried);
            *carried = *carried + Traffic::of(connection);
        }
        *present = outgoing;
    }

    /// Whether there is a link.
    pub(crate) fn is_linked(&self) -> bool {
        self.outgoing.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits until there is no link.
    pub(crate) async fn unlinked(&self) {
        while self.is_linked() {
            drop(self.turn.lock().await);
        }
    }

    /// What all links with this member have carried.
    fn traffic(&self) -> Traffic {
        let present = self.outgoing.read().unwrap_or_else(PoisonError::into_inner);
        let carried = *locked(&self.carried);
        present.as_ref().map_or(carried, |link| carried + Traffic::of(&link.connection))
    }

    /// Makes a link the newest, and ends the one before it.
    pub(crate) fn supersede(&self, version: u32, token: CancellationToken) {
        if let Some((_, older)) = locked(&self.newest).replace((version, token)) {
            older.cancel();
        }
    }

    /// Ends a link that speaks an older version than this one.
    pub(crate) fn end_below(&self, oldest: u32) {
        if let Some((_, token)) = locked(&self.newest).as_ref().filter(|link| link.0 < oldest) {
            token.cancel();
        }
    }
}

/// All of them.
pub(crate) struct Peers {
    /// Addresses that are configured here: they go before those of the list, since they may say how this host
    /// gets there, and can be corrected without changing the group.
    configured: BTreeMap<MemberId, String>,
    known: RwLock<BTreeMap<MemberId, Arc<Peer>>>,
    /// What links with peers carried that are not known any more.
    carried: Mutex<Traffic>,
}

/// A member that is on the list from now on, to be dialled or asked for until the token ends that.
pub(crate) struct Listed {
    pub(crate) member: MemberId,
    pub(crate) peer: Arc<Peer>,
    pub(crate) until: CancellationToken,
}

/// What a new list changes.
pub(crate) struct Relisted {
    pub(crate) listed: Vec<Listed>,
    /// Those that have left. To be [forgotten](Peers::forget) after a while.
    pub(crate) left: Vec<MemberId>,
}

impl Peers {
    /// Nobody is listed yet.
    pub(crate) fn new(configured: BTreeMap<MemberId, String>) -> Self {
        Peers { configured, known: Default::default(), carried: Default::default() }
    }

    /// A member or guest.
    pub(crate) fn get(&self, member: MemberId) -> Option<Arc<Peer>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&member).cloned()
    }

    /// Those whose addresses are configured here.
    pub(crate) fn configured(&self) -> BTreeMap<MemberId, String> {
        self.configured.keys().map(|member| (*member, String::new())).collect()
    }

    /// All that are known.
    pub(crate) fn all(&self) -> Vec<(MemberId, Arc<Peer>)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(member, peer)| (*member, peer.clone())).collect()
    }

    /// What all links have carried.
    pub(crate) fn traffic(&self) -> Traffic {
        let known = self.all().into_iter().map(|(_, peer)| peer.traffic());
        known.fold(*locked(&self.carried), |sum, of| sum + of)
    }

    /// Goes by this list from now on: members, and where they are, empty where that is not known.
    pub(crate) fn list(&self, members: &BTreeMap<MemberId, String>) -> Relisted {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut changes = Relisted { listed: Vec::new(), left: Vec::new() };
        for (member, peer) in known.iter().filter(|(member, _)| !members.contains_key(member)) {
            let mut standing = locked(&peer.standing);
            if let Standing::Listed(until) = &*standing {
                until.cancel();
                *standing = Standing::Leaving(Instant::now());
                changes.left.push(*member);
            }
        }
        for (member, address) in members {
            let peer = known.entry(*member).or_insert_with(|| Arc::new(Peer::new(Standing::Guest)));
            let ways = self.configured.get(member).into_iter().chain([address]);
            let ways: Vec<_> = ways.filter(|way| is_address(way)).cloned().collect();
            let mut seen = BTreeSet::new();
            peer.set_addresses(ways.into_iter().filter(|way| seen.insert(way.clone())).collect());
            let mut standing = locked(&peer.standing);
            if !matches!(*standing, Standing::Listed(_)) {
                let until = CancellationToken::new();
                *standing = Standing::Listed(until.clone());
                changes.listed.push(Listed { member: *member, peer: peer.clone(), until });
            }
        }
        changes
    }

    /// The peer that a process from outside is; `None` if there are too many of those. One that is not linked makes room.
    pub(crate) fn guest(&self, member: MemberId) -> Option<Arc<Peer>> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = known.get(&member) {
            return Some(peer.clone());
        }
        let is_guest = |peer: &Peer| matches!(*locked(&peer.standing), Standing::Guest);
        let guests = known.values().filter(|peer| is_guest(peer)).count();
        if guests >= MAX_GUESTS {
            let idle = known.iter().find(|(_, peer)| is_guest(peer) && !peer.is_linked());
            let idle = *idle?.0;
            self.remove(&mut known, idle);
        }
        let peer = Arc::new(Peer::new(Standing::Guest));
        known.insert(member, peer.clone());
        Some(peer)
    }

    /// Whether this is what is known of a member now.
    pub(crate) fn knows(&self, member: MemberId, peer: &Arc<Peer>) -> bool {
        self.get(member).is_some_and(|known| Arc::ptr_eq(&known, peer))
    }

    /// Forgets a guest whose link has ended.
    pub(crate) fn guest_left(&self, member: MemberId, peer: &Arc<Peer>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_this = known.get(&member).is_some_and(|known| Arc::ptr_eq(known, peer));
        let is_guest = matches!(*locked(&peer.standing), Standing::Guest);
        if is_this && is_guest && !peer.is_linked() {
            self.remove(&mut known, member);
        }
    }

    /// Forgets a member, and ends its link, if it left long enough ago and did not come back; whether it did.
    pub(crate) fn forget(&self, member: MemberId) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let has_left = |peer: &Arc<Peer>| matches!(*locked(&peer.standing), Standing::Leaving(since) if since.elapsed() >= LEAVES_WITHIN);
        let is_over = known.get(&member).is_some_and(has_left);
        if is_over {
            self.remove(&mut known, member);
        }
        is_over
    }

    fn remove(&self, known: &mut BTreeMap<MemberId, Arc<Peer>>, member: MemberId) {
        if let Some(peer) = known.remove(&member) {
            // What its link still carries until it ends is not counted.
            let mut carried = locked(&self.carried);
            *carried = *carried + peer.traffic();
            peer.gone.cancel();
        }
    }
}

/// Whether this is a `host:port`.
pub(crate) fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Whether others can be told to look for a member there: a host name or an address, and a port. What stands for all addresses of a host
/// (`0.0.0.0`, `[::]`) is where one can listen, and nowhere to go.
pub fn is_reachable(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok_and(|ip| !ip.is_unspecified()),
        None => {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            let is_all = host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_unspecified());
            !host.is_empty() && host.bytes().all(is_plain) && !is_all
        }
    };
    is_host && port.parse::<u16>().is_ok_and(|port| port != 0)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> MemberId {
        MemberId::new(number)
    }

    fn members(of: &[(u32, &str)]) -> BTreeMap<MemberId, String> {
        of.iter().map(|(number, address)| (id(*number), address.to_string())).collect()
    }

    #[test]
    fn a_member_is_reached_at_a_host_and_a_port_and_not_at_all_addresses_of_one() {
        for place in
            ["10.0.0.4:7101", "db4.example:7101", "orders_3:1", "[fd00::4]:7101", "[::1]:1"]
        {
            assert!(is_reachable(place), "{place}");
        }
        let nowhere =
            ["", "p4", "p4:", ":7101", "p4:0", "p4:x", "p4:70000", "0.0.0.0:7101", "[::]:7101"];
        for place in
            nowhere.into_iter().chain(["::1:7101", "a b:1", "http://a:1", "[fd00::4:1", "a/b:1"])
        {
            assert!(!is_reachable(place), "{place}");
        }
    }

    #[test]
    fn the_list_says_who_is_dialled_and_the_configuration_where_first() {
        let peers = Peers::new(members(&[(1, "here:1"), (2, "here:2")]));
        let first = peers.list(&peers.configured());
        assert_eq!(first.listed.len(), 2);
        assert_eq!(peers.get(id(1)).unwrap().addresses(), ["here:1"]);
        let next = peers.list(&members(&[(1, "there:1"), (4, "there:4"), (5, "nowhere")]));
        let new: Vec<_> = next.listed.iter().map(|listed| listed.member).collect();
        assert_eq!((new, next.left), (vec![id(4), id(5)], vec![id(2)]));
        assert_eq!(peers.get(id(1)).unwrap().addresses(), ["here:1", "there:1"]);
        assert_eq!(peers.get(id(4)).unwrap().addresses(), ["there:4"]);
        assert!(peers.get(id(5)).unwrap().addresses().is_empty(), "that is no address");
        // Nobody dials it any more, and it can be told for a while.
        assert!(first.listed[1].until.is_cancelled() && !first.listed[0].until.is_cancelled());
        assert!(!peers.get(id(2)).unwrap().is_listed());
        assert!(!peers.forget(id(2)), "it left a moment ago");
        assert_eq!(peers.list(&members(&[(2, "")])).listed.len(), 1, "it is back");
        assert!(peers.get(id(2)).unwrap().is_listed());
    }

    #[test]
    fn there_are_only_so_many_guests_and_members_take_no_place_of_theirs() {
        let peers = Peers::new(members(&[(1, "here:1")]));
        peers.list(&peers.configured());
        let crowd = 10_u32..10 + MAX_GUESTS as u32;
        let guests: Vec<_> = crowd.clone().map(|it| peers.guest(id(it)).unwrap()).collect();
        // None of them has a link, so one makes room.
        assert!(peers.guest(id(99)).is_some());
        let left = crowd.filter(|it| peers.get(id(*it)).is_none()).count();
        assert_eq!(left, 1);
        assert_eq!(guests.iter().filter(|guest| guest.gone.is_cancelled()).count(), 1);
        // One that is added keeps what it has, and a guest that left is forgotten.
        let last = guests.last().unwrap();
        let place = id(9 + MAX_GUESTS as u32);
        peers.list(&BTreeMap::from([(place, String::new())]));
        assert!(peers.knows(place, last) && last.is_listed());
        peers.guest_left(place, last);
        assert!(peers.knows(place, last), "it is a member now");
        let guest = peers.get(id(99)).unwrap();
        peers.guest_left(id(99), &guest);
        assert!(peers.get(id(99)).is_none());
    }
}
