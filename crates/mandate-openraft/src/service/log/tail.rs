//! The last entries of the log, in memory.
//!
//! An entry must be readable as soon as it was appended, and is on disk only a forced write later. So entries are
//! here until they are on disk, and stay while there is room: followers are sent them moments later.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use openraft::{LogId, Vote};
use tokio::sync::watch;

use super::{Entry, is_of};

/// Room for entries that are on disk, in bytes as they are there.
const ROOM: usize = 16 << 20;

#[derive(Default)]
pub(super) struct Tail {
    kept: Mutex<Kept>,
    /// Changes whenever something is appended.
    appended: watch::Sender<()>,
}

#[derive(Default)]
struct Kept {
    /// Without gaps, up to the end of the log.
    entries: BTreeMap<u64, Held>,
    bytes: usize,
}

struct Held {
    entry: Entry,
    bytes: usize,
    stored: bool,
}

impl Tail {
    pub(super) fn push(&self, entry: Entry, bytes: usize) {
        let mut kept = self.lock();
        kept.bytes += bytes;
        let index = entry.log_id.index;
        kept.entries.insert(index, Held { entry, bytes, stored: false });
        drop(kept);
        self.appended.send_replace(());
    }

    /// Is told whenever something was appended.
    pub(super) fn appended(&self) -> watch::Receiver<()> {
        self.appended.subscribe()
    }

    /// Those are on disk: the oldest may go.
    pub(super) fn stored(&self, ids: impl Iterator<Item = LogId<u64>>) {
        let mut kept = self.lock();
        for id in ids {
            // It may have been cut off and replaced meanwhile.
            if let Some(held) =
                kept.entries.get_mut(&id.index).filter(|held| held.entry.log_id == id)
            {
                held.stored = true;
            }
        }
        while kept.bytes > ROOM {
            match kept.entries.first_entry() {
                Some(first) if first.get().stored => {
                    let bytes = first.remove().bytes;
                    kept.bytes -= bytes;
                }
                _ => return,
            }
        }
    }

    /// The last entry, if it is here.
    pub(super) fn last(&self) -> Option<LogId<u64>> {
        self.lock().entries.last_key_value().map(|(_, held)| held.entry.log_id)
    }

    /// An entry, if it is here.
    pub(super) fn id(&self, index: u64) -> Option<LogId<u64>> {
        self.lock().entries.get(&index).map(|held| held.entry.log_id)
    }

    /// The index of the first of the entries here that end the log and are of the leader with this vote.
    pub(super) fn first_of(&self, vote: &Vote<u64>) -> Option<u64> {
        let kept = self.lock();
        let own = kept.entries.iter().rev().take_while(|(_, held)| is_of(held.entry.log_id, vote));
        own.last().map(|(index, _)| *index)
    }

    /// Where the tail begins (`u64::MAX` if it is empty), and what it has of a range: at most so many bytes, or one.
    pub(super) fn read(&self, from: u64, to: u64, max_bytes: usize) -> (u64, Vec<Entry>) {
        let kept = self.lock();
        let first = kept.entries.first_key_value().map_or(u64::MAX, |(index, _)| *index);
        let (mut found, mut bytes) = (Vec::new(), 0_usize);
        for held in kept.entries.range(from..to.max(from)).map(|(_, held)| held) {
            bytes = bytes.saturating_add(held.bytes);
            if bytes > max_bytes && !found.is_empty() {
                break;
            }
            found.push(held.entry.clone());
        }
        (first, found)
    }

    /// Drops entries from this one on.
    pub(super) fn truncate(&self, since: u64) {
        let mut kept = self.lock();
        let dropped = kept.entries.split_off(&since);
        kept.bytes -= dropped.values().map(|held| held.bytes).sum::<usize>();
    }

    /// Drops entries up to this one.
    pub(super) fn purge(&self, upto: u64) {
        let mut kept = self.lock();
        let rest = kept.entries.split_off(&upto.saturating_add(1));
        let dropped = std::mem::replace(&mut kept.entries, rest);
        kept.bytes -= dropped.values().map(|held| held.bytes).sum::<usize>();
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
