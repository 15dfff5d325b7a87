use openraft::storage::RaftLogStorage;

use super::testing::{blank, log};
use super::*;

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

/// Between a purge on disk and in memory.
#[tokio::test]
async fn entries_are_not_told_without_the_one_before_them() {
    let (_directory, log) = log(&[1, 1, 2, 2, 2], false).await;
    log.tail.purge(1);
    let gone = postcard::to_allocvec(&id(2, 3)).unwrap();
    log.write(|done| Work::Purge { upto: 3, id: gone, done }).await.unwrap();
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
