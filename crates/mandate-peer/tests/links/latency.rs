//! How long a frame is under way on this host: printed (`--nocapture` shows it), not judged, since other tests run
//! beside it.

use std::time::Instant;

use mandate_peer::links::Delivery;
use tokio::time::timeout;

use crate::authority::Authority;
use crate::group::{PATIENCE, id, pair};

const FRAMES: usize = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_frames_arrive_one_by_one() {
    let (two, mut three) = pair(&Authority::new(), &[]).await;
    for delivery in [Delivery::Datagram, Delivery::Stream] {
        let mut times = Vec::with_capacity(FRAMES);
        while times.len() < FRAMES {
            let sent = Instant::now();
            two.links.send(id(3), delivery, vec![0; 64]);
            // A lost datagram is not measured.
            if timeout(PATIENCE / 10, three.frame()).await.is_ok() {
                times.push(sent.elapsed());
            }
        }
        times.sort_unstable();
        let (median, late) = (times[FRAMES / 2], times[FRAMES * 99 / 100]);
        println!("{delivery:?}: median {median:?}, 99 of 100 within {late:?}");
    }
}
