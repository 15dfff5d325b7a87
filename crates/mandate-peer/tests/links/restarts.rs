//! Links that end and come back.

use std::time::{Duration, Instant};

use mandate_peer::links::LinkEvent;

use crate::authority::Authority;
use crate::group::{assert_unharmed, config, id, local, name, pair, start, start_when_free};
use crate::process::Child;
use crate::raw;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_is_noticed_by_its_watch_and_comes_back() {
    let authority = Authority::new();
    let mut child = Child::start(&authority, 3, 2, local(0), None);
    let mut two = start(config(&authority, 2, &[(3, child.address)])).await;
    two.until_up(3).await;
    two.until_watched(3).await;
    // Three times, and until the hint came before the end of the link: on a busy machine it may come too late.
    let (mut rounds, mut hints) = (0, 0);
    while rounds < 3 || hints == 0 {
        rounds += 1;
        assert!(rounds < 30, "no hint in {rounds} rounds");
        let address = child.address;
        let killed = Instant::now();
        child.kill();
        // The watch tells, long before the silence; and that nobody listens, before the link has asked in vain.
        two.until_watch_broke(3).await;
        let is_hinted = two.until_deserted_or_broken(3).await;
        hints += u32::from(is_hinted);
        let hinted = killed.elapsed();
        if is_hinted {
            two.until_broken(3).await;
        }
        let noticed = killed.elapsed();
        child = Child::start(&authority, 3, 2, address, None);
        let started = Instant::now();
        two.until_up(3).await;
        let back = started.elapsed();
        println!(
            "killed: hint after {hinted:?}, link ended after {noticed:?}, back {back:?} after its start"
        );
        two.until_watched(3).await;
    }
    child.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_dialler_is_noticed_by_its_watch() {
    let authority = Authority::new();
    let listens = std::net::TcpListener::bind(local(0)).unwrap().local_addr().unwrap();
    let mut two = start(config(&authority, 2, &[(1, listens)])).await;
    let child = Child::start(&authority, 1, 2, listens, Some(two.links.local_addr()));
    two.until_up(1).await;
    two.until_watched(1).await;
    // That it can be reached where it listens is found out once the watch stands.
    two.until_reachable(1).await;
    child.kill();
    two.until_watch_broke(1).await;
    if two.until_deserted_or_broken(1).await {
        two.until_broken(1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dialler_that_never_listened_where_it_should_is_not_taken_for_dead_at_once() {
    let authority = Authority::new();
    // As behind an address translation: nobody can be reached where p1 is said to listen.
    let mut two = start(config(&authority, 2, &[(1, local(1))])).await;
    let child = Child::start(&authority, 1, 2, local(0), Some(two.links.local_addr()));
    two.until_up(1).await;
    two.until_watched(1).await;
    child.kill();
    two.until("the end of the link", |event| match event {
        LinkEvent::Deserted { .. } => panic!("nothing is known of where it listens"),
        LinkEvent::Broken { .. } => Some(()),
        _ => None,
    })
    .await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stands_still_is_noticed_by_its_silence() {
    let authority = Authority::new();
    let mut child = Child::start(&authority, 3, 2, local(0), None);
    let mut two = start(config(&authority, 2, &[(3, child.address)])).await;
    // On a busy host it may have been silent for most of the time before it was paused: then once more.
    for round in 1.. {
        two.until_up(3).await;
        child.pause();
        let paused = Instant::now();
        two.until_broken(3).await;
        let noticed = paused.elapsed();
        if noticed > Duration::from_secs(1) {
            break;
        }
        assert!(round < 5, "noticed after {noticed:?}, time and again");
        let address = child.address;
        child.kill();
        child = Child::start(&authority, 3, 2, address, None);
    }
    child.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_member_is_noticed_and_comes_back_on_the_same_port() {
    let authority = Authority::new();
    let (mut two, three) = pair(&authority, &[]).await;
    let mut again = config(&authority, 3, &[(2, local(1))]);
    again.listen = three.links.local_addr();
    drop(three);
    two.until_broken(3).await;
    let mut three = start_when_free(again).await;
    two.until_up(3).await;
    three.until_up(2).await;
    assert_unharmed(&mut two, &mut three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_connection_of_a_member_takes_the_place_of_its_older_one() {
    let authority = Authority::new();
    let (mut two, mut three) = pair(&authority, &[1]).await;
    let papers = authority.papers(&[&name(1)]);
    let to = three.links.local_addr();
    let connect = async || {
        let raw = raw::connect(&authority, Some(&papers), to, &name(3)).await.unwrap();
        raw.greet().await
    };
    let mut older = connect().await;
    let _older_watch = older.watch().await;
    three.until_up(1).await;
    let mut newer = connect().await;
    let _newer_watch = newer.watch().await;
    three.until_broken(1).await;
    three.until_up(1).await;
    let told = older.connection.closed().await.to_string();
    assert!(told.contains("newer connection"), "{told}");
    let mut stream = newer.connection.open_uni().await.unwrap();
    stream.write_all(&[0, 1, 9]).await.unwrap();
    assert_eq!(three.frame().await, (id(1), vec![9]));
    assert_unharmed(&mut two, &mut three).await;
}
