//! What proves that a member may lead: records in non-exclusive mode, renewals or records of its own in
//! exclusive mode.

use alloc::vec::Vec;

use super::config::Mode;
use super::interface::{
    Effect, Event, LedgerRecord, LedgerRequest, Mark, Partition, PartitionHolder, Renewed,
    RequestId, RoleLoss, Undertaking,
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
    pub(super) sent: Instant,
    pub(super) gives_up: Instant,
    /// What it renews: the partition, the assignment and the claim as they were when it was sent.
    pub(super) covers: Vec<(Partition, u64, Term)>,
    /// What the ledger keeps if it accepts it.
    pub(super) marks: Vec<(Partition, Mark)>,
}

impl Member {
    /// What renewals cover, and from when on. They leave a mark in the place of the former owner's: so not before that one
    /// was read, unless it does not matter, and not while it is still needed.
    fn renewable(&self) -> impl Iterator<Item = ((Partition, u64, Term), Instant)> {
        let (mode, takes_part) = (self.plan.mode, self.takes_part());
        self.each().filter_map(move |(partition, seat)| {
            let kept = seat.kept()?;
            let (claim, is_read) = match mode {
                Mode::Exclusive => {
                    let claim = seat.claim?;
                    (claim, seat.others_lease.is_some() || seat.follows(claim))
                }
                // A mark, and no claim.
                Mode::NonExclusive => (Term::NONE, takes_part && seat.others_lease.is_some()),
            };
            is_read.then_some(((partition, kept.epoch, claim), seat.mark_from))
        })
    }

    /// What a renewal sent now would cover.
    fn renewable_at(&self, now: Instant) -> impl Iterator<Item = (Partition, u64, Term)> {
        self.renewable().filter(move |(_, from)| *from <= now).map(|(one, _)| one)
    }

    pub(super) fn is_renewal_due(&self) -> Option<Instant> {
        let wanted = self.plan.marks() && self.renewal.is_none();
        let from = self.renewable().map(|(_, from)| from).min().filter(|_| wanted)?;
        Some(self.next_renewal.max(from))
    }

    pub(super) fn renew(&mut self, now: Instant, effects: &mut Fx) {
        let covers: Vec<_> = self.renewable_at(now).collect();
        let id = self.next_id();
        let marks = self.marks_due(&covers, id);
        self.next_renewal = now + self.plan.interval;
        let (gives_up, sent) = (now + self.plan.patience(), now);
        self.renewal = Some(Renewal { id, sent, gives_up, covers, marks: marks.clone() });
        effects.push(Effect::Ask(LedgerRequest::Renew { id, marks }));
    }

    /// What a renewal writes. It speaks for all partitions, because the ledger checks the member; a mark has to be
    /// written once. One besides in turn: a late commit of an earlier owner may have taken its place.
    fn marks_due(
        &mut self,
        covers: &[(Partition, u64, Term)],
        id: RequestId,
    ) -> Vec<(Partition, Mark)> {
        let after = covers.iter().map(|(one, ..)| *one).find(|one| Some(*one) > self.last_marked);
        let in_turn = after.or(covers.first().map(|(one, ..)| *one));
        self.last_marked = in_turn;
        let marks = covers.iter().filter_map(|(partition, _, term)| {
            let seat = &self.seats[partition.get() as usize];
            let (agreement, leads) = (self.plan.agreement(), seat.leads());
            let (member, renewal) = (self.plan.me, id.get());
            let holder = Some(PartitionHolder { member, agreement, leads, renewal });
            let mark = Mark::Held { term: *term, lease: self.lease(seat), holder };
            let is_kept = seat.marked.is_some_and(|marked| marked.says_as_much_as(&mark));
            let is_due = !is_kept || in_turn == Some(*partition);
            is_due.then_some((*partition, mark))
        });
        marks.collect()
    }

    pub(super) fn renewed(
        &mut self,
        id: RequestId,
        outcome: Renewed,
        now: Instant,
        effects: &mut Fx,
    ) {
        let Some(renewal) = self.renewal.take_if(|renewal| renewal.id == id) else { return };
        if self.plan.mode == Mode::NonExclusive {
            return self.marked(&renewal, outcome);
        }
        match outcome {
            Renewed::Accepted => {
                self.renew_failures = 0;
                self.accepted(&renewal, now, effects);
            }
            Renewed::Refused => self.refused(now, effects),
            Renewed::Failed | Renewed::Unknown => {
                self.renewal_failed(outcome == Renewed::Unknown, effects);
            }
        }
    }

    fn accepted(&mut self, renewal: &Renewal, now: Instant, effects: &mut Fx) {
        self.prove_stay(renewal.sent, now, effects);
        let until = renewal.sent + self.plan.threshold;
        for (partition, epoch, term) in &renewal.covers {
            let Some(seat) = self.seats.get_mut(partition.get() as usize) else { continue };
            let is_same = seat.kept().is_some_and(|assignment| assignment.epoch == *epoch)
                && seat.claim == Some(*term);
            if is_same && now < until {
                seat.until = seat.until.max(Some(until));
            }
            let mark = renewal.marks.iter().find(|(of, _)| is_same && of == partition);
            seat.marked = mark.map(|(_, mark)| *mark).or(seat.marked);
        }
        // A claim that came meanwhile is confirmed at once.
        if self.renewable_at(now).any(|one| !renewal.covers.contains(&one)) {
            self.next_renewal = now;
        }
    }

    /// A renewal that was sent then was accepted: has the ledger kept this member all the time? It gives up a member that it
    /// has not heard of for a session, and some clients come back by themselves and say nothing (librdkafka, with a static
    /// name). So after a session without a renewal others may have had the partitions, and what was claimed is void. The same
    /// after a refusal: when the client came back, nobody knows, and others may have had the partitions until this renewal.
    fn prove_stay(&mut self, sent: Instant, now: Instant, effects: &mut Fx) {
        let session = self.plan.session_at_least();
        for partition in self.partitions() {
            let Some(assignment) = self.seat_mut(partition).kept() else { continue };
            let was_refused = core::mem::take(&mut self.seat_mut(partition).was_refused);
            if was_refused || now >= assignment.proved + session {
                self.end(partition, RoleLoss::Lost, effects);
                self.start_over(partition, now);
            } else if let Some(assignment) = &mut self.seat_mut(partition).assigned {
                assignment.proved = assignment.proved.max(sent);
            }
        }
    }

    /// The ledger has gone on without this member, or with another generation of the group: whatever was
    /// claimed before is void, and others may have had what was assigned, and may have it until a renewal is accepted again. If a
    /// partition is still ours then, a new claim can be confirmed.
    fn refused(&mut self, now: Instant, effects: &mut Fx) {
        for partition in self.partitions() {
            self.end(partition, RoleLoss::Fenced, effects);
            self.start_over(partition, now);
            let interval = self.plan.interval;
            let seat = self.seat_mut(partition);
            seat.not_before = now + interval;
            seat.was_refused = true;
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
        record: Option<LedgerRecord>,
        now: Instant,
    ) {
        let (mode, threshold, incarnation) =
            (self.plan.mode, self.plan.threshold, self.incarnation);
        let (renews, allowance) = (self.plan.renews(), self.plan.allowance_per_mille);
        let may_go_on = self.may_go_on();
        let Some(seat) = self.seats.get_mut(partition.get() as usize) else { return };
        if seat.kept().is_none() || renews || (mode == Mode::NonExclusive && !may_go_on) {
            return;
        }
        let proved = match mode {
            // No matter who published it: it was on the ledger no longer ago than it is old.
            Mode::NonExclusive => seat.clock.age(stamp, now, allowance).map(|age| {
                Instant::from_nanos(now.as_nanos().saturating_sub(crate::time::nanos(age)))
            }),
            // Only what we sent ourselves can be dated without trusting any other clock: it was handed
            // to us, as the owner, some time after we had sent it.
            Mode::Exclusive => record
                .filter(|record| record.life == incarnation)
                .filter(|_| seat.claim.is_some_and(|term| offset.saturating_add(1) >= term.get()))
                .map(|record| Instant::from_nanos(record.sent_nanos))
                .filter(|sent| *sent <= now),
        };
        let until = proved.map(|proved| proved + threshold).filter(|until| *until > now);
        seat.until = seat.until.max(until);
    }

    /// Leads what it may lead by now. Who leads something may lead all that it holds, so that others are looked at again.
    pub(super) fn begin(&mut self, now: Instant, effects: &mut Fx) {
        if self.takes_part() && self.begin_each(now, effects) {
            self.begin_each(now, effects);
        }
    }

    /// Whether something was begun.
    fn begin_each(&mut self, now: Instant, effects: &mut Fx) -> bool {
        let mut has_begun = false;
        for partition in self.partitions() {
            let seat = &self.seats[partition.get() as usize];
            let Some(assignment) = seat.kept().filter(|_| !seat.leads()) else { continue };
            let claimed = self.plan.mode == Mode::NonExclusive || seat.claim.is_some();
            let is_proved = seat.until.is_some_and(|until| now < until);
            let is_alone = self.alone_from(seat, assignment).is_some_and(|from| from <= now);
            if claimed && is_proved && is_alone && self.is_agreed(seat) {
                let seat = self.seat_mut(partition);
                has_begun = true;
                seat.work = Work::Leading;
                seat.dry_at = None;
                effects.push(Effect::Tell(Event::Acquired { partition, term: seat.claim }));
                if let (Some(term), Some(value)) = (seat.claim, seat.value.clone()) {
                    effects.push(Effect::Tell(Event::Published { partition, term, value }));
                }
            }
        }
        has_begun
    }

    /// What has lapsed by now has lapsed, and a claim with it: the next one has a higher term.
    pub(super) fn expire(&mut self, now: Instant, effects: &mut Fx) {
        for partition in self.partitions() {
            let seat = self.seat_mut(partition);
            if seat.until.is_none_or(|until| now < until) {
                continue;
            }
            if seat.leads() {
                self.end(partition, RoleLoss::Lapsed, effects);
                let dry_after = self.plan.dry_after();
                let seat = self.seat_mut(partition);
                seat.claim = None;
                seat.not_before = now;
                seat.dry_at = seat.kept().map(|_| now + dry_after);
                self.lapsed(now);
            }
            self.seat_mut(partition).until = None;
        }
    }

    /// It leads this partition's roles no more.
    pub(super) fn end(&mut self, partition: Partition, loss: RoleLoss, effects: &mut Fx) {
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
