//! A term that a member claims or holds.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::{ClaimId, ConfigId, Roster};
use crate::identity::{Incarnation, MemberId, Term};
use crate::time::Instant;

/// Claims of which an answer still counts. A claim is repeated at most 32 times a lease, so older
/// ones would renew nothing.
pub const SENDS: usize = 64;

/// Whose promises count.
#[derive(Clone, Copy)]
pub(super) struct Electorate<'a> {
    pub(super) roster: &'a Roster,
    /// Those of members that do not vote, too: wrong, and done on purpose only.
    pub(super) is_open: bool,
}

impl Electorate<'_> {
    fn counts(&self, member: MemberId) -> bool {
        self.is_open || self.roster.has_voter(member)
    }

    /// How many are needed.
    pub(super) fn quorum(&self) -> usize {
        self.roster.quorum()
    }
}

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
    /// Those that have promised by the roster that we go by now, and so have it on disk.
    follows: BTreeSet<MemberId>,
    /// In which incarnation members joined that learn, as they have said.
    joined: BTreeMap<MemberId, Incarnation>,
    /// Those that have promised this term to another.
    refused: BTreeSet<MemberId>,
    /// When the roster was changed last.
    changed: Option<Instant>,
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
            follows: BTreeSet::new(),
            joined: BTreeMap::new(),
            refused: BTreeSet::new(),
            changed: None,
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

    /// Counts an answer, from when its question was sent; false if we did not ask that. `config` is what we go by now.
    pub(super) fn answer(&mut self, from: MemberId, id: ClaimId, config: ConfigId) -> bool {
        let sent = self.sends.iter().find(|(sent, _)| *sent == id);
        let Some((_, sent)) = sent.copied() else { return false };
        let answered = self.answered.entry(from).or_insert(sent);
        *answered = (*answered).max(sent);
        if id.config == config {
            self.follows.insert(from);
        }
        true
    }

    /// The roster has changed: nobody has promised by the new one yet.
    pub(super) fn roster_changed(&mut self, now: Instant) {
        self.follows.clear();
        self.changed = Some(now);
    }

    /// Whether it matters who refuses: a quorum is missing, or a change waits for one.
    pub(super) fn counts_refusals(&self) -> bool {
        !self.holds || self.changed.is_some()
    }

    /// Since when the roster is what it is, if a voter can never follow by it, since it has promised this term to another.
    pub(super) fn astray_since(&self, roster: &Roster) -> Option<Instant> {
        let refuses = |id: &MemberId| roster.has_voter(*id) && !self.follows.contains(id);
        self.changed.filter(|_| self.refused.iter().any(refuses))
    }

    /// A member that learns has answered: it joined in that incarnation. What another incarnation under its id has promised binds
    /// that one only.
    pub(super) fn learns(&mut self, from: MemberId, joined: Incarnation) {
        if self.joined.insert(from, joined).is_some_and(|before| before != joined) {
            self.answered.remove(&from);
            self.follows.remove(&from);
        }
    }

    /// In which incarnation a member joined that follows by the present roster.
    pub(super) fn learnt_by(&self, member: MemberId) -> Option<Incarnation> {
        self.joined.get(&member).copied().filter(|_| self.is_followed_by(member))
    }

    /// Whether a member has promised by the present roster.
    pub(super) fn is_followed_by(&self, member: MemberId) -> bool {
        self.follows.contains(&member)
    }

    /// How many other voters have.
    pub(super) fn followers(&self, electorate: Electorate<'_>) -> usize {
        self.follows.iter().filter(|id| electorate.counts(**id)).count()
    }

    /// Notes that a voter has promised this term to another: how many have.
    pub(super) fn refused(&mut self, by: MemberId, roster: &Roster) -> usize {
        self.refused.insert(by);
        self.refused.iter().filter(|id| roster.has_voter(**id)).count()
    }

    /// How many other voters have promised.
    pub(super) fn promises(&self, electorate: Electorate<'_>) -> usize {
        self.answered.keys().filter(|id| electorate.counts(**id)).count()
    }

    /// Until when a quorum of a roster is bound, of which this member is one, where each grants `sure` from when we
    /// sent what it answered. Our own promise binds for as long as we claim; where it is all that there is, it counts from
    /// the last claim, too, since what acts on it may outlive us, and our next incarnation waits for a lease.
    pub(super) fn bound_until(
        &self,
        electorate: Electorate<'_>,
        sure: Duration,
    ) -> Option<Instant> {
        let others = electorate.quorum() - 1;
        let Some(last) = others.checked_sub(1) else {
            return self.sends.back().map(|(_, sent)| *sent + sure);
        };
        let answered = self.answered.iter().filter(|(id, _)| electorate.counts(**id));
        let mut sent: Vec<_> = answered.map(|(_, sent)| *sent).collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        sent.get(last).map(|sent| *sent + sure)
    }
}
