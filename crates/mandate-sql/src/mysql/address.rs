//! Addresses of MySQL and MariaDB, and what this crate does with them.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::broadcast;
use url::Url;

use super::{Session, lock, making};
use crate::dbms::{Dbms, HeldLock, RawSession};
use crate::durability;
use crate::error::{NoConnection, SqlError};
use crate::schema::Dialect;
use crate::server::{ENCODE, UNNAMED};
use crate::url::{Address, wrong};

/// Parameters whose values nobody is to see.
const SECRETS: [&str; 3] = ["password", "pass", "pwd"];

/// Reads a URL.
pub(crate) fn parse(text: &str) -> Result<Address, SqlError> {
    let url = read(text).map_err(|reason| wrong(text, reason))?;
    Ok(Address::MySql(Box::new(url)))
}

fn read(text: &str) -> Result<Url, String> {
    // The scheme of a URL of this kind cannot be changed in place.
    let (_, rest) = text.split_once("://").unwrap_or(("", text));
    let url =
        Url::parse(&format!("mysql://{rest}")).map_err(|error| format!("{error}; {ENCODE}"))?;
    // A slash in a password cuts the text in the wrong place.
    if url.path().contains('@')
        || url.query().is_some_and(|query| query.contains('@'))
        || url.fragment().is_some()
    {
        return Err(format!("it cannot be split into its parts: {ENCODE}"));
    }
    if url.path().len() < 2 {
        return Err(UNNAMED.into());
    }
    super::options(&url)?;
    Ok(url)
}

fn without_secrets(url: &Url) -> Url {
    let mut shown = url.clone();
    if shown.password().is_some() {
        let _ = shown.set_password(Some("..."));
    }
    if url.query().is_some() {
        shown.query_pairs_mut().clear().extend_pairs(url.query_pairs().map(|(name, value)| {
            let is_secret = SECRETS.contains(&name.to_ascii_lowercase().as_str());
            (name, if is_secret { "...".into() } else { value })
        }));
    }
    shown
}

impl Dbms for Url {
    fn dialect(&self) -> Dialect {
        Dialect::MySql
    }

    fn url(&self) -> String {
        self.to_string()
    }

    fn shown(&self) -> String {
        without_secrets(self).to_string()
    }

    fn accepts_loss(&self) -> bool {
        self.query_pairs()
            .any(|(name, value)| name == durability::PARAMETER && value == durability::ACCEPTED)
    }

    fn host_and_port(&self) -> Option<(String, u16)> {
        Some((self.host_str()?.to_owned(), self.port().unwrap_or(3306)))
    }

    fn through(&self, host: &str, port: u16) -> Address {
        let mut url = self.clone();
        let _ = url.set_host(Some(host));
        let _ = url.set_port(Some(port));
        Address::MySql(Box::new(url))
    }

    fn connect(
        &self,
        patience: Duration,
        _heard: broadcast::Sender<String>,
    ) -> BoxFuture<'_, Result<Box<dyn RawSession>, NoConnection>> {
        Box::pin(async move { Ok(Box::new(Session::open(self, patience).await?) as _) })
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
