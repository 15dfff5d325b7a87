//! The contract between a protocol and its driver.
//!
//! A [`Machine`] is given inputs and the time, and answers with [`Effects`]: one ordered list.
//! The driver carries them out in that order, sleeps until [`Machine::deadline`], and calls
//! [`Machine::handle_timeout`]. That is the whole of it:
//!
//! ```text
//! loop {
//!     carry_out(effects.drain());             // what follows a Persist waits until it is durable: persisted(now())
//!     select! { biased;                       // what has arrived goes before what is due
//!         input = inputs.next()               => machine.handle(input, now(), &mut effects),
//!         _ = sleep_until(machine.deadline()) => machine.handle_timeout(now(), &mut effects),
//!     }
//! }
//! ```
//!
//! Several `poll_*` methods were rejected: the order among what they return is then prose, and a
//! driver that polls them in another order is wrong in a way nobody sees.

use alloc::collections::VecDeque;

use crate::identity::MemberId;
use crate::time::Instant;

/// A protocol as a state machine.
pub trait Machine {
    /// What it can be told.
    type Input;
    /// What it asks for.
    type Effect;

    /// Takes one input.
    ///
    /// Total: nothing a peer, a disk or a database says can make it panic or fail.
    fn handle(&mut self, input: Self::Input, now: Instant, effects: &mut Effects<Self::Effect>);

    /// Does everything that is due by `now`. Late calls are expected, spurious ones harmless.
    ///
    /// Inputs that have arrived by then are to be handled first: a process that was paused finds
    /// its timer due and its mail waiting, and should read before it judges.
    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<Self::Effect>);

    /// The first write that was asked for and not reported yet is durable. The driver calls it after each
    /// [`Effect::Persist`], before it goes on to the effects behind it. Machines measure their disks by it; what is
    /// safe does not rest on it.
    fn persisted(&mut self, _now: Instant) {}

    /// When [`handle_timeout`](Machine::handle_timeout) wants to be called next, if ever.
    /// It may change with every call of the other ones.
    fn deadline(&self) -> Option<Instant>;
}

/// What a protocol that talks to peers asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<Message, Stable, Event> {
    /// Replace what is on stable storage. Nothing after this in the list may be done before the
    /// write would survive a crash.
    Persist(Stable),
    /// Send to one member. It may be lost, repeated, delayed or overtaken.
    Send {
        /// The receiver.
        to: MemberId,
        /// What to send.
        message: Message,
    },
    /// Send to every other member of the group.
    Broadcast(Message),
    /// Tell the application.
    Tell(Event),
}

/// The ordered list that a machine writes to and a driver drains. It keeps its capacity, so a
/// machine that runs for a year allocates for its effects once.
#[derive(Clone, Debug)]
pub struct Effects<E> {
    queue: VecDeque<E>,
}

impl<E> Default for Effects<E> {
    fn default() -> Self {
        Effects { queue: VecDeque::new() }
    }
}

impl<E> Effects<E> {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an effect behind all others.
    pub fn push(&mut self, effect: E) {
        self.queue.push_back(effect);
    }

    /// Takes the first effect.
    pub fn pop(&mut self) -> Option<E> {
        self.queue.pop_front()
    }

    /// Takes all effects, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = E> + '_ {
        self.queue.drain(..)
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn effects_come_out_in_the_order_they_went_in() {
        let mut effects = Effects::new();
        effects.push(1);
        effects.push(2);
        effects.push(3);
        assert_eq!(effects.pop(), Some(1));
        assert_eq!(effects.drain().collect::<Vec<_>>(), [2, 3]);
        assert!(effects.is_empty());
    }
}
