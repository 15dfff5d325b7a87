//! A private PostgreSQL under faults.

mod clients;

use std::time::{Duration, Instant};

use clients::{Traces, hangs, owner_is_killed};
use mandate_servers::Server;
use mandate_servers::postgres::{Postgres, PostgresConfig};

fn launched() -> Postgres {
    Postgres::launch(&PostgresConfig::default()).expect("it starts")
}

fn sql(server: &Postgres, statements: &str) -> String {
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
    let mut server = launched();
    sql(&server, "create table kept (n int)");
    server.freeze().expect("it is frozen");
    assert!(hangs(server.port(), b"\x00\x00\x00\x08\x04\xd2\x16\x2f"), "a frozen server answered");
    server.resume().expect("it goes on");
    assert_eq!(sql(&server, "select count(*) from kept"), "0");
    // And it can be ended while it is frozen.
    server.freeze().expect("it is frozen");
    server.stop().expect("it stops");
    server.start().expect("it starts again");
}

#[test]
fn as_many_clients_as_were_asked_for_connect() {
    let config = PostgresConfig { max_connections: 900, ..PostgresConfig::default() };
    let server = Postgres::launch(&config).expect("it starts");
    assert_eq!(sql(&server, "show max_connections"), "903");
    assert_eq!(sql(&server, "show fsync"), "off");
}

#[test]
fn a_password_is_asked_for_and_the_socket_answers_too() {
    let config = PostgresConfig {
        password: Some("secret".into()),
        waits_for_disk: true,
        settings: vec![("deadlock_timeout".into(), "250ms".into())],
        ..PostgresConfig::default()
    };
    let server = Postgres::launch(&config).expect("it starts");
    assert_eq!(sql(&server, "show fsync"), "on");
    assert_eq!(sql(&server, "show deadlock_timeout"), "250ms");
    assert!(server.url().contains("mandate:secret@127.0.0.1"), "{}", server.url());
    assert!(server.socket_url().contains("%2F"), "{}", server.socket_url());
    assert_eq!(sql(&server, "select count(*) from pg_authid where rolpassword like 'SCRAM%'"), "1");
}

#[test]
fn a_standby_follows_and_may_only_be_read() {
    let server = launched();
    sql(&server, "create table t (n int)");
    let standby = server.standby().expect("it starts");
    assert_eq!(sql(&standby, "select pg_is_in_recovery()"), "t");
    sql(&server, "insert into t values (7)");
    let began = Instant::now();
    while sql(&standby, "select n from t") != "7" {
        assert!(began.elapsed() < Duration::from_secs(120), "it does not follow");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(standby.sql("insert into t values (8)").is_err());
}

#[test]
fn its_use_of_the_processors_is_seen() {
    let server = launched();
    let before = server.cpu_time();
    sql(&server, "select count(*) from generate_series(1, 2000000)");
    // What a session has used is its server's once that has seen it end.
    let began = Instant::now();
    while server.cpu_time() <= before + Duration::from_millis(20) {
        assert!(began.elapsed() < Duration::from_secs(120), "{before:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_is_left_when_it_is_dropped() {
    let mut server = launched();
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
    let mut server = launched();
    let traces = Traces::of(&server);
    // The worst case: its processes do not even notice that it has gone.
    server.freeze().expect("it is frozen");
    traces.wait_for_death();
}
