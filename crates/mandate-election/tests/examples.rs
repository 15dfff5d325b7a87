//! The examples as a user starts them, each in several processes: one leads, it is killed, another does.
//!
//! `cargo test` builds examples beside tests; a test that is built alone (`--test examples`) needs `cargo build --examples` first.

mod group;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use mandate::sql::{Address, Database};
use mandate_servers::kafka::{Kafka, KafkaServerConfig};
use mandate_servers::postgres::{Postgres, PostgresConfig};
use mandate_servers::testing::{PATIENCE, Running, within};

/// An example that runs, and what it has said.
struct Example {
    process: Running,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Example {
    fn start(name: &str, words: &[&str]) -> Self {
        let test = std::env::current_exe().unwrap();
        let program = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
        assert!(program.exists(), "{} is not built: `cargo build --examples`", program.display());
        let child = Command::new(program).args(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut process = Running(child);
        let output = BufReader::new(process.0.stdout.take().unwrap());
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = lines.clone();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                heard.lock().unwrap().push(line);
            }
        });
        Example { process, lines }
    }

    /// The term of the last line, if it says that it leads.
    fn term(&self) -> Option<u64> {
        let lines = self.lines.lock().unwrap();
        let said = lines.last()?.strip_prefix("leading in term ")?;
        said.split(',').next()?.parse().ok()
    }

    fn has_ended(&mut self) -> bool {
        self.process.0.try_wait().unwrap().is_some()
    }
}

/// One of them leads; it is killed, and another leads under a higher term.
fn hand_over(mut members: Vec<Example>) {
    let leading = |members: &mut Vec<Example>, above: u64| {
        within(PATIENCE, "one of them leads", || {
            assert!(!members.iter_mut().any(Example::has_ended), "a member has ended");
            let term = |member: &Example| member.term().filter(|term| *term > above);
            members.iter().enumerate().find_map(|(place, member)| Some((place, term(member)?)))
        })
    };
    let (first, term) = leading(&mut members, 0);
    drop(members.remove(first));
    leading(&mut members, term);
}

#[test]
fn members_elect_among_themselves() {
    let directory = tempfile::tempdir().unwrap();
    // Nobody is missed because the host is busy.
    let files = group::write(directory.path(), "[detection]\ninterval = '300ms'\nwithin = '4s'\n");
    hand_over(files.iter().map(|file| Example::start("peer", &[file, "new"])).collect());
}

#[test]
fn members_elect_on_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("m.db").display());
    hand_over((0..2).map(|_| Example::start("sqlite", &[&url])).collect());
}

#[test]
fn members_elect_on_postgres() {
    let server = Postgres::launch(&PostgresConfig::default()).expect("PostgreSQL starts");
    let url = server.socket_url();
    let address: Address = url.parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(Database::make_schema(&address)).unwrap();
    hand_over((0..2).map(|_| Example::start("postgres", &[&url])).collect());
}

#[test]
fn members_share_roles_on_kafka() {
    let server = Kafka::launch(&KafkaServerConfig::TUNED).expect("Kafka starts");
    let brokers = server.brokers();
    let roles = |members: &[Example]| {
        let said = members.iter().filter_map(|member| member.lines.lock().unwrap().last().cloned());
        let count = |line: String| line.split_whitespace().rev().nth(3)?.parse::<u32>().ok();
        said.filter_map(count).collect::<Vec<_>>()
    };
    let mut members = vec![Example::start("kafka", &[&brokers])];
    within(PATIENCE, "one leads all roles", || {
        assert!(!members[0].has_ended(), "it has ended");
        roles(&members).contains(&1000).then_some(())
    });
    members.push(Example::start("kafka", &[&brokers]));
    within(PATIENCE, "two share them", || {
        assert!(!members.iter_mut().any(Example::has_ended), "a member has ended");
        roles(&members).iter().any(|count| (1..1000).contains(count)).then_some(())
    });
    let term = members.iter().filter_map(Example::term).max();
    assert!(term.is_some_and(|term| term > 0), "terms rise from 1 on");
}
