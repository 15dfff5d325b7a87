//! The bytes of messages, as releases have sent them: kept as files (`fixtures`), read and written again. A change of a message
//! that does not raise the version fails here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mandate_proto::detector::{Beat, Label};
use mandate_proto::identity::{Incarnation, MemberId, Term};
use mandate_proto::neli::{Agreement, LedgerRecord, Mode, PROTOCOL, RecordKind};
use mandate_proto::nfd_l;
use mandate_proto::oracle::{Measure, Measured, NoScore};
use mandate_proto::pole::installation::{
    self, ClaimId, ConfigId, Contact, Entry, Freed, Membership, Promised, Roster, RosterId,
};
use mandate_proto::pole::member::{Handover, Message};
use mandate_proto::pole::selection::{self, Proposal};
use mandate_proto::score::Score;
use mandate_proto::value::Value;
use mandate_proto::wire::{self, Malformed, OLDEST, VERSION, Wire};

const TERM: Term = Term::new(300);
const LIFE: Incarnation = Incarnation::new(0x0123_4567_89ab_cdef);
const OTHER: MemberId = MemberId::new(5);
const LEASE: Duration = Duration::from_millis(1500);
const DIGEST: u64 = 0xfedc_ba98_7654_3210;

fn beat() -> Beat {
    Beat { label: Label::from_nanos(-5_000_000_001), interval: Duration::from_millis(330) }
}

fn value() -> Value {
    Value::new("10.0.0.7:8080").unwrap()
}

fn config(version: u32) -> ConfigId {
    match version {
        4 => ConfigId::new(DIGEST),
        _ => format!("300.2:{DIGEST:016x}").parse().unwrap(),
    }
}

/// What members under election by score say in a version, a message of each kind.
fn messages(version: u32) -> Vec<(&'static str, Message)> {
    use installation::Message as I;
    let (config, install) = (config(version), Message::Installation);
    let id = ClaimId { life: LIFE, count: 7, config };
    let score = |parts: &[f64]| Score::new(parts).unwrap();
    let measured = Measured { values: score(&[12.5, 3.0]), score: score(&[-2.0, 3.0]) };
    let promised = Promised {
        term: TERM,
        to: Some(OTHER),
        life: LIFE,
        lease: LEASE,
        recovered: false,
        released: true,
    };
    let pong = |standing| Message::Pong {
        number: 70_000,
        requests: 120.5,
        life: LIFE,
        has_vote: true,
        standing,
        config,
        promised: TERM,
        speaks: version,
    };
    let ping = |interval| Message::Ping { number: 70_000, requests: 0.25, interval, config };
    let propose =
        |own, best| Message::Selection(selection::Message::Propose { epoch: TERM, own, best });
    let no_quorum = NoScore::NoQuorum { heard: 2, size: 5, quorum: 3 };
    let better = Handover::Better { measure: Measure::Latency, present: 9.5, predicted: 2.25 };
    let freed = Freed { term: Term::new(299), by: OTHER, life: LIFE };
    let mut messages = vec![
        ("ping", ping(None)),
        ("ping-with-interval", ping(Some(Duration::from_millis(100)))),
        ("pong", pong(None)),
        ("pong-with-standing", pong(Some(measured))),
        ("heartbeat", Message::Heartbeat { term: TERM, beat: beat() }),
        ("propose", propose(Ok(measured), Some(Proposal { id: OTHER, score: score(&[1.0]) }))),
        ("propose-never", propose(Err(NoScore::Never), None)),
        ("propose-no-quorum", propose(Err(no_quorum), None)),
        ("propose-unknown", propose(Err(NoScore::Unknown(Measure::Latency)), None)),
        ("propose-no-vote", propose(Err(NoScore::NoVote), None)),
        ("propose-resigned", propose(Err(NoScore::Resigned), None)),
        ("vote", Message::Selection(selection::Message::Vote { epoch: TERM, leader: OTHER })),
        ("claim", install(I::Claim { term: TERM, id, lease: LEASE, freed: None })),
        (
            "claim-that-frees",
            install(I::Claim { term: TERM, id, lease: LEASE, freed: Some(freed) }),
        ),
        ("promise", install(I::Promise { term: TERM, id })),
        ("refuse", install(I::Refuse { term: TERM, promised: Term::new(301) })),
        ("release", install(I::Release { term: TERM, life: LIFE, next: None })),
        ("release-to", install(I::Release { term: TERM, life: LIFE, next: Some(OTHER) })),
        ("ask", install(I::Ask { life: LIFE, round: 3, config })),
        ("report", install(I::Report { life: LIFE, round: 3, by: LIFE, promised: Some(promised) })),
        ("report-of-none", install(I::Report { life: LIFE, round: 3, by: LIFE, promised: None })),
        ("behind", install(I::Behind { term: TERM })),
        ("handover", Message::Handover { term: TERM, to: OTHER, why: Handover::Asked }),
        ("handover-to-better", Message::Handover { term: TERM, to: OTHER, why: better }),
        ("value", Message::Value { term: TERM, revision: 2, value: value() }),
        ("value-taken", Message::ValueTaken { term: TERM, revision: 2, life: LIFE }),
    ];
    if version >= wire::CHANGES_SINCE {
        messages.extend(of_changes(id, config).map(|(name, message)| (name, install(message))));
    }
    messages
}

/// What is said since members come and go.
fn of_changes(id: ClaimId, config: ConfigId) -> [(&'static str, installation::Message); 2] {
    let entry = |number, part, name: &str| {
        let contact = Contact { name: name.into(), address: format!("{name}.example:7101") };
        Entry { id: MemberId::new(number), part, contact }
    };
    let replaces = Some(MemberId::new(2));
    let entries = [
        Entry::voter(MemberId::new(1)),
        entry(2, Membership::Voter { replaces: None, joined: Some(LIFE) }, "orders-2"),
        entry(9, Membership::Learner { replaces }, "orders-9"),
        entry(11, Membership::Observer, "orders-11"),
    ];
    let roster = Roster::new(RosterId { term: TERM, version: 2 }, entries);
    [
        ("follow", installation::Message::Follow { term: TERM, id, joined: LIFE }),
        ("roster", installation::Message::Roster { roster, config }),
    ]
}

fn of_overlap() -> [(&'static str, nfd_l::Message); 3] {
    let heartbeat = nfd_l::Heartbeat { lifetime: LIFE, beat: beat(), uptime: LEASE, priority: 9 };
    [
        ("overlap-heartbeat", nfd_l::Message::Heartbeat(heartbeat)),
        ("overlap-farewell", nfd_l::Message::Farewell { lifetime: LIFE, label: beat().label }),
        ("overlap-ask", nfd_l::Message::Ask { interval: LEASE }),
    ]
}

fn on_ledger() -> [(&'static str, LedgerRecord); 3] {
    let agreement = Agreement { partitions: 8, roles: 1000, mode: Mode::Exclusive };
    let record = |kind| LedgerRecord {
        protocol: PROTOCOL,
        member: OTHER,
        life: LIFE,
        sent_nanos: 12_345_678_901,
        kind,
        agreement,
    };
    [
        ("ledger-beat", record(RecordKind::Beat)),
        ("ledger-claim", record(RecordKind::Claim { value: None })),
        ("ledger-claim-with-value", record(RecordKind::Claim { value: Some(value()) })),
    ]
}

fn path(version: u32) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    folder.join(format!("messages-{version}.txt"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn written<M: Wire>(version: u32, message: &M) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(wire::encode_as(version, message, &mut bytes), "version {version} can say it");
    bytes
}

/// A file's messages by name.
struct Kept {
    version: u32,
    lines: BTreeMap<String, Vec<u8>>,
}

impl Kept {
    fn read(version: u32) -> Self {
        let Ok(text) = std::fs::read_to_string(path(version)) else {
            panic!(
                "{} is missing; of the newest version it is:\n{}",
                path(version).display(),
                frozen()
            )
        };
        let line = |line: &str| {
            let (name, hex) = line.split_once(' ').unwrap();
            (name.to_owned(), bytes(hex))
        };
        Kept { version, lines: text.lines().map(line).collect() }
    }

    /// That a message is kept as it is written today, and is read as what it was.
    fn compare<M: Wire + PartialEq + std::fmt::Debug>(&mut self, name: &str, message: &M) {
        let kept = self.lines.remove(name).unwrap_or_else(|| panic!("{name} is not kept"));
        let version = self.version;
        let read = wire::decode_as::<M>(version, &kept);
        assert_eq!(read.as_ref(), Ok(message), "{name} in version {version}");
        assert_eq!(hex(&written(version, message)), hex(&kept), "{name} in version {version}");
    }
}

#[test]
fn messages_of_every_version_that_is_spoken_are_read_and_written_as_they_were() {
    for version in OLDEST..=VERSION {
        let mut kept = Kept::read(version);
        messages(version).iter().for_each(|(name, message)| kept.compare(name, message));
        of_overlap().iter().for_each(|(name, message)| kept.compare(name, message));
        for (name, record) in on_ledger() {
            // They are in no version of the links.
            let bytes = kept.lines.remove(name).expect("each is kept");
            assert_eq!(wire::decode::<LedgerRecord>(&bytes), Ok(record.clone()), "{name}");
            assert_eq!(hex(&written(VERSION, &record)), hex(&bytes), "{name}");
        }
        let rest: Vec<_> = kept.lines.keys().collect();
        assert!(rest.is_empty(), "nothing is known of {rest:?}");
    }
}

/// The file of the newest version, if it has none yet.
fn frozen() -> String {
    let mut text = String::new();
    let mut line = |name: &str, bytes: Vec<u8>| text += &format!("{name} {}\n", hex(&bytes));
    messages(VERSION).iter().for_each(|(name, it)| line(name, written(VERSION, it)));
    of_overlap().iter().for_each(|(name, it)| line(name, written(VERSION, it)));
    on_ledger().iter().for_each(|(name, it)| line(name, written(VERSION, it)));
    text
}

#[test]
fn what_an_older_version_cannot_say_is_not_said_in_it() {
    let cannot = |message: &Message| !wire::encode_as(OLDEST, message, &mut Vec::new());
    for (name, message) in messages(VERSION) {
        let names_list = matches!(
            message,
            Message::Ping { .. }
                | Message::Pong { .. }
                | Message::Installation(
                    installation::Message::Claim { .. }
                        | installation::Message::Promise { .. }
                        | installation::Message::Ask { .. }
                        | installation::Message::Follow { .. }
                        | installation::Message::Roster { .. }
                )
        );
        assert_eq!(cannot(&message), names_list, "{name}: a list that was changed");
    }
    for version in [0, OLDEST - 1, VERSION + 1] {
        let (_, message) = &messages(OLDEST)[0];
        assert!(!wire::encode_as(version, message, &mut Vec::new()));
        let refused = wire::decode_as::<Message>(version, &written(OLDEST, message));
        assert_eq!(refused, Err(Malformed::OtherVersion(version)));
    }
}

#[test]
fn a_record_of_a_version_to_come_is_none_that_is_known_and_harms_nobody() {
    for (name, record) in on_ledger() {
        let mut bytes = written(VERSION, &record);
        bytes.push(0);
        assert_eq!(wire::decode::<LedgerRecord>(&bytes), Err(Malformed::Trailing(1)), "{name}");
    }
    let another_kind = [vec![3, 5], vec![0; 30]].concat();
    assert!(wire::decode::<LedgerRecord>(&another_kind).is_err());
}
