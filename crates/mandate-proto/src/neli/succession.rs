//! What a member has to know of a partition's earlier owners, on a ledger that fences.
//!
//! An earlier owner may lead until its threshold is over, counted from its last accepted renewal. That renewal was accepted before
//! the ledger replaced its sender, so before the next owner heard of its assignment: a threshold after that, all earlier
//! owners have ended. This rests on fencing and on the rates of clocks, and on nothing that the ledger does or does not wait for.
//!
//! A wait with every change of hands would be a pity where the former owner is alive and says that it has ended. It leaves a
//! [mark](Mark::Over) with the term that is over. Terms are places in a log, so a member can tell whether anyone was between: if
//! the term just before its own is over, nobody else can lead. A mark that says so stays true, so that it does no
//! harm to read an old one, or one that a late commit of a third member has put in the place of a newer; rejected was
//! therefore to believe in a mark because it is the last. A third party on the partition (another group, a claim that came
//! to nothing) only makes the next leader wait.
//!
//! Members of a group need not have the same threshold: renewals leave their own in the mark. That alone has to be read
//! fresh, and only matters while thresholds are being changed.

use alloc::vec::Vec;
use core::time::Duration;

use super::config::more;
use super::interface::{
    Effect, Event, LedgerRequest, Mark, Partition, RequestId, RoleLoss, Undertaking,
};
use super::seat::{Assignment, Seat};
use super::{Fx, Member};
use crate::identity::Term;
use crate::time::Instant;

/// Logs count no further (Kafka's offsets are signed): a mark beyond that is no place in one.
const HIGHEST_PLACE: u64 = i64::MAX as u64;

/// An inspection under way.
#[derive(Clone, Debug)]
pub(super) struct Inspection {
    id: RequestId,
    pub(super) gives_up: Instant,
    /// The partitions, and the assignments in which it was asked.
    covers: Vec<(Partition, u64)>,
    /// The claims that had been confirmed by then, and whether marks had been left.
    confirmed: (Vec<(Partition, Term)>, bool),
}

impl Member {
    /// Of which partitions the ledger has not said yet what it keeps.
    fn unknown(&self) -> impl Iterator<Item = (Partition, u64)> {
        self.each()
            .filter(|(_, seat)| seat.others_lease.is_none())
            .filter_map(|(partition, seat)| Some((partition, seat.kept()?.epoch)))
    }

    pub(super) fn is_inspection_due(&self) -> Option<Instant> {
        let wanted = self.plan.marks() && self.inspection.is_none();
        let is_unknown = self.takes_part() && self.unknown().next().is_some();
        let unknown = is_unknown.then_some(self.next_inspection);
        [unknown, self.is_look_due()].into_iter().flatten().min().filter(|_| wanted)
    }

    pub(super) fn inspect(&mut self, now: Instant, effects: &mut Fx) {
        let covers: Vec<_> = self.unknown().filter(|_| self.takes_part()).collect();
        let confirmed = (self.confirmed().collect(), self.is_marked());
        let partitions = covers.iter().map(|(partition, _)| *partition).collect();
        let id = self.next_id();
        self.next_inspection = now + self.plan.interval;
        self.agreeing.next_look = now + self.plan.interval;
        // An answer does not grow old, unlike that to a renewal.
        let gives_up = now + self.plan.grants.session / 2;
        self.inspection = Some(Inspection { id, gives_up, covers, confirmed });
        effects.push(Effect::Ask(LedgerRequest::Inspect { id, partitions }));
    }

    pub(super) fn inspected(
        &mut self,
        id: RequestId,
        marks: Option<&[(Partition, Mark)]>,
        now: Instant,
        effects: &mut Fx,
    ) {
        let Some(inspection) = self.inspection.take_if(|inspection| inspection.id == id) else {
            return;
        };
        let Some(marks) = marks else { return self.inspection_failed(false, now, effects) };
        self.inspect_failures = 0;
        for (partition, epoch) in inspection.covers {
            let kept = self.seat_mut(partition).kept();
            let Some(assignment) = kept.filter(|assignment| assignment.epoch == epoch) else {
                continue;
            };
            let mark = marks.iter().find(|(of, _)| *of == partition).map(|(_, mark)| *mark);
            let (over, floor, lease) = match mark {
                Some(Mark::Held { term, lease, .. }) => (Term::NONE, term, lease),
                Some(Mark::Over { term }) => (term, term, Duration::ZERO),
                None => (Term::NONE, Term::NONE, Duration::ZERO),
            };
            let wait = self.grace_after(lease) + self.plan.dry_after();
            let mark_from = self.mark_from(mark, assignment.since);
            let seat = self.seat_mut(partition);
            seat.over = seat.over.max(over);
            seat.others_lease = Some(lease);
            seat.mark_from = mark_from;
            seat.dry_at = seat.dry_at.map(|at| at.max(assignment.since + wait));
            self.keep_above(partition, floor, now, effects);
        }
        self.looked(marks, inspection.confirmed, now, effects);
        // What was assigned meanwhile is asked for at once.
        self.next_inspection = now;
        self.arrive(now, effects);
    }

    /// Nobody leads under a term that is not above one that the ledger has kept a mark of: the partition has lost its end, or was
    /// made anew.
    fn keep_above(&mut self, partition: Partition, floor: Term, now: Instant, effects: &mut Fx) {
        if floor.get() > HIGHEST_PLACE {
            return;
        }
        let pause = self.plan.threshold;
        let seat = self.seat_mut(partition);
        seat.highest = seat.highest.max(floor);
        if let Some(to) = seat.claim.filter(|claim| *claim < floor) {
            self.end(partition, RoleLoss::Fenced, effects);
            let seat = self.seat_mut(partition);
            seat.claim = None;
            seat.not_before = now + pause;
            effects.push(Effect::Tell(Event::WentBack { partition, from: floor, to }));
        }
    }

    pub(super) fn give_inspection_up(&mut self, now: Instant, effects: &mut Fx) {
        if let Some(given_up) = self.inspection.take_if(|inspection| inspection.gives_up <= now) {
            effects.push(Effect::Abandon { id: given_up.id });
            self.inspection_failed(true, now, effects);
        }
    }

    fn inspection_failed(&mut self, unknown: bool, now: Instant, effects: &mut Fx) {
        self.inspect_failures = self.inspect_failures.saturating_add(1);
        let (undertaking, times) = (Undertaking::Inspecting, self.inspect_failures);
        effects.push(Effect::Tell(Event::Failed { undertaking, times, unknown }));
        self.arrive(now, effects);
    }

    /// From when on no earlier owner leads; `None` if that cannot be said yet.
    pub(super) fn alone_from(&self, seat: &Seat, assignment: Assignment) -> Option<Instant> {
        let Assignment { since, .. } = assignment;
        if !self.plan.renews() {
            return Some(since + self.plan.grace);
        }
        if seat.claim.is_some_and(|claim| seat.follows(claim)) {
            return Some(since);
        }
        Some(since + self.grace_after(seat.others_lease?))
    }

    /// How long to wait for one that counts on a partition for this long, by its own clock.
    pub(super) fn grace_after(&self, lease: Duration) -> Duration {
        let allowance = self.plan.allowance_per_mille;
        self.plan.grace.max(more(more(lease, allowance), allowance))
    }

    /// What renewals leave for the next owner: also what earlier owners may count on, for as long as that is not over.
    pub(super) fn lease(&self, seat: &Seat) -> Duration {
        match seat.leads() {
            true => self.plan.threshold,
            false => self.plan.threshold.max(seat.others_lease.unwrap_or_default()),
        }
    }

    /// It leads this partition no more, and gives its claim up. One that was never led under is over as well, if it follows
    /// one that is. (If it does not, time alone does not tell: a member that was replaced and has not heard of it claims
    /// behind its successor.)
    pub(super) fn drop_claim(&mut self, partition: Partition) {
        let seat = self.seat_mut(partition);
        if let Some(claim) = seat.claim.take().filter(|claim| seat.follows(*claim)) {
            seat.over = seat.over.max(claim);
        }
    }

    /// What the ledger is to keep of a partition that is given back. Nothing, if there is a claim that may come behind one
    /// that is not over.
    pub(super) fn last_word(&self, partition: Partition) -> Option<(Partition, Mark)> {
        let seat = &self.seats[partition.get() as usize];
        let is_all_over = self.plan.renews() && seat.has_claimed && seat.over == seat.highest;
        is_all_over.then_some((partition, Mark::Over { term: seat.over }))
    }
}
