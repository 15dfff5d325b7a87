//! A connection to whichever database.
//!
//! Opening one is bounded. A proxy may take a connection, answer the login and then say nothing, and keep the
//! connection alive all the while: no timeout of TCP ends that. Each step has a bound of its own, the connection and what is
//! asked before the first statement: several hosts may take long together, and each of them must have its turn.

use std::time::Duration;

use tokio::sync::broadcast;

use crate::batch::{Batch, Done};
use crate::error::{NoConnection, Trouble};
use crate::url::Address;
use crate::{durability, mysql, postgres, sqlite};

/// The least that a step may take: name resolution, TLS and a login on a busy server, or what is asked after it.
const SHORTEST_BOUND: Duration = Duration::from_secs(10);

/// The most: with rounds of an hour nobody wants to wait for hours.
const LONGEST_BOUND: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    kind: Kind,
    /// Why nobody may lead here, if so.
    unsafe_because: Option<String>,
}

#[derive(Debug)]
enum Kind {
    Sqlite(sqlite::Session),
    Postgres(Box<postgres::Session>),
    MySql(Box<mysql::Session>),
}

impl Session {
    /// Connects, bounded. Names of groups whose rows have changed go to `heard`, where the database tells.
    pub(crate) async fn open(
        address: &Address,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> Result<Self, NoConnection> {
        let kind = match address {
            Address::Sqlite(path) => {
                let opening = sqlite::Session::open(path, patience);
                Kind::Sqlite(within(bound(patience), opening).await?)
            }
            Address::Postgres(url) => {
                let session = postgres::Session::open(url, patience, heard).await?;
                Kind::Postgres(Box::new(session))
            }
            Address::MySql(url) => {
                Kind::MySql(Box::new(mysql::Session::open(url, patience).await?))
            }
        };
        let mut session = Session { kind, unsafe_because: None };
        if !address.accepts_loss() && session.has_one_disk() {
            let asking = async { Ok(session.doubt(address).await) };
            session.unsafe_because = within(bound(patience), asking).await?;
        }
        Ok(session)
    }

    /// Whether what it acknowledges is kept by its own disk alone, as far as can be told.
    fn has_one_disk(&self) -> bool {
        match &self.kind {
            Kind::Sqlite(_) => false,
            Kind::Postgres(session) => session.is_original(),
            Kind::MySql(session) => !session.is_replicated,
        }
    }

    /// Asks whether it keeps what it acknowledges. Not every relative can tell: then nothing is known.
    async fn doubt(&self, address: &Address) -> Option<String> {
        let dialect = address.dialect();
        let done = self.run(durability::question(dialect)?).await.ok()?;
        durability::prohibition(dialect, &done)
    }

    /// Why nobody may lead here, if so: what was acknowledged may be lost.
    pub(crate) fn unsafe_because(&self) -> Option<&str> {
        self.unsafe_because.as_deref()
    }

    pub(crate) async fn run(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        match &self.kind {
            Kind::Sqlite(session) => session.run(batch).await,
            Kind::Postgres(session) => session.run(batch).await,
            Kind::MySql(session) => session.run(batch).await,
        }
    }

    /// Waits until the connection has ended by itself, where that shows.
    pub(crate) async fn ended(&self) {
        match &self.kind {
            Kind::Postgres(session) => session.ended().await,
            Kind::Sqlite(_) | Kind::MySql(_) => std::future::pending().await,
        }
    }

    /// Hears when rows change, or no more. Nothing is heard where there are no notifications.
    pub(crate) async fn listen(&self, listen: bool) -> Result<(), Trouble> {
        match &self.kind {
            Kind::Postgres(session) if session.has_session() => session.listen(listen).await,
            _ => Ok(()),
        }
    }

    /// Whether nothing can ever be written here, whatever happens elsewhere: a standby may become a primary.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(&self.kind, Kind::Sqlite(session) if session.is_read_only)
    }

    /// Whether a process can hold a lock whose end all others see.
    pub(crate) fn has_session_locks(&self) -> bool {
        match &self.kind {
            Kind::Sqlite(_) => false,
            Kind::Postgres(session) => session.has_session(),
            Kind::MySql(session) => !session.is_cluster,
        }
    }
}

/// How long a step may take on the way to a connection for statements of this patience.
pub(crate) fn bound(patience: Duration) -> Duration {
    (patience * 2).clamp(SHORTEST_BOUND, LONGEST_BOUND)
}

/// Takes a step within this time, or says that nobody answered.
pub(crate) async fn within<T>(
    bound: Duration,
    connecting: impl Future<Output = Result<T, NoConnection>>,
) -> Result<T, NoConnection> {
    tokio::time::timeout(bound, connecting).await.unwrap_or_else(|_| {
        Err(NoConnection::passing(format!(
            "no answer within {bound:?}: the server, or a proxy before it, does not respond"
        )))
    })
}
