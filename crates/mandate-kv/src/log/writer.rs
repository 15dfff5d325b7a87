//! The thread that writes: everything that waits goes into one transaction.
//!
//! Entries are cut off only when a snapshot that holds them is on disk. openraft asks for that as soon as it has handed
//! a received snapshot to the state machine, which takes seconds to read and store a large one. If the process is killed
//! in between, a log that was cut off at once has neither entries nor snapshot, and the member can never start again. So
//! the writer holds such a request back until a snapshot covers it, and with it every change of entries that comes after
//! it: entries that follow the snapshot must not be acknowledged before it is there. Votes do not wait.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use openraft::LogId;
use openraft::storage::LogFlushed;
use redb::{Database, Durability, WriteTransaction};
use tokio::sync::{mpsc, oneshot};

use super::tail::Tail;
use super::{ENTRIES, FACTS, PURGED, VOTE, other};
use crate::types::Kv;

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
    },
    /// Another snapshot is on disk: look whether it covers what is held back.
    Covered,
    /// The snapshot that work is held back for will not come.
    NotCovered,
    /// Let go of the file, and end.
    Close {
        done: Done,
    },
}

/// A transaction is committed when it has grown to this, in bytes.
const MAX_TRANSACTION: usize = 8 << 20;

/// How far snapshots on disk go, and the writer, which waits for that.
#[derive(Clone)]
pub(crate) struct Coverage {
    /// So many entries, from the first on.
    entries: Arc<AtomicU64>,
    work: mpsc::Sender<Work>,
}

impl Coverage {
    /// A snapshot up to this entry is on disk.
    pub(crate) fn reaches(&self, last: LogId<u64>) {
        self.entries.fetch_max(last.index.saturating_add(1), Ordering::AcqRel);
        // If there is no room, the writer is at work, and looks again when it comes to what is there.
        let _ = self.work.try_send(Work::Covered);
    }

    /// A snapshot could not be stored. Whatever waits for it fails, and the log with it.
    pub(crate) async fn fails(&self) {
        let _ = self.work.send(Work::NotCovered).await;
    }
}

/// Starts it; it ends when nobody can give it work any more. `unforced` is a bug put back: what clients
/// write is not forced to disk.
pub(super) fn start(
    database: Arc<Database>,
    tail: Arc<Tail>,
    queue: usize,
    unforced: bool,
) -> io::Result<(mpsc::Sender<Work>, Coverage)> {
    let (work, mut waiting) = mpsc::channel::<Work>(queue);
    let coverage = Coverage { entries: Arc::default(), work: work.clone() };
    let mut held = Held { work: VecDeque::new(), covered: coverage.entries.clone() };
    let run = move || {
        while let Some(first) = waiting.blocking_recv() {
            let mut batch = Vec::new();
            let mut bytes = held.pass(first, &mut batch);
            while bytes < MAX_TRANSACTION
                && let Ok(next) = waiting.try_recv()
            {
                bytes += held.pass(next, &mut batch);
            }
            let is_last = |work: &Work| matches!(work, Work::Close { .. } | Work::NotCovered);
            let ends = batch.iter().any(is_last);
            let written = write(&database, &batch, unforced);
            if let Err(error) = &written {
                tracing::error!(%error, "cannot write the log: Raft ends");
            }
            if ends {
                drop(database);
                batch.into_iter().for_each(|work| work.tell(&written, &tail));
                held.fail(&tail);
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
    Ok((work, coverage))
}

/// Work that waits for a snapshot: what cuts entries off first, then whatever changes entries after it.
struct Held {
    work: VecDeque<Work>,
    covered: Arc<AtomicU64>,
}

impl Held {
    /// Adds to a batch what may be written now; how many bytes that is.
    fn pass(&mut self, next: Work, batch: &mut Vec<Work>) -> usize {
        let before = batch.len();
        match next {
            Work::Append { .. } | Work::Truncate { .. } | Work::Purge { .. } => {
                self.work.push_back(next);
            }
            Work::Vote { .. } | Work::Covered | Work::NotCovered | Work::Close { .. } => {
                batch.push(next);
            }
        }
        while self.work.front().is_some_and(|work| self.may_pass(work)) {
            batch.extend(self.work.pop_front());
        }
        batch[before..].iter().map(Work::bytes).sum()
    }

    fn may_pass(&self, work: &Work) -> bool {
        match work {
            Work::Purge { upto, .. } => *upto < self.covered.load(Ordering::Acquire),
            _ => true,
        }
    }

    /// Says of everything that it was not written.
    fn fail(self, tail: &Tail) {
        let failed = Err(other("a snapshot that the log was to begin after was not stored"));
        self.work.into_iter().for_each(|work| work.tell(&failed, tail));
    }
}

fn write(database: &Database, batch: &[Work], unforced: bool) -> io::Result<()> {
    if batch.iter().all(|work| matches!(work, Work::Covered)) {
        return Ok(());
    }
    let mut transaction = database.begin_write().map_err(other)?;
    if unforced && batch.iter().all(Work::is_of_clients) {
        transaction.set_durability(Durability::None).map_err(other)?;
    }
    batch.iter().try_for_each(|work| work.write(&transaction))?;
    transaction.commit().map_err(other)
}

impl Work {
    /// Whether it is nothing but entries without the first, which makes the service.
    fn is_of_clients(&self) -> bool {
        match self {
            Work::Append { entries, .. } => entries.iter().all(|(id, _)| id.index > 0),
            Work::Covered | Work::NotCovered => true,
            Work::Vote { .. } | Work::Truncate { .. } | Work::Purge { .. } | Work::Close { .. } => {
                false
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Work::Append { entries, .. } => entries.iter().map(|(_, bytes)| bytes.len()).sum(),
            _ => 0,
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
            Work::Purge { upto, id } => {
                table.retain_in::<u64, _>(..=*upto, |_, _| false).map_err(other)?;
                facts.insert(PURGED, id.as_slice()).map_err(other)?;
            }
            Work::Covered | Work::NotCovered | Work::Close { .. } => {}
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
            Work::Vote { done, .. } | Work::Truncate { done, .. } | Work::Close { done } => {
                let _ = done.send(result);
            }
            Work::Purge { .. } | Work::Covered | Work::NotCovered => {}
        }
    }
}
