//! The installation of leaders under simulation: claims at random, faults, and what must hold of
//! terms and mandates.

use core::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::Effects;
use mandate_proto::pole::installation::{
    self, Config, Effect, Event, Input, Installation, Message, Promised,
};
use mandate_proto::time::Instant;

use crate::subject::{self, Subject};

pub mod invariants;
mod mutated;
pub mod scenario;

pub use scenario::{Options, run};

/// How a simulated member is set up.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The machine's own configuration.
    pub config: Config,
    /// A bug put in on purpose.
    pub mutant: Option<Mutant>,
}

/// Bugs to put back on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Promises are not on disk after a crash.
    PromiseNotDurable,
    /// A restarted member promises at once.
    LeaseNotWaitedOut,
    /// Leadership is a flag that events set and clear, instead of a deadline compared at the call.
    CachedCheck,
    /// A leader counts its deadline from the answer, and not from when it asked.
    DeadlineFromReply,
    /// A member that has lost its disk votes at once.
    VoteWithoutDisk,
    /// Leaders allow for no drift.
    NoAllowance,
}

impl Subject for Installation {
    type Message = Message;
    type Stable = Promised;
    type Event = Event;
    type Config = MemberConfig;

    fn boot(
        setup: &MemberConfig,
        boot: subject::Boot<Promised>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) -> Self {
        let config = setup.config.clone();
        let subject::Boot { stored, is_new, lifetime, .. } = boot;
        let mut start = installation::Boot { stored, is_new, lifetime };
        match setup.mutant {
            Some(Mutant::PromiseNotDurable) => {
                start.stored = start.stored.map(|_| Promised::NOTHING);
            }
            Some(Mutant::LeaseNotWaitedOut) => {
                start.stored = start.stored.map(|p| Promised { lease: Duration::ZERO, ..p });
            }
            Some(Mutant::VoteWithoutDisk) => start.is_new = true,
            // These act where the group is set up, or where the mandate is asked for.
            Some(Mutant::CachedCheck | Mutant::DeadlineFromReply | Mutant::NoAllowance) | None => {}
        }
        Installation::start(config, start, now, effects)
    }

    fn received(from: MemberId, message: Message) -> Input {
        Input::Received { from, message }
    }
}
