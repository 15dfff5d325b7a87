//! Sends a snapshot to a follower, with several pieces under way.
//!
//! openraft 0.9 sends a piece and waits for its answer before it sends the next: a piece for each round trip, 12 MB a
//! second over 77 ms, on a link that carries 200. Here so many are under way as a long, fast link holds. They have a
//! connection of their own, so Raft's messages do not wait behind them, and arrive in their order. The first answer
//! that is no success ends the transfer; openraft begins it again.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use openraft::error::{Fatal, NetworkError, StreamingError, Unreachable};
use openraft::raft::SnapshotResponse;
use openraft::{Snapshot, StorageError, StorageIOError, Vote};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::link::Answer;
use super::types::Kv;
use super::wire::{Piece, Reply, Request};

/// Bytes of a piece.
const PIECE: usize = 1 << 20;

/// Pieces under way: a gigabit a second over 130 ms.
pub(super) const WINDOW: usize = 16;

type Failed = StreamingError<Kv, Fatal<u64>>;

/// Sends it, and waits until it is installed or refused because of a higher vote. `ask` sends a piece and returns where
/// its answer comes.
pub(super) async fn send<A>(
    ask: impl Fn(Request) -> A,
    vote: Vote<u64>,
    snapshot: Snapshot<Kv>,
) -> Result<SnapshotResponse<u64>, Failed>
where
    A: Future<Output = io::Result<Answer>>,
{
    let Snapshot { meta, snapshot: mut file } = snapshot;
    file.rewind().await.map_err(unreadable)?;
    let size = file.metadata().await.map_err(unreadable)?.len();
    let mut under_way: VecDeque<Answer> = VecDeque::new();
    let mut offset = 0;
    loop {
        let data = read(&mut file).await.map_err(unreadable)?;
        let next = offset + data.len() as u64;
        if data.is_empty() && offset < size {
            return Err(unreadable(io::ErrorKind::UnexpectedEof.into()));
        }
        let done = next >= size;
        let piece = Piece { vote, meta: meta.clone(), offset, data, done };
        under_way.push_back(ask(Request::Piece(Box::new(piece))).await.map_err(failed)?);
        offset = next;
        while under_way.len() >= WINDOW || done {
            let Some(answer) = under_way.pop_front() else { break };
            let installed = done && under_way.is_empty();
            let response = match answer.await.map_err(failed)? {
                Reply::Piece(response) => response,
                Reply::OtherSnapshot => {
                    return Err(failed(io::Error::other("the follower is receiving another")));
                }
                other => return Err(failed(other.unexpected())),
            };
            if response.vote > vote || installed {
                return Ok(SnapshotResponse::new(response.vote));
            }
        }
    }
}

/// As much as a piece holds, or less at the end.
async fn read(file: &mut File) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(PIECE);
    file.take(PIECE as u64).read_to_end(&mut piece).await?;
    Ok(piece.into())
}

fn unreadable(error: io::Error) -> Failed {
    StreamingError::StorageError(StorageError::from(StorageIOError::read_snapshot(None, &error)))
}

fn failed(error: io::Error) -> Failed {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut => {
            StreamingError::Unreachable(Unreachable::new(&error))
        }
        _ => StreamingError::Network(NetworkError::new(&error)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    use openraft::SnapshotMeta;
    use openraft::raft::InstallSnapshotResponse;
    use tokio::time::{Instant, sleep};

    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    async fn snapshot(bytes: &[u8]) -> Snapshot<Kv> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("snapshot");
        tokio::fs::write(&path, bytes).await.unwrap();
        let snapshot = Box::new(File::open(&path).await.unwrap());
        Snapshot { meta: SnapshotMeta::default(), snapshot }
    }

    #[derive(Default)]
    struct Follower {
        received: RefCell<Vec<u8>>,
        under_way: Cell<usize>,
        most: Cell<usize>,
    }

    /// Sends so many bytes to a follower that answers a round trip later, with this vote after so many pieces.
    async fn run(
        bytes: usize,
        deposes_at: usize,
    ) -> (&'static Follower, Result<SnapshotResponse<u64>, Failed>, Duration) {
        // Answers may come from any incarnation.
        let follower: &'static Follower = Box::leak(Box::default());
        let whole: Vec<u8> = (0..bytes).map(|byte| (byte / 7) as u8).collect();
        let snapshot = snapshot(&whole).await;
        let (vote, higher) = (Vote::new_committed(3, 1), Vote::new(4, 2));
        let began = Instant::now();
        let local = tokio::task::LocalSet::new();
        let sent = local.run_until(async {
            let ask = |request| async move {
                let Request::Piece(piece) = request else { unreachable!("nothing else is sent") };
                let number = piece.offset as usize / PIECE;
                assert_eq!(piece.offset as usize, follower.received.borrow().len(), "in order");
                follower.received.borrow_mut().extend_from_slice(&piece.data);
                follower.under_way.set(follower.under_way.get() + 1);
                follower.most.set(follower.most.get().max(follower.under_way.get()));
                let arrives = Instant::now() + ROUND_TRIP;
                let (told, answer) = tokio::sync::oneshot::channel();
                tokio::task::spawn_local(async move {
                    tokio::time::sleep_until(arrives).await;
                    follower.under_way.set(follower.under_way.get() - 1);
                    let vote = if number >= deposes_at { higher } else { vote };
                    let _ = told.send(Reply::Piece(InstallSnapshotResponse { vote }));
                });
                let answer: Answer =
                    Box::pin(async move { answer.await.map_err(io::Error::other) });
                Ok(answer)
            };
            send(ask, vote, snapshot).await
        });
        let sent = sent.await;
        (follower, sent, began.elapsed())
    }

    /// Time is the test's, so the figure is exact: 40 pieces, 16 in a round trip, and the answer to the last.
    #[tokio::test(start_paused = true)]
    async fn pieces_are_under_way_together_and_arrive_in_order() {
        let (follower, sent, took) = run(40 * PIECE - 5, usize::MAX).await;
        sent.unwrap();
        assert_eq!(follower.received.borrow().len(), 40 * PIECE - 5);
        assert_eq!(follower.most.get(), WINDOW);
        assert!(took < 4 * ROUND_TRIP, "{took:?}, one at a time takes 4 s");
        sleep(Duration::ZERO).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_snapshot_is_one_piece_and_a_higher_vote_ends_a_transfer() {
        let (_, sent, _) = run(0, usize::MAX).await;
        assert_eq!(sent.unwrap().vote, Vote::new_committed(3, 1));
        let (follower, sent, _) = run(40 * PIECE, 2).await;
        assert_eq!(sent.unwrap().vote, Vote::new(4, 2));
        assert!(follower.received.borrow().len() < 40 * PIECE, "it is not sent to the end");
    }
}
