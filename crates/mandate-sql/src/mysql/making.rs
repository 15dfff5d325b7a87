//! Makes the tables on MySQL or MariaDB, where they are not there yet or are of an older version. Harmless where they are.
//!
//! Functions come last and are optional: elections do without them, and some relatives of MySQL have none.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use url::Url;

use super::{connect, refusal};
use crate::error::NoConnection;
use crate::schema::{self, Dialect, Engine};
use crate::server::{MAKING_BOUND, without_function};
use crate::{fence, session};

/// How long connecting may take, and the wait for another who makes them.
const PATIENCE: Duration = Duration::from_secs(10);

/// One at a time: a procedure is replaced in two steps.
pub(super) async fn make(url: &Url) -> Result<(), NoConnection> {
    let mut connection = connect(url, PATIENCE).await?;
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
        let found = connection.query_first::<Option<i64>, _>(schema::look().sql).await?.flatten();
        let is_current = found.is_some_and(|found| found >= schema::VERSION);
        for upgrade in schema::upgrades(Dialect::MySql).into_iter().filter(|_| !is_current) {
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
    let making = async { making.await.map_err(|error| refusal(&error)) };
    session::within(MAKING_BOUND, making).await?;
    let _ = connection.disconnect().await;
    Ok(())
}
