//! Writes that wait together go into one entry of the log.
//!
//! openraft 0.9 forces each entry to disk before it looks at the next write. With an entry for each write a member
//! would carry out as many writes a second as its disk can force; so whatever has come while the last entry was
//! forced goes into the next together. One that comes alone goes alone, and at once. Followers get many entries in a
//! message, and force them together anyway.
//!
//! A leader without a quorum goes on appending in openraft: each retry of a client is another entry. So what waits for
//! a quorum is bounded in bytes; beyond that nothing is taken.

use futures_util::FutureExt;
use openraft::Raft;
use openraft::error::ClientWriteError;
use openraft::raft::ClientWriteResult;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::types::{Batch, Kv, WriteCommand, WriteOutcome};
use mandate_openraft::driver::Gate;

/// How many writes may wait; a client with more waits itself.
const QUEUE: usize = 4096;

/// Writes in one entry at most,
const MAX_WRITES: usize = 512;

/// and bytes, if it is more than one write.
const MAX_BYTES: usize = 1 << 20;

/// Writes that are not committed have at most so many bytes, those included that nobody waits for any more.
pub(crate) const UNCOMMITTED: usize = 64 << 20;

/// What a write takes besides its key and values.
const OVERHEAD: usize = 128;

/// Why a write was not carried out, or may not have been.
#[derive(Clone, Debug)]
pub(crate) enum NotWritten {
    /// It may be carried out or not.
    Lost(String),
    /// Too much waits to be committed. It was not carried out.
    Full,
}

/// A write, and where its outcome goes.
struct Waiting {
    command: WriteCommand,
    told: Told,
}

/// Where an outcome goes, and what the write takes until it is known.
struct Told {
    outcome: oneshot::Sender<Result<WriteOutcome, NotWritten>>,
    _bytes: OwnedSemaphorePermit,
}

/// Takes writes, at the member that leads.
#[derive(Clone, Debug)]
pub(crate) struct Batcher {
    waiting: mpsc::Sender<Waiting>,
    uncommitted: Arc<Semaphore>,
}

impl Batcher {
    /// Starts it; it ends when nobody can give it writes any more.
    pub(crate) fn start(raft: Raft<Kv>, gate: Gate) -> Self {
        let (waiting, queue) = mpsc::channel(QUEUE);
        tokio::spawn(run(raft, gate, queue));
        Batcher { waiting, uncommitted: Arc::new(Semaphore::new(UNCOMMITTED)) }
    }

    /// Has a write carried out, if this member leads. Dropped before it returns, it may be or not.
    pub(crate) async fn write(&self, command: WriteCommand) -> Result<WriteOutcome, NotWritten> {
        let (outcome, told) = oneshot::channel();
        let stopped = || NotWritten::Lost("this member has stopped".into());
        let bytes = u32::try_from(command.operation.size() + OVERHEAD).unwrap_or(u32::MAX);
        let room = self.uncommitted.clone().try_acquire_many_owned(bytes);
        let _bytes = room.map_err(|_| NotWritten::Full)?;
        let waiting = Waiting { command, told: Told { outcome, _bytes } };
        self.waiting.send(waiting).await.map_err(|_| stopped())?;
        told.await.map_err(|_| stopped())?
    }
}

async fn run(raft: Raft<Kv>, gate: Gate, mut queue: mpsc::Receiver<Waiting>) {
    while let Some(first) = queue.recv().await {
        let pass = gate.enter().await;
        let (commands, told) = collect(first, &mut queue);
        if commands.is_empty() {
            continue;
        }
        let Ok(written) = raft.client_write_ff(Batch { commands }).await else { return };
        tokio::spawn(async move {
            let result = written.await;
            drop(pass);
            tell(told, result.map_err(|_| "Raft has stopped".to_owned()));
        });
        // Raft answers in order: when this is answered, the entry is on disk here.
        if raft.with_raft_state(|_| ()).await.is_err() {
            return;
        }
    }
}

/// What waits, and is still waited for.
fn collect(first: Waiting, queue: &mut mpsc::Receiver<Waiting>) -> (Vec<WriteCommand>, Vec<Told>) {
    let (mut commands, mut told) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    let mut next = Some(first);
    while let Some(waiting) = next {
        if !waiting.told.outcome.is_closed() {
            bytes += waiting.command.operation.size();
            commands.push(waiting.command);
            told.push(waiting.told);
        }
        let is_full = commands.len() >= MAX_WRITES || bytes >= MAX_BYTES;
        next = if is_full { None } else { queue.recv().now_or_never().flatten() };
    }
    (commands, told)
}

fn tell(told: Vec<Told>, result: Result<ClientWriteResult<Kv>, String>) {
    let lost = match result {
        Ok(Ok(written)) => {
            for (told, outcome) in told.into_iter().zip(written.data.0) {
                let _ = told.outcome.send(Ok(outcome));
            }
            return;
        }
        // A deposed leader says this of writes that may still be committed.
        Ok(Err(ClientWriteError::ForwardToLeader(forward))) => {
            format!("leadership was lost; now {:?}", forward.leader_id)
        }
        Ok(Err(error)) => error.to_string(),
        Err(lost) => lost,
    };
    for told in told {
        let _ = told.outcome.send(Err(NotWritten::Lost(lost.clone())));
    }
}
