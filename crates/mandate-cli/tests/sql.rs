//! Elections on a database, as a new user meets them: two terminals, one file; what the commands say.
//! With every database: what is printed and refused is compared over all of them.

#![cfg(all(feature = "mysql", feature = "postgres"))]

mod group;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use group::{mandate, show_logs_of_a_failure, within};
use mandate_servers::Server;
use mandate_servers::mariadb::{MariaDb, MariaDbConfig};
use mandate_servers::postgres::{Postgres, PostgresConfig};
use mandate_servers::testing::{PATIENCE, Running};
use tempfile::TempDir;

/// A lease is a quarter longer. No busy host outlasts it: who is asked to stop must still lead.
const ROUND: &str = "3s";

/// `mandate run backup` on a file of the directory.
fn run(directory: &Path, name: &str) -> Running {
    run_on("sqlite:./mandate.db", directory, name)
}

/// The script says under which name it runs.
fn run_on(url: &str, directory: &Path, name: &str) -> Running {
    run_script(url, directory, name, &format!("echo $MANDATE_TERM > {name}; exec sleep 1000"))
}

fn run_script(url: &str, directory: &Path, name: &str, script: &str) -> Running {
    let mut command = mandate();
    command.args(["run", "backup", "--url", url, "--round", ROUND, "--"]);
    let log = File::create(directory.join(format!("{name}.log"))).unwrap();
    command.args(["sh", "-c", script]).current_dir(directory).stderr(log);
    Running(command.spawn().unwrap())
}

fn term(directory: &Path, name: &str) -> u64 {
    within(PATIENCE, "it runs", || {
        std::fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok()
    })
}

/// A directory for one test. When the test fails, what its processes said is shown.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        show_logs_of_a_failure(self.path());
    }
}

fn text(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    out + &err
}

fn ask(directory: &Path, command: &[&str]) -> String {
    text(
        mandate()
            .args(command)
            .args(ABOUT)
            .args(["--url", "sqlite:./mandate.db"])
            .current_dir(directory),
    )
}

const ABOUT: [&str; 2] = ["--group", "backup"];

#[test]
fn two_terminals_and_one_file_and_the_second_takes_over_when_the_first_is_killed() {
    let directory = Place::new();
    let path = directory.path();
    let first = run(path, "first");
    assert_eq!(term(path, "first"), 1);
    let mut second = run(path, "second");
    let status = within(PATIENCE, "the second comes next", || {
        let status = ask(path, &["status"]);
        status.contains("comes next").then_some(status)
    });
    assert!(!path.join("second").exists(), "one at a time");
    assert!(status.contains("leads backup in term 1"), "{status}");
    drop(first);
    assert_eq!(term(path, "second"), 2);
    let history = ask(path, &["history"]);
    assert!(history.contains("the lease of the one before ran out"), "{history}");
    let explained = ask(path, &["explain"]);
    assert!(explained.contains("stood in the row for a whole lease"), "{explained}");
    let status: serde_json::Value =
        serde_json::from_str(&ask(path, &["status", "-o", "json"])).unwrap();
    assert_eq!(status["term"], 2);
    // Asked to end, it gives its term back, and nobody leads.
    let pid = rustix::process::Pid::from_child(&second.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(second.0.wait().is_ok());
    let status = ask(path, &["status"]);
    assert!(status.starts_with("nobody leads backup: the one before resigned"), "{status}");
}

/// Somebody removes the row; members say so, and an operator says how far terms had come.
#[test]
fn a_row_that_is_removed_is_told_of_by_whoever_waits_and_terms_are_raised_by_hand() {
    let bound = PATIENCE;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let _first = run(path, "first");
    assert_eq!(term(path, "first"), 1);
    let log = std::fs::File::create(path.join("log")).unwrap();
    let mut second = mandate();
    second.args(["run", "backup", "--url", "sqlite:./mandate.db", "--round", ROUND, "--"]);
    second.args(["sleep", "1000"]).current_dir(path).stderr(log);
    let _second = Running(second.spawn().unwrap());
    within(bound, "the second comes next", || {
        ask(path, &["status"]).contains("comes next").then_some(())
    });
    let connection = rusqlite::Connection::open(path.join("mandate.db")).unwrap();
    connection.busy_timeout(bound).unwrap();
    connection.execute("delete from mandate_control", ()).unwrap();
    within(bound, "it is told of", || {
        let log = std::fs::read_to_string(path.join("log")).unwrap();
        log.contains("the control row went back").then_some(())
    });
    let raised = ask(path, &["sql", "raise", "--above", "41"]);
    assert!(raised.contains("the next term of backup is above 41"), "{raised}");
    within(bound, "one leads again, in a later term", || {
        let status: serde_json::Value =
            serde_json::from_str(&ask(path, &["status", "-o", "json"])).ok()?;
        let term = status["term"].as_u64()?;
        (status["leader"].is_string() && term > 41).then_some(())
    });
}

#[test]
fn a_leader_that_is_gone_is_not_said_to_lead() {
    let directory = Place::new();
    let only = run(directory.path(), "only");
    term(directory.path(), "only");
    drop(only);
    let status = ask(directory.path(), &["status"]);
    assert!(status.contains("has not renewed its lease"), "{status}");
}

#[test]
fn what_cannot_be_is_said_with_what_to_do_and_without_passwords() {
    let directory = Place::new();
    let said = |args: &[&str]| text(mandate().args(args).current_dir(directory.path()));
    for (args, expected) in [
        (&["status", "--url", "sqlite:./none.db"][..], "there is no file ./none.db"),
        (&["status", "--url", "db2://u:secret@h/d"], "must begin with sqlite:"),
        (&["status", "--url", "postgres://u:secret@127.0.0.1:1/d"], "Connection refused"),
        (&["history", "--url", "mysql://u:secret@127.0.0.1:1/d"], "refused"),
        (&["sql", "init", "--url", "postgres://u:secret@127.0.0.1:1/d"], "cannot be used"),
        (
            &["status", "--url", "host=127.0.0.1 port=1 password=secret dbname=d"],
            "Connection refused",
        ),
        (&["status", "--url", "password=secret"], "name the database"),
        (&["status", "--url", "service=none"], "no service file has the service `none`"),
        (&["status", "--url", "./mandate.db"], "write sqlite:./mandate.db"),
    ] {
        let args = if args[0] == "sql" { args.to_vec() } else { [args, &ABOUT[..]].concat() };
        let said = said(&args);
        assert!(said.contains(expected) && !said.contains("secret"), "{args:?}: {said}");
    }
    let unnamed = said(&["status", "--url", "sqlite:./none.db"]);
    assert!(unnamed.contains("name the group with --group"), "{unnamed}");
    let odd = said(&["run", "two words", "--url", "sqlite:./m.db", "--", "true"]);
    assert!(odd.contains("cannot be the name of a group"), "{odd}");
    for (scheme, expected) in
        [("postgres", "returns void"), ("mysql", "delimiter //"), ("sqlite", "without rowid")]
    {
        let printed = said(&["sql", "init", "--print", "--url", &format!("{scheme}://h/d")]);
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
fn a_daemon_whose_member_elects_on_a_database_answers_like_any_other() {
    let directory = Place::new();
    let api = format!("127.0.0.1:{}", mandate_servers::free_ports(1).unwrap()[0]);
    let config = format!(
        "engine = 'sql'\ngroup = 'backup'\nmember = 'p7'\napi = '{api}'\n\
         [database]\nurl = 'sqlite:mandate.db'\nround = '{ROUND}'\n"
    );
    std::fs::write(directory.path().join("node.toml"), config).unwrap();
    let log = File::create(directory.path().join("node.log")).unwrap();
    let mut daemon = mandate();
    daemon.args(["node", "--config", "node.toml"]).current_dir(directory.path());
    let _daemon = Running(daemon.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let said = |args: &[&str]| text(mandate().args(args).args(["--api", &api]));
    within(PATIENCE, "it leads", || {
        said(&["status"]).contains("p7 of backup LEADS in term").then_some(())
    });
    let beside = run(directory.path(), "beside");
    within(PATIENCE, "it knows of the other", || {
        said(&["status", "-o", "json"]).contains("process").then_some(())
    });
    let refused = said(&["transfer", "p9"]);
    assert!(refused.contains("not another member"), "{refused}");
    assert!(said(&["resign"]).contains("given back"));
    assert!(term(directory.path(), "beside") > 1);
    within(PATIENCE, "it knows why", || said(&["history"]).contains("resigned").then_some(()));
    drop(beside);
}

/// Without a daemon, an operator has leadership handed over and given up by a line in the row, and commands end before that.
fn is_asked_by_its_row(url: &str) {
    let directory = Place::new();
    let path = directory.path();
    let said = |args: &[&str]| text(mandate().args(args).args(ABOUT).args(["--url", url]));
    let script = "trap 'echo > first.ended; exit' TERM; echo $MANDATE_TERM > first; while :; do sleep 0.05; done";
    let mut first = run_script(url, path, "first", script);
    assert_eq!(term(path, "first"), 1);
    let second = "test -e first.ended && echo $MANDATE_TERM > second; exec sleep 1000";
    let mut second = run_script(url, path, "second", second);
    let (leader, other) = within(PATIENCE, "both are in the group", || {
        let status = said(&["status", "-o", "json"]);
        let status: serde_json::Value = serde_json::from_str(&status).ok()?;
        let leader = status["leader"].as_str()?.to_owned();
        let mut names = status["members"].as_array()?.iter().map(|row| row["member"].as_str());
        let other = names.find(|name| *name != Some(&leader))??.to_owned();
        Some((leader, other))
    });
    let refused = said(&["transfer", "p1"]);
    assert!(refused.contains("p1 is not in backup; there are"), "{refused}");
    let refused = said(&["transfer", &leader]);
    assert!(refused.contains(&format!("{leader} leads backup already")), "{refused}");
    let done = said(&["transfer", &other]);
    assert!(done.contains(&format!("handed over to {other}, which leads in term 2")), "{done}");
    assert_eq!(term(path, "second"), 2, "the first command had ended");
    assert_eq!(first.0.wait().unwrap().code(), Some(5), "leadership was lost");
    let done = said(&["resign"]);
    assert!(
        done.contains(&format!("{other} has given term 2 up; nobody has taken over")),
        "{done}"
    );
    assert_eq!(second.0.wait().unwrap().code(), Some(5));
    let refused = said(&["resign"]);
    assert!(refused.contains("nobody leads backup now"), "{refused}");
}

#[test]
fn an_operator_moves_leadership_by_way_of_the_database_alone() {
    let file = Place::new();
    is_asked_by_its_row(&format!("sqlite:{}", file.path().join("mandate.db").display()));
    let server = Postgres::launch(&PostgresConfig::default()).unwrap();
    assert!(text(mandate().args(["sql", "init", "--url", &server.url()])).contains("ready"));
    is_asked_by_its_row(&server.url());
    drop(server);
    let server = MariaDb::launch(&MariaDbConfig::default()).unwrap();
    assert!(text(mandate().args(["sql", "init", "--url", &server.url()])).contains("ready"));
    is_asked_by_its_row(&server.url());
}

/// What `mandate sql init --print` says that members must be granted, for an account of this name.
fn grants(url: &str, replaced: &[(&str, &str)]) -> String {
    let printed = text(mandate().args(["sql", "init", "--print", "--url", url]));
    let grants = printed.lines().filter_map(|line| line.strip_prefix("-- "));
    let grants: String = grants.filter(|line| line.starts_with("grant ")).collect();
    replaced.iter().fold(grants, |grants, (name, by)| grants.replace(name, by))
}

/// One leads, is killed and thrown out, another takes over, and all that can be asked is answered.
fn is_enough(url: &str) {
    let directory = Place::new();
    let path = directory.path();
    let said = |command: &str| text(mandate().arg(command).args(ABOUT).args(["--url", url]));
    let first = run_on(url, path, "first");
    assert_eq!(term(path, "first"), 1);
    let _second = run_on(url, path, "second");
    within(PATIENCE, "the second comes next", || {
        said("status").contains("comes next").then_some(())
    });
    drop(first);
    assert_eq!(term(path, "second"), 2);
    within(PATIENCE, "the dead one is thrown out", || {
        let members = said("status").lines().filter(|line| line.starts_with("  p")).count();
        (members == 1).then_some(())
    });
    assert!(said("history").contains("the lease of the one before ran out"));
    assert!(said("explain").contains("stood in the row for a whole lease"), "{}", said("explain"));
}

#[test]
fn on_postgresql_members_need_no_more_than_is_printed() {
    let server = Postgres::launch(&PostgresConfig::default()).unwrap();
    assert!(text(mandate().args(["sql", "init", "--url", &server.url()])).contains("ready"));
    let grants = grants(&server.url(), &[("mandate_user", "modest")]);
    server.sql(&format!("create role modest login; {grants}")).unwrap();
    is_enough(&server.url().replace("mandate@", "modest@"));
    let modest = |statement: &str| server.sql(&format!("set role modest; {statement}"));
    modest("select mandate_fence('backup', -1, 2)").unwrap();
    let refused = modest("select mandate_fence('backup', -1, 1)").unwrap_err().to_string();
    assert!(refused.contains("an old term: 1"), "{refused}");
    let refused = modest("delete from mandate_control").unwrap_err().to_string();
    assert!(refused.contains("permission denied"), "{refused}");
}

#[test]
fn on_mariadb_members_need_no_more_than_is_printed() {
    let server = MariaDb::launch(&MariaDbConfig::default()).unwrap();
    assert!(text(mandate().args(["sql", "init", "--url", &server.url()])).contains("ready"));
    let names = [("app.", "mandate."), ("'mandate'@", "'modest'@")];
    let grants = grants(&server.url(), &names);
    server.sql(&format!("create user 'modest'@'%' identified by 'little'; {grants}")).unwrap();
    is_enough(&format!("mysql://modest:little@127.0.0.1:{}/mandate", server.port()));
    let modest = |statement: &str| {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--host=127.0.0.1", "--user=modest", "--password=little"]);
        client.arg(format!("--port={}", server.port()));
        text(client.args(["--database=mandate", "--execute", statement]))
    };
    assert_eq!(modest("call mandate_fence('backup', -1, 2)"), "");
    let refused = modest("call mandate_fence('backup', -1, 1)");
    assert!(refused.contains("an old term"), "{refused}");
    let refused = modest("delete from mandate_control");
    assert!(refused.contains("denied"), "{refused}");
}
