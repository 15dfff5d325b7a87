//! MySQL and MariaDB, and what speaks their protocol.
//!
//! A batch is sent whole, as text. Where it has several writes they are one transaction. On Galera the second of
//! two writers to a row learns at its commit that it was not the first: error 1213, which says that nothing was
//! done.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{
    ClientIdentity, Conn, DriverError, Error, IoError, Opts, OptsBuilder, Row, SslOpts, UrlError,
};
use tokio::sync::Mutex;

use crate::batch::{self, Batch, Done, Value};
use crate::error::{NoConnection, Trouble};
use crate::postgres::parameters::encoded;
use crate::{durability, session};

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Mutex<Conn>,
    /// Several nodes take writes to the same rows: locks by name are of one of them only.
    pub(crate) is_cluster: bool,
    /// Others have what it acknowledges, besides its own disk.
    pub(crate) is_replicated: bool,
}

/// Whether and how TLS is used: the modes of MySQL's own client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Disabled,
    /// Where the server offers it. Nothing is verified: who could be in between could also offer none.
    Preferred,
    Required,
    VerifyCa,
    VerifyIdentity,
}

impl Mode {
    fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().replace('-', "_").as_str() {
            "disabled" | "disable" => Mode::Disabled,
            "preferred" | "prefer" => Mode::Preferred,
            "required" | "require" => Mode::Required,
            "verify_ca" => Mode::VerifyCa,
            "verify_identity" | "verify_full" => Mode::VerifyIdentity,
            _ => return None,
        })
    }
}

/// How to connect.
#[derive(Debug)]
pub(crate) struct Options {
    plain: OptsBuilder,
    /// With TLS, if it is used at all.
    secure: Option<OptsBuilder>,
    mode: Mode,
    server: String,
    /// Nobody but this host sees what is sent.
    is_near: bool,
    /// Certificates and keys that are named.
    files: Vec<PathBuf>,
}

/// What an address says. The driver's own parameters (`require_ssl`, `verify_ca`, ...) are left to it.
pub(crate) fn options(url: &url::Url) -> Result<Options, String> {
    let mut rest = url.clone();
    rest.set_query(None);
    let (mut mode, mut root, mut certificate, mut key) = (None, None, None, None);
    let mut others = Vec::new();
    for (name, value) in url.query_pairs() {
        match &*name {
            "ssl-mode" | "ssl_mode" | "sslmode" => {
                let modes = "DISABLED, PREFERRED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY";
                let parsed = Mode::parse(&value);
                mode = Some(parsed.ok_or_else(|| format!("{name} must be one of {modes}"))?);
            }
            durability::PARAMETER if value == durability::ACCEPTED => {}
            durability::PARAMETER => {
                return Err(format!("{name} must be {}, or left out", durability::ACCEPTED));
            }
            "ssl-ca" | "ssl_ca" | "sslrootcert" => root = Some(PathBuf::from(&*value)),
            "ssl-cert" | "ssl_cert" | "sslcert" => certificate = Some(PathBuf::from(&*value)),
            "ssl-key" | "ssl_key" | "sslkey" => key = Some(PathBuf::from(&*value)),
            _ => others.push(format!("{}={}", encoded(&name), encoded(&value))),
        }
    }
    if !others.is_empty() {
        rest.set_query(Some(&others.join("&")));
    }
    let opts = Opts::from_url(rest.as_str()).map_err(|error| match error {
        UrlError::UnknownParameter { param } => {
            format!("the parameter `{param}` is not known, or not supported")
        }
        UrlError::InvalidParamValue { param, .. } => {
            format!("the value of the parameter `{param}` is not one of those that it can have")
        }
        error => error.to_string(),
    })?;
    let files = [&root, &certificate, &key].into_iter().flatten().cloned().collect();
    let identity = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(ClientIdentity::new(certificate.into(), key.into())),
        _ => return Err("ssl-cert and ssl-key go together: name both files".into()),
    };
    let by_driver = opts.ssl_opts().cloned();
    let mode = mode.unwrap_or(match (&by_driver, &root) {
        // What `require_ssl=true` has always meant here.
        (Some(_), _) | (None, Some(_)) => Mode::VerifyIdentity,
        (None, None) => Mode::Preferred,
    });
    let plain = OptsBuilder::from_opts(opts.clone())
        // Conditions are counted, not changes: a row that was written as it was is one.
        .client_found_rows(true)
        .prefer_socket(false)
        .tcp_keepalive(Some(Duration::from_secs(5)))
        .ssl_opts(None::<SslOpts>);
    let secure = (mode != Mode::Disabled).then(|| {
        let mut tls = by_driver.clone().unwrap_or_default().with_client_identity(identity);
        if let Some(root) = root {
            tls = tls.with_root_certs(vec![root.into()]);
        }
        if by_driver.is_none() {
            tls = tls
                .with_danger_accept_invalid_certs(matches!(mode, Mode::Preferred | Mode::Required))
                .with_danger_skip_domain_validation(mode == Mode::VerifyCa);
        }
        plain.clone().ssl_opts(tls)
    });
    let host = opts.ip_or_hostname();
    let is_loopback =
        host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    let is_near = is_loopback || host == "localhost" || opts.socket().is_some();
    let server = format!("{host}:{}", opts.tcp_port());
    Ok(Options { plain, secure, mode, server, is_near, files })
}

/// A connection for anything.
pub(crate) async fn connect(url: &url::Url, patience: Duration) -> Result<Conn, NoConnection> {
    let options = options(url).map_err(NoConnection::lasting)?;
    for file in &options.files {
        let unreadable = |error| NoConnection::lasting(format!("{}: {error}", file.display()));
        std::fs::File::open(file).map_err(unreadable)?;
    }
    let connecting = async { log_in(options).await.map_err(|error| refusal(&error)) };
    session::within(session::bound(patience), connecting).await
}

async fn log_in(options: Options) -> Result<Conn, Error> {
    let Options { plain, secure, mode, server, is_near, .. } = options;
    match secure {
        None => Conn::new(plain).await,
        Some(secure) if mode != Mode::Preferred => Conn::new(secure).await,
        // There is nobody to hide it from. Some servers want TLS all the same, of some users.
        Some(secure) if is_near => match Conn::new(plain).await {
            Err(error @ Error::Server(_)) => match Conn::new(secure).await {
                Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) => Err(error),
                connected => connected,
            },
            connected => connected,
        },
        Some(secure) => match Conn::new(secure).await {
            // The driver sends no password in plain text. Whoever stands in between and hides that the server has TLS gets
            // it all the same: over a plain connection `caching_sha2_password` encrypts it with the RSA key that the other
            // side shows. Only a server that is verified (VERIFY_CA, VERIFY_IDENTITY) is known to be the one.
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) => {
                let connection = Conn::new(plain).await?;
                warn_once(&server);
                Ok(connection)
            }
            connected => connected,
        },
    }
}

/// Tells the operator once for each server that nothing is encrypted.
fn warn_once(server: &str) {
    static WARNED: std::sync::Mutex<BTreeSet<String>> = std::sync::Mutex::new(BTreeSet::new());
    if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(server.to_owned()) {
        tracing::warn!(
            server,
            "the connection is not encrypted: the server offers no TLS. Have it offer TLS and write ssl-mode=REQUIRED, or \
             write ssl-mode=DISABLED if the network is trusted"
        );
    }
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

    pub(crate) async fn run(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        let mut connection = self.connection.lock().await;
        let done = send(&mut connection, &batch).await;
        done.map_err(trouble)
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

    fn mode(query: &str) -> Result<(Mode, bool), String> {
        let url = url::Url::parse(&format!("mysql://u:p@db.example/d?{query}")).unwrap();
        options(&url).map(|options| (options.mode, options.secure.is_some()))
    }

    #[test]
    fn tls_is_used_where_it_is_offered_unless_something_else_is_written() {
        assert_eq!(mode(""), Ok((Mode::Preferred, true)));
        assert_eq!(mode("ssl-mode=DISABLED"), Ok((Mode::Disabled, false)));
        assert_eq!(mode("sslmode=disable"), Ok((Mode::Disabled, false)));
        assert_eq!(mode("ssl-mode=REQUIRED"), Ok((Mode::Required, true)));
        assert_eq!(mode("require_ssl=true"), Ok((Mode::VerifyIdentity, true)));
        assert_eq!(mode("ssl-ca=r.pem"), Ok((Mode::VerifyIdentity, true)));
        assert_eq!(mode("ssl-mode=VERIFY_CA&ssl-ca=r.pem"), Ok((Mode::VerifyCa, true)));
        assert!(mode("ssl-mode=maybe").unwrap_err().contains("VERIFY_IDENTITY"));
        assert!(mode("ssl-cert=c").unwrap_err().contains("ssl-key"));
        assert!(mode("frobnicate=1").unwrap_err().contains("`frobnicate`"));
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
