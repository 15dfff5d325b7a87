//! Locks of MySQL by name, whose end tells that a process died.

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::time::{sleep, timeout};
use url::Url;

use super::{connect, described};
use crate::dbms::HeldLock;
use crate::server::{LOCK_PATIENCE, LOCK_WAIT, answered};

/// Between questions whether the session is still there: it says nothing by itself, and is closed by the server after a while
/// if nobody asks.
const PING: Duration = Duration::from_secs(2);

pub(super) async fn take(url: &Url, number: i64) -> Result<HeldLock, String> {
    let mut connection = session(url).await?;
    let take = format!("select get_lock('{}', 0)", name(number));
    let taken = answered(LOCK_PATIENCE, connection.query_first::<Option<i64>, _>(take)).await?;
    match taken {
        Ok(Some(Some(1))) => {}
        Ok(_) => return Err("a lock that was drawn at random is taken".into()),
        Err(error) => return Err(described(&error)),
    }
    Ok(Box::pin(async move {
        loop {
            sleep(PING).await;
            match timeout(LOCK_PATIENCE, connection.ping()).await {
                Ok(Ok(())) => {}
                _ => return,
            }
        }
    }))
}

/// Waits over one connection, a while at a time.
pub(super) async fn wait(url: &Url, number: i64) -> Result<(), String> {
    let mut connection = session(url).await?;
    let lift = connection.query_drop("set session max_statement_time = 0");
    let _ = answered(LOCK_PATIENCE, lift).await?;
    let wait = format!("select get_lock('{}', {})", name(number), LOCK_WAIT.as_secs());
    loop {
        let waiting = connection.query_first::<Option<i64>, _>(wait.as_str());
        let told = answered(LOCK_WAIT + LOCK_PATIENCE, waiting).await?;
        match told.map_err(|error| described(&error))? {
            Some(Some(1)) => break,
            Some(Some(0)) => {}
            _ => return Err("the lock was not given".into()),
        }
    }
    let release = connection.query_drop("do release_all_locks()");
    let _ = answered(LOCK_PATIENCE, release).await?;
    Ok(())
}

/// A session on a server that takes writes: a name or a proxy may lead to a replica.
async fn session(url: &Url) -> Result<Conn, String> {
    let mut connection = connect(url, LOCK_PATIENCE).await.map_err(|it| it.reason)?;
    let ask = connection.query_first::<String, _>("select @@global.read_only");
    let told = answered(LOCK_PATIENCE, ask).await?.map_err(|error| described(&error))?;
    // A number here, a word there.
    match told.as_deref() {
        None | Some("0" | "OFF") => Ok(connection),
        Some(_) => Err("the server may only be read: its locks are its own".into()),
    }
}

fn name(number: i64) -> String {
    format!("mandate-{number:x}")
}

#[cfg(test)]
mod tests {
    use mandate_servers::Server;
    use mandate_servers::mariadb::{MariaDb, MariaDbConfig};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn no_lock_is_held_or_waited_for_on_a_replica() {
        let server = MariaDb::launch(&MariaDbConfig::default()).unwrap();
        let url = Url::parse(&server.url()).unwrap();
        assert!(take(&url, 7).await.is_ok());
        server.sql("set global read_only = on").unwrap();
        let taken = take(&url, 8).await.map(drop);
        assert!(taken.unwrap_err().contains("only be read"));
        assert!(wait(&url, 7).await.unwrap_err().contains("only be read"));
    }
}
