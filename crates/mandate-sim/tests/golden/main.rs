//! Golden interactions: small groups, exact times, everything that is said between members. They read
//! like the figures of the paper, and change only when the protocol does.
//!
//! `UPDATE_EXPECT=1 cargo test -p mandate-sim --test golden` writes them anew.

mod script;

use std::time::Duration;

use expect_test::expect_file;
use mandate_proto::election::Figures;
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_proto::pole::member::Input;
use mandate_proto::value::Value;
use mandate_sim::fault::{DiskFate, Fault};
use mandate_sim::member;
use script::{Script, Setup};

const LEASED: PeerGuarantee =
    PeerGuarantee::Leased { lease: Duration::from_millis(1000), allowance_per_mille: 10 };

fn setup(size: usize) -> Setup {
    Setup {
        size,
        guarantee: PeerGuarantee::Fenced,
        oracle: "history",
        histories: vec![],
        one_way: 20,
    }
}

#[test]
fn first_election() {
    let mut script = Script::new(Setup { histories: vec![7, 9, 8], ..setup(3) });
    script.note("Three members start; the one with the longest history is to lead.");
    script.run_for(700);
    expect_file!["first-election.txt"].assert_eq(&script.text());
}

#[test]
fn the_leader_crashes() {
    let mut script = Script::settled(Setup { histories: vec![5, 8, 8, 6, 9], ..setup(5) });
    script.note("p5 leads and crashes. All notice by its silence; of equals the higher id wins.");
    script.fault(Fault::Crash(4));
    script.run_for(1500);
    expect_file!["the-leader-crashes.txt"].assert_eq(&script.text());
}

#[test]
fn a_connection_breaks() {
    let mut script = Script::settled(Setup { histories: vec![5, 8, 9], ..setup(3) });
    script.note("p3 leads and crashes; its connections break, and probes find it gone.");
    script.fault(Fault::Crash(2));
    script.tell(0, Input::LinkBroken { member: member(2) });
    script.tell(1, Input::LinkBroken { member: member(2) });
    script.run_for(400);
    expect_file!["a-connection-breaks.txt"].assert_eq(&script.text());
}

#[test]
fn a_value_goes_with_its_term() {
    let mut script = Script::settled(Setup { histories: vec![5, 8, 9], ..setup(3) });
    script
        .note("p3 leads and publishes a value; then it is asked to resign, and the value is gone.");
    script.tell(2, Input::Publish(Value::new("10.0.0.3:80").unwrap()));
    script.run_for(100);
    script.tell(2, Input::Resign);
    script.tell(2, Input::Publish(Value::new("too late").unwrap()));
    script.run_for(400);
    expect_file!["a-value-goes-with-its-term.txt"].assert_eq(&script.text());
}

#[test]
fn a_better_one_comes_back() {
    let mut script = Script::settled(Setup { histories: vec![5, 8, 9], ..setup(3) });
    script.quietly(Fault::Crash(2), 5000);
    script
        .note("p2 leads since p3 crashed. p3 comes back, is the better one, and disturbs nobody.");
    script.fault(Fault::Recover { host: 2, disk: DiskFate::Kept });
    script.run_for(800);
    expect_file!["a-better-one-comes-back.txt"].assert_eq(&script.text());
}

#[test]
fn a_transfer() {
    let mut script = Script::settled(Setup { guarantee: LEASED, ..setup(3) });
    script.note("p3 leads and hands over to p1, whose claim also says that term 1 is free.");
    script.tell(2, Input::Transfer { to: member(0) });
    script.run_for(200);
    expect_file!["a-transfer.txt"].assert_eq(&script.text());
}

#[test]
fn a_resignation() {
    let mut script = Script::settled(Setup { guarantee: LEASED, ..setup(3) });
    script.note("p3 leads and resigns: the others elect at once, and it abstains.");
    script.tell(2, Input::Resign);
    script.run_for(200);
    expect_file!["a-resignation.txt"].assert_eq(&script.text());
}

#[test]
fn a_leader_is_cut_off() {
    let mut script = Script::settled(Setup { guarantee: LEASED, ..setup(3) });
    script.note("p3 leads and is cut off: its lease ends before the others may elect.");
    script.fault(Fault::Partition(0b100));
    script.run_for(2500);
    script.note("The cut heals: p3 follows.");
    script.fault(Fault::Heal);
    script.run_for(700);
    expect_file!["a-leader-is-cut-off.txt"].assert_eq(&script.text());
}

#[test]
fn a_disk_is_lost() {
    let mut script = Script::settled(setup(3));
    script.quietly(Fault::Crash(0), 3000);
    script.note("p1 comes back without its disk. It asks both others what they have promised.");
    script.fault(Fault::Recover { host: 0, disk: DiskFate::Lost });
    script.run_for(800);
    expect_file!["a-disk-is-lost.txt"].assert_eq(&script.text());
}

#[test]
fn a_leader_is_back_at_once() {
    let mut script = Script::settled(Setup { guarantee: LEASED, ..setup(3) });
    script.note("p3 leads, crashes and is back at once: what acts on its mandate may do so until its lease is over.");
    script.fault(Fault::Crash(2));
    script.fault(Fault::Recover { host: 2, disk: DiskFate::Kept });
    script.run_for(1500);
    expect_file!["a-leader-is-back-at-once.txt"].assert_eq(&script.text());
}

#[test]
fn a_leader_is_stopped_and_started() {
    let mut script = Script::settled(Setup { guarantee: LEASED, ..setup(3) });
    script.note("p3 leads, is asked to stop, and is started again: it has written down that its term is over.");
    script.tell(2, Input::Stop);
    script.fault(Fault::Crash(2));
    script.fault(Fault::Recover { host: 2, disk: DiskFate::Kept });
    script.run_for(500);
    expect_file!["a-leader-is-stopped-and-started.txt"].assert_eq(&script.text());
}

#[test]
fn a_disk_went_back() {
    let mut script = Script::settled(Setup { guarantee: LEASED, ..setup(3) });
    script.quietly(Fault::Crash(0), 100);
    script.note(
        "p1 comes back with its disk as it was before it promised term 1. The others remember.",
    );
    script.fault(Fault::Recover { host: 0, disk: DiskFate::Restored(1) });
    script.run_for(1500);
    expect_file!["a-disk-went-back.txt"].assert_eq(&script.text());
}

#[test]
fn requests_decide() {
    let mut script = Script::settled(Setup { oracle: "requests, history", ..setup(3) });
    script.note("p1 gets most requests from now on; p3 leads on until it crashes.");
    let figures = Figures { requests: 50.0, history: Some(1), application: None };
    script.tell(0, Input::Figures(figures));
    script.run_quietly_for(2000);
    script.fault(Fault::Crash(2));
    script.run_for(1300);
    expect_file!["requests-decide.txt"].assert_eq(&script.text());
}
