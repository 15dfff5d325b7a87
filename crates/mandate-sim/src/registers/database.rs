//! A database as its clients see it: one that takes its time.
//!
//! Each statement takes effect at one instant, some time after it has arrived and some time before its
//! answer is read. Writes of the control row queue behind the session that holds its lock. Some statements are slow;
//! some fail, and say so; of some the connection breaks before or after they took effect. A statement
//! that its client has given up is carried out all the same.

use core::time::Duration;
use std::collections::VecDeque;

use mandate_proto::identity::{Incarnation, MemberId};
use mandate_proto::machine::{Effect, Effects};
use mandate_proto::registers::{
    DatabaseAnswer, Holder, Published, Statement, StatementOutcome, Version,
};
use mandate_proto::time::Instant;

use super::tables::{Flaws, Tables};
use super::{Message, NodeEffect, NodeEvent};
use crate::random::{Random, Stream};

/// How the database behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strain {
    /// How long a statement takes, on average,
    pub mean: Duration,
    /// and at most, unless it is slow.
    pub most: Duration,
    /// How many are slow,
    pub slow_share: f64,
    /// and how long those take, on average.
    pub slow: Duration,
    /// How many fail.
    pub failing: f64,
    /// Of how many the connection breaks, before or after they took effect.
    pub broken: f64,
}

impl Strain {
    /// Everything is carried out within `most`.
    pub fn calm(most: Duration) -> Self {
        let mean = most / 4;
        Strain { mean, most, slow_share: 0.0, slow: Duration::ZERO, failing: 0.0, broken: 0.0 }
    }
}

/// What can befall a database.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// It behaves like this from now on, and so do statements under way.
    Strain(Strain),
    /// A stranger holds the lock of the control row for this long.
    Locked(Duration),
    /// It is restarted: statements under way are gone, rows are kept.
    Reset,
    /// The leader of the group prefers this one for the role.
    Prefer(Option<MemberId>),
    /// The control row is removed. That of a role is made again at once, as the group's leader would.
    Vanish {
        /// The other tables are removed with it.
        history: bool,
    },
    /// The control row alone is put back to what it was so many control writes ago.
    RestoreRow {
        /// How many.
        writes: usize,
    },
    /// It is put back to what it was so many control writes ago.
    Restore {
        /// How many.
        writes: usize,
        /// How long it does not answer before it comes back.
        down: Duration,
    },
}

impl Trouble {
    /// Whether what is known of earlier terms may be lost with it.
    pub(super) fn loses_history(&self) -> bool {
        matches!(self, Trouble::Vanish { history: true } | Trouble::Restore { .. })
    }
}

/// How many earlier states can be restored.
const BACKUPS: usize = 64;

/// How a simulated database is set up.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseConfig {
    /// How it behaves.
    pub strain: Strain,
    /// Conditions left out on purpose.
    pub flaws: Flaws,
    /// Whether earlier states are kept.
    pub has_backups: bool,
    /// Whether members are told when the control row was written.
    pub notifies: bool,
    /// What the control row says at first, if it is there before any member, as that of a role is.
    pub row: Option<Published>,
}

struct Pending {
    at: Instant,
    from: MemberId,
    life: Incarnation,
    id: u64,
    statement: Statement,
}

/// The database.
pub struct DatabaseModel {
    config: DatabaseConfig,
    tables: Tables,
    pending: Vec<Pending>,
    locked_until: Instant,
    down_until: Instant,
    random: Random,
    backups: VecDeque<Tables>,
    /// How many statements were carried out.
    pub carried_out: u64,
}

impl DatabaseModel {
    pub(super) fn new(config: DatabaseConfig, seed: Incarnation) -> Self {
        DatabaseModel {
            tables: Tables::with_row(config.row),
            config,
            pending: Vec::new(),
            locked_until: Instant::ORIGIN,
            down_until: Instant::ORIGIN,
            random: Random::new(seed.get(), Stream::Register),
            backups: VecDeque::new(),
            carried_out: 0,
        }
    }

    /// The rows.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    pub(super) fn request(
        &mut self,
        (from, life, id): (MemberId, Incarnation, u64),
        statement: Statement,
        now: Instant,
    ) {
        let strain = &self.config.strain;
        let mut at = match self.random.chance(strain.slow_share) {
            true => now + self.random.exponential(strain.slow),
            false => now + self.random.exponential(strain.mean).min(strain.most),
        };
        if now < self.down_until {
            return;
        }
        if statement.replaces().is_some() {
            at = at.max(self.locked_until);
        }
        self.pending.push(Pending { at, from, life, id, statement });
    }

    /// Takes trouble; whether the control row went back, or is gone. (A copy may also be of before an earlier loss, and newer than what
    /// it replaces.)
    pub(super) fn trouble(&mut self, trouble: Trouble, now: Instant) -> bool {
        let before = self.state();
        match trouble {
            Trouble::Strain(strain) => {
                self.config.strain = strain;
                self.locked_until = now;
                for pending in &mut self.pending {
                    pending.at = pending.at.min(now + strain.most);
                }
            }
            Trouble::Locked(duration) => {
                self.locked_until = now + duration;
                for pending in &mut self.pending {
                    if pending.statement.replaces().is_some() {
                        pending.at = pending.at.max(self.locked_until);
                    }
                }
            }
            Trouble::Reset => {
                self.pending.clear();
                self.locked_until = now;
            }
            Trouble::Prefer(preferred) => {
                if let Some(row) = &mut self.tables.control {
                    row.preferred = preferred;
                }
            }
            Trouble::Vanish { history } => self.tables.remove_control(history, self.config.row),
            Trouble::RestoreRow { writes } => {
                let place = self.backups.len().checked_sub(writes + 1);
                if let Some(copy) = place.and_then(|place| self.backups.get(place)) {
                    self.tables.restore_control(copy);
                }
            }
            Trouble::Restore { writes, down } => {
                self.pending.clear();
                self.locked_until = now;
                self.down_until = now + down;
                let kept = self.backups.len().saturating_sub(writes);
                self.backups.truncate(kept);
                if let Some(tables) = self.backups.back() {
                    self.tables = tables.clone();
                }
            }
        }
        before.is_some_and(|before| self.state().is_none_or(|state| state.0 < before.0))
    }

    pub(super) fn carry_out_due(&mut self, now: Instant, effects: &mut Effects<NodeEffect>) {
        while let Some(place) = self.next_due(now) {
            let Pending { from, life, id, statement, .. } = self.pending.swap_remove(place);
            let strain = self.config.strain;
            let failed = self.random.chance(strain.failing);
            let broken = self.random.chance(strain.broken);
            let outcome = match (failed, broken, self.random.chance(0.5)) {
                (true, _, _) => Some(StatementOutcome::Failed),
                (_, true, applied) => {
                    if applied {
                        self.apply(&statement, effects);
                    }
                    // Its client is told that the connection broke, or has to wait in vain.
                    self.random.chance(0.5).then_some(StatementOutcome::Unknown)
                }
                _ => Some(StatementOutcome::Answered(self.apply(&statement, effects))),
            };
            if let Some(outcome) = outcome {
                let message = Message::Reply { life, id, outcome };
                effects.push(Effect::Send { to: from, message });
            }
        }
    }

    fn apply(
        &mut self,
        statement: &Statement,
        effects: &mut Effects<NodeEffect>,
    ) -> DatabaseAnswer {
        self.carried_out += 1;
        let before = self.version();
        let answer = self.tables.apply(statement, self.config.flaws);
        if self.version() != before {
            effects.push(Effect::Tell(NodeEvent::Written(self.tables.control)));
            if self.config.notifies {
                effects.push(Effect::Broadcast(Message::Notification));
            }
            if self.config.has_backups {
                self.backups.push_back(self.tables.clone());
                if self.backups.len() > BACKUPS {
                    self.backups.pop_front();
                }
            }
        }
        answer
    }

    fn state(&self) -> Option<(Version, Option<Holder>)> {
        self.tables.control.map(|row| (row.version, row.leader))
    }

    fn version(&self) -> Option<Version> {
        self.tables.control.map(|row| row.version)
    }

    /// Of what is due, what was due first; of what was due at once, what came first.
    fn next_due(&self, now: Instant) -> Option<usize> {
        let due = self.pending.iter().enumerate().filter(|(_, pending)| pending.at <= now);
        due.min_by_key(|(_, pending)| (pending.at, pending.id, pending.from))
            .map(|(place, _)| place)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.at).min()
    }
}
