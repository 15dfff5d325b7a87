//! Last words arrive, also over a long way; and nobody waits for them longer than that.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mandate_peer::links::Delivery;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::authority::Authority;
use crate::group::{Member, config, id, local, pair, start};

/// A way to a member that takes so long in each direction. Ends with the test's runtime.
async fn long_way(to: SocketAddr, delay: Duration) -> SocketAddr {
    let near = Arc::new(UdpSocket::bind(local(0)).await.unwrap());
    let far = Arc::new(UdpSocket::bind(local(0)).await.unwrap());
    let address = near.local_addr().unwrap();
    let (dialler, known) = watch::channel(local(1));
    tokio::spawn(carry(near.clone(), far.clone(), delay, Some(dialler), watch::channel(to).1));
    tokio::spawn(carry(far, near, delay, None, known));
    address
}

/// Carries packets from one socket to another; notes who sends them, if asked to.
async fn carry(
    from: Arc<UdpSocket>,
    out: Arc<UdpSocket>,
    delay: Duration,
    sender: Option<watch::Sender<SocketAddr>>,
    to: watch::Receiver<SocketAddr>,
) {
    let mut packet = vec![0; 2048];
    while let Ok((length, source)) = from.recv_from(&mut packet).await {
        if let Some(sender) = &sender {
            sender.send_replace(source);
        }
        let (out, bytes, to) = (out.clone(), packet[..length].to_vec(), *to.borrow());
        let due = Instant::now() + delay;
        tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            let _ = out.send_to(&bytes, to).await;
        });
    }
}

/// Says many things, the last of them just before it closes; how long that took.
async fn speak_and_close(two: &Member, words: u8) -> Duration {
    for word in 0..words {
        two.links.send(id(3), Delivery::Stream, vec![word; 100]);
    }
    let began = Instant::now();
    two.links.close().await;
    began.elapsed()
}

async fn hears_everything(three: &mut Member, words: u8) {
    for word in 0..words {
        assert_eq!(three.frame().await, (id(2), vec![word; 100]));
    }
    three.until_broken(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_last_arrives_over_a_way_of_a_fifth_of_a_second() {
    let authority = Authority::new();
    let mut three = start(config(&authority, 3, &[(2, local(1))])).await;
    let way = long_way(three.links.local_addr(), Duration::from_millis(200)).await;
    let mut two = start(config(&authority, 2, &[(3, way)])).await;
    two.until_up(3).await;
    three.until_up(2).await;
    let took = speak_and_close(&two, 3).await;
    println!("closed after {took:?}");
    hears_everything(&mut three, 3).await;
    assert!(took >= Duration::from_millis(400), "nobody waited for an answer: {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_one_host_it_takes_a_moment() {
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let (two, mut three) = pair(&Authority::new(), &[]).await;
        fastest = fastest.min(speak_and_close(&two, 100).await);
        hears_everything(&mut three, 100).await;
    }
    println!("closed after {fastest:?}");
    assert!(fastest < Duration::from_millis(50), "the fastest of five took {fastest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_listen_is_not_waited_for() {
    // Nobody takes p3's events: what is said after the first thousand words is never read.
    let (two, _three) = pair(&Authority::new(), &[]).await;
    for _ in 0..20 {
        speak(&two).await;
    }
    let began = Instant::now();
    two.links.close().await;
    let took = began.elapsed();
    assert!(took < Duration::from_millis(1500), "{took:?}");
}

async fn speak(two: &Member) {
    for word in 0..100u8 {
        two.links.send(id(3), Delivery::Stream, vec![word; 100]);
        tokio::task::yield_now().await;
    }
}
