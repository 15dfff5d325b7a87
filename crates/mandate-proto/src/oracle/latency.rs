//! The latencies that clients would see (section 2.2): consensus, mean and worst case.
//!
//! A leader commits when a quorum has answered, itself included: the consensus latency is the
//! round trip to the slowest of the fastest quorum. A request that arrives at another member makes
//! one round trip more, to the leader and back.

use alloc::vec::Vec;

/// Another member, as seen from the candidate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) round_trip_ms: f64,
    pub(super) requests: f64,
}

/// What follows from round trips and request rates, in milliseconds.
#[derive(Debug)]
pub(super) struct Latencies {
    /// The candidate itself, at 0 ms, and the others, nearest first.
    peers: Vec<Peer>,
    consensus: f64,
}

impl Latencies {
    /// `None` if there is no quorum to commit with.
    pub(super) fn new(
        others: impl Iterator<Item = Peer>,
        own_requests: f64,
        quorum: usize,
    ) -> Option<Self> {
        let me = Peer { round_trip_ms: 0.0, requests: own_requests };
        let mut peers: Vec<_> = others.chain([me]).collect();
        peers.sort_by(|a, b| a.round_trip_ms.total_cmp(&b.round_trip_ms));
        let consensus = peers.get(quorum.checked_sub(1)?)?.round_trip_ms;
        Some(Latencies { peers, consensus })
    }

    /// theta_c
    pub(super) fn consensus(&self) -> f64 {
        self.consensus
    }

    /// theta_l: weighed by where requests arrive, or evenly if none do.
    pub(super) fn mean(&self) -> f64 {
        let total: f64 = self.peers.iter().map(|peer| peer.requests).sum();
        let weight = |peer: &Peer| {
            if total > 0.0 { peer.requests / total } else { 1.0 / self.peers.len() as f64 }
        };
        let forwarding: f64 = self.peers.iter().map(|peer| weight(peer) * peer.round_trip_ms).sum();
        self.consensus + forwarding
    }

    /// theta_w
    pub(super) fn worst(&self) -> f64 {
        self.consensus + self.peers.last().map_or(0.0, |farthest| farthest.round_trip_ms)
    }
}
