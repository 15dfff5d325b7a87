//! Who shall lead Raft, and what is to be done next to get there: the decision, without clock or network.
//!
//! The election names whom it wants to lead; Raft only elects who has the log. So the winner of the election
//! *directs*: it asks every member how far its log reaches and decides by the answers. Where its own log allows,
//! it has itself elected. Where it lags, the best by score of those that Raft would elect leads as the *interim*,
//! serves, and brings the winner up to date like any other follower; then leadership moves.
//!
//! Raft would elect a member whose log reaches as far as that of a quorum of voters. Asking for the very longest
//! log instead was rejected: after a crash it is often one member alone that has an entry nobody committed, and it
//! would be made to lead for that entry.
//!
//! Nothing here can harm Raft: what is ordered are elections, and Raft decides those by its own rules. A wrong
//! decision costs time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mandate_proto::election::quorum;
use mandate_proto::identity::MemberId;
use mandate_proto::time::Instant;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// How far a log reaches: its last entry, ordered as Raft orders logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The Raft term of the leader that proposed the last entry.
    pub term: u64,
    /// That leader, as its place among all members' node ids: openraft may have two leaders in one term, which
    /// it orders by node id.
    pub node: u32,
    /// The last entry's index.
    pub index: u64,
}

/// What a member says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How far its log reaches; `None` if it is empty.
    pub position: Option<Position>,
    /// The Raft term in which it leads and a quorum answers it; `None` if not.
    pub leads: Option<u64>,
}

impl Report {
    /// The index after its last entry.
    fn length(&self) -> u64 {
        self.position.map_or(0, |position| position.index + 1)
    }
}

/// What the winner of an election knows.
#[derive(Clone, Debug)]
pub struct Situation {
    /// The winner.
    pub me: MemberId,
    /// Members with a vote in Raft.
    pub voters: BTreeSet<MemberId>,
    /// Members by score, the best first, as the election ranked them; who is missing comes last.
    pub ranking: Vec<MemberId>,
    /// What members that answered have said, the winner included.
    pub reports: BTreeMap<MemberId, Report>,
}

impl Situation {
    /// Who leads Raft: of two, the one of the higher term.
    pub fn leader(&self) -> Option<MemberId> {
        let leading = self.reports.iter().filter_map(|(id, report)| Some((report.leads?, *id)));
        leading.max().map(|(_, id)| id)
    }

    /// Whether so many voters have answered that one of them can be elected.
    fn has_quorum(&self) -> bool {
        let answered = self.reports.keys().filter(|id| self.voters.contains(id)).count();
        answered >= quorum(self.voters.len())
    }

    /// Whether a quorum of voters would vote for a member, by what they said.
    fn is_electable(&self, candidate: MemberId) -> bool {
        let Some(report) = self.reports.get(&candidate) else { return false };
        let behind = |(id, other): &(&MemberId, &Report)| {
            self.voters.contains(id) && other.position <= report.position
        };
        self.voters.contains(&candidate)
            && self.reports.iter().filter(behind).count() >= quorum(self.voters.len())
    }

    /// The place of a member by score: the lower the better. Of two that are not ranked the higher id is the
    /// better.
    fn place(&self, member: MemberId) -> (usize, u32) {
        let ranked = self.ranking.iter().position(|id| *id == member);
        (ranked.unwrap_or(usize::MAX), u32::MAX - member.get())
    }
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the winner leads Raft.
    Settled,
    /// Ask again soon: too few have answered, or what was ordered may still come about.
    Wait,
    /// The interim leads, and the winner is not up to date yet.
    CatchUp {
        /// Who leads.
        interim: MemberId,
        /// How many entries the winner lacks.
        behind: u64,
    },
    /// Nobody leads: have this member elected.
    Elect(MemberId),
    /// The winner is up to date: have this one stand aside, and the winner elected.
    Move {
        /// Who leads.
        from: MemberId,
    },
}

/// Bounds of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long an election that was ordered may take before another is.
    pub elect_within: Duration,
    /// How many entries the winner may lack when the leader is asked to stand aside. It waits for the rest, with
    /// writes held.
    pub close_enough: u64,
    /// How long to leave a leader alone after a move that failed; doubled with every further one, to at most
    /// 32 times as much. Each try holds writes for a while.
    pub move_again: Duration,
}

/// After so many elections in vain another candidate is tried, if there is one.
const TRIES: u32 = 2;

/// Decides, and remembers what was tried. One for each mandate.
#[derive(Clone, Debug)]
pub struct Direction {
    pace: Pace,
    /// Until when an election that was ordered may come about.
    ordered_until: Option<Instant>,
    /// Elections in vain since somebody led.
    failures: BTreeMap<MemberId, u32>,
    /// When the next move may be tried, and how many have failed.
    moves: (Instant, u32),
}

impl Direction {
    /// Begins with nothing tried.
    pub fn new(pace: Pace) -> Self {
        Direction {
            pace,
            ordered_until: None,
            failures: BTreeMap::new(),
            moves: (Instant::ORIGIN, 0),
        }
    }

    /// What is to be done at `now`. The caller that carries out a [`Step::Move`] tells the outcome by
    /// [`Direction::moved`].
    pub fn decide(&mut self, situation: &Situation, now: Instant) -> Step {
        let Some(leader) = situation.leader() else { return self.without_leader(situation, now) };
        self.ordered_until = None;
        self.failures.clear();
        if leader == situation.me {
            self.moves = (Instant::ORIGIN, 0);
            return Step::Settled;
        }
        let length = |member| situation.reports.get(&member).map_or(0, Report::length);
        let behind = length(leader).saturating_sub(length(situation.me));
        let can_lead = situation.voters.contains(&situation.me);
        if behind > self.pace.close_enough || !can_lead || now < self.moves.0 {
            return Step::CatchUp { interim: leader, behind };
        }
        Step::Move { from: leader }
    }

    /// What came of a move: whether the leader has stood aside.
    pub fn moved(&mut self, stood_aside: bool, now: Instant) {
        if stood_aside {
            self.ordered_until = Some(now + self.pace.elect_within);
            return;
        }
        let failed = self.moves.1;
        self.moves = (now + self.pace.move_again * (1 << failed.min(5)), failed + 1);
    }

    fn without_leader(&mut self, situation: &Situation, now: Instant) -> Step {
        if self.ordered_until.is_some_and(|until| now < until) || !situation.has_quorum() {
            return Step::Wait;
        }
        let electable = situation.reports.keys().filter(|id| situation.is_electable(**id));
        let best = electable.min_by_key(|id| {
            let gave_up = self.failures.get(id).copied().unwrap_or(0) / TRIES;
            (gave_up, **id != situation.me, situation.place(**id))
        });
        let Some(best) = best.copied() else { return Step::Wait };
        *self.failures.entry(best).or_default() += 1;
        self.ordered_until = Some(now + self.pace.elect_within);
        Step::Elect(best)
    }
}
