//! The protocol's statements as SQL, and what their results mean.

use std::time::{Duration, SystemTime};

use mandate_proto::election::RoleId;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::{
    DatabaseAnswer, Holder, PROTOCOL, Published, Reason, SqlGuarantee, Statement, StayId,
    Successors,
};
use mandate_proto::value;

use crate::batch::{Batch, Done, Step, Value};
use crate::error::Trouble;
use crate::rows::{self, ControlRow, RowRequest};
use crate::schema::GROUP_ROLE;

/// So many terms of each group and role are kept in the history.
const HISTORY: i64 = 1000;

/// Which election is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) group: String,
    /// `None` for the group itself.
    pub(crate) role: Option<RoleId>,
}

/// What is written beside what the protocol says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// The lock that shows by its end that the leader's process has ended.
    pub(crate) session: Option<i64>,
    /// Who the member is, for people.
    pub(crate) label: String,
}

impl Key {
    fn role(&self) -> i64 {
        self.role.map_or(GROUP_ROLE, |role| i64::from(role.get()))
    }

    fn values(&self) -> Vec<Value> {
        vec![self.group.as_str().into(), self.role().into()]
    }

    fn with<const N: usize>(&self, more: [Value; N]) -> Vec<Value> {
        let mut values = self.values();
        values.extend(more);
        values
    }
}

fn micros(time: Duration) -> Value {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX).into()
}

fn number(value: u64) -> Value {
    i64::try_from(value).unwrap_or(i64::MAX).into()
}

fn member(id: MemberId) -> Value {
    i64::from(id.get()).into()
}

fn successors(list: &Successors) -> [Value; 3] {
    let mut members = list.iter().map(|id| i64::from(id.get()));
    std::array::from_fn(|_| members.next().into())
}

/// In the database, a reason is a number that never changes its meaning.
pub(crate) fn reason_number(reason: Reason) -> i64 {
    match reason {
        Reason::First => 0,
        Reason::Silence => 1,
        Reason::Lapsed => 2,
        Reason::SessionGone => 3,
        Reason::Resigned => 4,
        Reason::Transferred => 5,
        Reason::TooSlow => 6,
    }
}

pub(crate) fn reason_of(number: i64) -> Option<Reason> {
    Some(match number {
        0 => Reason::First,
        1 => Reason::Silence,
        2 => Reason::Lapsed,
        3 => Reason::SessionGone,
        4 => Reason::Resigned,
        5 => Reason::Transferred,
        6 => Reason::TooSlow,
        _ => return None,
    })
}

fn read_control(key: &Key) -> Step {
    Step::new(
        "select protocol, term, beat, leader, incarnation, reason, round_us, lease_us, successor1, successor2, \
         successor3, preferred, session, fenced_term, leader_value, value_term, request_term, request_to, request_id \
         from mandate_control where group_name = $1 and role = $2",
        key.values(),
    )
}

/// Asks the leader of a term for something, and reads what came of that.
pub(crate) fn request(group: &str, request: &RowRequest) -> Batch {
    let key = Key { group: group.to_owned(), role: None };
    let to = request.to.map(|to| i64::from(to.get()));
    let ask = Step::new(
        "update mandate_control set request_term = $3, request_to = $4, request_id = $5 \
         where group_name = $1 and role = $2 and term = $3 and leader is not null and protocol = 1",
        key.with([number(request.term.get()), to.into(), request.id.into()]),
    );
    Batch { steps: vec![ask, read_control(&key)], atomic: false, announce: None }
}

const RENEW: &str = "update mandate_control set beat = beat + 1, round_us = $7, lease_us = $8, successor1 = $9, \
     successor2 = $10, successor3 = $11, session = $12, fenced_term = $13 where group_name = $1 and role = $2 \
     and term = $3 and beat = $4 and leader = $5 and incarnation = $6 and protocol = 1";

/// The same, and what the leader publishes with its term.
const RENEW_WITH_VALUE: &str = "update mandate_control set beat = beat + 1, round_us = $7, lease_us = $8, successor1 = $9, \
     successor2 = $10, successor3 = $11, session = $12, fenced_term = $13, leader_value = $14, value_term = $3 \
     where group_name = $1 and role = $2 \
     and term = $3 and beat = $4 and leader = $5 and incarnation = $6 and protocol = 1";

const TAKE: &str = "update mandate_control set term = $3, beat = 0, leader = $4, incarnation = $5, reason = $6, round_us = $7, \
     lease_us = $8, successor1 = $9, successor2 = $10, successor3 = $11, session = $12, \
     fenced_term = $17 where group_name = $1 and role = $2 and term = $13 and beat = $14 \
     and leader is not distinct from $15 and incarnation is not distinct from $16 and protocol = 1 and not exists \
     (select 1 from mandate_history h where h.group_name = $1 and h.role = $2 and h.term >= $3)";

/// The same, and what the new leader publishes with its term.
const TAKE_WITH_VALUE: &str = "update mandate_control set term = $3, beat = 0, leader = $4, incarnation = $5, reason = $6, round_us = $7, \
     lease_us = $8, successor1 = $9, successor2 = $10, successor3 = $11, session = $12, \
     fenced_term = $17, leader_value = $18, value_term = $3 where group_name = $1 and role = $2 and term = $13 and beat = $14 \
     and leader is not distinct from $15 and incarnation is not distinct from $16 and protocol = 1 and not exists \
     (select 1 from mandate_history h where h.group_name = $1 and h.role = $2 and h.term >= $3)";

impl Step {
    /// With what a leader publishes as its last value, if it does.
    fn and(mut self, value: Option<&value::Value>) -> Self {
        self.values.extend(value.map(|value| Value::from(value.as_str())));
        self
    }
}

/// What to send for a statement.
pub(crate) fn batch(key: &Key, statement: &Statement, extra: &Extra) -> Batch {
    match statement {
        Statement::Look => Batch::one(read_control(key)),
        Statement::Join { member, score, was_evicted, first, floor } => {
            let score = score.as_ref().map(rows::score_text);
            let row = [score.into(), i64::from(*was_evicted).into(), extra.label.as_str().into()];
            join(key, *member, row, first, *floor)
        }
        Statement::Heartbeat { me, score } => {
            let score = score.as_ref().map(rows::score_text);
            let mut beat = Step::new(
                "update mandate_member set counter = counter + 1, score = $4 \
                 where group_name = $1 and member = $2 and incarnation = $3",
                vec![
                    key.group.as_str().into(),
                    member(me.member),
                    number(me.incarnation.get()),
                    score.into(),
                ],
            );
            beat.relaxed = true;
            Batch { steps: vec![beat, read_control(key)], atomic: false, announce: None }
        }
        Statement::Renew { me, was, publish, value } => {
            let [one, two, three] = successors(&publish.successors);
            let renew = Step::durable(
                if value.is_some() { RENEW_WITH_VALUE } else { RENEW },
                key.with([
                    number(was.term.get()),
                    number(was.beat),
                    member(me.member),
                    number(me.incarnation.get()),
                    micros(publish.round),
                    micros(publish.lease),
                    one,
                    two,
                    three,
                    extra.session.into(),
                    fenced_term(publish, was.term),
                ]),
            );
            let renew = renew.and(value.as_ref());
            Batch { steps: vec![renew, read_control(key)], atomic: false, announce: None }
        }
        Statement::Takeover { me, was, of, term, reason, publish, value } => {
            let said = (publish, value.as_ref());
            takeover(key, (*me, *term, *reason), (was.term, was.beat, *of), said, extra)
        }
        Statement::Vacate { me, was, reason, successors: list } => {
            let [one, two, three] = successors(list);
            let vacate = Step::durable(
                "update mandate_control set beat = beat + 1, leader = null, incarnation = null, session = null, \
                 reason = $7, successor1 = $8, successor2 = $9, successor3 = $10 where group_name = $1 and role = $2 \
                 and term = $3 and beat = $4 and leader = $5 and incarnation = $6 and protocol = 1",
                key.with([
                    number(was.term.get()),
                    number(was.beat),
                    member(me.member),
                    number(me.incarnation.get()),
                    reason_number(*reason).into(),
                    one,
                    two,
                    three,
                ]),
            );
            let announce = Some(key.group.clone());
            Batch { steps: vec![vacate, read_control(key)], atomic: false, announce }
        }
        Statement::Leave { me } => Batch::one(Step::new(
            "delete from mandate_member where group_name = $1 and member = $2 and incarnation = $3",
            vec![key.group.as_str().into(), member(me.member), number(me.incarnation.get())],
        )),
        Statement::Sweep { limit } => Batch::one(Step::new(
            "select member, incarnation, counter, score, was_evicted from mandate_member \
             where group_name = $1 limit $2",
            vec![key.group.as_str().into(), number(*limit as u64)],
        )),
        Statement::Evict { holder, counter } => Batch::one(Step::new(
            "delete from mandate_member where group_name = $1 and member = $2 and incarnation = $3 \
             and counter = $4",
            vec![
                key.group.as_str().into(),
                member(holder.member),
                number(holder.incarnation.get()),
                number(*counter),
            ],
        )),
        Statement::ReadRoles => Batch::one(Step::new(
            "select role, preferred from mandate_control where group_name = $1 and role >= 0 \
             and preferred is not null",
            vec![key.group.as_str().into()],
        )),
        Statement::Prefer { term, changes } => prefer(key, *term, changes),
    }
}

/// The term, if its leader relies on terms alone.
fn fenced_term(publish: &Published, term: Term) -> Value {
    match publish.guarantee {
        SqlGuarantee::Fenced => number(term.get()),
        SqlGuarantee::Leased => Value::Null,
    }
}

/// Makes the control row where there is none, at the highest term that the history, the fence or the caller knows of. Where
/// it is there, nothing is locked: on MySQL an `insert ignore` that finds its row would share it, and who shares a row that the
/// leader wants to renew and then wants to write it himself waits for a leader who waits for him.
pub(crate) fn make_control(key: &Key, first: &Published, floor: Term) -> Step {
    Step::durable(
        "insert new into mandate_control (group_name, role, protocol, term, beat, reason, round_us, lease_us) \
         select $1, $2::bigint, $3::bigint, known.term, 0, 0, $4::bigint, $5::bigint from \
         (select max(t.term) as term from \
         (select term from mandate_history where group_name = $1 and role = $2 \
         union all select term from mandate_fence where group_name = $1 and role = $2 \
         union all select $6::bigint) t) known \
         where not exists (select 1 from mandate_control c where c.group_name = $1 and c.role = $2)",
        key.with([
            i64::from(PROTOCOL).into(),
            micros(first.round),
            micros(first.lease),
            number(floor.get()),
        ]),
    )
}

/// Makes the fence's row where there is none, so that fenced transactions only update it.
fn make_fence(group: Value, role: Value) -> Step {
    Step::new(
        "insert new into mandate_fence (group_name, role, term) \
         select c.group_name, c.role, 0 from mandate_control c where c.group_name = $1 and c.role = $2 \
         and not exists (select 1 from mandate_fence f where f.group_name = $1 and f.role = $2)",
        vec![group, role],
    )
}

fn join(key: &Key, id: MemberId, row: [Value; 3], first: &Published, floor: Term) -> Batch {
    let group = || Value::from(key.group.as_str());
    let [score, was_evicted, label] = row;
    let steps = vec![
        // From here on no other joins this group until this one has.
        Step::durable(
            "insert into mandate_counter (group_name, last) values ($1, 1) \
             on conflict (group_name) do update set last = mandate_counter.last + 1",
            vec![group()],
        ),
        make_control(key, first, floor),
        make_fence(group(), key.role().into()),
        Step::new(
            "delete from mandate_member where group_name = $1 and member = $2",
            vec![group(), member(id)],
        ),
        Step::new(
            "insert into mandate_member (group_name, member, incarnation, counter, score, was_evicted, label) \
             select group_name, $2::bigint, last, 0, $3, $4::bigint, $5 from mandate_counter where group_name = $1",
            vec![group(), member(id), score, was_evicted, label],
        ),
        Step::new("select last from mandate_counter where group_name = $1", vec![group()]),
        read_control(key),
    ];
    Batch { steps, atomic: true, announce: None }
}

fn takeover(
    key: &Key,
    (me, term, reason): (Holder, Term, Reason),
    (was_term, was_beat, of): (Term, u64, Option<Holder>),
    (publish, value): (&Published, Option<&value::Value>),
    extra: &Extra,
) -> Batch {
    let [one, two, three] = successors(&publish.successors);
    let take = Step::durable(
        if value.is_some() { TAKE_WITH_VALUE } else { TAKE },
        key.with([
            number(term.get()),
            member(me.member),
            number(me.incarnation.get()),
            reason_number(reason).into(),
            micros(publish.round),
            micros(publish.lease),
            one,
            two,
            three,
            extra.session.into(),
            number(was_term.get()),
            number(was_beat),
            of.map(|of| i64::from(of.member.get())).into(),
            of.map_or(Value::Null, |of| number(of.incarnation.get())),
            fenced_term(publish, term),
        ]),
    );
    let take = take.and(value);
    // A row that was put back behind the history is made again at the term that the history knows of: everyone waits for leases
    // that may have been lost, and no term is given out twice.
    let raise = Step::durable(
        "update mandate_control set term = (select max(h.term) from mandate_history h where h.group_name = $1 and h.role = $2), \
         beat = 0, leader = null, incarnation = null, session = null, reason = 0 where group_name = $1 and role = $2 \
         and term = $4 and beat = $5 and protocol = 1 and exists \
         (select 1 from mandate_history h where h.group_name = $1 and h.role = $2 and h.term >= $3)",
        key.with([number(term.get()), number(was_term.get()), number(was_beat)]),
    );
    // Written if, and only if, the row is ours now.
    let history = Step::new(
        "insert new into mandate_history \
         (group_name, role, term, leader, incarnation, reason, former, began_ms, label) \
         select group_name, role, term, leader, incarnation, reason, $6::bigint, $7::bigint, $8 from mandate_control \
         where group_name = $1 and role = $2 and term = $3 and beat = 0 and leader = $4 and incarnation = $5",
        key.with([
            number(term.get()),
            member(me.member),
            number(me.incarnation.get()),
            of.map(|of| i64::from(of.member.get())).into(),
            calendar_ms().into(),
            extra.label.as_str().into(),
        ]),
    );
    let oldest = i64::try_from(term.get()).unwrap_or(i64::MAX).saturating_sub(HISTORY);
    let forget = Step::new(
        "delete from mandate_history where group_name = $1 and role = $2 and term < $3",
        key.with([oldest.into()]),
    );
    let steps = vec![take, raise, history, forget, read_control(key)];
    Batch { steps, atomic: true, announce: Some(key.group.clone()) }
}

/// So many steps has each role that is preferred for another.
const PREFERENCE: usize = 3;

/// First the update, and the row only where there is none: see [`make_control`].
fn prefer(key: &Key, term: Term, changes: &[(RoleId, MemberId)]) -> Batch {
    let mut steps = Vec::with_capacity(changes.len() * PREFERENCE);
    for (role, preferred) in changes {
        let (group, role) = (Value::from(key.group.as_str()), Value::from(i64::from(role.get())));
        let values = || vec![group.clone(), role.clone(), member(*preferred), number(term.get())];
        steps.push(Step::new(
            "update mandate_control set preferred = $3 where group_name = $1 and role = $2 and exists \
             (select 1 from (select term from mandate_control where group_name = $1 and role = -1) g \
             where g.term = $4)",
            values(),
        ));
        steps.push(Step::new(
            "insert new into mandate_control \
             (group_name, role, protocol, term, beat, reason, round_us, lease_us, preferred) \
             select g.group_name, $2::bigint, g.protocol, (select coalesce(max(t.term), 0) from \
             (select term from mandate_history where group_name = $1 and role = $2 \
             union all select term from mandate_fence where group_name = $1 and role = $2) t), \
             0, 0, g.round_us, g.lease_us, $3::bigint from mandate_control g \
             where g.group_name = $1 and g.role = -1 and g.term = $4 and not exists \
             (select 1 from mandate_control c where c.group_name = $1 and c.role = $2)",
            values(),
        ));
        steps.push(make_fence(group.clone(), role.clone()));
    }
    Batch { steps, atomic: true, announce: None }
}

/// Raises the terms of a group and of its roles: the leader leads no more, and terms from now on are above this one. A
/// row that says so counts as made again, so that leases that were lost with a database are waited for.
pub(crate) fn raise(key: &Key, above: Term, first: &Published) -> Batch {
    let raise = Step::durable(
        "update mandate_control set term = $2, beat = 0, leader = null, incarnation = null, session = null, reason = 0 \
         where group_name = $1 and term < $2",
        vec![key.group.as_str().into(), number(above.get())],
    );
    let steps = vec![raise, make_control(key, first, above), read_control(key)];
    Batch { steps, atomic: true, announce: Some(key.group.clone()) }
}

fn calendar_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// What the database has answered, and the lock that the leader holds.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) answer: DatabaseAnswer,
    pub(crate) row: Option<ControlRow>,
}

fn answered(changed: bool, row: Option<&ControlRow>) -> DatabaseAnswer {
    DatabaseAnswer::Control {
        changed,
        row: row.map(|row| row.control),
        value: row.and_then(|row| row.value.clone()),
    }
}

/// What the results of a statement's batch mean.
pub(crate) fn reply(statement: &Statement, done: Vec<Done>) -> Result<Reply, Trouble> {
    let last = done.last().map(|done| done.rows.as_slice()).unwrap_or_default();
    let first = done.first().map_or(0, |done| done.changed);
    let plain = |answer| Ok(Reply { answer, row: None });
    match statement {
        Statement::Look => {
            let row = rows::control(last)?;
            Ok(Reply { answer: answered(false, row.as_ref()), row })
        }
        Statement::Heartbeat { .. }
        | Statement::Renew { .. }
        | Statement::Takeover { .. }
        | Statement::Vacate { .. } => {
            let row = rows::control(last)?;
            Ok(Reply { answer: answered(first > 0, row.as_ref()), row })
        }
        Statement::Join { .. } => {
            let number = done.iter().rev().nth(1).and_then(|done| done.rows.first()?.first());
            let (Some(Value::Int(number)), Some(row)) = (number, rows::control(last)?) else {
                return Err(Trouble::refused("what was written on joining is not there"));
            };
            let incarnation = StayId::new(number.unsigned_abs());
            let value = row.value.clone();
            let answer = DatabaseAnswer::Joined { incarnation, row: row.control, value };
            Ok(Reply { answer, row: Some(row) })
        }
        Statement::Leave { .. } | Statement::Evict { .. } => {
            plain(DatabaseAnswer::Written(first > 0))
        }
        Statement::Prefer { .. } => {
            let is_written = |done: &[Done]| done[0].changed + done[1].changed > 0;
            plain(DatabaseAnswer::Written(done.chunks_exact(PREFERENCE).all(is_written)))
        }
        Statement::Sweep { .. } => plain(DatabaseAnswer::Members(rows::members(last)?)),
        Statement::ReadRoles => plain(DatabaseAnswer::Roles(rows::roles(last)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_as_they_were_written() {
        for number in 0..7 {
            assert_eq!(reason_of(number).map(reason_number), Some(number));
        }
        assert_eq!(reason_of(7), None);
    }
}
