//! What roles cost: nanoseconds to ask whether a role is led here, with 10,000 roles over 64 partitions and 20 members;
//! what the members cost that do nothing but lead and stand by; and how many hash slots move when a member comes or
//! goes.
//!
//! On a ledger in memory; with the feature `kafka`, idling and moving also on Apache Kafka: a private one, or the one that
//! `KAFKA_BROKERS` names. Times depend on the machine.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use mandate_ledger::memory::{
    AssignmentRule, BrokerConfig, ClientConfig, Coordination, GroupId, MemoryLedger,
};
use mandate_ledger::{Ledger, LedgerRoles, Setup, start};
use mandate_proto::election::RoleId;
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Config, Mode, RecordDelivery};

const ROLES: u32 = 10_000;
const PARTITIONS: NonZeroU32 = NonZeroU32::new(64).unwrap();
const MEMBERS: usize = 20;
const SESSION: Duration = Duration::from_secs(6);
/// Asked in a row.
const CALLS: u32 = 2_000_000;
const ROUNDS: usize = 9;
const PATIENCE: Duration = Duration::from_secs(120);
const IDLE: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() {
    // Not under `cargo test --benches`: a benchmark says nothing there.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let ledger = in_memory();
    let mut members = group(&ledger).await;
    asking(&members[0]);
    println!("on a ledger in memory, sessions of {SESSION:?}:");
    idling().await;
    moving(&ledger, &mut members).await;
    drop(members);
    #[cfg(feature = "kafka")]
    on_kafka().await;
}

#[cfg(feature = "kafka")]
async fn on_kafka() {
    use mandate_ledger::kafka::{KafkaConfig, KafkaLedger};
    use mandate_servers::kafka::{Kafka, KafkaServerConfig as ServerConfig};

    let server = match std::env::var("KAFKA_BROKERS") {
        Ok(brokers) => Ok((brokers, None)),
        Err(_) => Kafka::launch(&ServerConfig::UNTUNED).map(|it| (it.brokers(), Some(it))),
    };
    let (brokers, _server) = match server {
        Ok(server) => server,
        Err(error) => return println!("not on Apache Kafka: {error}"),
    };
    let name = format!("bench-{}", std::process::id());
    let config = KafkaConfig::new(&brokers, &name, &name, PARTITIONS).with_session(SESSION);
    let ledger = KafkaLedger::open(config).await.expect("it can be used");
    let mut members = group(&ledger).await;
    println!("on Apache Kafka, sessions of {SESSION:?}:");
    idling().await;
    moving(&ledger, &mut members).await;
    for member in members {
        member.shutdown().await;
    }
}

fn in_memory() -> MemoryLedger {
    let heartbeat = SESSION / 6;
    let assignor = AssignmentRule::CooperativeSticky;
    let broker = BrokerConfig {
        partitions: PARTITIONS,
        assignor,
        shortest_session: Duration::from_millis(10),
        delivery: RecordDelivery::Anyone,
        coordination: Coordination::Generations,
    };
    let client = ClientConfig {
        session: SESSION,
        heartbeat,
        barrier: SESSION * 2 + heartbeat * 4,
        assignor,
        instance: None,
        hides_losses: false,
        renewals: mandate_ledger::memory::Renewals::WithTheRest,
        coordination: Coordination::Generations,
        fetches: None,
    };
    MemoryLedger::new(broker, client, GroupId(0))
}

fn member<L: Ledger>(ledger: &L) -> LedgerRoles {
    let config = Config::new(MemberId::new(1), Mode::Exclusive);
    start(ledger, Setup { config, roles: ROLES }).expect("it starts")
}

async fn group<L: Ledger>(ledger: &L) -> Vec<LedgerRoles> {
    let members: Vec<_> = (0..MEMBERS).map(|_| member(ledger)).collect();
    settled(&members).await;
    members
}

/// Waits until every role has one leader and loads are even; which member leads which partition then.
async fn settled(members: &[LedgerRoles]) -> BTreeMap<u32, usize> {
    let (began, partitions) = (Instant::now(), PARTITIONS.get() as usize);
    loop {
        let mut owners = BTreeMap::new();
        let mut loads = vec![0; members.len()];
        for (index, member) in members.iter().enumerate() {
            for partition in (0..PARTITIONS.get()).filter(|one| member.is_leader(RoleId::new(*one)))
            {
                owners.insert(partition, index);
                loads[index] += 1;
            }
        }
        let even = partitions / members.len()..=partitions.div_ceil(members.len());
        if loads.iter().sum::<usize>() == partitions && loads.iter().all(|load| even.contains(load))
        {
            return owners;
        }
        assert!(began.elapsed() < PATIENCE, "not even: {loads:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Nanoseconds of the processor a call, whatever else runs there: the median of some rounds.
fn median<T>(mut call: impl FnMut(u32) -> T) -> f64 {
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let before = thread_time();
            (0..CALLS).for_each(|number| drop(black_box(call(number))));
            (thread_time() - before).as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn asking(roles: &LedgerRoles) {
    let role = |number: u32| RoleId::new(number.wrapping_mul(7919) % ROLES);
    let ask = |number| roles.is_leader(black_box(role(number)));
    let keys: Vec<_> = (0..1024).map(|key| format!("customer {key}").into_bytes()).collect();
    let clock = mandate_runtime::clock::Clock::start();
    println!("{ROLES} roles over {PARTITIONS} partitions and {MEMBERS} members, one core:");
    println!("  is_leader          {:7.1} ns, over all roles", median(ask));
    let led = roles.owned();
    let here = |number: u32| roles.is_leader(black_box(led[number as usize % led.len()]));
    println!("  is_leader          {:7.1} ns, of roles that are led here", median(here));
    println!("  of that, the clock {:7.1} ns", median(|_| clock.now()));
    println!("  term               {:7.1} ns", median(|one| roles.term(role(one))));
    let owns = |one: u32| roles.owns_key(&keys[one as usize % keys.len()]);
    println!("  owns_key           {:7.1} ns", median(owns));
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(|| median(ask));
        (median(ask) + other.join().expect("it asks")) / 2.0
    });
    println!("  is_leader, from two threads at once {both:7.1} ns each");
}

/// What it costs to lead and stand by, with nobody asking: processor time of this process.
async fn idling() {
    let (began, before) = (Instant::now(), processor_time());
    tokio::time::sleep(IDLE).await;
    let share = (processor_time() - before).as_secs_f64() / began.elapsed().as_secs_f64();
    println!("  idle: {:.3} % of a core a member", share * 100.0 / MEMBERS as f64);
}

fn processor_time() -> Duration {
    // User and system time, in ticks of a hundredth of a second, behind the name in parentheses.
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let fields: Vec<_> = stat.rsplit(')').next().expect("a name").split(' ').collect();
    let ticks: u64 = fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Which share of the hash slots changes its leader when a member comes, and when one goes.
async fn moving<L: Ledger>(ledger: &L, members: &mut Vec<LedgerRoles>) {
    let before = settled(members).await;
    members.push(member(ledger));
    let with_one_more = settled(members).await;
    let came = moved(&before, &with_one_more);
    let gone = members.pop().expect("it came");
    gone.shutdown().await;
    let without = settled(members).await;
    let went = moved(&with_one_more, &without);
    let ideal = 100.0 / (MEMBERS as f64 + 1.0);
    println!(
        "  hash slots that move when member {} comes: {came:.2} %, and when it goes: {went:.2} %; ideal: {ideal:.2} %",
        MEMBERS + 1
    );
}

fn moved(before: &BTreeMap<u32, usize>, after: &BTreeMap<u32, usize>) -> f64 {
    let is_other = |partition: &u32| before.get(partition) != after.get(partition);
    let slots = (0..ROLES).filter(|role| is_other(&(role % PARTITIONS.get()))).count();
    slots as f64 * 100.0 / f64::from(ROLES)
}
