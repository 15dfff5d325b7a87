//! A table of named deadlines with one earliest.
//!
//! A machine names its timers in an enum and keeps one [`Timers`] table; the driver sees only
//! the earliest deadline. The table is a small array that is scanned: machines have a handful of
//! timers, and below a few dozen entries a scan beats any heap.

use crate::time::Instant;

/// Names a timer: its place in the table, below the table's size.
pub trait TimerKey: Copy {
    /// A number below the `N` of the [`Timers`] it is used with, different for each timer.
    fn slot(self) -> usize;
}

/// Deadlines of up to `N` timers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timers<const N: usize> {
    deadlines: [Option<Instant>; N],
}

impl<const N: usize> Default for Timers<N> {
    fn default() -> Self {
        Timers { deadlines: [None; N] }
    }
}

impl<const N: usize> Timers<N> {
    /// Starts or moves a timer.
    pub fn set(&mut self, timer: impl TimerKey, deadline: Instant) {
        self.deadlines[timer.slot()] = Some(deadline);
    }

    /// Stops a timer; harmless if it does not run.
    pub fn clear(&mut self, timer: impl TimerKey) {
        self.deadlines[timer.slot()] = None;
    }

    /// When the timer ends, if it runs.
    pub fn get(&self, timer: impl TimerKey) -> Option<Instant> {
        self.deadlines[timer.slot()]
    }

    /// Whether the timer has ended by `now`. It is stopped if so, and its deadline returned.
    pub fn expired(&mut self, timer: impl TimerKey, now: Instant) -> Option<Instant> {
        self.deadlines[timer.slot()].take_if(|deadline| *deadline <= now)
    }

    /// The earliest deadline of all.
    pub fn next(&self) -> Option<Instant> {
        self.deadlines.iter().flatten().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Kind {
        Beat,
        Freshness,
    }

    impl TimerKey for Kind {
        fn slot(self) -> usize {
            self as usize
        }
    }

    #[test]
    fn the_earliest_deadline_is_next_and_expires_once() {
        let mut timers = Timers::<2>::default();
        timers.set(Kind::Freshness, Instant::from_nanos(20));
        timers.set(Kind::Beat, Instant::from_nanos(10));
        assert_eq!(timers.next(), Some(Instant::from_nanos(10)));
        assert_eq!(timers.expired(Kind::Beat, Instant::from_nanos(9)), None);
        let late = Instant::from_nanos(15);
        assert_eq!(timers.expired(Kind::Beat, late), Some(Instant::from_nanos(10)));
        assert_eq!(timers.expired(Kind::Beat, late), None);
        assert_eq!(timers.next(), Some(Instant::from_nanos(20)));
        timers.clear(Kind::Freshness);
        assert_eq!(timers.next(), None);
    }
}
