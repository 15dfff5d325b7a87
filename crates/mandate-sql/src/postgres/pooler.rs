//! Whether the server itself answers, or a pooler that lends its sessions.
//!
//! At the login a server tells the number of the process that serves the connection, for cancelling statements. A pooler
//! (PgBouncer, Odyssey, Supavisor, the proxies of the clouds) makes such a number up: it has no process for this client
//! yet. The process itself says another number when it is asked (`pg_backend_pid()`). So one question tells, at once and
//! for certain, and it leaves nothing behind in a session that may be lent to somebody else next. A proxy that forwards
//! bytes (HAProxy, a load balancer) changes neither number.
//!
//! Rejected: to set something in the session and see whether it is still there (it leaks), and to compare what two
//! connections say (they agree only if the pooler happens to lend both the same session).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::io::AsyncReadExt;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use super::parameters::Parameters;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// PostgreSQL itself, and not a relative that lacks advisory locks and notifications.
    pub(crate) is_original: bool,
    /// Sessions are not ours alone.
    pub(crate) is_pooled: bool,
}

/// Asks who answers, with what leaves nothing behind.
pub(crate) async fn recognise(client: &Client) -> Result<Server, Error> {
    let (version, process) = match ask(client, "select version(), pg_backend_pid()").await {
        Ok(told) => told,
        // Not all relatives have processes.
        Err(error) if error.as_db_error().is_some() => {
            ask(client, "select version(), null").await?
        }
        Err(error) => return Err(error),
    };
    let is_original = version.starts_with("PostgreSQL") && !version.contains("-YB-");
    let is_pooled = is_original && announced(client).await != process;
    Ok(Server { is_original, is_pooled })
}

async fn ask(client: &Client, question: &str) -> Result<(String, Option<i32>), Error> {
    let messages = client.simple_query(question).await?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let cell = |place| row.and_then(|row| row.get(place));
    let process = cell(1).and_then(|text| text.parse().ok());
    Ok((cell(0).unwrap_or_default().to_owned(), process))
}

/// The number that was told at the login. The driver shows it to nobody but the server that it asks to cancel a statement,
/// so it is asked to do that, of a stream that ends here.
async fn announced(client: &Client) -> Option<i32> {
    let (ours, mut theirs) = tokio::io::duplex(64);
    client.cancel_token().cancel_query_raw(ours, NoTls).await.ok()?;
    let mut request = [0; 16];
    theirs.read_exact(&mut request).await.ok()?;
    // Length, code, process, secret.
    Some(i32::from_be_bytes([request[8], request[9], request[10], request[11]]))
}

/// Tells the operator what that means, once for each address.
pub(super) fn warn_once(parameters: &Parameters) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let address = parameters.to_string();
    if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(address.clone()) {
        tracing::warn!(
            address,
            "a pooler such as PgBouncer answers here. Members work through it, but without session locks and \
             notifications: a leader that dies is noticed when its lease has run out, not at once. Name the address of \
             the server itself for that"
        );
    }
}
