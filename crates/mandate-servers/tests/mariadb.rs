//! A private MariaDB under faults.

mod clients;

use clients::{Traces, hangs, owner_is_killed};
use mandate_servers::Server;
use mandate_servers::mariadb::{MariaDb, MariaDbConfig};

fn launched() -> MariaDb {
    MariaDb::launch(&MariaDbConfig::default()).expect("it starts")
}

fn sql(server: &MariaDb, statements: &str) -> String {
    server.sql(statements).expect("it answers").trim().to_owned()
}

#[test]
fn what_was_committed_outlives_every_way_to_end() {
    let mut server = launched();
    sql(&server, "create table kept (n int); insert into kept values (1)");
    server.kill().expect("it is killed");
    assert!(server.sql("select 1").is_err(), "nobody answers");
    server.start().expect("it starts again");
    sql(&server, "insert into kept values (2)");
    server.stop().expect("it stops");
    server.start().expect("it starts again");
    assert_eq!(sql(&server, "select count(*) from kept"), "2");
}

#[test]
fn a_frozen_server_says_nothing_and_then_goes_on() {
    let config = MariaDbConfig {
        password: "secret".into(),
        waits_for_disk: true,
        settings: vec![("innodb-lock-wait-timeout".into(), "2".into())],
        ..MariaDbConfig::default()
    };
    let mut server = MariaDb::launch(&config).expect("it starts");
    assert!(server.url().starts_with("mysql://mandate:secret@127.0.0.1:"), "{}", server.url());
    server.freeze().expect("it is frozen");
    assert!(hangs(server.port(), b""), "a frozen server greeted");
    server.resume().expect("it goes on");
    assert_eq!(sql(&server, "select @@innodb_lock_wait_timeout"), "2");
    let traces = Traces::of(&server);
    server.freeze().expect("it is frozen");
    drop(server);
    traces.gone();
}

#[test]
fn nothing_is_left_when_its_owner_is_killed() {
    owner_is_killed("an_owner");
}

#[test]
#[ignore = "the owner that is killed"]
fn an_owner() {
    Traces::of(&launched()).wait_for_death();
}
