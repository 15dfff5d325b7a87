//! Renewing, giving back, and a leader's chores: sweeping, evicting, spreading roles.

use alloc::vec::Vec;
use core::time::Duration;

use super::config::{Config, MAX_MEMBERS, Part};
use super::interface::{Effect, Event, Loss, Reason};
use super::pace::Pace;
use super::roles::Spread;
use super::roster::Roster;
use super::statement::{ControlState, DatabaseAnswer, MemberRow, Published, Statement, Successors};
use super::{Chore, Fx, Leading, Member, Owed, Which};
use crate::election::NoTransfer;
use crate::identity::MemberId;
use crate::machine::Effects;
use crate::time::Instant;

impl Leading {
    pub(super) fn new(config: &Config, now: Instant) -> Self {
        Leading {
            roster: Roster::default(),
            successors: Successors::default(),
            pace: Pace::new(config.round, config, now),
            spread: Spread::default(),
            next_sweep: now,
        }
    }

    /// Goes on where the leader before has left off.
    pub(super) fn take_up(config: &Config, published: &Published, now: Instant) -> Self {
        let others = published.successors.iter().filter(|id| *id != config.me);
        let successors = others.collect();
        let pace = Pace::new(published.round, config, now);
        Leading { successors, pace, ..Leading::new(config, now) }
    }
}

impl Member {
    /// A mandate that ends by now ends for good.
    pub(super) fn expire(&mut self, now: Instant, effects: &mut Fx) {
        let held = self.claim.as_ref().is_some_and(|claim| claim.held);
        if held && self.is_leased() && self.mandate(now).is_none() {
            self.lose(Loss::Expired, effects);
        }
    }

    pub(super) fn lose(&mut self, loss: Loss, effects: &mut Fx) {
        let Some(claim) = self.claim.take() else { return };
        let term = claim.version.term;
        self.given_up = self.given_up.max(term);
        effects.push(Effect::Tell(Event::Lost { term, loss }));
        if let Some(flight) = self.chores.flight.take() {
            effects.push(Effect::Abandon { id: flight.id });
        }
    }

    pub(super) fn renew(&mut self, now: Instant) -> Option<Statement> {
        let round = self.leading.pace.round;
        let lease = self.config.lease(round);
        let (successors, guarantee) = (self.leading.successors, self.config.guarantee);
        let publish = Published { successors, round, lease, guarantee };
        let pause = self.config.renew_every(round);
        let claim = self.claim.as_mut()?;
        claim.sent(lease, &self.config, now);
        claim.next = now + pause;
        let (me, was) = (claim.me, claim.version);
        let value = self.values.unwritten(was.term);
        Some(Statement::Renew { me, was, publish, value })
    }

    /// A write of ours was acknowledged: what it is worth.
    pub(super) fn grant(&mut self, sent: Instant, lease: Duration, now: Instant, effects: &mut Fx) {
        let renew_every = self.config.renew_every(self.leading.pace.round);
        let is_leased = self.is_leased();
        let Some(claim) = &mut self.claim else { return };
        let in_time = claim.granted((sent, lease), &self.config, now);
        claim.held |= in_time || !is_leased;
        if !in_time && !self.leading.pace.double(&self.config, now) && is_leased {
            // Even the longest lease is too short: another may be nearer to the database.
            self.resign_because(Reason::TooSlow, now, effects);
        } else if now - sent > renew_every {
            self.leading.pace.contended(&self.config, now);
        }
    }

    pub(super) fn resign(&mut self, now: Instant, effects: &mut Fx) {
        self.resign_because(Reason::Resigned, now, effects);
    }

    fn resign_because(&mut self, reason: Reason, now: Instant, effects: &mut Fx) {
        let takes_over = self.control.flight.as_ref();
        let takes_over =
            takes_over.is_some_and(|flight| matches!(flight.statement, Statement::Takeover { .. }));
        if self.claim.is_some() || takes_over {
            self.abstain(now);
            self.give_back(reason, effects);
        }
    }

    /// Leaves it to the others for as long as they may need.
    fn abstain(&mut self, now: Instant) {
        let round = self.watch.round(&self.config);
        let patience = self.config.wait(self.config.lease(round)) + self.config.turns(round);
        self.abstains_until = Some(now + patience);
    }

    /// Stops leading, and only then has the row vacated.
    pub(super) fn give_back(&mut self, reason: Reason, effects: &mut Fx) {
        if let Some(claim) = &self.claim {
            let (me, term, successors) = (claim.me, claim.version.term, self.leading.successors);
            self.lose(Loss::GaveBack(reason), effects);
            self.owed = Some(Owed { me, term, reason, successors });
        }
    }

    pub(super) fn vacate(&self) -> Option<Statement> {
        let Owed { me, reason, successors, .. } = self.owed?;
        Some(Statement::Vacate { me, was: self.watch.version()?, reason, successors })
    }

    pub(super) fn transfer(&mut self, to: MemberId, now: Instant, effects: &mut Fx) {
        let refuse = |reason, effects: &mut Effects<Effect>| {
            effects.push(Effect::Tell(Event::NoTransfer { to, reason }));
        };
        let is_role = self.config.part == Part::Role;
        if self.mandate(now).is_none() {
            return refuse(NoTransfer::NotLeading, effects);
        }
        match self.leading.roster.has(to) {
            _ if to == self.config.me => refuse(NoTransfer::NotAMember, effects),
            Some(false) => refuse(NoTransfer::NotAMember, effects),
            Some(true) if self.leading.roster.suspected().any(|id| id == to) => {
                refuse(NoTransfer::NoAnswer, effects);
            }
            Some(true) if !self.leading.roster.candidates().any(|id| id == to) => {
                refuse(NoTransfer::NoVote, effects);
            }
            None if !is_role => refuse(NoTransfer::NoAnswer, effects),
            Some(true) | None => self.hand_over(to, now, effects),
        }
    }

    fn hand_over(&mut self, to: MemberId, now: Instant, effects: &mut Fx) {
        let others: Vec<_> = self.leading.successors.iter().collect();
        self.leading.successors = [to].into_iter().chain(others).collect();
        self.abstain(now);
        self.give_back(Reason::Transferred, effects);
    }

    /// Hands a role over to whom the leader of the group prefers. Once, unless it comes to nothing for as
    /// long as it takes to evict a member that is dead.
    pub(super) fn heed_preference(&mut self, row: &ControlState, now: Instant, effects: &mut Fx) {
        let Some(claim) = self.claim.as_ref().filter(|claim| claim.held) else { return };
        let tenure = row.published.round.saturating_mul(self.config.missed + 2) * 2;
        let is_due = claim.preferred != row.preferred || now - claim.began >= tenure;
        if let Some(to) = row.preferred
            && self.config.part == Part::Role
            && to != self.config.me
            && is_due
        {
            self.hand_over(to, now, effects);
        }
    }

    /// What the leader does besides, and when.
    pub(super) fn next_chore(&self) -> Option<(Instant, Chore)> {
        self.claim.as_ref().filter(|claim| claim.held)?;
        if self.config.part != Part::Candidate {
            return None;
        }
        let Leading { roster, spread, next_sweep, .. } = &*self.leading;
        let soon = self.chores.not_before;
        Some(if !roster.due.is_empty() {
            (soon, Chore::Evict)
        } else if self.config.roles > 0 && !spread.is_read() {
            (soon, Chore::ReadRoles)
        } else if !spread.is_written() {
            (soon, Chore::Prefer)
        } else {
            ((*next_sweep).max(soon), Chore::Sweep)
        })
    }

    fn chore(&mut self, chore: Chore, now: Instant) -> Option<Statement> {
        let Leading { roster, spread, pace, next_sweep, .. } = &mut *self.leading;
        match chore {
            Chore::Evict => {
                let (holder, counter) = *roster.due.front()?;
                Some(Statement::Evict { holder, counter })
            }
            Chore::ReadRoles => Some(Statement::ReadRoles),
            Chore::Prefer => {
                let term = self.claim.as_ref()?.version.term;
                Some(Statement::Prefer { term, changes: spread.next()? })
            }
            Chore::Sweep => {
                *next_sweep = now + pace.round;
                Some(Statement::Sweep { limit: MAX_MEMBERS })
            }
        }
    }

    pub(super) fn do_chores(&mut self, now: Instant, effects: &mut Fx) {
        if self.chores.is_free()
            && let Some((_, chore)) = self.next_chore().filter(|(at, _)| *at <= now)
            && let Some(statement) = self.chore(chore, now)
        {
            self.execute(Which::Chores, statement, now, effects);
        }
    }

    /// A chore was done. False if that is no answer to what was asked.
    pub(super) fn chore_done(
        &mut self,
        statement: Statement,
        answer: DatabaseAnswer,
        now: Instant,
        effects: &mut Fx,
    ) -> bool {
        match (statement, answer) {
            (Statement::Sweep { .. }, DatabaseAnswer::Members(rows)) => {
                self.swept(rows, now, effects)
            }
            (Statement::Evict { holder, .. }, DatabaseAnswer::Written(changed)) => {
                self.leading.roster.due.pop_front();
                if changed {
                    self.leading.roster.removed(holder);
                    effects.push(Effect::Tell(Event::Removed { member: holder.member }));
                    self.plan(effects);
                }
            }
            (Statement::ReadRoles, DatabaseAnswer::Roles(roles)) => {
                self.leading.spread.read(roles);
                self.plan(effects);
            }
            (Statement::Prefer { changes, .. }, DatabaseAnswer::Written(changed)) => {
                // Refused: another leads the group, and the next renewal will say so.
                if changed {
                    self.leading.spread.wrote(&changes);
                } else {
                    self.leading.spread = Spread::default();
                }
            }
            _ => return false,
        }
        true
    }

    fn swept(&mut self, rows: Vec<MemberRow>, now: Instant, effects: &mut Fx) {
        let before = self.leading.successors;
        let Leading { roster, pace, next_sweep, .. } = &mut *self.leading;
        let limits = (pace.round, self.config.missed);
        if roster.swept(rows, self.config.me, limits, now) {
            pace.contended(&self.config, now);
        } else {
            pace.calm(&self.config, now);
        }
        let is_young = roster.looks_again(self.config.me, pace.round);
        if is_young {
            *next_sweep = now + self.config.renew_every(pace.round);
        }
        self.plan(effects);
        // Those who are to follow should know it before they have to.
        if (before.is_empty() || is_young)
            && self.leading.successors != before
            && let Some(claim) = &mut self.claim
        {
            claim.next = claim.next.min(now);
        }
    }

    /// Who is to succeed us, and whom we prefer for each role, of those who live.
    fn plan(&mut self, effects: &mut Fx) {
        let Leading { roster, successors, pace, spread, .. } = &mut *self.leading;
        let me = self.config.me;
        if roster.has(me).is_none() {
            return;
        }
        *successors = roster.successors(me, successors, (self.config.threshold, pace.round));
        if self.config.roles > 0 {
            // Our own row may not be there yet: we were evicted, and took over before we knew.
            let mut living: Vec<_> = roster.candidates().chain([me]).collect();
            living.sort_unstable();
            living.dedup();
            let roles = spread.plan(self.config.roles, &living);
            if roles > 0 {
                effects.push(Effect::Tell(Event::RolesMoved { roles }));
            }
        }
    }
}
