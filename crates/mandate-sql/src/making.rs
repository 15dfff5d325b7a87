//! Makes the tables on a server, where they are not there yet or are of an older version. Harmless where they are.
//!
//! Functions come last and are optional: elections do without them, and some relatives of these databases have none.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use tokio::sync::broadcast;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::error::NoConnection;
use crate::schema::{self, Dialect, Engine};
use crate::url::Parameters;
use crate::{fence, mysql, postgres, session};

/// How long connecting may take, and the wait for another who makes them.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long all of it may take.
const BOUND: Duration = Duration::from_secs(60);

/// One at a time: of two that make a table which is not there, PostgreSQL fails one, whatever they say of its existence. The
/// lock is the transaction's, so that none is left in a session that a pooler lends to others.
pub(crate) async fn on_postgres(parameters: &Parameters) -> Result<(), NoConnection> {
    let (client, _) = postgres::connect(parameters, broadcast::Sender::new(1)).await?;
    let making = async {
        let server = postgres::recognise(&client).await?;
        // Relatives have no such locks, and not all change tables within a transaction.
        let is_transaction = server.is_original;
        if is_transaction {
            client.batch_execute("begin").await?;
            client.batch_execute("select pg_advisory_xact_lock(775014863)").await?;
        }
        for statement in schema::tables(Dialect::Postgres, Engine::default()) {
            client.batch_execute(&statement).await?;
        }
        // Not where it was done: even an attempt waits for every transaction that has read the table, and others wait
        // behind it.
        let is_current = version_on_postgres(&client).await? == Some(schema::VERSION);
        for upgrade in schema::UPGRADES.into_iter().filter(|_| !is_current) {
            let done = attempt(&client, is_transaction, upgrade).await;
            if let Err(error) = done
                && !schema::is_done(&postgres::described(&error))
            {
                return Err(error);
            }
        }
        client.batch_execute(&schema::version(Dialect::Postgres)).await?;
        for function in fence::functions(Dialect::Postgres) {
            let done = attempt(&client, is_transaction, &function).await;
            without_function(done.err().map(|error| postgres::described(&error)));
        }
        if is_transaction {
            client.batch_execute("commit").await?;
        }
        Ok(())
    };
    let making = async { making.await.map_err(|error| postgres::refusal(&error)) };
    session::within(BOUND, making).await
}

/// Which version of the tables is there.
const VERSION_FOUND: &str = "select max(version) from mandate_schema";

/// By the simple protocol, which leaves nothing in a session.
async fn version_on_postgres(client: &Client) -> Result<Option<i64>, tokio_postgres::Error> {
    let said = client.simple_query(VERSION_FOUND).await?;
    Ok(said.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    }))
}

/// Carries out what may fail, without ending the transaction that it is in.
async fn attempt(
    client: &Client,
    is_transaction: bool,
    statement: &str,
) -> Result<(), tokio_postgres::Error> {
    if !is_transaction {
        return client.batch_execute(statement).await;
    }
    client.batch_execute("savepoint attempt").await?;
    let done = client.batch_execute(statement).await;
    let ends = if done.is_ok() { "release" } else { "rollback to" };
    client.batch_execute(&format!("{ends} savepoint attempt")).await?;
    done
}

/// One at a time, as above: a procedure is replaced in two steps.
pub(crate) async fn on_mysql(url: &url::Url) -> Result<(), NoConnection> {
    let mut connection = mysql::connect(url, PATIENCE).await?;
    let making = async {
        let wait = format!("do get_lock('mandate sql init', {})", PATIENCE.as_secs());
        let _ = connection.query_drop(wait).await;
        let ndb = connection.query_first::<(String, String), _>(
            "select engine, support from information_schema.engines \
             where engine = 'ndbcluster' and support in ('YES', 'DEFAULT')",
        );
        let is_ndb = ndb.await.is_ok_and(|engine| engine.is_some());
        let engine = if is_ndb { Engine::Ndb } else { Engine::default() };
        for statement in schema::tables(Dialect::MySql, engine) {
            connection.query_drop(statement).await?;
        }
        let found = connection.query_first::<Option<i64>, _>(VERSION_FOUND).await?.flatten();
        let is_current = found == Some(schema::VERSION);
        for upgrade in schema::UPGRADES.into_iter().filter(|_| !is_current) {
            match connection.query_drop(upgrade).await {
                Err(error) if !schema::is_done(&error.to_string()) => return Err(error),
                _ => {}
            }
        }
        connection.query_drop(schema::version(Dialect::MySql)).await?;
        for function in fence::functions(Dialect::MySql) {
            let done = connection.query_drop(function).await;
            without_function(done.err().map(|error| error.to_string()));
        }
        Ok(())
    };
    let making = async { making.await.map_err(|error| mysql::refusal(&error)) };
    session::within(BOUND, making).await?;
    let _ = connection.disconnect().await;
    Ok(())
}

/// Elections do without the fence's functions.
fn without_function(failed: Option<String>) {
    if let Some(reason) = failed {
        tracing::warn!(
            reason,
            "made the tables without the function mandate_fence: fence your transactions by the plain statements in docs/sql.md"
        );
    }
}
