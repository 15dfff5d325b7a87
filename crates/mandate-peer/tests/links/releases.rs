//! Members of several releases: which version a link speaks, and what ends it.

use std::collections::BTreeMap;

use mandate_peer::links::{Delivery, LinkEvent, LinksConfig, Settings, Versions};
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::{ConfigId, Entry, PeerGuarantee, Roster, RosterId};

use crate::authority::Authority;
use crate::group::{Member, config, id, local, start};
use crate::raw;

/// A member that speaks these versions.
fn speaking(
    authority: &Authority,
    number: u32,
    peers: &[&Member],
    (oldest, newest): (u32, u32),
) -> LinksConfig {
    let peers: Vec<_> = peers.iter().map(|peer| (peer.id.get(), peer.links.local_addr())).collect();
    let mut config = config(authority, number, &peers);
    config.speaks = Versions { protocol: 0, oldest, newest };
    config
}

/// What a member says of itself with a list of that version, which only members that speak version 2 know of if it was changed.
fn settings(version: u64, members: &[u32]) -> Settings {
    let members: Vec<_> = members.iter().copied().map(MemberId::new).collect();
    let roster = match version {
        1 => Roster::seed(members.iter().copied()),
        version => {
            let id = RosterId { term: Term::new(7), version };
            Roster::new(id, members.iter().copied().map(Entry::voter))
        }
    };
    let id = ConfigId::of_roster(&roster, PeerGuarantee::Fenced);
    let settings = Settings::new(id, &members, "fenced");
    if version == 1 { settings } else { settings.since(2) }
}

fn version(member: &Member, other: u32) -> Option<u32> {
    member.links.spoken(id(other)).map(|spoken| spoken.version)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_speaks_the_highest_version_that_both_sides_do() {
    let authority = Authority::new();
    let expected = |number| [(number, local(1))];
    let mut three = start(LinksConfig {
        speaks: Versions { protocol: 0, oldest: 1, newest: 2 },
        ..config(&authority, 3, &[expected(1), expected(2)].concat())
    })
    .await;
    let mut one = start(speaking(&authority, 1, &[&three], (1, 1))).await;
    let mut two = start(speaking(&authority, 2, &[&three], (1, 4))).await;
    three.until_all_up(&[1, 2]).await;
    for (member, agreed) in [(&mut one, 1), (&mut two, 2)] {
        member.until_up(3).await;
        assert_eq!(
            (version(member, 3), version(&three, member.id.get())),
            (Some(agreed), Some(agreed))
        );
        let release = member.links.spoken(id(3)).unwrap().release;
        assert_eq!(release.as_deref(), Some(member.links.release()));
        member.links.send(id(3), Delivery::Stream, b"in a version".to_vec());
        let said = |event| match event {
            LinkEvent::Received { from, version, .. } => Some((from, version)),
            _ => None,
        };
        assert_eq!(three.until("a frame", said).await, (member.id, agreed));
    }
    // A release that knows of one version, and says no more than that.
    let address = three.links.local_addr();
    drop(one);
    let papers = authority.papers(&["p1.shop.mandate"]);
    let raw = raw::connect(&authority, Some(&papers), address, "p3.shop.mandate");
    let _strict = raw.await.unwrap().greet().await;
    three.until_up(1).await;
    let spoken = three.links.spoken(id(1)).unwrap();
    assert_eq!((spoken.version, spoken.release), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_an_older_version_cannot_say_ends_its_links_and_names_who_is_to_be_upgraded() {
    let authority = Authority::new();
    let mut two = speaking(&authority, 2, &[], (1, 2));
    two.settings = settings(1, &[1, 2]);
    two.peers = BTreeMap::from([(id(1), local(1).to_string())]);
    let mut two = start(two).await;
    let mut one = speaking(&authority, 1, &[&two], (1, 1));
    one.settings = settings(1, &[1, 2]);
    let mut one = start(one).await;
    one.until_up(2).await;
    two.until_up(1).await;
    assert_eq!(version(&two, 1), Some(1));
    two.links.set_members(&BTreeMap::from([(id(1), String::new())]), settings(2, &[1, 2]));
    one.until_broken(2).await;
    let (member, _, reason) = two.refusal().await;
    assert_eq!(member, Some(id(1)));
    for word in
        ["speaks protocol version 1", "this member version 2", "upgrade it", "docs/upgrades.md"]
    {
        assert!(reason.contains(word), "{word} is not in: {reason}");
    }
    assert!(one.refusal().await.2.contains("speaks protocol version 1"));
    // The same member of a newer release is let in.
    one.links.close().await;
    let mut one = speaking(&authority, 1, &[&two], (1, 2));
    one.settings = settings(1, &[1, 2]);
    let mut one = start(one).await;
    one.until_up(2).await;
    two.until_up(1).await;
    assert_eq!(version(&one, 2), Some(2));
}
