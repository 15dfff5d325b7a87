//! The settings of the POLE paper (sections 4.1 to 4.3), and others of one's own.

// Each test file uses some of them.
#![allow(dead_code)]

use mandate_cli::topology::Topology;
use mandate_lab::pole::deployment::{Deployment, FIRST, Shares};

/// Requests a second, in all.
const RATE: f64 = 1000.0;

/// Three data centres (Fig. 5), and the shares of the requests that arrive at each; p5's clients are at p4.
pub(crate) fn three(deployment: u8, shares: [f64; 3]) -> Topology {
    Deployment::numbered(deployment).topology(&Shares(shares.into()), RATE, &[FIRST].into())
}

/// Two data centres (Fig. 4a).
pub(crate) fn two(share_at_d1: f64) -> Topology {
    Deployment::two(20.75).topology(&Shares::at(0, share_at_d1, 2), RATE, &[FIRST].into())
}

pub(crate) const DEPLOYMENT_1: u8 = 1;
pub(crate) const DEPLOYMENT_2: u8 = 2;
pub(crate) const DEPLOYMENT_3: u8 = 3;
pub(crate) const EVEN: [f64; 3] = [1.0 / 3.0; 3];

/// `size` servers, each at a site of its own, with these round trips.
pub(crate) fn topology_of(
    size: usize,
    mut round_trip_ms: impl FnMut(usize, usize) -> f64,
    requests: &[f64],
) -> Topology {
    let mut text = String::new();
    for a in 1..=size {
        let requests = requests[a - 1];
        text += &format!("[[server]]\nid = 'p{a}'\nsite = 's{a}'\nrequests = {requests:.1}\n");
        for b in a + 1..=size {
            let ms = round_trip_ms(a, b);
            text += &format!("[[rtt]]\na = 's{a}'\nb = 's{b}'\nms = {ms:.2}\n");
        }
    }
    Topology::parse(&text).unwrap()
}
