//! A private Galera cluster under faults.

mod clients;

use std::time::{Duration, Instant};

use clients::Traces;
use mandate_servers::Server;
use mandate_servers::galera::{Galera, GaleraNode};
use mandate_servers::mariadb::MariaDbConfig;

fn sql(node: &GaleraNode, statements: &str) -> String {
    node.sql(statements).expect("it answers").trim().to_owned()
}

fn size(node: &GaleraNode) -> String {
    sql(node, "show status like 'wsrep_cluster_size'")
}

/// Waits for a condition.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let by = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < by, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn nodes_are_lost_one_by_one_and_all_at_once_and_nothing_that_was_written() {
    let mut cluster = Galera::launch(&MariaDbConfig::default()).expect("it starts");
    assert_eq!(cluster.urls().len(), 3);
    sql(&cluster.nodes()[0], "create table kept (n int primary key); insert into kept values (1)");
    until("it is everywhere", || {
        let count = |node: &GaleraNode| node.sql("select count(*) from kept").unwrap_or_default();
        cluster.nodes().iter().all(|node| count(node).trim() == "1")
    });
    // A node is killed: the others go on after their timeout of a second or so.
    cluster.nodes_mut()[2].kill().expect("it is killed");
    until("two are left", || size(&cluster.nodes()[0]).ends_with('2'));
    // The other one may hear of it a moment later.
    until("two go on", || cluster.nodes()[1].sql("insert ignore into kept values (2)").is_ok());
    cluster.nodes_mut()[2].start().expect("it comes back");
    assert_eq!(sql(&cluster.nodes()[2], "select count(*) from kept"), "2");
    // One is frozen for longer than that timeout, and goes on.
    cluster.nodes_mut()[0].freeze().expect("it is frozen");
    until("two are left", || size(&cluster.nodes()[1]).ends_with('2'));
    cluster.nodes_mut()[0].resume().expect("it goes on");
    until("all are together", || size(&cluster.nodes()[1]).ends_with('3'));
    // All are killed.
    let traces: Vec<_> = cluster.nodes().iter().map(|node| Traces::of(node)).collect();
    for node in cluster.nodes_mut() {
        node.kill().expect("it is killed");
    }
    cluster.start().expect("they come back");
    assert_eq!(sql(&cluster.nodes()[1], "select count(*) from kept"), "2");
    until("all are together", || size(&cluster.nodes()[1]).ends_with('3'));
    drop(cluster);
    traces.iter().for_each(Traces::gone);
}
