//! Election by score, whole, under simulation: detection, selection, installation and moves.

use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::pole::installation::{Boot, Promised};
use mandate_proto::pole::member::{Config, Effect, Event, Figures, Input, Member, Message};
use mandate_proto::time::Instant;

use crate::subject::{self, Subject};

mod put_back;
pub mod register;
pub mod scenario;
pub mod shape;
mod watch;

pub use scenario::{Mutant, Options, run};

/// How a simulated member is set up.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The machine's own configuration.
    pub config: Config,
    /// What an operator makes of it, if one does.
    pub edited: Option<Config>,
    /// What its application knows when it starts.
    pub figures: Figures,
    /// A bug put in on purpose.
    pub mutant: Option<Mutant>,
}

impl Subject for Member {
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
        let subject::Boot { stored, is_new, is_changed, lifetime, .. } = boot;
        let config = setup.edited.as_ref().filter(|_| boot.is_edited).unwrap_or(&setup.config);
        let mut boot = Boot { stored, is_new, is_changed, lifetime };
        // The other mutants act where the group is set up, or in the machine.
        if setup.mutant == Some(Mutant::PromiseNotDurable) {
            boot.stored = boot.stored.map(|_| Promised::ADMITTED);
        }
        let mut member = Member::start(config.clone(), boot, now, effects);
        member.handle(Input::Figures(setup.figures), now, effects);
        member
    }

    fn received(from: MemberId, message: Message) -> Input {
        Input::Received { from, message }
    }
}
