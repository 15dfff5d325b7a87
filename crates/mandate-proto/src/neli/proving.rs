//! What proves that a member may lead: records in non-exclusive mode, renewals or records of its own in
//! exclusive mode.

use alloc::vec::Vec;

use super::config::Mode;
use super::interface::{
    Effect, Event, Loss, Mark, Partition, Record, Renewed, Request, RequestId, Undertaking,
};
use super::seat::Work;
use super::{Fx, Member};
use crate::identity::Term;
use crate::time::{Instant, WallTime};

/// A renewal under way.
#[derive(Clone, Debug)]
pub(super) struct Renewal {
    id: RequestId,
    /// Taken before it was asked for: thresholds count from here.
    sent: Instant,
    pub(super) gives_up: Instant,
    /// What it renews: the partition, the assignment and the claim as they were when it was sent.
    covers: Vec<(Partition, u64, Term)>,
}

impl Member {
    /// What a renewal sent now would cover. It leaves a mark in the place of the former owner's: so not before that one
    /// was read, unless it does not matter.
    fn renewable(&self) -> impl Iterator<Item = (Partition, u64, Term)> {
        self.each().filter_map(|(partition, seat)| {
            let (kept, claim) = (seat.kept()?, seat.claim?);
            let is_read = seat.others_lease.is_some() || seat.follows(claim);
            is_read.then_some((partition, kept.epoch, claim))
        })
    }

    pub(super) fn is_renewal_due(&self) -> Option<Instant> {
        let wanted =
            self.plan.renews() && self.renewal.is_none() && self.renewable().next().is_some();
        wanted.then_some(self.next_renewal)
    }

    pub(super) fn renew(&mut self, now: Instant, effects: &mut Fx) {
        let covers: Vec<_> = self.renewable().collect();
        let mark = |(partition, _, term): &(Partition, u64, Term)| {
            let lease = self.lease(&self.seats[partition.get() as usize]);
            (*partition, Mark::Held { term: *term, lease })
        };
        let marks = covers.iter().map(mark).collect();
        let id = self.next_id();
        self.next_renewal = now + self.plan.interval;
        self.renewal =
            Some(Renewal { id, sent: now, gives_up: now + self.plan.patience(), covers });
        effects.push(Effect::Ask(Request::Renew { id, marks }));
    }

    pub(super) fn renewed(
        &mut self,
        id: RequestId,
        outcome: Renewed,
        now: Instant,
        effects: &mut Fx,
    ) {
        let Some(renewal) = self.renewal.take_if(|renewal| renewal.id == id) else { return };
        match outcome {
            Renewed::Accepted => {
                self.renew_failures = 0;
                self.accepted(&renewal, now);
            }
            Renewed::Refused => self.refused(now, effects),
            Renewed::Failed | Renewed::Unknown => {
                self.renewal_failed(outcome == Renewed::Unknown, effects);
            }
        }
    }

    fn accepted(&mut self, renewal: &Renewal, now: Instant) {
        let until = renewal.sent + self.plan.threshold;
        for (partition, epoch, term) in &renewal.covers {
            let Some(seat) = self.seats.get_mut(partition.get() as usize) else { continue };
            let is_same = seat.kept().is_some_and(|assignment| assignment.epoch == *epoch)
                && seat.claim == Some(*term);
            if is_same && now < until {
                seat.until = seat.until.max(Some(until));
            }
        }
        // A claim that came meanwhile is confirmed at once.
        if self.renewable().any(|one| !renewal.covers.contains(&one)) {
            self.next_renewal = now;
        }
    }

    /// The ledger has gone on without this member, or with another generation of the group: whatever was
    /// claimed before is void. If a partition is still ours, a new claim can be confirmed.
    fn refused(&mut self, now: Instant, effects: &mut Fx) {
        for partition in self.partitions() {
            self.end(partition, Loss::Fenced, effects);
            let (interval, dry_after) = (self.plan.interval, self.plan.dry_after());
            let seat = self.seat_mut(partition);
            seat.claim = None;
            seat.not_before = now + interval;
            seat.dry_at = seat.kept().map(|_| now + dry_after);
        }
    }

    fn renewal_failed(&mut self, unknown: bool, effects: &mut Fx) {
        self.renew_failures = self.renew_failures.saturating_add(1);
        let (undertaking, times) = (Undertaking::Renewing, self.renew_failures);
        effects.push(Effect::Tell(Event::Failed { undertaking, times, unknown }));
    }

    pub(super) fn give_renewal_up(&mut self, now: Instant, effects: &mut Fx) {
        if let Some(renewal) = self.renewal.take_if(|renewal| renewal.gives_up <= now) {
            effects.push(Effect::Abandon { id: renewal.id });
            self.renewal_failed(true, effects);
        }
    }

    /// A record has come.
    pub(super) fn received(
        &mut self,
        partition: Partition,
        offset: u64,
        stamp: WallTime,
        record: Option<Record>,
        now: Instant,
    ) {
        let (mode, threshold, life) = (self.plan.mode, self.plan.threshold, self.life);
        let (renews, allowance) = (self.plan.renews(), self.plan.allowance_per_mille);
        let Some(seat) = self.seats.get_mut(partition.get() as usize) else { return };
        if seat.kept().is_none() || renews {
            return;
        }
        let proved = match mode {
            // Whoever published it: it was on the ledger no longer ago than it is old.
            Mode::NonExclusive => seat.clock.age(stamp, now, allowance).map(|age| {
                Instant::from_nanos(now.as_nanos().saturating_sub(crate::time::nanos(age)))
            }),
            // Only what we sent ourselves can be dated without trusting any other clock: it was handed
            // to us, as the owner, some time after we had sent it.
            Mode::Exclusive => record
                .filter(|record| record.life == life)
                .filter(|_| seat.claim.is_some_and(|term| offset.saturating_add(1) >= term.get()))
                .map(|record| Instant::from_nanos(record.sent_nanos))
                .filter(|sent| *sent <= now),
        };
        let until = proved.map(|proved| proved + threshold).filter(|until| *until > now);
        seat.until = seat.until.max(until);
    }

    /// Leads what it may lead by now.
    pub(super) fn begin(&mut self, now: Instant, effects: &mut Fx) {
        if !self.takes_part() {
            return;
        }
        for partition in self.partitions() {
            let seat = &self.seats[partition.get() as usize];
            let Some(assignment) = seat.kept().filter(|_| !seat.leads()) else { continue };
            let claimed = self.plan.mode == Mode::NonExclusive || seat.claim.is_some();
            let is_proved = seat.until.is_some_and(|until| now < until);
            let is_alone = self.alone_from(seat, assignment).is_some_and(|from| from <= now);
            if claimed && is_proved && is_alone {
                let seat = self.seat_mut(partition);
                seat.work = Work::Leading;
                seat.dry_at = None;
                effects.push(Effect::Tell(Event::Acquired { partition, term: seat.claim }));
            }
        }
    }

    /// What has lapsed by now has lapsed, and a claim with it: the next one has a higher term.
    pub(super) fn expire(&mut self, now: Instant, effects: &mut Fx) {
        for partition in self.partitions() {
            let seat = self.seat_mut(partition);
            if seat.until.is_none_or(|until| now < until) {
                continue;
            }
            if seat.leads() {
                self.end(partition, Loss::Lapsed, effects);
                let dry_after = self.plan.dry_after();
                let seat = self.seat_mut(partition);
                seat.claim = None;
                seat.not_before = now;
                seat.dry_at = seat.kept().map(|_| now + dry_after);
            }
            self.seat_mut(partition).until = None;
        }
    }

    /// It leads this partition's roles no more.
    pub(super) fn end(&mut self, partition: Partition, loss: Loss, effects: &mut Fx) {
        let mode = self.plan.mode;
        let seat = self.seat_mut(partition);
        seat.until = None;
        if seat.leads() {
            seat.work = match mode {
                Mode::Exclusive => Work::Ending,
                // Nobody has to wait for work to end that may be done twice.
                Mode::NonExclusive => Work::None,
            };
            let term = seat.claim;
            seat.over = seat.over.max(term.unwrap_or(Term::NONE));
            effects.push(Effect::Tell(Event::Ended { partition, term, loss }));
        }
    }
}
