//! Raft at one member, as the driver sees it: where its log ends, whether it leads, and how it is told to.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_runtime::clock::Clock;
use openraft::error::Fatal;
use openraft::raft::AppendEntriesRequest;
use openraft::{CommittedLeaderId, LogId, Raft, RaftTypeConfig, ServerState, Vote};

use crate::direction::{Position, Report};

/// An index that no log reaches.
const NOWHERE: u64 = u64::MAX / 2;

/// One member's Raft.
pub(super) struct Node<C: RaftTypeConfig> {
    pub(super) raft: Raft<C>,
    pub(super) me: MemberId,
    members: BTreeMap<MemberId, C::NodeId>,
    clock: Clock,
    /// The term in which this member leads, and since when that is known.
    reign: Mutex<Option<(u64, mandate_proto::time::Instant)>>,
}

impl<C: RaftTypeConfig> Node<C> {
    pub(super) fn new(
        raft: Raft<C>,
        me: MemberId,
        members: BTreeMap<MemberId, C::NodeId>,
        clock: Clock,
    ) -> Self {
        Node { raft, me, members, clock, reign: Mutex::new(None) }
    }

    /// All members but this one.
    pub(super) fn others(&self) -> impl Iterator<Item = MemberId> {
        self.members.keys().copied().filter(|id| *id != self.me)
    }

    /// A member's node id.
    pub(super) fn node_of(&self, member: MemberId) -> Option<C::NodeId> {
        self.members.get(&member).cloned()
    }

    fn member_of(&self, node: &C::NodeId) -> Option<MemberId> {
        self.members.iter().find(|(_, id)| *id == node).map(|(member, _)| *member)
    }

    /// Members with a vote.
    pub(super) fn voters(&self) -> impl Iterator<Item = MemberId> {
        let membership = self.raft.metrics().borrow().membership_config.clone();
        let voters: Vec<_> = membership.membership().voter_ids().collect();
        voters.into_iter().filter_map(|node| self.member_of(&node))
    }

    /// Whom this member's Raft names as the leader.
    pub(super) fn leader(&self) -> Option<MemberId> {
        let leader = self.raft.metrics().borrow().current_leader.clone();
        self.member_of(&leader?)
    }

    /// The term in which this member leads, as its Raft says last.
    pub(super) fn leading_term(&self) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        (metrics.state == ServerState::Leader).then_some(metrics.current_term)
    }

    /// Whether somebody is known to lead since this member has led in that term and stood aside. What Raft publishes
    /// lags behind what it has done: right after it stood aside, it may still name this member, in that very term.
    pub(super) fn is_led_after(&self, led: u64) -> bool {
        let term = self.raft.metrics().borrow().current_term;
        follows(self.me, led, self.leader(), term)
    }

    /// Why Raft has ended, if it has.
    pub(super) fn failure(&self) -> Option<String> {
        self.raft.metrics().borrow().running_state.as_ref().err().map(ToString::to_string)
    }

    /// How far this member is.
    pub(super) fn report(&self) -> Report {
        let last = self.raft.data_metrics().borrow().last_log.clone();
        Report { position: last.map(|id| self.position(&id)), leads: self.leads() }
    }

    fn position(&self, id: &LogId<C::NodeId>) -> Position {
        let mut nodes: Vec<_> = self.members.values().collect();
        nodes.sort();
        let leader = id.leader_id.voted_for();
        let place = leader.and_then(|leader| nodes.iter().position(|node| **node == leader));
        let node = place.and_then(|place| u32::try_from(place + 1).ok()).unwrap_or(0);
        Position { term: id.leader_id.get_term(), node, index: id.index }
    }

    /// The term in which this member leads, if a quorum answers it. Until the first answers have come, having
    /// been elected counts for as long as a lease.
    fn leads(&self) -> Option<u64> {
        let metrics = self.raft.metrics().borrow().clone();
        let now = self.clock.now();
        let mut reign = self.reign.lock().unwrap_or_else(PoisonError::into_inner);
        if metrics.state != ServerState::Leader || metrics.running_state.is_err() {
            *reign = None;
            return None;
        }
        let term = metrics.current_term;
        let since = match *reign {
            Some((known, since)) if known == term => since,
            _ => now,
        };
        *reign = Some((term, since));
        let silence = match metrics.millis_since_quorum_ack {
            Some(millis) => Duration::from_millis(millis),
            None => now.since(since),
        };
        (silence <= self.lease() * 2).then_some(term)
    }

    /// How long voters stay with a leader they hear no more.
    pub(super) fn lease(&self) -> Duration {
        Duration::from_millis(self.raft.config().election_timeout_max)
    }

    /// Stands for election, in a term above all that it knows of.
    pub(super) async fn elect(&self) -> Result<(), Fatal<C::NodeId>> {
        self.release(self.me).await?;
        self.raft.trigger().elect().await
    }

    /// How far the log of another has been acknowledged, and how far this leader's reaches; `None` if it does not
    /// lead.
    pub(super) fn progress(&self, of: MemberId) -> Option<(u64, u64)> {
        let metrics = self.raft.metrics().borrow().clone();
        let matched = metrics.replication?.get(&self.node_of(of)?)?.clone();
        let length = |index: Option<u64>| index.map_or(0, |index| index + 1);
        Some((length(matched.map(|id| id.index)), length(metrics.last_log_index)))
    }

    /// Stays with the former leader no longer than it has to, unless that is `to`: a voter refuses its vote for as long as the
    /// lease of a leader that it has heard, and a leader leads until it hears of a higher term.
    ///
    /// openraft 0.9 has no call for this. What does it is a message of a term that nobody has been elected in yet,
    /// about a log entry that is nowhere: its term is accepted, so the lease is that of a past leader and a leader
    /// steps down, and the rest of it is refused. No vote is given by that: the candidate still has to ask, and
    /// its log is judged. Should a release of openraft treat such a message otherwise, a move takes a lease
    /// longer, and a test here fails.
    ///
    /// The message comes from nobody: the default of a node id. From the successor it would be a promise in its name,
    /// and should that one lead in a lower term and hear of it, openraft would take it for its own candidacy. Where
    /// the default is a member's id, leases are waited out.
    pub(super) async fn release(&self, to: MemberId) -> Result<(), Fatal<C::NodeId>> {
        let nobody = C::NodeId::default();
        let vote = self.raft.metrics().borrow().vote.clone();
        let leader = vote.leader_id().voted_for();
        let is_led = vote.is_committed() && leader != self.node_of(to);
        if !is_led || self.member_of(&nobody).is_some() {
            return Ok(());
        }
        let term = vote.leader_id().get_term() + 1;
        let nowhere = LogId::new(CommittedLeaderId::new(term, nobody.clone()), NOWHERE);
        let message = AppendEntriesRequest {
            vote: Vote::new(term, nobody),
            prev_log_id: Some(nowhere),
            entries: Vec::new(),
            leader_commit: None,
        };
        let answered = self.raft.append_entries(message).await;
        match answered {
            Ok(_) => Ok(()),
            Err(error) => error.into_fatal().map_or(Ok(()), Err),
        }
    }
}

/// Whether a leader, in a term, is another one than `me` in the term `led`.
fn follows(me: MemberId, led: u64, leader: Option<MemberId>, term: u64) -> bool {
    leader.is_some_and(|leader| leader != me || term > led)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_stays_closed_while_the_old_leader_is_named() {
        let (me, other) = (MemberId::new(1), MemberId::new(2));
        assert!(!follows(me, 7, Some(me), 7), "what was published before it stood aside");
        assert!(!follows(me, 7, None, 8), "nobody is elected yet");
        assert!(follows(me, 7, Some(other), 9));
        assert!(follows(me, 7, Some(me), 9), "it was elected again");
    }
}
