//! Rows that are lost, guarantees that differ, rounds of somebody else.

use super::*;

/// Looks, heartbeats and joins are answered with this row until then; what else is asked for is left.
fn show(subject: &mut Subject, row: ControlState, until: u64) {
    loop {
        let now = subject.member.deadline().map_or(at(until), |due| due.min(at(until)));
        let mut effects = Effects::new();
        subject.member.handle_timeout(now, &mut effects);
        subject.keep(effects);
        let ms = (now - Instant::ORIGIN).as_millis() as u64;
        match subject.last() {
            Some(Statement::Look | Statement::Heartbeat { .. }) => subject.see(row, ms),
            Some(Statement::Join { .. }) => {
                subject.answer(
                    DatabaseAnswer::Joined { incarnation: ME.incarnation, row, value: None },
                    ms,
                );
            }
            Some(Statement::Takeover { .. }) => return,
            _ => {}
        }
        if now >= at(until) {
            return;
        }
    }
}

fn takes_over(subject: &Subject) -> Option<Term> {
    match subject.last() {
        Some(Statement::Takeover { term, .. }) => Some(term),
        _ => None,
    }
}

/// The longest lease of these rounds is eight times 125 ms; watchers wait for 1 % more.
const LONGEST: u64 = 1010;

#[test]
fn a_row_that_went_back_is_told_of_and_left_alone_for_the_longest_lease_and_terms_still_rise() {
    let mut subject = Subject::joined(lan(), row(9, 3, Some(holder(2, 3))));
    subject.wait_until(25);
    subject.see(other(), 100);
    let (from, to) = (row(9, 3, None).version, Some(other().version));
    assert!(subject.told.contains(&Event::WentBack { from, to }), "{:?}", subject.told);
    show(&mut subject, other(), 100 + LONGEST);
    assert_eq!(takes_over(&subject), None, "a lease that was lost may run until then");
    show(&mut subject, other(), 100 + LONGEST + 50);
    assert_eq!(takes_over(&subject), Some(Term::new(10)));
}

#[test]
fn a_vacant_row_is_not_taken_at_once_where_it_went_back_to_that_or_was_made_again() {
    // The row was at 9.3, with a leader; the last is what a member finds that comes later.
    let remade = ControlState { reason: Reason::First, ..row(9, 0, None) };
    for (before, found) in [
        (Some(row(9, 3, Some(holder(2, 3)))), row(4, 0, None)),
        (Some(row(9, 3, Some(holder(2, 3)))), remade),
        (Some(row(9, 3, None)), ControlState { reason: Reason::First, ..row(0, 0, None) }),
        (None, remade),
    ] {
        let mut subject = match before {
            Some(before) => Subject::joined(lan().with_me(MemberId::new(8)), before),
            None => Subject::new(lan().with_me(MemberId::new(8))),
        };
        show(&mut subject, found, LONGEST);
        assert_eq!(takes_over(&subject), None, "{before:?} {found:?}");
        show(&mut subject, found, LONGEST + 300);
        assert_eq!(takes_over(&subject), Some(Term::new(10)), "{before:?} {found:?}");
    }
}

#[test]
fn a_lease_that_was_seen_is_not_forgotten_with_its_row() {
    let mut subject = Subject::joined(lan(), other());
    subject.wait_until(25);
    assert_eq!(subject.last(), Some(Statement::Look));
    subject.answer(DatabaseAnswer::Control { changed: false, row: None, value: None }, 30);
    assert!(subject.told.contains(&Event::WentBack { from: other().version, to: None }));
    let Some(Statement::Join { floor, .. }) = subject.last() else {
        panic!("{:?}", subject.last())
    };
    assert_eq!(floor, Term::new(4), "a new row is to begin with what was seen");
    let made = ControlState { reason: Reason::First, ..row(0, 0, None) };
    show(&mut subject, made, 30 + LONGEST);
    assert_eq!(takes_over(&subject), None);
    show(&mut subject, made, 30 + LONGEST + 100);
    assert_eq!(takes_over(&subject), Some(Term::new(5)));
}

#[test]
fn a_leader_whose_row_is_gone_leads_no_more_and_waits_like_everyone_else() {
    let mut subject = Subject::leading(lan());
    subject.answer(DatabaseAnswer::Control { changed: false, row: None, value: None }, 10);
    assert!(!subject.holds(10));
    // Somebody puts it back as it was: between, another may have made one, and led.
    show(&mut subject, row(5, 0, Some(ME)), 10 + LONGEST);
    assert_eq!(takes_over(&subject), None);
}

#[test]
fn a_stale_answer_costs_nothing_once_the_row_is_there_again() {
    let mut subject = Subject::joined(lan(), row(9, 3, Some(holder(2, 3))));
    subject.wait_until(25);
    subject.see(row(9, 2, Some(holder(2, 3))), 25);
    subject.wait_until(50);
    subject.see(row(9, 4, Some(holder(2, 3))), 50);
    show(&mut subject, row(9, 4, Some(holder(2, 3))), 50 + 150);
    assert_eq!(takes_over(&subject), Some(Term::new(10)), "an ordinary lease after 9.4 was seen");
}

#[test]
fn a_term_that_shows_a_second_leader_has_gone_back() {
    let mut subject = Subject::joined(lan(), row(4, 0, Some(holder(2, 3))));
    subject.wait_until(25);
    subject.see(row(4, 5, Some(holder(3, 4))), 25);
    let (from, to) = (row(4, 0, None).version, Some(row(4, 5, None).version));
    assert!(subject.told.contains(&Event::WentBack { from, to }), "{:?}", subject.told);
    // It is shown again, and is no answer of before: the lease of the first one may run.
    show(&mut subject, row(4, 5, Some(holder(3, 4))), 25 + LONGEST);
    assert_eq!(takes_over(&subject), None);
}

#[test]
fn a_row_that_goes_to_and_fro_between_two_leaders_of_a_term_was_lost() {
    let (one, other) = (row(4, 1, Some(holder(2, 3))), row(4, 1, Some(holder(3, 4))));
    let mut subject = Subject::joined(lan(), one);
    // Written by nobody who follows the protocol: one of the two states was lost, and with it perhaps a lease.
    subject.wait_until(25);
    subject.see(other, 25);
    show(&mut subject, one, 50 + LONGEST);
    assert_eq!(takes_over(&subject), None);
    show(&mut subject, one, 50 + LONGEST + 300);
    assert_eq!(takes_over(&subject), Some(Term::new(5)));
}

#[test]
fn the_end_of_a_session_is_enough_only_for_a_leader_that_relies_on_terms_alone() {
    // A member of a fenced group watches a leader that relies on its lease.
    let mut subject = Subject::joined(lan().with_guarantee(SqlGuarantee::Fenced), row(3, 0, None));
    // Another was first.
    subject.answer(DatabaseAnswer::Control { changed: false, row: Some(other()), value: None }, 1);
    subject.tell(Input::LeaderSessionGone { term: Term::new(4) }, 5);
    assert_eq!(takes_over(&subject), None, "{:?}", subject.last());
    show(&mut subject, other(), 120);
    assert_eq!(takes_over(&subject), None);
    show(&mut subject, other(), 250);
    assert_eq!(takes_over(&subject), Some(Term::new(5)), "its lease has run out");
}

#[test]
fn who_has_another_guarantee_than_the_leader_does_not_join_and_says_so() {
    let fenced = |row: ControlState| ControlState {
        published: Published { guarantee: SqlGuarantee::Fenced, ..row.published },
        ..row
    };
    let (leader, theirs) = (MemberId::new(2), SqlGuarantee::Fenced);
    let mut subject = Subject::new(lan());
    show(&mut subject, fenced(other()), 3000);
    assert_eq!(subject.member.incarnation(), None, "its mandate has no end that we could wait for");
    let told = |event: &&Event| **event == Event::Differs { leader, theirs };
    assert_eq!(subject.told.iter().filter(told).count(), 1, "{:?}", subject.told);
    show(&mut subject, fenced(row(4, 1, None)), 3500);
    assert_eq!(takes_over(&subject), Some(Term::new(5)), "it has vacated the row");

    let mut subject = Subject::new(lan().with_guarantee(SqlGuarantee::Fenced));
    show(&mut subject, other(), 120);
    assert_eq!(subject.member.incarnation(), None);
    show(&mut subject, other(), 1000);
    assert_eq!(takes_over(&subject), Some(Term::new(5)), "a lease ends by itself");
}

#[test]
fn a_round_that_is_longer_than_our_own_can_become_is_not_inherited() {
    let hour = Duration::from_secs(3600);
    let long = |row: ControlState| ControlState {
        published: Published { round: hour, lease: hour * 5 / 4, ..row.published },
        ..row
    };
    let mut subject = Subject::new(lan().with_me(MemberId::new(8)));
    show(&mut subject, long(row(4, 1, None)), 1000);
    let Some(Statement::Takeover { publish, .. }) = subject.last() else { panic!() };
    assert_eq!(publish.round, Duration::from_millis(100), "nobody leads: our own counts");
    // While its leader leads, its lease binds; and we look by our own round, so that we see when it is given back.
    let mut subject = Subject::joined(lan().with_me(MemberId::new(8)), long(other()));
    show(&mut subject, long(other()), 60_000);
    assert_eq!(takes_over(&subject), None);
    show(&mut subject, long(row(4, 1, None)), 61_000);
    assert_eq!(takes_over(&subject), Some(Term::new(5)));
}
