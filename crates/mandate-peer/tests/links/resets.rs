//! Watches that are reset while their links are well: nobody loses a link, and no leader its term.

use std::collections::BTreeMap;
use std::time::Duration;

use mandate_peer::links::LinkEvent;
use mandate_peer::{Peer, PeerSetup};
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_proto::pole::member::Config;
use mandate_runtime::{Election, ElectionState, Event, Protocol, Start};
use tokio::time::{sleep, timeout};

use crate::authority::Authority;
use crate::group::{GROUP, PATIENCE, assert_unharmed, config, id, local, name, start};
use crate::relay::Relay;

/// Each is followed by a new watch.
const RESETS: u64 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_reset_leaves_its_link_alone_and_is_opened_again() {
    let authority = Authority::new();
    let mut three = start(config(&authority, 3, &[(2, local(1))])).await;
    // A probe takes some round trips, so a long way gives busy hosts time to answer one.
    let mut way = Relay::start(three.links.local_addr(), Duration::from_millis(100)).await;
    let mut two = start(config(&authority, 2, &[(3, way.address)])).await;
    two.until_up(3).await;
    three.until_up(2).await;
    for reset in 1..=RESETS {
        way.until_connections(reset).await;
        two.until_watched(3).await;
        three.until_watched(2).await;
        way.reset();
        let broke = |member| {
            move |event| match event {
                LinkEvent::WatchBroke { .. } => Some(()),
                LinkEvent::Refused { .. } => None,
                other => panic!("{member} saw {other:?}"),
            }
        };
        // Who sees it first tells the other, who then may have nothing left to see.
        tokio::select! {
            () = two.until("a broken watch", broke("p2")) => {}
            () = three.until("a broken watch", broke("p3")) => {}
        }
    }
    way.until_connections(RESETS + 1).await;
    for member in [&mut two, &mut three] {
        while let Ok(event) = member.events.try_recv() {
            assert!(matches!(event, LinkEvent::WatchBroke { .. }), "{} saw {event:?}", member.id);
        }
    }
    assert_unharmed(&mut two, &mut three).await;
}

/// Whom a member sees lead, and in which term.
fn leads(election: &Election, me: MemberId) -> Option<(MemberId, Term)> {
    match election.state().borrow().clone() {
        ElectionState::Following { leader, term, .. } => Some((leader, term)),
        ElectionState::Leading(mandate) if mandate.check() => Some((me, mandate.term())),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_of_all_watches_depose_no_leader() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    // A probe takes some round trips, so a long way gives busy hosts time to answer one.
    let delay = Duration::from_millis(100);
    let members = [1, 2, 3];
    let (mut peers, mut ways) = (BTreeMap::<u32, Peer>::new(), Vec::new());
    for me in [3, 2, 1] {
        let mut addresses = BTreeMap::new();
        for other in members.into_iter().filter(|other| *other != me) {
            let address = match peers.get(&other) {
                Some(peer) => {
                    ways.push(Relay::start(peer.local_addr(), delay).await);
                    ways.last().unwrap().address
                }
                // It dials us.
                None => local(1),
            };
            addresses.insert(id(other), address.to_string());
        }
        let (interval, detect) = (Duration::from_millis(500), Duration::from_secs(10));
        let protocol = Config::new(id(me), members.map(id), interval, detect)
            .and_then(|config| config.with_guarantee(PeerGuarantee::Fenced))
            .unwrap();
        let setup = PeerSetup {
            group: GROUP.to_owned(),
            listen: local(0),
            peers: addresses,
            advertise: None,
            identity: authority.identity(&authority.papers(&[&name(me)])),
            protocol: Protocol::Pole(protocol),
            state: directory.path().join(format!("p{me}")),
            start: Start::New,
        };
        peers.insert(me, Peer::start(setup).await.unwrap());
    }
    let agreed = async || {
        loop {
            let seen: Vec<_> =
                peers.iter().map(|(me, peer)| leads(peer.election(), id(*me))).collect();
            if let [Some(one), ..] = seen[..]
                && seen.iter().all(|other| *other == Some(one))
            {
                return one;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let watched = async || {
        let stands = |(me, peer): (&u32, &Peer)| {
            members
                .into_iter()
                .filter(|other| other != me)
                .all(|other| peer.links().is_watched(id(other)))
        };
        while !peers.iter().all(stands) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(6 * PATIENCE, agreed()).await.expect("a leader that all know");
    let mut told: Vec<_> = peers.values().map(|peer| peer.election().events()).collect();
    let before = timeout(6 * PATIENCE, agreed()).await.expect("a leader that all know");
    for reset in 1..=RESETS {
        for way in &mut ways {
            way.until_connections(reset).await;
        }
        timeout(PATIENCE, watched()).await.expect("new watches");
        ways.iter().for_each(Relay::reset);
    }
    for way in &mut ways {
        way.until_connections(RESETS + 1).await;
    }
    // Whatever the last reset started has ended by now.
    sleep(20 * delay).await;
    let changes = told.iter_mut().flat_map(|told| std::iter::from_fn(|| told.try_recv().ok()));
    let changes: Vec<_> = changes.filter(|event| matches!(event, Event::Changed(_))).collect();
    let after = agreed().await;
    assert_eq!((before, &changes[..]), (after, &[][..]));
    for peer in peers.values() {
        peer.shutdown().await;
    }
}
