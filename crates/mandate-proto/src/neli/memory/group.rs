//! The coordinator of one group: sessions, the join barrier, generations.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::neli::{Mark, Partition, Renewed};
use crate::time::Instant;

use super::assignment::AssignmentRule;
use super::marks::Marks;
use super::protocol::{ClientId, HeartbeatReply, InstanceId, Reply};

/// A member as the coordinator knows it.
#[derive(Clone, Debug)]
struct Seat {
    session: Duration,
    barrier: Duration,
    instance: Option<InstanceId>,
    /// Without a sign of life it is removed then; not while it waits at the barrier.
    until: Instant,
    /// What it has not said to have released.
    owned: BTreeSet<Partition>,
    /// What it was told last, with the attempt that it was an answer to.
    assigned: BTreeSet<Partition>,
    attempt: u32,
    /// It waits at the barrier.
    joining: bool,
    /// It was told.
    answered: bool,
    /// The generation that it was last a member of. Who was removed and comes back under the same name
    /// before the barrier goes down is none of the present one's.
    generation: u64,
}

/// One group.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    seats: BTreeMap<ClientId, Seat>,
    generation: u64,
    /// The barrier is up, until then at the latest.
    barrier: Option<Instant>,
    /// Clients whose static names others have taken. Kafka tells them apart by ids that it gives itself.
    replaced: BTreeSet<ClientId>,
    marks: Marks,
}

/// What a client joins with.
pub(super) struct Joining {
    pub(super) attempt: u32,
    pub(super) session: Duration,
    pub(super) barrier: Duration,
    pub(super) is_member: bool,
    pub(super) owned: Vec<Partition>,
    pub(super) instance: Option<InstanceId>,
}

/// Where answers go.
pub(super) type Replies = Vec<(ClientId, Reply)>;

/// How a group's partitions are divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Division {
    pub(super) assignor: AssignmentRule,
    pub(super) partitions: u32,
}

impl Group {
    pub(super) fn join(
        &mut self,
        id: ClientId,
        joining: Joining,
        (now, division): (Instant, Division),
        replies: &mut Replies,
    ) {
        let Joining { attempt, session, barrier, is_member, owned, instance } = joining;
        if is_member && !self.seats.contains_key(&id) {
            // Others have had what it thinks it has.
            replies.push((id, Reply::NotAMember { attempt }));
            return;
        }
        if self.replaced.contains(&id) {
            // Held up on its way, from one whose name another has taken since: it has to come back as another.
            return;
        }
        let until = now + session;
        if self.replace_instance(id, instance) && self.barrier.is_none() {
            // A restart under a static name disturbs nobody, and takes effect at once.
            if let Some(seat) = self.seats.get_mut(&id) {
                seat.attempt = attempt;
                seat.answered = true;
                seat.until = until;
                replies.push((id, joined(seat, self.generation)));
            }
            return;
        }
        let known = self.seats.get(&id);
        if let Some(seat) = known {
            // A repetition, because the answer was lost or has not been given yet; or one that was held
            // up, and speaks of what was owned long ago.
            let is_repeated = attempt == seat.attempt && (seat.joining || seat.answered);
            if is_repeated && seat.answered {
                replies.push((id, joined(seat, self.generation)));
            }
            if is_repeated || attempt < seat.attempt {
                return;
            }
        }
        // A stranger owns nothing, whatever it says.
        let held = known.map(|seat| seat.held()).unwrap_or_default();
        let owned = owned.into_iter().filter(|partition| held.contains(partition)).collect();
        let assigned = BTreeSet::new();
        let seat = Seat {
            session,
            barrier,
            instance,
            until,
            owned,
            assigned,
            attempt,
            joining: true,
            answered: false,
            generation: known.map_or(0, |seat| seat.generation),
        };
        self.seats.insert(id, seat);
        self.prepare(now);
        self.complete_if_all_are_there(now, division, replies);
    }

    /// Whether the client takes over the seat of an earlier process with its static name.
    fn replace_instance(&mut self, id: ClientId, instance: Option<InstanceId>) -> bool {
        let same = |seat: &Seat| instance.is_some() && seat.instance == instance;
        let before = self.seats.iter().find(|(other, seat)| **other != id && same(seat));
        let Some(before) = before.map(|(before, _)| *before) else { return false };
        if let Some(mut seat) = self.seats.remove(&before) {
            seat.assigned = seat.held();
            seat.attempt = 0;
            seat.answered = false;
            self.seats.insert(id, seat);
            self.replaced.insert(before);
        }
        true
    }

    /// The barrier goes up, unless it is.
    fn prepare(&mut self, now: Instant) {
        let longest = self.seats.values().map(|seat| seat.barrier).max().unwrap_or_default();
        self.barrier.get_or_insert(now + longest);
    }

    fn complete_if_all_are_there(
        &mut self,
        now: Instant,
        division: Division,
        replies: &mut Replies,
    ) {
        if self.seats.is_empty() {
            // Kafka forgets an empty group sooner or later, and its generation with it; what was committed is kept for longer.
            let Group { marks, .. } = core::mem::take(self);
            *self = Group { marks, ..Group::default() };
        }
        if self.barrier.is_some() && self.seats.values().all(|seat| seat.joining) {
            self.complete(now, division, replies);
        }
    }

    /// The barrier goes down, and partitions are divided among those who are there.
    fn complete(&mut self, now: Instant, division: Division, replies: &mut Replies) {
        self.seats.retain(|_, seat| seat.joining);
        self.barrier = None;
        self.generation += 1;
        let owned: BTreeMap<_, _> =
            self.seats.iter().map(|(id, seat)| (*id, seat.owned.clone())).collect();
        let mut shares = division.assignor.divide(division.partitions, &owned);
        for (id, seat) in &mut self.seats {
            // What another has not released yet has to wait for the next barrier.
            let by_others = |partition: &Partition| {
                owned.iter().any(|(other, had)| other != id && had.contains(partition))
            };
            seat.assigned = shares.remove(id).unwrap_or_default();
            seat.assigned.retain(|partition| !by_others(partition));
            seat.joining = false;
            seat.answered = true;
            seat.generation = self.generation;
            seat.until = now + seat.session;
            replies.push((*id, joined(seat, self.generation)));
        }
    }

    /// A sign of life.
    pub(super) fn heartbeat(
        &mut self,
        id: ClientId,
        generation: u64,
        now: Instant,
    ) -> HeartbeatReply {
        let is_up = self.barrier.is_some();
        match self.alive(id, generation, Some(now)) {
            None => HeartbeatReply::Unknown,
            Some(seat) if is_up && !seat.joining => HeartbeatReply::Rebalancing,
            Some(_) => HeartbeatReply::Fine,
        }
    }

    /// A renewal, or last words: of a member of this generation, or of nobody. It is a sign of life, too, if it says when. (On Kafka
    /// it is none in a transaction.) Whose the partitions are is not asked, as on Kafka.
    pub(super) fn commit(
        &mut self,
        id: ClientId,
        generation: u64,
        marks: &[(Partition, Mark)],
        sign_at: Option<Instant>,
    ) -> Renewed {
        match self.alive(id, generation, sign_at) {
            Some(_) => {
                self.marks.keep(marks);
                Renewed::Accepted
            }
            None => Renewed::Refused,
        }
    }

    /// What was committed last, of every partition. Anyone may ask.
    pub(super) fn marks(&self) -> Vec<(Partition, Mark)> {
        self.marks.all()
    }

    pub(super) fn show_old_marks(&mut self, is_old: bool) {
        self.marks.show_old(is_old);
    }

    fn alive(&mut self, id: ClientId, generation: u64, sign_at: Option<Instant>) -> Option<&Seat> {
        let current = self.generation;
        let seat = self.seats.get_mut(&id)?;
        if generation != current || seat.generation != current {
            return None;
        }
        if let Some(now) = sign_at {
            seat.until = now + seat.session;
        }
        Some(seat)
    }

    pub(super) fn leave(
        &mut self,
        id: ClientId,
        (now, division): (Instant, Division),
        replies: &mut Replies,
    ) {
        if self.seats.remove(&id).is_some() {
            self.prepare(now);
            self.complete_if_all_are_there(now, division, replies);
        }
    }

    /// Removes members that are silent, and those for which the barrier has waited in vain.
    pub(super) fn advance(&mut self, now: Instant, division: Division, replies: &mut Replies) {
        let before = self.seats.len();
        self.seats.retain(|_, seat| seat.joining || now < seat.until);
        if self.seats.len() < before {
            self.prepare(now);
        }
        self.complete_if_all_are_there(now, division, replies);
        if self.barrier.is_some_and(|until| until <= now) {
            self.seats.retain(|_, seat| seat.joining);
            self.complete_if_all_are_there(now, division, replies);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let silent = self.seats.values().filter(|seat| !seat.joining).map(|seat| seat.until);
        silent.chain(self.barrier).min()
    }

    /// The coordinator starts again, with what was on its disk: everyone has a whole session from now on,
    /// and who waited at the barrier has to ask again.
    pub(super) fn restart(&mut self, now: Instant) {
        for seat in self.seats.values_mut() {
            seat.until = now + seat.session;
            seat.joining = false;
        }
        if let Some(barrier) = &mut self.barrier {
            let longest = self.seats.values().map(|seat| seat.barrier).max().unwrap_or_default();
            *barrier = now + longest;
        }
    }

    /// To whom a partition belongs.
    pub(super) fn owner(&self, partition: Partition) -> Option<ClientId> {
        let holds =
            |seat: &Seat| seat.owned.contains(&partition) || seat.assigned.contains(&partition);
        self.seats.iter().find(|(_, seat)| holds(seat)).map(|(id, _)| *id)
    }

    /// Whether it waits at the barrier.
    pub(super) fn is_joining(&self, id: ClientId) -> bool {
        self.seats.get(&id).is_some_and(|seat| seat.joining)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Seat {
    /// What it may still hold: what it was told last, and what it had before and has not released.
    fn held(&self) -> BTreeSet<Partition> {
        self.owned.union(&self.assigned).copied().collect()
    }
}

fn joined(seat: &Seat, generation: u64) -> Reply {
    let assigned = seat.assigned.iter().copied().collect();
    Reply::Joined { attempt: seat.attempt, generation, assigned }
}

#[cfg(test)]
mod tests {
    use crate::identity::Incarnation;

    use super::*;

    /// As on Kafka, where an id that the coordinator does not know is refused. Otherwise a client that was removed, while another
    /// had its partitions, would go on as if nothing had been.
    #[test]
    fn whoever_was_removed_has_to_come_back_as_another() {
        let (mut group, mut replies) = (Group::default(), Vec::new());
        let division = Division { assignor: AssignmentRule::CooperativeSticky, partitions: 1 };
        let at = |millis| Instant::ORIGIN + Duration::from_millis(millis);
        let client = |session| ClientId { life: Incarnation::new(1), session };
        let joining = |attempt, is_member| Joining {
            attempt,
            session: Duration::from_millis(100),
            barrier: Duration::from_millis(300),
            is_member,
            owned: Vec::new(),
            instance: None,
        };
        group.join(client(0), joining(1, false), (at(0), division), &mut replies);
        assert!(matches!(replies.pop(), Some((_, Reply::Joined { .. }))));
        group.advance(at(101), division, &mut replies);
        group.join(client(0), joining(2, true), (at(102), division), &mut replies);
        assert_eq!(replies.pop(), Some((client(0), Reply::NotAMember { attempt: 2 })));
        group.join(client(1), joining(3, false), (at(103), division), &mut replies);
        assert!(matches!(replies.pop(), Some((_, Reply::Joined { .. }))));
    }
}
