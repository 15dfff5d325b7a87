//! One host that opens connections without end, and says nothing: members are not kept out.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mandate_peer::links::LinkEvent;
use quinn::Endpoint;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::time::{Instant, timeout};

use crate::authority::Authority;
use crate::group::{
    Member, PATIENCE, assert_unharmed, config, local, most_within, name, pair, start,
};
use crate::raw;

/// Another address of this host.
const STRANGER: [u8; 4] = [127, 0, 0, 2];

const MANY: usize = 10_000;

async fn half_open(to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((STRANGER, 0)))?;
    socket.connect(to).await
}

/// That a newcomer gets its link meanwhile, the old one is unharmed, and nothing more is told of the stranger.
async fn members_do_not_mind(
    authority: &Authority,
    (mut two, mut three): (Member, Member),
    flood: tokio::task::JoinHandle<usize>,
) {
    // Whatever comes of it, no restart of a member may take longer because of it.
    let mut one = start(config(authority, 1, &[(3, three.links.local_addr())])).await;
    timeout(PATIENCE, one.until_up(3)).await.expect("it was kept out");
    three.until_up(1).await;
    let opened = flood.await.unwrap();
    assert!(opened >= MANY, "{opened}");
    while let Ok(event) = three.events.try_recv() {
        assert!(!matches!(event, LinkEvent::Refused { .. }), "told again: {event:?}");
    }
    assert_unharmed(&mut two, &mut three).await;
    assert_unharmed(&mut one, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_half_open_tcp_connections_of_one_host_keep_nobody_out() {
    let authority = Authority::new();
    let (two, mut three) = pair(&authority, &[1]).await;
    let to = three.links.local_addr();
    let flood = tokio::spawn(async move {
        // As many as a process may have open by default; the others are closed by the member anyway.
        let mut open = VecDeque::new();
        let mut opened = 0;
        while opened < MANY {
            // When its queue is full the host sends again after a second.
            if let Ok(Ok(stream)) = timeout(Duration::from_millis(200), half_open(to)).await {
                opened += 1;
                open.push_back(stream);
            }
            if open.len() > 500 {
                open.pop_front();
            }
        }
        opened
    });
    let (_, address, reason) = three.refusal().await;
    assert_eq!(address.ip(), IpAddr::from(STRANGER));
    assert!(reason.contains("have not yet said who they are"), "{reason}");
    members_do_not_mind(&authority, (two, three), flood).await;
}

/// First packets of as many connections, none of which goes on.
async fn first_packets(authority: &Authority, count: usize) -> Vec<Vec<u8>> {
    let sink = UdpSocket::bind(local(0)).await.unwrap();
    let to = sink.local_addr().unwrap();
    let papers = authority.papers(&[&name(1)]);
    let client = raw::client(authority, Some(&papers));
    let endpoint = Endpoint::client(local(0)).unwrap();
    let (mut seen, mut packets) = (BTreeSet::new(), Vec::new());
    let mut bytes = vec![0; 2048];
    while packets.len() < count {
        let connecting: Vec<_> =
            (0..50).map(|_| endpoint.connect_with(client.clone(), to, &name(3)).unwrap()).collect();
        while let Ok(Ok((length, _))) =
            timeout(Duration::from_millis(20), sink.recv_from(&mut bytes)).await
        {
            // A long header (RFC 9000, section 17.2): the number that the dialler chose for us follows its
            // length. Repetitions and farewells bear the same.
            let number = bytes[6..6 + usize::from(bytes[5])].to_vec();
            if length >= 1200 && seen.insert(number) {
                packets.push(bytes[..length].to_vec());
            }
        }
        drop(connecting);
    }
    packets
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_quic_connections_of_one_host_that_do_not_go_on_keep_nobody_out() {
    let authority = Authority::new();
    let packets = first_packets(&authority, MANY).await;
    let members = pair(&authority, &[1]).await;
    let to = members.1.links.local_addr();
    let flood = tokio::spawn(async move {
        // It answers nothing, so it is asked to prove its address, and no more is heard of it; for a host that
        // does prove it, see the next test.
        let socket = UdpSocket::bind(SocketAddr::from((STRANGER, 0))).await.unwrap();
        for (number, packet) in packets.iter().enumerate() {
            socket.send_to(packet, to).await.unwrap();
            // So that the kernel's buffer is not what drops them.
            if number % 20 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        packets.len()
    });
    members_do_not_mind(&authority, members, flood).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_proves_its_address_gets_its_share_and_no_more() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    let to = three.links.local_addr();
    let papers = authority.papers(&[&name(1)]);
    let client = raw::client(&authority, Some(&papers));
    let endpoint = Endpoint::client(SocketAddr::from((STRANGER, 0))).unwrap();
    // They are who they say, but do not greet.
    let (mut silent, began) = (Vec::new(), Instant::now());
    for _ in 0..60 {
        let connecting = endpoint.connect_with(client.clone(), to, &name(3)).unwrap();
        silent.push(timeout(PATIENCE, connecting).await.expect("no answer"));
    }
    let connected = silent.iter().filter(|connection| connection.is_ok()).count();
    let most = most_within(began.elapsed());
    assert!((1..=most).contains(&connected), "{connected}, of {most} at most");
    let (_, address, _) = three.refusal().await;
    assert_eq!(address.ip(), IpAddr::from(STRANGER));
    let mut one = start(config(&authority, 1, &[(3, to)])).await;
    timeout(PATIENCE, one.until_up(3)).await.expect("it was kept out");
    three.until_up(1).await;
    assert_unharmed(&mut two, &mut three).await;
}
