//! NFD-L under simulation.
//!
//! A seed draws a group of 3 to 9 members, its interval and detection time, its links and
//! clocks, and a storm of faults. During the storm the invariants are watched; then
//! everything heals, and this is demanded, in this order: agreement on one leader within the
//! bound, one broadcaster that sends N-1 messages an interval, a newcomer that unseats nobody,
//! and, after a crash of the leader, its detection in time and agreement on another.

use mandate_proto::identity::MemberId;
use mandate_proto::machine::Effects;
use mandate_proto::nfd_l::{self, Config, Effect, Event, Input, Message, NfdL, Stable};
use mandate_proto::time::Instant;

use crate::mutant::mutants;
use crate::subject::{Boot, Subject};

mod invariants;
mod scenario;

pub use scenario::{Options, run};

/// How a simulated member is set up.
#[derive(Clone, Copy, Debug)]
pub struct MemberConfig {
    /// The machine's own configuration.
    pub config: Config,
    /// A bug put in on purpose.
    pub mutant: Option<Mutant>,
}

mutants! {
    LabelsRestart, "labels-restart", "nfd-l", "labels restart at zero after a crash";
    WritesEveryStart, "writes-every-start", "nfd-l", "zero time is written at every start";
    PushyNewcomer, "pushy-newcomer", "nfd-l", "a restarted member unseats the leader";
    PrintedSeniority, "printed-seniority", "nfd-l", "uptimes are compared as printed in the paper";
    SlowDetector, "slow-detector", "nfd-l", "every suspicion comes one interval late";
}

impl Subject for NfdL {
    type Message = Message;
    type Stable = Stable;
    type Event = Event;
    type Config = MemberConfig;

    fn boot(
        setup: &MemberConfig,
        boot: Boot<Stable>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) -> Self {
        let restarted = boot.stored.is_some();
        let mut config = setup.config;
        let mut stored = boot.stored;
        match setup.mutant {
            Some(Mutant::LabelsRestart | Mutant::WritesEveryStart) => stored = None,
            Some(Mutant::PushyNewcomer) => config = config.with_priority(u8::from(restarted)),
            Some(Mutant::PrintedSeniority) => {
                config = config.with_seniority(nfd_l::Seniority::Printed);
            }
            Some(Mutant::SlowDetector) => {
                let slow = config.detect() + config.interval();
                config = Config::new(config.id(), config.interval(), slow)
                    .expect("more time to detect is always possible");
            }
            None => {}
        }
        let start = nfd_l::Boot { stored, wall: boot.wall, lifetime: boot.lifetime };
        let machine = NfdL::start(config, start, now, effects);
        if restarted && setup.mutant == Some(Mutant::LabelsRestart) {
            let kept: Vec<_> =
                effects.drain().filter(|effect| !matches!(effect, Effect::Persist(_))).collect();
            kept.into_iter().for_each(|effect| effects.push(effect));
        }
        machine
    }

    fn received(from: MemberId, message: Message) -> Input {
        Input::Received { from, message }
    }
}
