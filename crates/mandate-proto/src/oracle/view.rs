//! What a member knows when it scores itself.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::latency::{Latencies, Peer};
use super::{Measure, NoScore, turns_between};
use crate::election::quorum;
use crate::identity::MemberId;
use crate::score::Score;

/// Why scores are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Occasion {
    /// The leader is gone, or there was none: it is left out.
    #[default]
    AfterCrash,
    /// The leader is well and asks whether another would serve better: it is included.
    BeforeResignation,
}

/// What the operator thinks of a member as a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preference {
    /// Never a candidate.
    Never,
    /// The higher the better; 0 is neutral.
    Rank(i32),
}

impl Default for Preference {
    fn default() -> Self {
        Preference::Rank(0)
    }
}

/// What a member knows of itself and the others. Members that do not answer pings are not in
/// `round_trips`.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// This member.
    pub me: MemberId,
    /// All members of the group, up or down.
    pub members: Vec<MemberId>,
    /// The leader that is followed, or was last.
    pub leader: Option<MemberId>,
    /// Why the score is asked for.
    pub occasion: Occasion,
    /// Mean round trips to the others that answer.
    pub round_trips: BTreeMap<MemberId, Duration>,
    /// Requests that clients send to each member a second.
    pub request_rates: BTreeMap<MemberId, f64>,
    /// The position of this member's log.
    pub history: Option<u64>,
    /// What the operator gave it.
    pub preference: Preference,
    /// What the application says: a component for each time that the oracle names it.
    pub application: Option<Score>,
}

impl View {
    /// What `me` of `members` knows at its start: nothing.
    pub fn new(me: MemberId, members: impl IntoIterator<Item = MemberId>) -> Self {
        let mut members: Vec<_> = members.into_iter().chain([me]).collect();
        members.sort_unstable();
        members.dedup();
        View {
            me,
            members,
            leader: None,
            occasion: Occasion::default(),
            round_trips: BTreeMap::new(),
            request_rates: BTreeMap::new(),
            history: None,
            preference: Preference::default(),
            application: None,
        }
    }

    /// The others that count: members that answer, without the leader if that is gone.
    fn others(&self) -> impl Iterator<Item = Peer> + '_ {
        let gone = self.leader.filter(|_| self.occasion == Occasion::AfterCrash);
        let counted = move |id: MemberId| {
            id != self.me && Some(id) != gone && self.members.binary_search(&id).is_ok()
        };
        self.round_trips.iter().filter(move |(id, _)| counted(**id)).map(|(id, round_trip)| Peer {
            round_trip_ms: round_trip.as_secs_f64() * 1000.0,
            requests: self.requests_at(*id),
        })
    }

    fn requests_at(&self, id: MemberId) -> f64 {
        let rate = self.request_rates.get(&id).copied().unwrap_or(0.0);
        if rate.is_finite() { rate.max(0.0) } else { 0.0 }
    }

    /// Whether this member may lead.
    pub(super) fn check_allowed(&self) -> Result<(), NoScore> {
        if self.preference == Preference::Never { Err(NoScore::Never) } else { Ok(()) }
    }

    /// Whether it could: it hears a quorum, itself included.
    pub(super) fn check_quorum(&self) -> Result<(), NoScore> {
        let (heard, size) = (self.others().count() + 1, self.members.len());
        if heard < quorum(size) {
            let counted = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
            let (heard, quorum) = (counted(heard), counted(quorum(size)));
            return Err(NoScore::NoQuorum { heard, size: counted(size), quorum });
        }
        Ok(())
    }

    /// What `measure` reads for this member. Of the application's score, component `told` is next.
    pub(super) fn measure(&self, measure: Measure, told: usize) -> Result<f64, NoScore> {
        let unknown = NoScore::Unknown(measure);
        let latencies = || {
            let own = self.requests_at(self.me);
            Latencies::new(self.others(), own, quorum(self.members.len())).ok_or(unknown)
        };
        match measure {
            Measure::History => self.history.map(|position| position as f64).ok_or(unknown),
            Measure::Requests => Ok(self.requests_at(self.me)),
            Measure::Consensus => Ok(latencies()?.consensus()),
            Measure::Latency => Ok(latencies()?.mean()),
            Measure::Worst => Ok(latencies()?.worst()),
            Measure::Rotating => Ok(-(self.turns_to_wait() as f64)),
            Measure::Preference => match self.preference {
                Preference::Rank(rank) => Ok(f64::from(rank)),
                Preference::Never => Err(NoScore::Never),
            },
            Measure::Constant => Ok(0.0),
            Measure::Application => {
                let said = self.application.as_ref().map(Score::components).unwrap_or_default();
                said.get(told).copied().ok_or(unknown)
            }
        }
    }

    /// Turns until this member's, counted from the last leader; without one, from the last id.
    fn turns_to_wait(&self) -> usize {
        let from = self.leader.or(self.members.last().copied()).unwrap_or(self.me);
        turns_between(&self.members, from, self.me)
    }
}
