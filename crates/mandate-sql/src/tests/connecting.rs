//! Connections to real servers: poolers, silence, TLS, and what is final.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::registers::{Config, SqlGuarantee};
use mandate_servers::Server;
use mandate_servers::mariadb::{MariaDb, MariaDbConfig};
use mandate_servers::pgbouncer::{PgBouncer, PoolMode};
use mandate_servers::postgres::{Postgres, PostgresConfig};
use mysql_async::prelude::Queryable;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::{BOUND, PATIENCE, POSTGRES, opened};
use crate::{Address, Database, Setup, Sql, SqlError};

const ROUND: Duration = Duration::from_millis(200);

fn member(database: &Database, group: &str, id: u32) -> Sql {
    let config =
        Config::new(MemberId::new(id), ROUND).unwrap().with_guarantee(SqlGuarantee::Fenced);
    let setup = Setup { group: group.into(), label: format!("member {id}"), config };
    Sql::start(database, setup).unwrap()
}

async fn leads(member: &Sql) {
    let mut state = member.election().state();
    let led = state.wait_for(|state| state.mandate().is_some());
    tokio::time::timeout(BOUND, led).await.expect("nobody leads").unwrap();
}

/// Waits for something that a server says.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// All cells of the answer, as an ordinary client gets them.
async fn asked(url: &str, question: &str) -> Vec<String> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let driven = tokio::spawn(connection);
    let messages = client.simple_query(question).await.unwrap();
    drop(client);
    let _ = driven.await;
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(
            (0..row.len())
                .map(|place| row.get(place).unwrap_or("null").to_owned())
                .collect::<Vec<_>>(),
        ),
        _ => None,
    });
    rows.flatten().collect()
}

/// What another client could find of ours in a session that it is lent.
const TRACES: &str = "select current_setting('statement_timeout'), current_setting('lock_timeout'), \
    current_setting('idle_in_transaction_session_timeout'), current_setting('default_transaction_isolation'), \
    current_setting('synchronous_commit'), \
    (select count(*) from pg_prepared_statements), (select count(*) from pg_listening_channels()), \
    (select count(*) from pg_locks where locktype = 'advisory')";

#[tokio::test(flavor = "multi_thread")]
async fn through_a_pooler_members_elect_and_leave_nothing_in_its_sessions() {
    let server = Postgres::launch(&PostgresConfig::default()).unwrap();
    let untouched = asked(&server.url(), TRACES).await;
    for (mode, group) in [(PoolMode::Transaction, "transaction"), (PoolMode::Session, "session")] {
        let bouncer = PgBouncer::launch(&server, mode, 8).unwrap();
        let address: Address = bouncer.url().parse().unwrap();
        Database::make_schema(&address).await.unwrap();
        // Two processes, as far as the server can tell.
        let databases = [opened(&address, ROUND).await, opened(&address, ROUND).await];
        let first = member(&databases[0], group, 1);
        leads(&first).await;
        let second = member(&databases[1], group, 2);
        let clean = async |when: &str| {
            for _ in 0..16 {
                assert_eq!(asked(&bouncer.url(), TRACES).await, untouched, "{mode:?}, {when}");
            }
        };
        clean("while they elect").await;
        assert!(databases[0].sentry().is_none(), "a lock would be another client's");
        first.shutdown().await;
        leads(&second).await;
        clean("after a takeover").await;
        // With the patience of people: members have that of a round.
        let members = opened(&address, PATIENCE).await.members(group).await.unwrap();
        assert_eq!(members.len(), 1, "{members:?}");
        second.shutdown().await;
        drop((first, second, databases));
        clean("after all have left").await;
    }
    let direct: Address = server.url().parse().unwrap();
    let database = opened(&direct, ROUND).await;
    assert!(database.sentry().is_some(), "the server itself is no pooler");
}

/// A `create index concurrently` waits for every statement that was there before: one that waits for the end of a
/// leader would be waited for as long as that leads.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_leaders_end_keeps_nobody_from_making_an_index() {
    let server = Postgres::launch(&PostgresConfig::default()).unwrap();
    let address: Address = server.url().parse().unwrap();
    Database::make_schema(&address).await.unwrap();
    let databases = [opened(&address, ROUND).await, opened(&address, ROUND).await];
    let first = member(&databases[0], "index", 1);
    leads(&first).await;
    let _second = member(&databases[1], "index", 2);
    until("the second waits for the first one's lock", || {
        server
            .sql("select count(*) from pg_locks where locktype = 'advisory' and not granted")
            .unwrap()
            .trim()
            == "1"
    })
    .await;
    server.sql("create table t (n int)").unwrap();
    let made = tokio::task::spawn_blocking(move || {
        server.sql("set statement_timeout = '100s'").unwrap();
        let mut psql = Command::new("psql");
        psql.env("PGOPTIONS", "-c statement_timeout=100s").args(["-X", "-d", &server.url(), "-c"]);
        psql.arg("create index concurrently i on t (n)").output().unwrap()
    });
    let made = made.await.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A relay whose first connections fall silent: the login is answered, and nothing after it.
struct Silent {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// While this is so, nothing gets through on any connection.
    holds: Arc<AtomicBool>,
}

impl Silent {
    async fn before(port: u16, silent: usize, is_login_done: fn(&[u8]) -> bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, connections) =
            (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let holds = Arc::new(AtomicBool::new(false));
        let (count, held) = (connections.clone(), holds.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let is_silent = count.fetch_add(1, Ordering::SeqCst) < silent;
                tokio::spawn(relay(client, port, is_silent.then_some(is_login_done), held.clone()));
            }
        });
        Silent { address, connections, holds }
    }
}

/// PostgreSQL: "ready for a query", idle.
fn postgres_is_ready(piece: &[u8]) -> bool {
    piece.ends_with(b"Z\0\0\0\x05I")
}

/// MySQL: the server's second packet, "OK".
fn mysql_is_ready(piece: &[u8]) -> bool {
    matches!(piece, [_, _, _, number, 0, ..] if *number >= 2)
}

async fn relay(
    client: TcpStream,
    port: u16,
    falls_silent: Option<fn(&[u8]) -> bool>,
    holds: Arc<AtomicBool>,
) {
    let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let logged_in = Arc::new(AtomicBool::new(false));
    let done = logged_in.clone();
    let back = async move {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = from_server.read(&mut piece).await {
            if falls_silent.is_some_and(|is_login_done| is_login_done(&piece[..length])) {
                done.store(true, Ordering::SeqCst);
            }
            if to_client.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
    };
    let there = async move {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = from_client.read(&mut piece).await {
            if logged_in.load(Ordering::SeqCst) || holds.load(Ordering::SeqCst) {
                continue;
            }
            if to_server.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(back, there);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_falls_silent_after_the_login_is_given_up() {
    let (url, port) = {
        let server = POSTGRES.lock().unwrap();
        (server.url(), server.port())
    };
    falls_silent(&url, port, postgres_is_ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysql_connection_that_falls_silent_after_the_login_is_given_up() {
    let (url, port) = {
        let server = super::MARIADB.lock().unwrap();
        (server.url(), server.port())
    };
    falls_silent(&url, port, mysql_is_ready).await;
}

async fn falls_silent(url: &str, port: u16, is_login_done: fn(&[u8]) -> bool) {
    let direct: Address = url.parse().unwrap();
    Database::make_schema(&direct).await.unwrap();
    let relay = Silent::before(port, 1, is_login_done).await;
    let address = direct.through("127.0.0.1", relay.address.port());
    let database = Database::begin(&address, ROUND);
    let member = member(&database, "silent", 1);
    leads(&member).await;
    assert!(relay.connections.load(Ordering::SeqCst) > 1, "the first one never answered");
    // And so is one that falls silent later, by the task that waits for an answer.
    relay.holds.store(true, Ordering::SeqCst);
    let asked = tokio::time::timeout(BOUND, database.members("silent")).await;
    let error = asked.expect("it waits without end").unwrap_err();
    assert!(!error.is_final(), "{error}");
    relay.holds.store(false, Ordering::SeqCst);
    leads(&member).await;
    member.shutdown().await;
}

/// Accepts every connection and says nothing on it; how many there were.
async fn mute() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = connections.clone();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((client, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            open.push(client);
        }
    });
    (address, connections)
}

/// The limit is as long as what a single host is given, so that nothing else may end the attempt at the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_says_nothing_does_not_use_up_the_time_of_the_next() {
    let (url, port) = {
        let server = POSTGRES.lock().unwrap();
        (server.url(), server.port())
    };
    Database::make_schema(&url.parse().unwrap()).await.unwrap();
    let (mute, connections) = mute().await;
    let hosts = format!("127.0.0.1:{},127.0.0.1:{port}", mute.port());
    let url = url.replace(&format!("127.0.0.1:{port}"), &hosts) + "?connect_timeout=10";
    let address: Address = url.parse().unwrap();
    let database = Database::open_once(&address, PATIENCE).await.unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 1, "one attempt");
    assert_eq!(database.members("nobody").await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_wants_one_attempt_gets_one() {
    // Whatever it is told, it hangs up.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, attempts) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let count = attempts.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            drop(client);
        }
    });
    for (scheme, query) in [("postgres", "?sslmode=disable"), ("mysql", "?ssl-mode=DISABLED")] {
        attempts.store(0, Ordering::SeqCst);
        let address: Address = format!("{scheme}://u:p@127.0.0.1:{port}/d{query}").parse().unwrap();
        let error = Database::open_once(&address, ROUND).await.unwrap_err();
        assert!(matches!(error, SqlError::Unreachable { .. }), "{error}");
        assert_eq!(attempts.load(Ordering::SeqCst), 1, "{scheme}");
    }
}

async fn refused(address: &str) -> SqlError {
    let address: Address = address.parse().unwrap();
    Database::open(&address, PATIENCE).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_pass_is_final_and_says_what_to_do() {
    let config = PostgresConfig { password: Some("right".into()), ..PostgresConfig::default() };
    let server = Postgres::launch(&config).unwrap();
    let make: Address = server.url().parse().unwrap();
    Database::make_schema(&make).await.unwrap();
    server.sql("create role nobody login password 'right'").unwrap();
    let url = server.url();
    let with = |from: &str, to: &str| url.replace(from, to);
    for (address, expected) in [
        (with(":right@", ":wrong@"), "password authentication failed"),
        (with(":right@", "@"), "password missing"),
        (with("/postgres", "/none"), "\"none\" does not exist"),
        (with("mandate:", "nobody:"), "mandate sql init --print"),
        (format!("{url}?sslmode=require"), "does not offer TLS"),
        (format!("{url}?sslmode=verify-full&sslrootcert=/none.pem"), "/none.pem"),
        (format!("{url}?options=-c%20frobnicate%3D1"), "frobnicate"),
    ] {
        let error = refused(&address).await;
        assert!(error.is_final(), "{error}");
        let said = error.to_string();
        assert!(said.contains(expected) && !said.contains("right"), "{said}");
    }
    let (maria, maria_url) = {
        let server = super::MARIADB.lock().unwrap();
        server.sql("create user if not exists reader@'%' identified by 'right'").unwrap();
        (server.port(), server.url())
    };
    let make: Address = maria_url.parse().unwrap();
    Database::make_schema(&make).await.unwrap();
    for (address, expected) in [
        (format!("mysql://reader:wrong@127.0.0.1:{maria}/mandate"), "Access denied"),
        (format!("mysql://reader:right@127.0.0.1:{maria}/mandate"), "denied"),
        (maria_url.replace("/mandate", "/none"), "none"),
        (format!("{maria_url}?ssl-mode=REQUIRED"), "does not offer TLS"),
    ] {
        let error = refused(&address).await;
        assert!(error.is_final() && error.to_string().contains(expected), "{error}");
    }
    // These pass, some day.
    for scheme in ["postgres", "mysql"] {
        let error = refused(&format!("{scheme}://u:p@127.0.0.1:1/d")).await;
        assert!(!error.is_final() && error.to_string().contains("refused"), "{error}");
    }
    let socket = refused("postgres://u:p@/d?host=/nowhere").await;
    assert!(!socket.is_final(), "{socket}");
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_addresses_find_the_server() {
    let server = Postgres::launch(&PostgresConfig::default()).unwrap();
    let read_only = Postgres::launch(&PostgresConfig {
        settings: vec![("default_transaction_read_only".into(), "on".into())],
        ..PostgresConfig::default()
    })
    .unwrap();
    let (port, other) = (server.port(), read_only.port());
    let directory = server.directory().display();
    server.sql("create schema x").unwrap();
    for (address, expected_port, expected_path) in [
        (server.socket_url(), port, "\"$user\", public"),
        (
            format!("postgres://mandate@/postgres?host={directory}&port={port}"),
            port,
            "\"$user\", public",
        ),
        (
            format!("host={directory} port={port} user=mandate dbname=postgres"),
            port,
            "\"$user\", public",
        ),
        (
            format!("postgres://mandate@127.0.0.1:{port}/postgres?options=-c%20search_path%3Dx"),
            port,
            "x",
        ),
        (
            format!("postgres://mandate@127.0.0.1:1,127.0.0.1:{port}/postgres"),
            port,
            "\"$user\", public",
        ),
        // Several, and one that takes writes is preferred, or asked for.
        (
            format!("postgres://mandate@127.0.0.1:{other},127.0.0.1:{port}/postgres"),
            port,
            "\"$user\", public",
        ),
        (
            format!(
                "postgres://mandate@localhost:{other},localhost:{port}/postgres?target_session_attrs=read-write"
            ),
            port,
            "\"$user\", public",
        ),
        (
            format!(
                "postgres://mandate@127.0.0.1:{port},127.0.0.1:{other}/postgres?target_session_attrs=read-only"
            ),
            other,
            "\"$user\", public",
        ),
    ] {
        let ask = "select current_setting('port'), current_setting('search_path')";
        let told = ours(&address, ask).await.unwrap();
        assert_eq!(told, [expected_port.to_string(), expected_path.to_owned()], "{address}");
    }
    let address =
        format!("postgres://mandate@127.0.0.1:{other}/postgres?target_session_attrs=read-write");
    let error = refused(&address).await;
    assert!(!error.is_final() && error.to_string().contains("may only be read"), "{error}");
}

/// All cells of the answer over a connection that we make, or why there is none.
async fn ours(address: &str, question: &str) -> Result<Vec<String>, crate::error::NoConnection> {
    let address: Address = address.parse().unwrap();
    let Address::Postgres(parameters) = &address else { panic!("{address}") };
    let heard = broadcast::Sender::new(1);
    let (client, _ended) = crate::postgres::connect(parameters, heard).await?;
    let messages = client.simple_query(question).await.unwrap();
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.unwrap();
    Ok((0..row.len()).map(|place| row.get(place).unwrap_or("null").to_owned()).collect())
}

/// A certificate that signs itself, made by the command in PostgreSQL's manual; its files.
fn certificate(directory: &Path, name: &str, host: &str) -> (PathBuf, PathBuf) {
    let [file, key] = ["crt", "key"].map(|kind| directory.join(format!("{name}.{kind}")));
    let mut command = Command::new("openssl");
    command.args("req -new -x509 -days 365 -nodes -text -newkey rsa:2048".split(' '));
    command.arg("-out").arg(&file).arg("-keyout").arg(&key).args(["-subj", &format!("/CN={host}")]);
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (file, key)
}

/// Has a server speak TLS, and ask clients as these lines of its file say.
fn speak_tls(server: &Postgres, client_ca: &Path, hba: &str) -> PathBuf {
    let directory = server.directory();
    let owner = directory.metadata().unwrap();
    let (file, key) = certificate(directory, "server", "localhost");
    let ca = directory.join("client_ca.crt");
    std::fs::copy(client_ca, &ca).unwrap();
    for path in [&file, &key, &ca] {
        chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    std::fs::write(directory.join("data/pg_hba.conf"), hba).unwrap();
    for (name, path) in [("ssl_cert_file", &file), ("ssl_key_file", &key), ("ssl_ca_file", &ca)] {
        server.sql(&format!("alter system set {name} = '{}'", path.display())).unwrap();
    }
    server.sql("alter system set ssl = on").unwrap();
    server.sql("select pg_reload_conf()").unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_used_where_it_is_offered_and_means_what_it_means_to_libpq() {
    let server = Postgres::launch(&PostgresConfig::default()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let (client, client_key) = certificate(scratch.path(), "client", "guest");
    server
        .sql("create role guest login; create role insecure login; create role picky login")
        .unwrap();
    let hba = "local all all trust\nhost all mandate all trust\nhostssl all guest all cert\nhostssl all picky all trust\n";
    let root = speak_tls(&server, &client, hba);
    let root = root.display();
    let (other, _) = certificate(scratch.path(), "other", "localhost");
    let port = server.port();
    let encrypted = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    let url =
        |host: &str, query: &str| format!("postgres://mandate@{host}:{port}/postgres?{query}");
    let plain = url("127.0.0.1", "sslmode=disable");
    until("the server speaks TLS", || {
        server
            .sql("select count(*) from pg_settings where name = 'ssl' and setting = 'on'")
            .unwrap()
            .trim()
            == "1"
    })
    .await;
    for (address, expected) in [
        (url("127.0.0.1", ""), "t"),
        (url("127.0.0.1", "sslmode=prefer"), "t"),
        (plain.clone(), "f"),
        (url("127.0.0.1", "sslmode=require"), "t"),
        (url("localhost", &format!("sslmode=verify-full&sslrootcert={root}")), "t"),
        (url("127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={root}")), "t"),
        (url("127.0.0.1", &format!("sslmode=require&sslrootcert={root}")), "t"),
    ] {
        assert_eq!(ours(&address, encrypted).await.unwrap(), [expected], "{address}");
    }
    let guest = |query: &str| url("127.0.0.1", query).replace("mandate@", "guest@");
    let with = format!("sslcert={}&sslkey={}", client.display(), client_key.display());
    assert_eq!(ours(&guest(&with), encrypted).await.unwrap(), ["t"], "by a client's certificate");
    for (address, expected) in [
        (
            url("127.0.0.1", &format!("sslmode=verify-full&sslrootcert={root}")),
            "is not for this host",
        ),
        (
            url("localhost", &format!("sslmode=verify-full&sslrootcert={}", other.display())),
            "certificate",
        ),
        (
            url("localhost", &format!("sslmode=verify-ca&sslrootcert={}", other.display())),
            "certificate",
        ),
        (url("localhost", "sslrootcert=system"), "certificate"),
        (guest(""), "sslcert=FILE"),
        (plain.replace("mandate@", "picky@"), "leave sslmode=disable out"),
        (url("127.0.0.1", &format!("sslcert={root}&sslkey=/none")), "/none"),
    ] {
        let refused = ours(&address, encrypted).await.unwrap_err();
        assert!(refused.is_final && refused.reason.contains(expected), "{address}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_servers_that_want_tls_get_it() {
    let scratch = tempfile::tempdir().unwrap();
    let readable = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let (file, key) = certificate(scratch.path(), "server", "localhost");
    let (other, _) = certificate(scratch.path(), "other", "localhost");
    [scratch.path(), &file, &key].into_iter().for_each(readable);
    let settings = [
        ("ssl-cert", file.display().to_string()),
        ("ssl-key", key.display().to_string()),
        ("require-secure-transport", "on".into()),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
    let server = MariaDb::launch(&MariaDbConfig { settings, ..MariaDbConfig::default() }).unwrap();
    let cipher = async |query: &str| {
        let url = url::Url::parse(&format!("{}?{query}", server.url())).unwrap();
        let mut connection = crate::mysql::connect(&url, super::PATIENCE).await?;
        let status: Option<(String, String)> =
            connection.query_first("show session status like 'Ssl_cipher'").await.unwrap();
        Ok::<_, crate::error::NoConnection>(status.unwrap().1)
    };
    for query in ["", "ssl-mode=PREFERRED", "ssl-mode=REQUIRED"] {
        assert_ne!(cipher(query).await.unwrap(), "", "{query}");
    }
    let untrusted = format!("ssl-mode=VERIFY_CA&ssl-ca={}", other.display());
    for query in ["ssl-mode=DISABLED", &untrusted, "ssl-mode=REQUIRED&ssl-ca=/none.pem"] {
        let refused = cipher(query).await.unwrap_err();
        assert!(refused.is_final, "{query}: {refused:?}");
    }
}

/// Root may write what nobody may: without that right it is like anyone else.
fn respect_permissions() {
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    let own = capabilities(None).unwrap();
    let without = |set: CapabilitySet| set - CapabilitySet::DAC_OVERRIDE;
    let less = CapabilitySets { effective: without(own.effective), ..own };
    set_capabilities(None, less).unwrap();
}

/// Everything happens on threads that this one starts, which have no more rights than it has.
#[tokio::test(flavor = "current_thread")]
async fn a_file_that_may_only_be_read_is_looked_at_and_not_elected_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.db");
    let address = Address::Sqlite(path.clone());
    drop(Database::open(&address, ROUND).await.unwrap());
    // The last connection removes its log. SQLite would lend what that one has open to the next.
    until("it is closed", || !directory.path().join("m.db-wal").exists()).await;
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&path, 0o444);
    respect_permissions();
    let database = Database::open(&address, ROUND).await.unwrap();
    assert_eq!(database.members("group").await.unwrap(), []);
    let config = Config::new(MemberId::new(1), ROUND).unwrap();
    let setup = Setup { group: "group".into(), label: "reader".into(), config };
    let refused = Sql::start(&database, setup).unwrap_err();
    assert!(refused.is_final() && refused.to_string().contains("may only be read"), "{refused}");
    assert!(Database::make_schema(&address).await.unwrap_err().is_final());
    drop(database);
    mode(directory.path(), 0o555);
    let none = Address::Sqlite(directory.path().join("none.db"));
    let refused = Database::open(&none, ROUND).await.unwrap_err();
    assert!(refused.is_final() && refused.to_string().contains("read and write"), "{refused}");
    mode(directory.path(), 0o755);
}

/// Loopback counts as another host here, so that it does not matter which addresses this one has.
async fn as_from_afar(address: &str) -> Result<(), crate::error::NoConnection> {
    let address: Address = address.parse().unwrap();
    let Address::Postgres(parameters) = &address else { panic!("{address}") };
    let mut target = crate::postgres::target(parameters)?;
    target.is_near = |_| false;
    crate::postgres::dial::dial(&target, &broadcast::Sender::new(1)).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_does_not_go_in_plain_text_to_another_host() {
    let config = PostgresConfig { password: Some("right".into()), ..PostgresConfig::default() };
    let mut server = Postgres::launch(&config).unwrap();
    let asks = |server: &mut Postgres, how: &str| {
        let hba = server.directory().join("data/pg_hba.conf");
        std::fs::write(hba, format!("local all all trust\nhost all all all {how}\n")).unwrap();
        server.stop().unwrap();
        server.start().unwrap();
    };
    let address = server.url();
    asks(&mut server, "scram-sha-256");
    as_from_afar(&address).await.expect("a challenge is answered");
    asks(&mut server, "password");
    let refused = as_from_afar(&address).await.unwrap_err();
    assert!(refused.is_final && refused.reason.contains("plain text"), "{refused:?}");
    let written = format!("{address}?sslmode=disable");
    as_from_afar(&written).await.expect("as it is written");
    let near = ours(&address, "select 1").await.unwrap();
    assert_eq!(near, ["1"], "nobody else is on loopback");
}
