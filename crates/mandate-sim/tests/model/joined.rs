//! A member with both machines: whom the selection elects claims a term.

use core::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effect, Effects, Machine};
use mandate_proto::oracle::Measured;
use mandate_proto::pole::installation::{self, Boot, Installation, PeerGuarantee};
use mandate_proto::pole::selection::{self, Rules, Selection};
use mandate_proto::score::Score;
use mandate_proto::time::Instant;

use crate::host::{Asked, ids};

/// Time does not pass in this model: timers run out when the model says so.
const NOW: Instant = Instant::ORIGIN;

/// T of the selection, and how often a claim is repeated; any length will do.
const PAUSE: Duration = Duration::from_secs(1);

/// Longer than a claim waits for a quorum: whatever is due then, is.
const LATE: Duration = Duration::from_secs(3600);

/// What members send each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wire {
    Selection(selection::Message),
    Installation(installation::Message),
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Joined {
    me: MemberId,
    selection: Selection,
    installation: Installation,
}

impl Joined {
    /// Starts a member with its disk. All have the same score, so the highest id is the best.
    pub(crate) fn start(me: MemberId, boot: Boot) -> Self {
        let members = ids().to_vec();
        let rules = Rules::default();
        let config = selection::Config { me, members: members.clone(), timeout: PAUSE, rules };
        let mut selection = Selection::new(config);
        let score = Score::new(&[]).expect("no component is too many");
        let standing = Ok(Measured { values: score, score });
        selection.handle(selection::Input::Scored(standing), NOW, &mut Effects::new());
        let config = installation::Config {
            me,
            members,
            contacts: Default::default(),
            guarantee: PeerGuarantee::Fenced,
            retry: PAUSE,
            give_up: PAUSE * 4,
            without: None,
        };
        let installation = Installation::start(config, boot, NOW, &mut Effects::new());
        Joined { me, selection, installation }
    }

    /// The leader is lost.
    pub(crate) fn elect(&mut self, asked: &mut Asked<Wire>) {
        let above = self.installation.highest();
        self.select(asked, |selection, effects| {
            selection.handle(selection::Input::Elect { above }, NOW, effects);
        });
    }

    /// A message arrived.
    pub(crate) fn receive(&mut self, from: MemberId, message: &Wire, asked: &mut Asked<Wire>) {
        match message.clone() {
            Wire::Selection(message) => self.select(asked, |selection, effects| {
                selection.handle(selection::Input::Received { from, message }, NOW, effects);
            }),
            Wire::Installation(message) => {
                self.install(installation::Input::Received { from, message }, asked);
            }
        }
    }

    /// Whether the selection has concluded: but for a crash or a new election, it only votes.
    pub(crate) fn has_selected(&self) -> bool {
        self.selection.leader().is_some()
    }

    /// Whether the selection waits for a timer.
    pub(crate) fn is_selecting(&self) -> bool {
        self.selection.deadline().is_some()
    }

    /// Its timer runs out.
    pub(crate) fn end_wait(&mut self, asked: &mut Asked<Wire>) {
        let Some(deadline) = self.selection.deadline() else { return };
        self.select(asked, |selection, effects| selection.handle_timeout(deadline, effects));
    }

    /// Whether the installation waits for a timer.
    pub(crate) fn is_claiming(&self) -> bool {
        self.installation.deadline().is_some()
    }

    /// Its timers have long run out: a claim that nobody promised is given up, one that holds is
    /// repeated.
    pub(crate) fn end_patience(&mut self, asked: &mut Asked<Wire>) {
        let Some(deadline) = self.installation.deadline() else { return };
        let mut effects = Effects::new();
        self.installation.handle_timeout(deadline + LATE, &mut effects);
        self.forward(effects, asked);
    }

    fn select(
        &mut self,
        asked: &mut Asked<Wire>,
        act: impl FnOnce(&mut Selection, &mut Effects<selection::Effect>),
    ) {
        let mut effects = Effects::new();
        act(&mut self.selection, &mut effects);
        for effect in effects.drain() {
            match effect {
                Effect::Persist(nothing) => match nothing {},
                Effect::Send { to, message } => {
                    asked.push(Effect::Send { to, message: Wire::Selection(message) });
                }
                Effect::Broadcast(message) => {
                    asked.push(Effect::Broadcast(Wire::Selection(message)));
                }
                Effect::Tell(selection::Event::Elected { epoch, leader, .. }) => {
                    if leader == self.me {
                        self.install(installation::Input::Claim { epoch }, asked);
                    }
                }
            }
        }
    }

    fn install(&mut self, input: installation::Input, asked: &mut Asked<Wire>) {
        let mut effects = Effects::new();
        self.installation.handle(input, NOW, &mut effects);
        self.forward(effects, asked);
    }

    fn forward(&mut self, mut effects: Effects<installation::Effect>, asked: &mut Asked<Wire>) {
        for effect in effects.drain() {
            asked.push(match effect {
                Effect::Persist(promised) => {
                    self.installation.persisted(NOW);
                    Effect::Persist(promised)
                }
                Effect::Send { to, message } => {
                    Effect::Send { to, message: Wire::Installation(message) }
                }
                Effect::Broadcast(message) => Effect::Broadcast(Wire::Installation(message)),
                Effect::Tell(event) => Effect::Tell(event),
            });
        }
    }
}
