//! A connection to whichever database.
//!
//! Opening one is bounded. A proxy may take a connection, answer the login and then say nothing, and keep the
//! connection alive all the while: no timeout of TCP ends that. Each step has a bound of its own, the connection and what is
//! asked before the first statement: several hosts may take long together, and each of them must have its turn.

use std::time::Duration;

use tokio::sync::broadcast;

use crate::batch::{Batch, Done};
use crate::dbms::RawSession;
use crate::durability;
use crate::error::{NoConnection, Trouble};
use crate::url::Address;

/// The least that a step may take: name resolution, TLS and a login on a busy server, or what is asked after it.
const SHORTEST_BOUND: Duration = Duration::from_secs(10);

/// The most: with rounds of an hour nobody wants to wait for hours.
const LONGEST_BOUND: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    raw: Box<dyn RawSession>,
    /// Why nobody may lead here, if so.
    unsafe_because: Option<String>,
}

impl Session {
    /// Connects, bounded. Names of groups whose rows have changed go to `heard`, where the database tells.
    pub(crate) async fn open(
        address: &Address,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> Result<Self, NoConnection> {
        let raw = address.dbms().connect(patience, heard).await?;
        let mut session = Session { raw, unsafe_because: None };
        if !address.dbms().accepts_loss() && session.raw.has_one_disk() {
            let asking = async { Ok(session.doubt(address).await) };
            session.unsafe_because = within(bound(patience), asking).await?;
        }
        Ok(session)
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
        self.raw.run(batch).await
    }

    /// Waits until the connection has ended by itself, where that shows.
    pub(crate) async fn ended(&self) {
        self.raw.ended().await;
    }

    /// Hears when rows change, or no more. Nothing is heard where there are no notifications.
    pub(crate) async fn listen(&self, listen: bool) -> Result<(), Trouble> {
        self.raw.listen(listen).await
    }

    /// Whether nothing can ever be written here.
    pub(crate) fn is_read_only(&self) -> bool {
        self.raw.is_read_only()
    }

    /// Whether a process can hold a lock whose end all others see.
    pub(crate) fn has_session_locks(&self) -> bool {
        self.raw.has_session_locks()
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
