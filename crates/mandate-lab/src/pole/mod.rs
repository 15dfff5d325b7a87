//! The evaluation of POLE (leader election by application scores), reproduced: the key-value service on openraft over
//! an emulated wide-area network, where the paper had ZooKeeper over an emulated one.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`deployment`] | the paper's data centres, and what arithmetic says about them |
//! | [`controller`] | members as processes on the network |
//! | [`crash`] | one run of sections 4.2 and 4.3: figures 4b, 6, 7a, 7b and 7c are made of these |
//! | [`figures`] | which runs each figure is made of, and what the paper says |
//! | [`results`], [`report`] | which findings hold; pages, tables and diagrams |
//! | [`histories`] | what clients see under kills, pauses, cuts and moves |
//! | [`moves`] | how long no write is served while leadership moves |
//! | [`etcd`], [`beside`] | etcd on the same network, and both with the same load |
//! | [`recovery`] | one run of section 4.4: figures 8a and 8b, and the one that the paper leaves open |

pub mod beside;
pub mod controller;
pub mod crash;
pub mod deployment;
pub mod etcd;
pub mod figures;
pub mod histories;
pub mod moves;
pub mod recovery;
pub mod report;
pub mod results;

use std::time::Duration;

/// How long and how much. The paper's own: [`PoleSettings::PAPER`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoleSettings {
    /// Writes of one kilobyte a second, in all.
    pub rate: f64,
    /// How long p5 leads before it is killed.
    pub before: Duration,
    /// How long latency is taken after that.
    pub length: Duration,
    /// How often each case is run.
    pub runs: u32,
    /// Decides jitter.
    pub seed: u64,
}

impl PoleSettings {
    /// As in the paper: 1000 requests a second, a crash after 60 s, latency from the last 50 s, 5 runs.
    pub const PAPER: PoleSettings = PoleSettings {
        rate: 1000.0,
        before: Duration::from_secs(60),
        length: Duration::from_secs(50),
        runs: 5,
        seed: 1,
    };
}
