//! Relays, with real sockets: what a cut holds back, what it does not tell, and what heals.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mandate_cli::relay::Relays;
use mandate_proto::identity::MemberId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

const BOUND: Duration = Duration::from_secs(60);
const A: MemberId = MemberId::new(1);
const B: MemberId = MemberId::new(2);
const C: MemberId = MemberId::new(3);

/// Member `b` with its sockets, and the socket of `a`.
struct Pair {
    relays: Relays,
    near: UdpSocket,
    far: UdpSocket,
    listener: TcpListener,
}

async fn pair() -> Pair {
    let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (far, listener) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        match UdpSocket::bind(address).await {
            Ok(far) => break (far, listener),
            Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse),
        }
    };
    let here = near.local_addr().unwrap();
    let members = BTreeMap::from([(A, here), (B, far.local_addr().unwrap()), (C, here)]);
    let relays = Relays::start(&members).await.unwrap();
    Pair { relays, near, far, listener }
}

async fn heard(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 64];
    let (length, from) = timeout(BOUND, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
    (buffer[..length].to_vec(), from)
}

/// Nothing comes for as long as a datagram on this host could ever take.
async fn silent(socket: &UdpSocket) {
    let heard = timeout(Duration::from_millis(200), socket.recv_from(&mut [0; 64])).await;
    assert!(heard.is_err(), "{heard:?}");
}

#[tokio::test]
async fn datagrams_go_there_and_back_and_a_cut_loses_them_one_way_only() {
    let Pair { relays, near, far, .. } = pair().await;
    let to = relays.address(A, B).unwrap();
    near.send_to(b"one", to).await.unwrap();
    let (said, back) = heard(&far).await;
    assert_eq!(said, b"one");
    far.send_to(b"two", back).await.unwrap();
    assert_eq!(heard(&near).await, (b"two".to_vec(), to), "the answer comes from whom was asked");

    relays.cut(A, B);
    near.send_to(b"lost", to).await.unwrap();
    silent(&far).await;
    far.send_to(b"three", back).await.unwrap();
    assert_eq!(heard(&near).await.0, b"three");
    relays.heal(A, B);
    near.send_to(b"four", to).await.unwrap();
    assert_eq!(heard(&far).await, (b"four".to_vec(), back), "from the same address as before");
    assert!(relays.address(A, MemberId::new(9)).is_none());
}

#[tokio::test]
async fn whoever_is_isolated_hears_nothing_and_is_not_heard() {
    let Pair { relays, near, far, .. } = pair().await;
    let to = relays.address(A, B).unwrap();
    near.send_to(b"one", to).await.unwrap();
    let (_, back) = heard(&far).await;
    relays.isolate(A);
    near.send_to(b"lost", to).await.unwrap();
    far.send_to(b"lost", back).await.unwrap();
    tokio::join!(silent(&near), silent(&far));
    let third = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    third.send_to(b"two", relays.address(C, B).unwrap()).await.unwrap();
    assert_eq!(heard(&far).await.0, b"two", "another's way is not cut");
    relays.heal_all();
    near.send_to(b"three", to).await.unwrap();
    assert_eq!(heard(&far).await.0, b"three");
    far.send_to(b"four", back).await.unwrap();
    assert_eq!(heard(&near).await.0, b"four");
}

#[tokio::test]
async fn a_connection_that_ends_behind_a_cut_is_known_to_have_ended_when_it_heals() {
    let Pair { relays, listener, .. } = pair().await;
    let mut near = TcpStream::connect(relays.address(A, B).unwrap()).await.unwrap();
    let (mut far, _) = timeout(BOUND, listener.accept()).await.unwrap().unwrap();
    let mut byte = [0];
    near.write_all(b"x").await.unwrap();
    far.read_exact(&mut byte).await.unwrap();
    relays.isolate(B);
    drop(near);
    let held = timeout(Duration::from_millis(100), far.read(&mut byte)).await;
    assert!(held.is_err(), "nobody is told by a cable");
    relays.heal_all();
    assert_eq!(timeout(BOUND, far.read(&mut byte)).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn what_is_delayed_comes_later_in_both_protocols_and_whole() {
    let Pair { relays, near, far, listener } = pair().await;
    let delay = Duration::from_millis(50);
    relays.delay(A, B, delay);
    let to = relays.address(A, B).unwrap();
    let began = Instant::now();
    near.send_to(b"one", to).await.unwrap();
    heard(&far).await;
    assert!(began.elapsed() >= delay);
    let mut stream = TcpStream::connect(to).await.unwrap();
    let (mut accepted, _) = timeout(BOUND, listener.accept()).await.unwrap().unwrap();
    let (began, sent) = (Instant::now(), vec![7; 100_000]);
    stream.write_all(&sent).await.unwrap();
    drop(stream);
    let mut received = Vec::new();
    timeout(BOUND, accepted.read_to_end(&mut received)).await.unwrap().unwrap();
    assert!(began.elapsed() >= delay && received == sent);
}
