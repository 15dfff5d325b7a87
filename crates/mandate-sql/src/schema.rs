//! The tables, and how they come to be.
//!
//! Everything is a whole number or short text: times are microseconds, calendar times milliseconds since 1970.
//! Rows are small and hot. PostgreSQL keeps room in their pages, so that a renewal touches no index.

use crate::batch::{Step, Value};

/// Which tables these are. `mandate_schema` holds the number that was made last.
pub const VERSION: i64 = 1;

/// Whom a control row with this role is about: the group itself.
pub(crate) const GROUP_ROLE: i64 = -1;

/// Which dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
}

/// What makes the tables, statement by statement; harmless where they are.
pub fn statements(dialect: Dialect) -> Vec<String> {
    let name = match dialect {
        Dialect::Sqlite | Dialect::Postgres => "text",
        // Primary keys of InnoDB need a length.
        Dialect::MySql => "varchar(64) character set utf8mb4 collate utf8mb4_bin",
    };
    let text = match dialect {
        Dialect::Sqlite | Dialect::Postgres => "text",
        Dialect::MySql => "varchar(255) character set utf8mb4 collate utf8mb4_bin",
    };
    let (hot, cold) = match dialect {
        Dialect::Sqlite => (" without rowid", " without rowid"),
        Dialect::Postgres => (" with (fillfactor = 40)", ""),
        Dialect::MySql => (" engine = InnoDB", " engine = InnoDB"),
    };
    let mut statements = vec![
        format!(
            "create table if not exists mandate_schema (version bigint not null primary key){cold}"
        ),
        format!(
            "create table if not exists mandate_control (\n  group_name {name} not null,\n  role bigint not null,\n  \
             protocol bigint not null,\n  term bigint not null,\n  beat bigint not null,\n  leader bigint,\n  \
             incarnation bigint,\n  reason bigint not null,\n  round_us bigint not null,\n  lease_us bigint not null,\n  \
             successor1 bigint,\n  successor2 bigint,\n  successor3 bigint,\n  preferred bigint,\n  session bigint,\n  \
             primary key (group_name, role)\n){hot}"
        ),
        format!(
            "create table if not exists mandate_member (\n  group_name {name} not null,\n  member bigint not null,\n  \
             incarnation bigint not null,\n  counter bigint not null,\n  score {text},\n  was_evicted bigint not null,\n  \
             label {text} not null,\n  primary key (group_name, member)\n){hot}"
        ),
        format!(
            "create table if not exists mandate_counter (\n  group_name {name} not null primary key,\n  \
             last bigint not null\n){cold}"
        ),
        format!(
            "create table if not exists mandate_history (\n  group_name {name} not null,\n  role bigint not null,\n  \
             term bigint not null,\n  leader bigint not null,\n  incarnation bigint not null,\n  \
             reason bigint not null,\n  former bigint,\n  began_ms bigint not null,\n  label {text} not null,\n  \
             primary key (group_name, role, term)\n){cold}"
        ),
        format!(
            "create table if not exists mandate_fence (\n  group_name {name} not null,\n  role bigint not null,\n  \
             term bigint not null,\n  touched bigint not null default 0,\n  primary key (group_name, role)\n){hot}"
        ),
    ];
    statements.extend(crate::fence::functions(dialect));
    statements.push(match dialect {
        Dialect::Sqlite | Dialect::Postgres => {
            format!(
                "insert into mandate_schema (version) values ({VERSION}) on conflict do nothing"
            )
        }
        Dialect::MySql => format!("insert ignore into mandate_schema (version) values ({VERSION})"),
    });
    statements
}

/// The same as a script, with what a role for members needs.
pub fn script(dialect: Dialect) -> String {
    let mut script = String::from("-- Tables for elections: mandate sql init.\n");
    for statement in statements(dialect) {
        match dialect {
            Dialect::MySql if statement.contains("begin") => {
                script += &format!("delimiter //\n{statement}//\ndelimiter ;\n");
            }
            _ => script += &format!("{statement};\n"),
        }
    }
    script += grants(dialect);
    script
}

fn grants(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "-- Members need to read and write the file and its directory.\n",
        Dialect::Postgres => {
            "-- The least that members need; replace mandate_user by their role:\n\
             -- grant select on mandate_schema to mandate_user;\n\
             -- grant select, insert, update on mandate_control, mandate_counter, mandate_fence to mandate_user;\n\
             -- grant select, insert, update, delete on mandate_member, mandate_history to mandate_user;\n"
        }
        Dialect::MySql => {
            "-- The least that members need; replace the account and the database by yours:\n\
             -- grant select on app.mandate_schema to 'mandate'@'%';\n\
             -- grant select, insert, update on app.mandate_control to 'mandate'@'%';\n\
             -- grant select, insert, update on app.mandate_counter to 'mandate'@'%';\n\
             -- grant select, insert, update on app.mandate_fence to 'mandate'@'%';\n\
             -- grant select, insert, update, delete on app.mandate_member to 'mandate'@'%';\n\
             -- grant select, insert, update, delete on app.mandate_history to 'mandate'@'%';\n\
             -- grant execute on procedure app.mandate_fence to 'mandate'@'%';\n"
        }
    }
}

/// Reads which tables are there.
pub(crate) fn look() -> Step {
    Step::new("select max(version) from mandate_schema", Vec::new())
}

/// The version that a [`look`] found.
pub(crate) fn found(rows: &[Vec<Value>]) -> Option<i64> {
    match rows.first()?.first()? {
        Value::Int(version) => Some(*version),
        _ => None,
    }
}
