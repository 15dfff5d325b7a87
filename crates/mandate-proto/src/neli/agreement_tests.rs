//! Members that go by different layouts or modes.

use alloc::vec;
use alloc::vec::Vec;

use super::super::tests::{P0, P1, Subject, at, config, grants, ms, stamp};
use super::super::*;
use super::*;
use crate::identity::MemberId;

const MORE: Agreement = Agreement { partitions: 4, roles: 1, mode: Mode::Exclusive };
const FEWER: Agreement = Agreement { partitions: 1, roles: 1, mode: Mode::Exclusive };

fn mark(agreement: Agreement, leads: bool, renewal: u64) -> Mark {
    let holder = Some(PartitionHolder { member: MemberId::new(9), agreement, leads, renewal });
    Mark::Held { term: Term::new(3), lease: ms(100), holder }
}

/// Partition 0 is claimed and confirmed at 1 ms behind a term that is over, and its look is under way.
fn confirmed() -> Subject {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    subject.append(7, 1);
    let id = subject.renewal();
    subject.tell(Input::Renewed { id, outcome: Renewed::Accepted }, 1);
    subject
}

impl Subject {
    /// Plays the ledger until then: renewals are taken, claims land, looks show these marks. When partition 0 is led.
    fn play(
        &mut self,
        until: u64,
        marks: impl FnMut(u64) -> Vec<(Partition, Mark)>,
    ) -> Option<u64> {
        self.play_from(2, until, marks)
    }

    fn play_from(
        &mut self,
        from: u64,
        until: u64,
        mut marks: impl FnMut(u64) -> Vec<(Partition, Mark)>,
    ) -> Option<u64> {
        (from..=until).find(|millis| {
            self.serve(*millis, &marks(*millis));
            self.leads(P0, *millis)
        })
    }

    /// What was asked for by then is answered.
    fn serve(&mut self, millis: u64, marks: &[(Partition, Mark)]) {
        self.wait_until(millis);
        while self.asked.iter().any(|one| matches!(one, LedgerRequest::Renew { .. })) {
            let id = self.renewal();
            self.tell(Input::Renewed { id, outcome: Renewed::Accepted }, millis);
        }
        while let Some(place) =
            self.asked.iter().position(|one| matches!(one, LedgerRequest::Inspect { .. }))
        {
            let LedgerRequest::Inspect { id, .. } = self.asked.remove(place) else {
                unreachable!()
            };
            let marks = Some(self.shown(marks));
            self.tell(Input::Inspected { id, marks }, millis);
        }
        while self.asked.iter().any(|one| matches!(one, LedgerRequest::Publish { .. })) {
            self.append_behind_others(20 + millis, millis);
        }
    }

    fn disagrees(&self) -> Vec<(Agreement, bool)> {
        let each = self.told.iter().filter_map(|event| match event {
            Event::Disagrees { theirs, leads, .. } => Some((*theirs, *leads)),
            _ => None,
        });
        each.collect()
    }
}

#[test]
fn nobody_leads_before_a_look_that_was_asked_for_after_its_own_mark() {
    let mut subject = confirmed();
    assert!(!subject.leads(P0, 1));
    assert!(subject.member.deadline().is_some_and(|due| due > at(1)), "it waits for the answer");
    subject.looked(&[], 2);
    assert!(subject.leads(P0, 2));
}

/// Another partition, another member: the mark of one's own partition would not tell.
#[test]
fn a_layout_that_leads_another_partition_keeps_a_newcomer_from_leading() {
    let mut subject = confirmed();
    subject.looked(&[(P1, mark(MORE, true, 1))], 2);
    assert!(!subject.leads(P0, 2));
    assert_eq!(subject.disagrees(), [(MORE, true)]);
    assert_eq!(subject.member.disagreement(), Some(MORE));
    // It is alive: it renews all the time.
    assert_eq!(subject.play(3000, |millis| vec![(P1, mark(MORE, true, millis))]), None);
    assert!(subject.told.contains(&Event::Left), "others may have its partitions");
    let joins = subject.asked.iter().filter(|one| **one == LedgerRequest::Join).count();
    assert_eq!(joins, 1, "it stays out while that layout renews");
    assert_eq!(subject.disagrees(), [(MORE, true)], "said once");
}

#[test]
fn a_newcomer_comes_back_when_the_other_layout_renews_no_more() {
    let mut subject = confirmed();
    subject.looked(&[(P1, mark(MORE, true, 1))], 2);
    // For long enough to be given way to.
    let renewed = |millis: u64| vec![(P1, mark(MORE, true, millis.min(600)))];
    assert_eq!(subject.play(1500, renewed), None);
    let joins = subject.asked.iter().filter(|one| **one == LedgerRequest::Join).count();
    assert_eq!(joins, 2);
    assert!(subject.told.contains(&Event::Agrees), "its marks stand still");
    // Both are assigned to it now. The mark of the former owner stays until its threshold is over.
    subject.tell(Input::Assigned { partitions: vec![P0, P1] }, 1500);
    let is_marked = |subject: &Subject| subject.member.seats[1].marked.is_some();
    let left_behind = [(P1, mark(MORE, true, 600))];
    (1500..1590).for_each(|millis| subject.serve(millis, &left_behind));
    assert!(!is_marked(&subject), "the mark is still needed");
    (1590..1640).for_each(|millis| subject.serve(millis, &left_behind));
    assert!(is_marked(&subject));
}

/// A transaction is accepted before readers see what it wrote: others' marks may be missing for the same reason.
#[test]
fn a_look_that_does_not_show_the_members_own_mark_is_made_again() {
    let mut subject = confirmed();
    subject.looked_at(&[], 2);
    assert!(!subject.leads(P0, 2), "it may have missed others, too");
    subject.wait_until(20);
    subject.looked_at(&[(P0, mark(subject.member.plan().agreement(), true, 1))], 20);
    assert!(!subject.leads(P0, 20), "nor is the mark of another its own");
    subject.wait_until(40);
    subject.looked(&[], 40);
    assert!(subject.leads(P0, 40));
}

#[test]
fn a_non_exclusive_member_does_not_go_on_before_it_sees_its_own_mark() {
    let mut subject = Subject::on(config(Mode::NonExclusive), grants());
    subject.assign(P0, 1);
    let theirs = mark(subject.member.plan().agreement(), true, 1);
    // Its own is never shown: another of its layout has the place.
    assert_eq!(non_exclusive(&mut subject, 500, |_| vec![(P0, theirs)]), None);
    assert_eq!(subject.disagrees(), []);
}

/// The member that led there is gone, and nobody can put another mark in its place: nobody of this layout has the partition, it has no
/// broker, or this layout does not count so many.
#[test]
fn a_mark_that_nobody_can_replace_keeps_nobody_from_leading_once_its_holder_stands_still() {
    let beyond = Partition::new(7);
    for (partition, agreement) in [(P1, FEWER), (beyond, MORE)] {
        let mut subject = confirmed();
        subject.tell(Input::Unserved { partitions: vec![P1] }, 1);
        let left_behind = vec![(partition, mark(agreement, true, 5))];
        subject.looked(&left_behind, 2);
        assert!(!subject.leads(P0, 2), "its holder may live");
        let led = subject.play(2000, |_| left_behind.clone());
        let twice_its_lease = 2 + 2 * 100;
        assert!(led.is_some_and(|millis| millis > twice_its_lease), "{led:?}");
        assert!(!subject.told.contains(&Event::Left), "nobody leaves for the dead");
    }
}

#[test]
fn a_holder_that_renews_any_of_its_marks_lives() {
    let mut subject = confirmed();
    let unmoved = mark(MORE, true, 5);
    let marks = |millis| vec![(P1, unmoved), (Partition::new(3), mark(MORE, true, millis / 90))];
    subject.looked(&marks(2), 2);
    assert_eq!(subject.play(3000, marks), None);
}

fn joins(subject: &Subject) -> usize {
    subject.asked.iter().filter(|one| **one == LedgerRequest::Join).count()
}

/// Were it to join first, the partitions that it is handed would have no leader until it has given them back.
#[test]
fn a_newcomer_does_not_join_while_another_layout_leads_and_renews() {
    let mut subject = Subject::arriving(config(Mode::Exclusive), grants());
    assert_eq!(joins(&subject), 0, "it looks first");
    assert!(subject.member.waiting_since().is_some(), "it is not ready");
    subject.looked(&[(P1, mark(MORE, true, 1))], 2);
    assert_eq!(subject.disagrees(), [(MORE, true)]);
    assert_eq!(subject.play(3000, |millis| vec![(P1, mark(MORE, true, millis))]), None);
    assert_eq!(joins(&subject), 0);
    let led = subject.play_from(3001, 3500, |_| vec![(P1, Mark::Over { term: Term::new(3) })]);
    assert_eq!((led, joins(&subject)), (None, 1), "they have ended");
    assert!(subject.told.contains(&Event::Agrees));
}

#[test]
fn a_newcomer_joins_where_another_layout_only_wants_to_lead_or_the_look_fails() {
    let mut subject = Subject::arriving(config(Mode::Exclusive), grants());
    subject.looked(&[(P1, mark(FEWER, false, 1))], 2);
    assert_eq!(joins(&subject), 1);
    let mut subject = Subject::arriving(config(Mode::Exclusive), grants());
    let Some(LedgerRequest::Inspect { id, .. }) = subject.asked.pop() else { unreachable!() };
    subject.tell(Input::Inspected { id, marks: None }, 1);
    assert_eq!(joins(&subject), 1);
    let mut subject = Subject::arriving(config(Mode::Exclusive), grants());
    subject.wait_until(150);
    assert_eq!(joins(&subject), 1, "no answer came");
    let mut subject = Subject::arriving(config(Mode::Exclusive), grants());
    subject.tell(Input::Leave, 1);
    subject.looked(&[], 2);
    assert_eq!(joins(&subject), 0, "it was to end meanwhile");
}

#[test]
fn of_two_that_only_want_to_lead_the_smaller_stays_and_the_greater_goes() {
    let mut greater = confirmed();
    greater.looked(&[(P1, mark(FEWER, false, 1))], 2);
    assert_eq!(greater.play(400, |millis| vec![(P1, mark(FEWER, false, millis))]), None);
    assert!(greater.told.contains(&Event::Left));
    let mut smaller = confirmed();
    smaller.looked(&[(P1, mark(MORE, false, 1))], 2);
    assert_eq!(smaller.play(400, |millis| vec![(P1, mark(MORE, false, millis))]), None);
    assert!(!smaller.told.contains(&Event::Left));
    assert!(smaller.play(500, |_| vec![]).is_some(), "and leads when the other has gone");
}

#[test]
fn who_goes_by_the_layout_that_leads_does_not_mind_those_who_only_want_to() {
    let mut subject = confirmed();
    let ours = subject.member.plan().agreement();
    let others =
        |renewal| vec![(Partition::new(2), mark(FEWER, false, 1)), (P1, mark(ours, true, renewal))];
    subject.looked(&others(9), 2);
    assert!(!subject.leads(P0, 2), "that leader may be gone: others would ignore it");
    assert_eq!(subject.play(90, |millis| others(9 + millis)), Some(27), "it renews");
    // One that does not is no reason.
    let mut subject = confirmed();
    subject.looked(&others(9), 2);
    assert_eq!(subject.play(200, |_| others(9)), None);
}

#[test]
fn who_leads_already_needs_no_further_look_and_marks_say_so() {
    let mut subject = Subject::leading();
    subject.assign(P1, 5);
    let id = |subject: &mut Subject| {
        let is_inspection = |one: &LedgerRequest| matches!(one, LedgerRequest::Inspect { .. });
        let place = subject.asked.iter().position(is_inspection).unwrap();
        match subject.asked.remove(place) {
            LedgerRequest::Inspect { id, .. } => id,
            _ => unreachable!(),
        }
    };
    let id = id(&mut subject);
    let over = Some(vec![(P1, Mark::Over { term: Term::new(4) })]);
    subject.tell(Input::Inspected { id, marks: over }, 5);
    subject.append_behind_others(4, 5);
    let id = subject.renewal();
    subject.tell(Input::Renewed { id, outcome: Renewed::Accepted }, 6);
    if !subject.leads(P1, 6) {
        let id = subject.renewal();
        subject.tell(Input::Renewed { id, outcome: Renewed::Accepted }, 6);
    }
    assert!(subject.leads(P1, 6));
}

#[test]
fn marks_of_releases_that_did_not_say_their_layout_keep_nobody_from_leading() {
    let mut subject = confirmed();
    let old = Mark::Held { term: Term::new(3), lease: ms(100), holder: None };
    subject.looked(&[(P1, old)], 2);
    assert!(subject.leads(P0, 2));
}

#[test]
fn an_exclusive_member_does_not_lead_beside_a_non_exclusive_one_nor_the_other_way_round() {
    let other = Agreement { partitions: 2, roles: 1, mode: Mode::NonExclusive };
    let mut subject = confirmed();
    subject.looked(&[(P1, mark(other, true, 1))], 2);
    assert!(!subject.leads(P0, 2));
    assert_eq!(subject.disagrees(), [(other, true)]);

    let exclusive = subject.member.plan().agreement();
    let mut subject = Subject::on(config(Mode::NonExclusive), grants());
    subject.assign(P0, 1);
    let led = non_exclusive(&mut subject, 500, |millis| vec![(P1, mark(exclusive, true, millis))]);
    assert_eq!(led, None);
    assert_eq!(subject.disagrees(), [(exclusive, true)]);
    let mut subject = Subject::on(config(Mode::NonExclusive), grants());
    subject.assign(P0, 1);
    assert!(non_exclusive(&mut subject, 500, |_| vec![]).is_some(), "alone, it leads");
    // An exclusive one has come, and leads: it sees that within a session.
    let led = non_exclusive(&mut subject, 900, |millis| vec![(P1, mark(exclusive, true, millis))]);
    assert_eq!(led, Some(501));
    let until = 901 + 600;
    subject.wait_until(until);
    assert!(!subject.leads(P0, until), "it lapses by time");
}

/// Plays a ledger with records, too; when it leads first.
fn non_exclusive(
    subject: &mut Subject,
    until: u64,
    marks: impl Fn(u64) -> Vec<(Partition, Mark)>,
) -> Option<u64> {
    let begin = if subject.leads(P0, 500) { 501 } else { 2 };
    let mut led = None;
    for millis in begin..=until {
        subject.wait_until(millis);
        for request in core::mem::take(&mut subject.asked) {
            match request {
                LedgerRequest::Publish { id, .. } => {
                    let outcome = PublishOutcome::Appended { offset: millis, stamp: stamp(millis) };
                    subject.tell(Input::Published { id, outcome }, millis);
                }
                LedgerRequest::Renew { id, marks } => {
                    subject.kept.extend(marks);
                    subject.tell(Input::Renewed { id, outcome: Renewed::Accepted }, millis);
                }
                LedgerRequest::Inspect { id, .. } => {
                    let marks = Some(subject.shown(&marks(millis)));
                    subject.tell(Input::Inspected { id, marks }, millis);
                }
                _ => {}
            }
        }
        let (offset, record) = (millis, None);
        let record = Input::Record { partition: P0, offset, stamp: stamp(millis), record };
        subject.tell(record, millis);
        if led.is_none() && subject.leads(P0, millis) {
            led = Some(millis);
        }
    }
    led
}

#[test]
fn a_ledger_that_grew_is_told_once_and_led_on() {
    let mut subject = Subject::leading();
    for (partitions, millis) in [(2, 5), (4, 6), (4, 7), (2, 8)] {
        subject.tell(Input::Sized { partitions }, millis);
        assert_eq!(subject.member.other_size(), Some(partitions).filter(|found| *found != 2));
    }
    let resized = |found| Event::Resized { counted: 2, found };
    let told: Vec<_> =
        subject.told.iter().filter(|event| matches!(event, Event::Resized { .. })).collect();
    assert_eq!(told, [&resized(4), &resized(2)]);
    assert!(subject.leads(P0, 8));
}

#[test]
fn a_mark_is_a_floor_for_terms() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    subject.inspected(Some(Mark::Over { term: Term::new(120) }), 1);
    // The partition has lost its end: 51 would follow what is over, if terms only rose.
    subject.append_behind_others(50, 2);
    let (partition, from, to) = (P0, Term::new(120), Term::new(51));
    assert!(subject.told.contains(&Event::WentBack { partition, from, to }));
    assert!(!subject.asked.iter().any(|one| matches!(one, LedgerRequest::Renew { .. })));
    // The same where the answer comes after the claim.
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    subject.append_behind_others(50, 1);
    subject.inspected(Some(Mark::Over { term: Term::new(120) }), 2);
    assert!(subject.told.contains(&Event::WentBack { partition, from, to }));
    assert_eq!(subject.play(90, |_| vec![]), None);
}
