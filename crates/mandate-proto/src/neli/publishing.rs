//! Beats and claims.
//!
//! In non-exclusive mode everyone beats on every partition, as the paper has it: a member that is assigned one
//! then finds it wet. In exclusive mode on a ledger that fences, renewals are all the proof there is, and
//! nothing is published but claims. On one that does not, each beats on what is assigned to it.

use super::config::Mode;
use super::interface::{
    Effect, Event, LedgerRecord, LedgerRequest, PROTOCOL, Partition, PublishOutcome, RecordKind,
    RequestId, Undertaking,
};
use super::seat::Flight;
use super::{Fx, Member};
use crate::identity::Term;
use crate::time::Instant;
use crate::value::Value;

/// Pauses between claims that fail double up to eightfold.
const PAUSE_DOUBLINGS: u32 = 3;

impl Member {
    pub(super) fn is_beat_due(&self) -> Option<Instant> {
        let beats = match self.plan.mode {
            Mode::NonExclusive => true,
            Mode::Exclusive => {
                !self.plan.renews() && self.seats.iter().any(|seat| seat.kept().is_some())
            }
        };
        (beats && self.takes_part()).then_some(self.next_beat)
    }

    pub(super) fn beat(&mut self, now: Instant, effects: &mut Fx) {
        self.next_beat = now + self.plan.interval;
        for partition in self.partitions() {
            let seat = self.seat_mut(partition);
            let wanted = seat.kept().is_some() || self.plan.mode == Mode::NonExclusive;
            if wanted && self.seat_mut(partition).flight.is_none() {
                self.publish(partition, RecordKind::Beat, now, effects);
            }
        }
    }

    /// When the next claim on a partition is due, if one is wanted.
    pub(super) fn is_claim_due(&self, partition: Partition) -> Option<Instant> {
        let seat = &self.seats[partition.get() as usize];
        let wanted = self.plan.mode == Mode::Exclusive
            && self.takes_part()
            && seat.kept().is_some()
            && seat.claim.is_none()
            && seat.flight.is_none();
        wanted.then_some(seat.not_before)
    }

    pub(super) fn claim_due(&mut self, now: Instant, effects: &mut Fx) {
        for partition in self.partitions() {
            if self.is_claim_due(partition).is_some_and(|due| due <= now) {
                let value = self.value.clone();
                self.publish(partition, RecordKind::Claim { value }, now, effects);
            }
        }
    }

    fn publish(&mut self, partition: Partition, kind: RecordKind, now: Instant, effects: &mut Fx) {
        let id = self.next_id();
        let record = LedgerRecord {
            protocol: PROTOCOL,
            member: self.plan.me,
            life: self.incarnation,
            sent_nanos: now.as_nanos(),
            kind: kind.clone(),
            agreement: self.plan.agreement(),
        };
        let gives_up = now + self.plan.patience();
        let seat = self.seat_mut(partition);
        let epoch = seat.kept().map(|assignment| assignment.epoch);
        seat.flight = Some(Flight { id, kind, sent: now, epoch, gives_up });
        effects.push(Effect::Ask(LedgerRequest::Publish { id, partition, record }));
    }

    pub(super) fn published(
        &mut self,
        id: RequestId,
        outcome: PublishOutcome,
        now: Instant,
        effects: &mut Fx,
    ) {
        let landed = self.partitions().into_iter().find_map(|partition| {
            let flight = self.seat_mut(partition).flight.take_if(|flight| flight.id == id)?;
            Some((partition, flight))
        });
        let Some((partition, flight)) = landed else { return };
        match outcome {
            PublishOutcome::Appended { offset, stamp } => {
                self.publish_failures = 0;
                self.seat_mut(partition).is_unserved = false;
                let allowance = self.plan.allowance_per_mille;
                self.seat_mut(partition).clock.read(stamp, flight.sent, now, allowance);
                if let RecordKind::Claim { value } = flight.kind {
                    self.claimed(partition, (flight.epoch, value), offset, now, effects);
                }
            }
            PublishOutcome::Failed | PublishOutcome::Unknown => {
                self.publish_failed(partition, outcome == PublishOutcome::Unknown, now, effects);
            }
        }
    }

    /// A claim stands on the ledger. It gives a term once it is confirmed; if the assignment in which it
    /// was made is over, it gives nothing.
    fn claimed(
        &mut self,
        partition: Partition,
        (of, value): (Option<u64>, Option<Value>),
        offset: u64,
        now: Instant,
        effects: &mut Fx,
    ) {
        let (pause, takes_part) = (self.plan.threshold, self.takes_part());
        let seat = self.seat_mut(partition);
        let epoch = seat.kept().map(|assignment| assignment.epoch);
        let is_same = takes_part && epoch.is_some() && epoch == of;
        // Offset 0 is a term, too; term 0 is none.
        let Some(term) = Term::new(offset).next().filter(|_| is_same) else { return };
        if term <= seat.highest {
            let from = seat.highest;
            seat.not_before = now + pause;
            effects.push(Effect::Tell(Event::WentBack { partition, from, to: term }));
            return;
        }
        seat.highest = term;
        seat.claim = Some(term);
        seat.value = value;
        seat.has_claimed = true;
        self.next_renewal = now;
    }

    fn publish_failed(
        &mut self,
        partition: Partition,
        unknown: bool,
        now: Instant,
        effects: &mut Fx,
    ) {
        let pause = self.plan.interval * (1 << self.publish_failures.min(PAUSE_DOUBLINGS));
        self.seat_mut(partition).not_before = now + pause;
        self.publish_failures = self.publish_failures.saturating_add(1);
        let (undertaking, times) = (Undertaking::Publishing, self.publish_failures);
        effects.push(Effect::Tell(Event::Failed { undertaking, times, unknown }));
    }

    pub(super) fn give_publications_up(&mut self, now: Instant, effects: &mut Fx) {
        for partition in self.partitions() {
            let flight = self.seat_mut(partition).flight.take_if(|flight| flight.gives_up <= now);
            if let Some(flight) = flight {
                effects.push(Effect::Abandon { id: flight.id });
                self.publish_failed(partition, true, now, effects);
            }
        }
    }
}
