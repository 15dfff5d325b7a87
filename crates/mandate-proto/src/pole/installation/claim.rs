//! A term that a member claims or holds.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::ClaimId;
use crate::identity::{MemberId, Term};
use crate::time::Instant;

/// Claims of which an answer still counts. A claim is repeated at most 32 times a lease, so older
/// ones would renew nothing.
pub const SENDS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) term: Term,
    pub(super) began: Instant,
    /// When the write that goes before it was durable, so that it was sent.
    pub(super) sent_since: Option<Instant>,
    pub(super) holds: bool,
    /// When the last claims were sent, by name.
    sends: VecDeque<(ClaimId, Instant)>,
    /// For each member that promised, when what it last answered was sent.
    answered: BTreeMap<MemberId, Instant>,
    /// Those that have promised this term to another.
    refused: BTreeSet<MemberId>,
    /// When to claim again.
    pub(super) next: Instant,
}

impl Claim {
    pub(super) fn new(term: Term, is_sent: bool, now: Instant) -> Self {
        Claim {
            term,
            began: now,
            sent_since: is_sent.then_some(now),
            holds: false,
            sends: VecDeque::new(),
            answered: BTreeMap::new(),
            refused: BTreeSet::new(),
            next: now,
        }
    }

    pub(super) fn sent(&mut self, id: ClaimId, now: Instant, next: Instant) {
        self.sends.push_back((id, now));
        if self.sends.len() > SENDS {
            self.sends.pop_front();
        }
        self.next = next;
    }

    /// Counts an answer, from when its question was sent; false if we did not ask that.
    pub(super) fn answer(&mut self, from: MemberId, id: ClaimId) -> bool {
        let sent = self.sends.iter().find(|(sent, _)| *sent == id);
        let Some((_, sent)) = sent.copied() else { return false };
        let answered = self.answered.entry(from).or_insert(sent);
        *answered = (*answered).max(sent);
        true
    }

    /// Notes that a member has promised this term to another: how many have.
    pub(super) fn refused(&mut self, by: MemberId) -> usize {
        self.refused.insert(by);
        self.refused.len()
    }

    /// How many others have promised.
    pub(super) fn promises(&self) -> usize {
        self.answered.len()
    }

    /// Whether this member has.
    pub(super) fn has_promise_of(&self, member: MemberId) -> bool {
        self.answered.contains_key(&member)
    }

    /// Until when `others` other members are bound that grant `sure` each, reckoned from when we
    /// sent what they answered. Our own promise binds for as long as we claim; where it is all that there is, it counts from
    /// the last claim, too, since what acts on it may outlive us, and our next incarnation waits for a lease.
    pub(super) fn bound_until(&self, others: usize, sure: Duration) -> Option<Instant> {
        let Some(last) = others.checked_sub(1) else {
            return self.sends.back().map(|(_, sent)| *sent + sure);
        };
        let mut sent: Vec<_> = self.answered.values().copied().collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        sent.get(last).map(|sent| *sent + sure)
    }
}
