//! PostgreSQL, and what speaks its protocol.
//!
//! One connection serves all members of a process: statements of a batch, and batches of several members, are
//! sent without waiting for the answers to earlier ones.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::sync::{broadcast, watch};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::batch::{self, Batch, Done, Step, Value};
use crate::error::Trouble;

/// What is told to whoever listens.
pub(crate) const CHANNEL: &str = "mandate";

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    prepared: tokio::sync::Mutex<HashMap<(&'static str, bool), Statement>>,
    /// Held while a batch is handed over, lest another's statement come between.
    order: Mutex<()>,
    ended: watch::Receiver<bool>,
    /// PostgreSQL itself, and not a relative that lacks advisory locks and notifications.
    pub(crate) is_original: bool,
}

/// How to connect.
struct Setup {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

fn setup(url: &url::Url) -> Result<Setup, String> {
    let mut plain = url.clone();
    let (mut mode, mut root) = (None, None);
    let rest: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    plain.set_query(None);
    for (name, value) in rest {
        match name.as_str() {
            "sslmode" => mode = Some(value),
            "sslrootcert" => root = Some(value),
            _ => {
                plain.query_pairs_mut().append_pair(&name, &value);
            }
        }
    }
    let mut config: Config = plain.as_str().parse().map_err(|error| format!("{error}"))?;
    config.keepalives(true).keepalives_idle(Duration::from_secs(5));
    config.keepalives_interval(Duration::from_secs(2)).keepalives_retries(3);
    if config.get_application_name().is_none() {
        config.application_name("mandate");
    }
    let tls = match mode.as_deref() {
        None | Some("disable" | "allow" | "prefer") => {
            config.ssl_mode(SslMode::Disable);
            None
        }
        Some("require" | "verify-ca" | "verify-full") => {
            config.ssl_mode(SslMode::Require);
            Some(MakeRustlsConnect::new(tls(root.as_deref())?))
        }
        Some(other) => {
            return Err(format!(
                "sslmode is `{other}`, and must be disable, require, verify-ca or verify-full"
            ));
        }
    };
    Ok(Setup { config, tls })
}

/// Servers are verified always, by the file that is named or by what the system trusts.
fn tls(root: Option<&str>) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    match root {
        Some(path) => {
            let certificates = CertificateDer::pem_file_iter(path)
                .map_err(|error| format!("sslrootcert {path}: {error}"))?;
            for certificate in certificates {
                let certificate =
                    certificate.map_err(|error| format!("sslrootcert {path}: {error}"))?;
                roots.add(certificate).map_err(|error| format!("sslrootcert {path}: {error}"))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err("there is no certificate to trust: name one with sslrootcert=FILE".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// A connection for anything, driven; what it hears of `mandate` goes to `heard`. The receiver says when it ends.
pub(crate) async fn connect(
    url: &url::Url,
    patience: Duration,
    heard: broadcast::Sender<String>,
) -> Result<(Client, watch::Receiver<bool>), String> {
    let Setup { mut config, tls } = setup(url)?;
    let patience = patience.max(Duration::from_secs(5));
    config.connect_timeout(patience);
    #[cfg(target_os = "linux")]
    config.tcp_user_timeout(patience);
    let (ended, watched) = watch::channel(false);
    let connecting = async {
        Ok(match tls {
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(drive(connection, heard, ended));
                client
            }
            Some(tls) => {
                let (client, connection) = config.connect(tls).await?;
                tokio::spawn(drive(connection, heard, ended));
                client
            }
        })
    };
    let client: Result<Client, tokio_postgres::Error> =
        match tokio::time::timeout(patience, connecting).await {
            Ok(client) => client,
            Err(_) => return Err(format!("no answer within {patience:?}")),
        };
    Ok((client.map_err(|error| described(&error))?, watched))
}

async fn drive<S, T>(
    mut connection: Connection<S, T>,
    heard: broadcast::Sender<String>,
    ended: watch::Sender<bool>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(told) = message
            && told.channel() == CHANNEL
        {
            // Nobody listens, perhaps.
            let _ = heard.send(told.payload().to_owned());
        }
    }
    ended.send_replace(true);
}

impl Session {
    pub(crate) async fn open(
        url: &url::Url,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> Result<Self, String> {
        let (client, ended) = connect(url, patience, heard).await?;
        let limit = (patience * 2).as_millis();
        // Shorter than the patience of whoever renews a lease: then a lock that another holds is called by its name,
        // nothing was done for certain, and the connection is kept.
        let lock_limit = (patience / 2).as_millis().max(1);
        let prepare = async {
            let version: String = client.query_one("select version()", &[]).await?.get(0);
            client
                .batch_execute(&format!(
                    "set statement_timeout = {limit}; set lock_timeout = {lock_limit}; \
                     set idle_in_transaction_session_timeout = {limit}; \
                     set default_transaction_isolation = 'read committed'"
                ))
                .await?;
            Ok(version.starts_with("PostgreSQL") && !version.contains("-YB-"))
        };
        let is_original =
            prepare.await.map_err(|error: tokio_postgres::Error| described(&error))?;
        let (prepared, order) = Default::default();
        Ok(Session { client, prepared, order, ended, is_original })
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Hears from now on when a row has changed, or no more.
    pub(crate) async fn listen(&self, listen: bool) -> Result<(), Trouble> {
        let verb = if listen { "listen" } else { "unlisten" };
        let done = self.client.batch_execute(&format!("{verb} {CHANNEL}")).await;
        done.map_err(|error| trouble(&error))
    }

    pub(crate) async fn run(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        let mut steps = batch.steps;
        let own = steps.len();
        if batch.atomic {
            steps.insert(0, Step::new("begin", Vec::new()));
        }
        if let Some(group) = batch.announce.filter(|_| self.is_original) {
            // Told at the commit; to no effect where nothing was written but a wish.
            let told = Step::new("select pg_notify('mandate', $1)", vec![group.as_str().into()]);
            steps.push(told);
        }
        if batch.atomic {
            steps.push(Step::new("commit", Vec::new()));
        }
        let done = self.send(&steps).await.map_err(|error| trouble(&error))?;
        Ok(done.into_iter().skip(usize::from(batch.atomic)).take(own).collect())
    }

    async fn send(&self, steps: &[Step]) -> Result<Vec<Done>, tokio_postgres::Error> {
        let mut statements = Vec::with_capacity(steps.len());
        for step in steps {
            statements.push(self.prepare(step).await?);
        }
        let all = join_all(steps.iter().zip(&statements).map(|(step, statement)| {
            let values: Vec<&(dyn ToSql + Sync)> =
                step.values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
            async move {
                if step.is_read() {
                    let rows = self.client.query(statement, &values).await?;
                    let rows = rows.iter().map(cells).collect::<Result<_, _>>()?;
                    return Ok(Done { changed: 0, rows });
                }
                let changed = self.client.execute(statement, &values).await?;
                Ok(Done { changed, rows: Vec::new() })
            }
        }));
        let mut all = Box::pin(all);
        // The first poll hands all of it over.
        let first = poll_fn(|context| {
            let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            Poll::Ready(all.as_mut().poll(context))
        });
        let done = match first.await {
            Poll::Ready(done) => done,
            Poll::Pending => all.await,
        };
        // The first error is what went wrong; those after it follow from it.
        done.into_iter().collect()
    }

    async fn prepare(&self, step: &Step) -> Result<Statement, tokio_postgres::Error> {
        let mut prepared = self.prepared.lock().await;
        let relaxed = step.relaxed && self.is_original;
        if let Some(statement) = prepared.get(&(step.sql, relaxed)) {
            return Ok(statement.clone());
        }
        let text = batch::postgres(&Step { relaxed, ..step.clone() });
        let statement = self.client.prepare(&text).await?;
        prepared.insert((step.sql, relaxed), statement.clone());
        Ok(statement)
    }
}

fn cells(row: &tokio_postgres::Row) -> Result<Vec<Value>, tokio_postgres::Error> {
    let cell = |(place, column): (usize, &tokio_postgres::Column)| {
        Ok(match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(place)?.into(),
            Type::TEXT | Type::VARCHAR => row.try_get::<_, Option<String>>(place)?.into(),
            _ => Value::Null,
        })
    };
    row.columns().iter().enumerate().map(cell).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Null => Ok(tokio_postgres::types::IsNull::Yes),
            Value::Int(number) => number.to_sql(kind, out),
            Value::Text(text) => text.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::TEXT, Type::VARCHAR].contains(kind)
    }

    tokio_postgres::types::to_sql_checked!();
}

/// An error with what the server said.
pub(crate) fn described(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(server) => match *server.code() {
            SqlState::LOCK_NOT_AVAILABLE => {
                "a lock was held by another for too long (55P03)".into()
            }
            SqlState::READ_ONLY_SQL_TRANSACTION => {
                "the server may only be read: a standby, or one without room on its disk (25006)"
                    .into()
            }
            SqlState::INSUFFICIENT_PRIVILEGE => format!(
                "{} (42501): see `mandate sql init --print` for what members must be granted",
                server.message()
            ),
            _ => format!("{} ({})", server.message(), server.code().code()),
        },
        None => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                text += &format!(": {cause}");
                source = cause.source();
            }
            text
        }
    }
}

pub(crate) fn trouble(error: &tokio_postgres::Error) -> Trouble {
    let reason = described(error);
    match error.as_db_error() {
        Some(server) => {
            let fatal =
                matches!(server.parsed_severity(), Some(Severity::Fatal | Severity::Panic) | None);
            let code = server.code();
            // Some relatives say so themselves; what ends a session may end it after the commit.
            let unknown = fatal || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN;
            // A standby does not become a primary by asking it again.
            let broken = fatal || *code == SqlState::READ_ONLY_SQL_TRANSACTION;
            Trouble { reason, unknown, broken }
        }
        None => Trouble::lost(reason),
    }
}
