//! SQLite: a file that the processes of one host share.
//!
//! The library waits where it works, so a connection lives on a thread of its own. The file is in WAL mode, so
//! that readers and the writer do not wait for each other, and every write that decides anything is synced.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, params_from_iter};
use tokio::sync::oneshot;

use crate::batch::{self, Batch, Done, Step, Value};
use crate::error::Trouble;
use crate::schema::{self, Dialect};

type Order = (Batch, oneshot::Sender<Result<Vec<Done>, Trouble>>);

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    orders: mpsc::Sender<Order>,
}

impl Session {
    /// Opens the file, and makes it and its tables if they are not there: nobody else would.
    pub(crate) async fn open(path: &Path, patience: Duration) -> Result<Self, String> {
        let path = path.to_owned();
        let (opened, told) = oneshot::channel();
        let (orders, received) = mpsc::channel();
        let thread = std::thread::Builder::new().name("mandate-sqlite".into());
        let spawned = thread.spawn(move || match connect(&path, patience) {
            Ok(connection) => {
                let _ = opened.send(Ok(()));
                serve(connection, &received);
            }
            Err(error) => {
                let _ = opened.send(Err(error.to_string()));
            }
        });
        spawned.map_err(|error| error.to_string())?;
        told.await.map_err(|_| "its thread ended".to_owned())??;
        Ok(Session { orders })
    }

    pub(crate) async fn run(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        let (done, told) = oneshot::channel();
        let gone = || Trouble::lost("the thread of the file ended");
        self.orders.send((batch, done)).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

fn connect(path: &Path, patience: Duration) -> rusqlite::Result<Connection> {
    // Without SQLITE_OPEN_URI: a path with a question mark is a path.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(patience.max(Duration::from_secs(1)))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    let version = schema::look();
    let found: Result<Option<i64>, _> = connection.query_row(version.sql, [], |row| row.get(0));
    if found.ok().flatten().is_none() {
        connection.execute_batch("begin immediate")?;
        for statement in schema::statements(Dialect::Sqlite) {
            connection.execute_batch(&statement)?;
        }
        connection.execute_batch("commit")?;
    }
    // Shorter than the patience of whoever renews a lease: then a lock that another holds is called by its name.
    connection.busy_timeout(patience / 2)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn serve(connection: Connection, orders: &mpsc::Receiver<Order>) {
    while let Ok((batch, done)) = orders.recv() {
        // Whoever has given it up since would not know what to do with it.
        if done.is_closed() {
            continue;
        }
        let _ = done.send(run(&connection, &batch).map_err(trouble));
    }
}

fn run(connection: &Connection, batch: &Batch) -> rusqlite::Result<Vec<Done>> {
    let relaxed = batch.steps.iter().all(|step| step.relaxed || step.is_read());
    connection.pragma_update(None, "synchronous", if relaxed { "normal" } else { "full" })?;
    if !batch.atomic {
        return batch.steps.iter().map(|step| carry_out(connection, step)).collect();
    }
    connection.execute_batch("begin immediate")?;
    let done: rusqlite::Result<Vec<Done>> =
        batch.steps.iter().map(|step| carry_out(connection, step)).collect();
    let ended = connection.execute_batch(if done.is_ok() { "commit" } else { "rollback" });
    match (done, ended) {
        (Ok(done), Ok(())) => Ok(done),
        (Ok(_), Err(error)) => {
            let _ = connection.execute_batch("rollback");
            Err(error)
        }
        (Err(error), _) => Err(error),
    }
}

fn carry_out(connection: &Connection, step: &Step) -> rusqlite::Result<Done> {
    let mut prepared = connection.prepare_cached(&batch::sqlite(step.sql))?;
    let values = params_from_iter(step.values.iter().map(|value| match value {
        Value::Null => rusqlite::types::Value::Null,
        Value::Int(number) => rusqlite::types::Value::Integer(*number),
        Value::Text(text) => rusqlite::types::Value::Text(text.clone()),
    }));
    if !step.is_read() {
        let changed = prepared.execute(values)? as u64;
        return Ok(Done { changed, rows: Vec::new() });
    }
    let columns = prepared.column_count();
    let mut found = prepared.query(values)?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let cell = |place: usize| {
            Ok(match row.get_ref(place)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(number) => Value::Int(number),
                ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Real(_) | ValueRef::Blob(_) => {
                    let name = format!("column {place}");
                    return Err(rusqlite::Error::InvalidColumnType(place, name, Type::Blob));
                }
            })
        };
        rows.push((0..columns).map(cell).collect::<rusqlite::Result<_>>()?);
    }
    Ok(Done { changed: 0, rows })
}

/// What failed was rolled back: SQLite says so before it says anything else. Only where the disk failed it cannot
/// be sure.
fn trouble(error: rusqlite::Error) -> Trouble {
    let code = error.sqlite_error_code();
    let unsure = matches!(code, Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt));
    let gone = matches!(
        code,
        Some(
            ErrorCode::CannotOpen
                | ErrorCode::NotADatabase
                | ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::ReadOnly
        )
    );
    let reason = match code {
        Some(ErrorCode::DatabaseBusy) => {
            "the file is locked: another process has held its write lock for too long".to_owned()
        }
        _ => error.to_string(),
    };
    Trouble { reason, unknown: unsure, broken: gone }
}
