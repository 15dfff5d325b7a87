//! A member against a ledger that a test plays: each request is answered when and how the test says.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::*;
use crate::identity::MemberId;
use crate::time::WallTime;

pub(super) const LIFE: Incarnation = Incarnation::new(77);
pub(super) const BARRIER: BarrierId = BarrierId::new(3);
pub(super) const P0: Partition = Partition::new(0);
pub(super) const P1: Partition = Partition::new(1);

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn at(millis: u64) -> Instant {
    Instant::ORIGIN + ms(millis)
}

/// The ledger's clock: an hour ahead of everyone's.
pub(super) fn stamp(millis: u64) -> WallTime {
    WallTime::from_unix_nanos(3_600_000_000_000 + millis * 1_000_000)
}

/// Two partitions, sessions of 300 ms.
pub(super) fn grants() -> Grants {
    Grants {
        partitions: NonZeroU32::new(2).unwrap(),
        session: ms(300),
        heartbeat: ms(100),
        barrier: ms(1000),
        fenced: true,
        renews_through_joins: false,
        delivery: RecordDelivery::Anyone,
    }
}

/// In exclusive mode T is 100 ms, and there is a renewal every 25 ms.
pub(super) fn config(mode: Mode) -> Config {
    let config = Config::new(MemberId::new(1), mode);
    match mode {
        Mode::Exclusive => config.with_threshold(ms(100)),
        Mode::NonExclusive => config,
    }
}

/// A member, what it has asked for and what it has told.
pub(super) struct Subject {
    pub(super) member: Member,
    pub(super) asked: Vec<LedgerRequest>,
    pub(super) told: Vec<Event>,
    /// What the ledger keeps of its renewals that were taken up to be answered.
    pub(super) kept: BTreeMap<Partition, Mark>,
}

impl Subject {
    /// In non-exclusive mode on a ledger that keeps no marks, unless a test is about those.
    pub(super) fn new(config: Config, grants: Grants) -> Self {
        let mode = config.resolve(grants).unwrap().mode();
        let fenced = grants.fenced && mode == Mode::Exclusive;
        Subject::on(config, Grants { fenced, ..grants })
    }

    /// A member that has found no other layout at its first look.
    pub(super) fn on(config: Config, grants: Grants) -> Self {
        let mut subject = Subject::arriving(config, grants);
        subject.looked(&[], 0);
        assert!(subject.asked.contains(&LedgerRequest::Join));
        subject
    }

    /// A member whose first look, if the ledger keeps marks, is under way.
    pub(super) fn arriving(config: Config, grants: Grants) -> Self {
        let mut effects = Effects::new();
        let plan = config.resolve(grants).unwrap();
        let member = Member::start(plan, LIFE, at(0), &mut effects);
        let mut subject =
            Subject { member, asked: Vec::new(), told: Vec::new(), kept: BTreeMap::new() };
        subject.keep(effects);
        subject
    }

    pub(super) fn exclusive() -> Self {
        Subject::new(config(Mode::Exclusive), grants())
    }

    /// Leads partition 0 in term 8, by a renewal sent and accepted at 0 ms.
    pub(super) fn leading() -> Self {
        let mut subject = Subject::exclusive();
        subject.assign(P0, 0);
        subject.append(7, 0);
        subject.renewed(Renewed::Accepted, 0);
        assert_eq!(subject.term(0), Some(8));
        subject
    }

    fn keep(&mut self, mut effects: Effects<Effect>) {
        for effect in effects.drain() {
            match effect {
                Effect::Ask(request) => self.asked.push(request),
                Effect::Abandon { id } => self.asked.retain(|request| id_of(request) != Some(id)),
                Effect::Tell(event) => self.told.push(event),
            }
        }
    }

    pub(super) fn tell(&mut self, input: Input, millis: u64) {
        let mut effects = Effects::new();
        self.member.handle(input, at(millis), &mut effects);
        self.keep(effects);
    }

    pub(super) fn wait_until(&mut self, millis: u64) {
        while let Some(due) = self.member.deadline().filter(|due| *due <= at(millis)) {
            let mut effects = Effects::new();
            self.member.handle_timeout(due, &mut effects);
            assert!(self.member.deadline().is_none_or(|next| next > due), "dealt with");
            self.keep(effects);
        }
    }

    pub(super) fn assign(&mut self, partition: Partition, millis: u64) {
        self.tell(Input::Assigned { partitions: vec![partition] }, millis);
    }

    pub(super) fn revoke(&mut self, partition: Partition, millis: u64) {
        self.tell(Input::Revoking { barrier: BARRIER, partitions: vec![partition] }, millis);
    }

    /// Ends the oldest publication of this kind with an offset.
    fn publication(&mut self, wanted: RecordKind) -> RequestId {
        let place = self.asked.iter().position(
            |request| matches!(request, LedgerRequest::Publish { record, .. } if record.kind == wanted),
        );
        let request = self.asked.remove(place.expect("a publication under way"));
        id_of(&request).unwrap()
    }

    /// A claim comes to stand behind one that is over, as the ledger says if it is asked.
    pub(super) fn append(&mut self, offset: u64, millis: u64) {
        while self.asked.iter().any(|request| matches!(request, LedgerRequest::Inspect { .. })) {
            self.inspected(Some(Mark::Over { term: Term::new(offset) }), millis);
        }
        self.append_behind_others(offset, millis);
    }

    /// Ends an inspection: this is what the ledger keeps of each partition.
    pub(super) fn inspected(&mut self, mark: Option<Mark>, millis: u64) {
        let place =
            self.asked.iter().position(|request| matches!(request, LedgerRequest::Inspect { .. }));
        let request = self.asked.remove(place.expect("an inspection under way"));
        let marks = mark.map(|mark| vec![(P0, mark), (P1, mark)]).unwrap_or_default();
        let id = id_of(&request).unwrap();
        self.tell(Input::Inspected { id, marks: Some(marks) }, millis);
    }

    pub(super) fn append_behind_others(&mut self, offset: u64, millis: u64) {
        let id = self.publication(RecordKind::Claim { value: None });
        let outcome = PublishOutcome::Appended { offset, stamp: stamp(millis) };
        self.tell(Input::Published { id, outcome }, millis);
    }

    pub(super) fn acknowledge_beats(&mut self, millis: u64) {
        let beats: Vec<_> = self.asked.iter().filter_map(id_of).collect();
        self.asked.clear();
        for id in beats {
            let outcome = PublishOutcome::Appended { offset: 0, stamp: stamp(millis) };
            self.tell(Input::Published { id, outcome }, millis);
        }
    }

    pub(super) fn renewal(&mut self) -> RequestId {
        let place =
            self.asked.iter().position(|request| matches!(request, LedgerRequest::Renew { .. }));
        let request = self.asked.remove(place.expect("a renewal under way"));
        if let LedgerRequest::Renew { marks, .. } = &request {
            self.kept.extend(marks.iter().copied());
        }
        id_of(&request).unwrap()
    }

    pub(super) fn renewed(&mut self, outcome: Renewed, millis: u64) {
        let id = self.renewal();
        self.tell(Input::Renewed { id, outcome }, millis);
        self.looked(&[], millis);
    }

    /// What the ledger shows: what it keeps of this member, and these marks of others, which came later.
    pub(super) fn shown(&self, others: &[(Partition, Mark)]) -> Vec<(Partition, Mark)> {
        let mut shown = self.kept.clone();
        shown.extend(others.iter().copied());
        shown.into_iter().collect()
    }

    /// Answers a look at the marks of the whole group, if one is under way: its own, and these.
    pub(super) fn looked(&mut self, others: &[(Partition, Mark)], millis: u64) {
        self.looked_at(&self.shown(others), millis);
    }

    /// Answers a look with these marks and no others.
    pub(super) fn looked_at(&mut self, marks: &[(Partition, Mark)], millis: u64) {
        let is_look = |one: &LedgerRequest| matches!(one, LedgerRequest::Inspect { partitions, .. } if partitions.is_empty());
        if let Some(place) = self.asked.iter().position(is_look) {
            let id = id_of(&self.asked.remove(place)).unwrap();
            self.tell(Input::Inspected { id, marks: Some(marks.to_vec()) }, millis);
        }
    }

    pub(super) fn term(&self, millis: u64) -> Option<u64> {
        self.member.mandate(P0, at(millis))?.term.map(Term::get)
    }

    pub(super) fn leads(&self, partition: Partition, millis: u64) -> bool {
        self.member.mandate(partition, at(millis)).is_some()
    }

    pub(super) fn released(&self) -> bool {
        self.last_words().is_some()
    }

    /// What the ledger was to keep of partition 0 when it was released.
    pub(super) fn last_words(&self) -> Option<Vec<(Partition, Mark)>> {
        self.asked.iter().find_map(|request| match request {
            LedgerRequest::Release { barrier: BARRIER, partitions, marks }
                if *partitions == [P0] =>
            {
                Some(marks.clone())
            }
            _ => None,
        })
    }

    /// Whether leaving was the last that it asked for.
    pub(super) fn leaves(&self) -> bool {
        matches!(self.asked.last(), Some(LedgerRequest::Leave { .. }))
    }

    pub(super) fn losses(&self) -> Vec<RoleLoss> {
        let loss = |event: &Event| match event {
            Event::Ended { loss, .. } => Some(*loss),
            _ => None,
        };
        self.told.iter().filter_map(loss).collect()
    }
}

fn id_of(request: &LedgerRequest) -> Option<RequestId> {
    match request {
        LedgerRequest::Publish { id, .. }
        | LedgerRequest::Renew { id, .. }
        | LedgerRequest::Inspect { id, .. } => Some(*id),
        LedgerRequest::Join | LedgerRequest::Release { .. } | LedgerRequest::Leave { .. } => None,
    }
}

#[test]
fn it_starts_as_no_leader_and_asks_to_join() {
    let subject = Subject::exclusive();
    assert_eq!(subject.asked, [LedgerRequest::Join]);
    assert!(!subject.leads(P0, 0) && !subject.leads(P1, 0));
}

#[test]
fn an_assignment_is_claimed_then_confirmed_and_told_once() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    assert!(!subject.leads(P0, 0), "assigned is not yet confirmed");
    subject.append(7, 5);
    assert!(!subject.leads(P0, 5), "a claim is not yet confirmed");
    subject.renewed(Renewed::Accepted, 12);
    let term = Term::new(8);
    assert_eq!(subject.told, [Event::Acquired { partition: P0, term: Some(term) }]);
    let holding = subject.member.mandate(P0, at(12)).unwrap();
    assert_eq!(holding.until, at(105), "from before the renewal was sent at 5 ms");
    subject.wait_until(30);
    subject.renewed(Renewed::Accepted, 31);
    assert_eq!(subject.told.len(), 1);
    assert!(subject.leads(P0, 129) && !subject.leads(P0, 130));
}

#[test]
fn revoking_another_partition_changes_nothing() {
    let mut subject = Subject::leading();
    subject.revoke(P1, 10);
    assert!(subject.leads(P0, 10));
    subject.tell(Input::Lost { partitions: vec![P1, Partition::new(99)] }, 11);
    assert!(subject.leads(P0, 11));
}

#[test]
fn renewals_that_fail_let_leadership_lapse_while_assigned_and_the_next_claim_has_a_higher_term() {
    let mut subject = Subject::leading();
    for millis in [25, 50] {
        subject.wait_until(millis);
        subject.renewed(Renewed::Failed, millis);
    }
    subject.wait_until(75);
    assert!(subject.leads(P0, 99));
    assert!(!subject.leads(P0, 100), "by the clock, before anyone told the machine");
    subject.wait_until(100);
    assert_eq!(subject.losses(), [RoleLoss::Lapsed]);
    subject.tell(Input::Drained { partition: P0 }, 101);
    assert!(!subject.released(), "nobody wants it back");
    subject.append(20, 110);
    // The renewal that was under way when it lapsed confirms nothing of the new claim.
    subject.renewed(Renewed::Accepted, 111);
    assert!(!subject.leads(P0, 111));
    subject.renewed(Renewed::Accepted, 112);
    assert_eq!(subject.term(112), Some(21));
}

#[test]
fn a_renewal_that_is_slow_but_succeeds_counts_from_its_sending() {
    let mut subject = Subject::leading();
    subject.wait_until(25);
    subject.renewed(Renewed::Accepted, 70);
    assert!(subject.leads(P0, 124) && !subject.leads(P0, 125));
}

#[test]
fn an_answer_that_comes_after_its_time_proves_nothing() {
    let mut subject = Subject::leading();
    subject.wait_until(25);
    let id = subject.renewal();
    subject.tell(Input::Renewed { id, outcome: Renewed::Accepted }, 130);
    assert!(!subject.leads(P0, 130));
    assert_eq!(subject.losses(), [RoleLoss::Lapsed]);
}

#[test]
fn an_unknown_outcome_proves_nothing_and_the_next_renewal_tells() {
    let mut subject = Subject::leading();
    subject.wait_until(25);
    subject.renewed(Renewed::Unknown, 30);
    assert!(!subject.leads(P0, 100));
    let failed = Event::Failed { undertaking: Undertaking::Renewing, times: 1, unknown: true };
    assert!(subject.told.contains(&failed));
    subject.wait_until(50);
    subject.renewed(Renewed::Accepted, 51);
    assert!(subject.leads(P0, 149));
}

#[test]
fn a_renewal_without_an_answer_is_given_up_and_made_again() {
    let mut subject = Subject::leading();
    subject.wait_until(25);
    let first = subject.asked.last().cloned();
    subject.wait_until(75);
    assert_eq!(subject.asked.len(), 2, "Join and one renewal: {:?}", subject.asked);
    assert_ne!(subject.asked.last().cloned(), first);
}

#[test]
fn a_refusal_ends_leadership_at_once_and_a_new_claim_is_needed() {
    let mut subject = Subject::leading();
    subject.wait_until(25);
    subject.renewed(Renewed::Refused, 26);
    assert!(!subject.leads(P0, 26));
    assert_eq!(subject.losses(), [RoleLoss::Fenced]);
    subject.wait_until(51);
    subject.append(8, 52);
    subject.renewed(Renewed::Accepted, 53);
    assert_eq!(subject.term(53), None, "claimed when it may have been nobody's");
    subject.append(9, 54);
    subject.wait_until(77);
    subject.renewed(Renewed::Accepted, 78);
    assert_eq!(subject.term(78), Some(10), "at once: the term before was its own");
}

/// Others may have had the partition until a renewal is accepted again, since a client comes back when it likes: they are waited for from
/// then on, and not from the refusal.
#[test]
fn after_a_refusal_whoever_had_the_partition_meanwhile_is_waited_for() {
    let mut subject = Subject::leading();
    subject.wait_until(25);
    subject.renewed(Renewed::Refused, 26);
    let others = Mark::Held { term: Term::new(20), lease: ms(100), holder: None };
    subject.wait_until(51);
    subject.inspected(Some(others), 51);
    subject.append_behind_others(20, 52);
    subject.renewed(Renewed::Accepted, 53);
    // Another was assigned at 30 ms, say, and had a renewal accepted at 50 ms: it leads until 150 ms.
    subject.inspected(Some(others), 53);
    subject.append_behind_others(22, 54);
    let mut began = None;
    for millis in 55..=300 {
        subject.wait_until(millis);
        while subject.asked.iter().any(|one| matches!(one, LedgerRequest::Renew { .. })) {
            subject.renewed(Renewed::Accepted, millis);
        }
        if subject.leads(P0, millis) && began.is_none() {
            began = Some(millis);
        }
    }
    assert!(began.is_some_and(|began| began > 53 + 100), "{began:?}");
    assert_eq!(subject.term(300), Some(23));
}

/// A client whose session was over comes back by itself, and its next commit is taken: others have led meanwhile.
#[test]
fn a_renewal_that_comes_through_after_a_session_proves_nothing_of_the_time_before() {
    let mut subject = Subject::leading();
    subject.wait_until(100);
    assert_eq!(subject.losses(), [RoleLoss::Lapsed]);
    subject.tell(Input::Drained { partition: P0 }, 101);
    subject.wait_until(295);
    subject.append_behind_others(20, 298);
    while subject.asked.iter().any(|one| matches!(one, LedgerRequest::Renew { .. })) {
        subject.renewed(Renewed::Accepted, 299);
    }
    assert!(!subject.leads(P0, 299), "it was heard of last at 0 ms");
    subject.wait_until(300);
    subject.inspected(Some(Mark::Held { term: Term::new(20), lease: ms(100), holder: None }), 300);
    subject.append_behind_others(21, 300);
    for millis in (300..402).step_by(2) {
        subject.wait_until(millis);
        if subject.asked.iter().any(|one| matches!(one, LedgerRequest::Renew { .. })) {
            subject.renewed(Renewed::Accepted, millis);
        }
        assert!(!subject.leads(P0, millis), "{millis}: the next assignment began at 299 ms");
    }
    subject.wait_until(403);
    assert_eq!(subject.term(403), Some(22));
}

/// The topic has more partitions than was said: the ledger waits for all that it wants back.
#[test]
fn a_partition_that_is_not_known_is_released_at_once_with_the_others() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    let partitions = vec![P0, Partition::new(99)];
    subject.tell(Input::Revoking { barrier: BARRIER, partitions: partitions.clone() }, 1);
    let released = LedgerRequest::Release { barrier: BARRIER, partitions, marks: Vec::new() };
    assert_eq!(subject.asked.last(), Some(&released));
}

#[test]
fn a_revoked_partition_is_led_no_more_then_drained_then_released() {
    let mut subject = Subject::leading();
    subject.revoke(P0, 10);
    assert!(!subject.leads(P0, 10));
    assert_eq!(subject.losses(), [RoleLoss::Revoked]);
    assert!(!subject.released(), "work is under way");
    assert_eq!(subject.member.drains(P0), Some(at(510)));
    subject.tell(Input::Drained { partition: P0 }, 40);
    assert!(subject.released());
    assert_eq!(subject.member.drains(P0), None);
}

#[test]
fn work_that_does_not_end_is_not_waited_for_longer_than_allowed() {
    let mut subject = Subject::leading();
    subject.revoke(P0, 10);
    subject.wait_until(509);
    assert!(!subject.released());
    subject.wait_until(510);
    assert!(subject.released(), "half of what the ledger waits for");
    assert!(subject.told.contains(&Event::DrainOverran { partition: P0 }));
    assert_eq!(subject.last_words(), Some(vec![]), "nothing is said to be over while work runs");
    let mut subject = Subject::leading();
    subject.tell(Input::Leave, 10);
    subject.wait_until(510);
    assert!(
        matches!(subject.asked.last(), Some(LedgerRequest::Leave { marks }) if marks.is_empty())
    );
}

#[test]
fn work_that_lapsed_and_has_not_ended_holds_the_barrier_too() {
    let mut subject = Subject::leading();
    subject.wait_until(100);
    assert_eq!(subject.losses(), [RoleLoss::Lapsed]);
    assert_eq!(subject.member.drains(P0), None, "nothing waits for what has lapsed");
    subject.revoke(P0, 101);
    assert!(!subject.released());
    subject.tell(Input::Drained { partition: P0 }, 102);
    assert!(subject.released());
}

#[test]
fn an_idle_partition_is_released_at_once() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    subject.revoke(P0, 1);
    assert!(subject.released());
}

#[test]
fn a_renewal_of_an_earlier_assignment_proves_nothing_of_the_next() {
    let mut subject = Subject::leading();
    subject.wait_until(25);
    let id = subject.renewal();
    subject.revoke(P0, 26);
    subject.tell(Input::Drained { partition: P0 }, 27);
    // Meanwhile another had it, and gave it back.
    subject.assign(P0, 40);
    subject.tell(Input::Renewed { id, outcome: Renewed::Accepted }, 41);
    assert!(!subject.leads(P0, 41));
}

#[test]
fn a_claim_of_an_earlier_assignment_gives_no_term_in_the_next() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    let id = subject.publication(RecordKind::Claim { value: None });
    subject.tell(Input::Lost { partitions: vec![P0] }, 1);
    subject.assign(P0, 20);
    let outcome = PublishOutcome::Appended { offset: 5, stamp: stamp(2) };
    subject.tell(Input::Published { id, outcome }, 21);
    assert!(
        !subject.asked.iter().any(|request| matches!(request, LedgerRequest::Renew { .. })),
        "nothing to confirm yet"
    );
    subject.append(9, 22);
    subject.renewed(Renewed::Accepted, 23);
    assert_eq!(subject.term(23), Some(10));
}

#[test]
fn a_claim_carries_the_value_and_it_is_told_with_its_term_and_gone_with_it() {
    let value = |text: &str| Value::new(text).unwrap();
    let mut subject = Subject::exclusive();
    subject.tell(Input::Value(Some(value("a"))), 0);
    subject.assign(P0, 0);
    let id = subject.publication(RecordKind::Claim { value: Some(value("a")) });
    // What is given later is for the next claim.
    subject.tell(Input::Value(Some(value("b"))), 1);
    while subject.asked.iter().any(|it| matches!(it, LedgerRequest::Inspect { .. })) {
        subject.inspected(Some(Mark::Over { term: Term::new(4) }), 1);
    }
    let outcome = PublishOutcome::Appended { offset: 4, stamp: stamp(1) };
    subject.tell(Input::Published { id, outcome }, 2);
    assert_eq!(subject.member.value(P0, at(2)), None, "not confirmed yet");
    subject.renewed(Renewed::Accepted, 3);
    let term = Term::new(5);
    let told: Vec<_> = subject.told.iter().rev().take(2).rev().cloned().collect();
    let published = Event::Published { partition: P0, term, value: value("a") };
    assert_eq!(told, [Event::Acquired { partition: P0, term: Some(term) }, published]);
    assert_eq!(subject.member.value(P0, at(3)), Some(&value("a")));
    subject.tell(Input::Lost { partitions: vec![P0] }, 4);
    assert_eq!(subject.member.value(P0, at(4)), None);
    subject.assign(P0, 20);
    subject.publication(RecordKind::Claim { value: Some(value("b")) });
}

#[test]
fn a_claim_without_a_value_has_the_bytes_that_it_always_had() {
    let agreement = Agreement { partitions: 1, roles: 1, mode: Mode::Exclusive };
    let record = |kind| LedgerRecord {
        protocol: PROTOCOL,
        member: MemberId::new(7),
        life: Incarnation::new(9),
        sent_nanos: 3,
        kind,
        agreement,
    };
    let bytes = |kind| {
        let mut bytes = Vec::new();
        crate::wire::encode(&record(kind), &mut bytes);
        bytes
    };
    // Version, member, incarnation, time, kind, agreement.
    assert_eq!(bytes(RecordKind::Claim { value: None })[..5], [2, 7, 9, 3, 1]);
    assert_eq!(bytes(RecordKind::Beat)[..5], [2, 7, 9, 3, 0]);
    let kind = RecordKind::Claim { value: Value::new("a").ok() };
    let with_value = bytes(kind.clone());
    assert_eq!(with_value[..7], [2, 7, 9, 3, 2, 1, b'a']);
    assert_eq!(crate::wire::decode(&with_value), Ok(record(kind)));
}

#[test]
fn a_claim_whose_outcome_is_unknown_is_made_again_under_another_offset() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    let id = subject.publication(RecordKind::Claim { value: None });
    subject.tell(Input::Published { id, outcome: PublishOutcome::Unknown }, 10);
    subject.wait_until(35);
    subject.append(4, 36);
    subject.renewed(Renewed::Accepted, 37);
    assert_eq!(subject.term(37), Some(5));
}

#[test]
fn offsets_that_go_back_are_told_and_not_led_under() {
    let mut subject = Subject::leading();
    subject.tell(Input::Lost { partitions: vec![P0] }, 10);
    subject.assign(P0, 20);
    subject.append(2, 21);
    let (from, to) = (Term::new(8), Term::new(3));
    assert!(subject.told.contains(&Event::WentBack { partition: P0, from, to }));
    assert!(!subject.asked.iter().any(|request| matches!(request, LedgerRequest::Renew { .. })));
}

#[test]
fn a_session_that_is_lost_ends_everything_without_a_release() {
    let mut subject = Subject::leading();
    subject.tell(Input::Lost { partitions: vec![P0] }, 10);
    assert!(!subject.leads(P0, 10) && !subject.released());
    assert_eq!(subject.losses(), [RoleLoss::Lost]);
}

#[test]
fn leaving_stops_first_drains_then_leaves_and_nothing_comes_after() {
    let mut subject = Subject::leading();
    subject.tell(Input::Leave, 10);
    assert!(!subject.leads(P0, 10));
    assert!(!subject.leaves());
    subject.tell(Input::Drained { partition: P0 }, 30);
    assert!(subject.leaves());
    assert_eq!(subject.told.last(), Some(&Event::Left));
    assert_eq!(subject.member.deadline(), None);
    subject.assign(P0, 40);
    assert!(subject.leaves());
}

#[test]
fn leaving_is_bounded_even_if_work_never_ends() {
    let mut subject = Subject::leading();
    subject.tell(Input::Leave, 10);
    subject.wait_until(510);
    assert!(subject.leaves());
}

#[test]
fn who_resigns_rests_and_joins_again() {
    let mut subject = Subject::leading();
    subject.tell(Input::Resign, 10);
    subject.tell(Input::Drained { partition: P0 }, 10);
    assert!(subject.leaves());
    subject.wait_until(309);
    assert!(subject.leaves());
    subject.wait_until(310);
    assert!(subject.asked.contains(&LedgerRequest::Join));
}

#[test]
fn one_renewal_covers_all_partitions() {
    let mut subject = Subject::exclusive();
    subject.tell(Input::Assigned { partitions: vec![P0, P1] }, 0);
    subject.append(7, 1);
    subject.append(7, 1);
    subject.renewed(Renewed::Accepted, 2);
    subject.renewed(Renewed::Accepted, 3);
    subject.wait_until(28);
    let marked = |subject: &Subject| match subject.asked.last() {
        Some(LedgerRequest::Renew { marks, .. }) => marks.iter().map(|(of, _)| of.get()).collect(),
        _ => Vec::<u32>::new(),
    };
    assert_eq!(marked(&subject), [0, 1], "that it leads is new");
    subject.renewed(Renewed::Accepted, 28);
    // Marks are there already, and written in turn.
    let mut written: Vec<Vec<u32>> = Vec::new();
    for millis in [53, 78, 103, 128] {
        subject.wait_until(millis);
        written.push(marked(&subject));
        subject.renewed(Renewed::Accepted, millis);
        assert!(subject.leads(P0, millis + 90) && subject.leads(P1, millis + 90));
    }
    assert!(written == [[0], [1], [0], [1]] || written == [[1], [0], [1], [0]], "{written:?}");
}

#[test]
fn a_partition_that_is_dry_costs_no_other_its_leader() {
    let mut subject = Subject::leading();
    subject.assign(P1, 0);
    subject.asked.retain(|one| !matches!(one, LedgerRequest::Inspect { .. }));
    for millis in (25..5000).step_by(25) {
        subject.wait_until(millis);
        if subject.asked.iter().any(|one| matches!(one, LedgerRequest::Renew { .. })) {
            subject.renewed(Renewed::Accepted, millis);
        }
    }
    assert!(subject.told.contains(&Event::Dry { partition: P1 }));
    assert_eq!(subject.term(4999), Some(8), "{:?}", subject.losses());
    // Once it leads nothing, others have their chance.
    subject.wait_until(8000);
    assert!(subject.told.contains(&Event::Left));
}

#[test]
fn a_partition_that_nobody_can_lead_is_not_given_back() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    subject.tell(Input::Unserved { partitions: vec![P0] }, 1);
    subject.wait_until(5000);
    assert!(subject.told.contains(&Event::Dry { partition: P0 }));
    assert!(!subject.told.contains(&Event::Left));
    subject.tell(Input::Unserved { partitions: Vec::new() }, 5001);
    subject.wait_until(10_000);
    assert!(subject.told.contains(&Event::Left), "others may reach its broker");
}

#[test]
fn a_partition_that_stays_dry_is_given_back_for_another_to_try() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    subject.wait_until(502);
    let dry = Event::Dry { partition: P0 };
    let early = "not before the grace period, a threshold and a session are over";
    assert!(!subject.told.contains(&dry), "{early}");
    subject.wait_until(503);
    assert!(subject.told.contains(&dry));
    assert!(subject.leaves());
    subject.wait_until(803);
    assert_eq!(subject.asked.last(), Some(&LedgerRequest::Join), "after a rest");
    // Again, and the rest is longer.
    subject.assign(P0, 803);
    subject.wait_until(1904);
    assert!(subject.leaves());
    subject.wait_until(1906);
    assert!(subject.asked.contains(&LedgerRequest::Join));
}

#[test]
fn a_barrier_that_does_not_end_is_reported_again_and_again() {
    let mut subject = Subject::exclusive();
    subject.wait_until(2599);
    assert!(subject.told.is_empty());
    subject.wait_until(2600);
    let stuck = Event::BarrierStuck { since: at(0) };
    assert_eq!(subject.told, core::slice::from_ref(&stuck));
    subject.wait_until(5200);
    assert_eq!(subject.told, [stuck.clone(), stuck]);
    subject.tell(Input::Assigned { partitions: Vec::new() }, 5201);
    subject.wait_until(60_000);
    assert_eq!(subject.told.len(), 2, "an empty assignment ends it");
}
