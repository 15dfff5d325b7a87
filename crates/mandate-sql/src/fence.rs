//! A term, checked in the caller's own transaction.
//!
//! A mandate may end between the check of it and the write that rests on it. Where that write goes to the same
//! database, the database can refuse it, in two ways at once:
//!
//! - `mandate_control` says which term was given out last. A plain read of it refuses a leader from the moment its successor
//!   took over, and a term that nobody was given.
//! - `mandate_fence` has a row for each group and role with the highest term that has written. A fenced transaction raises
//!   that row to its own term, or finds a higher one there and fails. So a transaction of an older term never commits
//!   after one of a newer term has: what is guarded never takes an older term.
//!
//! Fence first, and then read what you act upon: a leader that reads before it has fenced may read what its predecessor is
//! about to change.
//!
//! In any language:
//!
//! | database | at the beginning of the transaction |
//! | --- | --- |
//! | PostgreSQL | `select mandate_fence('GROUP', -1, TERM)`: transactions of one term wait for its first one, and not for each other |
//! | MySQL, MariaDB, Galera | `call mandate_fence('GROUP', -1, TERM)` |
//! | SQLite | the statement [`RAISE`], which must change one row |
//!
//! `-1` is the group itself, other numbers are its roles. The functions end with an error if the term is an old one, if it is
//! one that nobody was given, or if there is no such group.
//!
//! On MySQL the row is written by every fenced transaction, which so wait for each other: a shared lock would be of
//! one node only on Galera. Transactions there must not be SERIALIZABLE: their reads lock the control row. On PostgreSQL a transaction of a newer term waits for those of older ones that are open, for no longer
//! than [`PATIENCE`] unless the caller has set a limit of its own, and then names who may hold the row.

use mandate_proto::election::RoleId;
use mandate_proto::identity::Term;

use crate::error::SqlError;
use crate::schema::{Dialect, GROUP_ROLE};

/// The statement that raises the row on SQLite; with the group's name, the role and the term as its values. It changes one row
/// if the term is the one that was given out last, and none otherwise: then roll back.
pub const RAISE: &str = "insert into mandate_fence (group_name, role, term) \
     select group_name, role, term from mandate_control where group_name = ?1 and role = ?2 and term = ?3 \
     on conflict (group_name, role) do update set term = excluded.term where excluded.term >= mandate_fence.term";

/// How long a fenced transaction of PostgreSQL waits for those of an older term, where the caller has no `lock_timeout`: long
/// enough for any that is at work, and not without end for one whose process was stopped.
pub const PATIENCE: &str = "10s";

/// Why a transaction must not go on: roll it back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A newer term was given out, or has written.
    #[error("term {0} is an old one: a newer leader has taken over")]
    OldTerm(Term),
    /// Nobody was ever given this term.
    #[error("term {0} was never given out: take it from the mandate, and not from elsewhere")]
    UnknownTerm(Term),
    /// There is no such group, or no such role.
    #[error("nobody has ever joined the group `{0}`, or it has no such role: is the name right?")]
    UnknownGroup(String),
    /// The database said no.
    #[error("the term could not be checked: {0}")]
    Database(String),
    /// No such group can be.
    #[error(transparent)]
    Group(#[from] SqlError),
}

pub(crate) fn number(role: Option<RoleId>) -> i64 {
    role.map_or(GROUP_ROLE, |role| i64::from(role.get()))
}

pub(crate) fn term_number(term: Term) -> i64 {
    i64::try_from(term.get()).unwrap_or(i64::MAX)
}

/// What the functions say of an old term,
pub(crate) const OLD: &str = "mandate: an old term";

/// of one that was never given out,
pub(crate) const FUTURE: &str = "mandate: a term that was never given out";

/// and of a group or role that there is not.
pub(crate) const UNKNOWN: &str = "mandate: no such group or role";

#[cfg(feature = "mysql")]
pub use crate::mysql::fence::check as mysql;
#[cfg(feature = "postgres")]
pub use crate::postgres::fence::check as postgres;
#[cfg(feature = "sqlite")]
pub use crate::sqlite::fence as sqlite;

/// What makes the functions. Elections do without them: a database that has no functions can be fenced by the statements
/// that docs/sql.md prints.
pub(crate) fn functions(dialect: Dialect) -> Vec<String> {
    let named = |text: &str| {
        let text = text.replace("OLD", OLD).replace("FUTURE", FUTURE);
        text.replace("UNKNOWN", UNKNOWN).replace("PATIENCE", PATIENCE)
    };
    match dialect {
        Dialect::Sqlite => Vec::new(),
        Dialect::Postgres => vec![named(POSTGRES)],
        Dialect::MySql => vec!["drop procedure if exists mandate_fence".into(), named(MYSQL)],
    }
}

/// Transactions of the term that is there share the row. One of a newer term waits until they have ended, raises the
/// row, and one of an older term that comes then finds it so. Nobody first shares and then raises: two who do would
/// wait for each other.
///
/// Who holds the row cannot be read when the wait is over: row locks are in the row, and under the number of a
/// subtransaction. So those are named that have fenced something and wait for nothing, as what they are: one of them.
///
/// The function looks for its tables where it was made, whatever the caller's search path: with a schema for each
/// tenant it would check another's table.
const POSTGRES: &str = "do $mandate$
begin
  execute format($make$
create or replace function mandate_fence(g text, r bigint, t bigint) returns void
language plpgsql set search_path = %I, pg_temp as $$
declare
  given bigint;
  highest bigint;
  patience text := current_setting('lock_timeout');
  holders text;
begin
  select c.term into given from mandate_control c where c.group_name = g and c.role = r;
  if given is null then
    raise exception 'UNKNOWN: %% (role %%)', g, r;
  elsif t > given then
    raise exception 'FUTURE: %% (the highest is %%)', t, given;
  elsif t < given then
    raise exception 'OLD: %% (the newest is %%)', t, given;
  end if;
  if patience = '0' then
    perform set_config('lock_timeout', 'PATIENCE', true);
  end if;
  begin
    update mandate_fence f set term = t where f.group_name = g and f.role = r and f.term < t;
    select f.term into highest from mandate_fence f where f.group_name = g and f.role = r for share;
    if highest is null then
      insert into mandate_fence (group_name, role, term) values (g, r, t) on conflict do nothing;
      update mandate_fence f set term = t where f.group_name = g and f.role = r and f.term < t;
      select f.term into highest from mandate_fence f where f.group_name = g and f.role = r for share;
    end if;
  exception when lock_not_available then
    select string_agg(distinct l.pid::text, ', ') into holders from pg_locks l
      where l.relation = 'mandate_fence'::regclass and l.granted and l.pid <> pg_backend_pid()
      and exists (select 1 from pg_locks x where x.pid = l.pid and x.locktype = 'transactionid' and x.granted)
      and not exists (select 1 from pg_locks w where w.pid = l.pid and not w.granted);
    raise exception 'mandate: another fenced transaction holds the row, that of one of these processes: %%. Those of other groups may be among them: while a transaction waits here, select pg_blocking_pids(ITS PROCESS) names the one. If its leader is gone, end it by select pg_terminate_backend(PROCESS)',
      coalesce(holders, 'none any more') using errcode = 'lock_not_available';
  end;
  perform set_config('lock_timeout', patience, true);
  if highest <> t then
    raise exception 'OLD: %% (the highest that has written is %%)', t, highest;
  end if;
end
$$ $make$, current_schema());
end
$mandate$";

/// First the update, and the row only where there is none: who inserts a row that is there shares it, and two who share it
/// and then want to write it wait for each other.
///
/// At SERIALIZABLE the plain read of the control row would lock it until the transaction ends: the leader could not renew
/// beside its own transactions, and nobody could take over from one that was stopped in one. InnoDB has no read without a
/// lock there, so that level is refused. Nothing is lost by that: fenced transactions of one group go one after the
/// other at any level. A level that is set for the next transaction alone does not show in the variable, which is named
/// differently by MySQL and by MariaDB.
const MYSQL: &str = "create procedure mandate_fence(in g varchar(64), in r bigint, in t bigint)
begin
  declare given bigint default null;
  if /*!50720 @@transaction_isolation */ /*M! @@tx_isolation */ = 'SERIALIZABLE' then
    signal sqlstate '45000' set message_text =
      'mandate: at SERIALIZABLE this would lock the row that the leader renews: use REPEATABLE READ';
  end if;
  select term into given from mandate_control
    where group_name = convert(g using utf8mb4) collate utf8mb4_bin and role = r;
  if given is null then
    signal sqlstate '45000' set message_text = 'UNKNOWN';
  elseif t > given then
    signal sqlstate '45000' set message_text = 'FUTURE';
  elseif t < given then
    signal sqlstate '45000' set message_text = 'OLD';
  end if;
  update mandate_fence set term = t, touched = touched + 1
    where group_name = convert(g using utf8mb4) collate utf8mb4_bin and role = r and term <= t;
  if row_count() = 0 then
    insert ignore into mandate_fence (group_name, role, term) values (g, r, 0);
    update mandate_fence set term = t, touched = touched + 1
      where group_name = convert(g using utf8mb4) collate utf8mb4_bin and role = r and term <= t;
    if row_count() = 0 then
      signal sqlstate '45000' set message_text = 'OLD';
    end if;
  end if;
end";
