//! A connection to whichever database.

use std::time::Duration;

use tokio::sync::broadcast;

use crate::batch::{Batch, Done};
use crate::error::Trouble;
use crate::url::Address;
use crate::{mysql, postgres, sqlite};

#[derive(Debug)]
pub(crate) enum Session {
    Sqlite(sqlite::Session),
    Postgres(Box<postgres::Session>),
    MySql(Box<mysql::Session>),
}

impl Session {
    /// Connects. Names of groups whose rows have changed go to `heard`, where the database tells.
    pub(crate) async fn open(
        address: &Address,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> Result<Self, String> {
        Ok(match address {
            Address::Sqlite(path) => Session::Sqlite(sqlite::Session::open(path, patience).await?),
            Address::Postgres(url) => {
                let session = postgres::Session::open(url, patience, heard).await?;
                Session::Postgres(Box::new(session))
            }
            Address::MySql(url) => {
                Session::MySql(Box::new(mysql::Session::open(url, patience).await?))
            }
        })
    }

    pub(crate) async fn run(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        match self {
            Session::Sqlite(session) => session.run(batch).await,
            Session::Postgres(session) => session.run(batch).await,
            Session::MySql(session) => session.run(batch).await,
        }
    }

    /// Waits until the connection has ended by itself, where that shows.
    pub(crate) async fn ended(&self) {
        match self {
            Session::Postgres(session) => session.ended().await,
            Session::Sqlite(_) | Session::MySql(_) => std::future::pending().await,
        }
    }

    /// Hears when rows change, or no more. Nothing is heard where there are no notifications.
    pub(crate) async fn listen(&self, listen: bool) -> Result<(), Trouble> {
        match self {
            Session::Postgres(session) if session.is_original => session.listen(listen).await,
            _ => Ok(()),
        }
    }

    /// Whether a process can hold a lock whose end all others see.
    pub(crate) fn has_session_locks(&self) -> bool {
        match self {
            Session::Sqlite(_) => false,
            Session::Postgres(session) => session.is_original,
            Session::MySql(session) => !session.is_cluster,
        }
    }
}
