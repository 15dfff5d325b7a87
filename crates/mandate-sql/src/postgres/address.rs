//! Addresses of PostgreSQL, and what this crate does with them.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::broadcast;

use super::parameters::Parameters;
use super::target::{Surroundings, names_database};
use super::{Session, lock, making};
use crate::dbms::{Dbms, HeldLock, RawSession};
use crate::durability;
use crate::error::{NoConnection, SqlError};
use crate::schema::Dialect;
use crate::server::UNNAMED;
use crate::url::{Address, wrong};

/// Reads a URL or pairs.
pub(crate) fn parse(text: &str) -> Result<Address, SqlError> {
    let parameters = match text.contains("://") {
        true => Parameters::from_url(text),
        false => Parameters::from_pairs(text),
    };
    let parameters = parameters.map_err(|reason| wrong(text, reason))?;
    match names_database(&parameters, &Surroundings::own()) {
        true => Ok(Address::Postgres(Box::new(parameters))),
        false => Err(SqlError::Address { url: parameters.to_string(), reason: UNNAMED.into() }),
    }
}

impl Dbms for Parameters {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn url(&self) -> String {
        self.as_str().to_owned()
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn accepts_loss(&self) -> bool {
        self.get(durability::PARAMETER) == Some(durability::ACCEPTED)
    }

    fn host_and_port(&self) -> Option<(String, u16)> {
        let host = self.get("host").filter(|host| !host.contains([',', '/']))?;
        let port = self.get("port").map_or(Some(5432), |port| port.parse().ok())?;
        Some((host.to_owned(), port))
    }

    fn through(&self, host: &str, port: u16) -> Address {
        Address::Postgres(Box::new(self.moved(host, port)))
    }

    fn connect(
        &self,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> BoxFuture<'_, Result<Box<dyn RawSession>, NoConnection>> {
        Box::pin(async move { Ok(Box::new(Session::open(self, patience, heard).await?) as _) })
    }

    fn make_schema(&self) -> Option<BoxFuture<'_, Result<(), NoConnection>>> {
        Some(Box::pin(making::make(self)))
    }

    fn take_lock(&self, number: i64) -> BoxFuture<'_, Result<HeldLock, String>> {
        Box::pin(lock::take(self, number))
    }

    fn await_lock(&self, number: i64) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(lock::wait(self, number))
    }
}
