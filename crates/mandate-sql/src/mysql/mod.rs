//! MySQL and MariaDB, and what speaks their protocol.
//!
//! A batch is sent whole, as text. Where it has several writes they are one transaction. On Galera the second of
//! two writers to a row learns at its commit that it was not the first: error 1213, which says that nothing was
//! done.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`address`] | what the rest of this crate does with such a database |
//! | [`dial`] | the connection and the login |
//! | [`making`] | the tables |
//! | [`lock`] | locks whose end tells that a process died |
//! | [`mod@fence`] | a term, checked in the caller's transaction |

pub(crate) mod address;
mod dial;
pub(crate) mod fence;
mod lock;
mod making;

use std::time::Duration;

use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, IoError, Row};
use tokio::sync::Mutex;

use crate::batch::{self, Batch, Done, Step, Value};
use crate::dbms::RawSession;
use crate::error::{NoConnection, Trouble};
use crate::session;
pub(crate) use dial::{connect, options};

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Mutex<Conn>,
    /// Several nodes take writes to the same rows: locks by name are of one of them only.
    is_cluster: bool,
    /// Others have what it acknowledges, besides its own disk.
    is_replicated: bool,
}

impl Session {
    pub(crate) async fn open(url: &url::Url, patience: Duration) -> Result<Self, NoConnection> {
        let mut connection = connect(url, patience).await?;
        let preparing =
            async { prepare(&mut connection, patience).await.map_err(|error| refusal(&error)) };
        let signs = session::within(session::bound(patience), preparing).await?;
        let (is_cluster, is_replicated) = (is_cluster(&signs), is_replicated(&signs));
        Ok(Session { connection: Mutex::new(connection), is_cluster, is_replicated })
    }
}

impl RawSession for Session {
    fn run(&self, batch: Batch) -> BoxFuture<'_, Result<Vec<Done>, Trouble>> {
        Box::pin(async move {
            let mut connection = self.connection.lock().await;
            send(&mut connection, &batch).await.map_err(trouble)
        })
    }

    fn has_one_disk(&self) -> bool {
        !self.is_replicated
    }

    fn has_session_locks(&self) -> bool {
        !self.is_cluster
    }
}

/// Sets the session up; what tells whether the server is a node of a cluster.
async fn prepare(connection: &mut Conn, patience: Duration) -> Result<Signs, Error> {
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
    let mut signs = Vec::new();
    for question in CLUSTER_SIGNS {
        let told = match connection.query::<(String, Option<String>), _>(question).await {
            // Not every relative knows what is asked for here.
            Err(Error::Server(_)) => Vec::new(),
            told => told?,
        };
        signs.extend(told.into_iter().map(|(name, value)| (name, value.unwrap_or_default())));
    }
    Ok(signs)
}

/// Names and values.
type Signs = Vec<(String, String)>;

/// What tells a node of a cluster, each as a name and a value. No privilege is needed for these.
const CLUSTER_SIGNS: [&str; 4] = [
    "select 'version', version()",
    "show status like 'wsrep_cluster_size'",
    "show global variables like 'group_replication_%'",
    "select 'ndbcluster', support from information_schema.engines where engine = 'ndbcluster'",
];

/// Whether several nodes take writes to the same rows: Galera, Group Replication with several primaries, NDB. (Tables that
/// are not NDB's on an NDB node are refused elsewhere.)
fn is_cluster(signs: &[(String, String)]) -> bool {
    let is_galera = sign(signs, "wsrep_cluster_size").parse().is_ok_and(|size: u32| size > 0);
    let has_several_primaries = is_in_group(signs)
        && sign(signs, "group_replication_single_primary_mode").eq_ignore_ascii_case("off");
    let is_ndb = ["YES", "DEFAULT"].contains(&sign(signs, "ndbcluster"));
    is_galera || has_several_primaries || is_ndb
}

/// Whether others have what it acknowledges. TiDB answers for its disks with values of its own making.
fn is_replicated(signs: &[(String, String)]) -> bool {
    is_cluster(signs) || is_in_group(signs) || sign(signs, "version").contains("TiDB")
}

fn is_in_group(signs: &[(String, String)]) -> bool {
    !sign(signs, "group_replication_group_name").is_empty()
}

fn sign<'a>(signs: &'a [(String, String)], name: &str) -> &'a str {
    let sign = signs.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    sign.map_or("", |(_, value)| value.as_str())
}

async fn send(connection: &mut Conn, batch: &Batch) -> Result<Vec<Done>, Error> {
    let mut texts: Vec<String> = batch.steps.iter().map(text).collect();
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

/// A statement as MySQL writes it, values and all: so that a batch is sent whole.
fn text(step: &Step) -> String {
    let text = batch::with_insert(step.sql, "insert ignore into", "");
    let text = text.replace("::bigint", "").replace("is not distinct from", "<=>");
    let text = text.replace("on conflict (group_name) do update set", "on duplicate key update");
    let mut written = String::with_capacity(text.len() * 2);
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('$') {
        written += before;
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let place: usize = after[..digits].parse().unwrap_or(0);
        match step.values.get(place.wrapping_sub(1)) {
            Some(value) => written += &literal(value),
            None => written += "null",
        }
        rest = &after[digits..];
    }
    written + rest
}

/// Text as hexadecimal digits: nothing in it can end it early.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) if text.is_empty() => "''".into(),
        Value::Text(text) => {
            let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            format!("_utf8mb4 x'{digits}'")
        }
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

/// What a login or the first questions failed with.
pub(crate) fn refusal(error: &Error) -> NoConnection {
    /// Access denied to a database, to a user, to a table, to a column, to a command; an unknown database; a host that is
    /// not allowed; a plug-in that cannot be used; a transport that is not allowed.
    const LASTING: [u16; 10] = [1044, 1045, 1049, 1130, 1142, 1143, 1227, 1251, 1698, 3159];
    let mut reason = described(error);
    let is_final = match error {
        Error::Server(server) => {
            if server.message.contains("insecure transport") {
                reason += ": the server wants TLS; leave ssl-mode=DISABLED out of the address";
            }
            LASTING.contains(&server.code)
        }
        Error::Driver(DriverError::NoClientSslFlagFromServer) => {
            reason = "the server does not offer TLS, and ssl-mode asks for it".into();
            true
        }
        Error::Driver(
            DriverError::CleartextPluginDisabled | DriverError::UnknownAuthPlugin { .. },
        )
        | Error::Url(_) => true,
        // Files that cannot be read, and certificates that are not trusted.
        Error::Io(IoError::Tls(_)) => true,
        Error::Io(IoError::Io(io)) => io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
        _ => false,
    };
    NoConnection { reason, is_final }
}

/// Errors of the server say that nothing was done, but for those in which a commit may have been under way.
fn trouble(error: Error) -> Trouble {
    /// Shutdown, error during commit, interrupted, the limit of time.
    const UNSURE: [u16; 5] = [1053, 1180, 1317, 1969, 3024];
    match &error {
        Error::Server(server) => {
            let reason = match server.code {
                1205 => {
                    "a lock on the row was held for too long, by another transaction or by a commit that waits for a \
                     replica (1205)"
                        .to_owned()
                }
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
            let is_final = [1142, 1143, 1227].contains(&server.code);
            Trouble { reason, unknown, broken, is_final }
        }
        _ => Trouble::lost(described(&error)),
    }
}

/// A node that lost its cluster in the middle of a commit.
fn is_alone(error: &mysql_async::ServerError) -> bool {
    error.message.contains("Not connected to Primary Component")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_written_as_mysql_writes_it() {
        assert_eq!(
            text(&batch::tests::example()),
            "insert ignore into t (a, b) select _utf8mb4 x'69742773', null where 7 <=> c"
        );
    }

    #[test]
    fn locks_by_name_are_not_relied_on_where_several_nodes_take_writes() {
        let told = |signs: &[(&str, &str)]| {
            let signs = signs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            is_cluster(&signs.collect::<Vec<_>>())
        };
        let mode = |mode| ("group_replication_single_primary_mode", mode);
        let group = ("group_replication_group_name", "5f3a7c52-0000-4000-8000-000000000000");
        assert!(!told(&[]) && !told(&[("wsrep_cluster_size", "0")]), "a server alone");
        assert!(told(&[("wsrep_cluster_size", "3")]), "Galera");
        assert!(told(&[group, mode("OFF")]), "every member takes writes");
        assert!(!told(&[group, mode("ON")]), "one does");
        assert!(!told(&[("group_replication_group_name", ""), mode("OFF")]), "not in a group");
        assert!(told(&[("ndbcluster", "YES")]) && !told(&[("ndbcluster", "NO")]));
        let signs = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert!(!is_replicated(&signs("version", "10.11.19-MariaDB")));
        assert!(is_replicated(&signs("version", "8.0.11-TiDB-v8.5.0")));
        assert!(is_replicated(&signs(group.0, group.1)), "a primary alone has others behind it");
    }
}
