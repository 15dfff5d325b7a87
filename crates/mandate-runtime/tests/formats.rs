//! State files as releases have written them, kept as files (`fixtures`): today's members go on from them, and write no newer form
//! than they have to.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::nfd_l;
use mandate_proto::pole::installation::{Contact, MemberChange, PeerGuarantee, RosterId};
use mandate_proto::pole::member::Config;
use mandate_runtime::durable::DurableError;
use mandate_runtime::transport::{Delivery, Frame, Transport};
use mandate_runtime::{Election, Mandate, Protocol, Setup, Start, StartError};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// A bound is for what hangs, not for speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The group and the member of the files.
const GROUP: &str = "orders";
const ME: MemberId = MemberId::new(1);

/// Nobody else is there.
struct Nowhere;

impl Transport for Nowhere {
    fn send(&self, _: MemberId, _: Delivery, _: Frame) {}
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A copy of a file, that a member may write to.
fn copy(name: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p1.state");
    std::fs::copy(fixture(name), &path).unwrap();
    (directory, path)
}

fn config(newest: u32) -> Config {
    let (interval, detect) = (Duration::from_millis(330), Duration::from_secs(1));
    let guarantee = PeerGuarantee::Leased { lease: detect, allowance_per_mille: 10 };
    Config::new(ME, [ME], interval, detect)
        .and_then(|config| config.with_guarantee(guarantee))
        .and_then(|config| config.with_protocol(newest))
        .unwrap()
}

fn setup(state: &Path, protocol: Protocol, start: Start) -> Setup {
    Setup { protocol, group: GROUP.into(), state: state.to_owned(), start }
}

fn pole() -> Protocol {
    Protocol::Pole(config(mandate_proto::wire::VERSION))
}

fn start(setup: Setup) -> Election {
    let (_, inbound) = mpsc::channel(1);
    Election::start(setup, Arc::new(Nowhere), inbound).unwrap()
}

async fn led(election: &Election) -> Mandate {
    timeout(PATIENCE, election.led()).await.expect("it leads").expect("it runs")
}

fn first_line(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap().lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn a_member_goes_on_from_the_state_of_the_release_before_it_in_the_form_of_that() {
    for (name, promised) in [("state-4-crashed", 1), ("state-4-ended", 1)] {
        let (_directory, path) = copy(name);
        let election = start(setup(&path, pole(), Start::Stored));
        let mandate = led(&election).await;
        assert_eq!(mandate.term().get(), promised + 1, "{name}: terms go on");
        election.shutdown().await;
        // So the release before it could go on from that.
        assert_eq!(first_line(&path), "mandate state 1", "{name}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("roster") && !text.contains("joined"), "{name}: {text}");
    }
}

#[tokio::test]
async fn a_member_of_a_group_without_terms_goes_on_from_the_state_of_the_release_before_it() {
    let (_directory, path) = copy("state-4-overlap");
    let before = std::fs::read_to_string(&path).unwrap();
    let (interval, detect) = (Duration::from_millis(330), Duration::from_secs(1));
    let config = nfd_l::Config::new(ME, interval, detect).unwrap();
    let protocol = Protocol::NfdL { config, members: vec![ME] };
    let election = start(setup(&path, protocol, Start::Stored));
    led(&election).await;
    election.shutdown().await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before, "it is written once in a lifetime");
}

#[tokio::test]
async fn a_list_that_was_changed_is_kept_in_a_form_of_its_own() {
    let name = "state-5-changed";
    if std::env::var_os("MANDATE_FREEZE").is_some() && !fixture(name).exists() {
        freeze(&fixture(name)).await;
    }
    let (_directory, path) = copy(name);
    assert_eq!(first_line(&path), "mandate state 2");
    let prepared = Election::prepare(setup(&path, pole(), Start::Stored)).unwrap();
    let roster = prepared.roster().unwrap();
    let entry = roster.entry(MemberId::new(9)).unwrap();
    assert_eq!(entry.contact.address, "db9.example:7101");
    assert!(roster.id() > RosterId::SEED && !entry.is_voter() && roster.has_voter(ME));
    drop(prepared);
    // What such a member cannot be held back to.
    let held = Protocol::Pole(config(4));
    let refused = Election::prepare(setup(&path, held, Start::Stored)).unwrap_err();
    assert!(matches!(refused, StartError::HeldBack { speaks: 4, needed: 5 }), "{refused}");
    let election = start(setup(&path, pole(), Start::Stored));
    led(&election).await;
    assert_eq!(election.members().borrow().as_ref(), Some(&roster), "nothing is lost");
    election.shutdown().await;
}

/// Writes the file: the group of one has added one that observes.
async fn freeze(to: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p1.state");
    let election = start(setup(&path, pole(), Start::New));
    led(&election).await;
    let contact = Contact { name: "orders-9".into(), address: "db9.example:7101".into() };
    let change = MemberChange::Observe { member: MemberId::new(9), contact };
    election.change_members(change).await.unwrap();
    election.shutdown().await;
    std::fs::copy(path, to).unwrap();
}

#[test]
fn the_form_of_a_release_to_come_is_refused_by_name_and_stays_as_it_is() {
    let (_directory, path) = copy("state-5-changed");
    let newer =
        std::fs::read_to_string(&path).unwrap().replacen("mandate state 2", "mandate state 3", 1);
    std::fs::write(&path, &newer).unwrap();
    let refused = Election::prepare(setup(&path, pole(), Start::Stored)).unwrap_err();
    let StartError::Durable(error @ DurableError::Newer { form: 3, .. }) = refused else {
        panic!("{refused}")
    };
    assert!(error.to_string().contains("written by a newer release"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), newer);
}
