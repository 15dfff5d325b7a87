//! PostgreSQL, and what speaks its protocol.
//!
//! One connection serves all members of a process: statements of a batch, and batches of several members, are
//! sent without waiting for the answers to earlier ones.
//!
//! A connection may lead to a pooler, which lends one session of the server to many clients in turn. What is set or locked
//! in such a session, or prepared there, is the next client's, too. So the first question is who answers (see [`pooler`]),
//! asked in a way that leaves nothing behind. A session of our own is set up once and has its statements prepared. Through a
//! pooler every batch is one transaction that brings its limits along and takes them with it, without prepared statements,
//! session locks or notifications.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`address`] | what the rest of this crate does with such a database |
//! | [`parameters`] | a connection string, parsed |
//! | [`target`] | where to connect to: with the environment, service and password files |
//! | [`dial`] | the connection and the login |
//! | [`guarded`] | what keeps a password from being sent in plain text |
//! | [`pooler`] | whether the server itself answers |
//! | [`tls`] | which certificates are trusted |
//! | [`making`] | the tables |
//! | [`lock`] | locks whose end tells that a process died |
//! | [`mod@fence`] | a term, checked in the caller's transaction |

pub(crate) mod address;
pub(crate) mod dial;
pub(crate) mod fence;
mod guarded;
mod lock;
mod making;
pub(crate) mod parameters;
mod pooler;
pub(crate) mod target;
mod tls;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::{broadcast, watch};
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Statement};

use crate::batch::{self, Batch, Done, Step, Value};
use crate::dbms::RawSession;
use crate::error::{NoConnection, Trouble};
use crate::session;
use parameters::Parameters;
use pooler::{Server, recognise};
use target::Surroundings;

/// The channel of notifications, for all sessions that listen.
pub(crate) const CHANNEL: &str = "mandate";

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    prepared: tokio::sync::Mutex<HashMap<(&'static str, bool), Statement>>,
    /// Held while a batch is handed over, so that no other statement comes between.
    order: Mutex<()>,
    ended: watch::Receiver<bool>,
    server: Server,
    /// How a transaction begins.
    begin: String,
}

/// A connection for anything, driven; what it hears of `mandate` goes to `heard`. The receiver says when it ends. Bounded:
/// see [`dial`].
pub(crate) async fn connect(
    parameters: &Parameters,
    heard: broadcast::Sender<String>,
) -> Result<(Client, watch::Receiver<bool>), NoConnection> {
    dial::dial(&target(parameters)?, &heard).await
}

/// What the string and this process's surroundings come to.
pub(crate) fn target(parameters: &Parameters) -> Result<target::Target, NoConnection> {
    target::resolve(parameters, &Surroundings::own()).map_err(NoConnection::lasting)
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
        parameters: &Parameters,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> Result<Self, NoConnection> {
        let (client, ended) = connect(parameters, heard).await?;
        let set_up = Session::set_up(parameters, patience, client, ended);
        session::within(session::bound(patience), set_up).await
    }

    /// Asks who answers, and sets limits.
    async fn set_up(
        parameters: &Parameters,
        patience: Duration,
        client: Client,
        ended: watch::Receiver<bool>,
    ) -> Result<Self, NoConnection> {
        let server = recognise(&client).await.map_err(|error| refusal(&error))?;
        let limit = (patience * 2).as_millis();
        // Shorter than a lease renewal's patience: then a lock that another holds is called by its name,
        // nothing was done for certain, and the connection is kept.
        let lock_limit = (patience / 2).as_millis().max(1);
        let limits = |set: &str| {
            format!(
                "{set} statement_timeout = {limit}; {set} lock_timeout = {lock_limit}; \
                 {set} idle_in_transaction_session_timeout = {limit}"
            )
        };
        let begin = match server.is_pooled {
            true => {
                pooler::warn_once(parameters);
                format!("begin isolation level read committed; {}", limits("set local"))
            }
            false => {
                let isolation = "set default_transaction_isolation = 'read committed'";
                let set = client.batch_execute(&format!("{}; {isolation}", limits("set"))).await;
                set.map_err(|error| refusal(&error))?;
                "begin".into()
            }
        };
        let (prepared, order) = Default::default();
        Ok(Session { client, prepared, order, ended, server, begin })
    }

    /// Whether there are locks and notifications that last from one transaction to the next.
    fn has_session(&self) -> bool {
        self.server.is_original && !self.server.is_pooled
    }

    async fn carry_out(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        let mut steps = batch.steps;
        let own = steps.len();
        if let Some(group) = batch.announce.filter(|_| self.server.is_original) {
            // Told at the commit; to no effect where nothing was written but a wish.
            let told = Step::new("select pg_notify('mandate', $1)", vec![group.as_str().into()]);
            steps.push(told);
        }
        let is_transaction = batch.atomic || self.server.is_pooled;
        let done = self.send(&steps, is_transaction).await.map_err(|error| trouble(&error))?;
        Ok(done.into_iter().skip(usize::from(is_transaction)).take(own).collect())
    }

    async fn send(
        &self,
        steps: &[Step],
        is_transaction: bool,
    ) -> Result<Vec<Done>, tokio_postgres::Error> {
        let mut parts = Vec::with_capacity(steps.len() + 2);
        if is_transaction {
            parts.push(Part::Plain(&self.begin));
        }
        for step in steps {
            parts.push(match self.server.is_pooled {
                true => Part::Unprepared(step, self.text(step)),
                false => Part::Prepared(step, self.prepare(step).await?),
            });
        }
        if is_transaction {
            parts.push(Part::Plain("commit"));
        }
        let mut all = Box::pin(join_all(parts.iter().map(|part| part.send(&self.client))));
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

    fn text(&self, step: &Step) -> String {
        let is_original = self.server.is_original;
        let (relaxed, durable) = (step.relaxed && is_original, step.durable && is_original);
        text(&Step { relaxed, durable, ..step.clone() })
    }

    async fn prepare(&self, step: &Step) -> Result<Statement, tokio_postgres::Error> {
        let mut prepared = self.prepared.lock().await;
        if let Some(statement) = prepared.get(&(step.sql, step.relaxed)) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&self.text(step)).await?;
        prepared.insert((step.sql, step.relaxed), statement.clone());
        Ok(statement)
    }
}

impl RawSession for Session {
    fn run(&self, batch: Batch) -> BoxFuture<'_, Result<Vec<Done>, Trouble>> {
        Box::pin(self.carry_out(batch))
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        let mut ended = self.ended.clone();
        Box::pin(async move {
            let _ = ended.wait_for(|ended| *ended).await;
        })
    }

    fn listen(&self, listen: bool) -> BoxFuture<'_, Result<(), Trouble>> {
        Box::pin(async move {
            if !self.has_session() {
                return Ok(());
            }
            let verb = if listen { "listen" } else { "unlisten" };
            let done = self.client.batch_execute(&format!("{verb} {CHANNEL}")).await;
            done.map_err(|error| trouble(&error))
        })
    }

    /// Relatives keep several copies.
    fn has_one_disk(&self) -> bool {
        self.server.is_original
    }

    fn has_session_locks(&self) -> bool {
        self.has_session()
    }
}

/// Has a transaction acknowledged only when it is on disk, where the database or the role says otherwise. Who waits for
/// standbys as well (`remote_write`, `remote_apply`) goes on doing so. Of this transaction alone, so that nothing of it stays in
/// the session, which a pooler may give to others.
const SYNCHRONOUS: &str = " returning case when current_setting('synchronous_commit') in ('off', 'local') \
                           then set_config('synchronous_commit', 'on', true) end";

/// A statement as PostgreSQL writes it.
fn text(step: &Step) -> String {
    let mut text = batch::with_insert(step.sql, "insert into", " on conflict do nothing");
    if step.relaxed {
        // Of this transaction alone.
        text += " returning set_config('synchronous_commit', 'off', true)";
    } else if step.durable {
        text += SYNCHRONOUS;
    }
    text
}

/// Something that is sent to the server, and has one answer.
enum Part<'a> {
    /// Statements without values.
    Plain(&'a str),
    Prepared(&'a Step, Statement),
    /// Parsed, carried out and forgotten.
    Unprepared(&'a Step, String),
}

impl Part<'_> {
    async fn send(&self, client: &Client) -> Result<Done, tokio_postgres::Error> {
        let (step, statement) = match self {
            Part::Plain(text) => return client.batch_execute(text).await.map(|()| Done::default()),
            Part::Prepared(step, statement) => (step, statement),
            Part::Unprepared(step, text) => return Part::send_unprepared(client, step, text).await,
        };
        let values: Vec<&(dyn ToSql + Sync)> =
            step.values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        if step.is_read() {
            return read(client.query(statement, &values).await?);
        }
        let changed = client.execute(statement, &values).await?;
        Ok(Done { changed, rows: Vec::new() })
    }

    async fn send_unprepared(
        client: &Client,
        step: &Step,
        text: &str,
    ) -> Result<Done, tokio_postgres::Error> {
        // The server finds the types out, as it does where statements are prepared.
        let value = |value| (value as &(dyn ToSql + Sync), Type::UNKNOWN);
        let values: Vec<_> = step.values.iter().map(value).collect();
        if step.is_read() {
            return read(client.query_typed(text, &values).await?);
        }
        let changed = client.execute_typed(text, &values).await?;
        Ok(Done { changed, rows: Vec::new() })
    }
}

fn read(rows: Vec<tokio_postgres::Row>) -> Result<Done, tokio_postgres::Error> {
    let rows = rows.iter().map(cells).collect::<Result<_, _>>()?;
    Ok(Done { changed: 0, rows })
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
        [Type::INT8, Type::TEXT, Type::VARCHAR, Type::UNKNOWN].contains(kind)
    }

    tokio_postgres::types::to_sql_checked!();
}

/// An error with what the server said.
pub(crate) fn described(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(server) => match *server.code() {
            SqlState::LOCK_NOT_AVAILABLE => {
                "a lock on the row was held for too long, by another transaction or by a commit that waits for a \
                 synchronous standby (55P03)"
                    .into()
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
            let is_final = *code == SqlState::INSUFFICIENT_PRIVILEGE;
            Trouble { reason, unknown, broken, is_final }
        }
        None => Trouble::lost(reason),
    }
}

/// What a login or the first questions failed with, with what to do where that is known.
pub(crate) fn refusal(error: &tokio_postgres::Error) -> NoConnection {
    let mut reason = described(error);
    let Some(server) = error.as_db_error() else {
        if let Some(advice) = tls_error(error).and_then(tls::advice) {
            reason += advice;
        }
        let is_final = is_lasting(error);
        return NoConnection { reason, is_final };
    };
    let said = server.message();
    if said.contains("client certificate") {
        reason += ": name this client's certificate with sslcert=FILE and sslkey=FILE";
    }
    let is_final = match *server.code() {
        SqlState::INVALID_PASSWORD
        | SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        | SqlState::INVALID_CATALOG_NAME
        | SqlState::INSUFFICIENT_PRIVILEGE
        | SqlState::UNDEFINED_OBJECT
        | SqlState::INVALID_PARAMETER_VALUE
        | SqlState::CANT_CHANGE_RUNTIME_PARAM => true,
        // PgBouncer has this one for nearly everything.
        SqlState::PROTOCOL_VIOLATION => {
            ["no such", "unsupported startup parameter", "authentication failed", "auth failed"]
                .iter()
                .any(|words| said.contains(words))
        }
        _ => false,
    };
    NoConnection { reason, is_final }
}

/// Whether an error that is not the server's own stays as it is: no password, a certificate that is not trusted, and
/// what the guard of the connection refuses. What the network does passes.
fn is_lasting(error: &tokio_postgres::Error) -> bool {
    if let Some(io) = io_error(error) {
        let is_ours = [guarded::NO_TLS, guarded::PLAIN_PASSWORD].contains(&io.to_string().as_str());
        return is_ours || tls_error(error).is_some();
    }
    let text = error.to_string();
    text.starts_with("authentication error") || text.starts_with("invalid configuration")
}

fn io_error(error: &tokio_postgres::Error) -> Option<&std::io::Error> {
    let first = std::error::Error::source(error);
    let mut causes = std::iter::successors(first, |cause| cause.source());
    causes.find_map(|cause| cause.downcast_ref())
}

fn tls_error(error: &tokio_postgres::Error) -> Option<&rustls::Error> {
    io_error(error)?.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_statement_is_written_as_postgresql_writes_it() {
        assert_eq!(
            super::text(&crate::batch::tests::example()),
            "insert into t (a, b) select $1, $2::bigint where $3 is not distinct from c \
             on conflict do nothing"
        );
    }
}
