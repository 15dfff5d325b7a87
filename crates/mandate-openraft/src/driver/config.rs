//! Bounds of a driver.

use std::time::Duration;

use crate::direction::Pace;

/// Bounds of a driver; the same for all members. The defaults suit members that are up to 100 ms from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverConfig {
    /// How long Raft may be without a leader, or without anyone who directs it, before its own timeouts elect.
    /// Default: 3 s. Longer than an election of the peer engine takes.
    pub patience: Duration,
    /// How long an answer of another driver is waited for. Default: 500 ms. Longer than a round trip.
    pub answer_within: Duration,
    /// How long an election of Raft may take. Default: 500 ms. Longer than two round trips and two writes to disk.
    pub elect_within: Duration,
    /// How long a leader that is to stand aside holds writes at most. Default: 2 s. It answers in less, so this is
    /// for the case that its successor dies meanwhile.
    pub hold: Duration,
    /// How many entries the winner may lack when the leader is asked to stand aside. Default: 256.
    pub close_enough: u64,
    /// How long a leader is left alone after a move that failed, at first. Default: 500 ms.
    pub move_again: Duration,
    /// How often the winner looks how far it is while it catches up. Default: 20 ms.
    pub look_every: Duration,
}

impl Default for DriverConfig {
    fn default() -> Self {
        DriverConfig {
            patience: Duration::from_secs(3),
            answer_within: Duration::from_millis(500),
            elect_within: Duration::from_millis(500),
            hold: Duration::from_secs(2),
            close_enough: 256,
            move_again: Duration::from_millis(500),
            look_every: Duration::from_millis(20),
        }
    }
}

impl DriverConfig {
    pub(super) fn pace(&self) -> Pace {
        Pace {
            elect_within: self.elect_within,
            close_enough: self.close_enough,
            move_again: self.move_again,
        }
    }
}
