//! POLE's selection under simulation.
//!
//! Only selection: each member is told its score and whom to suspect, and that its leader is
//! lost, when it starts. What is measured is how long it takes until all agree, and on whom.

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::oracle::Measured;
use mandate_proto::pole::selection::{Config, Effect, Event, Input, Message, Selection};
use mandate_proto::score::Score;
use mandate_proto::time::Instant;

use crate::subject::{Boot, Subject};

/// How a simulated member is set up.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The machine's own configuration.
    pub config: Config,
    /// Its score.
    pub score: Score,
    /// Members that it knows to be down.
    pub suspected: Vec<MemberId>,
}

impl Subject for Selection {
    type Message = Message;
    type Stable = core::convert::Infallible;
    type Event = Event;
    type Config = MemberConfig;

    fn boot(
        setup: &MemberConfig,
        _: Boot<Self::Stable>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) -> Self {
        let mut member = Selection::new(setup.config.clone());
        let suspected = setup.suspected.iter();
        let suspected =
            suspected.map(|member| Input::Suspected { member: *member, suspected: true });
        let scored = Input::Scored(Ok(Measured { values: setup.score, score: setup.score }));
        let elect = Input::Elect { above: Term::NONE };
        for input in suspected.chain([scored, elect]) {
            member.handle(input, now, effects);
        }
        member
    }

    fn received(from: MemberId, message: Message) -> Input {
        Input::Received { from, message }
    }
}
