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

    /// MySQL says of each answer what it is.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
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

/// The text, with the dialect's way to insert a row unless it is there: how that begins and ends.
pub(crate) fn with_insert(sql: &str, begin: &str, end: &str) -> String {
    match sql.strip_prefix(INSERT_NEW) {
        Some(rest) => format!("{begin}{rest}{end}"),
        None => sql.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Step, Value};

    /// What every dialect writes in its own way.
    pub(crate) fn example() -> Step {
        let sql = "insert new into t (a, b) select $1, $2::bigint where $3 is not distinct from c";
        Step::new(sql, vec!["it's".into(), Value::Null, 7.into()])
    }
}
