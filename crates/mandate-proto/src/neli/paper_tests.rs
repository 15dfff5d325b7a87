//! What the paper says, section by section.

use alloc::vec;

use super::tests::{BARRIER, LIFE, P0, P1, Subject, at, config, grants, ms, stamp};
use super::*;
use crate::identity::MemberId;
use crate::time::WallTime;

/// Non-exclusive: sessions of 300 ms, T of 600 ms, a beat every 75 ms.
fn non_exclusive() -> Subject {
    let mut subject = Subject::new(config(Mode::NonExclusive), grants());
    subject.acknowledge_beats(0);
    subject
}

fn record_of(life: u64, sent: u64) -> LedgerRecord {
    LedgerRecord {
        protocol: PROTOCOL,
        member: MemberId::new(9),
        life: Incarnation::new(life),
        sent_nanos: at(sent).as_nanos(),
        kind: RecordKind::Beat,
        agreement: Agreement { partitions: 2, roles: 1, mode: Mode::NonExclusive },
    }
}

impl Subject {
    /// A stranger's record, stamped by the ledger then, is read at `millis`.
    fn read(&mut self, partition: Partition, stamped: WallTime, millis: u64) {
        let record = Some(record_of(1, 0));
        let input = Input::Record { partition, offset: 5, stamp: stamped, record };
        self.tell(input, millis);
    }

    /// A record of its own, at this offset.
    fn read_own(&mut self, offset: u64, sent: u64, millis: u64) {
        let record = Some(record_of(LIFE.get(), sent));
        let input = Input::Record { partition: P0, offset, stamp: stamp(sent), record };
        self.tell(input, millis);
    }
}

#[test]
fn protocol_definition_each_process_continually_publishes_on_all_partitions() {
    let mut subject = Subject::new(config(Mode::NonExclusive), grants());
    let published = |subject: &Subject| {
        let partition = |request: &LedgerRequest| match request {
            LedgerRequest::Publish { partition, .. } => Some(*partition),
            _ => None,
        };
        subject.asked.iter().filter_map(partition).collect::<alloc::vec::Vec<_>>()
    };
    assert_eq!(published(&subject), [P0, P1], "before anything is assigned");
    subject.acknowledge_beats(0);
    subject.wait_until(75);
    assert_eq!(published(&subject), [P0, P1], "and again");
    subject.wait_until(150);
    assert_eq!(published(&subject), [P0, P1], "but one at a time");
}

#[test]
fn protocol_definition_a_process_leads_a_partition_whose_element_is_current() {
    let mut subject = non_exclusive();
    subject.assign(P0, 10);
    assert!(!subject.leads(P0, 10), "V is zero");
    subject.read(P0, stamp(12), 12);
    assert!(subject.leads(P0, 12) && !subject.leads(P1, 12));
    assert_eq!(subject.told, [Event::Acquired { partition: P0, term: None }]);
    assert!(subject.leads(P0, 611) && !subject.leads(P0, 613), "lapsed by T");
    subject.wait_until(613);
    let loss = RoleLoss::Lapsed;
    assert!(subject.told.contains(&Event::Ended { partition: P0, term: None, loss }));
}

/// "It may presume for a further 20 seconds that it is still leading, allowing for the emerging leader to
/// take over."
#[test]
fn protocol_definition_leadership_outlasts_the_assignment() {
    let mut subject = non_exclusive();
    subject.assign(P0, 10);
    subject.read(P0, stamp(10), 10);
    subject.tell(Input::Revoking { barrier: BARRIER, partitions: vec![P0] }, 20);
    assert!(subject.released(), "given back at once");
    assert!(subject.leads(P0, 600), "and led until T is over");
    subject.read(P0, stamp(30), 30);
    assert!(!subject.leads(P0, 611), "what comes after the revocation does not count");
}

#[test]
fn protocol_definition_a_lost_session_does_not_end_leadership_before_t_does() {
    let mut subject = non_exclusive();
    subject.assign(P0, 10);
    subject.read(P0, stamp(10), 10);
    subject.tell(Input::Lost { partitions: vec![P0] }, 20);
    assert!(subject.leads(P0, 600) && !subject.leads(P0, 611));
}

/// The five steps of "Exclusivity of role assignment", which are no less a nuisance in non-exclusive
/// mode: a process that was paused finds a heap of records.
#[test]
fn exclusivity_backlogged_records_never_revive_a_paused_leader() {
    let mut subject = non_exclusive();
    subject.assign(P0, 10);
    subject.read(P0, stamp(10), 10);
    // Paused from 20 ms to 60 s: what had come until the buffer was full is read now.
    for millis in [75, 150, 225, 300, 500] {
        subject.read(P0, stamp(millis), 60_000);
    }
    assert!(!subject.leads(P0, 60_000));
    // A record of now does.
    subject.read(P0, stamp(59_990), 60_001);
    assert!(subject.leads(P0, 60_001));
}

#[test]
fn exclusivity_no_clocks_need_to_be_synchronised() {
    // Stamps are an hour ahead of this member's clock in all of these tests; here the ledger's clock is
    // set back by two.
    let mut subject = non_exclusive();
    subject.assign(P0, 10);
    subject.read(P0, stamp(10), 10);
    let set_back = |millis: u64| WallTime::from_unix_nanos(millis * 1_000_000);
    subject.wait_until(75);
    subject.read(P0, set_back(76), 76);
    subject.acknowledge_beats(80);
    for (id, millis) in [(100, 80), (101, 81)] {
        let outcome = PublishOutcome::Appended { offset: 0, stamp: set_back(millis) };
        subject.tell(Input::Published { id: RequestId(id), outcome }, millis);
    }
    assert!(subject.leads(P0, 600));
}

/// "Crucial to the protocol is that no partition may 'dry up'."
#[test]
fn protocol_definition_a_partition_that_dried_up_is_told_and_given_back() {
    let mut subject = non_exclusive();
    subject.assign(P0, 0);
    subject.read(P0, stamp(1), 1);
    subject.wait_until(1200);
    let dry = Event::Dry { partition: P0 };
    assert!(!subject.told.contains(&dry), "it is a threshold since it lapsed at 601 ms");
    subject.wait_until(1201);
    assert!(subject.told.contains(&dry));
    assert!(subject.leaves());
}

/// A ledger that does not refuse renewals, but hands records to the owner only.
fn unfenced() -> Subject {
    let delivery = RecordDelivery::AssignedOnly;
    let grants = Grants { fenced: false, delivery, ..grants() };
    let mut subject = Subject::new(config(Mode::Exclusive), grants);
    subject.assign(P0, 0);
    subject
}

/// "Addressing the above requires that the clocks are continually synchronised": not if a member dates
/// only what it sent itself.
#[test]
fn exclusivity_without_fencing_own_records_prove_from_when_they_were_sent() {
    let mut subject = unfenced();
    // The claim, then.
    let id = RequestId(1);
    let outcome = PublishOutcome::Appended { offset: 7, stamp: stamp(1) };
    subject.tell(Input::Published { id, outcome }, 2);
    subject.read(P0, stamp(200), 200);
    assert!(!subject.leads(P0, 200), "what others sent proves nothing");
    subject.read_own(6, 190, 201);
    assert!(!subject.leads(P0, 201), "nor what stands before the claim");
    subject.read_own(8, 190, 202);
    let holding = subject.member.mandate(P0, at(202)).unwrap();
    assert_eq!(holding, Holding { term: Some(Term::new(8)), until: at(290) });
}

/// "q upon detection of leadership assignment will intentionally return false for up to time T."
#[test]
fn exclusivity_the_new_leader_observes_a_grace_period() {
    let mut subject = unfenced();
    let outcome = PublishOutcome::Appended { offset: 7, stamp: stamp(1) };
    subject.tell(Input::Published { id: RequestId(1), outcome }, 2);
    let grace = subject.member.plan().grace();
    assert!(grace > ms(100) && grace < ms(105), "T and drift: {grace:?}");
    subject.read_own(8, 50, 51);
    assert!(!subject.leads(P0, 51));
    subject.wait_until(102);
    assert!(!subject.leads(P0, 102));
    subject.wait_until(103);
    assert!(subject.leads(P0, 103), "by what was proved meanwhile");
    assert!(!subject.leads(P0, 150));
}
