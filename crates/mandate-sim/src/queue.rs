//! What is to happen, in order of time; of what happens at one time, in the order it was
//! scheduled.
//!
//! Times and places are kept in the heap, the events themselves beside it: an event that carries
//! a message is several times larger than its key, and would be moved at every step of a sift.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::SimTime;

/// A queue of events.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Reverse<(SimTime, u64, u32)>>,
    slots: Vec<Option<E>>,
    free: Vec<u32>,
    scheduled: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Queue { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), scheduled: 0 }
    }
}

impl<E> Queue<E> {
    /// Schedules an event.
    pub(crate) fn push(&mut self, at: SimTime, event: E) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(event);
                slot
            }
            None => {
                self.slots.push(Some(event));
                (self.slots.len() - 1) as u32
            }
        };
        self.heap.push(Reverse((at, self.scheduled, slot)));
        self.scheduled += 1;
    }

    /// When the next event is.
    pub(crate) fn next_time(&self) -> Option<SimTime> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes the next event, with its time.
    pub(crate) fn pop(&mut self) -> Option<(SimTime, E)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        let event = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some((at, event))
    }

    /// The time of the last event that `matches`, if there is one.
    pub(crate) fn last_time(&self, matches: impl Fn(&E) -> bool) -> Option<SimTime> {
        let matching = self.heap.iter().filter(|Reverse((_, _, slot))| {
            self.slots[*slot as usize].as_ref().is_some_and(&matches)
        });
        matching.map(|Reverse((at, _, _))| *at).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_then_of_scheduling() {
        let mut queue = Queue::default();
        let at = SimTime::from_nanos;
        queue.push(at(5), "c");
        queue.push(at(3), "a");
        queue.push(at(5), "d");
        queue.push(at(3), "b");
        assert_eq!(queue.last_time(|event| *event != "d"), Some(at(5)));
        assert_eq!(queue.last_time(|event| *event < "c"), Some(at(3)));
        assert_eq!(queue.pop(), Some((at(3), "a")));
        queue.push(at(4), "x");
        let rest: Vec<_> = core::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(rest, ["b", "x", "c", "d"]);
    }
}
