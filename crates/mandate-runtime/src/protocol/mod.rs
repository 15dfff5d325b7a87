//! What the driver needs to know of a protocol that members speak with each other.

use std::collections::BTreeMap;
use std::time::Duration;

use mandate_proto::detector::quality::Detection;
use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effect, Machine};
use mandate_proto::oracle::{Standing, View};
use mandate_proto::pole::installation::NoVote;
use mandate_proto::pole::member::{self, NoTransfer};
use mandate_proto::time::Instant;
use mandate_proto::wire::Wire;
use mandate_proto::{nfd_l, pole};
use serde::Serialize;

use crate::durable::Agreed;
use crate::event::{Event, Figures};
use crate::mandate::Held;
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
            Promise::Overlap => return None,
            Promise::Fenced => "fenced",
            Promise::Leased { .. } => "leased",
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
    pub fn guarantee(&self) -> Promise {
        match self {
            Protocol::Pole(config) => match config.guarantee() {
                pole::installation::Guarantee::Fenced => Promise::Fenced,
                pole::installation::Guarantee::Leased { lease, .. } => Promise::Leased { lease },
            },
            Protocol::NfdL { .. } => Promise::Overlap,
        }
    }
}

impl From<member::Config> for Protocol {
    fn from(config: member::Config) -> Self {
        Protocol::Pole(config)
    }
}

/// What leaders rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// At least one leader, eventually one.
    Overlap,
    /// One leader per term, without any assumption on time: whoever checks terms is safe.
    Fenced,
    /// Besides, at any instant at most one [`check`](crate::Mandate::check) says yes, given clocks whose rates
    /// differ by no more than the drift allowance.
    Leased {
        /// How long a lease lasts.
        lease: Duration,
    },
}

impl Promise {
    /// How long a lease lasts, with leases.
    pub fn lease(self) -> Option<Duration> {
        match self {
            Promise::Leased { lease } => Some(lease),
            Promise::Overlap | Promise::Fenced => None,
        }
    }
}

/// A protocol as the driver sees it.
pub(crate) trait Spoken:
    Machine<Effect = Effect<Self::Message, Self::Stable, Self::Event>, Input: Send> + Send + 'static
{
    type Message: Wire + Send;
    type Stable: Serialize + Clone + Send + Sync + 'static;
    type Event: Send;

    fn received(from: MemberId, message: Self::Message) -> Self::Input;
    fn delivery(message: &Self::Message) -> Delivery;
    /// What is done about a connection that was made or broke, if anything.
    fn link(change: &Inbound) -> Option<Self::Input>;
    /// Tells how long messages from a member take, one way, where that is wanted.
    fn delay(member: MemberId, delay: Duration) -> Option<Self::Input>;
    fn resign() -> Self::Input;
    /// Gives leadership up because the process ends, in good order.
    fn stop() -> Self::Input;
    fn transfer(to: MemberId) -> Result<Self::Input, NoTransfer>;
    fn figures(figures: Figures) -> Option<Self::Input>;

    /// What this member holds at `now`.
    fn held(&self, now: Instant) -> Option<Held>;
    fn knowledge(&self, round_trips: BTreeMap<MemberId, Duration>, now: Instant) -> Knowledge;
    /// Why this member has no vote, and whom it waits for, if it has none and another could give it one.
    fn no_vote(&self) -> Option<NoVote> {
        None
    }
    /// What the application is told.
    fn told(&self, event: Self::Event) -> Vec<Event>;
}

/// What a member knows besides who leads.
#[derive(Clone, Debug)]
pub(crate) struct Knowledge {
    pub(crate) suspected: Vec<MemberId>,
    pub(crate) view: View,
    pub(crate) standing: Standing,
    pub(crate) has_vote: bool,
    pub(crate) detection: Detection,
}
