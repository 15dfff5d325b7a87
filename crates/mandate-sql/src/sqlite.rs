//! SQLite: a file that the processes of one host share.
//!
//! The library waits where it works, so a connection lives on a thread of its own. The file is in WAL mode, so
//! that readers and the writer do not wait for each other, and every write that decides anything is synced.
//!
//! All that rests on memory which the processes share and on locks of the file, both of one host. On a network file system
//! two hosts would each see a file of their own, and a leader each: such a file is refused.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, params_from_iter};
use tokio::sync::oneshot;

use crate::batch::{self, Batch, Done, Step, Value};
use crate::error::{NoConnection, Trouble};
use crate::schema::{self, Dialect};

type Order = (Batch, oneshot::Sender<Result<Vec<Done>, Trouble>>);

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    orders: mpsc::Sender<Order>,
    /// Nobody may write the file, or not this user.
    pub(crate) is_read_only: bool,
}

impl Session {
    /// Opens the file, and makes it and its tables if they are not there: nobody else would.
    pub(crate) async fn open(path: &Path, patience: Duration) -> Result<Self, NoConnection> {
        let path = path.to_owned();
        let (opened, told) = oneshot::channel();
        let (orders, received) = mpsc::channel();
        let thread = std::thread::Builder::new().name("mandate-sqlite".into());
        let spawned = thread.spawn(move || match connect(&path, patience) {
            Ok((connection, is_read_only)) => {
                let _ = opened.send(Ok(is_read_only));
                serve(connection, &received);
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        });
        spawned.map_err(|error| NoConnection::passing(error.to_string()))?;
        let is_read_only = told.await.map_err(|_| NoConnection::passing("its thread ended"))??;
        Ok(Session { orders, is_read_only })
    }

    pub(crate) async fn run(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        let (done, told) = oneshot::channel();
        let gone = || Trouble::lost("the thread of the file ended");
        self.orders.send((batch, done)).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

/// Opens the file; whether it may only be read.
fn connect(path: &Path, patience: Duration) -> Result<(Connection, bool), NoConnection> {
    see_where(path)?;
    let connection = open(path, patience).map_err(|error| refusal(path, &error))?;
    let is_read_only = connection.is_readonly("main").map_err(|error| refusal(path, &error))?;
    Ok((connection, is_read_only))
}

fn open(path: &Path, patience: Duration) -> rusqlite::Result<Connection> {
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
    if found.ok().flatten().is_none_or(|found| found < schema::VERSION) {
        connection.execute_batch("begin immediate")?;
        for statement in schema::tables(Dialect::Sqlite, schema::Engine::default()) {
            connection.execute_batch(&statement)?;
        }
        for upgrade in schema::UPGRADES {
            match connection.execute_batch(upgrade) {
                Err(error) if !schema::is_done(&error.to_string()) => return Err(error),
                _ => {}
            }
        }
        connection.execute_batch(&schema::version(Dialect::Sqlite))?;
        connection.execute_batch("commit")?;
    }
    // Shorter than the patience of whoever renews a lease: then a lock that another holds is called by its name.
    connection.busy_timeout(patience / 2)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Whether a file that cannot be used now may be usable later: only if somebody else is using it.
fn refusal(path: &Path, error: &rusqlite::Error) -> NoConnection {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) if !directory.is_dir() => {
            NoConnection::lasting(format!("there is no directory {}", directory.display()))
        }
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            NoConnection::lasting(format!(
                "{error}: members need to read and write the file and its directory"
            ))
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            NoConnection::lasting(error.to_string())
        }
        _ => NoConnection::passing(error.to_string()),
    }
}

/// Where a file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    /// A disk of this host.
    Local,
    /// Nobody knows what is behind it: a folder of a virtual machine's host, say, or a file system in user space.
    Unknown(&'static str),
    /// Several hosts share it.
    Network(&'static str),
}

/// By the numbers of statfs(2).
fn ground(kind: u32) -> Ground {
    match kind {
        0x6969 => Ground::Network("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Ground::Network("SMB"),
        0x00c3_6400 => Ground::Network("CephFS"),
        0x0bd0_0bd0 => Ground::Network("Lustre"),
        0x4750_4653 => Ground::Network("GPFS"),
        0x5346_414f | 0x6b41_4653 => Ground::Network("AFS"),
        0x0116_1970 => Ground::Network("GFS2"),
        0x7461_636f => Ground::Network("OCFS2"),
        0x0102_1997 => Ground::Unknown("9P"),
        0x6573_5546 => Ground::Unknown("FUSE"),
        0x786f_4256 => Ground::Unknown("a shared folder of VirtualBox"),
        _ => Ground::Local,
    }
}

/// Refuses a file that several hosts share.
fn see_where(path: &Path) -> Result<(), NoConnection> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let looked_at = if path.exists() { path } else { directory };
    // What cannot be looked at is said when it is opened.
    #[cfg(target_os = "linux")]
    let ground =
        rustix::fs::statfs(looked_at).map_or(Ground::Local, |stat| ground(stat.f_type as u32));
    #[cfg(not(target_os = "linux"))]
    let ground = Ground::Local;
    judge(looked_at, ground)
}

fn judge(path: &Path, ground: Ground) -> Result<(), NoConnection> {
    match ground {
        Ground::Local => Ok(()),
        Ground::Unknown(what) => {
            tracing::warn!(
                path = %path.display(),
                "the file lies on {what}: members on different hosts would not see each other, and could lead at once. \
                 Use it for the processes of one host only, or elect on a server"
            );
            Ok(())
        }
        Ground::Network(what) => Err(NoConnection::lasting(format!(
            "{} lies on {what}, a network file system: hosts that share the file would not see each other's writes in \
             time, and could lead at once. Use a file on a local disk for one host, or a server for several",
            path.display()
        ))),
    }
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
    Trouble { reason, unknown: unsure, broken: gone, is_final: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_on_a_network_is_refused_and_one_on_a_disk_is_not() {
        let path = Path::new("/srv/m.db");
        // From linux/magic.h: NFS, the two SMBs, ext4, XFS, btrfs, tmpfs, overlay, FUSE.
        for (kind, is_refused) in [
            (0x6969, true),
            (0xff53_4d42, true),
            (0xfe53_4d42, true),
            (0xef53, false),
            (0x5846_5342, false),
            (0x9123_683e, false),
            (0x0102_1994, false),
            (0x794c_7630, false),
            (0x6573_5546, false),
        ] {
            let judged = judge(path, ground(kind));
            assert_eq!(judged.is_err(), is_refused, "{kind:x}");
            assert!(judged.err().is_none_or(|refused| refused.is_final), "{kind:x}");
        }
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(see_where(&directory.path().join("m.db")), Ok(()));
    }

    #[tokio::test]
    async fn what_no_attempt_can_open_is_final() {
        let directory = tempfile::tempdir().unwrap();
        let open =
            async |path: &Path| Session::open(path, Duration::from_secs(1)).await.unwrap_err();
        let nowhere = open(&directory.path().join("none/m.db")).await;
        assert!(
            nowhere.is_final && nowhere.reason.contains("there is no directory"),
            "{nowhere:?}"
        );
        let file = directory.path().join("text");
        std::fs::write(
            &file,
            "This is no database, and long enough to be seen not to be one. ".repeat(20),
        )
        .unwrap();
        let text = open(&file).await;
        assert!(text.is_final, "{text:?}");
    }
}
