//! What becomes of statements.

use super::interface::{Effect, Event, StatementId};
use super::request_slot::Flight;
use super::statement::{DatabaseAnswer, Statement, StatementOutcome};
use super::{Fx, Loss, Member, Part, Which};
use crate::identity::Term;
use crate::time::Instant;

impl Member {
    pub(super) fn answered(
        &mut self,
        id: StatementId,
        outcome: StatementOutcome,
        now: Instant,
        effects: &mut Fx,
    ) {
        let (which, flight) = if let Some(flight) = self.control.land(id) {
            (Which::Control, flight)
        } else if let Some(flight) = self.chores.land(id) {
            (Which::Chores, flight)
        } else {
            // Given up already: what it says may be older than what we know.
            return;
        };
        let understood = match outcome {
            StatementOutcome::Failed => return self.failed(which, false, now, effects),
            StatementOutcome::Unknown => return self.failed(which, true, now, effects),
            StatementOutcome::Answered(answer) => match which {
                Which::Control => self.control_answered(flight, answer, now, effects),
                Which::Chores => self.chore_done(flight.statement, answer, now, effects),
            },
        };
        match (understood, which) {
            (true, Which::Control) => self.control.succeeded(),
            (true, Which::Chores) => self.chores.succeeded(),
            (false, _) => self.failed(which, true, now, effects),
        }
    }

    /// Gives up what is not answered in time.
    pub(super) fn give_up(&mut self, now: Instant, effects: &mut Fx) {
        for which in [Which::Control, Which::Chores] {
            let lane = match which {
                Which::Control => &mut self.control,
                Which::Chores => &mut self.chores,
            };
            if let Some(flight) = lane.overdue(now) {
                effects.push(Effect::Abandon { id: flight.id });
                self.failed(which, true, now, effects);
            }
        }
    }

    /// Whatever it was, it is asked for again after a pause, and finds out by the version that it names
    /// what became of this one.
    fn failed(&mut self, which: Which, unknown: bool, now: Instant, effects: &mut Fx) {
        let pause = self.config.pause(self.watch.round(&self.config));
        if which == Which::Control {
            if let Some(claim) = &mut self.claim {
                claim.next = claim.next.min(now);
                // A database that does not answer its leader in time has too much to do.
                self.leading.pace.contended(&self.config, now);
            }
            self.next_look = self.next_look.min(now);
        }
        let lane = match which {
            Which::Control => &mut self.control,
            Which::Chores => &mut self.chores,
        };
        lane.failed(pause, &mut self.chance, now);
        effects.push(Effect::Tell(Event::Failed { times: lane.failures, unknown }));
    }

    /// False if that is no answer to what was asked.
    fn control_answered(
        &mut self,
        flight: Flight,
        answer: DatabaseAnswer,
        now: Instant,
        effects: &mut Fx,
    ) -> bool {
        let Flight { statement, sent, .. } = flight;
        let (changed, row) = match (&statement, answer) {
            (Statement::Leave { .. }, DatabaseAnswer::Written(_)) => {
                self.left(effects);
                return true;
            }
            (Statement::Join { .. }, DatabaseAnswer::Joined { incarnation, row, value }) => {
                self.values.see(value);
                self.see(row, now, effects);
                self.joined(incarnation, now, effects);
                return true;
            }
            (Statement::Join { .. } | Statement::Leave { .. }, _) => return false,
            (_, DatabaseAnswer::Control { changed, row, value }) => {
                self.values.see(value);
                (changed, row)
            }
            _ => return false,
        };
        // Refused, and yet the row stands as we said: the read was of a moment before. Not at once again.
        let is_stale = !changed && row.is_some_and(|row| statement.replaces() == Some(row.version));
        match row {
            Some(row) => self.see(row, now, effects),
            None => self.see_nothing(now, effects),
        }
        self.looked = sent;
        let hinted = core::mem::take(&mut self.looks_again);
        self.next_look = if hinted { now } else { sent + self.look_every() };
        match statement {
            Statement::Heartbeat { .. } if changed => {
                self.next_heartbeat = sent + self.watch.round(&self.config);
            }
            Statement::Heartbeat { .. } => self.evicted(now, effects),
            Statement::Renew { was, publish, value, .. } if changed && self.holds(was.term) => {
                self.values.written(was.term, value.as_ref());
                self.grant(sent, publish.lease, now, effects);
            }
            Statement::Takeover { publish, .. } if changed => {
                self.grant(sent, publish.lease, now, effects);
            }
            // The row has moved on under us: at once again, from where it is.
            Statement::Renew { was, .. } if self.holds(was.term) => {
                if let Some(claim) = &mut self.claim {
                    claim.next = now;
                }
            }
            Statement::Vacate { .. } if changed => self.owed = None,
            _ => {}
        }
        !is_stale
    }

    fn holds(&self, term: Term) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.version.term == term)
    }

    /// There is no control row: a new database, or one that was emptied.
    fn see_nothing(&mut self, now: Instant, effects: &mut Fx) {
        if let Some(from) = self.watch.see_nothing(&self.config, now) {
            effects.push(Effect::Tell(Event::WentBack { from, to: None }));
        }
        self.owed = None;
        self.lose(Loss::Superseded, effects);
        if self.config.part == Part::Candidate {
            self.incarnation = None;
            self.next_join = now;
        }
    }
}
