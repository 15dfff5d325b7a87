//! Traces of heartbeats over simulated links.

use std::time::Duration;

use mandate_cli::arrivals::{RecordedArrival, Trace};
use mandate_proto::time::Instant;
use mandate_sim::link::{Link, LinkModel};
use mandate_sim::random::{Random, Stream};
use mandate_sim::time::SimTime;

/// What arrives over a simulated link in `lasting`, of a sender that beats every `interval`.
pub(super) fn record(model: LinkModel, interval: Duration, lasting: Duration, seed: u64) -> Trace {
    let mut random = Random::new(seed, Stream::Network);
    let mut link = Link::new(model);
    let mut arrivals = Vec::new();
    let beats = lasting.as_nanos() / interval.as_nanos().max(1);
    for sequence in 1..=beats as u64 {
        let sent = SimTime::ZERO + Duration::from_nanos(interval.as_nanos() as u64 * sequence);
        for at in link.transmit(sent, &mut random).into_iter().flatten() {
            arrivals.push(RecordedArrival { sequence, at: Instant::from_nanos(at.as_nanos()) });
        }
    }
    // Stable: of those that arrive at once the one sent first is first.
    arrivals.sort_by_key(|arrival| arrival.at);
    Trace::new(interval, arrivals)
}
