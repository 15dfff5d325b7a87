//! One side of a comparison: what elects, among how many, and how it is set up.

use std::time::Duration;

use mandate_lab::rivals::figures::RivalFigures;
use mandate_lab::rivals::trial::{self, RivalFault, TrialPlan};
use mandate_sql::Address;

use super::systems::Prepared;

/// PostgreSQL's processes are many: beyond this each costs more than it shows.
const MOST_CONNECTIONS: u64 = 900;

/// Beyond this number, members of one process share connections, and so many.
const SHARED_BEYOND: u64 = 800;
const SHARED: usize = 8;

/// What elects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Rival {
    /// The holder of a PostgreSQL advisory lock leads.
    AdvisoryLock,
    /// Mandate's SQL engine, on PostgreSQL: what they are compared with.
    Mandate,
    /// The same where terms are enough: one leader per term, and a death shows at once.
    MandateFenced,
    /// The NewSQL paper's algorithm as it is printed, on PostgreSQL.
    Printed,
    /// ZooKeeper's recipe.
    Zookeeper,
}

impl Rival {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rival::AdvisoryLock => "advisory-lock",
            Rival::Mandate => "mandate",
            Rival::MandateFenced => "mandate-fenced",
            Rival::Printed => "printed",
            Rival::Zookeeper => "zookeeper",
        }
    }

    pub(super) fn is_ours(self) -> bool {
        matches!(self, Rival::Mandate | Rival::MandateFenced)
    }

    /// Why a cause makes no sense for it, if it does not.
    pub(super) fn refuses(self, cause: RivalFault) -> Option<&'static str> {
        match (self, cause) {
            (Rival::Printed, RivalFault::Handover) => {
                Some("the printed algorithm has no handover: try --cause kill")
            }
            (Rival::AdvisoryLock, RivalFault::GivenUp) => None,
            (_, RivalFault::GivenUp) => Some(
                "given-up is for advisory-lock; sessions of the others run out: try --cause cut",
            ),
            _ => None,
        }
    }
}

/// What elects, among how many, and how it is set up.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) rival: Rival,
    pub(crate) members: u64,
    /// How long rounds last at first, where there are rounds.
    pub(crate) round: Duration,
    /// ZooKeeper's tick.
    pub(crate) tick: Duration,
    /// Somebody's database instead of a private one; for our engine.
    pub(crate) at: Option<Address>,
}

impl Side {
    /// Why it cannot be tried at this size, if it cannot.
    pub(super) fn too_large(&self) -> Option<String> {
        let is_too_large = self.rival == Rival::AdvisoryLock && self.members > MOST_CONNECTIONS;
        is_too_large.then(|| {
            format!(
                "{}: each member that waits for the lock has a connection of its own, and PostgreSQL has a \
                 process for each: at most {MOST_CONNECTIONS} members",
                self.rival.name()
            )
        })
    }

    /// Connections that the members of one process share, if they do.
    pub(super) fn shared(&self) -> Option<usize> {
        let may_share = self.rival.is_ours() || self.rival == Rival::Printed;
        (may_share && self.members > SHARED_BEYOND).then_some(SHARED)
    }

    /// How many connections there will be, at most.
    pub(super) fn connections(&self) -> u64 {
        self.members.min(MOST_CONNECTIONS)
    }

    /// Makes the leader fail, again and again. `tell` is called after each fault.
    pub(crate) fn run(&self, faults: &Faults, tell: impl FnMut()) -> anyhow::Result<RivalFigures> {
        let ground = Prepared::start(self)?;
        let plan = TrialPlan {
            members: self.members,
            cause: faults.cause,
            faults: faults.number,
            bound: faults.bound,
            standing: faults.standing,
            spread: match self.rival {
                Rival::AdvisoryLock => Duration::ZERO,
                Rival::Mandate | Rival::MandateFenced | Rival::Printed => self.round,
                Rival::Zookeeper => self.tick,
            },
        };
        Ok(trial::run(&ground, &plan, tell)?)
    }
}

/// What is done to leaders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) cause: RivalFault,
    pub(crate) number: u32,
    /// How long the next leader is waited for.
    pub(crate) bound: Duration,
    /// For how long the election is left alone before, and measured.
    pub(crate) standing: Duration,
}
