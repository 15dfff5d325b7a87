//! Logs for tests.

use openraft::storage::RaftLogStorageExt;
use openraft::{CommittedLeaderId, EntryPayload, LogId};
use tempfile::TempDir;

use super::{Entry, Log};

/// An entry that does nothing, of member 1's in this term.
pub(crate) fn blank(term: u64, index: u64) -> Entry {
    Entry {
        log_id: LogId::new(CommittedLeaderId::new(term, 1), index),
        payload: EntryPayload::Blank,
    }
}

/// A log whose entries have these terms, in order; what is on disk alone if `reopened`. It takes it that a snapshot has
/// them all.
pub(crate) async fn log(terms: &[u64], reopened: bool) -> (TempDir, Log) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.redb");
    let mut log = Log::create(&path, 1, None).unwrap();
    let entries: Vec<_> = (0..).zip(terms).map(|(index, term)| blank(*term, index)).collect();
    log.blocking_append(entries).await.unwrap();
    if reopened {
        log.close().await.unwrap();
        log = Log::open(&path, None).unwrap();
    }
    log.coverage().reaches(blank(1, u64::MAX).log_id);
    (directory, log)
}
