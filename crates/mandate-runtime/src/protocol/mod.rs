//! What the driver needs to know of a protocol that members speak with each other.

use std::collections::BTreeMap;
use std::time::Duration;

use mandate_proto::election::{Elector, Guarantee};
use mandate_proto::identity::MemberId;
use mandate_proto::machine::Effect;
use mandate_proto::nfd_l;
use mandate_proto::pole::installation::{NoVote, Roster};
use mandate_proto::pole::member;
use mandate_proto::time::Instant;
use mandate_proto::wire::Wire;

use crate::durable::Agreed;
use crate::election::Status;
use crate::event::Event;
use crate::requests::RequestEvent;
use crate::start::Kept;
use crate::transport::{Delivery, Inbound};

mod overlap;
mod scored;

/// Which protocol a group speaks, and how a member of it is set up.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// Election by score, one leader for each term: guarantees `Fenced` and `Leased`.
    Pole(member::Config),
    /// A failure detector that names a leader: guarantee `Overlap`. At least one leader, eventually one; no
    /// term to fence with.
    NfdL {
        /// The member.
        config: nfd_l::Config,
        /// All members, itself included.
        members: Vec<MemberId>,
    },
}

impl Protocol {
    /// This member.
    pub fn me(&self) -> MemberId {
        match self {
            Protocol::Pole(config) => config.me(),
            Protocol::NfdL { config, .. } => config.id(),
        }
    }

    /// All members, in order.
    pub fn members(&self) -> &[MemberId] {
        match self {
            Protocol::Pole(config) => config.members(),
            Protocol::NfdL { members, .. } => members,
        }
    }

    /// What all members must have alike for their votes to count; `None` where nobody votes.
    pub fn agreed(&self) -> Option<Agreed> {
        let guarantee = match self.guarantee() {
            Guarantee::Overlap => return None,
            Guarantee::Fenced => "fenced",
            Guarantee::Leased { .. } => "leased",
        };
        let members = self.members().iter().map(MemberId::to_string).collect();
        Some(Agreed { members, guarantee: guarantee.into() })
    }

    /// Whether scores move a leader that is well.
    pub fn moves_leaders(&self) -> bool {
        match self {
            Protocol::Pole(config) => config.moves().is_some_and(|moves| !moves.shadow),
            Protocol::NfdL { .. } => false,
        }
    }

    /// What leaders rely on.
    pub fn guarantee(&self) -> Guarantee {
        match self {
            Protocol::Pole(config) => config.guarantee().into(),
            Protocol::NfdL { .. } => Guarantee::Overlap,
        }
    }
}

impl From<member::Config> for Protocol {
    fn from(config: member::Config) -> Self {
        Protocol::Pole(config)
    }
}

/// A protocol as the [backend](crate::peer) sees it.
pub(crate) trait PeerProtocol:
    Elector<Effect = Effect<Self::Message, Self::Stable, Self::Event>, Input: Send> + Send + 'static
{
    type Message: Wire + Send;
    type Stable: Kept + Clone + Send + Sync + 'static;
    type Event: Send;

    fn received(from: MemberId, message: Self::Message) -> Self::Input;
    fn delivery(message: &Self::Message) -> Delivery;
    /// What is done about a connection that was made or broke, if anything.
    fn link(change: &Inbound) -> Option<Self::Input>;
    /// Tells how long messages from a member take, one way, where that is wanted.
    fn delay(member: MemberId, delay: Duration) -> Option<Self::Input>;

    /// The list that the member goes by, where members come and go.
    fn roster(&self) -> Option<&Roster> {
        None
    }

    /// What an event tells of requests to the leader, if it does; such an event is for nobody else.
    fn request(_event: &Self::Event) -> Option<RequestEvent> {
        None
    }

    /// Adds what this member knows to what every engine does.
    fn known(
        &self,
        round_trips: BTreeMap<MemberId, Duration>,
        now: Instant,
        status: Status,
    ) -> Status;
    /// Why this member has no vote, and whom it waits for, if it has none and another could give it one.
    fn no_vote(&self) -> Option<NoVote> {
        None
    }
    /// What the application is told.
    fn told(&self, event: Self::Event) -> Vec<Event>;
}
