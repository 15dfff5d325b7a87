//! A member, or what a wrong implementation of one would do: to see that the harness notices.
//!
//! Bugs are put around the machine, not into it: what `mandate` says is worked out wrongly from the same
//! inputs and effects.

use std::collections::BTreeMap;

use mandate_proto::identity::{Incarnation, Term};
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::neli::{
    Effect, Event, Holding, Input, LedgerPlan, LedgerRequest, Mark, Member, Partition,
    PublishOutcome, RecordKind, Renewed, RequestId, RoleLoss,
};
use mandate_proto::time::{Instant, WallTime};

use super::Mutant;

/// A member with a bug, or without.
pub(crate) struct Mutated {
    member: Member,
    mutant: Option<Mutant>,
    effects: Effects<Effect>,
    renewals: BTreeMap<RequestId, (Instant, Vec<Partition>)>,
    claims: BTreeMap<RequestId, (Instant, Partition)>,
    /// Of each partition, what a wrong implementation would make of it.
    wrong: BTreeMap<Partition, Wrong>,
}

#[derive(Clone, Copy, Default)]
struct Wrong {
    assigned: bool,
    leads: bool,
    term: Option<Term>,
    until: Option<Instant>,
    /// The newest record that has come, by the ledger's clock.
    newest: Option<WallTime>,
    /// The term with which a value was published last.
    published: Option<Term>,
}

/// What a member asks for: of the ledger, or that the application is told.
pub(super) enum Asked {
    Request(LedgerRequest),
    Told(Event),
}

impl Mutated {
    pub(super) fn start(
        plan: LedgerPlan,
        incarnation: Incarnation,
        mutant: Option<Mutant>,
        now: Instant,
        asked: &mut Vec<Asked>,
    ) -> Self {
        let mut effects = Effects::new();
        let member = Member::start(plan, incarnation, now, &mut effects);
        let (renewals, claims, wrong) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut mutated = Mutated { member, mutant, effects, renewals, claims, wrong };
        mutated.pass_on(now, asked);
        mutated
    }

    /// The machine.
    pub(crate) fn member(&self) -> &Member {
        &self.member
    }

    /// The newest record of a partition that has come, by the ledger's clock.
    pub(crate) fn newest(&self, partition: Partition) -> Option<WallTime> {
        self.wrong.get(&partition)?.newest
    }

    /// What it says of itself.
    pub(crate) fn mandate(&self, partition: Partition, now: Instant) -> Option<Holding> {
        let right = self.member.mandate(partition, now);
        let wrong = self.wrong.get(&partition)?;
        let until = wrong.until.filter(|until| now < *until);
        let by_mistake = until.map(|until| Holding { term: wrong.term, until });
        match self.mutant {
            Some(Mutant::CachedFlag) => {
                wrong.leads.then_some(Holding { term: wrong.term, until: now })
            }
            Some(Mutant::EndsWithAssignment) => right.filter(|_| wrong.assigned),
            _ => right.or(by_mistake),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.member.deadline()
    }

    pub(super) fn tell(&mut self, mut input: Input, now: Instant, asked: &mut Vec<Asked>) {
        if let Input::Inspected { marks: Some(marks), .. } = &mut input {
            self.misread(marks);
        }
        self.look_at(&input, now);
        self.member.handle(input, now, &mut self.effects);
        self.pass_on(now, asked);
    }

    pub(super) fn time_out(&mut self, now: Instant, asked: &mut Vec<Asked>) {
        self.member.handle_timeout(now, &mut self.effects);
        self.pass_on(now, asked);
    }

    /// What is made of the marks that the ledger keeps; its own it reads as they are.
    fn misread(&self, marks: &mut Vec<(Partition, Mark)>) {
        let (me, ours) = (self.member.plan().me(), self.member.plan().agreement());
        let is_own = |mark: &Mark| matches!(mark, Mark::Held { holder: Some(one), .. } if (one.member, one.agreement) == (me, ours));
        let own: Vec<_> = marks.iter().copied().filter(|(_, mark)| is_own(mark)).collect();
        marks.retain(|(_, mark)| !is_own(mark));
        self.misread_others(marks);
        marks.retain(|(partition, _)| own.iter().all(|(of, _)| of != partition));
        marks.extend(own);
    }

    fn misread_others(&self, marks: &mut Vec<(Partition, Mark)>) {
        // All are over that there will ever be.
        let over = Mark::Over { term: Term::new(u64::MAX - 1) };
        match self.mutant {
            Some(Mutant::NoGrace) => {
                let partitions = 0..self.member.plan().grants().partitions.get();
                *marks = partitions.map(|one| (Partition::new(one), over)).collect();
            }
            Some(Mutant::OldMarkCounts) => {
                let is_over = |mark: &Mark| matches!(mark, Mark::Over { .. });
                marks.iter_mut().filter(|(_, one)| is_over(one)).for_each(|(_, one)| *one = over);
            }
            Some(Mutant::OwnThreshold) => marks.clear(),
            Some(Mutant::IgnoresLayout) => {
                let ours = self.member.plan().agreement();
                for (_, mark) in marks {
                    if let Mark::Held { holder, .. } = mark {
                        *holder = holder.filter(|holder| holder.agreement == ours);
                    }
                }
            }
            _ => {}
        }
    }

    fn look_at(&mut self, input: &Input, now: Instant) {
        let threshold = self.member.plan().threshold();
        match input {
            Input::Renewed { id, outcome } => {
                let Some((sent, partitions)) = self.renewals.remove(id) else { return };
                let until = match self.mutant {
                    Some(Mutant::FromAnswer) => now + threshold,
                    Some(Mutant::RenewsWhatIsGone) => sent + threshold,
                    _ => return,
                };
                if *outcome == Renewed::Accepted {
                    let gone = self.mutant == Some(Mutant::RenewsWhatIsGone);
                    self.hold(&partitions, until, |wrong| gone != wrong.leads);
                }
            }
            Input::Published { id, outcome: PublishOutcome::Appended { offset, .. } } => {
                let Some((sent, partition)) = self.claims.remove(id) else { return };
                if self.mutant == Some(Mutant::ClaimUnconfirmed) {
                    let term = Term::new(*offset).next();
                    let wrong = self.wrong.entry(partition).or_default();
                    (wrong.term, wrong.until) = (term, Some(sent + threshold));
                }
            }
            Input::Record { partition, stamp, .. } => {
                let proves =
                    matches!(self.mutant, Some(Mutant::RecordsProve) | Some(Mutant::BacklogCounts));
                let wrong = self.wrong.entry(*partition).or_default();
                wrong.newest = wrong.newest.max(Some(*stamp));
                if proves && wrong.assigned {
                    wrong.until = Some(now + threshold);
                }
            }
            Input::Assigned { partitions } => self.set_assigned(partitions, true),
            Input::Revoking { partitions, .. } | Input::Lost { partitions } => {
                self.set_assigned(partitions, false);
            }
            _ => {}
        }
    }

    fn set_assigned(&mut self, partitions: &[Partition], assigned: bool) {
        for partition in partitions {
            self.wrong.entry(*partition).or_default().assigned = assigned;
        }
    }

    fn hold(&mut self, partitions: &[Partition], until: Instant, which: impl Fn(&Wrong) -> bool) {
        for partition in partitions {
            let wrong = self.wrong.entry(*partition).or_default();
            if which(wrong) {
                wrong.until = wrong.until.max(Some(until));
            }
        }
    }

    fn pass_on(&mut self, now: Instant, asked: &mut Vec<Asked>) {
        let threshold = self.member.plan().threshold();
        while let Some(effect) = self.effects.pop() {
            match effect {
                Effect::Ask(mut request) => {
                    match &mut request {
                        LedgerRequest::Renew { id, marks } => {
                            let renewed = marks.iter().map(|(partition, _)| *partition).collect();
                            self.renewals.insert(*id, (now, renewed));
                            if self.mutant == Some(Mutant::OverWhileLed) {
                                marks.iter_mut().for_each(|(_, mark)| *mark = over_if_led(*mark));
                            }
                        }
                        LedgerRequest::Publish { id, partition, record }
                            if matches!(record.kind, RecordKind::Claim { .. }) =>
                        {
                            self.claims.insert(*id, (now, *partition));
                        }
                        _ => {}
                    }
                    asked.push(Asked::Request(request));
                }
                Effect::Abandon { id } => {
                    self.claims.remove(&id);
                    let Some((_, partitions)) = self.renewals.remove(&id) else { continue };
                    if self.mutant == Some(Mutant::UnknownIsAccepted) {
                        self.hold(&partitions, now + threshold, |wrong| wrong.leads);
                    }
                }
                Effect::Tell(mut event) => {
                    if let (
                        Some(Mutant::FormerTermsValue),
                        Event::Published { partition, term, .. },
                    ) = (self.mutant, &mut event)
                    {
                        let former = &mut self.wrong.entry(*partition).or_default().published;
                        *term = former.replace(*term).unwrap_or(*term);
                    }
                    let is_dry = matches!(event, Event::Dry { .. });
                    if is_dry && self.mutant == Some(Mutant::OneDryAllLeft) {
                        self.member.handle(Input::Resign, now, &mut self.effects);
                    }
                    self.told(&event, now);
                    asked.push(Asked::Told(event));
                }
            }
        }
    }

    fn told(&mut self, event: &Event, now: Instant) {
        let threshold = self.member.plan().threshold();
        match *event {
            Event::Acquired { partition, term } => {
                let wrong = self.wrong.entry(partition).or_default();
                (wrong.leads, wrong.term) = (true, term);
            }
            Event::Ended { partition, loss, .. } => {
                let wrong = self.wrong.entry(partition).or_default();
                wrong.leads = false;
                let goes_on = match self.mutant {
                    Some(Mutant::RecordsProve | Mutant::ClaimUnconfirmed) => true,
                    _ => loss == RoleLoss::Lapsed,
                };
                if !goes_on {
                    wrong.until = None;
                }
                if self.mutant == Some(Mutant::ReleasedWhileLed) && loss == RoleLoss::Revoked {
                    wrong.until = Some(now + threshold);
                    self.member.handle(Input::Drained { partition }, now, &mut self.effects);
                }
            }
            _ => {}
        }
    }
}

/// The same term, as if it were over, once it is led under.
fn over_if_led(mark: Mark) -> Mark {
    match mark {
        Mark::Held { term, holder: Some(holder), .. } if holder.leads => Mark::Over { term },
        mark => mark,
    }
}
