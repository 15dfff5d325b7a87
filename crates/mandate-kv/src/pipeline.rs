//! Sends a follower what is appended, without waiting for its answers.
//!
//! openraft 0.9 has one message to each follower under way at a time. Whatever is appended meanwhile waits for its
//! answer, and every commit that is passed on is such a message, too: over a link of 50 ms a write takes two to three
//! round trips instead of one. So a pipeline goes ahead of openraft: it sends entries as soon as they are in the
//! log, and keeps how far the follower has acknowledged. When openraft comes to send the same entries, it is told
//! what is known of them, and nothing is sent twice.
//!
//! Nothing of Raft changes. A message of a pipeline is one that the leader could have sent itself: it has the leader's
//! vote, entries which that leader has appended in that very term and nobody else's, and the entry before them. It
//! begins where the follower has acknowledged the entry before one of that term, and ends with the first answer that is no
//! success, with the connection, with the first entry of another leader, and with what is no longer in memory;
//! openraft goes on as if it had never been.
//!
//! A follower forces each message to disk before it takes the next, so messages are as far apart as it takes for
//! one, by its own account: what comes in between goes together. On a slow disk that makes few large messages, on a
//! long link many small ones.

use std::collections::VecDeque;
use std::time::Duration;

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse};
use openraft::{LogId, Vote};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::link::{Answer, Link};
use super::log::{Log, is_of};
use super::types::{Kv, bytes_of};
use super::wire::{Reply, Request};

/// Messages under way to one follower at most,
const WINDOW: usize = 128;

/// and bytes of entries in one of them, or one entry,
const MAX_MESSAGE: usize = 256 << 10;

/// and in all of them, or one message.
const MAX_UNDER_WAY: usize = 16 << 20;

/// A follower is told of commits that no entries come along with at most this long after the last message.
const COMMIT_WAITS: Duration = Duration::from_millis(10);

/// A follower that has answered since then need not be asked whether it is there: its last answer stands in for the one to
/// a heartbeat of Raft's. So Raft takes a follower for heard that was silent for up to this long, and a leader that has
/// lost its quorum notices that as much later. Half a heartbeat on a LAN (200 ms), a tenth far away. Reads do not rest on it:
/// openraft asks the quorum of a read over a `Peer` of its own, which has no pipeline.
const FRESH: Duration = Duration::from_millis(100);

/// Messages are no farther apart, whatever the follower says.
const MAX_PACE: Duration = Duration::from_millis(50);

/// How far a follower is.
#[derive(Clone, Copy, Debug)]
struct Progress {
    acknowledged: LogId<u64>,
    heard: Instant,
}

/// Goes ahead of openraft to one follower, in one term. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Pipeline {
    vote: Vote<u64>,
    progress: watch::Receiver<Progress>,
    committed: watch::Sender<Option<LogId<u64>>>,
    task: JoinHandle<()>,
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pipeline {
    /// Begins where a follower has acknowledged an entry.
    pub(crate) fn start(
        link: Link,
        log: Log,
        vote: Vote<u64>,
        acknowledged: LogId<u64>,
        trusts_sending: bool,
    ) -> Self {
        let (told, progress) = watch::channel(Progress { acknowledged, heard: Instant::now() });
        let (committed, commits) = watch::channel(None);
        let stream = Stream {
            link,
            vote,
            log,
            sent: acknowledged,
            under_way: VecDeque::new(),
            told,
            commits,
            commit_sent: None,
            pace: Duration::ZERO,
            not_before: Instant::now(),
            trusts_sending,
        };
        Pipeline { vote, progress, committed, task: tokio::spawn(stream.run()) }
    }

    /// What the follower says to a message of openraft's, if that is known or comes to be; `None` if the message has
    /// to be sent.
    pub(crate) async fn stand_in(
        &mut self,
        message: &AppendEntriesRequest<Kv>,
    ) -> Option<AppendEntriesResponse<u64>> {
        if message.vote != self.vote || self.task.is_finished() {
            return None;
        }
        self.committed.send_if_modified(|known| {
            let is_new = message.leader_commit > *known;
            *known = message.leader_commit.max(*known);
            is_new
        });
        let (Some(first), Some(last)) = (message.entries.first(), message.entries.last()) else {
            let Progress { acknowledged, heard } = *self.progress.borrow();
            let known = message.prev_log_id <= Some(acknowledged) && heard.elapsed() < FRESH;
            return known.then_some(AppendEntriesResponse::Success);
        };
        // As soon as something of it is known: openraft comes back for the rest.
        let some = self.progress.wait_for(|it| it.acknowledged >= first.log_id).await.ok()?;
        Some(match some.acknowledged >= last.log_id {
            true => AppendEntriesResponse::Success,
            false => AppendEntriesResponse::PartialSuccess(Some(some.acknowledged)),
        })
    }
}

/// A message under way.
struct Sent {
    answer: Answer,
    /// The last entry that the follower has if it takes it.
    upto: LogId<u64>,
    /// Of keys and values.
    bytes: usize,
}

struct Stream {
    link: Link,
    log: Log,
    vote: Vote<u64>,
    sent: LogId<u64>,
    under_way: VecDeque<Sent>,
    told: watch::Sender<Progress>,
    commits: watch::Receiver<Option<LogId<u64>>>,
    commit_sent: Option<LogId<u64>>,
    /// Time between messages.
    pace: Duration,
    not_before: Instant,
    /// A bug put back: what was sent counts as acknowledged.
    trusts_sending: bool,
}

impl Stream {
    async fn run(mut self) {
        let mut appended = self.log.appended();
        loop {
            appended.mark_unchanged();
            let has_entries = self.log.last_recent().is_some_and(|last| last > self.sent.index);
            let has_commit = *self.commits.borrow_and_update() > self.commit_sent;
            let bytes: usize = self.under_way.iter().map(|sent| sent.bytes).sum();
            let has_room = self.under_way.len() < WINDOW && bytes < MAX_UNDER_WAY;
            let due = match has_entries {
                true => self.not_before,
                false => self.not_before + COMMIT_WAITS,
            };
            tokio::select! {
                biased;
                reply = answer(&mut self.under_way) => match reply {
                    Some((upto, took)) => self.acknowledged(upto, took),
                    None => return,
                },
                () = sleep_until(due), if has_room && (has_entries || has_commit) => {
                    if self.send().await.is_none() {
                        return;
                    }
                }
                more = appended.changed(), if has_room && !has_entries => if more.is_err() { return },
                more = self.commits.changed(), if has_room && !has_entries && !has_commit => {
                    if more.is_err() { return }
                }
            }
        }
    }

    fn acknowledged(&mut self, upto: LogId<u64>, took: Duration) {
        self.pace = ((self.pace * 3 + took) / 4).min(MAX_PACE);
        let progress = Progress { acknowledged: upto, heard: Instant::now() };
        self.told.send_replace(progress);
    }

    /// Sends what there is; `None` if it is not for this leader to send, or cannot be sent.
    async fn send(&mut self) -> Option<()> {
        let entries = self.log.recent(self.sent.index + 1, MAX_MESSAGE)?;
        if !entries.iter().all(|entry| is_of(entry.log_id, &self.vote)) {
            return None;
        }
        let upto = entries.last().map_or(self.sent, |entry| entry.log_id);
        let bytes = entries.iter().map(bytes_of).sum();
        let committed = *self.commits.borrow();
        let message = AppendEntriesRequest {
            vote: self.vote,
            prev_log_id: Some(self.sent),
            entries,
            leader_commit: committed,
        };
        let answer = self.link.send(Request::Append(message)).await.ok()?;
        (self.sent, self.commit_sent) = (upto, committed);
        self.not_before = Instant::now() + self.pace;
        self.under_way.push_back(Sent { answer, upto, bytes });
        if self.trusts_sending {
            self.acknowledged(upto, Duration::ZERO);
        }
        Some(())
    }
}

/// The next answer: how far the follower is, and how long it took for the message by its own account. `None` if it
/// was no success. Never returns if nothing is under way.
async fn answer(under_way: &mut VecDeque<Sent>) -> Option<(LogId<u64>, Duration)> {
    let Some(first) = under_way.front_mut() else { return std::future::pending().await };
    let reply = (&mut first.answer).await;
    let upto = first.upto;
    under_way.pop_front();
    match reply {
        Ok(Reply::Append { response: AppendEntriesResponse::Success, took_us, .. }) => {
            Some((upto, Duration::from_micros(took_us.into())))
        }
        _ => None,
    }
}
