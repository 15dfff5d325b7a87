//! What links are for.

use mandate_peer::links::{Delivery, Links, MAX_FRAME_BYTES, MAX_STREAM_FRAME_BYTES};
use tokio::time::timeout;

use crate::authority::Authority;
use crate::group::{Member, PATIENCE, config, config_with, id, local, name, pair, start};

/// Datagrams may be lost even here, so they are sent until one arrives.
async fn datagram_arrives(from: &Member, to: &mut Member) {
    let text = format!("from {}", from.id).into_bytes();
    loop {
        from.links.send(to.id, Delivery::Datagram, text.clone());
        if let Ok(frame) = timeout(PATIENCE / 10, to.frame()).await {
            assert_eq!(frame, (from.id, text));
            return;
        }
    }
}

async fn stream_frame_arrives(from: &Member, to: &mut Member) {
    let text = format!("reliably from {}", from.id).into_bytes();
    from.links.send(to.id, Delivery::Stream, text.clone());
    assert_eq!(to.frame().await, (from.id, text));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_members_exchange_datagrams_and_stream_frames() {
    let (mut two, mut three) = pair(&Authority::new(), &[]).await;
    datagram_arrives(&two, &mut three).await;
    datagram_arrives(&three, &mut two).await;
    stream_frame_arrives(&two, &mut three).await;
    stream_frame_arrives(&three, &mut two).await;
    two.links.close().await;
    three.until_broken(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_link_every_pair() {
    let authority = Authority::new();
    let nowhere = local(1);
    let mut three = start(config(&authority, 3, &[(1, nowhere), (2, nowhere)])).await;
    let to_three = (3, three.links.local_addr());
    let mut two = start(config(&authority, 2, &[(1, nowhere), to_three])).await;
    let to_two = (2, two.links.local_addr());
    let mut one = start(config(&authority, 1, &[to_two, to_three])).await;
    one.until_all_up(&[2, 3]).await;
    two.until_all_up(&[1, 3]).await;
    three.until_all_up(&[1, 2]).await;
    for from in [&one, &three] {
        datagram_arrives(from, &mut two).await;
        stream_frame_arrives(from, &mut two).await;
    }
    for from in [&one, &two] {
        datagram_arrives(from, &mut three).await;
        stream_frame_arrives(from, &mut three).await;
    }
    datagram_arrives(&three, &mut one).await;
    stream_frame_arrives(&two, &mut one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_link_over_ipv6_too() {
    let here = std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 0));
    if let Err(error) = std::net::UdpSocket::bind(here) {
        return println!("SKIPPED: this host has no ::1 ({error})");
    }
    let authority = Authority::new();
    let on_ipv6 = |number, peers: &[_]| {
        let mut config = config(&authority, number, peers);
        config.listen = here;
        config
    };
    let nowhere = local(1);
    let mut three = start(on_ipv6(3, &[(1, nowhere), (2, nowhere)])).await;
    let to_three = (3, three.links.local_addr());
    assert!(to_three.1.is_ipv6());
    let mut two = start(on_ipv6(2, &[(1, nowhere), to_three])).await;
    let to_two = (2, two.links.local_addr());
    let mut one = start(on_ipv6(1, &[to_two, to_three])).await;
    one.until_all_up(&[2, 3]).await;
    two.until_all_up(&[1, 3]).await;
    three.until_all_up(&[1, 2]).await;
    datagram_arrives(&one, &mut three).await;
    stream_frame_arrives(&three, &mut two).await;
    stream_frame_arrives(&two, &mut one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_frames_of_every_size_arrive_whole_and_in_order() {
    let (two, mut three) = pair(&Authority::new(), &[]).await;
    for length in 0..=MAX_FRAME_BYTES {
        two.links.send(id(3), Delivery::Stream, vec![length as u8; length]);
        // Fewer than the queue holds are under way at a time, so none is dropped.
        if length % 128 == 127 || length == MAX_FRAME_BYTES {
            for expected in length - length % 128..=length {
                assert_eq!(three.frame().await.1, vec![expected as u8; expected]);
            }
        }
    }
    two.links.send(id(3), Delivery::Stream, vec![7; MAX_STREAM_FRAME_BYTES]);
    assert_eq!(three.frame().await.1, vec![7; MAX_STREAM_FRAME_BYTES]);
    assert_eq!(two.links.dropped(), Default::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_datagram_gets_through() {
    let (two, mut three) = pair(&Authority::new(), &[]).await;
    loop {
        two.links.send(id(3), Delivery::Datagram, vec![7; MAX_FRAME_BYTES]);
        if let Ok((_, frame)) = timeout(PATIENCE / 10, three.frame()).await {
            return assert_eq!(frame, vec![7; MAX_FRAME_BYTES]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_is_dropped_and_counted() {
    let (two, mut three) = pair(&Authority::new(), &[1]).await;
    two.links.send(id(1), Delivery::Datagram, vec![1]);
    two.links.send(id(9), Delivery::Stream, vec![1]);
    two.links.send(id(3), Delivery::Stream, vec![1; MAX_STREAM_FRAME_BYTES + 1]);
    two.links.send(id(3), Delivery::Datagram, vec![1; MAX_FRAME_BYTES + 1]);
    let dropped = two.links.dropped();
    assert_eq!((dropped.without_link, dropped.too_long, dropped.queue_full), (2, 2, 0));
    // Nobody takes p3's events, so all that lies between is filled in the end: and nothing blocks.
    while two.links.dropped().queue_full == 0 {
        two.links.send(id(3), Delivery::Stream, vec![1; MAX_FRAME_BYTES]);
        tokio::task::yield_now().await;
    }
    assert_eq!(three.frame().await.1.len(), MAX_FRAME_BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_all_handles_ends_everything() {
    let (two, mut three) = pair(&Authority::new(), &[]).await;
    let clone = two.links.clone();
    let Member { links, mut events, .. } = two;
    drop(links);
    clone.send(id(3), Delivery::Stream, b"still open".to_vec());
    assert_eq!(three.frame().await.1, b"still open");
    drop(clone);
    let ended = async { while events.recv().await.is_some() {} };
    timeout(PATIENCE, ended).await.expect("tasks go on");
    three.until_broken(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_by_itself_and_frees_both_ports() {
    let (two, three) = pair(&Authority::new(), &[]).await;
    let before = tokio::time::Instant::now();
    timeout(PATIENCE, three.links.close()).await.expect("closing ends by itself");
    let address = three.links.local_addr();
    drop(three);
    let deadline = before + PATIENCE;
    while std::net::UdpSocket::bind(address).is_err()
        || std::net::TcpListener::bind(address).is_err()
    {
        assert!(tokio::time::Instant::now() < deadline, "the ports stay taken");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    two.links.close().await;
}

#[tokio::test]
async fn a_wrong_configuration_is_told_before_anything_runs() {
    let authority = Authority::new();
    let good = config(&authority, 1, &[(2, local(7))]);
    let wrong = async |spoil: &dyn Fn(&mut mandate_peer::links::LinksConfig)| {
        let mut config = good.clone();
        spoil(&mut config);
        Links::start(config).await.map(|_| ()).unwrap_err().to_string()
    };
    assert!(wrong(&|config| config.group = "The Shop".to_owned()).await.contains("group's name"));
    assert!(wrong(&|config| config.group = "bank".to_owned()).await.contains("p1.bank.mandate"));
    assert!(wrong(&|config| config.me = id(4)).await.contains("it names p1"));
    let itself = wrong(&|config| drop(config.peers.insert(id(1), "localhost:7".to_owned())));
    assert!(itself.await.contains("among its peers"));
    let portless = wrong(&|config| drop(config.peers.insert(id(2), "localhost".to_owned())));
    assert!(portless.await.contains("host:port"));
    let papers = authority.papers(&[&name(1), &name(2)]);
    let several = config_with(&authority, &papers, 1, &[]);
    let several = Links::start(several).await.map(|_| ()).unwrap_err().to_string();
    assert!(several.contains("several members"), "{several}");

    let first = start(good.clone()).await;
    let taken = first.links.local_addr();
    assert!(wrong(&|config| config.listen = taken).await.contains("another member running"));
}
