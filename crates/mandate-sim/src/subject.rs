//! What the simulator can run: a machine that talks to peers.

use core::fmt::Debug;

use mandate_proto::identity::{Incarnation, MemberId, Term};
use mandate_proto::machine::{Effect, Effects, Machine};
use mandate_proto::time::{Instant, WallTime};
use mandate_proto::wire;

use crate::fault::Fault;
use crate::network::HostIndex;
use crate::time::SimTime;

/// A protocol under simulation.
pub trait Subject:
    Machine<Input: Debug, Effect = Effect<Self::Message, Self::Stable, Self::Event>> + Sized
{
    /// What members send each other.
    type Message: Clone + Debug;
    /// What they keep on disk.
    type Stable: Clone + Debug;
    /// What they tell the application.
    type Event: Debug;
    /// How a member is set up.
    type Config;

    /// Starts a member, for the first time or again.
    fn boot(
        config: &Self::Config,
        boot: Boot<Self::Stable>,
        now: Instant,
        effects: &mut Effects<Self::Effect>,
    ) -> Self;

    /// A message as an input.
    fn received(from: MemberId, message: Self::Message) -> Self::Input;

    /// What its application does about an event, in this order; if it is not willing, so that nothing changes.
    fn carried_out(_event: &Self::Event, _is_willing: bool) -> Vec<Self::Input> {
        Vec::new()
    }

    /// The term that it holds, where an observer is to know.
    fn held(&self, _now: Instant) -> Option<Term> {
        None
    }

    /// The oldest and the newest version of the messages that a member speaks now: two that have none in common have no link.
    fn speaks(&self) -> (u32, u32) {
        (wire::OLDEST, wire::VERSION)
    }

    /// What is left of a message in this version, which is not the newest; nothing, if that cannot say it.
    fn said_in(_version: u32, message: Self::Message) -> Option<Self::Message> {
        Some(message)
    }
}

/// What a start needs from outside.
#[derive(Clone, Debug)]
pub struct Boot<Stable> {
    /// Which member it is.
    pub id: MemberId,
    /// What was found on disk.
    pub stored: Option<Stable>,
    /// Whether nothing was ever on its disk: an operator would call the member new.
    pub is_new: bool,
    /// Whether an operator has edited its configuration.
    pub is_edited: bool,
    /// Whether that was since what is on disk was written.
    pub is_changed: bool,
    /// The wall clock.
    pub wall: WallTime,
    /// A random number that no other incarnation of this member has.
    pub lifetime: Incarnation,
}

/// Something that was seen to happen.
#[derive(Debug)]
pub enum Observation<'a, S: Subject> {
    /// A process started.
    Started(&'a Boot<S::Stable>),
    /// A process sent a message, to one or to all.
    Sent(&'a S::Message),
    /// A message arrived at a process that is up.
    Delivered {
        /// Who sent it.
        from: MemberId,
        /// What it says.
        message: &'a S::Message,
    },
    /// A write became durable.
    Durable(&'a S::Stable),
    /// A process told its application something.
    Told(&'a S::Event),
    /// A fault was injected. (It is seen before it has its effect.)
    Faulted(&'a Fault),
    /// An application gives an input.
    Given {
        /// The input.
        input: &'a S::Input,
        /// The term that its member holds before that.
        held: Option<Term>,
    },
    /// A machine has taken the input that was given last, and nothing of what it asks for was done yet.
    Taken {
        /// The term that it holds then.
        held: Option<Term>,
    },
}

/// Where and when something was seen.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// True time.
    pub now: SimTime,
    /// The host; for faults of the network, any.
    pub host: HostIndex,
    /// What the host's monotonic clock reads.
    pub local: Instant,
}

/// Watches a simulation.
pub trait SimulationObserver<S: Subject> {
    /// Something happened.
    fn observe(&mut self, moment: Moment, what: &Observation<'_, S>);

    /// Whether it has seen enough: the simulation then stops.
    fn is_done(&self) -> bool {
        false
    }
}

/// Watches nothing.
impl<S: Subject> SimulationObserver<S> for () {
    fn observe(&mut self, _: Moment, _: &Observation<'_, S>) {}
}

/// A closure that watches.
impl<S: Subject, F: FnMut(Moment, &Observation<'_, S>)> SimulationObserver<S> for F {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, S>) {
        self(moment, what);
    }
}
