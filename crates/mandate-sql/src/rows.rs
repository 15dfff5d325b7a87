//! What rows say.
//!
//! Anyone who may write to the tables may write nonsense. It is refused with a name, and decides nothing.

use std::time::Duration;

use mandate_proto::election::RoleId;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::{
    ControlState, Holder, MemberRow, Published, SqlGuarantee, StayId, Version,
};
use mandate_proto::score::Score;
use mandate_proto::value;

use crate::batch::Value;
use crate::error::Trouble;
use crate::statements::reason_of;

/// A control row, and what is written beside it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControlRow {
    pub(crate) control: ControlState,
    /// The lock that the leader's process holds, if it holds one.
    pub(crate) session: Option<i64>,
    /// What a leader has published, and in which term: an earlier one perhaps.
    pub(crate) value: Option<(Term, value::Value)>,
    /// What the leader of a term was asked for last: an earlier one perhaps.
    pub(crate) request: Option<RowRequest>,
}

/// What an operator asks of a leader by way of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowRequest {
    /// In this term or not at all.
    pub(crate) term: Term,
    /// Whom to hand leadership over to; to the others, unless told.
    pub(crate) to: Option<MemberId>,
    /// Drawn at random: tells it from another with the same wish.
    pub(crate) id: i64,
}

/// The control row that was read, if there is one.
pub(crate) fn control(rows: &[Vec<Value>]) -> Result<Option<ControlRow>, Trouble> {
    let Some(row) = rows.first() else { return Ok(None) };
    let row = Row { table: "mandate_control", cells: row };
    let member = |place, name| Ok::<_, Trouble>(row.optional(place, name)?.map(MemberId::new));
    let leader = match (member(3, "leader")?, row.optional(4, "incarnation")?) {
        (Some(member), Some(incarnation)) => {
            Some(Holder { member, incarnation: StayId::new(incarnation) })
        }
        (None, None) => None,
        _ => return Err(row.nonsense("leader and incarnation go together")),
    };
    let successors =
        [member(8, "successor1")?, member(9, "successor2")?, member(10, "successor3")?];
    let reason: i64 = row.number(5, "reason")?;
    let term = Term::new(row.number(1, "term")?);
    // Of this very term: members of a version that does not know the column leave in it what was there.
    let guarantee = match row.optional(13, "fenced_term")?.map(Term::new) {
        Some(fenced) if fenced == term => SqlGuarantee::Fenced,
        _ => SqlGuarantee::Leased,
    };
    let control = ControlState {
        protocol: row.number(0, "protocol")?,
        version: Version { term, beat: row.number(2, "beat")? },
        leader,
        reason: reason_of(reason).ok_or_else(|| row.nonsense("an unknown reason"))?,
        published: Published {
            successors: successors.into_iter().flatten().collect(),
            round: Duration::from_micros(row.number(6, "round_us")?),
            lease: Duration::from_micros(row.number(7, "lease_us")?),
            guarantee,
        },
        preferred: member(11, "preferred")?,
    };
    let (session, value) = (row.optional(12, "session")?, published(row.cells));
    let (term, id) = (row.optional(16, "request_term")?, row.optional(18, "request_id")?);
    let to = member(17, "request_to")?;
    let request = term.zip(id).map(|(term, id)| RowRequest { term: Term::new(term), to, id });
    Ok(Some(ControlRow { control, session, value, request }))
}

/// What a leader has published. What is no value decides nothing, and is not shown.
fn published(cells: &[Value]) -> Option<(Term, value::Value)> {
    match (cells.get(14)?, cells.get(15)?) {
        (Value::Text(text), Value::Int(term)) => {
            Some((Term::new(u64::try_from(*term).ok()?), value::Value::new(text).ok()?))
        }
        _ => None,
    }
}

/// The rows of members.
pub(crate) fn members(rows: &[Vec<Value>]) -> Result<Vec<MemberRow>, Trouble> {
    rows.iter().map(|cells| member_row(cells)).collect()
}

pub(crate) fn member_row(cells: &[Value]) -> Result<MemberRow, Trouble> {
    let row = Row { table: "mandate_member", cells };
    Ok(MemberRow {
        holder: Holder {
            member: MemberId::new(row.number(0, "member")?),
            incarnation: StayId::new(row.number(1, "incarnation")?),
        },
        counter: row.number(2, "counter")?,
        score: match row.cells.get(3) {
            Some(Value::Text(text)) => {
                Some(score_of(text).ok_or_else(|| row.nonsense("a score that is none"))?)
            }
            _ => None,
        },
        was_evicted: row.number::<u64>(4, "was_evicted")? != 0,
    })
}

/// Who is preferred for each role.
pub(crate) fn roles(rows: &[Vec<Value>]) -> Result<Vec<(RoleId, MemberId)>, Trouble> {
    let role = |cells: &Vec<Value>| {
        let row = Row { table: "mandate_control", cells };
        let role = RoleId::new(row.number(0, "role")?);
        Ok((role, MemberId::new(row.number(1, "preferred")?)))
    };
    rows.iter().map(role).collect()
}

/// The longest text that a column takes.
pub(crate) const MAX_TEXT: usize = 255;

/// A score as text: its components, such that they are read as they were. With exponents: a figure that is unknown counts
/// as the least that there is, which is 309 digits otherwise, and does not fit.
pub(crate) fn score_text(score: &Score) -> String {
    let parts: Vec<_> = score.components().iter().map(|part| format!("{part:e}")).collect();
    parts.join(",")
}

fn score_of(text: &str) -> Option<Score> {
    if text.is_empty() {
        return Score::new(&[]).ok();
    }
    let parts: Result<Vec<f64>, _> = text.split(',').map(str::parse).collect();
    Score::new(&parts.ok()?).ok()
}

/// The cells of a row, and whose they are.
pub(crate) struct Row<'a> {
    pub(crate) table: &'static str,
    pub(crate) cells: &'a [Value],
}

impl Row<'_> {
    pub(crate) fn nonsense(&self, what: &str) -> Trouble {
        Trouble::refused(format!("a row of {} makes no sense: {what}", self.table))
    }

    pub(crate) fn optional<T: TryFrom<i64>>(
        &self,
        place: usize,
        name: &str,
    ) -> Result<Option<T>, Trouble> {
        match self.cells.get(place) {
            Some(Value::Null) => Ok(None),
            Some(Value::Int(number)) => match T::try_from(*number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(self.nonsense(&format!("{name} is {number}"))),
            },
            Some(Value::Text(_)) | None => Err(self.nonsense(&format!("{name} is no number"))),
        }
    }

    pub(crate) fn number<T: TryFrom<i64>>(&self, place: usize, name: &str) -> Result<T, Trouble> {
        let number = self.optional(place, name)?;
        number.ok_or_else(|| self.nonsense(&format!("{name} is missing")))
    }

    pub(crate) fn text(&self, place: usize) -> String {
        match self.cells.get(place) {
            Some(Value::Text(text)) => text.clone(),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_proto::score::MAX_COMPONENTS;
    use proptest::prelude::*;

    #[test]
    fn scores_are_read_as_they_were_written() {
        for components in [&[][..], &[1.5], &[-0.1, 1e300, f64::MIN_POSITIVE]] {
            let score = Score::new(components).unwrap();
            assert_eq!(score_of(&score_text(&score)), Some(score));
        }
        assert_eq!(
            score_of("-17.5,1e3"),
            Score::new(&[-17.5, 1000.0]).ok(),
            "as it was written before"
        );
        assert_eq!(score_of("NaN"), None);
        assert_eq!(score_of("1;2"), None);
    }

    proptest! {
        /// Every finite number there is, the longest among them.
        #[test]
        fn every_score_fits_its_column(
            bits in prop::collection::vec(any::<u64>(), 0..=MAX_COMPONENTS),
            longest in prop::collection::vec(any::<bool>(), MAX_COMPONENTS),
        ) {
            let part = |(bits, longest): (&u64, &bool)| match (f64::from_bits(*bits), longest) {
                (part, false) if part.is_finite() => part,
                _ => f64::MIN,
            };
            let parts: Vec<f64> = bits.iter().zip(&longest).map(part).collect();
            let score = Score::new(&parts).unwrap();
            let text = score_text(&score);
            prop_assert!(text.len() <= MAX_TEXT, "{}", text);
            prop_assert_eq!(score_of(&text), Some(score));
        }
    }

    #[test]
    fn a_row_that_makes_no_sense_is_refused_by_name() {
        let mut cells: Vec<Value> =
            [1, 7, 3].into_iter().map(Value::Int).chain(vec![Value::Null; 11]).collect();
        cells[5] = Value::Int(0);
        cells[6] = Value::Int(2_000_000);
        cells[7] = Value::Int(-1);
        let error = control(&[cells.clone()]).unwrap_err();
        assert!(error.reason.contains("lease_us is -1"), "{error:?}");
        cells[7] = Value::Int(1);
        assert_eq!(control(&[cells.clone()]).unwrap().unwrap().control.leader, None);
        for (fenced, guarantee) in [(6, SqlGuarantee::Leased), (7, SqlGuarantee::Fenced)] {
            cells[13] = Value::Int(fenced);
            let row = control(&[cells.clone()]).unwrap().unwrap().control;
            assert_eq!(row.published.guarantee, guarantee, "what is said of another term is void");
        }
        cells[3] = Value::Int(4);
        assert!(control(&[cells]).is_err(), "a leader without an incarnation");
    }
}
