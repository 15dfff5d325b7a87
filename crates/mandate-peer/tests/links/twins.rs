//! Two processes under one id, and states that were replaced.

use mandate_peer::links::{Delivery, LinkEvent, LinksConfig};
use mandate_runtime::Start;

use crate::authority::Authority;
use crate::group::{Member, assert_unharmed, config, id, local, start};

/// What p1 shows of itself.
fn one(authority: &Authority, three: &Member, disk: u64, start: Start) -> LinksConfig {
    let config = config(authority, 1, &[(3, three.links.local_addr())]);
    LinksConfig { disk, start, ..config }
}

async fn three(authority: &Authority) -> Member {
    start(config(authority, 3, &[(1, local(1))])).await
}

async fn until_twin(member: &mut Member, of: u32) {
    let wanted = LinkEvent::Twin { member: id(of) };
    member.until(&wanted, |event| (event == wanted).then_some(())).await;
}

/// Exchanges a frame: from now on the state is known.
async fn speak(from: &Member, to: &mut Member) {
    from.links.send(to.id, Delivery::Stream, b"hello".to_vec());
    to.until("hello", |event| matches!(event, LinkEvent::Received { .. }).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_refused_while_the_first_answers_and_all_three_are_told() {
    let authority = Authority::new();
    // A cloned host has the same state; a member that was started as new has another.
    for disk in [1, 2] {
        let mut three = three(&authority).await;
        let mut first = start(one(&authority, &three, 1, Start::Stored)).await;
        first.until_up(3).await;
        three.until_up(1).await;
        let mut second = start(one(&authority, &three, disk, Start::Lost)).await;
        let (member, _, reason) = three.refusal().await;
        assert_eq!(member, Some(id(1)));
        assert!(reason.contains("another process runs as p1"), "{reason}");
        let (_, _, reason) = second.refusal().await;
        assert!(reason.contains("another process runs as p1"), "{reason}");
        until_twin(&mut first, 1).await;
        assert!(three.links.twins() > 0 && first.links.twins() > 0);
        assert!(three.links.troubles()[&id(1)].contains("another process"));
        assert!(first.links.troubles()[&id(1)].contains("another process"));
        // The first has not lost its link, and once it is gone, the second has its place.
        while let Ok(event) = three.events.try_recv() {
            let expected = matches!(event, LinkEvent::Twin { .. } | LinkEvent::Refused { .. });
            assert!(expected, "p3 saw {event:?}");
        }
        assert_unharmed(&mut first, &mut three).await;
        first.links.close().await;
        second.until_up(3).await;
        three.until_up(1).await;
        assert!(three.links.troubles().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_comes_back_after_another_was_there_is_a_twin() {
    let authority = Authority::new();
    let mut three = three(&authority).await;
    let way = crate::relay::Relay::start(three.links.local_addr(), Default::default()).await;
    let mut first = one(&authority, &three, 1, Start::Stored);
    first.peers = [(id(3), way.address.to_string())].into();
    let mut first = start(first).await;
    first.until_up(3).await;
    three.until_up(1).await;
    // The first is cut off for longer than a link lasts in silence, and the second has its place.
    way.cut(true);
    three.until_broken(1).await;
    let mut second = start(one(&authority, &three, 1, Start::Stored)).await;
    second.until_up(3).await;
    three.until_up(1).await;
    second.links.close().await;
    three.until_broken(1).await;
    assert_eq!(three.links.twins(), 0);
    way.cut(false);
    until_twin(&mut three, 1).await;
    assert_eq!(three.links.twins(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_was_replaced_is_refused_unless_the_member_says_that_it_was_lost() {
    let authority = Authority::new();
    let mut three = three(&authority).await;
    let mut before = start(one(&authority, &three, 1, Start::Stored)).await;
    before.until_up(3).await;
    three.until_up(1).await;
    speak(&before, &mut three).await;
    before.links.close().await;
    three.until_broken(1).await;
    for told in [Start::New, Start::Stored] {
        let mut other = start(one(&authority, &three, 2, told)).await;
        let (_, _, reason) = other.refusal().await;
        assert!(reason.contains("another state file than before"), "{told:?}: {reason}");
        assert!(reason.contains("--lost"), "{told:?}: {reason}");
        other.links.close().await;
    }
    let mut lost = start(one(&authority, &three, 2, Start::Lost)).await;
    lost.until_up(3).await;
    three.until_up(1).await;
    speak(&lost, &mut three).await;
    lost.links.close().await;
    three.until_broken(1).await;
    // From now on, that is its state.
    let mut after = start(one(&authority, &three, 2, Start::Stored)).await;
    after.until_up(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_votes_are_kept_a_state_may_be_replaced() {
    let authority = Authority::new();
    let mut three = config(&authority, 3, &[(1, local(1))]);
    three.keeps_votes = false;
    let mut three = start(three).await;
    for disk in [1, 2] {
        let mut one = start(one(&authority, &three, disk, Start::New)).await;
        one.until_up(3).await;
        three.until_up(1).await;
        speak(&one, &mut three).await;
        one.links.close().await;
        three.until_broken(1).await;
    }
}
