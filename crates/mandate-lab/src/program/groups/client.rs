//! A connection to a members' database beside theirs: an application's, or a stranger's.

use std::time::Duration;

use anyhow::Context;
use mandate_sql::Address;
use mysql_async::prelude::Queryable;
use rusqlite::{Connection, OpenFlags};
use tokio::time::timeout;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// What is not answered by then is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// A connection.
pub(super) enum Client {
    Sqlite(Connection),
    Postgres(tokio_postgres::Client),
    MySql(Box<mysql_async::Conn>),
}

impl Client {
    /// Connects. Who waits for a lock gives up in time, and so does who holds one and is silent, where that can be
    /// asked for.
    pub(super) async fn open(address: &Address) -> anyhow::Result<Self> {
        within(async {
            Ok(match address {
                Address::Sqlite(path) => {
                    // Not made: its tables are the members' business.
                    let connection =
                        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
                    connection.busy_timeout(PATIENCE)?;
                    Client::Sqlite(connection)
                }
                Address::Postgres(url) => {
                    let (client, connection) = tokio_postgres::connect(url.as_str(), NoTls).await?;
                    tokio::spawn(connection);
                    Client::Postgres(client)
                }
                Address::MySql(url) => {
                    let opts = mysql_async::Opts::from_url(url.as_str())?;
                    Client::MySql(Box::new(mysql_async::Conn::new(opts).await?))
                }
                address => anyhow::bail!("there is no client for {address}"),
            })
        })
        .await
    }

    /// A server that has not heard of an open transaction for so long ends it. Only a server: the process that holds the lock
    /// of a file holds it.
    pub(super) async fn limit_idle(&mut self) -> anyhow::Result<()> {
        let seconds = PATIENCE.as_secs();
        match self {
            Client::Sqlite(_) => Ok(()),
            Client::Postgres(_) => {
                let limits = format!(
                    "set lock_timeout = '{seconds}s'; set idle_in_transaction_session_timeout = '{seconds}s'"
                );
                self.execute(&limits).await
            }
            Client::MySql(_) => {
                let limits = format!(
                    "set session innodb_lock_wait_timeout = {seconds}, session idle_transaction_timeout = {seconds}"
                );
                self.execute(&limits).await
            }
        }
    }

    /// Carries statements out, whatever they return.
    pub(super) async fn execute(&mut self, sql: &str) -> anyhow::Result<()> {
        within(async {
            match self {
                Client::Sqlite(connection) => connection.execute_batch(sql)?,
                Client::Postgres(client) => client.batch_execute(sql).await?,
                Client::MySql(connection) => connection.query_drop(sql).await?,
            }
            Ok(())
        })
        .await
    }

    /// Reads whole numbers.
    pub(super) async fn numbers<const N: usize>(
        &mut self,
        sql: &str,
    ) -> anyhow::Result<Vec<[i64; N]>> {
        within(async {
            let texts: Vec<Vec<Option<String>>> = match self {
                Client::Sqlite(connection) => {
                    let mut statement = connection.prepare(sql)?;
                    let cells = |row: &rusqlite::Row<'_>| {
                        let number = |place| Ok(Some(row.get::<_, i64>(place)?.to_string()));
                        (0..N).map(number).collect::<rusqlite::Result<Vec<_>>>()
                    };
                    statement.query_map([], cells)?.collect::<rusqlite::Result<_>>()?
                }
                Client::Postgres(client) => {
                    let messages = client.simple_query(sql).await?;
                    let rows = messages.iter().filter_map(|message| match message {
                        SimpleQueryMessage::Row(row) => Some(row),
                        _ => None,
                    });
                    let cell = |text: &str| text.to_owned();
                    rows.map(|row| (0..N).map(|place| row.get(place).map(cell)).collect()).collect()
                }
                Client::MySql(connection) => {
                    let rows: Vec<mysql_async::Row> = connection.query(sql).await?;
                    let cell = |row: &mysql_async::Row, place| row.get::<Option<String>, _>(place);
                    rows.iter()
                        .map(|row| (0..N).map(|place| cell(row, place).flatten()).collect())
                        .collect()
                }
            };
            texts.into_iter().map(|cells| parse(&cells)).collect()
        })
        .await
    }
}

fn parse<const N: usize>(cells: &[Option<String>]) -> anyhow::Result<[i64; N]> {
    let mut numbers = [0; N];
    for (number, cell) in numbers.iter_mut().zip(cells) {
        let text = cell.as_deref().context("a number is missing")?;
        *number = text.parse().with_context(|| format!("`{text}` is no number"))?;
    }
    Ok(numbers)
}

async fn within<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    timeout(PATIENCE, work).await.context("the database did not answer")?
}
