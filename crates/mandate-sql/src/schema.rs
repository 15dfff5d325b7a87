//! The tables, and how they come to be.
//!
//! Everything is a whole number or short text: times are microseconds, wall-clock times are milliseconds since 1970.
//! Rows are small and hot. PostgreSQL keeps room in their pages, so that a renewal touches no index.
//!
//! Version 2 has `fenced_term` in the control row: the term whose leader relies on terms alone. It is a term and no flag,
//! because members of version 1 that still run leave it as it was.
//!
//! Version 3 has `leader_value` in it, what the leader has published, and `value_term`, the term that this belongs to: members of
//! earlier versions that still run take over and leave both as they were, so that an old value is seen to be one.
//!
//! Version 4 has what an operator asks of the leader by way of the database alone: `request_term`, the term that it is asked of,
//! `request_to`, the successor if one is named, and `request_id`, which tells two requests apart. Nothing is cleared: a request of
//! another term is void, and members of earlier versions read none.
//!
//! **Two releases on one database.** Versions below `NEXT_KIND` add to the tables, and leave what is there as it was: columns that may
//! be empty, and tables. So a program may use tables of a newer version, whose additions it does not name, and members are
//! upgraded one by one after `mandate sql init` of the newest release. Tables that older programs could not use have a version
//! from `NEXT_KIND` on, and are refused by name. What rows *mean* is the `protocol` of the control row: a member stands back from a
//! row of another one.
//!
//! The functions come last, and elections do without them: TiDB, for one, has no procedures.

use crate::batch::{Step, Value};
use crate::fence::functions;

/// Which tables these are. `mandate_schema` holds the number that was made last.
pub const VERSION: i64 = 4;

/// From this version on tables are of another kind, which this program cannot use.
pub(crate) const NEXT_KIND: i64 = 100;

/// Whether tables of this version can be used.
pub(crate) fn is_usable(found: i64) -> bool {
    (VERSION..NEXT_KIND).contains(&found)
}

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

impl Dialect {
    /// Which databases, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Sqlite => "SQLite",
            Dialect::Postgres => "PostgreSQL",
            Dialect::MySql => "MySQL or MariaDB",
        }
    }

    /// The cargo feature that a build has it by.
    pub(crate) fn feature(self) -> &'static str {
        match self {
            Dialect::Sqlite => "sqlite",
            Dialect::Postgres => "postgres",
            Dialect::MySql => "mysql",
        }
    }
}

/// Where MySQL keeps tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// On the server itself, or on all of a Galera cluster.
    #[default]
    InnoDb,
    /// In an NDB cluster, so that all its SQL nodes have the same rows.
    Ndb,
}

/// What makes the tables, statement by statement; harmless where they are.
pub fn tables(dialect: Dialect, engine: Engine) -> Vec<String> {
    let name = match dialect {
        Dialect::Sqlite | Dialect::Postgres => "text",
        // Primary keys of InnoDB need a length.
        Dialect::MySql => "varchar(64) character set utf8mb4 collate utf8mb4_bin",
    };
    let text = match dialect {
        Dialect::Sqlite | Dialect::Postgres => "text",
        Dialect::MySql => {
            &format!("varchar({}) character set utf8mb4 collate utf8mb4_bin", crate::rows::MAX_TEXT)
        }
    };
    let value = value_type(dialect);
    let (hot, cold) = match dialect {
        Dialect::Sqlite => (" without rowid", " without rowid"),
        Dialect::Postgres => (" with (fillfactor = 40)", ""),
        Dialect::MySql => match engine {
            Engine::InnoDb => (" engine = InnoDB", " engine = InnoDB"),
            Engine::Ndb => (" engine = ndbcluster", " engine = ndbcluster"),
        },
    };
    vec![
        format!(
            "create table if not exists mandate_schema (version bigint not null primary key){cold}"
        ),
        format!(
            "create table if not exists mandate_control (\n  group_name {name} not null,\n  role bigint not null,\n  \
             protocol bigint not null,\n  term bigint not null,\n  beat bigint not null,\n  leader bigint,\n  \
             incarnation bigint,\n  reason bigint not null,\n  round_us bigint not null,\n  lease_us bigint not null,\n  \
             successor1 bigint,\n  successor2 bigint,\n  successor3 bigint,\n  preferred bigint,\n  session bigint,\n  fenced_term bigint,\n  leader_value {value},\n  value_term bigint,\n  \
             request_term bigint,\n  request_to bigint,\n  request_id bigint,\n  \
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
    ]
}

/// What writes the version down, once everything else is there.
pub(crate) fn version(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => {
            format!(
                "insert into mandate_schema (version) values ({VERSION}) on conflict do nothing"
            )
        }
        Dialect::MySql => format!("insert ignore into mandate_schema (version) values ({VERSION})"),
    }
}

/// What makes tables of an older version into those of this one. Each fails where it was done before ([`is_done`]).
pub(crate) fn upgrades(dialect: Dialect) -> Vec<String> {
    let value = value_type(dialect);
    let columns = COLUMNS.iter().map(|(name, _)| match *name {
        "leader_value" => format!("{name} {value}"),
        name => format!("{name} bigint"),
    });
    columns.map(|column| format!("alter table mandate_control add column {column}")).collect()
}

/// Columns of the control row that earlier versions lack, and those versions.
const COLUMNS: [(&str, &str); 6] = [
    ("fenced_term", "1"),
    ("leader_value", "1 or 2"),
    ("value_term", "1 or 2"),
    ("request_term", "1 to 3"),
    ("request_to", "1 to 3"),
    ("request_id", "1 to 3"),
];

/// Of a text of up to 4 KiB, beside the rows' hot numbers.
fn value_type(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => "text",
        Dialect::MySql => "text character set utf8mb4 collate utf8mb4_bin",
    }
}

/// Whether an upgrade failed because it was done before.
pub(crate) fn is_done(reason: &str) -> bool {
    reason.to_lowercase().contains("duplicate column") || reason.contains("already exists")
}

/// The same as a script, with what a role for members needs.
pub fn script(dialect: Dialect) -> String {
    let mut script = String::from("-- Tables for elections: mandate sql init.\n");
    for (upgrade, (_, version)) in upgrades(dialect).iter().zip(COLUMNS) {
        script += &format!("-- If they are of version {version}, first: {upgrade};\n");
    }
    if dialect == Dialect::MySql {
        script += "-- On an NDB cluster, say `engine = ndbcluster` instead of `engine = InnoDB`.\n";
    }
    let tables = tables(dialect, Engine::default()).into_iter().chain([version(dialect)]);
    for statement in tables.chain(functions(dialect)) {
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
