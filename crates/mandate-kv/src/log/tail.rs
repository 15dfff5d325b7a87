//! The last entries of the log, in memory.
//!
//! An entry must be readable as soon as it was appended, and is on disk only a forced write later. So entries are
//! here until they are on disk, and stay while there is room: followers are sent them moments later.

use std::collections::{BTreeMap, VecDeque};
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
    /// Bytes of all entries that were appended, and how many there were up to some of them, a megabyte apart.
    appended: u64,
    marks: VecDeque<(u64, u64)>,
}

/// Marks are no closer, in bytes.
const MARKS: u64 = 1 << 20;

struct Held {
    entry: Entry,
    bytes: usize,
    stored: bool,
}

impl Kept {
    /// At most so many bytes, or one.
    fn range(&self, from: u64, to: u64, max_bytes: usize) -> Vec<Entry> {
        let (mut found, mut bytes) = (Vec::new(), 0_usize);
        for held in self.entries.range(from..to.max(from)).map(|(_, held)| held) {
            bytes = bytes.saturating_add(held.bytes);
            if bytes > max_bytes && !found.is_empty() {
                break;
            }
            found.push(held.entry.clone());
        }
        found
    }
}

impl Tail {
    pub(super) fn push(&self, entry: Entry, bytes: usize) {
        let mut kept = self.lock();
        kept.bytes += bytes;
        let index = entry.log_id.index;
        kept.appended += bytes as u64;
        if kept.marks.back().is_none_or(|(_, at)| kept.appended - at >= MARKS) {
            let at = kept.appended;
            kept.marks.push_back((index, at));
        }
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

    /// The last entry of those with a mark that so many bytes have come after. Earlier marks are forgotten.
    pub(super) fn older_than(&self, bytes: u64) -> Option<u64> {
        let mut kept = self.lock();
        let limit = kept.appended.checked_sub(bytes)?;
        while kept.marks.get(1).is_some_and(|(_, at)| *at <= limit) {
            kept.marks.pop_front();
        }
        kept.marks.front().filter(|(_, at)| *at <= limit).map(|(index, _)| *index)
    }

    /// The last entry, if it is here.
    pub(super) fn last(&self) -> Option<LogId<u64>> {
        self.lock().entries.last_key_value().map(|(_, held)| held.entry.log_id)
    }

    /// An entry, if it is here.
    pub(super) fn id(&self, index: u64) -> Option<LogId<u64>> {
        self.lock().entries.get(&index).map(|held| held.entry.log_id)
    }

    /// The first of the entries here that end the log and are of the leader with this vote, and those after it, at most so
    /// many bytes, or one; and the entry before, if it is here. `None` if the log does not end so.
    pub(super) fn own(
        &self,
        vote: &Vote<u64>,
        max_bytes: usize,
    ) -> Option<(u64, Option<LogId<u64>>, Vec<Entry>)> {
        let kept = self.lock();
        let is_own = |index: u64| {
            kept.entries.get(&index).is_some_and(|held| is_of(held.entry.log_id, vote))
        };
        let (mut low, mut high) =
            (*kept.entries.first_key_value()?.0, *kept.entries.last_key_value()?.0);
        // A leader's entries are next to each other, so halving finds the first: the one at `high` is its.
        is_own(high).then_some(())?;
        while low < high {
            let middle = low + (high - low) / 2;
            match is_own(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        let before = low.checked_sub(1).and_then(|index| kept.entries.get(&index));
        Some((low, before.map(|held| held.entry.log_id), kept.range(low, u64::MAX, max_bytes)))
    }

    /// Where the tail begins (`u64::MAX` if it is empty), and what it has of a range: at most so many bytes, or one.
    pub(super) fn read(&self, from: u64, to: u64, max_bytes: usize) -> (u64, Vec<Entry>) {
        let kept = self.lock();
        let first = kept.entries.first_key_value().map_or(u64::MAX, |(index, _)| *index);
        (first, kept.range(from, to, max_bytes))
    }

    /// Drops entries from this one on.
    pub(super) fn truncate(&self, since: u64) {
        let mut kept = self.lock();
        while kept.marks.back().is_some_and(|(index, _)| *index >= since) {
            kept.marks.pop_back();
        }
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
