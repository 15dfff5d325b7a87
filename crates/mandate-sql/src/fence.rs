//! A term, checked in the caller's own transaction.
//!
//! A mandate may end between the check of it and the write that rests on it. Where that write goes to the same
//! database, the database can refuse it: `mandate_fence` has a row for each group and role with the highest term that
//! has written. A fenced transaction first raises that row to its own term, or finds a higher one there and fails. So
//! a transaction of an older term never commits after one of a newer term has: what is guarded never takes an older
//! term.
//!
//! In any language:
//!
//! | database | at the beginning of the transaction |
//! | --- | --- |
//! | PostgreSQL | `select mandate_fence('GROUP', -1, TERM)`: transactions of one term do not wait for each other |
//! | MySQL, MariaDB, Galera | `call mandate_fence('GROUP', -1, TERM)` |
//! | SQLite | the statement [`RAISE`], which must change one row |
//!
//! `-1` is the group itself, other numbers are its roles. The functions end with an error if the term is an old one.
//! On MySQL the row is written by every fenced transaction, which so wait for each other: a shared lock would be of
//! one node only on Galera.

use mandate_proto::identity::Term;
use mandate_proto::registers::RoleId;
use mysql_async::prelude::Queryable;

use crate::engine::check_group;
use crate::error::SqlError;
use crate::schema::{Dialect, GROUP_ROLE};

/// The statement that raises the row on SQLite; with the group's name, the role and the term as its values. Insert the
/// row first, with term 0, if it is not there.
pub const RAISE: &str =
    "update mandate_fence set term = ?3 where group_name = ?1 and role = ?2 and term <= ?3";

/// Why a transaction must not go on: roll it back.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// A newer term has written.
    #[error("term {0} is an old one: a newer leader has written")]
    OldTerm(Term),
    /// The database said no.
    #[error("the term could not be checked: {0}")]
    Database(String),
    /// No such group.
    #[error(transparent)]
    Group(#[from] SqlError),
}

fn number(role: Option<RoleId>) -> i64 {
    role.map_or(GROUP_ROLE, |role| i64::from(role.get()))
}

fn term_number(term: Term) -> i64 {
    i64::try_from(term.get()).unwrap_or(i64::MAX)
}

/// What the functions say of an old term; the term follows.
const OLD: &str = "mandate: an old term";

/// Checks a term in a transaction of PostgreSQL.
pub async fn postgres(
    transaction: &tokio_postgres::Transaction<'_>,
    group: &str,
    role: Option<RoleId>,
    term: Term,
) -> Result<(), Refused> {
    check_group(group)?;
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&group, &number(role), &term_number(term)];
    match transaction.execute("select mandate_fence($1, $2, $3)", &values).await {
        Ok(_) => Ok(()),
        Err(error) if error.as_db_error().is_some_and(|error| error.message().contains(OLD)) => {
            Err(Refused::OldTerm(term))
        }
        Err(error) => Err(Refused::Database(crate::postgres::described(&error))),
    }
}

/// Checks a term in a transaction of MySQL or MariaDB.
pub async fn mysql(
    transaction: &mut mysql_async::Transaction<'_>,
    group: &str,
    role: Option<RoleId>,
    term: Term,
) -> Result<(), Refused> {
    check_group(group)?;
    let values = (group, number(role), term_number(term));
    match transaction.exec_drop("call mandate_fence(?, ?, ?)", values).await {
        Ok(()) => Ok(()),
        Err(mysql_async::Error::Server(error)) if error.message.contains(OLD) => {
            Err(Refused::OldTerm(term))
        }
        Err(error) => Err(Refused::Database(error.to_string())),
    }
}

/// Checks a term in a transaction of SQLite.
pub fn sqlite(
    transaction: &rusqlite::Transaction<'_>,
    group: &str,
    role: Option<RoleId>,
    term: Term,
) -> Result<(), Refused> {
    check_group(group)?;
    let failed = |error: rusqlite::Error| Refused::Database(error.to_string());
    let insert = "insert into mandate_fence (group_name, role, term) values (?1, ?2, 0) on conflict do nothing";
    transaction.execute(insert, (group, number(role))).map_err(failed)?;
    let values = (group, number(role), term_number(term));
    match transaction.execute(RAISE, values).map_err(failed)? {
        1 => Ok(()),
        _ => Err(Refused::OldTerm(term)),
    }
}

/// What makes the functions.
pub(crate) fn functions(dialect: Dialect) -> Vec<String> {
    match dialect {
        Dialect::Sqlite => Vec::new(),
        Dialect::Postgres => vec![POSTGRES.replace("OLD", OLD)],
        Dialect::MySql => {
            vec!["drop procedure if exists mandate_fence".into(), MYSQL.replace("OLD", OLD)]
        }
    }
}

/// Transactions of the term that is there share the row. One of a newer term waits until they have ended, raises the
/// row, and whoever of an older term comes then finds it so. Nobody first shares and then raises: two who do would
/// wait for each other.
const POSTGRES: &str =
    "create or replace function mandate_fence(g text, r bigint, t bigint) returns void as $$
declare
  highest bigint;
begin
  insert into mandate_fence (group_name, role, term) values (g, r, 0) on conflict do nothing;
  update mandate_fence f set term = t where f.group_name = g and f.role = r and f.term < t;
  select f.term into highest from mandate_fence f where f.group_name = g and f.role = r for share;
  if highest <> t then
    raise exception 'OLD: % (the highest that has written is %)', t, highest;
  end if;
end
$$ language plpgsql";

const MYSQL: &str = "create procedure mandate_fence(in g varchar(64), in r bigint, in t bigint)
begin
  insert ignore into mandate_fence (group_name, role, term) values (g, r, 0);
  update mandate_fence set term = t, touched = touched + 1
    where group_name = convert(g using utf8mb4) collate utf8mb4_bin and role = r and term <= t;
  if row_count() = 0 then
    signal sqlstate '45000' set message_text = 'OLD';
  end if;
end";
