//! What PostgreSQL and MySQL have in common: addresses with passwords, locks of sessions, tables that somebody makes.

use std::fmt::Write as _;
use std::time::Duration;

use mandate_proto::identity::Term;

use crate::fence::{FUTURE, OLD, Refused, UNKNOWN};

/// How to write what has a meaning of its own in a URL.
pub(crate) const ENCODE: &str = "in a user's name or password write %40 for @, %2F for /, %3A for :, %3F for ?, %23 for # and %25 for %";

/// Why an address without a database's name is refused.
pub(crate) const UNNAMED: &str = "name the database, as in HOST:PORT/DATABASE";

/// How long all of making the tables may take.
pub(crate) const MAKING_BOUND: Duration = Duration::from_secs(60);

/// How long a statement of a lock's session may take that does not wait for the lock.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// How long the server waits for a lock before it is asked anew. A statement that waits keeps the server from removing
/// old versions of any row, and a `create index concurrently` waits for it.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(10);

/// An answer within this time: a server that is silent for longer says nothing any more.
pub(crate) async fn answered<T>(
    bound: Duration,
    answer: impl Future<Output = T>,
) -> Result<T, String> {
    tokio::time::timeout(bound, answer).await.map_err(|_| format!("no answer within {bound:?}"))
}

/// Elections do without the fence's functions.
pub(crate) fn without_function(failed: Option<String>) {
    if let Some(reason) = failed {
        tracing::warn!(
            reason,
            "made the tables without the function mandate_fence: fence your transactions by the plain statements in docs/sql.md"
        );
    }
}

/// What a message of the fence's function means.
pub(crate) fn refused(message: &str, group: &str, term: Term) -> Refused {
    if message.contains(OLD) {
        Refused::OldTerm(term)
    } else if message.contains(FUTURE) {
        Refused::UnknownTerm(term)
    } else if message.contains(UNKNOWN) {
        Refused::UnknownGroup(group.to_owned())
    } else {
        Refused::Database(message.to_owned())
    }
}

/// With percent signs for everything that may have a meaning.
pub(crate) fn encoded(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                written.push(byte as char);
            }
            _ => {
                let _ = write!(written, "%{byte:02X}");
            }
        }
    }
    written
}
