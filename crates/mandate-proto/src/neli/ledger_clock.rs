//! The ledger's clock, as far as acknowledgements tell.
//!
//! A record that was waiting while its reader was paused must not count as if it were new. How old a record
//! is, is a question of the ledger's clock at its publication and now; the reader knows the second
//! because its own publications come back acknowledged with the ledger's time. From an acknowledgement
//! on, at least so much time has passed on the ledger's clock as on the reader's own. So the age that is
//! worked out here is never too high, delays do not spoil it, and no clocks need to be synchronised (the
//! paper's bounded error e): only their rates matter, between two beats.
//!
//! An acknowledgement that waited, too, while its reader was paused tells an old time, and is not
//! believed. But a stamp from before its publication was even sent shows that the ledger's clock was set
//! back, and is: otherwise all records would be old from then on.

use core::time::Duration;

use crate::time::{Instant, WallTime, nanos};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LedgerClock {
    /// What the ledger's clock had passed when ours read this.
    reading: Option<(WallTime, Instant)>,
}

impl LedgerClock {
    /// A publication that was sent then was acknowledged at `now`.
    pub(super) fn read(&mut self, stamp: WallTime, sent: Instant, now: Instant, allowance: u32) {
        let was_set_back = self.at(sent, allowance).is_some_and(|then| stamp < then);
        let is_news = self.at(now, allowance).is_none_or(|known| stamp > known);
        if is_news || was_set_back {
            self.reading = Some((stamp, now));
        }
    }

    /// What the ledger's clock has passed at `instant`.
    fn at(&self, instant: Instant, allowance: u32) -> Option<WallTime> {
        let (read, at) = self.reading?;
        // Our clock may be a fast one, and the ledger's a slow one.
        let passed = instant.since(at).saturating_mul(1000 - 2 * allowance) / 1000;
        let before = nanos(at.since(instant));
        let read = read.as_unix_nanos().saturating_sub(before).saturating_add(nanos(passed));
        Some(WallTime::from_unix_nanos(read))
    }

    /// How old a record is at least; `None` before anything was acknowledged.
    pub(super) fn age(&self, stamp: WallTime, now: Instant, allowance: u32) -> Option<Duration> {
        Some(self.at(now, allowance)?.since(stamp).unwrap_or(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn wall(seconds: u64) -> WallTime {
        WallTime::from_unix_nanos(seconds * 1_000_000_000)
    }

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN + SECOND * seconds as u32
    }

    #[test]
    fn a_record_that_waited_through_a_pause_is_as_old_as_the_pause() {
        let mut clock = LedgerClock::default();
        assert_eq!(clock.age(wall(1000), at(5), 0), None);
        clock.read(wall(1000), at(5), at(5), 0);
        assert_eq!(clock.age(wall(1001), at(6), 0), Some(Duration::ZERO));
        assert_eq!(clock.age(wall(1001), at(66), 0), Some(SECOND * 60));
        assert_eq!(clock.age(wall(999), at(5), 0), Some(SECOND));
    }

    #[test]
    fn an_acknowledgement_that_waited_through_a_pause_tells_nothing_new() {
        let mut clock = LedgerClock::default();
        clock.read(wall(1000), at(5), at(5), 0);
        // Sent a second later, acknowledged at once, read a minute later.
        clock.read(wall(1001), at(6), at(66), 0);
        assert_eq!(clock.age(wall(1001), at(66), 0), Some(SECOND * 60));
    }

    #[test]
    fn a_ledger_whose_clock_is_set_back_is_believed_from_the_next_acknowledgement() {
        let mut clock = LedgerClock::default();
        clock.read(wall(4600), at(5), at(5), 0);
        assert!(clock.age(wall(1001), at(6), 0).unwrap() > SECOND * 3000);
        clock.read(wall(1001), at(6), at(6), 0);
        assert_eq!(clock.age(wall(1001), at(6), 0), Some(Duration::ZERO));
    }

    #[test]
    fn a_fast_clock_of_our_own_makes_no_record_old() {
        let mut clock = LedgerClock::default();
        clock.read(wall(1000), at(0), at(0), 0);
        let age = clock.age(wall(1100), at(101), 10);
        assert_eq!(age, Some(Duration::ZERO));
    }
}
