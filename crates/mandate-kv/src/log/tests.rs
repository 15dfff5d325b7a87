use openraft::storage::{RaftLogStorage, RaftLogStorageExt};

use super::testing::{blank, log};
use super::*;
use crate::types::{Batch, Operation, WriteCommand};

fn id(term: u64, index: u64) -> LogId<u64> {
    blank(term, index).log_id
}

#[tokio::test]
async fn a_leader_begins_with_what_it_has_appended_and_the_entry_before() {
    let (_directory, log) = log(&[1, 1, 2, 3, 3], false).await;
    let (before, entries) = log.since(Vote::new_committed(3, 1), usize::MAX).unwrap();
    assert_eq!(before, Some(id(2, 2)));
    assert_eq!(entries.iter().map(|entry| entry.log_id).collect::<Vec<_>>(), [id(3, 3), id(3, 4)]);
    let (before, entries) = log.since(Vote::new_committed(4, 1), usize::MAX).unwrap();
    assert_eq!((before, entries.len()), (Some(id(3, 4)), 0), "it has not appended anything yet");
    let (before, _) = log.since(Vote::new_committed(3, 2), usize::MAX).unwrap();
    assert_eq!(before, Some(id(3, 4)), "those are another's of the same term");
}

/// While a purge is under way.
#[tokio::test]
async fn entries_are_not_told_without_the_one_before_them() {
    let (_directory, log) = log(&[1, 1, 2, 2, 2], false).await;
    log.tail.purge(1);
    log.is_cut_off(Some(id(2, 3)));
    let (before, entries) = log.since(Vote::new_committed(2, 1), usize::MAX).unwrap();
    assert_eq!((before, entries.len()), (Some(id(2, 4)), 0), "not 2, 3 and 4 after nothing");
    log.tail.purge(3);
    let (before, entries) = log.since(Vote::new_committed(2, 1), usize::MAX).unwrap();
    assert_eq!((before, entries.len()), (Some(id(2, 3)), 1), "the last that was cut off is known");
}

#[tokio::test]
async fn the_last_entry_that_another_log_can_have_is_found() {
    for reopened in [false, true] {
        let (_directory, mut log) = log(&[1, 1, 2, 4, 4, 4, 6], reopened).await;
        let found = |log: &Log, term, index| log.not_after(id(term, index)).unwrap();
        assert_eq!(found(&log, 4, 5), Some(id(4, 5)), "the very entry");
        assert_eq!(found(&log, 4, 9), Some(id(4, 5)), "longer in the same term");
        assert_eq!(found(&log, 9, 9), Some(id(6, 6)), "longer in a later term");
        assert_eq!(found(&log, 3, 5), Some(id(2, 2)), "a term that this log does not have");
        assert_eq!(found(&log, 0, 5), None, "nothing in common");
        log.purge(id(2, 2)).await.unwrap();
        assert_eq!(found(&log, 4, 4), Some(id(4, 4)));
        assert_eq!(found(&log, 3, 5), Some(id(2, 2)), "the last that was cut off is known");
        assert_eq!(found(&log, 1, 1), None, "cut off");
    }
}

/// Whether opening the file had to check all of it.
fn is_checked(path: &Path) -> bool {
    let checked = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = checked.clone();
    let mut builder = Database::builder();
    builder.set_repair_callback(move |_| seen.store(true, std::sync::atomic::Ordering::Relaxed));
    drop(builder.open(path).unwrap());
    checked.load(std::sync::atomic::Ordering::Relaxed)
}

#[tokio::test]
async fn a_log_that_was_closed_need_not_be_checked() {
    let (directory, log) = log(&[1, 1], false).await;
    let path = directory.path().join("log.redb");
    // A copy of what a killed process leaves.
    let killed = directory.path().join("killed.redb");
    std::fs::copy(&path, &killed).unwrap();
    assert!(is_checked(&killed));
    let another = log.clone();
    log.close().await.unwrap();
    assert!(!is_checked(&path));
    assert!(another.last_stored().unwrap_err().to_string().contains("closed"));
}

#[tokio::test]
async fn a_log_that_is_not_there_is_not_made_by_opening_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.redb");
    assert!(Log::open(&path, None).is_err());
    assert!(!path.exists());
    let made = Log::create(&path, 77, None).unwrap();
    assert_eq!(made.number().unwrap(), Some(77));
}

#[tokio::test]
async fn entries_that_many_bytes_have_come_after_are_known() {
    let (_directory, mut log) = log(&[1], false).await;
    assert_eq!(log.older_than(1), None);
    let value = bytes::Bytes::from(vec![7; 1 << 20]);
    for index in 1..=8 {
        let operation = Operation::Put { key: "k".into(), value: value.clone() };
        let commands = vec![WriteCommand { client: 1, number: index, operation }];
        let payload = openraft::EntryPayload::Normal(Batch { commands });
        log.blocking_append([Entry { log_id: id(1, index), payload }]).await.unwrap();
    }
    assert_eq!(log.older_than(3 << 20), Some(5), "6, 7 and 8 came after it");
    log.truncate(id(1, 4)).await.unwrap();
    assert!(log.older_than(0) < Some(4));
}

/// A file that counts how often it was forced to disk, and knows whether it was since the last write.
#[derive(Clone, Debug)]
struct Counting {
    file: Arc<redb::backends::FileBackend>,
    forced: Arc<std::sync::atomic::AtomicU64>,
    is_dirty: Arc<std::sync::atomic::AtomicBool>,
}

impl redb::StorageBackend for Counting {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.is_dirty.store(false, std::sync::atomic::Ordering::SeqCst);
        self.forced.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.is_dirty.store(true, std::sync::atomic::Ordering::SeqCst);
        self.file.write(offset, data)
    }
}

/// Of so many appends and votes, how many were acknowledged without being forced to disk.
async fn unforced(mutant: Option<Mutant>) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.redb");
    Log::create(&path, 1, None).unwrap().close().await.unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let file = Arc::new(redb::backends::FileBackend::new(file).unwrap());
    let counting = Counting { file, forced: Arc::default(), is_dirty: Arc::default() };
    let database = Database::builder().create_with_backend(counting.clone()).unwrap();
    let mut log = Log::of(database, mutant).unwrap();
    let mut unforced = 0;
    for index in 0..40 {
        let before = counting.forced.load(std::sync::atomic::Ordering::SeqCst);
        match index % 4 {
            3 => log.save_vote(&Vote::new(index, 1)).await.unwrap(),
            _ => log.blocking_append([blank(1, index - index / 4)]).await.unwrap(),
        }
        let is_forced = counting.forced.load(std::sync::atomic::Ordering::SeqCst) > before
            && !counting.is_dirty.load(std::sync::atomic::Ordering::SeqCst);
        unforced += usize::from(!is_forced);
    }
    unforced
}

#[tokio::test]
async fn nothing_is_acknowledged_that_was_not_forced_to_disk() {
    assert_eq!(unforced(None).await, 0);
    assert!(unforced(Some(Mutant::UnforcedLog)).await > 20, "the bug that was put back is found");
}
