//! Assignment, the revoke barrier, resting and leaving.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::config::Mode;
use super::interface::{BarrierId, Effect, Event, LedgerRequest, Mark, Partition, RoleLoss};
use super::seat::{Assignment, Seat, Work};
use super::{Fx, Member};
use crate::time::Instant;

/// Rests after dry partitions double up to fourfold: a member that sees only a part of the ledger should not
/// send everyone through the barrier all the time.
const REST_DOUBLINGS: u32 = 2;

/// How often a rest doubles after another layout was given way to: with three layouts, two of them must be out at once.
const WAY_DOUBLINGS: u32 = 4;

/// Rests that are less than so many thresholds apart are of one series.
const DRY_SERIES: u32 = 32;

/// The longest rest, as a multiple of the shortest.
pub(super) const MAX_REST: u32 = 1 << REST_DOUBLINGS;

/// Whether a member is in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// It has not joined yet: first it looks whether another layout leads. A newcomer that joined and then looked would be handed partitions that
    /// nobody leads until it has given them back.
    Arriving,
    /// It is, or tries to be.
    Member,
    /// It goes as soon as its work has ended, or then at the latest.
    Going { by: Instant, for_good: bool },
    /// It stays out of the group until then.
    Resting { until: Instant },
    /// It has left.
    Left,
}

impl Member {
    pub(super) fn takes_part(&self) -> bool {
        self.stay == Stay::Member
    }

    pub(super) fn join(&mut self, now: Instant, effects: &mut Fx) {
        self.waits_since(now);
        effects.push(Effect::Ask(LedgerRequest::Join));
    }

    pub(super) fn waits_since(&mut self, now: Instant) {
        self.waiting = Some((now, now + self.plan.stuck_after()));
    }

    pub(super) fn assigned(&mut self, partitions: &[Partition], now: Instant) {
        if !self.takes_part() {
            return;
        }
        self.waiting = None;
        for partition in partitions {
            let dry_at = now + self.plan.grace + self.plan.dry_after();
            self.epochs += 1;
            let epoch = self.epochs;
            let Some(seat) = self.seats.get_mut(partition.get() as usize) else { continue };
            if seat.assigned.is_none() {
                seat.assigned = Some(Assignment { epoch, since: now, proved: now });
                seat.not_before = now;
                seat.mark_from = now;
                seat.dry_at = (!seat.leads()).then_some(dry_at);
            }
        }
        self.bears_with_others(now);
        self.next_beat = self.next_beat.min(now);
        self.next_inspection = self.next_inspection.min(now);
    }

    /// The ledger may have had others here since this assignment began: it is over, and another begins now. Claims are
    /// made anew, marks are read anew, and earlier owners are waited for from now on.
    pub(super) fn start_over(&mut self, partition: Partition, now: Instant) {
        self.drop_claim(partition);
        self.epochs += 1;
        let epoch = self.epochs;
        let dry_at = now + self.plan.grace + self.plan.dry_after();
        let seat = self.seat_mut(partition);
        seat.others_lease = None;
        seat.has_claimed = false;
        seat.marked = None;
        seat.dry_at = None;
        if seat.kept().is_some() {
            seat.assigned = Some(Assignment { epoch, since: now, proved: now });
            seat.mark_from = now;
            seat.dry_at = Some(dry_at);
            self.next_inspection = self.next_inspection.min(now);
        }
    }

    /// The ledger wants partitions back. In exclusive mode they are led no more from this instant on;
    /// then work ends; then they are released. In non-exclusive mode leadership lapses by time, so that the
    /// next leader can begin first. What is not known here (the topic has more partitions than was said) is
    /// released at once: the ledger waits for all of them.
    pub(super) fn revoking(
        &mut self,
        barrier: BarrierId,
        partitions: &[Partition],
        now: Instant,
        effects: &mut Fx,
    ) {
        let mut free = Vec::new();
        for partition in partitions.iter().copied() {
            if self.seats.get(partition.get() as usize).is_none() {
                free.push(partition);
                continue;
            }
            if self.plan.mode == Mode::Exclusive {
                self.end(partition, RoleLoss::Revoked, effects);
            }
            let released_by = now + self.plan.drain;
            self.drop_claim(partition);
            let seat = self.seat_mut(partition);
            if seat.work == Work::Ending && seat.assigned.is_some() {
                seat.dry_at = None;
                seat.wanted = Some((barrier, released_by));
            } else {
                free.push(partition);
            }
        }
        self.release(barrier, free, now, effects);
    }

    fn release(
        &mut self,
        barrier: BarrierId,
        partitions: Vec<Partition>,
        now: Instant,
        effects: &mut Fx,
    ) {
        if !partitions.is_empty() {
            self.waits_since(now);
            let marks = self.give_up(&partitions);
            effects.push(Effect::Ask(LedgerRequest::Release { barrier, partitions, marks }));
        }
    }

    /// Forgets assignments; what the ledger is to keep of them.
    fn give_up(&mut self, partitions: &[Partition]) -> Vec<(Partition, Mark)> {
        let known = self.seats.len() as u32;
        let known = || partitions.iter().copied().filter(move |partition| partition.get() < known);
        let marks = known().filter_map(|partition| self.last_word(partition)).collect();
        known().for_each(|partition| self.seat_mut(partition).give_up());
        marks
    }

    /// The ledger says which partitions have no broker.
    pub(super) fn unserved(&mut self, partitions: &[Partition]) {
        for (number, seat) in (0..).zip(&mut self.seats) {
            seat.is_unserved = partitions.contains(&Partition::new(number));
        }
    }

    /// They are gone, and nobody waits for anything.
    pub(super) fn lost(&mut self, partitions: &[Partition], now: Instant, effects: &mut Fx) {
        for partition in partitions.iter().copied() {
            if self.seats.get(partition.get() as usize).is_none() {
                continue;
            }
            if self.plan.mode == Mode::Exclusive {
                self.end(partition, RoleLoss::Lost, effects);
            }
            self.seat_mut(partition).give_up();
        }
        if self.takes_part() {
            self.waits_since(now);
        }
    }

    /// The application's work has ended.
    pub(super) fn drained(&mut self, partition: Partition, now: Instant, effects: &mut Fx) {
        let Some(seat) = self.seats.get_mut(partition.get() as usize) else { return };
        if seat.work == Work::Ending {
            seat.work = Work::None;
            if let Some((barrier, _)) = seat.wanted {
                self.release(barrier, vec![partition], now, effects);
            }
        }
    }

    /// Work that takes too long is not waited for. The next owner is not told that the term is over, and waits: it may not
    /// be needed, but nothing is said of work that still runs.
    pub(super) fn release_overrun(&mut self, now: Instant, effects: &mut Fx) {
        for partition in self.partitions() {
            let seat = self.seat_mut(partition);
            if let Some((barrier, _)) = seat.wanted.filter(|(_, by)| *by <= now) {
                seat.overrun();
                effects.push(Effect::Tell(Event::DrainOverran { partition }));
                self.release(barrier, vec![partition], now, effects);
            }
        }
    }

    /// Gives up everything, to rest or for good.
    pub(super) fn go(&mut self, for_good: bool, now: Instant, effects: &mut Fx) {
        match self.stay {
            Stay::Member => {
                self.waiting = None;
                for partition in self.partitions() {
                    self.end(partition, RoleLoss::Left, effects);
                    self.drop_claim(partition);
                    self.seat_mut(partition).dry_at = None;
                }
                self.stay = Stay::Going { by: now + self.plan.drain, for_good };
            }
            Stay::Going { by, .. } if for_good => self.stay = Stay::Going { by, for_good },
            Stay::Arriving | Stay::Resting { .. } if for_good => self.stay = Stay::Left,
            _ => {}
        }
    }

    /// Goes, if nothing is left to end; comes back, if it has rested.
    pub(super) fn come_and_go(&mut self, now: Instant, effects: &mut Fx) {
        match self.stay {
            Stay::Going { by, for_good } => {
                let is_over = by <= now;
                let works = |seat: &Seat| seat.work == Work::Ending;
                if !is_over && self.seats.iter().any(works) {
                    return;
                }
                for partition in self.partitions() {
                    let seat = self.seat_mut(partition);
                    if seat.work == Work::Ending {
                        seat.overrun();
                        effects.push(Effect::Tell(Event::DrainOverran { partition }));
                    }
                }
                self.waiting = None;
                let all: Vec<_> = self.partitions().collect();
                let marks = self.give_up(&all);
                effects.push(Effect::Ask(LedgerRequest::Leave { marks }));
                effects.push(Effect::Tell(Event::Left));
                self.agreeing.next_look = self.agreeing.next_look.max(now + self.plan.interval);
                self.stay = match for_good {
                    true => Stay::Left,
                    false => Stay::Resting { until: now + self.rest() },
                };
            }
            Stay::Resting { until } if until <= now => match self.stays_out_until(now) {
                Some(until) => self.stay = Stay::Resting { until },
                None => {
                    self.stay = Stay::Member;
                    self.join(now, effects);
                }
            },
            Stay::Arriving | Stay::Member | Stay::Resting { .. } | Stay::Left => {}
        }
    }

    /// It has looked for the first time, or could not: it joins, unless another layout leads.
    pub(super) fn arrive(&mut self, now: Instant, effects: &mut Fx) {
        if self.stay == Stay::Arriving {
            self.stay = match self.is_led_by_others() {
                true => Stay::Resting { until: now },
                false => Stay::Member,
            };
            self.waiting = None;
            if self.takes_part() {
                self.join(now, effects);
            }
        }
    }

    /// How long to stay out: longer with each time that partitions were dry, or that it gave way to another layout, in
    /// succession.
    fn rest(&self) -> Duration {
        let dry = self.dry_rests.0.saturating_sub(1).min(REST_DOUBLINGS);
        let gave_way = self.agreeing.gave_way.saturating_sub(1).min(WAY_DOUBLINGS);
        self.plan.rest * (1 << dry.max(gave_way))
    }

    /// Says what does not go on. A partition that is dry for this member may be wet for another: it may be
    /// out of reach of the partition, and not of the member or broker that assigns it. A ledger takes back everything or nothing. So
    /// everything is given back, and others have their chance while this one rests; but not while this one leads
    /// something, nor if nobody can publish there: one partition without a broker must not cost the others their leader.
    pub(super) fn complain(&mut self, now: Instant, effects: &mut Fx) {
        let leads = self.seats.iter().any(Seat::leads);
        let again = now + self.plan.dry_after().saturating_mul(MAX_REST);
        let mut would_help = false;
        for partition in self.partitions() {
            let seat = self.seat_mut(partition);
            if seat.dry_at.is_some_and(|at| at <= now) {
                seat.dry_at = Some(again);
                would_help |= !seat.is_unserved;
                effects.push(Effect::Tell(Event::Dry { partition }));
            }
        }
        if would_help && !leads && self.takes_part() {
            let (times, last) = self.dry_rests;
            let is_series = now < last + self.plan.threshold * DRY_SERIES;
            self.dry_rests = (if is_series { times + 1 } else { 1 }, now);
            self.go(false, now, effects);
            self.come_and_go(now, effects);
        }
        if let Some((since, at)) = self.waiting
            && at <= now
        {
            self.waiting = Some((since, now + self.plan.stuck_after()));
            effects.push(Effect::Tell(Event::BarrierStuck { since }));
        }
    }
}
