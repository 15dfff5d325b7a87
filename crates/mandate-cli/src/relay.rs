//! Relays between the members of a group on one host: ways that can be cut, slowed and healed.
//!
//! A real process cannot be cut off from others on the same host without privileges. So nobody is given
//! the others' true addresses: for each ordered pair there is a relay, UDP and TCP with one port number,
//! that knows who dials and whom. What travels from `a` to `b`, whichever of them dialled, takes the *way* from
//! `a` to `b`, and each way has two properties: whether it is cut, and how long it takes.
//!
//! A cut is a cut of the cable and not the end of a connection. Datagrams are lost. Bytes of a TCP
//! connection are held, and so is its end: nobody is told that the other is gone, as nobody is told by a
//! cable. When the way heals they go on, as retransmissions would. In one thing this differs from a
//! network: a TCP connection to a relay is accepted also while the way is cut, and then nothing is heard.
//!
//! Rejected: network namespaces and `tc`, which need privileges; closing connections on a cut, which tells
//! both sides at once what they should have to find out.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// Packets, or pieces of a TCP connection, that are under way at once in one direction. With datagrams
/// of 1,200 bytes that is a megabyte.
const UNDER_WAY: usize = 1024;

/// More than any datagram.
const DATAGRAM_BYTES: usize = 65_536;

/// Bytes of a TCP connection that travel together.
const PIECE_BYTES: usize = 4096;

/// Sockets from which one member sends to another. A process that was restarted on another port makes a
/// new one; the one that was silent longest goes.
const MAX_FLOWS: usize = 16;

/// A port that is free for TCP may be taken for UDP; a few attempts find one that is free for both.
const BIND_ATTEMPTS: usize = 64;

/// After the system could not give us a connection, it is left alone this long.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// How one member's packets get to another.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    is_cut: bool,
    delay: Duration,
}

/// Relays for every ordered pair of members. All end when this is dropped.
pub struct Relays {
    addresses: BTreeMap<(MemberId, MemberId), SocketAddr>,
    ways: BTreeMap<(MemberId, MemberId), watch::Sender<Way>>,
    _tasks: JoinSet<()>,
}

impl Relays {
    /// Starts relays to members that listen at these addresses, or will, for UDP and TCP. Must be called
    /// within a tokio runtime with I/O and time.
    pub async fn start(members: &BTreeMap<MemberId, SocketAddr>) -> io::Result<Self> {
        let pairs = || {
            let all = members.keys().flat_map(|a| members.keys().map(move |b| (*a, *b)));
            all.filter(|(a, b)| a != b)
        };
        let ways: BTreeMap<_, _> =
            pairs().map(|pair| (pair, watch::Sender::new(Way::default()))).collect();
        let mut addresses = BTreeMap::new();
        let mut tasks = JoinSet::new();
        for (dialler, dialled) in pairs() {
            let (udp, listener) = bind().await?;
            addresses.insert((dialler, dialled), listener.local_addr()?);
            let route = Route {
                target: members[&dialled],
                there: ways[&(dialler, dialled)].subscribe(),
                back: ways[&(dialled, dialler)].subscribe(),
            };
            tasks.spawn(relay_datagrams(Arc::new(udp), route.clone()));
            tasks.spawn(relay_connections(listener, route));
        }
        Ok(Relays { addresses, ways, _tasks: tasks })
    }

    /// Where `dialler` finds `dialled`; `None` if one of them is no member.
    pub fn address(&self, dialler: MemberId, dialled: MemberId) -> Option<SocketAddr> {
        self.addresses.get(&(dialler, dialled)).copied()
    }

    /// From now on nothing gets from one to the other. The way back stays as it is.
    pub fn cut(&self, from: MemberId, to: MemberId) {
        self.change(|a, b| (a, b) == (from, to), |way| way.is_cut = true);
    }

    /// What is sent from one to the other arrives again.
    pub fn heal(&self, from: MemberId, to: MemberId) {
        self.change(|a, b| (a, b) == (from, to), |way| way.is_cut = false);
    }

    /// Cuts a member off from all others, in both directions.
    pub fn isolate(&self, member: MemberId) {
        self.change(|a, b| a == member || b == member, |way| way.is_cut = true);
    }

    /// Heals every way.
    pub fn heal_all(&self) {
        self.change(|_, _| true, |way| way.is_cut = false);
    }

    /// What is sent from now on from one to the other takes so long.
    pub fn delay(&self, from: MemberId, to: MemberId, delay: Duration) {
        self.change(|a, b| (a, b) == (from, to), |way| way.delay = delay);
    }

    fn change(&self, which: impl Fn(MemberId, MemberId) -> bool, change: impl Fn(&mut Way)) {
        for (_, way) in self.ways.iter().filter(|((a, b), _)| which(*a, *b)) {
            way.send_modify(&change);
        }
    }
}

/// Whom a relay serves, and by which ways.
#[derive(Clone)]
struct Route {
    target: SocketAddr,
    there: watch::Receiver<Way>,
    back: watch::Receiver<Way>,
}

/// Sockets with one port number.
async fn bind() -> io::Result<(UdpSocket, TcpListener)> {
    for _ in 0..BIND_ATTEMPTS {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        if let Ok(udp) = UdpSocket::bind(listener.local_addr()?).await {
            return Ok((udp, listener));
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port is free for UDP and TCP on 127.0.0.1"))
}

/// One socket of the dialler, and the socket that stands for it towards the dialled.
struct Flow {
    source: SocketAddr,
    there: mpsc::Sender<(Instant, Vec<u8>)>,
    _tasks: JoinSet<()>,
}

async fn relay_datagrams(entrance: Arc<UdpSocket>, route: Route) {
    // The most recently used comes last.
    let mut flows: Vec<Flow> = Vec::new();
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        // An error is the echo of something sent to a port where nobody listens, as on any network.
        let Ok((length, source)) = entrance.recv_from(&mut buffer).await else { continue };
        let flow = match flows.iter().position(|flow| flow.source == source) {
            Some(place) => flows.remove(place),
            None => match open_flow(&entrance, source, &route).await {
                Ok(flow) => flow,
                Err(_) => continue,
            },
        };
        depart(&flow.there, &route.there, &buffer[..length]);
        if flows.len() >= MAX_FLOWS {
            flows.remove(0);
        }
        flows.push(flow);
    }
}

async fn open_flow(
    entrance: &Arc<UdpSocket>,
    source: SocketAddr,
    route: &Route,
) -> io::Result<Flow> {
    let exit = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    exit.connect(route.target).await?;
    let (exit, entrance) = (Arc::new(exit), entrance.clone());
    let mut tasks = JoinSet::new();
    let (there, mut leaving) = mpsc::channel(UNDER_WAY);
    let (sending, way) = (exit.clone(), route.there.clone());
    tasks.spawn(async move {
        while let Some(packet) = arrival(&mut leaving, &way).await {
            let _ = sending.send(&packet).await;
        }
    });
    let (back, mut leaving) = mpsc::channel(UNDER_WAY);
    let way = route.back.clone();
    tasks.spawn(async move {
        while let Some(packet) = arrival(&mut leaving, &way).await {
            let _ = entrance.send_to(&packet, source).await;
        }
    });
    let way = route.back.clone();
    tasks.spawn(async move {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            if let Ok(length) = exit.recv(&mut buffer).await {
                depart(&back, &way, &buffer[..length]);
            }
        }
    });
    Ok(Flow { source, there, _tasks: tasks })
}

/// Sends a datagram on its way, unless that is cut or full.
fn depart(queue: &mpsc::Sender<(Instant, Vec<u8>)>, way: &watch::Receiver<Way>, datagram: &[u8]) {
    let Way { is_cut, delay } = *way.borrow();
    if !is_cut {
        // A full queue loses what comes, as routers do.
        let _ = queue.try_send((Instant::now() + delay, datagram.to_vec()));
    }
}

/// The next datagram that arrives: one that is under way when the cable is cut does not.
async fn arrival(
    queue: &mut mpsc::Receiver<(Instant, Vec<u8>)>,
    way: &watch::Receiver<Way>,
) -> Option<Vec<u8>> {
    loop {
        let (due, datagram) = queue.recv().await?;
        sleep_until(due).await;
        if !way.borrow().is_cut {
            return Some(datagram);
        }
    }
}

async fn relay_connections(listener: TcpListener, route: Route) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE_AFTER_ERROR).await;
            continue;
        };
        connections.spawn(relay_connection(stream, route.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn relay_connection(near: TcpStream, mut route: Route) {
    // A connection that is dialled while the way is cut reaches nobody until it heals.
    if route.there.wait_for(|way| !way.is_cut).await.is_err() {
        return;
    }
    // Nobody listens there: the connection ends, as it would have been refused.
    let Ok(far) = TcpStream::connect(route.target).await else { return };
    let _ = near.set_nodelay(true).and_then(|()| far.set_nodelay(true));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::join!(carry(near_in, far_out, route.there), carry(far_in, near_out, route.back));
}

/// Carries bytes in one direction, and then their end.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut way: watch::Receiver<Way>,
) {
    let (queue, mut under_way) = mpsc::channel(UNDER_WAY);
    let reading_way = way.clone();
    let reading = async move {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            // A connection that was reset has ended as well.
            let length = from.read(&mut piece).await.unwrap_or(0);
            piece.truncate(length);
            let due = Instant::now() + reading_way.borrow().delay;
            if queue.send((due, piece)).await.is_err() || length == 0 {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((due, piece)) = under_way.recv().await {
            sleep_until(due).await;
            if way.wait_for(|way| !way.is_cut).await.is_err() {
                return;
            }
            if piece.is_empty() || to.write_all(&piece).await.is_err() {
                let _ = to.shutdown().await;
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}
