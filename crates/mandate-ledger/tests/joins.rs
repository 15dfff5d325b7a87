//! Joins disturb nobody: a partition that does not move keeps its leader and its term, whichever member comes, goes, or dies and is
//! replaced. On an Apache Kafka with its own defaults, in both group protocols. Lapses are counted, and none is excused.
//!
//! `MANDATE_JOINS=50` makes it 50 joins and 50 replacements of a standby in each protocol; what was counted is printed
//! (`--nocapture`).

// It uses some of it.
#[allow(dead_code)]
mod behaviour;
mod opening;

use std::io::{BufRead, BufReader};
use std::num::NonZeroU32;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use behaviour::{endings, is_divided, member, until};
use mandate_ledger::kafka::{KafkaConfig, MembershipProtocol};
use mandate_ledger::{Change, LedgerRoles};
use mandate_proto::election::RoleId;
use mandate_proto::identity::Term;
use mandate_proto::neli::{Mode, RoleLoss};
use mandate_servers::kafka::{Kafka, KafkaServerConfig as ServerConfig};
use opening::open;
use tokio::sync::broadcast::Receiver;

/// For hangs: in the consumer protocol a broker with Kafka's defaults is heard of every 5 s.
const BOUND: Duration = Duration::from_secs(180);

/// How long a standby may take to join: more than the session of the one that it replaces, in the classic protocol. In the
/// consumer protocol nobody waits for that one.
const JOINS_WITHIN: Duration = Duration::from_secs(12);

const BROKERS: &str = "MANDATE_LEDGER_STANDBY_OF";
const GROUP: &str = "MANDATE_LEDGER_STANDBY_IN";
const PROTOCOL: &str = "MANDATE_LEDGER_STANDBY_BY";

fn config(
    brokers: &str,
    group: &str,
    protocol: MembershipProtocol,
    partitions: u32,
) -> KafkaConfig {
    let partitions = NonZeroU32::new(partitions).unwrap();
    KafkaConfig::new(brokers, group, group, partitions).with_protocol(protocol)
}

/// Not a test by itself: a process that stands by, says when it is in the group, and is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_stands_by() {
    let Ok(brokers) = std::env::var(BROKERS) else { return };
    let protocol = match std::env::var(PROTOCOL).as_deref() {
        Ok("consumer") => MembershipProtocol::Consumer,
        _ => MembershipProtocol::Classic,
    };
    let group = std::env::var(GROUP).expect("a group");
    let ledger = open(config(&brokers, &group, protocol, 1)).await;
    let standby = member(&ledger, Mode::Exclusive, 1);
    // A member that is assigned nothing is not always told so: then it has had time enough to join.
    let began = Instant::now();
    while standby.standing().waits_for.is_some() && began.elapsed() < JOINS_WITHIN {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("\nin the group");
    // It ends with the process that started it.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(0);
}

/// A process; killed when this is dropped.
struct Standby(Child);

impl Standby {
    fn start(brokers: &str, group: &str, protocol: MembershipProtocol) -> Self {
        let by = if protocol == MembershipProtocol::Consumer { "consumer" } else { "classic" };
        let child = Command::new(std::env::current_exe().expect("a test has a file"))
            .args(["--exact", "a_standby_stands_by", "--nocapture"])
            .env(BROKERS, brokers)
            .env(GROUP, group)
            .env(PROTOCOL, by)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        Standby(child)
    }

    /// Waits until it is in the group.
    async fn stands_by(&mut self) {
        let out = BufReader::new(self.0.stdout.take().expect("piped"));
        let said = tokio::task::spawn_blocking(move || {
            out.lines().map_while(Result::ok).any(|line| line == "in the group")
        });
        assert!(said.await.expect("it is read"), "the standby has ended");
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many joins; more by hand, since each takes seconds.
fn joins() -> u32 {
    std::env::var("MANDATE_JOINS").ok().and_then(|joins| joins.parse().ok()).unwrap_or(1)
}

type Watched = (LedgerRoles, Receiver<Change>);

fn watched(roles: LedgerRoles) -> Watched {
    let changes = roles.changes();
    (roles, changes)
}

fn terms(roles: &LedgerRoles) -> Vec<Option<Term>> {
    (0..roles.layout().roles()).map(|role| roles.term(RoleId::new(role))).collect()
}

/// What was counted.
#[derive(Debug, Default)]
struct Tally {
    joins: u32,
    leaves: u32,
    replacements: u32,
    moves: usize,
    /// What was led no more, or under another term, though it did not move.
    lapses: Vec<String>,
}

impl Tally {
    /// Nothing that a member led before ended but what moved, and what it leads has the term that it had.
    fn look(&mut self, (roles, changes): &mut Watched, before: &[Option<Term>], moved: &[RoleId]) {
        for (role, term) in (0..).map(RoleId::new).zip(before) {
            if term.is_some() && !moved.contains(&role) && roles.term(role) != *term {
                self.lapses.push(format!("{role:?}: {term:?}, then {:?}", roles.term(role)));
            }
        }
        for (partition, loss) in endings(changes) {
            match moved.contains(&RoleId::new(partition.get())) && loss == RoleLoss::Revoked {
                true => self.moves += 1,
                false => self.lapses.push(format!("{partition} ended: {loss:?}")),
            }
        }
    }
}

/// As many roles as partitions: two members have three each, and a third comes and goes.
async fn whoever_comes_and_goes(brokers: &str, protocol: MembershipProtocol, tally: &mut Tally) {
    let group = format!("joins-{protocol:?}");
    let ledger = open(config(brokers, &group, protocol, 6)).await;
    let mut first = watched(member(&ledger, Mode::Exclusive, 6));
    let mut second = watched(member(&ledger, Mode::Exclusive, 6));
    let halves = |one: &LedgerRoles, other: &LedgerRoles| {
        is_divided(&[one, other]) && one.owned().len() == 3 && other.owned().len() == 3
    };
    until("two have three each", BOUND, || halves(&first.0, &second.0)).await;
    let _ = (endings(&mut first.1), endings(&mut second.1));
    for _ in 0..joins() {
        let before = [terms(&first.0), terms(&second.0)];
        let third = member(&ledger, Mode::Exclusive, 6);
        let thirds = || is_divided(&[&first.0, &second.0, &third]) && third.owned().len() == 2;
        until("three have two each", BOUND, thirds).await;
        let moved = third.owned();
        tally.joins += 1;
        tally.look(&mut first, &before[0], &moved);
        tally.look(&mut second, &before[1], &moved);
        let before = [terms(&first.0), terms(&second.0)];
        third.shutdown().await;
        until("two have three each again", BOUND, || halves(&first.0, &second.0)).await;
        tally.leaves += 1;
        tally.look(&mut first, &before[0], &[]);
        tally.look(&mut second, &before[1], &[]);
    }
    first.0.shutdown().await;
    second.0.shutdown().await;
}

/// What a supervisor does: the standby is killed, and started again at once.
async fn a_standby_is_replaced(brokers: &str, protocol: MembershipProtocol, tally: &mut Tally) {
    let group = format!("standby-{protocol:?}");
    let ledger = open(config(brokers, &group, protocol, 1)).await;
    let mut leader = watched(member(&ledger, Mode::Exclusive, 1));
    until("it leads", BOUND, || leader.0.owned().len() == 1).await;
    let mut standby = Standby::start(brokers, &group, protocol);
    standby.stands_by().await;
    // The first who comes may have to wait for a claim: from here on nothing moves.
    until("it leads", BOUND, || leader.0.owned().len() == 1).await;
    let _ = endings(&mut leader.1);
    for _ in 0..joins().max(2) {
        let before = terms(&leader.0);
        drop(standby);
        standby = Standby::start(brokers, &group, protocol);
        standby.stands_by().await;
        tally.replacements += 1;
        tally.look(&mut leader, &before, &[]);
    }
    // Those that were killed last are removed when their sessions are over: that is watched, too, and cannot be asked for.
    let before = terms(&leader.0);
    tokio::time::sleep(ledger.config().session + JOINS_WITHIN).await;
    tally.look(&mut leader, &before, &[]);
    assert_eq!(leader.0.owned(), [RoleId::new(0)]);
    leader.0.shutdown().await;
}

async fn disturb_nobody(protocol: MembershipProtocol) {
    if std::env::var(BROKERS).is_ok() {
        return;
    }
    let server = Kafka::launch(&ServerConfig::STOCK).expect("Kafka starts");
    let (brokers, mut tally) = (server.brokers(), Tally::default());
    whoever_comes_and_goes(&brokers, protocol, &mut tally).await;
    a_standby_is_replaced(&brokers, protocol, &mut tally).await;
    let Tally { joins, leaves, replacements, moves, lapses } = &tally;
    println!(
        "{protocol:?} protocol: {joins} joins, {leaves} leaves, {replacements} replacements of a standby; {moves} partitions moved; \
         {} lapses of partitions that did not move",
        lapses.len()
    );
    assert!(lapses.is_empty(), "{lapses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_disturb_nobody_on_a_kafka_with_its_own_defaults_in_the_classic_protocol() {
    disturb_nobody(MembershipProtocol::Classic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_disturb_nobody_on_a_kafka_with_its_own_defaults_in_the_consumer_protocol() {
    disturb_nobody(MembershipProtocol::Consumer).await;
}
