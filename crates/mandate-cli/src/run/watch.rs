//! The wrapper's watch over one command: what happens to the mandate is passed on to the guard, and what the
//! guard reports decides how it ends.

use std::time::Duration;

use mandate_proto::identity::Term;
use tokio::sync::watch::Receiver;
use tokio::time::{interval, sleep};

use super::guard_protocol::{Order, Report, Until, boottime};
use super::guarded::{Guarded, stuck};
use super::permit::Permit;
use super::signals::{Asked, Signals, TERM, ended_by};
use super::tree::REAP;
use crate::exit::Exit;
use crate::output;

const KILL: i32 = 9;

/// How long after its time a guard may take before the wrapper does without it.
const GUARD_TIME: Duration = Duration::from_millis(200);

/// Timers do not count suspension, deadlines do.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// What came of a command.
pub(crate) enum Outcome {
    /// It ended, by itself or because somebody asked.
    Ended(Exit),
    /// Leadership did.
    Lost,
}

/// One command, from its start until nothing of it is left.
pub(crate) struct Watch<'a> {
    guarded: &'a mut Guarded,
    term: Term,
    until: Until,
    /// How long a command that is asked to end may take at most.
    grace: Duration,
    /// When the guard must have ended everything, if it was told to.
    end_by: Option<Duration>,
    /// The signal by which somebody has asked that all end. Then all ends, whatever becomes of the mandate.
    asked_to_stop: Option<i32>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        guarded: &'a mut Guarded,
        (term, until): (Term, Until),
        grace: Duration,
    ) -> Self {
        Watch { guarded, term, until, grace, end_by: None, asked_to_stop: None }
    }

    /// Watches until nothing of the command is left. An error means that something may be.
    pub(crate) async fn run(
        mut self,
        standing: &mut Receiver<Permit>,
        signals: &mut Signals,
    ) -> anyhow::Result<Outcome> {
        let mut is_told = true;
        let mut reap = interval(REAP);
        loop {
            let step_in_at = self.step_in_at();
            tokio::select! {
                report = self.guarded.report() => {
                    if let Some(outcome) = self.hear(report).await? {
                        return Ok(outcome);
                    }
                }
                changed = standing.changed(), if is_told => {
                    is_told = changed.is_ok();
                    let now = *standing.borrow_and_update();
                    self.adjust(if is_told { now } else { Permit::Waiting });
                }
                asked = signals.next() => self.obey(asked),
                _ = reap.tick() => self.guarded.reap(),
                () = passed(step_in_at) => {
                    // Where all were stopped for a while, the guard may have ended it in time, and said so.
                    let outcome = match self.guarded.reported() {
                        Some(report) => self.hear(Some(report)).await?,
                        None => Some(self.step_in().await?),
                    };
                    if let Some(outcome) = outcome {
                        return Ok(outcome);
                    }
                }
            }
        }
    }

    /// When the guard should have done what it was started for.
    fn step_in_at(&self) -> Option<Duration> {
        let ordered = self.end_by.map(|by| by + GUARD_TIME);
        self.until.step_in_at().into_iter().chain(ordered).min()
    }

    /// Ends the command without the guard.
    async fn step_in(&mut self) -> anyhow::Result<Outcome> {
        output::complain("the guard does not end the command in time: killing both");
        self.guarded.step_in().await?;
        Ok(match self.asked_to_stop {
            Some(_) => Outcome::Ended(ended_by(KILL)),
            None => Outcome::Lost,
        })
    }

    async fn hear(&mut self, report: Option<Report>) -> anyhow::Result<Option<Outcome>> {
        match report {
            Some(Report::Ending) => {
                let term = self.term;
                output::complain(format!(
                    "the lease of term {term} is ending: stopping the command"
                ));
                Ok(None)
            }
            Some(Report::Gone { code, by_itself }) => {
                self.guarded.let_go().await;
                Ok(Some(match (code, self.asked_to_stop) {
                    (Some(code), Some(_)) => Outcome::Ended(Exit::Command(code)),
                    (Some(code), None) if by_itself => Outcome::Ended(Exit::Command(code)),
                    // It was not even started.
                    (None, Some(signal)) => Outcome::Ended(ended_by(signal)),
                    (_, None) => Outcome::Lost,
                }))
            }
            Some(Report::Stuck(names)) => Err(stuck(names)),
            None => {
                self.guarded.step_in().await?;
                output::complain("the guard was killed, so the command was, too");
                Ok(Some(Outcome::Ended(Exit::Failure)))
            }
        }
    }

    /// Tells the guard what has become of the mandate.
    fn adjust(&mut self, now: Permit) {
        let by = match now {
            Permit::Leading { term, until } if term == self.term => {
                self.until = until;
                return self.guarded.order(Order::Until(until));
            }
            Permit::Ending { by } => {
                let bounds = [by, self.until.kill_at(), Some(boottime() + self.grace)];
                bounds.into_iter().flatten().min().unwrap_or_default()
            }
            Permit::Leading { .. } | Permit::Waiting => boottime(),
        };
        if self.end_by.is_none() {
            let term = self.term;
            output::complain(format!("leadership of term {term} is ending: stopping the command"));
        }
        self.end(TERM, by);
    }

    fn obey(&mut self, asked: Asked) {
        match asked {
            Asked::Stop(signal) if self.asked_to_stop.is_none() => {
                self.asked_to_stop = Some(signal);
                self.end(signal, boottime() + self.grace);
            }
            Asked::Stop(signal) | Asked::PassOn(signal) => {
                self.guarded.order(Order::Signal(signal));
            }
        }
    }

    fn end(&mut self, signal: i32, by: Duration) {
        self.end_by = Some(self.end_by.map_or(by, |before| before.min(by)));
        self.guarded.order(Order::End { signal, by });
    }
}

/// Waits until then.
async fn passed(at: Option<Duration>) {
    let Some(at) = at else { return std::future::pending().await };
    loop {
        let left = at.saturating_sub(boottime());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LONGEST_SLEEP)).await;
    }
}
