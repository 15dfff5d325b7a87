//! How long the next leader waits for those before it, and when it need not.

use alloc::vec;

use super::tests::{P0, Subject, at, ms};
use super::*;

const BEHIND: Mark = Mark::Held { term: Term::new(8), lease: ms(100), holder: None };
const OVER: Mark = Mark::Over { term: Term::new(8) };

/// Partition 0 is assigned at 0 ms and claimed at 1 ms, at this offset; the ledger keeps this mark.
fn claimed(offset: u64, mark: Option<Mark>) -> Subject {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    subject.inspected(mark, 1);
    subject.append_behind_others(offset, 1);
    subject
}

impl Subject {
    /// What the renewal that is under way says of partition 0: the term, the lease, and whether it leads.
    fn held(&self) -> Option<(u64, core::time::Duration, bool)> {
        self.asked.iter().find_map(|request| match request {
            LedgerRequest::Renew { marks, .. } => match marks[..] {
                [(P0, Mark::Held { term, lease, holder: Some(holder) })] => {
                    assert_eq!(holder.agreement, self.member.plan().agreement());
                    Some((term.get(), lease, holder.leads))
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// Renews whatever is asked for, and says when it leads.
    fn leads_from(&mut self, last: u64) -> Option<u64> {
        (2..=last).find(|millis| {
            self.wait_until(*millis);
            if self.asked.iter().any(|request| matches!(request, LedgerRequest::Renew { .. })) {
                self.renewed(Renewed::Accepted, *millis);
            }
            self.leads(P0, *millis)
        })
    }
}

#[test]
fn whoever_comes_after_one_that_did_not_say_that_it_ended_waits_for_the_threshold_and_drift() {
    assert_eq!(claimed(8, Some(BEHIND)).leads_from(200), Some(103));
}

#[test]
fn whoever_comes_after_a_term_that_is_over_leads_once_its_claim_is_confirmed() {
    assert_eq!(claimed(8, Some(OVER)).leads_from(200), Some(2));
}

#[test]
fn the_first_claim_of_all_has_nobody_to_wait_for() {
    assert_eq!(claimed(0, None).leads_from(200), Some(2));
    assert_eq!(claimed(1, None).leads_from(200), Some(103), "somebody was there, and says nothing");
}

/// An old mark, or one that a late commit has put in the place of a newer one, says nothing of who came after.
#[test]
fn a_term_that_is_over_says_nothing_if_another_claim_stands_between() {
    assert_eq!(claimed(9, Some(OVER)).leads_from(200), Some(103));
}

#[test]
fn nobody_leads_before_the_ledger_has_said_what_it_keeps() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    let asked = |subject: &Subject| {
        subject.asked.iter().filter(|one| matches!(one, LedgerRequest::Inspect { .. })).count()
    };
    assert_eq!(asked(&subject), 1);
    subject.append_behind_others(8, 1);
    assert_eq!(subject.leads_from(149), None, "its threshold is over, but is that of the others?");
    let failed = Event::Failed { undertaking: Undertaking::Inspecting, times: 1, unknown: true };
    assert!(!subject.told.contains(&failed));
    assert_eq!(subject.leads_from(151), None);
    assert!(subject.told.contains(&failed), "half a session is enough");
    assert_eq!(asked(&subject), 1, "but another is under way");
    let renews = |one: &LedgerRequest| matches!(one, LedgerRequest::Renew { .. });
    assert!(!subject.asked.iter().any(renews), "its mark would take the place of the others'");
    subject.inspected(Some(BEHIND), 152);
    subject.renewed(Renewed::Accepted, 153);
    assert!(subject.leads(P0, 153));
}

#[test]
fn an_inspection_that_fails_is_made_again() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    let Some(LedgerRequest::Inspect { id, .. }) =
        subject.asked.iter().find(|one| matches!(one, LedgerRequest::Inspect { .. })).cloned()
    else {
        panic!("{:?}", subject.asked)
    };
    subject.asked.clear();
    subject.tell(Input::Inspected { id, marks: None }, 5);
    subject.wait_until(25);
    subject.inspected(Some(OVER), 26);
}

#[test]
fn a_threshold_of_others_that_is_longer_is_waited_for_and_passed_on() {
    let lease = ms(250);
    let mut subject = claimed(8, Some(Mark::Held { term: Term::new(8), lease, holder: None }));
    assert_eq!(subject.held(), Some((9, lease, false)));
    assert_eq!(subject.leads_from(300), Some(256), "and drift");
    subject.wait_until(300);
    assert_eq!(subject.held(), Some((9, ms(100), true)));
}

#[test]
fn a_renewal_says_under_which_term_and_for_how_long_it_is_held() {
    let mut subject = Subject::leading();
    subject.wait_until(25);
    assert_eq!(subject.held(), Some((8, ms(100), true)));
}

#[test]
fn what_was_led_is_said_to_be_over_when_it_is_released_and_not_before_work_has_ended() {
    let mut subject = Subject::leading();
    subject.revoke(P0, 10);
    assert_eq!(subject.last_words(), None);
    subject.tell(Input::Drained { partition: P0 }, 11);
    assert!(!subject.leads(P0, 11));
    assert_eq!(subject.last_words(), Some(vec![(P0, Mark::Over { term: Term::new(8) })]));
}

#[test]
fn who_leaves_says_what_is_over() {
    let mut subject = Subject::leading();
    subject.tell(Input::Leave, 10);
    subject.tell(Input::Drained { partition: P0 }, 11);
    let marks = vec![(P0, Mark::Over { term: Term::new(8) })];
    assert_eq!(subject.asked.last(), Some(&LedgerRequest::Leave { marks }));
}

#[test]
fn a_claim_that_was_never_led_under_is_over_only_if_it_follows_one_that_is() {
    let mut subject = claimed(8, Some(OVER));
    subject.revoke(P0, 2);
    assert_eq!(subject.last_words(), Some(vec![(P0, Mark::Over { term: Term::new(9) })]));
    let mut subject = claimed(8, Some(BEHIND));
    assert_eq!(subject.leads_from(50), None);
    subject.revoke(P0, 51);
    assert_eq!(subject.last_words(), Some(vec![]));
}

/// It was replaced, and has not heard of it: its claim stands behind that of its successor.
#[test]
fn a_claim_that_was_never_confirmed_is_not_over_because_time_has_passed() {
    let mut subject = Subject::leading();
    subject.wait_until(100);
    assert_eq!(subject.losses(), [RoleLoss::Lapsed]);
    subject.tell(Input::Drained { partition: P0 }, 101);
    subject.append_behind_others(9, 102);
    subject.wait_until(200);
    subject.revoke(P0, 201);
    assert_eq!(subject.last_words(), Some(vec![]));
}

#[test]
fn what_another_may_have_marked_since_is_left_alone_by_one_that_has_not_claimed() {
    let mut subject = Subject::leading();
    subject.tell(Input::Lost { partitions: vec![P0] }, 10);
    subject.assign(P0, 20);
    subject.inspected(Some(Mark::Held { term: Term::new(12), lease: ms(100), holder: None }), 21);
    subject.tell(Input::Drained { partition: P0 }, 22);
    subject.revoke(P0, 22);
    assert_eq!(subject.last_words(), Some(vec![]));
}

#[test]
fn what_was_inspected_in_an_earlier_assignment_is_inspected_again() {
    let mut subject = Subject::exclusive();
    subject.assign(P0, 0);
    subject.tell(Input::Lost { partitions: vec![P0] }, 1);
    subject.assign(P0, 2);
    // The answer to what was asked before.
    subject.inspected(Some(Mark::Held { term: Term::new(3), lease: ms(1), holder: None }), 3);
    subject.inspected(Some(BEHIND), 4);
    assert_eq!(subject.member.deadline().map(|due| due > at(4)), Some(true));
}
