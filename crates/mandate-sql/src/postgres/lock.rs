//! Advisory locks of PostgreSQL, whose end tells that a process died.

use tokio::sync::{broadcast, watch};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::parameters::Parameters;
use super::{connect, described, recognise};
use crate::dbms::HeldLock;
use crate::server::{LOCK_PATIENCE, LOCK_WAIT, answered};

pub(super) async fn take(parameters: &Parameters, number: i64) -> Result<HeldLock, String> {
    let (client, mut ended) = session(parameters).await?;
    let values: [&(dyn ToSql + Sync); 1] = [&number];
    let taking = client.execute("select pg_advisory_lock($1)", &values);
    let taken = answered(LOCK_PATIENCE, taking).await?;
    taken.map_err(|error| described(&error))?;
    Ok(Box::pin(async move {
        let _ = ended.wait_for(|ended| *ended).await;
        drop(client);
    }))
}

/// Waits over one connection, a while at a time.
pub(super) async fn wait(parameters: &Parameters, number: i64) -> Result<(), String> {
    let (client, _ended) = session(parameters).await?;
    let values: [&(dyn ToSql + Sync); 1] = [&number];
    loop {
        // Shared: all who wait get it at once. It ends with this connection.
        let waiting = client.execute("select pg_advisory_lock_shared($1)", &values);
        match answered(LOCK_WAIT + LOCK_PATIENCE, waiting).await? {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {}
            Err(error) => return Err(described(&error)),
        }
    }
}

/// A session that is ours alone, in which a lock may be held for as long as it lasts.
async fn session(parameters: &Parameters) -> Result<(Client, watch::Receiver<bool>), String> {
    let connecting = connect(parameters, broadcast::Sender::new(1));
    let (client, ended) = connecting.await.map_err(|failed| failed.reason)?;
    let server = answered(LOCK_PATIENCE, recognise(&client)).await?;
    let server = server.map_err(|error| described(&error))?;
    if server.is_pooled {
        return Err("a pooler answers: a lock would be another client's, too".into());
    }
    let ask = client.query_one("select pg_is_in_recovery()", &[]);
    let told = answered(LOCK_PATIENCE, ask).await?.map_err(|error| described(&error))?;
    if told.get(0) {
        return Err(
            "the server is a standby: its locks are its own, and the leader's is on the primary"
                .into(),
        );
    }
    let limit = LOCK_WAIT.as_millis();
    let set = format!("set statement_timeout = 0; set lock_timeout = {limit}");
    let set = answered(LOCK_PATIENCE, client.batch_execute(&set)).await?;
    set.map_err(|error| described(&error))?;
    // Before version 14 there is no such limit to lift.
    let _ = answered(LOCK_PATIENCE, client.batch_execute("set idle_session_timeout = 0")).await?;
    Ok((client, ended))
}

#[cfg(test)]
mod tests {
    use mandate_servers::Server;
    use mandate_servers::postgres::{Postgres, PostgresConfig};

    use super::*;

    /// With several hosts and no primary within reach a connection settles on a standby. The leader's lock is on the
    /// primary: on a standby it would seem free.
    #[tokio::test(flavor = "multi_thread")]
    async fn no_lock_is_held_or_waited_for_on_a_standby() {
        let primary = Postgres::launch(&PostgresConfig::default()).unwrap();
        let standby = primary.standby().unwrap();
        let at = |url: &str| Parameters::from_url(url).unwrap();
        let _locked = take(&at(&primary.url()), 7).await.unwrap();
        let (port, primary_port) = (standby.port(), primary.port());
        let alone = format!("postgres://mandate@127.0.0.1:{port}/postgres");
        let cut = format!("postgres://mandate@127.0.0.1:{port},127.0.0.1:1/postgres");
        for address in [alone, cut].map(|url| at(&url)) {
            let waited = wait(&address, 7).await;
            assert!(waited.unwrap_err().contains("standby"), "{address}: it is held");
            let taken = take(&address, 8).await.map(drop);
            assert!(taken.unwrap_err().contains("standby"), "{address}: nobody would see it");
        }
        let both = format!("postgres://mandate@127.0.0.1:{port},127.0.0.1:{primary_port}/postgres");
        assert!(take(&at(&both), 8).await.is_ok(), "the primary is there");
        standby.sql("select pg_promote()").unwrap();
        assert!(take(&at(&standby.url()), 8).await.is_ok(), "it is a primary now");
    }
}
