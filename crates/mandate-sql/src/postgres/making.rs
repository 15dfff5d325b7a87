//! Makes the tables on PostgreSQL, where they are not there yet or are of an older version. Harmless where they are.
//!
//! Functions come last and are optional: elections do without them, and some relatives of PostgreSQL have none.

use tokio::sync::broadcast;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::parameters::Parameters;
use super::{connect, described, recognise, refusal};
use crate::error::NoConnection;
use crate::schema::{self, Dialect, Engine};
use crate::server::{MAKING_BOUND, without_function};
use crate::{fence, session};

/// One at a time: of two that make a table which is not there, PostgreSQL fails one, whatever they say of its existence. The
/// lock is the transaction's, so that none is left in a session that a pooler lends to others.
pub(super) async fn make(parameters: &Parameters) -> Result<(), NoConnection> {
    let (client, _) = connect(parameters, broadcast::Sender::new(1)).await?;
    let making = async {
        let server = recognise(&client).await?;
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
        let is_current = version(&client).await?.is_some_and(|found| found >= schema::VERSION);
        for upgrade in schema::upgrades(Dialect::Postgres).into_iter().filter(|_| !is_current) {
            let done = attempt(&client, is_transaction, &upgrade).await;
            if let Err(error) = done
                && !schema::is_done(&described(&error))
            {
                return Err(error);
            }
        }
        client.batch_execute(&schema::version(Dialect::Postgres)).await?;
        for function in fence::functions(Dialect::Postgres) {
            let done = attempt(&client, is_transaction, &function).await;
            without_function(done.err().map(|error| described(&error)));
        }
        if is_transaction {
            client.batch_execute("commit").await?;
        }
        Ok(())
    };
    let making = async { making.await.map_err(|error| refusal(&error)) };
    session::within(MAKING_BOUND, making).await
}

/// Which version of the tables is there, by the simple protocol, which leaves nothing in a session.
async fn version(client: &Client) -> Result<Option<i64>, tokio_postgres::Error> {
    let said = client.simple_query(schema::look().sql).await?;
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
