//! The settings of the POLE paper (sections 4.1 to 4.3), and others of one's own.

// Each test file uses some of them.
#![allow(dead_code)]

use mandate_lab::topology::Topology;

const SITES: [(&str, &str, f64); 4] = [
    ("slac", "caltech", 9.88),
    ("tud", "cern", 20.75),
    ("slac", "fnal", 53.26),
    ("caltech", "fnal", 77.06),
];

/// Five servers at these sites, with requests a second at each; p5 is about to crash.
fn topology(sites: [&str; 5], requests: [f64; 5]) -> Topology {
    let mut text = String::new();
    for (a, b, ms) in SITES {
        text += &format!("[[rtt]]\na = \"{a}\"\nb = \"{b}\"\nms = {ms}\n");
    }
    for (i, (site, requests)) in sites.iter().zip(requests).enumerate() {
        let id = i + 1;
        text += &format!(
            "[[server]]\nid = \"p{id}\"\nsite = \"{site}\"\nrequests = {requests:.3}\nhistory = 7\n"
        );
    }
    Topology::parse(&text).unwrap()
}

/// Three data centres (Fig. 5): D1 = {p4, p5}, D2 = {p2, p3}, D3 = {p1}. Shares of the requests
/// that arrive at each; p5's clients are at p4.
pub(crate) fn three(sites: [&str; 3], shares: [f64; 3]) -> Topology {
    let [d1, d2, d3] = sites;
    let [at1, at2, at3] = shares.map(|share| share * 1000.0);
    topology([d3, d2, d2, d1, d1], [at3, at2 / 2.0, at2 / 2.0, at1, 0.0])
}

/// Two data centres (Fig. 4a): D1 = {p1, p2}, D2 = {p3, p4, p5}.
pub(crate) fn two(share_at_d1: f64) -> Topology {
    let (at1, at2) = (share_at_d1 * 1000.0, (1.0 - share_at_d1) * 1000.0);
    let requests = [at1 / 2.0, at1 / 2.0, at2 / 2.0, at2 / 2.0, 0.0];
    topology(["tud", "tud", "cern", "cern", "cern"], requests)
}

pub(crate) const DEPLOYMENT_1: [&str; 3] = ["caltech", "slac", "fnal"];
pub(crate) const DEPLOYMENT_2: [&str; 3] = ["slac", "caltech", "fnal"];
pub(crate) const DEPLOYMENT_3: [&str; 3] = ["slac", "fnal", "caltech"];
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
