//! Renewals: commits, one at a time, on a thread of their own.
//!
//! A commit whose caller does not wait would be the thing, but the client's events do not say what became of one.
//! So a thread waits. A coordinator that is out of reach can make it wait for long; the member gives a renewal up
//! long before that, and of those that have come meanwhile only the newest is worth sending.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use mandate_proto::neli::{Renewed, RequestId};
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::topic_partition_list::TopicPartitionList;

use super::context::{Context, Happened};

/// Renewals that may wait: one is given up before the next is made, so that more says that nothing moves.
const WAITING: usize = 4;

type Job = (RequestId, TopicPartitionList);

#[derive(Debug)]
pub(super) struct Committer {
    jobs: SyncSender<Job>,
    thread: JoinHandle<()>,
}

impl Committer {
    pub(super) fn start(consumer: Arc<StreamConsumer<Context>>) -> std::io::Result<Self> {
        let (jobs, received) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("mandate-renewals".into());
        let thread = thread.spawn(move || work(&consumer, &received))?;
        Ok(Committer { jobs, thread })
    }

    /// Waits until nothing is under way. The thread has a share in the client: the thread that drops the last one waits for the client to
    /// leave the group, and that has to be someone for whom the process waits.
    pub(super) fn end(self) {
        drop(self.jobs);
        // If it panicked, it has no share any more.
        let _ = self.thread.join();
    }

    /// False if too many wait.
    pub(super) fn commit(&self, id: RequestId, list: TopicPartitionList) -> bool {
        self.jobs.try_send((id, list)).is_ok()
    }
}

fn work(consumer: &StreamConsumer<Context>, jobs: &Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let (id, list) = jobs.try_iter().last().unwrap_or(first);
        let outcome = match consumer.commit(&list, CommitMode::Sync) {
            Ok(()) => Renewed::Accepted,
            Err(error) => match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::UnknownMemberId | RDKafkaErrorCode::FencedInstanceId) => {
                    Renewed::Refused
                }
                // A generation that has gone on may be one of which the client has not heard yet.
                code => {
                    tracing::debug!(?code, "a renewal was not taken");
                    Renewed::Failed
                }
            },
        };
        consumer.context().push(Happened::Committed(id, outcome));
    }
}
