//! What each database does its own way, so that the rest of this crate names none of them.
//!
//! [`Dbms`] is implemented by what an address holds, [`RawSession`] by a connection to it: SQLite's in [`sqlite`],
//! PostgreSQL's in [`postgres`], MySQL's in [`mysql`]. Each of these modules is there if its cargo feature is on.
//!
//! [`sqlite`]: crate::sqlite
//! [`postgres`]: crate::postgres
//! [`mysql`]: crate::mysql

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::{BoxFuture, pending, ready};
use tokio::sync::broadcast;

use crate::batch::{Batch, Done};
use crate::error::{NoConnection, Trouble};
use crate::schema::Dialect;
use crate::url::Address;

/// Holds a lock, and ends when the lock is lost. The lock is released when it is dropped.
pub(crate) type HeldLock = BoxFuture<'static, ()>;

/// A database, as its address names it.
pub(crate) trait Dbms: Send + Sync {
    fn dialect(&self) -> Dialect;

    /// The address with its password.
    fn url(&self) -> String;

    /// The address without secrets.
    fn shown(&self) -> String;

    /// Whether it says that members may lead although a crash of the server can undo what it has acknowledged.
    fn accepts_loss(&self) -> bool {
        false
    }

    /// The host and port that it names, if it names one host.
    fn host_and_port(&self) -> Option<(String, u16)> {
        None
    }

    /// The same database, reached through another host and port. A file stays what it is.
    fn through(&self, host: &str, port: u16) -> Address;

    /// Connects, bounded. Names of groups whose rows have changed go to `heard`, where the database tells.
    fn connect(
        &self,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> BoxFuture<'_, Result<Box<dyn RawSession>, NoConnection>>;

    /// Makes the tables; `None` where the first connection makes them.
    fn make_schema(&self) -> Option<BoxFuture<'_, Result<(), NoConnection>>> {
        None
    }

    /// Takes the lock with this number, in a session of its own.
    fn take_lock(&self, _number: i64) -> BoxFuture<'_, Result<HeldLock, String>> {
        Box::pin(ready(Err("this database has no sessions that hold locks".to_owned())))
    }

    /// Waits over one connection until the lock with this number is free.
    fn await_lock(&self, _number: i64) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(pending())
    }
}

/// A connection.
pub(crate) trait RawSession: Debug + Send + Sync {
    fn run(&self, batch: Batch) -> BoxFuture<'_, Result<Vec<Done>, Trouble>>;

    /// Waits until the connection has ended by itself, where that shows.
    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(pending())
    }

    /// Hears when rows change, or no more. Nothing is heard where there are no notifications.
    fn listen(&self, _listen: bool) -> BoxFuture<'_, Result<(), Trouble>> {
        Box::pin(ready(Ok(())))
    }

    /// Whether nothing can ever be written here, whatever happens elsewhere: a standby may become a primary.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Whether what it acknowledges is kept by its own disk alone, as far as can be told, and it can be asked about that.
    fn has_one_disk(&self) -> bool;

    /// Whether a process can hold a lock whose end all others see.
    fn has_session_locks(&self) -> bool;
}
