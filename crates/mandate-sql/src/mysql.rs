//! MySQL and MariaDB, and what speaks their protocol.
//!
//! A batch is sent whole, as text. Where it has several writes they are one transaction. On Galera the second of
//! two writers to a row learns at its commit that it was not the first: error 1213, which says that nothing was
//! done.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row, SslOpts};
use tokio::sync::Mutex;

use crate::batch::{self, Batch, Done, Value};
use crate::error::Trouble;

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Mutex<Conn>,
    /// Certification-based replication: locks by name are of one node only.
    pub(crate) is_cluster: bool,
}

/// How to connect.
pub(crate) fn options(url: &url::Url) -> Result<OptsBuilder, String> {
    let mut url = url.clone();
    let mut root = None;
    let rest: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    url.set_query(None);
    for (name, value) in rest {
        match name.as_str() {
            "sslrootcert" => root = Some(std::path::PathBuf::from(value)),
            _ => {
                url.query_pairs_mut().append_pair(&name, &value);
            }
        }
    }
    let opts = Opts::from_url(url.as_str()).map_err(|error| error.to_string())?;
    let mut builder = OptsBuilder::from_opts(opts.clone())
        // Conditions are counted, not changes: a row that was written as it was is one.
        .client_found_rows(true)
        .prefer_socket(false)
        .tcp_keepalive(Some(Duration::from_secs(5)));
    if let Some(root) = root {
        let tls = opts.ssl_opts().cloned().unwrap_or_default();
        let tls: SslOpts = tls.with_root_certs(vec![root.into()]);
        builder = builder.ssl_opts(tls);
    }
    Ok(builder)
}

/// A connection for anything.
pub(crate) async fn connect(url: &url::Url, patience: Duration) -> Result<Conn, String> {
    let conn = tokio::time::timeout(patience, Conn::new(options(url)?)).await;
    let conn = conn.map_err(|_| format!("no answer within {patience:?}"))?;
    conn.map_err(|error| described(&error))
}

impl Session {
    pub(crate) async fn open(url: &url::Url, patience: Duration) -> Result<Self, String> {
        let mut connection = connect(url, patience.max(Duration::from_secs(5))).await?;
        let prepared = prepare(&mut connection, patience).await;
        let is_cluster = prepared.map_err(|error| described(&error))?;
        Ok(Session { connection: Mutex::new(connection), is_cluster })
    }

    pub(crate) async fn run(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        let mut connection = self.connection.lock().await;
        let done = send(&mut connection, &batch).await;
        done.map_err(trouble)
    }
}

/// Sets the session up; whether the server is a node of a cluster.
async fn prepare(connection: &mut Conn, patience: Duration) -> Result<bool, Error> {
    let seconds = patience.as_secs().max(1);
    connection
        .query_drop(format!(
            "set session innodb_lock_wait_timeout = {seconds}, session wait_timeout = 3600, \
             session transaction_isolation = 'READ-COMMITTED', session autocommit = 1"
        ))
        .await
        // MariaDB before 11.1 has the older name.
        .or(connection
            .query_drop(format!(
                "set session innodb_lock_wait_timeout = {seconds}, session wait_timeout = 3600, \
                 session tx_isolation = 'READ-COMMITTED', session autocommit = 1"
            ))
            .await)?;
    // In seconds, MariaDB; MySQL has a limit for reads only, and its lock timeout bounds the rest.
    let limit = format!("set session max_statement_time = {}", (patience * 2).as_secs_f64());
    let _ = connection.query_drop(limit).await;
    let cluster: Option<(String, String)> =
        connection.query_first("show status like 'wsrep_cluster_size'").await?;
    Ok(cluster.is_some_and(|(_, size)| size.parse::<u32>().is_ok_and(|size| size > 0)))
}

async fn send(connection: &mut Conn, batch: &Batch) -> Result<Vec<Done>, Error> {
    let mut texts: Vec<String> = batch.steps.iter().map(batch::mysql).collect();
    if batch.atomic {
        texts.insert(0, "start transaction".into());
        texts.push("commit".into());
    }
    let done = collect(connection, &texts.join(";\n"), texts.len()).await;
    match done {
        Ok(mut done) if batch.atomic => {
            done.pop();
            done.remove(0);
            Ok(done)
        }
        Err(error @ Error::Server(_)) if batch.atomic => {
            connection.query_drop("rollback").await?;
            Err(error)
        }
        done => done,
    }
}

async fn collect(connection: &mut Conn, text: &str, expected: usize) -> Result<Vec<Done>, Error> {
    let mut result = connection.query_iter(text).await?;
    let mut all = Vec::with_capacity(expected);
    while all.len() < expected {
        let changed = result.affected_rows();
        let rows: Vec<Row> = result.collect().await?;
        let rows = rows.into_iter().map(cells);
        all.push(Done { changed, rows: rows.collect() });
    }
    result.drop_result().await?;
    Ok(all)
}

/// By the text protocol numbers are digits: the column says what they are.
fn cells(row: Row) -> Vec<Value> {
    let columns = row.columns();
    let cell = |(column, value): (&mysql_async::Column, mysql_async::Value)| match value {
        mysql_async::Value::Bytes(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            match column.column_type().is_numeric_type() {
                true => text.parse().map_or(Value::Text(text), Value::Int),
                false => Value::Text(text),
            }
        }
        _ => Value::Null,
    };
    columns.iter().zip(row.unwrap()).map(cell).collect()
}

/// An error without the driver's own layers: it says "input/output error" once for each.
pub(crate) fn described(error: &Error) -> String {
    error.to_string().trim_start_matches("Input/output error: ").to_owned()
}

/// Errors of the server say that nothing was done, but for those in which a commit may have been under way.
fn trouble(error: Error) -> Trouble {
    /// Shutdown, error during commit, interrupted, the limit of time.
    const UNSURE: [u16; 5] = [1053, 1180, 1317, 1969, 3024];
    match &error {
        Error::Server(server) => {
            let reason = match server.code {
                1205 => "a lock was held by another for too long (1205)".to_owned(),
                1213 => "another writer was first (1213)".to_owned(),
                1047 => "this node of the cluster does not take part at present (1047)".to_owned(),
                1180 if is_alone(server) => {
                    "this node of the cluster has lost the others (1180)".to_owned()
                }
                1290 | 1836 => format!("the server is read-only ({})", server.code),
                _ => server.to_string(),
            };
            let unknown = UNSURE.contains(&server.code);
            // A node without its cluster, a server that ends or that may only be read: elsewhere perhaps.
            let broken = [1047, 1053, 1290, 1836].contains(&server.code) || is_alone(server);
            Trouble { reason, unknown, broken }
        }
        _ => Trouble::lost(described(&error)),
    }
}

/// A node that lost its cluster in the middle of a commit.
fn is_alone(error: &mysql_async::ServerError) -> bool {
    error.message.contains("Not connected to Primary Component")
}
