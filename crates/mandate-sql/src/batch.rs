//! What is sent to a database: a few statements, whole, without waiting for an answer in between.
//!
//! The text is PostgreSQL's, with `$1`, `$2` for values. The dialects rewrite what they write differently:
//! SQLite and MySQL have no `::bigint`, MySQL says `<=>` for `is not distinct from`, and everyone has a way of
//! their own to insert a row unless it is there, or to change it if it is.

/// A value that is sent or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Text(String),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        value.map_or(Value::Null, Value::Int)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.to_owned())
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        value.map_or(Value::Null, Value::Text)
    }
}

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) sql: &'static str,
    pub(crate) values: Vec<Value>,
    /// Nothing is lost if it is forgotten in a crash of the database.
    pub(crate) relaxed: bool,
    /// It decides something: its transaction is acknowledged when it is on disk, whatever the database or the role has set.
    pub(crate) durable: bool,
}

/// A few statements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Batch {
    pub(crate) steps: Vec<Step>,
    /// In one transaction.
    pub(crate) atomic: bool,
    /// Tell everyone who listens to this group that its row has changed, if it has.
    pub(crate) announce: Option<String>,
}

/// What became of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Done {
    /// Rows that were written.
    pub(crate) changed: u64,
    /// Rows that were read.
    pub(crate) rows: Vec<Vec<Value>>,
}

impl Step {
    pub(crate) fn new(sql: &'static str, values: Vec<Value>) -> Self {
        Step { sql, values, relaxed: false, durable: false }
    }

    /// One that decides something.
    pub(crate) fn durable(sql: &'static str, values: Vec<Value>) -> Self {
        Step { durable: true, ..Step::new(sql, values) }
    }

    pub(crate) fn is_read(&self) -> bool {
        self.sql.starts_with("select")
    }
}

impl Batch {
    pub(crate) fn one(step: Step) -> Self {
        Batch { steps: vec![step], atomic: false, announce: None }
    }
}

/// How a statement that inserts unless the row is there begins.
const INSERT_NEW: &str = "insert new into";

/// What a row that was to be inserted and is there is changed to.
const OR_CHANGE: &str = "on conflict (group_name) do update set";

/// Has a transaction acknowledged only when it is on disk, where the database or the role says otherwise. Who waits for
/// standbys as well (`remote_write`, `remote_apply`) goes on doing so. Of this transaction alone, so that nothing of it stays in
/// the session, which a pooler may give to others.
const SYNCHRONOUS: &str = " returning case when current_setting('synchronous_commit') in ('off', 'local') \
                           then set_config('synchronous_commit', 'on', true) end";

/// The text for PostgreSQL.
pub(crate) fn postgres(step: &Step) -> String {
    let mut text = inserted(step.sql, "on conflict do nothing");
    if step.relaxed {
        // Of this transaction alone.
        text += " returning set_config('synchronous_commit', 'off', true)";
    } else if step.durable {
        text += SYNCHRONOUS;
    }
    text
}

/// The text for SQLite.
pub(crate) fn sqlite(sql: &str) -> String {
    inserted(sql, "on conflict do nothing").replace("::bigint", "").replace('$', "?")
}

fn inserted(sql: &str, suffix: &str) -> String {
    match sql.strip_prefix(INSERT_NEW) {
        Some(rest) => format!("insert into{rest} {suffix}"),
        None => sql.to_owned(),
    }
}

/// The text for MySQL, values and all: so that a batch is sent whole.
pub(crate) fn mysql(step: &Step) -> String {
    let text = match step.sql.strip_prefix(INSERT_NEW) {
        Some(rest) => format!("insert ignore into{rest}"),
        None => step.sql.to_owned(),
    };
    let text = text.replace("::bigint", "").replace("is not distinct from", "<=>");
    let text = text.replace(OR_CHANGE, "on duplicate key update");
    let mut written = String::with_capacity(text.len() * 2);
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('$') {
        written += before;
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let place: usize = after[..digits].parse().unwrap_or(0);
        match step.values.get(place.wrapping_sub(1)) {
            Some(value) => written += &literal(value),
            None => written += "null",
        }
        rest = &after[digits..];
    }
    written + rest
}

/// Text as hexadecimal digits: nothing in it can end it early.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) if text.is_empty() => "''".into(),
        Value::Text(text) => {
            let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            format!("_utf8mb4 x'{digits}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_is_written_in_three_dialects() {
        let values = vec!["it's".into(), Value::Null, 7.into()];
        let step = Step::new(
            "insert new into t (a, b) select $1, $2::bigint where $3 is not distinct from c",
            values,
        );
        assert_eq!(
            postgres(&step),
            "insert into t (a, b) select $1, $2::bigint where $3 is not distinct from c \
             on conflict do nothing"
        );
        assert_eq!(
            sqlite(step.sql),
            "insert into t (a, b) select ?1, ?2 where ?3 is not distinct from c on conflict do nothing"
        );
        assert_eq!(
            mysql(&step),
            "insert ignore into t (a, b) select _utf8mb4 x'69742773', null where 7 <=> c"
        );
    }
}
