//! A member against rows that a test keeps: each statement is answered when and how the test says.

use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::election::NoTransfer;
use crate::identity::MemberId;

mod losses;

fn at(ms: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(ms)
}

fn holder(member: u32, incarnation: u64) -> Holder {
    let (member, incarnation) = (MemberId::new(member), StayId::new(incarnation));
    Holder { member, incarnation }
}

/// A row of rounds of 100 ms, and of 125 ms leases.
fn row(term: u64, beat: u64, leader: Option<Holder>) -> ControlState {
    ControlState {
        protocol: PROTOCOL,
        version: Version { term: Term::new(term), beat },
        leader,
        reason: Reason::Silence,
        published: Published {
            successors: [MemberId::new(1)].into_iter().collect(),
            round: Duration::from_millis(100),
            lease: Duration::from_millis(125),
            guarantee: SqlGuarantee::Leased,
        },
        preferred: None,
    }
}

/// A member, and what it has asked for.
struct Subject {
    member: Member,
    asked: Vec<(StatementId, Statement)>,
    told: Vec<Event>,
}

const ME: Holder = Holder { member: MemberId::new(1), incarnation: StayId::new(7) };

impl Subject {
    fn new(config: Config) -> Self {
        let mut effects = Effects::new();
        let member = Member::start(config, 1, at(0), &mut effects);
        let mut subject = Subject { member, asked: Vec::new(), told: Vec::new() };
        subject.keep(effects);
        subject
    }

    /// One that is in the group, and has seen this row at 0 ms.
    fn joined(config: Config, row: ControlState) -> Self {
        let mut subject = Subject::new(config);
        subject.answer(DatabaseAnswer::Control { changed: false, row: Some(row), value: None }, 0);
        let incarnation = ME.incarnation;
        subject.answer(DatabaseAnswer::Joined { incarnation, row, value: None }, 0);
        subject
    }

    /// One that leads term 5, by a takeover that was sent and answered at 0 ms.
    fn leading(config: Config) -> Self {
        let mut subject = Subject::joined(config, row(4, 0, None));
        let Some(Statement::Takeover { term, publish, .. }) = subject.last() else {
            panic!("{:?}", subject.asked)
        };
        assert_eq!(term, Term::new(5));
        let row = ControlState { published: publish, ..row(5, 0, Some(ME)) };
        subject.answer(DatabaseAnswer::Control { changed: true, row: Some(row), value: None }, 0);
        subject
    }

    fn keep(&mut self, mut effects: Effects<Effect>) {
        for effect in effects.drain() {
            match effect {
                Effect::Execute { id, statement } => self.asked.push((id, statement)),
                Effect::Abandon { id } => self.asked.retain(|(asked, _)| *asked != id),
                Effect::Tell(event) => self.told.push(event),
            }
        }
    }

    fn tell(&mut self, input: Input, ms: u64) {
        let mut effects = Effects::new();
        self.member.handle(input, at(ms), &mut effects);
        self.keep(effects);
    }

    fn wait_until(&mut self, ms: u64) {
        while let Some(due) = self.member.deadline().filter(|due| *due <= at(ms)) {
            let mut effects = Effects::new();
            self.member.handle_timeout(due, &mut effects);
            self.keep(effects);
        }
    }

    /// What is under way on the lane that decides.
    fn last(&self) -> Option<Statement> {
        let decides = |statement: &&Statement| {
            !matches!(statement, Statement::Sweep { .. } | Statement::Evict { .. })
        };
        self.asked.iter().map(|(_, statement)| statement).rev().find(decides).cloned()
    }

    fn end(&mut self, outcome: StatementOutcome, ms: u64) {
        let last = self.last();
        let place = self.asked.iter().position(|(_, statement)| Some(statement) == last.as_ref());
        let (id, _) = self.asked.remove(place.expect("a statement under way"));
        self.tell(Input::Answered { id, outcome }, ms);
    }

    fn answer(&mut self, answer: DatabaseAnswer, ms: u64) {
        self.end(StatementOutcome::Answered(answer), ms);
    }

    fn see(&mut self, row: ControlState, ms: u64) {
        let changed = !matches!(self.last(), Some(Statement::Look));
        self.answer(DatabaseAnswer::Control { changed, row: Some(row), value: None }, ms);
    }

    /// Acknowledges the renewal that is under way.
    fn acknowledge(&mut self, ms: u64) {
        let Some(Statement::Renew { me, was, publish, .. }) = self.last() else {
            panic!("{:?}", self.asked)
        };
        let version = Version { beat: was.beat + 1, ..was };
        let row = ControlState { version, published: publish, ..row(0, 0, Some(me)) };
        self.answer(DatabaseAnswer::Control { changed: true, row: Some(row), value: None }, ms);
    }

    fn holds(&self, ms: u64) -> bool {
        self.member.mandate(at(ms)).is_some()
    }
}

fn value(text: &str) -> Value {
    Value::new(text).unwrap()
}

fn lan() -> Config {
    Config::lan(MemberId::new(1))
}

fn other() -> ControlState {
    row(4, 0, Some(holder(2, 3)))
}

#[test]
fn a_member_looks_before_it_writes_and_leaves_a_row_of_another_protocol_alone() {
    let mut subject = Subject::new(lan());
    assert_eq!(subject.last(), Some(Statement::Look));
    subject.see(ControlState { protocol: 9, ..other() }, 0);
    assert_eq!(subject.told, [Event::Mismatched { protocol: 9 }]);
    subject.wait_until(1000);
    assert_eq!(subject.last(), Some(Statement::Look), "it looks on, and does nothing else");
}

#[test]
fn a_leader_is_followed_until_its_lease_has_run_out_since_the_answer() {
    let mut subject = Subject::joined(lan(), other());
    let following = State::Following { leader: MemberId::new(2), term: Term::new(4) };
    assert_eq!(subject.member.state(at(0)), following);
    // The answer that shows beat 1 comes 20 ms after it was asked for.
    subject.wait_until(25);
    assert_eq!(subject.last(), Some(Statement::Look));
    let beat = ControlState { version: Version { term: Term::new(4), beat: 1 }, ..other() };
    subject.see(beat, 45);
    assert_eq!(subject.member.state(at(45 + 126)), following);
    assert_eq!(subject.member.state(at(45 + 127)), State::Electing);
}

/// Section 4.4, and theorem 1: nobody takes over while a lease lasts.
#[test]
fn the_first_successor_takes_over_what_has_stood_still_for_a_lease_and_names_it() {
    let mut subject = Subject::joined(lan(), other());
    for ms in 1..=126 {
        subject.wait_until(ms);
        assert!(!matches!(subject.last(), Some(Statement::Takeover { .. })), "at {ms}");
        if subject.last().is_some() {
            subject.see(other(), ms);
        }
    }
    subject.wait_until(127);
    let Some(Statement::Takeover { me, was, of, term, reason, .. }) = subject.last() else {
        panic!("{:?}", subject.last())
    };
    assert_eq!((me, was, of), (ME, other().version, other().leader));
    assert_eq!((term, reason), (Term::new(5), Reason::Silence));
}

#[test]
fn a_lease_counts_from_before_it_was_asked_for_less_the_allowance() {
    let mut subject = Subject::leading(lan());
    // 125 ms less 1 % from 0 ms.
    assert!(subject.holds(123));
    assert!(!subject.holds(124));
    subject.acknowledge(40); // The first renewal, sent at 0 ms.
    assert!(!subject.holds(124), "the answer does not count");
    subject.wait_until(41);
    subject.acknowledge(60);
    assert!(subject.holds(124), "sent at 25 or later");
}

#[test]
fn an_answer_that_comes_after_its_own_lease_grants_nothing_and_asks_for_a_longer_one() {
    let mut subject = Subject::joined(lan(), row(4, 0, None));
    let Some(Statement::Takeover { publish, .. }) = subject.last() else { panic!() };
    let taken = ControlState { published: publish, ..row(5, 0, Some(ME)) };
    subject.member.control.flight.as_mut().unwrap().gives_up = at(1000);
    subject.answer(DatabaseAnswer::Control { changed: true, row: Some(taken), value: None }, 500);
    assert!(!subject.holds(500));
    let Some(Statement::Renew { publish, .. }) = subject.last() else { panic!() };
    assert_eq!(publish.lease, Duration::from_millis(250));
    subject.acknowledge(520);
    assert!(subject.holds(520), "the term is its own, and renewed");
}

#[test]
fn a_lease_that_has_lapsed_stays_lost_and_a_new_term_may_be_taken_at_once() {
    let mut subject = Subject::leading(lan());
    subject.wait_until(124);
    let lost = Event::Lost { term: Term::new(5), loss: Loss::Expired };
    assert!(subject.told.contains(&lost), "{:?}", subject.told);
    // Its renewal was carried out after all.
    while !matches!(subject.last(), Some(Statement::Takeover { .. })) {
        subject.see(row(5, 1, Some(ME)), 200);
        assert!(!subject.holds(200));
    }
    let Some(Statement::Takeover { was, term, reason, .. }) = subject.last() else { panic!() };
    assert_eq!((was.beat, term, reason), (1, Term::new(6), Reason::Lapsed));
}

#[test]
fn a_renewal_that_is_refused_because_an_earlier_one_landed_late_is_made_again() {
    let mut subject = Subject::leading(lan());
    subject.end(StatementOutcome::Unknown, 10);
    subject.wait_until(60);
    let Some(Statement::Renew { was, .. }) = subject.last() else { panic!() };
    assert_eq!(was.beat, 0, "it names what it knows");
    let landed = row(5, 1, Some(ME));
    subject.answer(DatabaseAnswer::Control { changed: false, row: Some(landed), value: None }, 60);
    let Some(Statement::Renew { was, .. }) = subject.last() else { panic!() };
    assert_eq!(was.beat, 1);
    assert!(!subject.holds(124), "a refusal grants nothing");
    assert!(subject.holds(123), "and takes nothing");
}

#[test]
fn a_renewal_that_is_refused_because_another_leads_ends_the_mandate() {
    let mut subject = Subject::leading(lan());
    let taken = row(6, 0, Some(holder(2, 9)));
    subject.answer(DatabaseAnswer::Control { changed: false, row: Some(taken), value: None }, 10);
    assert!(!subject.holds(10));
    let lost = Event::Lost { term: Term::new(5), loss: Loss::Superseded };
    assert!(subject.told.contains(&lost), "{:?}", subject.told);
}

#[test]
fn a_shorter_lease_binds_from_its_sending_and_a_longer_one_from_its_answer() {
    let config = lan();
    let (short, long) = (Duration::from_millis(100), Duration::from_millis(200));
    let version = Version::default();
    let mut claim = Claim::found(ME, version, None, at(0));
    assert!(claim.granted((at(0), long), &config, at(1)));
    assert_eq!(claim.deadline, Some(at(198)));
    claim.sent(short, &config, at(10));
    assert_eq!(claim.deadline, Some(at(109)), "whoever sees it may take over at 110");
    claim.sent(long, &config, at(20));
    assert_eq!(claim.deadline, Some(at(109)), "it may not have arrived");
    assert!(claim.granted((at(20), long), &config, at(30)));
    assert_eq!(claim.deadline, Some(at(218)));
}

#[test]
fn a_takeover_of_unknown_outcome_gives_nothing_until_the_row_says_whose_it_is() {
    let mut subject = Subject::joined(lan(), row(4, 0, None));
    subject.end(StatementOutcome::Unknown, 5);
    assert!(!subject.holds(5));
    subject.wait_until(60);
    let taken = row(5, 0, Some(ME));
    subject.answer(DatabaseAnswer::Control { changed: false, row: Some(taken), value: None }, 60);
    assert!(!subject.holds(60), "its own, but without a lease");
    assert!(matches!(subject.last(), Some(Statement::Renew { .. })));
    subject.acknowledge(62);
    assert!(subject.holds(62));
}

#[test]
fn a_claim_of_another_incarnation_is_not_taken_for_the_own() {
    let mut subject = Subject::joined(lan(), row(4, 0, Some(holder(1, 6))));
    subject.wait_until(30);
    assert_eq!(subject.last(), Some(Statement::Look), "its former life's lease is waited out");
    assert!(!subject.holds(30));
}

#[test]
fn who_resigns_stops_first_and_then_vacates_the_row() {
    let mut subject = Subject::leading(lan());
    subject.tell(Input::Resign, 10);
    assert!(!subject.holds(10), "before anything is written");
    subject.acknowledge(11); // The renewal that was under way.
    let Some(Statement::Vacate { me, was, reason, .. }) = subject.last() else { panic!() };
    assert_eq!((me, was.beat, reason), (ME, 1, Reason::Resigned));
    // Unknown: it is vacated again, and the term is never taken up again.
    subject.end(StatementOutcome::Unknown, 12);
    subject.wait_until(60);
    assert!(matches!(subject.last(), Some(Statement::Vacate { .. })));
    subject.see(row(5, 2, None), 61);
    assert!(!subject.holds(61));
    subject.wait_until(150);
    assert!(!matches!(subject.last(), Some(Statement::Takeover { .. })), "it abstains");
}

#[test]
fn a_transfer_names_its_successor_and_is_refused_with_a_reason() {
    let mut subject = Subject::leading(lan());
    let to = MemberId::new(2);
    subject.tell(Input::Transfer { to }, 1);
    let refused = |reason| Event::NoTransfer { to, reason };
    assert_eq!(subject.told.last(), Some(&refused(NoTransfer::NoAnswer)), "nobody is known yet");
    let sweeps = |(_, asked): &(StatementId, Statement)| matches!(asked, Statement::Sweep { .. });
    let place = subject.asked.iter().position(sweeps).expect("a sweep");
    let (id, _) = subject.asked.remove(place);
    let score = subject.member.score();
    let members = [(1, 7), (2, 8)].map(|(member, incarnation)| MemberRow {
        holder: holder(member, incarnation),
        counter: 0,
        score,
        was_evicted: false,
    });
    let outcome = StatementOutcome::Answered(DatabaseAnswer::Members(members.to_vec()));
    subject.tell(Input::Answered { id, outcome }, 2);
    subject.tell(Input::Transfer { to: MemberId::new(3) }, 3);
    assert!(subject.holds(3), "a stranger");
    subject.tell(Input::Transfer { to }, 4);
    assert!(!subject.holds(4));
    subject.acknowledge(5);
    let Some(Statement::Vacate { successors, reason, .. }) = subject.last() else { panic!() };
    assert_eq!((successors.iter().next(), reason), (Some(to), Reason::Transferred));
}

#[test]
fn the_named_successor_takes_a_vacant_row_at_once_and_others_wait_their_turn() {
    let subject = Subject::joined(lan(), row(4, 0, None));
    assert!(matches!(subject.last(), Some(Statement::Takeover { .. })));
    let mut other = Subject::joined(lan().with_me(MemberId::new(5)), row(4, 0, None));
    assert!(!matches!(other.last(), Some(Statement::Takeover { .. })));
    // It looks once more before it acts: nobody else did.
    other.wait_until(60);
    assert_eq!(other.last(), Some(Statement::Look));
    other.see(row(4, 0, None), 60);
    assert!(matches!(other.last(), Some(Statement::Takeover { .. })));
}

#[test]
fn a_session_that_ended_is_enough_without_leases_and_only_a_hint_with_them() {
    for guarantee in [SqlGuarantee::Fenced, SqlGuarantee::Leased] {
        let published = Published { guarantee, ..other().published };
        let row = ControlState { published, ..other() };
        let mut subject = Subject::joined(lan().with_guarantee(guarantee), row);
        subject.tell(Input::LeaderSessionGone { term: Term::new(3) }, 4);
        assert_eq!(subject.last(), None, "of a term that is over");
        subject.tell(Input::LeaderSessionGone { term: Term::new(4) }, 5);
        match (guarantee, subject.last()) {
            (SqlGuarantee::Fenced, Some(Statement::Takeover { reason, .. })) => {
                assert_eq!(reason, Reason::SessionGone);
            }
            (SqlGuarantee::Leased, Some(Statement::Look)) => {}
            (_, last) => panic!("{guarantee:?}: {last:?}"),
        }
    }
}

/// Section 4.2: an evicted process joins again, and says so.
#[test]
fn who_was_evicted_joins_again_with_the_flag_raised() {
    let mut subject = Subject::joined(lan(), other());
    subject.wait_until(100);
    while !matches!(subject.last(), Some(Statement::Heartbeat { .. })) {
        subject.see(other(), 100);
        subject.wait_until(125);
    }
    subject
        .answer(DatabaseAnswer::Control { changed: false, row: Some(other()), value: None }, 125);
    assert!(subject.told.contains(&Event::Evicted { incarnation: ME.incarnation }));
    subject.wait_until(150);
    assert!(matches!(subject.last(), Some(Statement::Join { was_evicted: true, .. })));
}

#[test]
fn observers_and_those_who_may_never_lead_do_not_contend() {
    let observer = lan().with_part(Part::Observer);
    let mut subject = Subject::new(observer);
    subject.see(row(4, 0, None), 0);
    for ms in [100, 200, 300] {
        subject.wait_until(ms);
        assert_eq!(subject.last(), Some(Statement::Look));
        subject.see(row(4, 0, None), ms);
    }
    let never = lan().with_preference(crate::oracle::Preference::Never);
    let mut subject = Subject::joined(never, row(4, 0, None));
    for ms in (0..1000).step_by(20) {
        subject.wait_until(ms);
        assert!(!matches!(subject.last(), Some(Statement::Takeover { .. })), "at {ms}");
        if subject.last().is_some() {
            subject.see(row(4, 0, None), ms);
        }
    }
}

#[test]
fn a_role_is_handed_over_to_whom_the_group_prefers_once_it_changes() {
    let mut subject = Subject::new(lan().with_part(Part::Role));
    subject.see(row(4, 0, None), 0);
    subject.wait_until(100);
    assert_eq!(subject.last(), Some(Statement::Look), "not in the group yet");
    subject.see(row(4, 0, None), 100);
    subject.see(row(4, 0, None), 100);
    subject.tell(Input::Joined(Some(ME.incarnation)), 100);
    assert!(matches!(subject.last(), Some(Statement::Takeover { .. })));
    let taken = row(5, 0, Some(ME));
    subject.answer(DatabaseAnswer::Control { changed: true, row: Some(taken), value: None }, 101);
    assert!(subject.holds(101));
    let preferred = Some(MemberId::new(2));
    let version = Version { term: Term::new(5), beat: 1 };
    let row = ControlState { version, preferred, ..taken };
    subject.answer(DatabaseAnswer::Control { changed: true, row: Some(row), value: None }, 102);
    assert!(!subject.holds(102));
    let Some(Statement::Vacate { successors, .. }) = subject.last() else { panic!() };
    assert_eq!(successors.iter().next(), preferred);
}

#[test]
fn who_leaves_vacates_removes_its_row_and_is_done() {
    let mut subject = Subject::leading(lan());
    subject.tell(Input::Leave, 1);
    subject.acknowledge(2);
    assert!(matches!(subject.last(), Some(Statement::Vacate { .. })));
    subject.see(row(5, 2, None), 3);
    assert_eq!(subject.last(), Some(Statement::Leave { me: ME }));
    subject.answer(DatabaseAnswer::Written(true), 4);
    assert_eq!(subject.told.last(), Some(&Event::Left));
    assert_eq!(subject.member.deadline(), None);
}

#[test]
fn an_answer_to_something_else_or_given_up_changes_nothing() {
    let mut subject = Subject::leading(lan());
    subject.answer(DatabaseAnswer::Written(true), 1);
    assert!(subject.holds(1));
    subject.tell(Input::Answered { id: StatementId(999), outcome: StatementOutcome::Unknown }, 2);
    assert!(subject.holds(2));
}

#[test]
fn a_refusal_of_a_row_that_stands_as_named_is_not_repeated_at_once() {
    let mut subject = Subject::joined(lan(), row(4, 0, None));
    let before = subject.asked.len();
    subject.answer(
        DatabaseAnswer::Control { changed: false, row: Some(row(4, 0, None)), value: None },
        1,
    );
    assert_eq!(subject.asked.len(), before - 1, "a read of a moment before: it pauses");
}

/// What a row shows with that term and value.
fn shows(row: ControlState, of: u64, text: &str) -> DatabaseAnswer {
    let value = Some((Term::new(of), value(text)));
    DatabaseAnswer::Control { changed: false, row: Some(row), value }
}

#[test]
fn a_value_is_shown_with_the_term_that_it_was_published_in_and_with_no_other() {
    let mut subject = Subject::joined(lan(), other());
    let published = |text: &str| Event::Published {
        leader: MemberId::new(2),
        term: Term::new(4),
        value: value(text),
    };
    let look = |subject: &mut Subject, answer, ms| {
        subject.tell(Input::RowChanged, ms);
        subject.answer(answer, ms);
    };
    look(&mut subject, shows(other(), 3, "old"), 1);
    assert_eq!(subject.member.value(), None, "of the leader before");
    look(&mut subject, shows(other(), 4, "a"), 2);
    look(&mut subject, shows(other(), 4, "a"), 3);
    assert_eq!(subject.member.value(), Some(&value("a")));
    assert_eq!(subject.told.iter().filter(|told| **told == published("a")).count(), 1);
    // Another takes over, and has published nothing: what stays in the row is not its.
    look(&mut subject, shows(row(5, 0, Some(holder(3, 4))), 4, "a"), 4);
    assert_eq!(subject.member.value(), None);
}

#[test]
fn a_value_is_written_with_the_takeover_and_with_the_next_renewal_until_one_is_acknowledged() {
    let subject = Subject::joined(lan().with_value(Some(value("a"))), row(4, 0, None));
    let Some(Statement::Takeover { value: written, .. }) = subject.last() else { panic!() };
    assert_eq!(written, Some(value("a")));
    let carried = |subject: &Subject| match subject.last() {
        Some(Statement::Renew { value, .. }) => value,
        other => panic!("{other:?}"),
    };
    let mut subject = Subject::leading(lan());
    subject.wait_until(1);
    subject.acknowledge(1);
    subject.tell(Input::Publish(value("b")), 2);
    assert_eq!(carried(&subject), Some(value("b")), "at once");
    subject.end(StatementOutcome::Unknown, 3);
    subject.wait_until(60);
    assert_eq!(carried(&subject), Some(value("b")), "nobody knows whether it is there");
    subject.acknowledge(61);
    subject.wait_until(95);
    assert_eq!(carried(&subject), None);
}

#[test]
fn who_does_not_lead_any_more_publishes_nothing() {
    let mut subject = Subject::leading(lan());
    subject.tell(Input::Resign, 1);
    subject.tell(Input::Publish(value("late")), 2);
    let carries =
        |statement: &Statement| matches!(statement, Statement::Renew { value: Some(_), .. });
    assert!(!subject.asked.iter().any(|(_, statement)| carries(statement)));
    assert_eq!(subject.member.values.unwritten(Term::new(5)), None);
}
