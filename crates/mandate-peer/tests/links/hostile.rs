//! Strangers that send nonsense, and members that break the rules.

use std::time::Duration;

use mandate_peer::links::{MAX_FRAME_BYTES, MAX_STREAM_FRAME_BYTES};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout};

use crate::authority::Authority;
use crate::group::{
    Member, PATIENCE, assert_unharmed, config, id, local, most_within, name, pair, start,
};
use crate::raw::{self, Greeted};

async fn greeted(authority: &Authority, three: &Member) -> Greeted {
    let papers = authority.papers(&[&name(1)]);
    let to = three.links.local_addr();
    raw::connect(authority, Some(&papers), to, &name(3)).await.unwrap().greet().await
}

/// That the other side ends this TCP connection.
async fn ends(stream: &mut TcpStream) {
    let read = timeout(PATIENCE, stream.read(&mut [0])).await.expect("it stays open");
    assert!(matches!(read, Ok(0) | Err(_)), "something was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_at_both_ports_harm_nobody() {
    let (mut two, mut three) = pair(&Authority::new(), &[1]).await;
    let to = three.links.local_addr();
    let udp = UdpSocket::bind(local(0)).await.unwrap();
    for round in 0..2000 {
        let mut bytes: [u8; 1200] = rand::random();
        if round % 2 == 0 {
            // So that it passes for the first packet of a connection.
            bytes[..5].copy_from_slice(&[0xc3, 0, 0, 0, 1]);
        }
        udp.send_to(&bytes[..1 + usize::from(bytes[9]) * 4], to).await.unwrap();
    }
    for _ in 0..50 {
        let mut tcp = TcpStream::connect(to).await.unwrap();
        let bytes: [u8; 100] = rand::random();
        tcp.write_all(&bytes).await.unwrap();
        ends(&mut tcp).await;
    }
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_half_open_tcp_connections_harm_nobody() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    let to = three.links.local_addr();
    let mut half_open = Vec::new();
    for _ in 0..400 {
        half_open.push(TcpStream::connect(to).await.unwrap());
    }
    // Beyond the first 16 they are closed at once, well before their time is over.
    ends(&mut half_open[399]).await;
    assert_unharmed(&mut two, &mut three).await;
    // A newcomer gets its link, if need be without a watch.
    let mut one = start(config(&authority, 1, &[(3, to)])).await;
    one.until_up(3).await;
    three.until_up(1).await;
    // The first ones are closed after a while.
    ends(&mut half_open[0]).await;
    assert_unharmed(&mut one, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_connections_that_never_greet_harm_nobody() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    let to = three.links.local_addr();
    let papers = authority.papers(&[&name(1)]);
    let (mut silent, began) = (Vec::new(), Instant::now());
    for _ in 0..100 {
        // Beyond 16 they are refused.
        silent.push(raw::connect(&authority, Some(&papers), to, &name(3)).await);
    }
    let connected = silent.iter().filter(|raw| raw.is_ok()).count();
    let most = most_within(began.elapsed());
    assert!((1..=most).contains(&connected), "{connected}, of {most} at most");
    assert_unharmed(&mut two, &mut three).await;
    // After their time they are gone, and there is place again.
    let mut one = start(config(&authority, 1, &[(3, to)])).await;
    one.until_up(3).await;
    three.until_up(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_for_a_watch_is_good_once() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    let mut one = greeted(&authority, &three).await;
    let mut watch = one.watch().await;
    three.until_up(1).await;
    let mut replay = TcpStream::connect(three.links.local_addr()).await.unwrap();
    replay.write_all(&one.nonce).await.unwrap();
    ends(&mut replay).await;
    assert!(timeout(Duration::from_millis(50), watch.read(&mut [0])).await.is_err());
    three.nothing_more();
    // The watch itself is another matter: it is asked for over the link, and this one says nothing there.
    drop(watch);
    three.until_watch_broke(1).await;
    three.until_broken(1).await;
    timeout(PATIENCE, one.connection.closed()).await.unwrap();
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_byte_over_the_watch_ends_the_link() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    let mut one = greeted(&authority, &three).await;
    let mut watch = one.watch().await;
    three.until_up(1).await;
    watch.write_all(b"!").await.unwrap();
    let (member, _, reason) = three.refusal().await;
    assert_eq!(member, Some(id(1)));
    assert!(reason.contains("over the watch"), "{reason}");
    three.until_broken(1).await;
    ends(&mut watch).await;
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_works_without_a_watch_when_the_dialler_gives_it_up() {
    let authority = Authority::new();
    let (_two, mut three) = pair(&authority, &[1]).await;
    let Greeted { connection, streams, .. } = greeted(&authority, &three).await;
    drop(streams);
    three.until_up(1).await;
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(&[0, 2, b'h', b'i']).await.unwrap();
    assert_eq!(three.frame().await, (id(1), b"hi".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_is_too_long_ends_that_connection_only() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    for as_datagram in [false, true] {
        let mut one = greeted(&authority, &three).await;
        let _watch = one.watch().await;
        three.until_up(1).await;
        let (length, most) = match as_datagram {
            true => (MAX_FRAME_BYTES + 1, "1024"),
            false => (MAX_STREAM_FRAME_BYTES + 1, "14144"),
        };
        if as_datagram {
            one.connection.send_datagram(vec![0; length].into()).unwrap();
        } else {
            let mut stream = one.connection.open_uni().await.unwrap();
            stream.write_all(&(length as u16).to_be_bytes()).await.unwrap();
        }
        let (member, _, reason) = three.refusal().await;
        assert_eq!(member, Some(id(1)));
        let said = format!("{length} bytes");
        assert!(reason.contains(&said) && reason.contains(most), "{reason}");
        three.until_broken(1).await;
        let told = timeout(PATIENCE, one.connection.closed()).await.unwrap().to_string();
        assert!(told.contains(&said), "{told}");
    }
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_cannot_open_more_streams_than_it_needs() {
    let authority = Authority::new();
    let (_two, mut three) = pair(&authority, &[1]).await;
    let mut one = greeted(&authority, &three).await;
    let _watch = one.watch().await;
    three.until_up(1).await;
    let _first = one.connection.open_uni().await.unwrap();
    let second = timeout(Duration::from_millis(100), one.connection.open_uni()).await;
    assert!(second.is_err(), "a second stream");
}
