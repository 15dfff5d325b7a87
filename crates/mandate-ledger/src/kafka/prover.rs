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
//! Two things would have a coordinator take the commit of a member that it has replaced, and two leaders would follow:
//!
//! - **A broker older than 2.5.** The client then sends neither member nor generation, and says nothing. So every broker has to show
//!   that it is newer, by a setting that only newer ones have; otherwise nothing is proved here. A broker is asked again whenever a
//!   producer begins.
//! - **A client that was nobody when partitions were assigned**: without a member id and a generation the coordinator takes a
//!   commit in a transaction for one of a program that is in no group. So the [membership](super::membership) that was noted then counts
//!   once a plain commit has been accepted under it.
//!
//! What is committed here may be visible to others only after the transaction's marker was written, which is after the commit
//! was acknowledged. Members therefore lead only after a look that shows their own mark (`mandate_proto::neli`, rule 14).
//!
//! Rejected: all renewals this way (four requests and five records instead of one of each); a second consumer (another member,
//! and another assignment); a threshold longer than a session and a join (the next leader waits for it after a crash).
//!
//! It needs `Write` and `Describe` on transactional ids that begin with `mandate-`, and `DescribeConfigs` on the cluster. Where that is
//! not granted, or a cluster has no transactions or is too old, renewals wait behind joins, and the log says so once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use mandate_proto::neli::{Renewed, RequestId};
use rdkafka::admin::ResourceSpecifier;
use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, Producer};
use rdkafka::topic_partition_list::TopicPartitionList;
use tokio::runtime::Handle;

use super::KafkaConfig;
use super::broker::{admin, describe};
use super::context::{Context, Happened};

/// One under way, and one that waits.
const WAITING: usize = 1;

/// How long a producer that could not begin is left alone.
const PAUSE: Duration = Duration::from_secs(30);

/// Settings of brokers that check the member and the generation of offsets in a transaction, which they do since 2.5. None of them
/// has been there for so long: connections have a rate limit since 2.7, transactions are verified since 3.6, and
/// group protocols can be chosen since 3.7.
const NEWER: [&str; 3] = [
    "max.connection.creation.rate",
    "transaction.partition.verification.enable",
    "group.coordinator.rebalance.protocols",
];

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
        let (config, runtime) = (config.clone(), Handle::current());
        let thread = std::thread::Builder::new().name("mandate-proofs".into());
        thread.spawn(move || work(&config, &runtime, &context, &received))?;
        Ok(Prover { jobs })
    }

    /// False if too many wait.
    pub(super) fn prove(&self, proof: Proof) -> bool {
        self.jobs.try_send(proof).is_ok()
    }
}

fn work(config: &KafkaConfig, runtime: &Handle, context: &Context, jobs: &Receiver<Proof>) {
    let patience = config.session.max(Duration::from_secs(1));
    let mut has_complained = false;
    loop {
        let producer = match begin(config, runtime, patience) {
            Ok(producer) => producer,
            Err(reason) => {
                if !std::mem::replace(&mut has_complained, true) {
                    tracing::warn!(
                        "cannot renew while members join, so leaders may lapse when a member is replaced: {reason}"
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

/// A producer that may prove something; or why there is none, and what to do.
fn begin(
    config: &KafkaConfig,
    runtime: &Handle,
    patience: Duration,
) -> Result<BaseProducer, String> {
    // Nobody else's: two with the same id would fence each other.
    let number = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
    let id = format!("mandate-{}-{number:016x}", config.group);
    let failed = |error: KafkaError| {
        format!(
            "{error}. Allow Write and Describe on transactional ids that begin with mandate-, and see that the cluster has \
             transactions"
        )
    };
    let producer: BaseProducer = config.prover(&id).create().map_err(failed)?;
    check_brokers(config, runtime, &producer, patience)?;
    producer.init_transactions(patience).map_err(failed)?;
    Ok(producer)
}

/// Any broker may become the group's coordinator: each has to show that it is new enough.
fn check_brokers(
    config: &KafkaConfig,
    runtime: &Handle,
    producer: &BaseProducer,
    patience: Duration,
) -> Result<(), String> {
    let metadata = producer.client().fetch_metadata(Some(&config.topic), patience);
    let metadata = metadata.map_err(|error| error.to_string())?;
    let admin = admin(config).map_err(|error| error.to_string())?;
    for broker in metadata.brokers() {
        let described = runtime.block_on(describe(&admin, ResourceSpecifier::Broker(broker.id())));
        let settings = described.map_err(|error| error.to_string())?;
        check_version(broker.id(), settings.as_ref())?;
    }
    Ok(())
}

fn check_version(broker: i32, settings: Option<&HashMap<String, String>>) -> Result<(), String> {
    match settings {
        Some(settings) if NEWER.iter().any(|name| settings.contains_key(*name)) => Ok(()),
        Some(_) => Err(format!(
            "broker {broker} does not show that it checks members in transactions, as Kafka does since 2.5 and shows since 2.7. \
             Use newer brokers"
        )),
        None => Err(format!(
            "broker {broker} does not tell how new it is. Allow DescribeConfigs on the cluster"
        )),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str]) -> Result<(), String> {
        let settings = names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
        check_version(3, Some(&settings))
    }

    /// The client of an older one commits without member and generation, and a member that was replaced would be believed.
    #[test]
    fn nothing_is_proved_by_a_broker_that_does_not_show_that_it_is_new_enough() {
        let kafka_2_4 = ["offsets.topic.replication.factor", "max.connections", "broker.id"];
        let refused = check(&kafka_2_4).unwrap_err();
        assert!(refused.contains("broker 3") && refused.contains("2.5"), "{refused}");
        for name in NEWER {
            assert_eq!(check(&["broker.id", name]), Ok(()));
        }
        let refused = check_version(1, None).unwrap_err();
        assert!(refused.contains("DescribeConfigs on the cluster"), "{refused}");
    }
}
