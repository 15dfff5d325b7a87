//! Members as processes, under faults: one that is killed, or stopped beyond its session and let go on, is replaced, and no
//! two ever lead a role at one instant.
//!
//! This test runs itself again as a member. A member acts for each role that it leads, as fast as it can: it reads the
//! clock, asks for its term, and reads the clock again. The term was held at some instant between the two; an act of
//! a lower term that began after one of a higher term had ended so proves that two led at once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU32;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use mandate_ledger::kafka::{KafkaConfig, KafkaLedger};
use mandate_ledger::{Setup, start};
use mandate_proto::election::RoleId;
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Config, Mode};
use mandate_runtime::clock::since_boot;
use mandate_servers::kafka::{Kafka, KafkaServerConfig as ServerConfig};

const MEMBER: &str = "MANDATE_LEDGER_MEMBER_OF";
const ROLES: u32 = 4;
const SESSION: Duration = Duration::from_millis(1200);
const BOUND: Duration = Duration::from_secs(120);

/// Not a test by itself: what the processes of the test below do.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_acts_while_it_leads() {
    let Ok(brokers) = std::env::var(MEMBER) else { return };
    let partitions = NonZeroU32::new(ROLES).unwrap();
    let config = KafkaConfig::new(&brokers, "processes", "processes", partitions);
    let (config, began) = (config.with_session(SESSION), Instant::now());
    let ledger = loop {
        match KafkaLedger::open(config.clone()).await {
            Ok(ledger) => break ledger,
            Err(error) => assert!(began.elapsed() < BOUND, "{error}"),
        }
    };
    let config = Config::new(MemberId::new(1), Mode::Exclusive);
    let roles = start(&ledger, Setup { config, roles: ROLES }).expect("it starts");
    std::thread::spawn(|| {
        // It ends with the process that started it.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let mut out = std::io::stdout();
    loop {
        for role in 0..ROLES {
            let before = since_boot().as_nanos();
            if let Some(term) = roles.term(RoleId::new(role)) {
                let after = since_boot().as_nanos();
                // The listener is gone.
                if writeln!(out, "act {role} {term} {before} {after}").is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[derive(Clone, Copy, Debug)]
struct Act {
    member: usize,
    role: u32,
    term: u64,
    before: u128,
    after: u128,
}

/// A process; killed when this is dropped.
struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Group {
    brokers: String,
    members: BTreeMap<usize, Member>,
    started: usize,
    acts: std::sync::mpsc::Sender<Act>,
    heard: Receiver<Act>,
    all: Vec<Act>,
}

impl Group {
    fn new(brokers: String) -> Self {
        let (acts, heard) = channel();
        Group { brokers, members: BTreeMap::new(), started: 0, acts, heard, all: Vec::new() }
    }

    fn start_member(&mut self) {
        let member = self.started;
        self.started += 1;
        let mut child = Command::new(std::env::current_exe().expect("a test has a file"))
            .args(["--exact", "a_member_acts_while_it_leads", "--nocapture"])
            .env(MEMBER, &self.brokers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let acts = self.acts.clone();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some(act) = parse(member, &line) {
                    let _ = acts.send(act);
                }
            }
        });
        self.members.insert(member, Member(child));
    }

    /// Listens until something is so of the acts of the last moment.
    fn until(&mut self, what: &str, holds: impl Fn(&BTreeMap<u32, usize>) -> bool) -> Duration {
        let began = Instant::now();
        let start = since_boot().as_nanos();
        let mut leaders = BTreeMap::new();
        while !holds(&leaders) {
            assert!(began.elapsed() < BOUND, "not within {BOUND:?}: {what}; {leaders:?}");
            if let Ok(act) = self.heard.recv_timeout(Duration::from_millis(50)) {
                self.all.push(act);
                if act.before >= start {
                    leaders.insert(act.role, act.member);
                }
            }
        }
        began.elapsed()
    }

    /// The member that leads this role now, by its index.
    fn leader(&mut self, role: u32) -> usize {
        // Of now: acts of members that are gone may be heard late.
        let found = std::cell::Cell::new(None);
        self.until("it has a leader", |leaders| {
            found.set(leaders.get(&role).copied());
            found.get().is_some()
        });
        found.get().expect("just acted")
    }

    fn signal(&self, member: usize, name: &str) {
        let pid = self.members[&member].0.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().expect("kill is there");
        assert!(sent.success());
    }
}

fn parse(member: usize, line: &str) -> Option<Act> {
    let mut words = line.split_once("act ")?.1.split(' ');
    Some(Act {
        member,
        role: words.next()?.parse().ok()?,
        term: words.next()?.parse().ok()?,
        before: words.next()?.parse().ok()?,
        after: words.next()?.parse().ok()?,
    })
}

/// No act of a lower term began after one of a higher term had ended, and each term is one member's.
fn judge(acts: &[Act]) {
    for role in 0..ROLES {
        let mut terms: BTreeMap<u64, (usize, u128, u128)> = BTreeMap::new();
        for act in acts.iter().filter(|act| act.role == role) {
            let of = terms.entry(act.term).or_insert((act.member, act.after, act.before));
            assert_eq!(of.0, act.member, "two members in term {} of role {role}", act.term);
            (of.1, of.2) = (of.1.min(act.after), of.2.max(act.before));
        }
        let terms: Vec<_> = terms.into_iter().collect();
        for pair in terms.windows(2) {
            let [(term, (_, _, last)), (next, (_, first, _))] = pair else { continue };
            assert!(last < first, "role {role}: term {term} was led after term {next} had begun");
        }
    }
}

/// More for a longer run.
fn faults() -> u32 {
    std::env::var("MANDATE_FAULTS").ok().and_then(|faults| faults.parse().ok()).unwrap_or(6)
}

#[test]
fn processes_that_are_killed_or_stopped_are_replaced_and_no_two_lead_at_once() {
    let server = Kafka::launch(&ServerConfig::TUNED).expect("Kafka starts");
    let mut group = Group::new(server.brokers());
    (0..3).for_each(|_| group.start_member());
    group.until("every role has a leader", |leaders| leaders.len() == ROLES as usize);
    let mut took = Vec::new();
    for round in 0..faults() {
        let leader = group.leader(round % ROLES);
        let stops = round % 2 == 1;
        group.signal(leader, if stops { "-STOP" } else { "-KILL" });
        let everything = |leaders: &BTreeMap<u32, usize>| {
            leaders.len() == ROLES as usize && leaders.values().all(|member| *member != leader)
        };
        took.push(group.until("others lead everything", everything));
        if stops {
            // It finds itself replaced, and its time up.
            group.signal(leader, "-CONT");
        } else {
            group.members.remove(&leader);
            group.start_member();
        }
        group.until("all roles are led", |leaders| leaders.len() == ROLES as usize);
    }
    judge(&group.all);
    took.sort();
    println!(
        "{} faults, {} acts; replaced in {:?} (median)",
        took.len(),
        group.all.len(),
        took[took.len() / 2]
    );
    assert!(group.all.len() > 100, "{} acts prove little", group.all.len());
}
