//! The coordinator of one group in the consumer protocol (KIP-848): sessions, target assignments, member epochs.
//!
//! Nobody waits for anyone to join. The coordinator computes who is to have what, and brings each member there by itself, in
//! answers to its signs of life: first it takes away what the member is not to have, and waits for the member to say that it
//! has let go; then the member is of the group's epoch, and gets what nobody else has any more. A member that does not let go in
//! time is removed. What a member does not say to have, it does not have: it has one sign of life under way at a time, and
//! knows of no assignment whose answer it did not get. Commits are taken of members in their present epoch, and extend no session.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::neli::{Mark, Partition, Renewed};
use crate::time::Instant;

use super::group::{Division, Replies};
use super::marks::Marks;
use super::protocol::{ClientId, HeartbeatReply, Reply};

/// A member as the coordinator knows it.
#[derive(Clone, Debug)]
struct Seat {
    session: Duration,
    barrier: Duration,
    until: Instant,
    /// The epoch that it is of, and the one before, whose answer may have been lost.
    epoch: u64,
    before: u64,
    assigned: BTreeSet<Partition>,
    /// What it is to let go of, until then.
    revoking: BTreeSet<Partition>,
    revoked_by: Option<Instant>,
}

/// One group.
#[derive(Clone, Debug, Default)]
pub(super) struct EpochGroup {
    seats: BTreeMap<ClientId, Seat>,
    epoch: u64,
    target: BTreeMap<ClientId, BTreeSet<Partition>>,
    marks: Marks,
}

/// What a member says with a sign of life.
pub(super) struct Sign {
    pub(super) attempt: u32,
    /// The epoch that it was told last; 0 if it joins.
    pub(super) epoch: u64,
    pub(super) session: Duration,
    pub(super) barrier: Duration,
    pub(super) owned: Vec<Partition>,
}

impl EpochGroup {
    pub(super) fn sign(
        &mut self,
        id: ClientId,
        sign: Sign,
        (now, division): (Instant, Division),
        replies: &mut Replies,
    ) {
        let Sign { attempt, epoch, session, barrier, owned } = sign;
        if epoch == 0 && !self.seats.contains_key(&id) {
            let (assigned, revoking) = (BTreeSet::new(), BTreeSet::new());
            let until = now + session;
            let (before, revoked_by) = (0, None);
            let seat =
                Seat { session, barrier, until, epoch, before, assigned, revoking, revoked_by };
            self.seats.insert(id, seat);
            self.change(division);
        }
        let is_known = |seat: &&mut Seat| epoch == seat.epoch || epoch == seat.before;
        let Some(seat) = self.seats.get_mut(&id).filter(is_known) else {
            replies.push((id, Reply::Beat(HeartbeatReply::Unknown)));
            return;
        };
        seat.until = now + seat.session;
        self.reconcile(id, &owned.into_iter().collect(), now);
        if let Some(seat) = self.seats.get(&id) {
            let assigned = seat.assigned.iter().copied().collect();
            replies.push((id, Reply::Reconciled { attempt, epoch: seat.epoch, assigned }));
        }
    }

    /// Brings a member as near to its target as others allow.
    fn reconcile(&mut self, id: ClientId, owned: &BTreeSet<Partition>, now: Instant) {
        let target = self.target.get(&id).cloned().unwrap_or_default();
        let held_by_others: BTreeSet<_> = self
            .seats
            .iter()
            .filter(|(other, _)| **other != id)
            .flat_map(|(_, seat)| seat.assigned.union(&seat.revoking).copied().collect::<Vec<_>>())
            .collect();
        let group_epoch = self.epoch;
        let Some(seat) = self.seats.get_mut(&id) else { return };
        if seat.revoking.iter().any(|partition| owned.contains(partition)) {
            return;
        }
        seat.revoking.clear();
        seat.revoked_by = None;
        let over: BTreeSet<_> = seat.assigned.difference(&target).copied().collect();
        seat.assigned.retain(|partition| target.contains(partition));
        if over.iter().any(|partition| owned.contains(partition)) {
            seat.revoking = over;
            seat.revoked_by = Some(now + seat.barrier);
            return;
        }
        if seat.epoch != group_epoch {
            (seat.before, seat.epoch) = (seat.epoch, group_epoch);
        }
        let free = target.into_iter().filter(|partition| !held_by_others.contains(partition));
        seat.assigned.extend(free);
    }

    /// Who is in the group has changed: another target, and another epoch.
    fn change(&mut self, division: Division) {
        self.epoch += 1;
        let before: BTreeMap<_, _> = self
            .seats
            .keys()
            .map(|id| (*id, self.target.get(id).cloned().unwrap_or_default()))
            .collect();
        self.target = division.assignor.divide(division.partitions, &before);
    }

    pub(super) fn commit(
        &mut self,
        id: ClientId,
        epoch: u64,
        marks: &[(Partition, Mark)],
    ) -> Renewed {
        match self.seats.get(&id) {
            None => Renewed::Refused,
            // It has not heard of its epoch yet, or speaks of a former one.
            Some(seat) if seat.epoch != epoch => Renewed::Failed,
            Some(_) => {
                self.marks.keep(marks);
                Renewed::Accepted
            }
        }
    }

    pub(super) fn marks(&self) -> Vec<(Partition, Mark)> {
        self.marks.all()
    }

    pub(super) fn show_old_marks(&mut self, is_old: bool) {
        self.marks.show_old(is_old);
    }

    pub(super) fn leave(&mut self, id: ClientId, division: Division) {
        if self.seats.remove(&id).is_some() {
            self.change(division);
        }
    }

    /// Removes members that are silent, and members that do not let go.
    pub(super) fn advance(&mut self, now: Instant, division: Division) {
        let before = self.seats.len();
        let lets_go = |seat: &Seat| seat.revoked_by.is_none_or(|by| now < by);
        self.seats.retain(|_, seat| now < seat.until && lets_go(seat));
        if self.seats.len() < before {
            self.change(division);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let due = |seat: &Seat| seat.revoked_by.into_iter().chain([seat.until]).min();
        self.seats.values().filter_map(due).min()
    }

    /// The coordinator starts again, with what was on its disk: everyone has a whole session from now on.
    pub(super) fn restart(&mut self, now: Instant) {
        for seat in self.seats.values_mut() {
            seat.until = now + seat.session;
            seat.revoked_by = seat.revoked_by.map(|_| now + seat.barrier);
        }
    }

    /// To whom a partition belongs.
    pub(super) fn owner(&self, partition: Partition) -> Option<ClientId> {
        let holds =
            |seat: &Seat| seat.assigned.contains(&partition) || seat.revoking.contains(&partition);
        self.seats.iter().find(|(_, seat)| holds(seat)).map(|(id, _)| *id)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }
}
