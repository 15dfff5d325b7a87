//! The state as a file.
//!
//! A number that says what it is, then records (a length and as many bytes of postcard each), then a record of no
//! length and the checksum of everything before. The first record says up to where the log is carried out; the
//! others hold some keys or some clients each, so that neither writing nor reading ever needs the whole in memory
//! twice. A file is written beside the one before, forced to disk, and takes its place by its name: there is the
//! old one or the new one, whole.
//!
//! openraft makes snapshots in a task of its own, while a leader may send a later one. The later one stays, whichever
//! is ready first: the log may begin after it already.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use openraft::{BasicNode, LogId, SnapshotMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::log::Coverage;
use super::state::{Frozen, Session, State};

/// "mandkv" and the version of the format.
const MAGIC: [u8; 8] = *b"mandkv\x00\x02";

/// A record ends when it has grown to this.
const RECORD: usize = 1 << 18;

/// No record is longer: one value on top of a record that was nearly full.
const MAX_RECORD: usize = 4 << 20;

/// What the names of snapshots that count begin with.
const NAME: &str = "snapshot-";

/// Snapshots in a directory that count, whichever log they belong to. One without a number was made by an older version.
pub(crate) fn all(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if name == "snapshot" || name.to_string_lossy().starts_with(NAME) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// What a snapshot is called, and up to where it goes.
pub(crate) type Meta = SnapshotMeta<u64, BasicNode>;

#[derive(Serialize, Deserialize)]
enum Record {
    Values(Vec<(String, Bytes)>),
    Sessions(Vec<(u64, Session)>),
}

/// Where snapshots are kept.
#[derive(Clone)]
pub(crate) struct Snapshots {
    directory: PathBuf,
    /// The number of the log that they belong to: a part of the name.
    number: u128,
    /// The log, which is cut off as far as the one that counts goes.
    log: Coverage,
    /// Held while another is made the one that counts.
    adopting: Arc<Mutex<()>>,
}

impl Snapshots {
    pub(crate) fn new(directory: &Path, number: u128, log: Coverage) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        Ok(Snapshots { directory: directory.to_owned(), number, log, adopting: Arc::default() })
    }

    /// One that counts for another log.
    pub(crate) fn of_another(&self) -> io::Result<Option<PathBuf>> {
        Ok(all(&self.directory)?.into_iter().find(|path| *path != self.current()))
    }

    /// Removes what was not finished when the process ended.
    pub(crate) fn remove_unfinished(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path != self.current() {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// The one that counts.
    pub(crate) fn current(&self) -> PathBuf {
        self.directory.join(format!("{NAME}{:032x}", self.number))
    }

    /// One that is being written or received.
    pub(crate) fn unfinished(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.unfinished"))
    }

    /// Makes a file the one that counts, durably. If a later one counts already, that stays.
    pub(crate) fn adopt(&self, unfinished: &Path) -> io::Result<()> {
        let file = File::open(unfinished)?;
        file.sync_all()?;
        let last = meta(&file)?.last_log_id;
        let _adopting = self.adopting.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = self.open()?.map(|file| meta(&file)).transpose()?;
        if counts.is_some_and(|counts| counts.last_log_id > last) {
            return fs::remove_file(unfinished);
        }
        fs::rename(unfinished, self.current())?;
        File::open(&self.directory)?.sync_all()?;
        self.covers(last);
        Ok(())
    }

    /// The one that counts goes up to this entry.
    fn covers(&self, last: Option<LogId<u64>>) {
        if let Some(last) = last {
            self.log.reaches(last);
        }
    }

    /// One that was received could not be stored.
    pub(crate) async fn fails(&self) {
        self.log.fails().await;
    }

    /// The file of the one that counts, if there is one.
    pub(crate) fn open(&self) -> io::Result<Option<File>> {
        match File::open(self.current()) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The one that counts, if there is one.
    pub(crate) fn load(&self) -> io::Result<Option<(Meta, State)>> {
        let loaded = self.open()?.map(|file| read(&file)).transpose()?;
        if let Some((meta, _)) = &loaded {
            self.covers(meta.last_log_id);
        }
        Ok(loaded)
    }
}

/// Writes a state to a file. What is written is let go of: writes need not copy it any more.
pub(crate) fn write(path: &Path, meta: &Meta, state: Frozen) -> io::Result<()> {
    let mut out = Checked { inner: BufWriter::new(File::create(path)?), sum: Default::default() };
    out.write_all(&MAGIC)?;
    put(&mut out, meta)?;
    let mut some = Vec::new();
    let mut size = 0;
    for part in state.values.into_parts() {
        for (key, value) in &*part {
            size += key.len() + value.len();
            some.push((key.clone(), value.clone()));
            if size >= RECORD {
                put(&mut out, &Record::Values(std::mem::take(&mut some)))?;
                size = 0;
            }
        }
    }
    put(&mut out, &Record::Values(some))?;
    let mut some = Vec::new();
    for part in state.sessions.into_parts() {
        some.extend(part.iter().map(|(id, session)| (*id, *session)));
        if some.len() >= 4096 {
            put(&mut out, &Record::Sessions(std::mem::take(&mut some)))?;
        }
    }
    put(&mut out, &Record::Sessions(some))?;
    out.write_all(&0_u32.to_le_bytes())?;
    let sum = out.sum.clone().finalize();
    out.inner.write_all(&sum.to_le_bytes())?;
    out.inner.into_inner().map_err(|error| error.into_error())?.sync_all()
}

/// Reads a file that [`write`] wrote.
pub(crate) fn read(file: &File) -> io::Result<(Meta, State)> {
    let mut input = Checked { inner: BufReader::new(file), sum: Default::default() };
    let meta = head(&mut input)?;
    let mut state = State::at(meta.last_log_id, meta.last_membership.clone());
    while let Some(record) = take(&mut input)? {
        match record {
            Record::Values(some) => {
                some.into_iter().for_each(|(key, value)| drop(state.values.insert(key, value)));
            }
            Record::Sessions(some) => {
                some.into_iter().for_each(|(client, session)| state.remember(client, session));
            }
        }
    }
    let sum = input.sum.clone().finalize();
    let mut stored = [0; 4];
    input.inner.read_exact(&mut stored)?;
    if u32::from_le_bytes(stored) != sum {
        return Err(damaged("its checksum is wrong"));
    }
    Ok((meta, state))
}

/// What a file says of itself, without reading the rest. It is at its beginning again afterwards.
pub(crate) fn meta(mut file: &File) -> io::Result<Meta> {
    let meta = head(&mut file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(meta)
}

fn head(input: &mut impl Read) -> io::Result<Meta> {
    let mut magic = [0; MAGIC.len()];
    input.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(damaged("it is no snapshot, or of another version"));
    }
    take(input)?.ok_or_else(|| damaged("it is empty"))
}

fn put(out: &mut impl Write, record: &impl Serialize) -> io::Result<()> {
    let bytes = postcard::to_allocvec(record).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&bytes)
}

/// The next record, or `None` at the end.
fn take<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length == 0 {
        return Ok(None);
    }
    if length > MAX_RECORD {
        return Err(damaged("a record is too long"));
    }
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    let record = postcard::from_bytes(&bytes).map_err(|_| damaged("a record makes no sense"))?;
    Ok(Some(record))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the snapshot is damaged: {what}"))
}

/// Sums up what passes.
struct Checked<T> {
    inner: T,
    sum: crc32fast::Hasher,
}

impl<T: Write> Write for Checked<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Checked<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.sum.update(&bytes[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::testing::{blank, log};
    use super::*;

    #[tokio::test]
    async fn what_was_written_is_read_and_damage_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let (_log_directory, log) = log(&[], false).await;
        let snapshots = Snapshots::new(directory.path(), 1, log.coverage()).unwrap();
        let mut state = State::default();
        for key in 0..5000 {
            state.values.insert(format!("key {key}"), Bytes::from(vec![key as u8; 100]));
        }
        let meta = Meta { snapshot_id: "one".into(), ..Meta::default() };
        let path = snapshots.unfinished("one");
        write(&path, &meta, state.freeze()).unwrap();
        snapshots.adopt(&path).unwrap();
        let (read_meta, read_state) = snapshots.load().unwrap().unwrap();
        assert_eq!(read_meta, meta);
        assert_eq!(read_state.values.len(), 5000);
        let kept = |key: usize| read_state.values.get(&format!("key {key}")).cloned();
        assert!((0..5000).all(|key| kept(key) == Some(Bytes::from(vec![key as u8; 100]))));

        let mut bytes = fs::read(snapshots.current()).unwrap();
        for place in [0, 9, bytes.len() / 2, bytes.len() - 1] {
            bytes[place] ^= 0x40;
            fs::write(snapshots.current(), &bytes).unwrap();
            assert!(snapshots.load().is_err(), "damage at {place}");
            bytes[place] ^= 0x40;
        }
        fs::write(snapshots.current(), &bytes[..bytes.len() - 5]).unwrap();
        assert!(snapshots.load().is_err(), "cut short");
        fs::write(snapshots.unfinished("two"), b"half").unwrap();
        snapshots.remove_unfinished().unwrap();
        assert!(!snapshots.unfinished("two").exists(), "what is left of a crash is removed");
    }

    /// A snapshot is made in a task of its own, and may be ready after a later one was installed.
    #[tokio::test]
    async fn an_older_snapshot_does_not_replace_a_later_one() {
        let directory = tempfile::tempdir().unwrap();
        let (_log_directory, log) = log(&[], false).await;
        let snapshots = Snapshots::new(directory.path(), 1, log.coverage()).unwrap();
        for (index, counts) in [(5, 5), (9, 9), (7, 9), (9, 9), (12, 12)] {
            let last_log_id = Some(blank(1, index).log_id);
            let meta = Meta { snapshot_id: format!("{index}"), last_log_id, ..Meta::default() };
            let path = snapshots.unfinished("one");
            write(&path, &meta, Frozen::default()).unwrap();
            snapshots.adopt(&path).unwrap();
            assert!(!path.exists(), "none is left over");
            let (meta, _) = snapshots.load().unwrap().unwrap();
            assert_eq!(meta.last_log_id.unwrap().index, counts);
        }
    }
}
