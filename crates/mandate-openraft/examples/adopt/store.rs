//! Stands for what a service has already: a log and lines of text in memory, and calls within the process.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Cursor;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::storage::{LogFlushed, RaftLogStorage, RaftStateMachine};
use openraft::{
    BasicNode, Entry, EntryPayload, LogId, LogState, Raft, RaftLogReader, RaftSnapshotBuilder,
    Snapshot, SnapshotMeta, StorageError, StorageIOError, StoredMembership, Vote,
};

use super::Everyone;

openraft::declare_raft_types!(
    /// Lines of text; the answer to a write is how many there are.
    pub Types: D = String, R = u64
);

type Stored<T> = Result<T, StorageError<u64>>;

/// The log, in memory. A service's is on disk.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    vote: Option<Vote<u64>>,
    purged: Option<LogId<u64>>,
    entries: BTreeMap<u64, Entry<Types>>,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Stored<Vec<Entry<Types>>> {
        Ok(self.lock().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> Stored<LogState<Types>> {
        let kept = self.lock();
        let last = kept.entries.last_key_value().map(|(_, entry)| entry.log_id);
        Ok(LogState { last_purged_log_id: kept.purged, last_log_id: last.or(kept.purged) })
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Stored<()> {
        self.lock().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Stored<Option<Vote<u64>>> {
        Ok(self.lock().vote)
    }

    async fn append<I>(&mut self, entries: I, flushed: LogFlushed<Types>) -> Stored<()>
    where
        I: IntoIterator<Item = Entry<Types>> + Send,
        I::IntoIter: Send,
    {
        let entries = entries.into_iter().map(|entry| (entry.log_id.index, entry));
        self.lock().entries.extend(entries);
        flushed.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, since: LogId<u64>) -> Stored<()> {
        self.lock().entries.split_off(&since.index);
        Ok(())
    }

    async fn purge(&mut self, upto: LogId<u64>) -> Stored<()> {
        let mut kept = self.lock();
        kept.entries = kept.entries.split_off(&(upto.index + 1));
        kept.purged = Some(upto);
        Ok(())
    }
}

/// The lines: how many there are.
#[derive(Default)]
pub(crate) struct Machine {
    lines: u64,
    applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    /// The last snapshot, for followers that lag further than the log reaches back. A service's is on disk.
    snapshot: Arc<Mutex<Option<Made>>>,
}

/// A snapshot: what it is, and the lines in it.
type Made = (SnapshotMeta<u64, BasicNode>, u64);

pub(crate) struct Builder {
    made: Made,
    place: Arc<Mutex<Option<Made>>>,
}

fn as_snapshot((meta, lines): Made) -> Snapshot<Types> {
    Snapshot { meta, snapshot: Box::new(Cursor::new(lines.to_le_bytes().to_vec())) }
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Stored<Snapshot<Types>> {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.made.clone());
        Ok(as_snapshot(self.made.clone()))
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Stored<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Stored<Vec<u64>>
    where
        I: IntoIterator<Item = Entry<Types>> + Send,
        I::IntoIter: Send,
    {
        let apply = |entry: Entry<Types>| {
            self.applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(_) => self.lines += 1,
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
            }
            self.lines
        };
        Ok(entries.into_iter().map(apply).collect())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let meta = SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.membership.clone(),
            snapshot_id: format!("{:?}", self.applied),
        };
        Builder { made: (meta, self.lines), place: self.snapshot.clone() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Stored<Box<Cursor<Vec<u8>>>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        received: Box<Cursor<Vec<u8>>>,
    ) -> Stored<()> {
        let damaged = |_| StorageIOError::read_snapshot(None, &std::fmt::Error);
        let bytes: [u8; 8] = received.into_inner().try_into().map_err(damaged)?;
        self.lines = u64::from_le_bytes(bytes);
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        let made = Some((meta.clone(), self.lines));
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = made;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Stored<Option<Snapshot<Types>>> {
        let kept = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(kept.map(as_snapshot))
    }
}

/// Calls within the process.
pub(crate) struct Network(pub(crate) Everyone);

pub(crate) struct Connection(Everyone, u64);

impl RaftNetworkFactory<Types> for Network {
    type Network = Connection;

    async fn new_client(&mut self, target: u64, _: &BasicNode) -> Connection {
        Connection(self.0.clone(), target)
    }
}

type Called<T, E = RaftError<u64>> = Result<T, RPCError<u64, BasicNode, E>>;

impl Connection {
    fn raft(&self) -> Result<Raft<Types>, NetworkError> {
        let member = self.0.get().and_then(|everyone| everyone.get(&self.1));
        let gone = || NetworkError::new(&std::io::Error::from(std::io::ErrorKind::NotConnected));
        member.map(|member| member.raft.clone()).ok_or_else(gone)
    }
}

fn failed<E: std::error::Error + 'static>(error: E) -> RPCError<u64, BasicNode, E> {
    RPCError::Network(NetworkError::new(&error))
}

impl RaftNetwork<Types> for Connection {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Called<AppendEntriesResponse<u64>> {
        self.raft()?.append_entries(rpc).await.map_err(failed)
    }

    async fn vote(&mut self, rpc: VoteRequest<u64>, _: RPCOption) -> Called<VoteResponse<u64>> {
        self.raft()?.vote(rpc).await.map_err(failed)
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Called<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>> {
        self.raft()?.install_snapshot(rpc).await.map_err(failed)
    }
}
