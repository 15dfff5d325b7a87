//! The rows, and what each statement does to them at one instant.

use std::collections::BTreeMap;

use mandate_proto::election::RoleId;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::{
    ControlState, DatabaseAnswer, Holder, MemberRow, PROTOCOL, Published, Reason, Statement,
    StayId, Version,
};
use mandate_proto::value::Value;

/// A group's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    /// The control row.
    pub control: Option<ControlState>,
    /// The value in it, and the term in which that was published.
    pub value: Option<(Term, Value)>,
    /// The rows of members.
    pub members: BTreeMap<MemberId, MemberRow>,
    /// Whom the leader prefers for each role.
    pub roles: BTreeMap<RoleId, MemberId>,
    /// The highest term that the history knows of.
    history: Term,
    given: u64,
}

/// A condition that is left out on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flaws {
    /// A takeover compares the term only.
    pub takeover_ignores_beat: bool,
    /// A renewal compares the term only.
    pub renewal_ignores_beat: bool,
    /// A takeover gives out a term that the history has.
    pub takeover_ignores_history: bool,
}

impl Tables {
    /// With a control row that says this at first, or without any.
    pub(super) fn with_row(published: Option<Published>) -> Self {
        let control = published.map(|published| first_row(published, Term::NONE));
        Tables { control, ..Tables::default() }
    }

    /// The control row is removed; with `history`, everything is. `again` is what is made in its place at once.
    pub(super) fn remove_control(&mut self, history: bool, again: Option<Published>) {
        if history {
            *self = Tables::default();
        }
        self.control = again.map(|published| first_row(published, self.history));
        self.value = None;
    }

    /// The control row alone is put back to what it was in a copy.
    pub(super) fn restore_control(&mut self, copy: &Tables) {
        self.control = copy.control;
        self.value = copy.value.clone();
    }

    /// Carries a statement out.
    pub fn apply(&mut self, statement: &Statement, flaws: Flaws) -> DatabaseAnswer {
        match statement {
            Statement::Look => self.control(false),
            Statement::Join { member, score, was_evicted, first, floor } => {
                self.given += 1;
                let incarnation = StayId::new(self.given);
                let holder = Holder { member: *member, incarnation };
                let was_evicted = *was_evicted;
                let row = MemberRow { holder, counter: 0, score: *score, was_evicted };
                self.members.insert(*member, row);
                let term = self.history.max(*floor);
                let row = *self.control.get_or_insert_with(|| first_row(*first, term));
                DatabaseAnswer::Joined { incarnation, row, value: self.value.clone() }
            }
            Statement::Heartbeat { me, score } => {
                let row = self.members.get_mut(&me.member).filter(|row| row.holder == *me);
                let changed = row.is_some();
                if let Some(row) = row {
                    row.counter += 1;
                    row.score = *score;
                }
                self.control(changed)
            }
            Statement::Renew { me, was, publish, value } => {
                let any_beat = flaws.renewal_ignores_beat;
                let answer = self.write((*was, Some(*me)), any_beat, |row| {
                    row.version.beat += 1;
                    row.published = *publish;
                });
                self.publish(answer, was.term, value.as_ref())
            }
            Statement::Takeover { me, was, of, term, reason, publish, value } => {
                let any_beat = flaws.takeover_ignores_beat;
                if self.history >= *term && !flaws.takeover_ignores_history {
                    return self.raise((*was, *of));
                }
                let answer = self.write((*was, *of), any_beat, |row| {
                    row.version = Version { term: *term, beat: 0 };
                    row.leader = Some(*me);
                    row.reason = *reason;
                    row.published = *publish;
                });
                if matches!(answer, DatabaseAnswer::Control { changed: true, .. }) {
                    self.history = self.history.max(*term);
                }
                self.publish(answer, *term, value.as_ref())
            }
            Statement::Vacate { me, was, reason, successors } => {
                self.write((*was, Some(*me)), false, |row| {
                    row.version.beat += 1;
                    row.leader = None;
                    row.reason = *reason;
                    row.published.successors = *successors;
                })
            }
            Statement::Leave { me } => self.remove(*me, None),
            Statement::Evict { holder, counter } => self.remove(*holder, Some(*counter)),
            Statement::Sweep { limit } => {
                DatabaseAnswer::Members(self.members.values().take(*limit).copied().collect())
            }
            Statement::ReadRoles => {
                DatabaseAnswer::Roles(self.roles.iter().map(|(role, id)| (*role, *id)).collect())
            }
            Statement::Prefer { term, changes } => {
                let changed = self.control.is_some_and(|row| row.version.term == *term);
                if changed {
                    self.roles.extend(changes.iter().copied());
                }
                DatabaseAnswer::Written(changed)
            }
        }
    }

    /// The control row went back behind the history: it is made again at the term that the history knows of.
    fn raise(&mut self, expected: (Version, Option<Holder>)) -> DatabaseAnswer {
        let term = self.history;
        self.write(expected, false, |row| {
            *row = ControlState { preferred: row.preferred, ..first_row(row.published, term) }
        });
        self.control(false)
    }

    fn control(&self, changed: bool) -> DatabaseAnswer {
        DatabaseAnswer::Control { changed, row: self.control, value: self.value.clone() }
    }

    /// The same write puts a value into the row, if it carries one.
    fn publish(
        &mut self,
        answer: DatabaseAnswer,
        term: Term,
        value: Option<&Value>,
    ) -> DatabaseAnswer {
        match (answer, value) {
            (DatabaseAnswer::Control { changed: true, .. }, Some(value)) => {
                self.value = Some((term, value.clone()));
                self.control(true)
            }
            (answer, _) => answer,
        }
    }

    fn write(
        &mut self,
        (was, leader): (Version, Option<Holder>),
        any_beat: bool,
        change: impl FnOnce(&mut ControlState),
    ) -> DatabaseAnswer {
        let matches = |row: &&mut ControlState| {
            let same = match any_beat {
                true => row.version.term == was.term,
                false => row.version == was,
            };
            same && row.leader == leader
        };
        let row = self.control.as_mut().filter(matches);
        let changed = row.is_some();
        if let Some(row) = row {
            change(row);
        }
        self.control(changed)
    }

    fn remove(&mut self, holder: Holder, counter: Option<u64>) -> DatabaseAnswer {
        let row = self.members.get(&holder.member);
        let matches = row.is_some_and(|row| {
            row.holder == holder && counter.is_none_or(|counter| row.counter == counter)
        });
        if matches {
            self.members.remove(&holder.member);
        }
        DatabaseAnswer::Written(matches)
    }
}

fn first_row(published: Published, term: Term) -> ControlState {
    ControlState {
        protocol: PROTOCOL,
        version: Version { term, beat: 0 },
        leader: None,
        reason: Reason::First,
        published,
        preferred: None,
    }
}
