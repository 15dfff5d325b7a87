//! Writes that wait together go into one entry of the log.
//!
//! openraft 0.9 forces each entry to disk before it looks at the next write. With an entry for each write a member
//! would carry out as many writes a second as its disk can force; so whatever has come while the last entry was
//! forced goes into the next together. One that comes alone goes alone, and at once. Followers get many entries in a
//! message, and force them together anyway.

use futures_util::FutureExt;
use openraft::Raft;
use openraft::error::ClientWriteError;
use openraft::raft::ClientWriteResult;
use tokio::sync::{mpsc, oneshot};

use super::types::{Batch, Command, Kv, Outcome};
use crate::driver::Gate;

/// Writes that wait; then whoever has more waits.
const QUEUE: usize = 4096;

/// Writes in one entry at most,
const MAX_WRITES: usize = 512;

/// and bytes, if it is more than one write.
const MAX_BYTES: usize = 1 << 20;

/// Why a write may have been carried out or not.
#[derive(Clone, Debug)]
pub(crate) struct Lost(pub(crate) String);

/// A write, and where its outcome goes.
struct Waiting {
    command: Command,
    told: oneshot::Sender<Result<Outcome, Lost>>,
}

/// Takes writes, at the member that leads.
#[derive(Clone, Debug)]
pub(crate) struct Batcher {
    waiting: mpsc::Sender<Waiting>,
}

impl Batcher {
    /// Starts it; it ends when nobody can give it writes any more.
    pub(crate) fn start(raft: Raft<Kv>, gate: Gate) -> Self {
        let (waiting, queue) = mpsc::channel(QUEUE);
        tokio::spawn(run(raft, gate, queue));
        Batcher { waiting }
    }

    /// Has a write carried out, if this member leads. Dropped before it returns, it may be or not.
    pub(crate) async fn write(&self, command: Command) -> Result<Outcome, Lost> {
        let (told, outcome) = oneshot::channel();
        let stopped = || Lost("this member has stopped".into());
        self.waiting.send(Waiting { command, told }).await.map_err(|_| stopped())?;
        outcome.await.map_err(|_| stopped())?
    }
}

async fn run(raft: Raft<Kv>, gate: Gate, mut queue: mpsc::Receiver<Waiting>) {
    while let Some(first) = queue.recv().await {
        let pass = gate.enter().await;
        let (commands, told) = collect(first, &mut queue);
        let Ok(written) = raft.client_write_ff(Batch { commands }).await else { return };
        tokio::spawn(async move {
            let result = written.await;
            drop(pass);
            tell(told, result.map_err(|_| Lost("Raft has stopped".into())));
        });
        // Raft answers in order: when this is answered, the entry is on disk here.
        if raft.with_raft_state(|_| ()).await.is_err() {
            return;
        }
    }
}

type Told = Vec<oneshot::Sender<Result<Outcome, Lost>>>;

/// What waits, and is still waited for.
fn collect(first: Waiting, queue: &mut mpsc::Receiver<Waiting>) -> (Vec<Command>, Told) {
    let (mut commands, mut told) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    let mut next = Some(first);
    while let Some(waiting) = next {
        if !waiting.told.is_closed() {
            bytes += waiting.command.operation.size();
            commands.push(waiting.command);
            told.push(waiting.told);
        }
        let is_full = commands.len() >= MAX_WRITES || bytes >= MAX_BYTES;
        next = if is_full { None } else { queue.recv().now_or_never().flatten() };
    }
    (commands, told)
}

fn tell(told: Told, result: Result<ClientWriteResult<Kv>, Lost>) {
    let lost = match result {
        Ok(Ok(written)) => {
            for (told, outcome) in told.into_iter().zip(written.data.0) {
                let _ = told.send(Ok(outcome));
            }
            return;
        }
        // Whoever was deposed says this of writes that may still be committed.
        Ok(Err(ClientWriteError::ForwardToLeader(forward))) => {
            Lost(format!("leadership was lost; now {:?}", forward.leader_id))
        }
        Ok(Err(error)) => Lost(error.to_string()),
        Err(lost) => lost,
    };
    for told in told {
        let _ = told.send(Err(lost.clone()));
    }
}
