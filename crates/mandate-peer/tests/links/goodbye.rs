//! Last words arrive, also over a long way; and nobody waits for them longer than that.

use std::time::Duration;

use mandate_peer::links::Delivery;
use tokio::time::{Instant, timeout};

use crate::authority::Authority;
use crate::group::{Member, PATIENCE, config, id, local, pair, start};
use crate::relay::Relay;

/// Closing waits so long for a silent other side: if it takes less, an answer ended it.
const LIMIT: Duration = Duration::from_secs(1);

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
    let way = Relay::start(three.links.local_addr(), Duration::from_millis(200)).await;
    let mut two = start(config(&authority, 2, &[(3, way.address)])).await;
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
    // On a busy host not every time.
    let mut rounds = 0;
    while rounds < 5 || (fastest >= LIMIT && rounds < 30) {
        rounds += 1;
        let (two, mut three) = pair(&Authority::new(), &[]).await;
        fastest = fastest.min(speak_and_close(&two, 100).await);
        hears_everything(&mut three, 100).await;
    }
    println!("closed after {fastest:?}");
    assert!(fastest < LIMIT, "the fastest of {rounds} took {fastest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_listen_is_not_waited_for() {
    // Nobody takes p3's events: what is said after the first thousand words is never read.
    let (two, _three) = pair(&Authority::new(), &[]).await;
    for _ in 0..20 {
        speak(&two).await;
    }
    timeout(PATIENCE, two.links.close()).await.expect("closing ends by itself");
}

async fn speak(two: &Member) {
    for word in 0..100u8 {
        two.links.send(id(3), Delivery::Stream, vec![word; 100]);
        tokio::task::yield_now().await;
    }
}
