//! Links whose list of members changes while they run.

use std::collections::BTreeMap;
use std::time::Duration;

use mandate_peer::links::{Delivery, LinkEvent, Settings};
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::{ConfigId, Entry, PeerGuarantee, Roster, RosterId};

use crate::authority::Authority;
use crate::group::{Member, assert_unharmed, config, id, start};

/// The settings of a member that goes by this version of the list; 0: none yet.
fn version(version: u64, members: &[u32]) -> Settings {
    let (of, guarantee) = (|number: &u32| id(*number), PeerGuarantee::Fenced);
    let roster = match version {
        0 => Roster::NONE,
        1 => Roster::seed(members.iter().map(of)),
        version => {
            let entries = members.iter().map(|number| Entry::voter(of(number)));
            Roster::new(RosterId { term: Term::new(7), version }, entries)
        }
    };
    let members: Vec<_> = roster.members().collect();
    Settings::new(ConfigId::of_roster(&roster, guarantee), &members, "fenced")
}

fn addresses(of: &[&Member]) -> BTreeMap<MemberId, String> {
    of.iter().map(|member| (member.id, member.links.local_addr().to_string())).collect()
}

/// Members that dial by themselves, wherever they are.
fn expected(numbers: &[u32]) -> BTreeMap<MemberId, String> {
    numbers.iter().map(|number| (id(*number), String::new())).collect()
}

async fn member(authority: &Authority, number: u32, peers: &[&Member], shows: Settings) -> Member {
    let peers: Vec<_> = peers.iter().map(|it| (it.id.get(), it.links.local_addr())).collect();
    let mut config = config(authority, number, &peers);
    config.settings = shows;
    start(config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_added_is_dialled_and_needs_to_know_nobody() {
    let authority = Authority::new();
    let mut two = member(&authority, 2, &[], version(1, &[1, 2])).await;
    two.links.set_members(&expected(&[1]), version(1, &[1, 2]));
    let mut one = member(&authority, 1, &[&two], version(1, &[1, 2])).await;
    one.until_up(2).await;
    two.until_up(1).await;
    let mut three = member(&authority, 3, &[], version(0, &[])).await;
    let of_three = three.links.local_addr().to_string();
    let with_three =
        |other: &Member| BTreeMap::from([(id(3), of_three.clone()), (other.id, String::new())]);
    one.links.set_members(&with_three(&two), version(2, &[1, 2, 3]));
    one.until_up(3).await;
    three.until_up(1).await;
    // It hears of the list over that link, which stays.
    three.links.set_members(&addresses(&[&one, &two]), version(2, &[1, 2, 3]));
    two.links.set_members(&with_three(&one), version(2, &[1, 2, 3]));
    two.until_up(3).await;
    three.until_up(2).await;
    assert_unharmed(&mut one, &mut two).await;
    assert_unharmed(&mut two, &mut three).await;
    assert_eq!(three.links.differing(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_waits_to_be_added_and_knows_where_the_others_are_keeps_its_link_when_it_is() {
    let authority = Authority::new();
    let mut one = member(&authority, 1, &[], version(1, &[1])).await;
    // Nobody dials it: it asks, and is let in as a guest.
    let mut two = member(&authority, 2, &[&one], version(0, &[])).await;
    two.until_up(1).await;
    one.until_up(2).await;
    one.links.send(id(2), Delivery::Stream, b"this is who we are".to_vec());
    assert_eq!(two.frame().await, (id(1), b"this is who we are".to_vec()));
    let address = two.links.local_addr().to_string();
    one.links.set_members(&BTreeMap::from([(id(2), address)]), version(2, &[1, 2]));
    two.links.set_members(&addresses(&[&one]), version(2, &[1, 2]));
    // Longer than it takes to dial.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_unharmed(&mut one, &mut two).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_address_nobody_has_said_dials_by_itself() {
    let authority = Authority::new();
    let mut one = member(&authority, 1, &[], version(2, &[1, 2])).await;
    one.links.set_members(&expected(&[2]), version(2, &[1, 2]));
    // Of the two, p1 is to dial, and cannot.
    let mut two = member(&authority, 2, &[&one], version(2, &[1, 2])).await;
    two.until_up(1).await;
    one.until_up(2).await;
    // Once it hears where p2 is, it leaves the link as it is.
    one.links.set_members(&addresses(&[&two]), version(2, &[1, 2]));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_unharmed(&mut one, &mut two).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_removed_is_told_and_does_not_come_back() {
    let authority = Authority::new();
    let mut two = member(&authority, 2, &[], version(2, &[1, 2])).await;
    two.links.set_members(&expected(&[1]), version(2, &[1, 2]));
    let mut one = member(&authority, 1, &[&two], version(2, &[1, 2])).await;
    one.until_up(2).await;
    two.until_up(1).await;
    two.links.set_members(&BTreeMap::new(), version(3, &[2]));
    two.links.send(id(1), Delivery::Stream, b"you are no member any more".to_vec());
    assert_eq!(one.frame().await.0, id(2), "there is time to tell it");
    two.until_broken(1).await;
    one.until_broken(2).await;
    // It has not taken that in, and comes back: as a guest, to be told.
    one.until_up(2).await;
    two.until_up(1).await;
    one.links.set_members(&BTreeMap::new(), version(3, &[2]));
    one.until_broken(2).await;
    two.until_broken(1).await;
    // With the same list it has nothing to hear, and is refused.
    one.links.close().await;
    let mut again = member(&authority, 1, &[&two], version(3, &[2])).await;
    let (_, _, reason) = again.refusal().await;
    assert!(reason.contains("not among the members as they are now"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_one_number_that_differ_are_refused_until_one_hears_of_a_newer() {
    let authority = Authority::new();
    let mut two = member(&authority, 2, &[], version(2, &[1, 2])).await;
    two.links.set_members(&expected(&[1]), version(2, &[1, 2]));
    let mut one = member(&authority, 1, &[&two], version(2, &[1, 2, 3])).await;
    for of in [&mut one, &mut two] {
        let (_, _, reason) = of.refusal().await;
        let both = ["members p1 p2, guarantee fenced", "members p1 p2 p3, guarantee fenced"];
        assert!(both.iter().all(|list| reason.contains(list)), "{reason}");
    }
    // It hears of a newer one: they agree again.
    one.links.set_members(&addresses(&[&two]), version(3, &[1, 2]));
    one.until_up(2).await;
    assert_eq!(one.links.differing(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_only_so_many_guests_and_members_find_their_place() {
    let authority = Authority::new();
    let mut last = member(&authority, 30, &[], version(2, &[17, 30])).await;
    let address = last.links.local_addr();
    last.links.set_members(&expected(&[17]), version(2, &[17, 30]));
    let mut guests = Vec::new();
    for number in 1..=16 {
        guests.push(member(&authority, number, &[&last], version(1, &[number, 30])).await);
        last.until_up(number).await;
    }
    let mut config = config(&authority, 18, &[(30, address)]);
    config.settings = version(1, &[18, 30]);
    let mut crowded_out = start(config).await;
    let (_, _, reason) = crowded_out.refusal().await;
    assert!(reason.contains("16 others"), "{reason}");
    let mut listed = member(&authority, 17, &[&last], version(2, &[17, 30])).await;
    listed.until_up(30).await;
    last.until_up(17).await;
    // When one leaves there is room.
    guests.pop().unwrap().links.close().await;
    crowded_out.until_up(30).await;
    let left = LinkEvent::Broken { member: id(16) };
    last.until("one leaves", |event| (event == left).then_some(())).await;
}
