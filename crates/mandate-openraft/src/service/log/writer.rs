//! The thread that writes: everything that waits goes into one transaction.

use std::io;
use std::sync::Arc;
use std::thread;

use openraft::LogId;
use openraft::storage::LogFlushed;
use redb::{Database, Durability, WriteTransaction};
use tokio::sync::{mpsc, oneshot};

use super::tail::Tail;
use super::{ENTRIES, FACTS, PURGED, VOTE, other};
use crate::service::types::Kv;

/// Where it is told that something is on disk.
pub(super) type Done = oneshot::Sender<io::Result<()>>;

/// Something to write. Order is kept.
pub(super) enum Work {
    Append {
        entries: Vec<(LogId<u64>, Vec<u8>)>,
        flushed: LogFlushed<Kv>,
    },
    Vote {
        vote: Vec<u8>,
        done: Done,
    },
    Truncate {
        since: u64,
        done: Done,
    },
    Purge {
        upto: u64,
        id: Vec<u8>,
        done: Done,
    },
    /// Let go of the file, and end.
    Close {
        done: Done,
    },
}

/// A transaction is committed when it has grown to this, in bytes.
const MAX_TRANSACTION: usize = 8 << 20;

/// Starts it; it ends when nobody can give it work any more. `unforced` is a bug put back: what clients
/// write is not forced to disk.
pub(super) fn start(
    database: Arc<Database>,
    tail: Arc<Tail>,
    queue: usize,
    unforced: bool,
) -> io::Result<mpsc::Sender<Work>> {
    let (work, mut waiting) = mpsc::channel::<Work>(queue);
    let run = move || {
        while let Some(first) = waiting.blocking_recv() {
            let mut batch = vec![first];
            let mut bytes = batch[0].bytes();
            while bytes < MAX_TRANSACTION
                && let Ok(next) = waiting.try_recv()
            {
                bytes += next.bytes();
                batch.push(next);
            }
            let written = write(&database, &batch, unforced);
            if let Err(error) = &written {
                tracing::error!(%error, "cannot write the log: Raft ends");
            }
            if batch.iter().any(|work| matches!(work, Work::Close { .. })) {
                drop(database);
                batch.into_iter().for_each(|work| work.tell(&written, &tail));
                return;
            }
            batch.into_iter().for_each(|work| work.tell(&written, &tail));
            // What was not written must not be followed by what is: there would be a gap.
            if written.is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("raft-log".into()).spawn(run)?;
    Ok(work)
}

fn write(database: &Database, batch: &[Work], unforced: bool) -> io::Result<()> {
    let mut transaction = database.begin_write().map_err(other)?;
    if unforced && batch.iter().all(Work::is_of_clients) {
        transaction.set_durability(Durability::None).map_err(other)?;
    }
    batch.iter().try_for_each(|work| work.write(&transaction))?;
    transaction.commit().map_err(other)
}

impl Work {
    /// Whether it is entries without the first, which makes the service.
    fn is_of_clients(&self) -> bool {
        match self {
            Work::Append { entries, .. } => entries.iter().all(|(id, _)| id.index > 0),
            Work::Vote { .. } | Work::Truncate { .. } | Work::Purge { .. } | Work::Close { .. } => {
                false
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Work::Append { entries, .. } => entries.iter().map(|(_, bytes)| bytes.len()).sum(),
            Work::Vote { .. } | Work::Truncate { .. } | Work::Purge { .. } | Work::Close { .. } => {
                0
            }
        }
    }

    fn write(&self, transaction: &WriteTransaction) -> io::Result<()> {
        let mut table = transaction.open_table(ENTRIES).map_err(other)?;
        let mut facts = transaction.open_table(FACTS).map_err(other)?;
        match self {
            Work::Append { entries, .. } => {
                for (id, bytes) in entries {
                    table.insert(id.index, bytes.as_slice()).map_err(other)?;
                }
            }
            Work::Vote { vote, .. } => {
                facts.insert(VOTE, vote.as_slice()).map_err(other)?;
            }
            Work::Truncate { since, .. } => {
                table.retain_in::<u64, _>(*since.., |_, _| false).map_err(other)?;
            }
            Work::Purge { upto, id, .. } => {
                table.retain_in::<u64, _>(..=*upto, |_, _| false).map_err(other)?;
                facts.insert(PURGED, id.as_slice()).map_err(other)?;
            }
            Work::Close { .. } => {}
        }
        Ok(())
    }

    fn tell(self, written: &io::Result<()>, tail: &Tail) {
        let result = written.as_ref().copied().map_err(|error| other(error.to_string()));
        match self {
            Work::Append { entries, flushed } => {
                if result.is_ok() {
                    tail.stored(entries.into_iter().map(|(id, _)| id));
                }
                flushed.log_io_completed(result);
            }
            Work::Vote { done, .. }
            | Work::Truncate { done, .. }
            | Work::Purge { done, .. }
            | Work::Close { done } => {
                let _ = done.send(result);
            }
        }
    }
}
