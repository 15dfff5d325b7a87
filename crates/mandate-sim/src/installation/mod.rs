//! The installation of leaders under simulation: claims at random, faults, and what must hold of
//! terms and mandates.

use core::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::Effects;
use mandate_proto::pole::installation::{
    self, Config, Effect, Event, Input, Installation, Message, Promised, Safeguard,
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
    /// What an operator makes of it, if one does.
    pub edited: Option<Config>,
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
    /// Votes count whatever list of members, or guarantee, their sender has.
    ConfigIgnored,
    /// A restarted leader does not wait for what it promised itself, though it is acted on.
    OwnPromiseForgotten,
    /// Another incarnation of a leader passes for the one that was promised.
    IncarnationIgnored,
    /// After the loss of its disk a member waits for the lease of the highest term that is reported, not for the longest.
    LeaseOfHighest,
    /// A leader that hands over frees those who promised it before its own mandate has ended.
    FreedBeforeEnded,
    /// What is to be written is answered before it is on disk, also by a disk that is slow, full or stuck.
    AnsweredBeforeWritten,
    /// A member that is new votes before all of its list have answered it.
    NewVotesAtOnce,
}

impl Mutant {
    /// The rule that it leaves out of the machine, if it is one of the machine's.
    fn without(self) -> Option<Safeguard> {
        match self {
            Mutant::ConfigIgnored => Some(Safeguard::ConfigDigest),
            Mutant::OwnPromiseForgotten => Some(Safeguard::OwnPromise),
            Mutant::IncarnationIgnored => Some(Safeguard::Incarnation),
            Mutant::LeaseOfHighest => Some(Safeguard::LongestLease),
            Mutant::NewVotesAtOnce => Some(Safeguard::FirstAnswers),
            Mutant::FreedBeforeEnded => Some(Safeguard::EndBeforeRelease),
            _ => None,
        }
    }
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
        let config = setup.edited.as_ref().filter(|_| boot.is_edited).unwrap_or(&setup.config);
        let subject::Boot { stored, is_new, is_changed, lifetime, .. } = boot;
        let mut start = installation::Boot { stored, is_new, is_changed, lifetime };
        match setup.mutant {
            Some(Mutant::PromiseNotDurable) => {
                start.stored = start.stored.map(|_| Promised::ADMITTED);
            }
            Some(Mutant::LeaseNotWaitedOut) => {
                start.stored = start.stored.map(|p| Promised { lease: Duration::ZERO, ..p });
            }
            Some(Mutant::VoteWithoutDisk) if !start.is_new => {
                start.stored = start.stored.or(Some(Promised::ADMITTED));
            }
            // The others act where the group is set up, where the mandate is asked for, or in the machine.
            _ => {}
        }
        Installation::start(config.clone(), start, now, effects)
    }

    fn received(from: MemberId, message: Message) -> Input {
        Input::Received { from, message }
    }
}
