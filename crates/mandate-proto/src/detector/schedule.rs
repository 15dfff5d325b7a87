//! When a sender beats (Algorithm 1, lines 1 and 2; Algorithm 2, lines 8 to 13).
//!
//! The paper sends the i-th heartbeat at `i * eta` after zero time. Here the first one goes out
//! as soon as the sender has reason to send, and the others every interval after it: monitors
//! learn of a new sender a beat earlier, and labels that are times need no common grid.
//!
//! A sender that was stalled does not make up for what it missed: a burst of old heartbeats
//! would tell monitors nothing but that it was stalled.

use core::time::Duration;

use super::{Beat, Label, saturate};
use crate::time::Instant;

/// The sender's side of a detector: labels, and the times at which heartbeats are due.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// What the label reads at the driver's origin.
    label_at_origin: i128,
    interval: Duration,
    last: Option<Instant>,
    /// The last heartbeat ever was due then: labels only rise, also if it all happens in one instant.
    latest: Option<Instant>,
    next: Option<Instant>,
}

impl Schedule {
    /// A sender whose label reads `label` at `now`. It is silent until [`begin`](Self::begin).
    pub fn new(label: Label, interval: Duration, now: Instant) -> Self {
        let label_at_origin = i128::from(label.as_nanos()) - i128::from(now.as_nanos());
        Schedule { label_at_origin, interval, last: None, latest: None, next: None }
    }

    /// Begins to send, at once.
    pub fn begin(&mut self, now: Instant) {
        self.last = None;
        self.next = Some(now);
    }

    /// Falls silent.
    pub fn end(&mut self) {
        self.next = None;
    }

    /// When the next heartbeat is due.
    pub fn due(&self) -> Option<Instant> {
        self.next
    }

    /// When the last heartbeat was due, if one was sent since [`begin`](Self::begin).
    pub fn last(&self) -> Option<Instant> {
        self.last
    }

    /// The interval that the next heartbeat will announce.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Changes the interval. The heartbeat that is already announced still comes when it was
    /// announced, or sooner, so that no monitor waits in vain.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
        if let (Some(last), Some(next)) = (self.last, self.next) {
            self.next = Some(next.min(last + interval));
        }
    }

    /// The heartbeat that is due by `now`, if any. Of several that were missed only the latest.
    pub fn beat(&mut self, now: Instant) -> Option<Beat> {
        let due = self.next.filter(|due| *due <= now)?;
        // A little lateness is part of the delay that monitors measure; a whole interval is a
        // stall, after which the schedule starts afresh.
        let due = if now.since(due) < self.interval { due } else { now };
        let moment = Duration::from_nanos(1);
        let due = self.latest.map_or(due, |latest| due.max(latest + moment));
        self.last = Some(due);
        self.latest = Some(due);
        self.next = Some(due + self.interval);
        Some(Beat { label: self.label(due), interval: self.interval })
    }

    /// The label of a heartbeat due at `at`.
    pub fn label(&self, at: Instant) -> Label {
        Label(saturate(self.label_at_origin + i128::from(at.as_nanos())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + MS * ms as u32
    }

    #[test]
    fn the_first_beat_is_immediate_and_labels_count_from_zero_time() {
        let mut schedule = Schedule::new(Label::from_nanos(1_000_000_000), MS * 100, at(7));
        assert_eq!(schedule.beat(at(7)), None);
        schedule.begin(at(10));
        let beat = schedule.beat(at(10)).unwrap();
        assert_eq!(beat.label, Label::from_nanos(1_003_000_000));
        assert_eq!(schedule.due(), Some(at(110)));
        assert_eq!(schedule.beat(at(50)), None);
    }

    #[test]
    fn a_late_call_keeps_the_rhythm_and_a_stall_restarts_it() {
        let mut schedule = Schedule::new(Label::default(), MS * 100, at(0));
        schedule.begin(at(0));
        schedule.beat(at(0)).unwrap();
        assert_eq!(schedule.beat(at(130)).unwrap().label, Label::from_nanos(100_000_000));
        assert_eq!(schedule.due(), Some(at(200)));
        assert_eq!(schedule.beat(at(555)).unwrap().label, Label::from_nanos(555_000_000));
        assert_eq!(schedule.due(), Some(at(655)));
    }

    #[test]
    fn labels_rise_even_if_a_sender_begins_twice_in_one_instant() {
        let mut schedule = Schedule::new(Label::default(), MS * 100, at(0));
        schedule.begin(at(5));
        let first = schedule.beat(at(5)).unwrap().label;
        schedule.end();
        schedule.begin(at(5));
        assert!(schedule.beat(at(5)).unwrap().label > first);
    }

    #[test]
    fn an_announced_beat_is_never_put_off() {
        let mut schedule = Schedule::new(Label::default(), MS * 100, at(0));
        schedule.begin(at(0));
        schedule.beat(at(0)).unwrap();
        schedule.set_interval(MS * 300);
        assert_eq!(schedule.due(), Some(at(100)));
        assert_eq!(schedule.beat(at(100)).unwrap().interval, MS * 300);
        assert_eq!(schedule.due(), Some(at(400)));
        schedule.set_interval(MS * 50);
        assert_eq!(schedule.due(), Some(at(150)));
    }
}
