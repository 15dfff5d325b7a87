//! Roles on Kafka, as a new user meets them: two terminals and a broker; daemons that share many roles; what the
//! commands say. On a private Apache Kafka, or on the one that `KAFKA_BROKERS` names.

#![cfg(feature = "kafka")]

mod group;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use group::{mandate, within};
use mandate_servers::kafka::{Kafka, KafkaServerConfig};
use mandate_servers::testing::{Running, pause, resume};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};

const BOUND: Duration = Duration::from_secs(60);

/// Where Kafka is, and which sessions it grants.
struct Broker {
    at: String,
    session: &'static str,
    /// Kept until the end.
    _server: Option<Kafka>,
}

impl Broker {
    fn new() -> Self {
        match std::env::var("KAFKA_BROKERS") {
            Ok(at) => Broker { at, session: "6s", _server: None },
            Err(_) => {
                let server = Kafka::launch(&KafkaServerConfig::TUNED).expect("Kafka starts");
                Broker { at: server.brokers(), session: "6s", _server: Some(server) }
            }
        }
    }

    /// A name that no other test, and no earlier run, has.
    fn name(&self, what: &str) -> String {
        format!("{what}-{}", std::process::id())
    }
}

fn text(command: &mut Command) -> String {
    // Only where a test says so.
    let output = command.env_remove("KAFKA_BROKERS").output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    out + &err
}

#[test]
fn roles_on_kafka() {
    let broker = Broker::new();
    two_terminals_and_a_broker_and_the_second_takes_over_when_the_first_is_killed(&broker);
    a_command_is_asked_to_end_when_its_role_is_wanted_back(&broker);
    daemons_share_many_roles_and_say_which(&broker);
    a_stranger_that_takes_no_notice_costs_what_it_is_assigned_alone(&broker);
    a_partition_that_takes_no_records_is_reported(&broker);
    a_daemon_that_counts_differently_says_so_and_is_not_ready(&broker);
    a_daemon_whose_topic_was_deleted_is_not_ready_and_says_why(&broker);
    a_daemon_whose_static_name_was_taken_ends(&broker);
    two_daemons_with_one_static_name_lead_each_role_once_after_one_was_stopped(&broker);
    what_cannot_be_is_said_with_what_to_do(&broker);
}

/// `mandate run`; the script says under which name it runs.
fn run(broker: &Broker, role: &str, directory: &Path, name: &str) -> Running {
    let script = format!("echo $MANDATE_TERM > {name}; exec sleep 1000");
    let mut command = mandate();
    let value = format!("http://{name}:80");
    command.args(["run", role, "--engine", "ledger", "--brokers", &broker.at, "--value", &value]);
    command.args(["--session", broker.session, "--", "sh", "-c", &script]);
    Running(command.current_dir(directory).stderr(Stdio::null()).spawn().unwrap())
}

fn term(directory: &Path, name: &str) -> u64 {
    within(BOUND, "it runs", || {
        std::fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok()
    })
}

fn two_terminals_and_a_broker_and_the_second_takes_over_when_the_first_is_killed(broker: &Broker) {
    let directory = tempfile::tempdir().unwrap();
    let (path, role) = (directory.path(), broker.name("backup"));
    let ask =
        |command: &str| text(mandate().args([command, "--brokers", &broker.at, "--group", &role]));
    let first = run(broker, &role, path, "first");
    let before = term(path, "first");
    let mut second = run(broker, &role, path, "second");
    let status = within(BOUND, "the second stands by", || {
        let status = ask("status");
        (status.contains("stands by") && status.contains("leads")).then_some(status)
    });
    assert!(status.contains(&format!("leads {role} in term {before}")), "{status}");
    assert!(status.contains("http://first:80"), "the claim carries it: {status}");
    assert!(!path.join("second").exists(), "one at a time");
    drop(first);
    let after = term(path, "second");
    assert!(after > before, "{after} after {before}");
    let history = ask("history");
    assert_eq!(history.lines().count(), 2, "{history}");
    assert!(history.starts_with(&format!("partition 0     term {after}")), "{history}");
    let status = within(BOUND, "the second is shown", || {
        let status = ask("status");
        status.contains(&format!("in term {after}")).then_some(status)
    });
    assert!(status.contains("http://second:80") && !status.contains("http://first:80"), "{status}");
    let explained = ask("explain");
    assert!(explained.contains("nobody stands for election"), "{explained}");
    // Asked to end, it leaves the group at once.
    let pid = rustix::process::Pid::from_child(&second.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(second.0.wait().is_ok());
    within(BOUND, "nobody is left", || {
        ask("status").contains("nobody is in the group").then_some(())
    });
}

fn a_command_is_asked_to_end_when_its_role_is_wanted_back(broker: &Broker) {
    let directory = tempfile::tempdir().unwrap();
    let (path, role) = (directory.path(), broker.name("drained"));
    // This assignor takes everything back whenever somebody joins. Sessions that leave time to hear of it.
    let run = |script: &str| {
        let mut command = mandate();
        command.args(["run", &role, "--engine", "ledger", "--brokers", &broker.at]);
        command.args(["--session", "15s", "--assignor", "round-robin", "--", "sh", "-c", script]);
        Running(command.current_dir(path).stderr(Stdio::null()).spawn().unwrap())
    };
    let mut first = run("trap 'date +%s%N > ended; exit 9' TERM; echo $MANDATE_TERM > first; \
                         while :; do sleep 0.02; done");
    let before = term(path, "first");
    let _second = run("date +%s%N > began; echo $MANDATE_TERM > next; exec sleep 1000");
    let status = within(BOUND * 2, "the first is stopped", || first.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(5), "leadership was lost, not the command's own end");
    assert!(term(path, "next") > before);
    let time = |name: &str| term(path, name);
    assert!(time("ended") < time("began"), "asked, and waited for");
}

fn daemon(broker: &Broker, group: &str, directory: &Path, member: u32) -> (Running, String) {
    daemon_with(broker, group, directory, member, "")
}

/// With more settings.
fn daemon_with(
    broker: &Broker,
    group: &str,
    directory: &Path,
    member: u32,
    more: &str,
) -> (Running, String) {
    let api = format!("127.0.0.1:{}", mandate_servers::free_ports(1).unwrap()[0]);
    let roles = if more.starts_with("roles") { "" } else { "roles = 100\n" };
    let config = format!(
        "engine = 'ledger'\ngroup = '{group}'\nmember = 'p{member}'\napi = '{api}'\n\
         [ledger]\nbrokers = '{}'\n{roles}partitions = 4\nsession = '{}'\n{more}\n",
        broker.at, broker.session
    );
    let file = directory.join(format!("p{member}.toml"));
    std::fs::write(&file, config).unwrap();
    let mut daemon = mandate();
    daemon.args(["node", "--config"]).arg(&file).stdout(Stdio::null());
    (Running(daemon.spawn().unwrap()), api)
}

fn daemons_share_many_roles_and_say_which(broker: &Broker) {
    let directory = tempfile::tempdir().unwrap();
    let group = broker.name("orders");
    let (first, api) = daemon(broker, &group, directory.path(), 1);
    let said = |api: &str, args: &[&str]| text(mandate().args(args).args(["--api", api]));
    within(BOUND, "the first leads everything", || {
        said(&api, &["status"]).contains("LEADS 100 of 100 roles").then_some(())
    });
    let (_second, other) = daemon(broker, &group, directory.path(), 2);
    let status = within(BOUND, "two have a half each", || {
        let status = said(&api, &["status"]);
        let both =
            status.contains("LEADS 50 of 100") && said(&other, &["status"]).contains("LEADS 50");
        both.then_some(status)
    });
    assert!(status.contains("50 of 100 led here, with 2 of 4 partitions"), "{status}");
    let whole: serde_json::Value =
        serde_json::from_str(&said(&api, &["status", "-o", "json"])).unwrap();
    let partitions = whole["role_map"]["partitions"].as_array().unwrap();
    assert_eq!(
        partitions.iter().map(|one| one["roles"].as_array().unwrap().len()).sum::<usize>(),
        100
    );
    // The same role is led by one of the two, by its number and by a key's.
    for role in ["3", "customer%2017"] {
        let codes = [&api, &other].map(|api| get(api, &format!("/v1/roles/{role}")).0);
        assert_eq!(codes.iter().filter(|code| **code == 200).count(), 1, "{role}: {codes:?}");
        assert_eq!(codes.iter().filter(|code| **code == 503).count(), 1, "{role}: {codes:?}");
    }
    assert_eq!(get(&api, "/v1/roles/100").0, 404);
    assert_eq!(get(&api, "/readyz").0, 200);
    let metrics = get(&api, "/metrics").1;
    assert!(metrics.contains(&format!("mandate_roles_led{{group=\"{group}\"}} 50")), "{metrics}");
    assert!(metrics.contains("mandate_barrier_stuck"), "{metrics}");
    let refused = said(&api, &["transfer", "p2"]);
    assert!(refused.contains("the coordinator assigns partitions"), "{refused}");
    assert!(said(&api, &["history"]).contains("ended: revoked"));
    let held = text(mandate().args(["run", "x", "--api", &api, "--", "true"]));
    assert!(held.contains("has many roles"), "{held}");
    assert!(said(&api, &["resign"]).contains("given back"));
    within(BOUND, "the other leads everything", || {
        said(&other, &["status"]).contains("LEADS 100 of 100").then_some(())
    });
    within(BOUND, "who resigned comes back", || {
        said(&api, &["status"]).contains("LEADS 50 of 100").then_some(())
    });
    drop(first);
    within(BOUND, "the other leads everything", || {
        said(&other, &["status"]).contains("LEADS 100 of 100").then_some(())
    });
}

/// A figure of a daemon's metrics.
fn metric(api: &str, name: &str) -> f64 {
    let metrics = get(api, "/metrics").1;
    let line = metrics.lines().find(|line| line.starts_with(name)).expect(name);
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn client(broker: &Broker) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &broker.at);
    client
}

/// A consumer of somebody else's joins the group and takes no notice of what it is assigned, while its client goes on
/// telling the coordinator that it is alive. What is assigned to it has no leader; the rest stays where it is.
fn a_stranger_that_takes_no_notice_costs_what_it_is_assigned_alone(broker: &Broker) {
    let directory = tempfile::tempdir().unwrap();
    let group = broker.name("stuck");
    let classic = "protocol = 'classic'";
    let (_daemon, api) = daemon_with(broker, &group, directory.path(), 1, classic);
    let status = || text(mandate().args(["status", "--api", &api]));
    within(BOUND, "it leads everything", || status().contains("LEADS 100 of 100").then_some(()));
    let stranger: BaseConsumer = client(broker)
        .set("group.id", &group)
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("session.timeout.ms", "6000")
        .set("max.poll.interval.ms", "300000")
        .create()
        .unwrap();
    stranger.subscribe(&[&format!("mandate-{group}")]).unwrap();
    within(BOUND, "half is the stranger's", || status().contains("LEADS 50 of 100").then_some(()));
    drop(stranger);
    within(BOUND, "it leads everything again", || {
        status().contains("LEADS 100 of 100").then_some(())
    });
}

fn a_partition_that_takes_no_records_is_reported(broker: &Broker) {
    let directory = tempfile::tempdir().unwrap();
    let group = broker.name("dry");
    let more = "mode = 'non-exclusive'";
    let (_daemon, api) = daemon_with(broker, &group, directory.path(), 1, more);
    let status = || text(mandate().args(["status", "--api", &api]));
    within(BOUND, "it leads everything", || status().contains("LEADS 100 of 100").then_some(()));
    let admin: AdminClient<DefaultClientContext> = client(broker).create().unwrap();
    let topic = format!("mandate-{group}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let largest = |bytes: &str| {
        let config =
            AlterConfig::new(ResourceSpecifier::Topic(&topic)).set("max.message.bytes", bytes);
        runtime.block_on(admin.alter_configs([&config], &AdminOptions::new())).unwrap();
    };
    largest("1");
    let said = within(BOUND, "it is dry", || {
        let status = status();
        status.contains("DRY").then_some(status)
    });
    assert!(said.contains("nothing came by which it could be led"), "{said}");
    assert!(!said.contains("LEADS 100"), "{said}");
    assert!(metric(&api, "mandate_partitions_dry_total{") > 0.0);
    largest("1048588");
    within(BOUND, "it leads everything again", || {
        status().contains("LEADS 100 of 100").then_some(())
    });
}

/// Code and text.
fn a_daemon_that_counts_differently_says_so_and_is_not_ready(broker: &Broker) {
    let directory = tempfile::tempdir().unwrap();
    let group = broker.name("differs");
    let status = |api: &str| text(mandate().args(["status", "--api", api]));
    let (first, api) = daemon(broker, &group, directory.path(), 1);
    within(BOUND, "it leads", || status(&api).contains("LEADS 100 of 100").then_some(()));
    let (_second, other) = daemon_with(broker, &group, directory.path(), 2, "roles = 50");
    let said = within(BOUND, "the newcomer says so", || {
        let said = status(&other);
        said.contains("DISAGREES").then_some(said)
    });
    assert!(said.contains("another member has 100 roles over 4 partitions"), "{said}");
    let (code, reason) = get(&other, "/readyz");
    assert_eq!(code, 503, "{reason}");
    assert!(reason.contains("it does not lead until all have the same"), "{reason}");
    assert!(status(&api).contains("LEADS 100 of 100"), "who leads stands");
    assert_eq!(get(&api, "/readyz").0, 200);
    drop(first);
    within(BOUND, "the newcomer leads", || status(&other).contains("LEADS 50 of 50").then_some(()));
    assert!(!status(&other).contains("DISAGREES"));
    assert_eq!(get(&other, "/readyz").0, 200);
}

fn a_daemon_whose_topic_was_deleted_is_not_ready_and_says_why(broker: &Broker) {
    let directory = tempfile::tempdir().unwrap();
    let group = broker.name("deleted");
    let (_daemon, api) = daemon(broker, &group, directory.path(), 1);
    within(BOUND, "it leads", || {
        text(mandate().args(["status", "--api", &api])).contains("LEADS 100").then_some(())
    });
    assert_eq!(get(&api, "/readyz").0, 200);
    let admin: AdminClient<DefaultClientContext> = client(broker).create().unwrap();
    let topic = format!("mandate-{group}");
    let options = AdminOptions::new();
    let deleted = admin.delete_topics(&[&topic], &options);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert!(runtime.block_on(deleted).unwrap()[0].is_ok());
    let reason = within(BOUND, "it says why it is not ready", || {
        let (code, reason) = get(&api, "/readyz");
        (code == 503 && reason.contains("the topic has")).then_some(reason)
    });
    assert!(reason.contains("has 0 partitions, and this member counts 4"), "{reason}");
}

fn a_daemon_whose_static_name_was_taken_ends(broker: &Broker) {
    let directory = tempfile::tempdir().unwrap();
    let group = broker.name("taken");
    let named = "protocol = 'classic'\ninstance = 'the one'";
    let (mut first, api) = daemon_with(broker, &group, directory.path(), 1, named);
    within(BOUND, "it leads", || {
        text(mandate().args(["status", "--api", &api])).contains("LEADS 100").then_some(())
    });
    let (_second, other) = daemon_with(broker, &group, directory.path(), 2, named);
    let ended = within(BOUND, "the first ends", || first.0.try_wait().unwrap());
    assert_eq!(ended.code(), Some(1), "whoever watches over it hears of it");
    within(BOUND, "the second leads", || {
        text(mandate().args(["status", "--api", &other])).contains("LEADS 100").then_some(())
    });
}

/// Who keeps the name depends on what the Kafka client of the stopped one notices first. If it hears that the name was taken, it
/// goes on without. If it notices first that its session is over, it joins anew under the name, and the other one ends.
fn two_daemons_with_one_static_name_lead_each_role_once_after_one_was_stopped(broker: &Broker) {
    let directory = tempfile::tempdir().unwrap();
    let group = broker.name("twice");
    let named = "protocol = 'classic'\ninstance = 'the one'";
    let leads = |api: &str, roles: &str| {
        text(mandate().args(["status", "--api", api])).contains(&format!("LEADS {roles} of 100"))
    };
    let (mut first, api) = daemon_with(broker, &group, directory.path(), 1, named);
    within(BOUND, "the first leads", || leads(&api, "100").then_some(()));
    pause(&first.0);
    let stopped = std::time::Instant::now();
    let (mut second, other) = daemon_with(broker, &group, directory.path(), 2, named);
    within(BOUND, "the second leads under that name", || leads(&other, "100").then_some(()));
    let session = humantime::parse_duration(broker.session).unwrap();
    within(BOUND, "two sessions are over", || (stopped.elapsed() > session * 2).then_some(()));
    resume(&first.0);
    within(BOUND, "both lead a half, or one leads all and the other has ended", || {
        match (first.0.try_wait().unwrap(), second.0.try_wait().unwrap()) {
            (None, None) => leads(&api, "50") && leads(&other, "50"),
            (Some(ended), None) => ended.code() == Some(1) && leads(&other, "100"),
            (None, Some(ended)) => ended.code() == Some(1) && leads(&api, "100"),
            (Some(_), Some(_)) => panic!("both have ended"),
        }
        .then_some(())
    });
}

fn get(api: &str, path: &str) -> (u16, String) {
    let mut answer = ureq::get(format!("http://{api}{path}"))
        .config()
        .http_status_as_error(false)
        .build()
        .call()
        .unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

fn what_cannot_be_is_said_with_what_to_do(broker: &Broker) {
    let role = broker.name("refused");
    let refused = |flags: &[&str]| {
        let mut command = mandate();
        command.args(["run", &role, "--brokers", &broker.at]).args(flags).args(["--", "true"]);
        text(&mut command)
    };
    for (flags, expected) in [
        (&["--session", "1ms"][..], "group.min.session.timeout.ms"),
        (&["-X", "group.id=mine"], "group.id is decided by the engine"),
        (&["-X", "no.such=1"], "no.such"),
        (&["--topic", "two words"], "is no name for a topic"),
        (&["--url", "sqlite:./m.db"], "name one of the two"),
        (&["--new"], "on a ledger they have none"),
        (&["--roles", "5", "--topic", "x", "-X", "nonsense"], "write KEY=VALUE"),
    ] {
        let said = refused(flags);
        assert!(said.contains(expected), "{flags:?}: {said}");
    }
    let said = text(mandate().args(["run", &role, "--engine", "ledger", "--", "true"]));
    assert!(said.contains("KAFKA_BROKERS"), "{said}");
    let said = text(mandate().args(["status", "--brokers", &broker.at]));
    assert!(said.contains("name the group with --group"), "{said}");
    let said = text(mandate().args(["status", "--brokers", &broker.at, "--group", "nobodys"]));
    assert!(said.contains("there is no topic mandate-nobodys"), "{said}");
}
