//! SQLite: a file that the processes of one host share.
//!
//! The library waits where it works, so a connection has a thread of its own. The file is in WAL mode, so
//! that readers and the writer do not wait for each other, and every write that decides anything is synced.
//!
//! All that rests on memory which the processes share and on locks of the file, both of one host. On a network file system
//! two hosts would each see a file of their own, and a leader each: such a file is refused.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mandate_proto::election::RoleId;
use mandate_proto::identity::Term;
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, params_from_iter};
use tokio::sync::{broadcast, oneshot};

use crate::batch::{self, Batch, Done, Step, Value};
use crate::dbms::{Dbms, RawSession};
use crate::engine::check_group;
use crate::error::{NoConnection, SqlError, Trouble};
use crate::fence::{RAISE, Refused, number, term_number};
use crate::schema::{self, Dialect};
use crate::session;
use crate::url::{Address, wrong};

/// Reads an address.
pub(crate) fn parse(text: &str) -> Result<Address, SqlError> {
    let path = text.strip_prefix("sqlite:").unwrap_or(text);
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path == ":memory:" {
        let reason = "write a file, such as sqlite:./mandate.db: members share it";
        return Err(wrong(text, reason.into()));
    }
    Ok(Address::Sqlite(path.into()))
}

impl Dbms for PathBuf {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.display())
    }

    fn shown(&self) -> String {
        self.url()
    }

    fn through(&self, _host: &str, _port: u16) -> Address {
        Address::Sqlite(self.clone())
    }

    fn connect(
        &self,
        patience: Duration,
        _heard: broadcast::Sender<String>,
    ) -> BoxFuture<'_, Result<Box<dyn RawSession>, NoConnection>> {
        Box::pin(async move {
            let opening = Session::open(self, patience);
            Ok(Box::new(session::within(session::bound(patience), opening).await?) as _)
        })
    }
}

type Order = (Batch, oneshot::Sender<Result<Vec<Done>, Trouble>>);

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    orders: mpsc::Sender<Order>,
    /// Nobody may write the file, or not this user.
    is_read_only: bool,
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

    async fn order(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        let (done, told) = oneshot::channel();
        let gone = || Trouble::lost("the thread of the file ended");
        self.orders.send((batch, done)).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

impl RawSession for Session {
    fn run(&self, batch: Batch) -> BoxFuture<'_, Result<Vec<Done>, Trouble>> {
        Box::pin(self.order(batch))
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Every connection of ours sets what matters.
    fn has_one_disk(&self) -> bool {
        false
    }

    fn has_session_locks(&self) -> bool {
        false
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
        for upgrade in schema::upgrades(Dialect::Sqlite) {
            match connection.execute_batch(&upgrade) {
                Err(error) if !schema::is_done(&error.to_string()) => return Err(error),
                _ => {}
            }
        }
        connection.execute_batch(&schema::version(Dialect::Sqlite))?;
        connection.execute_batch("commit")?;
    }
    // Shorter than a lease renewal's patience: then a lock that another holds is called by its name.
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
enum FileLocation {
    /// A disk of this host.
    Local,
    /// Nobody knows what is behind it: a folder of a virtual machine's host, say, or a file system in user space.
    Unknown(&'static str),
    /// Several hosts share it.
    Network(&'static str),
}

/// By the numbers of statfs(2).
fn ground(kind: u32) -> FileLocation {
    match kind {
        0x6969 => FileLocation::Network("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => FileLocation::Network("SMB"),
        0x00c3_6400 => FileLocation::Network("CephFS"),
        0x0bd0_0bd0 => FileLocation::Network("Lustre"),
        0x4750_4653 => FileLocation::Network("GPFS"),
        0x5346_414f | 0x6b41_4653 => FileLocation::Network("AFS"),
        0x0116_1970 => FileLocation::Network("GFS2"),
        0x7461_636f => FileLocation::Network("OCFS2"),
        0x0102_1997 => FileLocation::Unknown("9P"),
        0x6573_5546 => FileLocation::Unknown("FUSE"),
        0x786f_4256 => FileLocation::Unknown("a shared folder of VirtualBox"),
        _ => FileLocation::Local,
    }
}

/// Refuses a file that several hosts share.
fn see_where(path: &Path) -> Result<(), NoConnection> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let looked_at = if path.exists() { path } else { directory };
    // What cannot be looked at is said when it is opened.
    #[cfg(target_os = "linux")]
    let ground = rustix::fs::statfs(looked_at)
        .map_or(FileLocation::Local, |stat| ground(stat.f_type as u32));
    #[cfg(not(target_os = "linux"))]
    let ground = FileLocation::Local;
    judge(looked_at, ground)
}

fn judge(path: &Path, ground: FileLocation) -> Result<(), NoConnection> {
    match ground {
        FileLocation::Local => Ok(()),
        FileLocation::Unknown(what) => {
            tracing::warn!(
                path = %path.display(),
                "the file lies on {what}: members on different hosts would not see each other, and could lead at once. \
                 Use it for the processes of one host only, or elect on a server"
            );
            Ok(())
        }
        FileLocation::Network(what) => Err(NoConnection::lasting(format!(
            "{} lies on {what}, a network file system: hosts that share the file would not see each other's writes in \
             time, and could lead at once. Use a file on a local disk for one host, or a server for several",
            path.display()
        ))),
    }
}

fn serve(connection: Connection, orders: &mpsc::Receiver<Order>) {
    while let Ok((batch, done)) = orders.recv() {
        // A caller that has given it up since would not know what to do with it.
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
    let mut prepared = connection.prepare_cached(&text(step.sql))?;
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

/// A statement as SQLite writes it.
fn text(sql: &str) -> String {
    let text = batch::with_insert(sql, "insert into", " on conflict do nothing");
    text.replace("::bigint", "").replace('$', "?")
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

/// Checks a term in a transaction of SQLite.
pub fn fence(
    transaction: &Transaction<'_>,
    group: &str,
    role: Option<RoleId>,
    term: Term,
) -> Result<(), Refused> {
    check_group(group)?;
    let failed = |error: rusqlite::Error| Refused::Database(error.to_string());
    let values = (group, number(role), term_number(term));
    if transaction.execute(RAISE, values).map_err(failed)? == 1 {
        return Ok(());
    }
    let given = "select max(term) from mandate_control where group_name = ?1 and role = ?2";
    let given: Option<i64> =
        transaction.query_row(given, (group, number(role)), |row| row.get(0)).map_err(failed)?;
    Err(match given {
        None => Refused::UnknownGroup(group.to_owned()),
        Some(given) if given < term_number(term) => Refused::UnknownTerm(term),
        Some(_) => Refused::OldTerm(term),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_written_as_sqlite_writes_it() {
        assert_eq!(
            text(batch::tests::example().sql),
            "insert into t (a, b) select ?1, ?2 where ?3 is not distinct from c on conflict do nothing"
        );
    }

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
