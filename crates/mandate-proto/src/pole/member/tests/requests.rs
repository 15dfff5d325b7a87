//! What is asked of the leader by way of another member.

use super::*;
use crate::pole::installation::MemberChange;

const LATE: u64 = ANSWERED_WITHIN.as_millis() as u64;

fn asks(subject: &mut Subject, number: u64, request: LeaderRequest) {
    subject.tell(Input::Ask { number, request });
}

/// What came of the requests of this member, in order.
fn answers(subject: &Subject) -> Vec<(u64, LeaderAnswer)> {
    let answer = |event: &Event| match event {
        Event::Answered { number, answer } => Some((*number, *answer)),
        _ => None,
    };
    subject.told().filter_map(answer).collect()
}

/// What was answered to p2.
fn answered(subject: &Subject) -> Vec<(u64, LeaderAnswer)> {
    let answer = |message: &Message| match message {
        Message::Answer { number, life, answer } => {
            assert_eq!(*life, Incarnation::new(9));
            Some((*number, *answer))
        }
        _ => None,
    };
    subject.sent().filter_map(answer).collect()
}

fn request(number: u64, term: u64, request: LeaderRequest) -> Message {
    Message::Request { number, life: Incarnation::new(9), term: Term::new(term), request }
}

fn asked(subject: &Subject) -> Vec<LeaderRequestId> {
    let id = |event: &Event| match event {
        Event::Asked { id, .. } => Some(*id),
        _ => None,
    };
    subject.told().filter_map(id).collect()
}

#[test]
fn a_request_goes_to_the_leader_with_its_term_and_its_answer_comes_back_once() {
    let mut subject = Subject::following(config(3));
    asks(&mut subject, 7, LeaderRequest::Resign);
    let life = Incarnation::new(4);
    let (term, request) = (Term::new(5), LeaderRequest::Resign);
    let message = Message::Request { number: 7, life, term, request };
    assert!(subject.effects.contains(&Effect::Send { to: p(3), message }));
    let answer = |life, number, answer| Message::Answer { number, life, answer };
    subject.hear(3, answer(Incarnation::new(3), 7, LeaderAnswer::Done));
    subject.hear(3, answer(life, 8, LeaderAnswer::Done));
    assert_eq!(answers(&subject), [], "of another incarnation, of another request");
    subject.hear(3, answer(life, 7, LeaderAnswer::Done));
    subject.hear(3, answer(life, 7, LeaderAnswer::Busy));
    assert_eq!(answers(&subject), [(7, LeaderAnswer::Done)]);
}

#[test]
fn without_an_answer_the_outcome_is_unknown_and_without_a_leader_nothing_is_asked() {
    let mut subject = Subject::following(config(3));
    asks(&mut subject, 1, LeaderRequest::Transfer { to: p(2) });
    subject.run_until(at(LATE - 1), &[2, 3]);
    assert_eq!(answers(&subject), []);
    subject.run_until(at(LATE + 1), &[2, 3]);
    assert_eq!(answers(&subject), [(1, LeaderAnswer::Unknown)]);
    let mut alone = Subject::new(config(3));
    asks(&mut alone, 1, LeaderRequest::Resign);
    assert_eq!(answers(&alone), [(1, LeaderAnswer::NoLeader)]);
    assert!(!alone.sent().any(|message| matches!(message, Message::Request { .. })));
}

#[test]
fn a_request_of_another_term_is_refused_and_one_of_this_is_carried_out_in_it_or_not_at_all() {
    let mut subject = leading(config(3));
    subject.effects.clear();
    for term in [5, 7] {
        subject.hear(2, request(term, term, LeaderRequest::Resign));
    }
    assert_eq!(answered(&subject), [(5, LeaderAnswer::NotInTerm), (7, LeaderAnswer::NotInTerm)]);
    assert_eq!(asked(&subject), []);
    // Its application takes its time, and does it when the term is over: nothing happens to the next one.
    subject.hear(2, request(1, 6, LeaderRequest::Resign));
    assert_eq!(asked(&subject).len(), 1);
    subject.tell(Input::Serve { term: Term::new(5), request: LeaderRequest::Resign });
    assert_eq!(subject.member.state(), State::Leading { term: Term::new(6) });
    let to = p(2);
    subject.tell(Input::Serve { term: Term::new(7), request: LeaderRequest::Transfer { to } });
    let late = Event::NoTransfer { to, reason: NoTransfer::NotLeading };
    assert!(subject.told().any(|event| *event == late));
    let change = MemberChange::Remove { member: p(3) };
    let remove = LeaderRequest::Change(change.clone());
    subject.tell(Input::Serve { term: Term::new(7), request: remove });
    let late = Event::NotChanged { change, reason: NoChange::NotLeading };
    assert!(subject.told().any(|event| *event == late));
    assert_eq!(subject.member.state(), State::Leading { term: Term::new(6) });
    subject.tell(Input::Serve { term: Term::new(6), request: LeaderRequest::Resign });
    assert_eq!(subject.member.mandate(subject.now), None);
}

#[test]
fn a_leader_carries_out_a_few_at_a_time_each_once_and_what_cannot_be_is_said_at_once() {
    let mut subject = leading(config(3));
    subject.effects.clear();
    subject.hear(2, request(1, 6, LeaderRequest::Transfer { to: p(9) }));
    assert_eq!(answered(&subject), [(1, LeaderAnswer::NoTransfer(NoTransfer::NotAMember))]);
    subject.effects.clear();
    for number in 2..3 + MAX_SERVED as u64 {
        subject.hear(2, request(number, 6, LeaderRequest::Resign));
        subject.hear(2, request(number, 6, LeaderRequest::Resign));
    }
    assert_eq!(asked(&subject).len(), MAX_SERVED);
    let refused = (2 + MAX_SERVED as u64, LeaderAnswer::Busy);
    assert_eq!(answered(&subject), [refused, refused]);
    let id = asked(&subject)[0];
    subject.effects.clear();
    for _ in 0..2 {
        subject.tell(Input::Answer { id, answer: LeaderAnswer::Done });
    }
    assert_eq!(answered(&subject), [(2, LeaderAnswer::Done)]);
    subject.hear(2, request(99, 6, LeaderRequest::Resign));
    assert_eq!(asked(&subject).len(), 1, "there is a place again");
}

#[test]
fn a_leader_asks_itself_and_so_many_requests_wait_at_most() {
    let mut subject = leading(config(3));
    subject.effects.clear();
    asks(&mut subject, 1, LeaderRequest::Resign);
    let id = asked(&subject)[0];
    assert_eq!(id.by, p(1));
    subject.tell(Input::Answer { id, answer: LeaderAnswer::Done });
    assert_eq!(answers(&subject), [(1, LeaderAnswer::Done)]);
    let mut follower = Subject::following(config(3));
    for number in 0..=MAX_ASKED as u64 {
        asks(&mut follower, number, LeaderRequest::Resign);
    }
    assert_eq!(answers(&follower), [(MAX_ASKED as u64, LeaderAnswer::Busy)]);
}
