//! The log and the vote, on disk before they are acknowledged.
//!
//! Entries are kept in a redb database, a copy-on-write tree in one file. One thread writes ([`writer`]): whatever
//! has come while it forced the last writes to disk goes into the next transaction together, so that one forced
//! write serves all clients that wait. The last entries are in memory besides ([`tail`]), since followers are sent
//! them moments later.
//!
//! redb was chosen because a committed transaction is durable and whole whatever happens, it is pure Rust with no
//! dependencies to speak of, and its file format is stable. fjall writes batches somewhat faster, but brings a
//! dozen crates, background threads and compaction; a log is appended to and cut off at both ends, which a tree
//! does well enough. RocksDB needs a C++ compiler and minutes to build.
//!
//! A log is made once, with a random number, and after that it is opened and must be there: an empty log in the place of
//! a lost one would forget votes and acknowledged writes. Which log belongs to a member is `storage`'s business.

mod tail;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogId, LogState, RaftLogReader, StorageError, StorageIOError, Vote};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

use super::member::Mutant;
use super::types::Kv;
use tail::Tail;
pub(crate) use writer::Coverage;
use writer::Work;

type Entry = openraft::Entry<Kv>;

/// Entries by index.
const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");

/// The vote, and the last entry that was cut off.
const FACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("facts");
const VOTE: &str = "vote";
const PURGED: &str = "purged";
/// The number that it was made with.
const NUMBER: &str = "number";

/// How many jobs may wait for the writer; a caller with more waits itself. openraft waits for each append before it makes the next.
const QUEUE: usize = 16;

/// What redb may keep of the file in memory. The last entries are in the tail besides.
const CACHE: usize = 64 << 20;

/// A message to a follower holds entries of at most so many bytes, or one.
const MAX_BATCH: usize = 1 << 20;

/// The log of one member.
#[derive(Clone)]
pub(crate) struct Log {
    file: Arc<Open>,
    tail: Arc<Tail>,
    work: mpsc::Sender<Work>,
    coverage: Coverage,
    /// The last entry that was cut off, as far as Raft is concerned. On disk it is when a snapshot covers it.
    purged: Arc<Mutex<Option<LogId<u64>>>>,
    /// A bug put back.
    restores_leaders: bool,
}

/// The database, until the log is closed.
struct Open(RwLock<Option<Arc<Database>>>);

impl Log {
    /// Makes one with this number, and opens it. It has its name when it is whole and on disk.
    pub(crate) fn create(path: &Path, number: u128, mutant: Option<Mutant>) -> io::Result<Self> {
        let unfinished = path.with_extension("unfinished");
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let database = Database::create(&unfinished).map_err(other)?;
        let transaction = database.begin_write().map_err(other)?;
        transaction.open_table(ENTRIES).map_err(other)?;
        let bytes = postcard::to_allocvec(&number).map_err(other)?;
        let mut facts = transaction.open_table(FACTS).map_err(other)?;
        facts.insert(NUMBER, bytes.as_slice()).map_err(other)?;
        drop(facts);
        transaction.commit().map_err(other)?;
        drop(database);
        std::fs::rename(&unfinished, path)?;
        if let Some(directory) = path.parent() {
            std::fs::File::open(directory)?.sync_all()?;
        }
        Log::open(path, mutant)
    }

    /// Opens one, which must be there.
    pub(crate) fn open(path: &Path, mutant: Option<Mutant>) -> io::Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE).set_repair_callback(|_| {
            tracing::info!("checking the whole log, because the process did not close it");
        });
        Log::of(builder.open(path).map_err(other)?, mutant)
    }

    fn of(database: Database, mutant: Option<Mutant>) -> io::Result<Self> {
        let database = Arc::new(database);
        let tail = Arc::new(Tail::default());
        let unforced = mutant == Some(Mutant::UnforcedLog);
        let (work, coverage) = writer::start(database.clone(), tail.clone(), QUEUE, unforced)?;
        let restores_leaders = mutant == Some(Mutant::RestoredLeaders);
        let file = Arc::new(Open(RwLock::new(Some(database))));
        let log = Log { file, tail, work, coverage, purged: Arc::default(), restores_leaders };
        log.is_cut_off(log.fact(PURGED)?);
        Ok(log)
    }

    /// The number that it was made with; `None` if it has none.
    pub(crate) fn number(&self) -> io::Result<Option<u128>> {
        self.fact(NUMBER)
    }

    /// The last entry that was cut off: everything up to it is in a snapshot.
    pub(crate) fn purged(&self) -> Option<LogId<u64>> {
        *self.purged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cut_off(&self, last: Option<LogId<u64>>) {
        let mut purged = self.purged.lock().unwrap_or_else(PoisonError::into_inner);
        *purged = last.max(*purged);
    }

    /// Where it is told how far snapshots on disk go.
    pub(crate) fn coverage(&self) -> Coverage {
        self.coverage.clone()
    }

    /// Has the log begin after a snapshot that goes up to this entry, if it does not have the entry: a crash can come
    /// between a snapshot that was received and the log's end before it. What the log has then cannot be
    /// committed, or is in the snapshot. For a log that nobody writes yet.
    pub(crate) fn begin_after(&self, last: LogId<u64>) -> io::Result<()> {
        let is_before = self.purged().is_none_or(|purged| purged.index < last.index);
        if !is_before || self.id(last.index)? == Some(last) {
            return Ok(());
        }
        let id = postcard::to_allocvec(&last).map_err(other)?;
        let transaction = self.database()?.begin_write().map_err(other)?;
        let mut table = transaction.open_table(ENTRIES).map_err(other)?;
        table.retain(|_, _| false).map_err(other)?;
        drop(table);
        let mut facts = transaction.open_table(FACTS).map_err(other)?;
        facts.insert(PURGED, id.as_slice()).map_err(other)?;
        drop(facts);
        transaction.commit().map_err(other)?;
        self.is_cut_off(Some(last));
        Ok(())
    }

    /// Closes the file, so that it need not be checked when it is opened again. Whatever is asked of the log after that
    /// fails.
    pub(crate) async fn close(&self) -> io::Result<()> {
        let closed = self.write(|done| Work::Close { done }).await;
        self.file.0.write().unwrap_or_else(PoisonError::into_inner).take();
        closed
    }

    fn database(&self) -> io::Result<Arc<Database>> {
        let open = self.file.0.read().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| other("the log is closed"))
    }

    /// Is told whenever something was appended.
    pub(crate) fn appended(&self) -> watch::Receiver<()> {
        self.tail.appended()
    }

    /// The last entry that so many bytes of entries have come after, in this process.
    pub(crate) fn older_than(&self, bytes: u64) -> Option<u64> {
        self.tail.older_than(bytes)
    }

    /// The index of the last entry that is in memory.
    pub(crate) fn last_recent(&self) -> Option<u64> {
        self.tail.last().map(|last| last.index)
    }

    /// Entries from this one on, at most so many bytes, or one; `None` if the first is not in memory.
    pub(crate) fn recent(&self, from: u64, max_bytes: usize) -> Option<Vec<Entry>> {
        let (first, entries) = self.tail.read(from, u64::MAX, max_bytes);
        (first <= from).then_some(entries)
    }

    /// The last entry, or the last that was cut off if there is none.
    pub(crate) fn last(&self) -> io::Result<Option<LogId<u64>>> {
        if let Some(last) = self.tail.last() {
            return Ok(Some(last));
        }
        let (stored, purged) = (self.last_stored()?, self.purged());
        let index = |id: Option<LogId<u64>>| id.map(|id| id.index);
        Ok(if index(stored) > index(purged) { stored } else { purged })
    }

    /// What the leader with this vote has appended itself and is in memory, at most so many bytes, or one; and the
    /// entry before that.
    pub(crate) fn since(
        &self,
        vote: Vote<u64>,
        max_bytes: usize,
    ) -> io::Result<(Option<LogId<u64>>, Vec<Entry>)> {
        let Some((first, before, entries)) = self.tail.own(&vote, max_bytes) else {
            return Ok((self.last()?, Vec::new()));
        };
        let before = match (before, first.checked_sub(1)) {
            (None, Some(index)) => self.id(index)?,
            (before, _) => before,
        };
        // Just now cut off, and nobody knows what it was: a follower that got entries without it would take them for the first ever.
        let is_lost = before.is_none() && first > 0;
        Ok(if is_lost { (self.last()?, Vec::new()) } else { (before, entries) })
    }

    /// The last entry that is not after this one; `None` if all such were cut off.
    pub(crate) fn not_after(&self, id: LogId<u64>) -> io::Result<Option<LogId<u64>>> {
        let Some(last) = self.last()? else { return Ok(None) };
        // Ids rise along a log, so halving finds it: `low` is the number of entries that are not after it.
        let (mut low, mut high) = (0, last.index.min(id.index) + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.id(middle)? {
                Some(found) if found > id => high = middle,
                // What was cut off was committed, and nobody's log has another entry there.
                _ => low = middle + 1,
            }
        }
        low.checked_sub(1).map_or(Ok(None), |index| self.id(index))
    }

    /// The entry with this index; `None` if there is none, or it was cut off and is not the last of those.
    fn id(&self, index: u64) -> io::Result<Option<LogId<u64>>> {
        if let Some(recent) = self.tail.id(index) {
            return Ok(Some(recent));
        }
        if let Some(purged) = self.purged().filter(|purged| purged.index >= index) {
            return Ok(Some(purged).filter(|last| last.index == index));
        }
        let transaction = self.database()?.begin_read().map_err(other)?;
        let table = transaction.open_table(ENTRIES).map_err(other)?;
        let Some(stored) = table.get(index).map_err(other)? else { return Ok(None) };
        decode(stored.value()).map(|entry| Some(entry.log_id))
    }

    fn fact<T: serde::de::DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let transaction = self.database()?.begin_read().map_err(other)?;
        let table = transaction.open_table(FACTS).map_err(other)?;
        let Some(stored) = table.get(name).map_err(other)? else { return Ok(None) };
        postcard::from_bytes(stored.value()).map(Some).map_err(other)
    }

    fn last_stored(&self) -> io::Result<Option<LogId<u64>>> {
        let transaction = self.database()?.begin_read().map_err(other)?;
        let table = transaction.open_table(ENTRIES).map_err(other)?;
        let Some((_, stored)) = table.last().map_err(other)? else { return Ok(None) };
        decode(stored.value()).map(|entry| Some(entry.log_id))
    }

    /// Has something written, and waits until it is on disk.
    async fn write(&self, work: impl FnOnce(writer::Done) -> Work) -> io::Result<()> {
        let (done, told) = oneshot::channel();
        self.work.send(work(done)).await.map_err(|_| stopped())?;
        told.await.map_err(|_| stopped())?
    }

    async fn read(&self, from: u64, to: u64, max_bytes: usize) -> io::Result<Vec<Entry>> {
        // What the tail has forgotten since is on disk by then, so it is asked first.
        let (first, recent) = self.tail.read(from, to, max_bytes);
        if first <= from {
            return Ok(recent);
        }
        // What was cut off may be on disk still.
        let from = self.purged().map_or(from, |purged| from.max(purged.index + 1));
        let database = self.database()?;
        let stored =
            spawn_blocking(move || stored(&database, from, first.min(to).max(from), max_bytes));
        let (mut entries, whole) = stored.await.map_err(other)??;
        if whole {
            entries.extend(recent);
        }
        Ok(entries)
    }
}

/// Whether an entry was appended by the leader with this vote.
pub(crate) fn is_of(entry: LogId<u64>, vote: &Vote<u64>) -> bool {
    let (of, by) = (entry.leader_id, vote.leader_id);
    (of.term, of.node_id) == (by.term, by.node_id)
}

/// Entries from the database, and whether that is all of them.
fn stored(database: &Database, from: u64, to: u64, max: usize) -> io::Result<(Vec<Entry>, bool)> {
    let transaction = database.begin_read().map_err(other)?;
    let table = transaction.open_table(ENTRIES).map_err(other)?;
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for found in table.range(from..to).map_err(other)? {
        let (_, stored) = found.map_err(other)?;
        bytes += stored.value().len();
        if bytes > max && !entries.is_empty() {
            return Ok((entries, false));
        }
        entries.push(decode(stored.value())?);
    }
    Ok((entries, true))
}

impl RaftLogReader<Kv> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError<u64>> {
        let (from, to) = bounds(&range);
        self.read(from, to, usize::MAX).await.map_err(read_error)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError<u64>> {
        self.read(start, end, MAX_BATCH).await.map_err(read_error)
    }
}

impl RaftLogStorage<Kv> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> Result<LogState<Kv>, StorageError<u64>> {
        let last = self.last().map_err(read_error)?;
        Ok(LogState { last_purged_log_id: self.purged(), last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<(), StorageError<u64>> {
        let bytes = postcard::to_allocvec(vote).map_err(other);
        let written = match bytes {
            Ok(vote) => self.write(|done| Work::Vote { vote, done }).await,
            Err(error) => Err(error),
        };
        written.map_err(|error| StorageIOError::write_vote(&error).into())
    }

    /// After a restart nobody leads before it was elected again. openraft lets a leader that finds its own vote go on
    /// leading, and takes the first entry of its term for what a read must wait for; but it has forgotten how far it
    /// had committed beyond that, so reads could go back behind writes it had acknowledged. (Histories under kills
    /// showed it.) A vote that does not count as given by a quorum yet is as good a promise: nobody but its own
    /// candidate could ask for it again, and who is restarted asks for a higher one.
    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, StorageError<u64>> {
        let vote: Option<Vote<u64>> =
            self.fact(VOTE).map_err(|error| StorageIOError::read_vote(&error))?;
        if self.restores_leaders {
            return Ok(vote);
        }
        Ok(vote.map(|vote| Vote { committed: false, ..vote }))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        flushed: LogFlushed<Kv>,
    ) -> Result<(), StorageError<u64>>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut encoded = Vec::new();
        for entry in entries {
            let bytes = postcard::to_allocvec(&entry).map_err(other).map_err(write_error)?;
            encoded.push((entry.log_id, bytes));
            self.tail.push(entry, encoded[encoded.len() - 1].1.len());
        }
        let work = Work::Append { entries: encoded, flushed };
        self.work.send(work).await.map_err(|_| write_error(stopped()))
    }

    async fn truncate(&mut self, since: LogId<u64>) -> Result<(), StorageError<u64>> {
        self.tail.truncate(since.index);
        let since = since.index;
        self.write(|done| Work::Truncate { since, done }).await.map_err(write_error)
    }

    /// Returns before it is done on disk: that may take until a snapshot is there, and Raft has to vote meanwhile.
    async fn purge(&mut self, upto: LogId<u64>) -> Result<(), StorageError<u64>> {
        let id = postcard::to_allocvec(&upto).map_err(other).map_err(write_error)?;
        self.is_cut_off(Some(upto));
        self.tail.purge(upto.index);
        let work = Work::Purge { upto: upto.index, id };
        self.work.send(work).await.map_err(|_| write_error(stopped()))
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(to) => *to,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

fn decode(bytes: &[u8]) -> io::Result<Entry> {
    let what = "an entry of the log makes no sense: the file is damaged";
    postcard::from_bytes(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, what))
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

fn stopped() -> io::Error {
    io::Error::other(
        "the log's writer has stopped; what it complained of is in the log of the process",
    )
}

fn read_error(error: io::Error) -> StorageError<u64> {
    StorageIOError::read_logs(&error).into()
}

fn write_error(error: io::Error) -> StorageError<u64> {
    StorageIOError::write_logs(&error).into()
}
