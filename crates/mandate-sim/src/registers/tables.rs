//! The rows, and what each statement does to them at one instant.

use std::collections::BTreeMap;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::{
    Answer, Control, Holder, Incarnation, MemberRow, PROTOCOL, Published, Reason, RoleId,
    Statement, Version,
};

/// A group's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    /// The control row.
    pub control: Option<Control>,
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
    }

    /// Carries a statement out.
    pub fn apply(&mut self, statement: &Statement, flaws: Flaws) -> Answer {
        match statement {
            Statement::Look => self.control(false),
            Statement::Join { member, score, was_evicted, first, floor } => {
                self.given += 1;
                let incarnation = Incarnation::new(self.given);
                let holder = Holder { member: *member, incarnation };
                let was_evicted = *was_evicted;
                let row = MemberRow { holder, counter: 0, score: *score, was_evicted };
                self.members.insert(*member, row);
                let term = self.history.max(*floor);
                let row = *self.control.get_or_insert_with(|| first_row(*first, term));
                Answer::Joined { incarnation, row }
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
            Statement::Renew { me, was, publish } => {
                let any_beat = flaws.renewal_ignores_beat;
                self.write((*was, Some(*me)), any_beat, |row| {
                    row.version.beat += 1;
                    row.published = *publish;
                })
            }
            Statement::Takeover { me, was, of, term, reason, publish } => {
                let any_beat = flaws.takeover_ignores_beat;
                let answer = self.write((*was, *of), any_beat, |row| {
                    row.version = Version { term: *term, beat: 0 };
                    row.leader = Some(*me);
                    row.reason = *reason;
                    row.published = *publish;
                });
                if matches!(answer, Answer::Control { changed: true, .. }) {
                    self.history = self.history.max(*term);
                }
                answer
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
                Answer::Members(self.members.values().take(*limit).copied().collect())
            }
            Statement::ReadRoles => {
                Answer::Roles(self.roles.iter().map(|(role, id)| (*role, *id)).collect())
            }
            Statement::Prefer { term, changes } => {
                let changed = self.control.is_some_and(|row| row.version.term == *term);
                if changed {
                    self.roles.extend(changes.iter().copied());
                }
                Answer::Written(changed)
            }
        }
    }

    fn control(&self, changed: bool) -> Answer {
        Answer::Control { changed, row: self.control }
    }

    fn write(
        &mut self,
        (was, leader): (Version, Option<Holder>),
        any_beat: bool,
        change: impl FnOnce(&mut Control),
    ) -> Answer {
        let matches = |row: &&mut Control| {
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

    fn remove(&mut self, holder: Holder, counter: Option<u64>) -> Answer {
        let row = self.members.get(&holder.member);
        let matches = row.is_some_and(|row| {
            row.holder == holder && counter.is_none_or(|counter| row.counter == counter)
        });
        if matches {
            self.members.remove(&holder.member);
        }
        Answer::Written(matches)
    }
}

fn first_row(published: Published, term: Term) -> Control {
    Control {
        protocol: PROTOCOL,
        version: Version { term, beat: 0 },
        leader: None,
        reason: Reason::First,
        published,
        preferred: None,
    }
}
