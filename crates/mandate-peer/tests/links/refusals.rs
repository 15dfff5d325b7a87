//! Who is turned away, with which words; and that the others do not notice.

use std::net::SocketAddr;

use mandate_peer::links::{LinkEvent, Settings, Versions};
use mandate_proto::pole::installation::ConfigId;

use crate::authority::{Authority, Papers};
use crate::group::{Member, assert_unharmed, config, config_with, id, local, name, pair, start};
use crate::raw;

fn assert_says(reason: &str, words: &[&str]) {
    for word in words {
        assert!(reason.contains(word), "{word:?} is not in: {reason}");
    }
}

/// Dials p3 as p1 with these papers, and expects to be refused. Both reasons: p3's and p1's.
async fn dial_with(
    authority: &Authority,
    papers: &Papers,
    three: &mut Member,
) -> (Option<u32>, String, String) {
    let config = config_with(authority, papers, 1, &[(3, three.links.local_addr())]);
    let mut one = start(config).await;
    let (member, address, theirs) = three.refusal().await;
    assert_eq!(address, one.links.local_addr());
    let (_, address, ours) = one.refusal().await;
    assert_eq!(address, three.links.local_addr());
    // It comes again and again, but is told once.
    let stopped = tokio::time::timeout(std::time::Duration::from_millis(300), one.refusal()).await;
    assert!(stopped.is_err());
    three.nothing_more();
    one.links.close().await;
    (member.map(|member| member.get()), theirs, ours)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_authority_is_refused() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let (mut two, mut three) = pair(&authority, &[1]).await;
    // It trusts ours, but its own certificate is of another.
    let papers = foreign.papers(&[&name(1)]);
    let (member, theirs, ours) = dial_with(&authority, &papers, &mut three).await;
    assert_eq!(member, None);
    assert_says(&theirs, &["not signed by the group's certificate authority", "same CA"]);
    assert_says(&ours, &["the other side refused this member's certificate"]);
    // The other way round: it does not trust us.
    let (_, theirs, ours) = dial_with(&foreign, &papers, &mut three).await;
    assert_says(&ours, &["not signed by the group's certificate authority"]);
    assert_says(&theirs, &["not signed by the CA that is configured there"]);
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    let papers = authority.expired(&[&name(1)]);
    let (member, theirs, ours) = dial_with(&authority, &papers, &mut three).await;
    assert_eq!(member, None);
    assert_says(&theirs, &["has expired", "renew it"]);
    assert_says(&ours, &["the other side refused", "expired", "clock"]);
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_nobody_has_configured_is_refused() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[]).await;
    let papers = authority.papers(&[&name(1)]);
    let (member, theirs, ours) = dial_with(&authority, &papers, &mut three).await;
    assert_eq!(member, Some(1));
    assert_says(&theirs, &["it is p1", "not among the peers"]);
    assert_says(&ours, &["the other side refused this member", "it is p1", "not among the peers"]);
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_member_at_the_dialled_address_is_refused() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    // p1 believes that p2 is where p3 is.
    let mut one = start(config(&authority, 1, &[(2, three.links.local_addr())])).await;
    let (member, _, ours) = one.refusal().await;
    assert_eq!(member, Some(id(2)));
    assert_says(&ours, &["not that of the member expected", "p2.shop.mandate", "p3.shop.mandate"]);
    let (_, _, theirs) = three.refusal().await;
    assert_says(&theirs, &["expects another member"]);
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_group_is_refused_by_its_certificate_and_by_its_greeting() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    let mut of_bank = config_with(
        &authority,
        &authority.papers(&["p1.bank.mandate"]),
        1,
        &[(3, three.links.local_addr())],
    );
    of_bank.group = "bank".to_owned();
    let mut one = start(of_bank).await;
    assert_says(&one.refusal().await.2, &["p3.bank.mandate", "p3.shop.mandate"]);
    assert_says(&three.refusal().await.2, &["another group"]);
    drop(one);

    // Certificates may name members of several groups; then the greeting tells.
    let papers = authority.papers(&[&name(1), "p1.bank.mandate"]);
    let raw = raw::connect(&authority, Some(&papers), three.links.local_addr(), &name(3)).await;
    let reason = refused_greeting(raw.unwrap(), &raw::greeting(1, "bank")).await;
    assert_says(&reason, &["group bank", "group shop"]);
    assert_says(&three.refusal().await.2, &["group bank", "group shop"]);
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_refused_and_both_are_named() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    let mut newer = config(&authority, 1, &[(3, three.links.local_addr())]);
    newer.speaks = Versions { protocol: 0, oldest: 2, newest: 3 };
    let mut one = start(newer).await;
    let (member, _, reason) = three.refusal().await;
    assert_eq!(member, Some(id(1)));
    assert_says(&reason, &["versions 2 to 3", "version 1", "upgrade this member"]);
    assert_says(
        &one.refusal().await.2,
        &["the other side refused", "versions 2 to 3", "version 1"],
    );
    assert_unharmed(&mut two, &mut three).await;
}

/// Sends bytes in place of a greeting, and returns the reason for which the connection is closed.
async fn refused_greeting(raw: raw::Raw, bytes: &[u8]) -> String {
    let (mut sender, _receiver) = raw.connection.open_bi().await.unwrap();
    sender.write_all(bytes).await.unwrap();
    closed(raw).await
}

async fn closed(raw: raw::Raw) -> String {
    let closed = tokio::time::timeout(crate::group::PATIENCE, raw.connection.closed()).await;
    closed.expect("the connection stays open").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_members_that_may_dial_get_in() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1, 4]).await;
    let to = three.links.local_addr();
    let cases: [(&[&str], Option<u32>, &str); 5] = [
        (&["p3.shop.mandate"], Some(3), "as is this member"),
        (&["*.shop.mandate"], None, "names no member"),
        (&["db1.example.org"], None, "names no member"),
        (&["p1.bank.mandate"], None, "names no member of the group shop"),
        (&["p1.shop.mandate", "p2.shop.mandate"], None, "several members"),
    ];
    for (names, member, words) in cases {
        let papers = authority.papers(names);
        let raw = raw::connect(&authority, Some(&papers), to, &name(3)).await.unwrap();
        let address: SocketAddr = raw.endpoint.local_addr().unwrap();
        assert_says(&closed(raw).await, &[words]);
        let refusal = three.refusal().await;
        assert_eq!((refusal.0, refusal.1), (member.map(id), address));
        assert_says(&refusal.2, &[words]);
    }
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dials_out_of_turn_gets_an_answer_and_no_link() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[4]).await;
    let papers = authority.papers(&["p4.shop.mandate"]);
    let to = three.links.local_addr();
    let raw = raw::connect(&authority, Some(&papers), to, &name(3)).await.unwrap();
    let (mut sender, _receiver) = raw.connection.open_bi().await.unwrap();
    sender.write_all(&raw::greeting(1, "shop")).await.unwrap();
    assert_says(&closed(raw).await, &["lower id dials"]);
    // Nothing is wrong, so nothing is told.
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_the_others_do_not_list_asks_them_and_both_learn_of_it() {
    let authority = Authority::new();
    // p1 knows of nobody, so it dials nobody; p3 expects to be dialled by p1.
    let mut one = start(config(&authority, 1, &[])).await;
    let mut three = start(config(&authority, 3, &[(1, one.links.local_addr())])).await;
    let (member, _, reason) = one.refusal().await;
    assert_eq!(member, Some(id(3)));
    assert_says(&reason, &["it is p3", "not among the peers"]);
    let (_, _, reason) = three.refusal().await;
    assert_says(&reason, &["the other side refused this member", "it is p3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_the_other_does_not_list_and_that_has_another_list_learns_of_that() {
    let authority = Authority::new();
    let settings = |digest, numbers: &[u32]| {
        let members: Vec<_> = numbers.iter().copied().map(id).collect();
        Settings::new(ConfigId::new(digest), &members, "leased")
    };
    // p2 is alone. p1 has a longer list and dials it; p3 has, too, and asks why it is not dialled.
    let mut of_two = config(&authority, 2, &[]);
    of_two.settings = settings(1, &[2]);
    let mut two = start(of_two).await;
    for number in [1, 3] {
        let mut of_new = config(&authority, number, &[(2, two.links.local_addr())]);
        of_new.settings = settings(2, &[1, 2, 3]);
        let mut new = start(of_new).await;
        for (member, other, theirs) in [(&mut new, 2, 1), (&mut two, number, 2)] {
            let (_, _, reason) = member.refusal().await;
            let lists = ["members p2, guarantee leased", "members p1 p2 p3, guarantee leased"];
            assert_says(&reason, &lists);
            let config = ConfigId::new(theirs);
            let differs = LinkEvent::Differs { member: id(other), config };
            member.until("a difference", |event| (event == differs).then_some(())).await;
            let known = member.links.differing();
            assert!(known.iter().any(|(known, _)| *known == id(other)), "{known:?}");
        }
        new.links.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_shows_no_certificate_or_does_not_greet_is_refused() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    let to = three.links.local_addr();
    // Depending on which packet is first, the dialler learns of it during or after its handshake.
    if let Ok(raw) = raw::connect(&authority, None, to, &name(3)).await {
        closed(raw).await;
    }
    assert_says(&three.refusal().await.2, &["no certificate"]);
    let papers = authority.papers(&[&name(1)]);
    let raw = raw::connect(&authority, Some(&papers), to, &name(3)).await.unwrap();
    let reason = refused_greeting(raw, b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n").await;
    assert_says(&reason, &["does not greet"]);
    assert_says(&three.refusal().await.2, &["does not greet"]);
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_certificate_was_renewed_gets_in_after_all() {
    let authority = Authority::new();
    let (_two, mut three) = pair(&authority, &[1]).await;
    let expired = authority.expired(&[&name(1)]);
    dial_with(&authority, &expired, &mut three).await;
    let mut one = start(config(&authority, 1, &[(3, three.links.local_addr())])).await;
    one.until_up(3).await;
    three.until_up(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_another_list_is_refused_and_both_sides_name_both_lists() {
    let authority = Authority::new();
    let settings = |digest, numbers: &[u32]| {
        let members: Vec<_> = numbers.iter().copied().map(id).collect();
        Settings::new(ConfigId::new(digest), &members, "leased")
    };
    let mut of_three = config(&authority, 3, &[(1, local(1))]);
    of_three.settings = settings(1, &[1, 3]);
    let mut three = start(of_three).await;
    let mut of_one = config(&authority, 1, &[(3, three.links.local_addr())]);
    of_one.settings = settings(2, &[1, 2, 3]);
    let mut one = start(of_one.clone()).await;
    for (member, other, theirs) in [(&mut one, 3, 1), (&mut three, 1, 2)] {
        let (_, _, reason) = member.refusal().await;
        let lists = ["members p1 p3, guarantee leased", "members p1 p2 p3, guarantee leased"];
        assert_says(&reason, &lists);
        // The protocol is told at every attempt.
        let config = ConfigId::new(theirs);
        let differs = LinkEvent::Differs { member: id(other), config };
        member.until("a difference", |event| (event == differs).then_some(())).await;
        let known: Vec<_> = member.links.differing().into_iter().map(|(id, _)| id).collect();
        assert_eq!(known, [id(other)]);
    }
    one.links.close().await;
    // Corrected, there is a link, and nothing differs any more.
    of_one.settings = settings(1, &[1, 3]);
    let mut one = start(of_one).await;
    one.until_up(3).await;
    three.until_up(1).await;
    assert_eq!(three.links.differing(), []);
}
