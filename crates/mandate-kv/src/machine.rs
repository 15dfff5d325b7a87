//! The state machine, as openraft sees it: carries out what is committed, and makes and takes snapshots.
//!
//! The state is in memory. After a restart it is what the last snapshot says and, once a leader has said how far
//! the log is committed, what the log says since.

use std::io::{self, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use openraft::storage::RaftStateMachine;
use openraft::{
    BasicNode, LogId, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageError, StorageIOError,
    StoredMembership,
};
use tokio::task::spawn_blocking;

use super::snapshot::{self, Snapshots};
use super::state::{Frozen, State};
use super::types::{Kv, Outcomes, bytes_of};

/// The state, for reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    state: Arc<RwLock<State>>,
    /// Bytes of keys and values that were written since the last snapshot was begun.
    written: Arc<AtomicU64>,
}

impl Store {
    /// What a key has. Whether that is current is for the caller to know.
    pub(crate) fn get(&self, key: &str) -> Option<Bytes> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).values.get(key).cloned()
    }

    /// How long the value of a key is, if it has one.
    pub(crate) fn length(&self, key: &str) -> Option<usize> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.values.get(key).map(Bytes::len)
    }

    /// Bytes of keys and values that were written since the last snapshot was begun.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The state machine.
pub(crate) struct Machine {
    store: Store,
    snapshots: Snapshots,
    /// The file that is being received, and how many have been.
    incoming: (Option<PathBuf>, u64),
}

impl Machine {
    /// Starts from the last snapshot.
    pub(crate) fn open(snapshots: Snapshots) -> io::Result<Self> {
        let store = Store::default();
        if let Some((_, state)) = snapshots.load()? {
            store.write(|place| *place = state);
        }
        Ok(Machine { store, snapshots, incoming: (None, 0) })
    }

    pub(crate) fn store(&self) -> Store {
        self.store.clone()
    }

    /// Up to where the log is carried out.
    pub(crate) fn applied(&self) -> Option<LogId<u64>> {
        self.store.write(|state| state.applied)
    }
}

/// Makes one snapshot.
pub(crate) struct Builder {
    state: Frozen,
    snapshots: Snapshots,
}

impl RaftSnapshotBuilder<Kv> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Kv>, StorageError<u64>> {
        let state = std::mem::take(&mut self.state);
        let snapshots = self.snapshots.clone();
        let id = state.applied.map_or("empty".into(), |id| id.to_string());
        let meta = SnapshotMeta {
            last_log_id: state.applied,
            last_membership: state.membership.clone(),
            snapshot_id: id,
        };
        let written = spawn_blocking(move || {
            let path = snapshots.unfinished("built");
            snapshot::write(&path, &meta, state)?;
            // Opened before it has its name: whatever replaces it there, this is the one that was made.
            let file = std::fs::File::open(&path)?;
            snapshots.adopt(&path)?;
            Ok((meta, file))
        });
        let (meta, file) = joined(written.await).map_err(|error| write_error(&error))?;
        Ok(Snapshot { meta, snapshot: Box::new(tokio::fs::File::from_std(file)) })
    }
}

impl RaftStateMachine<Kv> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>), StorageError<u64>> {
        Ok(self.store.write(|state| (state.applied, state.membership.clone())))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Outcomes>, StorageError<u64>>
    where
        I: IntoIterator<Item = openraft::Entry<Kv>> + Send,
        I::IntoIter: Send,
    {
        let entries: Vec<_> = entries.into_iter().collect();
        let bytes: usize = entries.iter().map(bytes_of).sum();
        self.store.written.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(self.store.write(|state| entries.into_iter().map(|entry| state.apply(entry)).collect()))
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        self.store.written.store(0, Ordering::Relaxed);
        let state = self.store.write(|state| state.freeze());
        Builder { state, snapshots: self.snapshots.clone() }
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> Result<Box<tokio::fs::File>, StorageError<u64>> {
        self.incoming.1 += 1;
        let path = self.snapshots.unfinished(&format!("received-{}", self.incoming.1));
        let options =
            tokio::fs::File::options().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(&path).await.map_err(|error| write_error(&error))?;
        if let Some(abandoned) = self.incoming.0.replace(path) {
            let _ = tokio::fs::remove_file(abandoned).await;
        }
        Ok(Box::new(file))
    }

    async fn install_snapshot(
        &mut self,
        _meta: &SnapshotMeta<u64, BasicNode>,
        received: Box<tokio::fs::File>,
    ) -> Result<(), StorageError<u64>> {
        let path = self.incoming.0.take();
        let file = received.into_std().await;
        let snapshots = self.snapshots.clone();
        let read = spawn_blocking(move || {
            let path = path.ok_or_else(|| io::Error::other("no snapshot was being received"))?;
            let mut file = file;
            file.sync_all()?;
            file.rewind()?;
            let (_, state) = snapshot::read(&file)?;
            // What counts is what was handed over, should that be another file than the one that was made for it.
            if file.metadata()?.ino() != std::fs::metadata(&path)?.ino() {
                file.rewind()?;
                io::copy(&mut file, &mut std::fs::File::create(&path)?)?;
            }
            snapshots.adopt(&path)?;
            Ok(state)
        });
        let state = match joined(read.await) {
            Ok(state) => state,
            Err(error) => {
                // Raft may wait for the log, which waits for this.
                self.snapshots.fails().await;
                return Err(write_error(&error));
            }
        };
        let before = self.store.write(|place| std::mem::replace(place, state));
        // Letting go of millions of keys takes a while.
        drop(spawn_blocking(move || drop(before)));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Kv>>, StorageError<u64>> {
        let snapshots = self.snapshots.clone();
        let opened = spawn_blocking(move || match snapshots.open()? {
            Some(file) => Ok(Some((snapshot::meta(&file)?, file))),
            None => Ok(None),
        });
        let opened = joined(opened.await);
        let opened = opened.map_err(|error| StorageIOError::read_snapshot(None, &error))?;
        Ok(opened.map(|(meta, file)| Snapshot {
            meta,
            snapshot: Box::new(tokio::fs::File::from_std(file)),
        }))
    }
}

fn joined<T>(result: Result<io::Result<T>, tokio::task::JoinError>) -> io::Result<T> {
    result.map_err(io::Error::other)?
}

fn write_error(error: &io::Error) -> StorageError<u64> {
    StorageIOError::write_snapshot(None, error).into()
}
