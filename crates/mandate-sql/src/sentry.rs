//! Locks whose end tells that a process died.
//!
//! The process of a leader holds a lock, in a session of its own, whose number it writes into the control row.
//! Successors wait for that lock. They get it the moment the server notices that the session is gone, which for a
//! process that was killed is at once. That is a hint and no more: terms keep it safe under `Fenced`, and under
//! `Leased` the lease is waited out all the same.
//!
//! The number is drawn at random for each session, so that no one else's locks are in the way, and a lock that was
//! lost is not taken for the one that follows it. Where a pooler answers there are no such locks: a session that is lent
//! to others has locks that are others', too.
//!
//! Locks are of one server. On a standby the leader's lock would seem free, and a healthy leader would be deposed: a server
//! that may only be read is refused, and the next attempt may find the primary.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use tokio::sync::{broadcast, watch};
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::url::{Address, Parameters};
use crate::{mysql, postgres};

/// Between attempts to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a statement may take that does not wait for a lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the server waits for a lock before it is asked anew. A statement that waits keeps the server from removing
/// old versions of any row, and whoever makes an index concurrently waits for it.
const WAIT: Duration = Duration::from_secs(10);

/// So many leaders are waited for at once: a process that succeeds many relies on leases for the rest.
const MAX_WAITS: usize = 4;

/// The locks of a process.
#[derive(Debug)]
pub(crate) struct Sentry {
    address: Address,
    /// The lock that this process holds, once it wants one.
    held: Mutex<Option<Holding>>,
    waits: Arc<Mutex<HashMap<i64, watch::Receiver<bool>>>>,
}

#[derive(Debug)]
struct Holding {
    number: watch::Receiver<Option<i64>>,
    task: tokio::task::AbortHandle,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sentry {
    pub(crate) fn new(address: Address) -> Self {
        Sentry { address, held: Mutex::new(None), waits: Arc::default() }
    }

    /// Takes a lock, soon.
    pub(crate) fn hold(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get_or_insert_with(|| {
            let (tell, number) = watch::channel(None);
            let task = tokio::spawn(keep(self.address.clone(), tell)).abort_handle();
            Holding { number, task }
        });
    }

    /// The number of the lock that this process holds, if it does.
    pub(crate) fn held(&self) -> Option<i64> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().and_then(|holding| *holding.number.borrow())
    }

    /// Lets it go: no member of this process leads, or comes next.
    pub(crate) fn release(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Becomes true when the lock with this number is free; `None` if too many are waited for already.
    pub(crate) fn wait(&self, number: i64) -> Option<watch::Receiver<bool>> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that ended, or that nobody but this table waits for, make room: their tasks see it, too.
        waits.retain(|_, waiting| waiting.has_changed().is_ok());
        if let Some(waiting) = waits.get(&number) {
            return Some(waiting.clone());
        }
        if waits.len() >= MAX_WAITS {
            return None;
        }
        let (tell, waiting) = watch::channel(false);
        waits.insert(number, waiting.clone());
        let (address, waits) = (self.address.clone(), self.waits.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = until_free(&address, number) => {
                    tell.send_replace(true);
                }
                // One receiver is the table's own.
                () = until_unwanted(&tell) => {}
            }
            let mut waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
            waits.remove(&number);
        });
        Some(waiting)
    }
}

async fn until_unwanted(tell: &watch::Sender<bool>) {
    while tell.receiver_count() > 1 {
        sleep(PAUSE).await;
    }
}

/// Holds a lock, and another one when its session ends.
async fn keep(address: Address, tell: watch::Sender<Option<i64>>) {
    loop {
        match Locked::take(&address).await {
            Ok(mut locked) => {
                tell.send_replace(Some(locked.number));
                locked.until_lost().await;
                tell.send_replace(None);
            }
            Err(reason) => {
                tracing::debug!(reason, "no lock that would tell of this process's death")
            }
        }
        sleep(PAUSE).await;
    }
}

/// A lock, and the session that holds it.
struct Locked {
    number: i64,
    session: LockSession,
}

enum LockSession {
    Postgres { _client: tokio_postgres::Client, ended: watch::Receiver<bool> },
    MySql(Box<mysql_async::Conn>),
}

impl Locked {
    async fn take(address: &Address) -> Result<Self, String> {
        let number = random()?;
        let session = match address {
            Address::Sqlite(_) => return Err("SQLite has no sessions".into()),
            Address::Postgres(parameters) => {
                let (client, ended) = lock_session(parameters).await?;
                let values: [&(dyn ToSql + Sync); 1] = [&number];
                let taking = client.execute("select pg_advisory_lock($1)", &values);
                let taken = answered(PATIENCE, taking).await?;
                taken.map_err(|error| postgres::described(&error))?;
                LockSession::Postgres { _client: client, ended }
            }
            Address::MySql(url) => {
                let mut connection = mysql_lock_session(url).await?;
                let take = format!("select get_lock('{}', 0)", mysql_name(number));
                let taken =
                    answered(PATIENCE, connection.query_first::<Option<i64>, _>(take)).await?;
                match taken {
                    Ok(Some(Some(1))) => {}
                    Ok(_) => return Err("a lock that was drawn at random is taken".into()),
                    Err(error) => return Err(mysql::described(&error)),
                }
                LockSession::MySql(Box::new(connection))
            }
        };
        Ok(Locked { number, session })
    }

    async fn until_lost(&mut self) {
        match &mut self.session {
            LockSession::Postgres { ended, .. } => {
                let _ = ended.wait_for(|ended| *ended).await;
            }
            // It says nothing by itself, and is closed by the server after a while if nobody asks.
            LockSession::MySql(connection) => loop {
                sleep(Duration::from_secs(2)).await;
                match tokio::time::timeout(PATIENCE, connection.ping()).await {
                    Ok(Ok(())) => {}
                    _ => return,
                }
            },
        }
    }
}

/// A session that is ours alone, in which a lock may be held for as long as it lasts.
async fn lock_session(
    parameters: &Parameters,
) -> Result<(tokio_postgres::Client, watch::Receiver<bool>), String> {
    let connecting = postgres::connect(parameters, broadcast::Sender::new(1));
    let (client, ended) = connecting.await.map_err(|failed| failed.reason)?;
    let server = answered(PATIENCE, postgres::recognise(&client)).await?;
    let server = server.map_err(|error| postgres::described(&error))?;
    if server.is_pooled {
        return Err("a pooler answers: a lock would be another client's, too".into());
    }
    let ask = client.query_one("select pg_is_in_recovery()", &[]);
    let told = answered(PATIENCE, ask).await?.map_err(|error| postgres::described(&error))?;
    if told.get(0) {
        return Err(
            "the server is a standby: its locks are its own, and the leader's is on the primary"
                .into(),
        );
    }
    let limit = WAIT.as_millis();
    let set = format!("set statement_timeout = 0; set lock_timeout = {limit}");
    let set = answered(PATIENCE, client.batch_execute(&set)).await?;
    set.map_err(|error| postgres::described(&error))?;
    // Before version 14 there is no such limit to lift.
    let _ = answered(PATIENCE, client.batch_execute("set idle_session_timeout = 0")).await?;
    Ok((client, ended))
}

/// The same of MySQL, where a name or a proxy may lead to a replica.
async fn mysql_lock_session(url: &url::Url) -> Result<mysql_async::Conn, String> {
    let mut connection = mysql::connect(url, PATIENCE).await.map_err(|it| it.reason)?;
    let ask = connection.query_first::<String, _>("select @@global.read_only");
    let told = answered(PATIENCE, ask).await?.map_err(|error| mysql::described(&error))?;
    // A number here, a word there.
    match told.as_deref() {
        None | Some("0" | "OFF") => Ok(connection),
        Some(_) => Err("the server may only be read: its locks are its own".into()),
    }
}

/// An answer within this time: whoever is silent for longer says nothing any more.
async fn answered<T>(bound: Duration, answer: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(bound, answer).await.map_err(|_| format!("no answer within {bound:?}"))
}

/// Waits until the lock with this number is free, over as many connections as that takes.
async fn until_free(address: &Address, number: i64) {
    while let Err(reason) = wait_once(address, number).await {
        tracing::debug!(reason, "could not wait for the end of the leader's session");
        sleep(PAUSE).await;
    }
}

/// Waits over one connection, a while at a time.
async fn wait_once(address: &Address, number: i64) -> Result<(), String> {
    let bound = WAIT + PATIENCE;
    match address {
        Address::Sqlite(_) => std::future::pending().await,
        Address::Postgres(parameters) => {
            let (client, _ended) = lock_session(parameters).await?;
            let values: [&(dyn ToSql + Sync); 1] = [&number];
            loop {
                // Shared: all who wait get it at once. It ends with this connection.
                let waiting = client.execute("select pg_advisory_lock_shared($1)", &values);
                match answered(bound, waiting).await? {
                    Ok(_) => return Ok(()),
                    Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {}
                    Err(error) => return Err(postgres::described(&error)),
                }
            }
        }
        Address::MySql(url) => {
            let mut connection = mysql_lock_session(url).await?;
            let lift = connection.query_drop("set session max_statement_time = 0");
            let _ = answered(PATIENCE, lift).await?;
            let wait = format!("select get_lock('{}', {})", mysql_name(number), WAIT.as_secs());
            loop {
                let waiting = connection.query_first::<Option<i64>, _>(wait.as_str());
                match answered(bound, waiting).await?.map_err(|error| mysql::described(&error))? {
                    Some(Some(1)) => break,
                    Some(Some(0)) => {}
                    _ => return Err("the lock was not given".into()),
                }
            }
            let release = connection.query_drop("do release_all_locks()");
            let _ = answered(PATIENCE, release).await?;
            Ok(())
        }
    }
}

fn mysql_name(number: i64) -> String {
    format!("mandate-{number:x}")
}

fn random() -> Result<i64, String> {
    let number = getrandom::u64().map_err(|error| error.to_string())?;
    Ok((number >> 1) as i64)
}

#[cfg(test)]
mod tests {
    use mandate_servers::Server;
    use mandate_servers::mariadb::{MariaDb, MariaDbConfig};
    use mandate_servers::postgres::{Postgres, PostgresConfig};

    use super::*;

    /// With several hosts and no primary within reach a connection settles on a standby. The leader's lock is on the
    /// primary: on a standby it would seem free.
    #[tokio::test(flavor = "multi_thread")]
    async fn no_lock_is_held_or_waited_for_on_a_standby() {
        let primary = Postgres::launch(&PostgresConfig::default()).unwrap();
        let standby = primary.standby().unwrap();
        let address: Address = primary.url().parse().unwrap();
        let locked = Locked::take(&address).await.unwrap();
        let (port, primary_port) = (standby.port(), primary.port());
        let alone = format!("postgres://mandate@127.0.0.1:{port}/postgres");
        let cut = format!("postgres://mandate@127.0.0.1:{port},127.0.0.1:1/postgres");
        for address in [alone, cut].map(|url| url.parse::<Address>().unwrap()) {
            let waited = wait_once(&address, locked.number).await;
            assert!(waited.unwrap_err().contains("standby"), "{address}: it is held");
            let taken = Locked::take(&address).await.map(|locked| locked.number);
            assert!(taken.unwrap_err().contains("standby"), "{address}: nobody would see it");
        }
        let both = format!("postgres://mandate@127.0.0.1:{port},127.0.0.1:{primary_port}/postgres");
        let both: Address = both.parse().unwrap();
        assert!(Locked::take(&both).await.is_ok(), "the primary is there");
        standby.sql("select pg_promote()").unwrap();
        let promoted: Address = standby.url().parse().unwrap();
        assert!(Locked::take(&promoted).await.is_ok(), "it is a primary now");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_lock_is_held_or_waited_for_on_a_replica() {
        let server = MariaDb::launch(&MariaDbConfig::default()).unwrap();
        let address: Address = server.url().parse().unwrap();
        assert!(Locked::take(&address).await.is_ok());
        server.sql("set global read_only = on").unwrap();
        let taken = Locked::take(&address).await.map(|locked| locked.number);
        assert!(taken.unwrap_err().contains("only be read"));
        assert!(wait_once(&address, 7).await.unwrap_err().contains("only be read"));
    }
}
