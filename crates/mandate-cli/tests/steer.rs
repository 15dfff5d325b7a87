//! `mandate steer etcd`: sidecars beside a real cluster of etcd.

#![cfg(feature = "steer")]

mod group;

use std::time::Duration;

use group::{Group, mandate, within};
use mandate_servers::Server;
use mandate_servers::etcd::{Etcd, EtcdConfig};
use mandate_steer::etcd::client::{Endpoint, EtcdAccess, EtcdId};

const SIZE: u32 = 3;
/// A bound for hangs: nobody who is stopped is asked.
const ANSWER: Duration = Duration::from_secs(60);

/// A cluster, and a sidecar beside each member. The higher a member's number, the better it serves.
struct Cluster {
    sidecars: Group,
    members: Vec<Etcd>,
}

impl Cluster {
    fn start(flags: &[&str]) -> Self {
        let configs = EtcdConfig::on_loopback(SIZE as usize).unwrap();
        let members = Etcd::cluster(configs).unwrap();
        let election = "guarantee = 'fenced'\noracle = 'preference'\npreference = $ID";
        let mut cluster = Cluster { sidecars: Group::new(SIZE, election), members };
        (1..=SIZE).for_each(|id| cluster.sidecar(id, flags));
        cluster
    }

    fn sidecar(&mut self, id: u32, flags: &[&str]) {
        let url = self.member(id).url();
        let command = [&["steer", "etcd", "--every", "100ms", "--etcd", &url], flags].concat();
        self.sidecars.start_as(id, &command);
    }

    fn member(&mut self, id: u32) -> &mut Etcd {
        &mut self.members[id as usize - 1]
    }

    fn endpoint(&mut self, id: u32) -> Endpoint {
        Endpoint::new(&self.member(id).url(), &EtcdAccess::default()).unwrap()
    }

    fn id(&mut self, id: u32) -> EtcdId {
        self.endpoint(id).position(ANSWER).unwrap().member
    }

    /// Whom this member takes for the leader of etcd.
    fn leader(&mut self, as_seen_by: u32) -> Option<EtcdId> {
        self.endpoint(as_seen_by).position(ANSWER).ok()?.leader
    }

    fn until_leads(&mut self, id: EtcdId, as_seen_by: u32) {
        within(Duration::from_secs(90), "the best member leads", || {
            (self.leader(as_seen_by) == Some(id)).then_some(())
        });
    }

    fn log(&self, id: u32) -> String {
        self.sidecars.log(id)
    }
}

#[test]
fn the_best_member_leads_and_when_it_dies_the_next_best() {
    let mut cluster = Cluster::start(&["--pause", "1s"]);
    let (second, third) = (cluster.id(2), cluster.id(3));
    cluster.until_leads(third, 1);

    // Its sidecar keeps running, and knows that it has nothing to offer.
    cluster.member(3).kill().unwrap();
    cluster.until_leads(second, 1);
    within(Duration::from_secs(90), "it says why", || {
        cluster.log(3).contains("the own member cannot lead").then_some(())
    });
    // etcd may have elected that one by itself, while the sidecars have not yet.
    within(Duration::from_secs(90), "its sidecar leads, and everyone knows", || {
        let follow = |id| cluster.log(id).contains("following p2");
        (cluster.log(2).contains("LEADING") && follow(1) && follow(3)).then_some(())
    });

    // Back again, it has to be elected first: nothing moves a leader that is well, unless [moves] says so.
    cluster.member(3).start().unwrap();
    within(Duration::from_secs(90), "it is well", || {
        let log = cluster.log(3);
        let last = |words: &str| log.rfind(words);
        let is_well = last("the own member is well") > last("the own member cannot lead");
        is_well.then_some(())
    });
    // On a busy host etcd may elect another by itself for a moment; then leadership comes back here.
    cluster.until_leads(second, 1);
    // A sidecar that dies takes nothing with it: another is elected, and moves leadership to its own member.
    cluster.sidecars.kill(2);
    cluster.until_leads(third, 1);
}

#[test]
fn a_leader_that_is_stopped_is_left_to_etcd_itself() {
    let mut cluster = Cluster::start(&["--pause", "1s"]);
    let third = cluster.id(3);
    cluster.until_leads(third, 1);
    cluster.member(3).freeze().unwrap();
    let next = within(Duration::from_secs(20), "etcd elects", || {
        cluster.leader(1).filter(|leader| *leader != third)
    });
    let second = cluster.id(2);
    cluster.until_leads(second, 1);
    cluster.member(3).resume().unwrap();
    // Nobody tried to move leadership to a member that does not answer.
    assert!(!cluster.log(3).contains("could not be moved"), "{}", cluster.log(3));
    assert!(next != third);
}

#[test]
fn in_shadow_mode_it_is_only_said() {
    // What is moved by hand here is not to be left alone.
    let mut cluster = Cluster::start(&["--shadow", "--respect", "1ms"]);
    let third = cluster.id(3);
    let other = cluster.id(1);
    within(Duration::from_secs(90), "another leads", || {
        if cluster.leader(1) == Some(third) {
            let _ = cluster.endpoint(3).move_leader(other, ANSWER);
        }
        cluster.leader(1).filter(|leader| *leader != third)
    });
    let before = cluster.leader(1);
    within(Duration::from_secs(20), "what would be done", || {
        cluster.log(3).contains("would be moved").then_some(())
    });
    assert_eq!(cluster.leader(1), before);
}

#[test]
fn a_member_that_is_drained_does_not_lead() {
    let mut cluster = Cluster::start(&["--pause", "1s"]);
    let (second, third) = (cluster.id(2), cluster.id(3));
    cluster.until_leads(third, 1);
    let wish = |words: &[&str]| {
        let output = mandate().arg("steer").args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let url = cluster.member(3).url();
    let said = wish(&["drain", "--etcd", &url, "--for", "10m", "--why", "reboot"]);
    assert_eq!(said, format!("{third} is not to lead for 10m\n"));
    cluster.until_leads(second, 1);
    wish(&["resume", "--etcd", &url]);
    let said = wish(&["hold", "--etcd", &url, "--for", "10m"]);
    assert_eq!(said, "etcd's leadership stays where it is for 10m\n");
    // The member that is elected now moves nothing.
    cluster.sidecars.kill(2);
    within(Duration::from_secs(90), "it says why", || {
        let says = |id| cluster.log(id).contains("an operator holds leadership where it is");
        (says(1) || says(3)).then_some(())
    });
    assert_eq!(cluster.leader(1), Some(second));
}

#[test]
fn what_cannot_work_is_refused_with_a_reason() {
    let refused = |group: &Group, flags: &[&str]| {
        let mut command = mandate();
        command.args(["steer", "etcd", "--new", "--config"]).arg(group.config(1)).args(flags);
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let group = Group::new(1, "guarantee = 'fenced'");
    let error = refused(&group, &["--etcd", "127.0.0.1:2379"]);
    assert!(error.contains("write http://HOST:2379"), "{error}");
    let error = refused(&group, &["--etcd", "https://127.0.0.1:2379"]);
    assert!(error.contains("--etcd-ca"), "{error}");
    let group = Group::new(1, "oracle = 'application, latency'");
    assert!(refused(&group, &[]).contains("take it out"));
    let group = Group::new(1, "guarantee = 'overlap'");
    assert!(refused(&group, &[]).contains("by score"));
}
