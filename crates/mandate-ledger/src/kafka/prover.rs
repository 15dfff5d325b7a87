//! Renewals while a join waits: over connections of their own.
//!
//! In the classic protocol the coordinator answers a join when everyone has joined, which takes up to a session after a
//! member has died, and it answers one request of a connection at a time. The commits of a member that joins wait behind that. So
//! every join made leaders lapse of partitions that did not move, and a standby that was replaced stopped a healthy leader.
//!
//! A transactional producer has connections of its own, and the offsets that it commits carry a member id and a generation
//! (KIP-447), which the coordinator checks like those of any commit. A renewal that is not answered soon is therefore made once
//! more here. What it commits as whom is noted when partitions are assigned, so a client that comes back as another cannot prove
//! anything for the member that it was.
//!
//! Rejected: all renewals this way (four requests and five records instead of one of each); a second consumer (another member,
//! and another assignment); a threshold longer than a session and a join (whoever comes after a crash waits for it).
//!
//! It needs `Write` and `Describe` on transactional ids that begin with `mandate-`. Where that is not granted, or a cluster has
//! no transactions, renewals wait behind joins, and the log says so once.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use mandate_proto::neli::{Renewed, RequestId};
use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, Producer};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::KafkaConfig;
use super::context::{Context, Happened};

/// One under way, and one that waits.
const WAITING: usize = 1;

/// How long a producer that could not begin is left alone.
const PAUSE: Duration = Duration::from_secs(30);

/// A renewal to make here.
pub(super) struct Proof {
    pub(super) id: RequestId,
    pub(super) list: TopicPartitionList,
    /// Member and generation when partitions were assigned.
    pub(super) membership: Arc<ConsumerGroupMetadata>,
}

#[derive(Debug)]
pub(super) struct Prover {
    jobs: SyncSender<Proof>,
}

impl Prover {
    /// Its thread ends when this is dropped, once nothing is under way.
    pub(super) fn start(config: &KafkaConfig, context: Arc<Context>) -> std::io::Result<Self> {
        let (jobs, received) = sync_channel(WAITING);
        let config = config.clone();
        let thread = std::thread::Builder::new().name("mandate-proofs".into());
        thread.spawn(move || work(&config, &context, &received))?;
        Ok(Prover { jobs })
    }

    /// False if too many wait.
    pub(super) fn prove(&self, proof: Proof) -> bool {
        self.jobs.try_send(proof).is_ok()
    }
}

fn work(config: &KafkaConfig, context: &Context, jobs: &Receiver<Proof>) {
    let patience = config.session.max(Duration::from_secs(1));
    let mut has_complained = false;
    loop {
        let producer = match begin(config, patience) {
            Ok(producer) => producer,
            Err(error) => {
                if !std::mem::replace(&mut has_complained, true) {
                    tracing::warn!(
                        %error,
                        "cannot renew while members join, so leaders may lapse when a member is replaced: allow Write and \
                         Describe on transactional ids that begin with mandate-, and see that the cluster has transactions"
                    );
                }
                match jobs.recv_timeout(PAUSE) {
                    Err(RecvTimeoutError::Disconnected) => return,
                    Ok(_) | Err(RecvTimeoutError::Timeout) => continue,
                }
            }
        };
        loop {
            let Ok(first) = jobs.recv() else { return };
            let proof = jobs.try_iter().last().unwrap_or(first);
            let (id, proved) = (proof.id, prove(&producer, proof, patience));
            let outcome = match &proved {
                Ok(()) => Renewed::Accepted,
                Err(error) => refusal(error),
            };
            context.push(Happened::Proved(id, outcome));
            if let Err(error) = proved {
                tracing::debug!(%error, "a renewal beside a join was not taken");
                if producer.abort_transaction(patience).is_err() {
                    // It can do nothing more.
                    break;
                }
            }
        }
    }
}

fn begin(config: &KafkaConfig, patience: Duration) -> KafkaResult<BaseProducer> {
    // Nobody else's: two with the same id would fence each other.
    let number = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
    let id = format!("mandate-{}-{number:016x}", config.group);
    let producer: BaseProducer = config.prover(&id).create()?;
    producer.init_transactions(patience)?;
    Ok(producer)
}

fn prove(producer: &BaseProducer, proof: Proof, patience: Duration) -> KafkaResult<()> {
    producer.begin_transaction()?;
    producer.send_offsets_to_transaction(&proof.list, &proof.membership, patience)?;
    // With it the marks are kept.
    producer.commit_transaction(patience)
}

/// Whether the coordinator does not know this member any more; or a commit may yet be answered in the usual way.
fn refusal(error: &KafkaError) -> Renewed {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::UnknownMemberId | RDKafkaErrorCode::FencedInstanceId) => {
            Renewed::Refused
        }
        _ => Renewed::Failed,
    }
}
