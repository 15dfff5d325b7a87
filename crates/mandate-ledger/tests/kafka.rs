//! Roles on a private Apache Kafka, tuned, untuned and under faults. What a broker of your own can show is in `client.rs`.

mod behaviour;
mod opening;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use behaviour::{is_divided, lapses_and_leads_again, member, shows_what_is_promised, until};
use mandate_ledger::LedgerError;
use mandate_ledger::kafka::groups::{Group, PartitionShown};
use mandate_ledger::kafka::{KafkaConfig, KafkaLedger};
use mandate_proto::election::RoleId;
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Mark, Mode};
use mandate_servers::Server;
use mandate_servers::kafka::{Kafka, KafkaServerConfig as ServerConfig};
use opening::open;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::time::sleep;

const BOUND: Duration = Duration::from_secs(120);

/// A topic of its own for each test.
fn config(brokers: &str, session: Duration) -> KafkaConfig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let topic = format!("roles-{}-{number}", std::process::id());
    let partitions = NonZeroU32::new(4).unwrap();
    KafkaConfig::new(brokers, &topic, &topic, partitions).with_session(session)
}

/// One server for every test that injects no fault into it.
#[tokio::test(flavor = "multi_thread")]
async fn roles_on_a_tuned_kafka() {
    let mut server = Kafka::launch(&ServerConfig::TUNED).expect("Kafka starts");
    let brokers = server.brokers();
    // Short for Kafka, and long for a host on which much else is done.
    let session = Duration::from_millis(1500);

    // Lapses are not excused there: sessions in which a busy host keeps no renewal from coming in time.
    let long = Duration::from_secs(6);
    shows_what_is_promised(&open(config(&brokers, long)).await, BOUND).await;
    a_member_that_is_gone_is_replaced(&brokers, session).await;
    topics_are_checked(&brokers, session).await;
    non_exclusive_roles_overlap(&brokers, long).await;
    what_is_fatal_ends_a_member_and_says_so(&brokers, session).await;
    members_of_an_expanded_topic_do_not_lead_beside_each_other(&brokers, long).await;
    what_leads_is_shown_without_claims(&brokers, long).await;
    let ledger = open(config(&brokers, long)).await;
    lapses_and_leads_again(&ledger, BOUND, async || {
        server.nodes()[0].freeze().expect("it is frozen");
        sleep(Duration::from_millis(3200)).await;
        server.nodes()[0].resume().expect("it goes on");
    })
    .await;
}

/// Another process goes by its static name: the broker has fenced it, and nothing that it could do would help. (That a
/// broker is gone for a while is not fatal: see below.)
async fn what_is_fatal_ends_a_member_and_says_so(brokers: &str, session: Duration) {
    let config = KafkaConfig { instance: Some("the one".into()), ..config(brokers, session) };
    let ledger = open(config).await;
    let first = member(&ledger, Mode::Exclusive, 4);
    until("it leads", BOUND, || first.owned().len() == 4).await;
    let second = member(&ledger, Mode::Exclusive, 4);
    until("the first has ended", BOUND, || first.ended().is_some()).await;
    let reason = first.ended().unwrap();
    assert!(reason.contains("for good"), "{reason}");
    assert!(first.owned().is_empty());
    until("the second leads", BOUND, || second.owned().len() == 4).await;
    assert!(second.ended().is_none());
    second.shutdown().await;
}

/// What another program may do to a topic.
fn admin(brokers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers).create().expect("a client")
}

async fn members_of_an_expanded_topic_do_not_lead_beside_each_other(
    brokers: &str,
    session: Duration,
) {
    let two = NonZeroU32::new(2).unwrap();
    let config = KafkaConfig { partitions: two, ..config(brokers, session) };
    let first = member(&open(config.clone()).await, Mode::Exclusive, 4);
    until("it leads", BOUND, || first.owned().len() == 4).await;
    let more = NewPartitions::new(&config.topic, 4);
    let made = admin(brokers).create_partitions([&more], &AdminOptions::new()).await;
    assert!(made.expect("it is asked")[0].is_ok());
    until("it sees that", BOUND, || first.standing().other_size == Some(4)).await;
    let config = KafkaConfig { takes_any_partitions: true, ..config };
    let second = member(&open(config).await, Mode::Exclusive, 4);
    assert_eq!(second.layout().partitions(), 4);
    let both = |role| first.is_leader(role) && second.is_leader(role);
    until("the newcomer says why", BOUND, || {
        assert!(!(0..4).map(RoleId::new).any(both), "two lead one role");
        second.standing().disagrees_with.is_some()
    })
    .await;
    assert_eq!(second.standing().disagrees_with.map(|theirs| theirs.partitions), Some(2));
    assert!(second.owned().is_empty());
    first.shutdown().await;
    until("the second leads", BOUND, || second.owned().len() == 4).await;
    second.shutdown().await;
}

/// After its retention a claim is gone, and the member that made it leads on.
async fn what_leads_is_shown_without_claims(brokers: &str, session: Duration) {
    for mode in [Mode::Exclusive, Mode::NonExclusive] {
        let config = config(brokers, session).with_mode(mode);
        let only = member(&open(config.clone()).await, mode, 4);
        until("it leads", BOUND, || only.owned().len() == 4).await;
        if mode == Mode::Exclusive {
            let admin = admin(brokers);
            let mut list = TopicPartitionList::new();
            list.add_partition_range(&config.topic, 0, 3);
            list.set_all_offsets(Offset::End).unwrap();
            admin.delete_records(&list, &AdminOptions::new()).await.expect("they are deleted");
        }
        let term = only.term(RoleId::new(3)).filter(|term| term.get() > 0);
        let began = Instant::now();
        loop {
            let group = Group::look(&config).await.expect("it is shown");
            let leads = |shown: &PartitionShown| match shown.mark {
                Some(Mark::Held { holder: Some(holder), .. }) => {
                    holder.leads && holder.member == MemberId::new(1)
                }
                _ => false,
            };
            if group.partitions.len() == 4 && group.partitions.iter().all(leads) {
                assert!(group.members.iter().any(|member| member.partitions.len() == 4));
                let Some(Mark::Held { term: shown, .. }) = group.partitions[3].mark else {
                    unreachable!("it leads")
                };
                assert_eq!(Some(shown).filter(|term| term.get() > 0), term);
                assert!(mode == Mode::NonExclusive || group.partitions[3].since_ms.is_none());
                break;
            }
            assert!(began.elapsed() < BOUND, "{group:?}");
            sleep(Duration::from_millis(100)).await;
        }
        only.shutdown().await;
    }
}

/// Dropped without a word: its process might as well have been killed.
async fn a_member_that_is_gone_is_replaced(brokers: &str, session: Duration) {
    let ledger = open(config(brokers, session)).await;
    let first = member(&ledger, Mode::Exclusive, 8);
    let second = member(&ledger, Mode::Exclusive, 8);
    until("two divide", BOUND, || is_divided(&[&first, &second]) && !second.owned().is_empty())
        .await;
    second.resign();
    until("the first leads everything", BOUND, || first.owned().len() == 8).await;
    until("who resigned comes back", BOUND, || {
        is_divided(&[&first, &second]) && !second.owned().is_empty()
    })
    .await;
    first.shutdown().await;
    second.shutdown().await;
}

async fn topics_are_checked(brokers: &str, session: Duration) {
    let first = config(brokers, session);
    open(first.clone()).await;
    let other = KafkaConfig { partitions: NonZeroU32::new(5).unwrap(), ..first.clone() };
    let refused = KafkaLedger::open(other).await.unwrap_err();
    assert!(refused.to_string().contains("has 4 partitions, not 5"), "{refused}");
    let none = KafkaConfig { create: None, ..config(brokers, session) };
    assert!(matches!(KafkaLedger::open(none).await, Err(LedgerError::NoTopic(_))));
    let short = config(brokers, Duration::from_millis(5));
    let refused = KafkaLedger::open(short).await.unwrap_err();
    assert!(refused.to_string().contains("group.min.session.timeout.ms"), "{refused}");
}

async fn non_exclusive_roles_overlap(brokers: &str, session: Duration) {
    let ledger = open(config(brokers, session).with_mode(Mode::NonExclusive)).await;
    let first = member(&ledger, Mode::NonExclusive, 4);
    until("the first leads everything", BOUND, || first.owned().len() == 4).await;
    let second = member(&ledger, Mode::NonExclusive, 4);
    let began = Instant::now();
    while second.owned().len() < 2 {
        let is_led = |role| first.is_leader(role) || second.is_leader(role);
        assert!((0..4).map(RoleId::new).all(is_led), "no gap while roles change hands");
        assert!(began.elapsed() < BOUND, "the second leads nothing");
        sleep(Duration::from_millis(1)).await;
    }
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untuned_kafka_refuses_short_sessions_and_serves_the_default_ones() {
    let mut server = Kafka::launch(&ServerConfig::UNTUNED).expect("Kafka starts");
    let brokers = server.brokers();
    let refused =
        KafkaLedger::open(config(&brokers, Duration::from_millis(600))).await.unwrap_err();
    assert!(refused.to_string().contains("from 6000 ms"), "{refused}");

    let ledger = open(config(&brokers, Duration::from_secs(6))).await;
    let only = member(&ledger, Mode::Exclusive, 4);
    until("it leads", BOUND, || only.owned().len() == 4).await;
    let term = only.term(RoleId::new(0)).unwrap();

    // Killed, and up again as it was: leadership may lapse, and comes back under a higher term or the same.
    let node = &mut server.nodes()[0];
    node.kill().expect("it is killed");
    node.start().expect("it starts again");
    until("it leads after that", BOUND, || only.owned().len() == 4).await;
    assert!(only.term(RoleId::new(0)).unwrap() >= term);

    // A broker that hangs does not hold up the end.
    server.nodes()[0].freeze().expect("it is frozen");
    tokio::time::timeout(BOUND, only.shutdown()).await.expect("it ends by itself");
    assert!(only.owned().is_empty());
}
