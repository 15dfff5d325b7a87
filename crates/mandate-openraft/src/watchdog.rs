//! When Raft elects by itself again.
//!
//! While somebody directs Raft, Raft's own timeouts elect nobody: two that elect would disturb each other. But a
//! service must not stand still because its election does. So every member listens for what the winner of the
//! election says of Raft, and when it has not heard for a while that Raft is led, it lets Raft's own timeouts run
//! until it does.

use std::time::Duration;

use mandate_proto::time::Instant;

/// Says whether Raft is left to itself.
#[derive(Clone, Copy, Debug)]
pub struct Watchdog {
    patience: Duration,
    heard: Instant,
}

impl Watchdog {
    /// Starts patient: the director has `patience` for the first time, too.
    pub fn new(patience: Duration, now: Instant) -> Self {
        Watchdog { patience, heard: now }
    }

    /// Raft is led, says who directs it.
    pub fn led(&mut self, now: Instant) {
        self.heard = self.heard.max(now);
    }

    /// Whether Raft's own timeouts shall elect.
    pub fn own_elections(&self, now: Instant) -> bool {
        now >= self.deadline()
    }

    /// When they shall, unless something is heard before.
    pub fn deadline(&self) -> Instant {
        self.heard + self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raft_is_left_to_itself_when_nobody_says_that_it_is_led() {
        let at = |millis| Instant::ORIGIN + Duration::from_millis(millis);
        let mut watchdog = Watchdog::new(Duration::from_millis(100), at(0));
        assert!(!watchdog.own_elections(at(99)));
        assert!(watchdog.own_elections(at(100)));
        watchdog.led(at(150));
        assert!(!watchdog.own_elections(at(249)), "directed again");
        watchdog.led(at(120));
        assert_eq!(watchdog.deadline(), at(250), "what comes late does not count back");
        assert!(watchdog.own_elections(at(250)));
    }
}
