//! A private ZooKeeper under faults.

mod clients;

use std::time::Duration;

use clients::{Traces, hangs, owner_is_killed};
use mandate_servers::Server;
use mandate_servers::testing::{PATIENCE, within};
use mandate_servers::zookeeper::{ZooKeeper, ZooKeeperConfig};

fn launched() -> ZooKeeper {
    ZooKeeper::launch(&ZooKeeperConfig::default()).expect("it starts")
}

#[test]
fn what_was_written_outlives_every_way_to_end() {
    let mut server = launched();
    assert_eq!(server.shortest_session(), Duration::from_millis(200));
    server.client(&["create", "/kept", "one"]).expect("it is created");
    server.kill().expect("it is killed");
    assert!(server.word("srvr").is_none(), "nobody answers");
    server.start().expect("it starts again");
    assert!(server.client(&["get", "/kept"]).expect("it answers").contains("one"));
    server.stop().expect("it stops");
    server.start().expect("it starts again");
    assert!(server.client(&["get", "/kept"]).expect("it answers").contains("one"));
}

#[test]
fn a_frozen_server_says_nothing_and_then_goes_on() {
    let mut server = launched();
    server.freeze().expect("it is frozen");
    assert!(hangs(server.port(), b"srvr"), "a frozen server answered");
    server.resume().expect("it goes on");
    within(PATIENCE, "it answers again", || {
        server.word("srvr").filter(|answer| answer.contains("standalone"))
    });
    let traces = Traces::of(&server);
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
