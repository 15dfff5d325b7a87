//! What is asked of the leader by way of another member.

use super::*;
use crate::pole::installation::MemberChange;

const LATE: u64 = ANSWERED_WITHIN.as_millis() as u64;

fn asks(subject: &mut Subject, number: u64, request: Request) {
    subject.tell(Input::Ask { number, request });
}

/// What came of the requests of this member, in order.
fn answers(subject: &Subject) -> Vec<(u64, Answer)> {
    let answer = |event: &Event| match event {
        Event::Answered { number, answer } => Some((*number, *answer)),
        _ => None,
    };
    subject.told().filter_map(answer).collect()
}

/// What was answered to p2.
fn answered(subject: &Subject) -> Vec<(u64, Answer)> {
    let answer = |message: &Message| match message {
        Message::Answer { number, life, answer } => {
            assert_eq!(*life, Incarnation::new(9));
            Some((*number, *answer))
        }
        _ => None,
    };
    subject.sent().filter_map(answer).collect()
}

fn request(number: u64, term: u64, request: Request) -> Message {
    Message::Request { number, life: Incarnation::new(9), term: Term::new(term), request }
}

fn asked(subject: &Subject) -> Vec<RequestId> {
    let id = |event: &Event| match event {
        Event::Asked { id, .. } => Some(*id),
        _ => None,
    };
    subject.told().filter_map(id).collect()
}

#[test]
fn a_request_goes_to_the_leader_with_its_term_and_its_answer_comes_back_once() {
    let mut subject = Subject::following(config(3));
    asks(&mut subject, 7, Request::Resign);
    let life = Incarnation::new(4);
    let (term, request) = (Term::new(5), Request::Resign);
    let message = Message::Request { number: 7, life, term, request };
    assert!(subject.effects.contains(&Effect::Send { to: p(3), message }));
    let answer = |life, number, answer| Message::Answer { number, life, answer };
    subject.hear(3, answer(Incarnation::new(3), 7, Answer::Done));
    subject.hear(3, answer(life, 8, Answer::Done));
    assert_eq!(answers(&subject), [], "of another incarnation, of another request");
    subject.hear(3, answer(life, 7, Answer::Done));
    subject.hear(3, answer(life, 7, Answer::Busy));
    assert_eq!(answers(&subject), [(7, Answer::Done)]);
}

#[test]
fn without_an_answer_the_outcome_is_unknown_and_without_a_leader_nothing_is_asked() {
    let mut subject = Subject::following(config(3));
    asks(&mut subject, 1, Request::Transfer { to: p(2) });
    subject.run_until(at(LATE - 1), &[2, 3]);
    assert_eq!(answers(&subject), []);
    subject.run_until(at(LATE + 1), &[2, 3]);
    assert_eq!(answers(&subject), [(1, Answer::Unknown)]);
    let mut alone = Subject::new(config(3));
    asks(&mut alone, 1, Request::Resign);
    assert_eq!(answers(&alone), [(1, Answer::NoLeader)]);
    assert!(!alone.sent().any(|message| matches!(message, Message::Request { .. })));
}

#[test]
fn a_request_of_another_term_is_refused_and_one_of_this_is_carried_out_in_it_or_not_at_all() {
    let mut subject = leading(config(3));
    subject.effects.clear();
    for term in [5, 7] {
        subject.hear(2, request(term, term, Request::Resign));
    }
    assert_eq!(answered(&subject), [(5, Answer::NotInTerm), (7, Answer::NotInTerm)]);
    assert_eq!(asked(&subject), []);
    // Its application takes its time, and does it when the term is over: nothing happens to the next one.
    subject.hear(2, request(1, 6, Request::Resign));
    assert_eq!(asked(&subject).len(), 1);
    subject.tell(Input::Serve { term: Term::new(5), request: Request::Resign });
    assert_eq!(subject.member.state(), State::Leading { term: Term::new(6) });
    let to = p(2);
    subject.tell(Input::Serve { term: Term::new(7), request: Request::Transfer { to } });
    let late = Event::NoTransfer { to, reason: NoTransfer::NotLeading };
    assert!(subject.told().any(|event| *event == late));
    let change = MemberChange::Remove { member: p(3) };
    let remove = Request::Change(change.clone());
    subject.tell(Input::Serve { term: Term::new(7), request: remove });
    let late = Event::NotChanged { change, reason: NoChange::NotLeading };
    assert!(subject.told().any(|event| *event == late));
    assert_eq!(subject.member.state(), State::Leading { term: Term::new(6) });
    subject.tell(Input::Serve { term: Term::new(6), request: Request::Resign });
    assert_eq!(subject.member.mandate(subject.now), None);
}

#[test]
fn a_leader_carries_out_a_few_at_a_time_each_once_and_what_cannot_be_is_said_at_once() {
    let mut subject = leading(config(3));
    subject.effects.clear();
    subject.hear(2, request(1, 6, Request::Transfer { to: p(9) }));
    assert_eq!(answered(&subject), [(1, Answer::NoTransfer(NoTransfer::NotAMember))]);
    subject.effects.clear();
    for number in 2..3 + MAX_SERVED as u64 {
        subject.hear(2, request(number, 6, Request::Resign));
        subject.hear(2, request(number, 6, Request::Resign));
    }
    assert_eq!(asked(&subject).len(), MAX_SERVED);
    let refused = (2 + MAX_SERVED as u64, Answer::Busy);
    assert_eq!(answered(&subject), [refused, refused]);
    let id = asked(&subject)[0];
    subject.effects.clear();
    for _ in 0..2 {
        subject.tell(Input::Answer { id, answer: Answer::Done });
    }
    assert_eq!(answered(&subject), [(2, Answer::Done)]);
    subject.hear(2, request(99, 6, Request::Resign));
    assert_eq!(asked(&subject).len(), 1, "there is a place again");
}

#[test]
fn a_leader_asks_itself_and_so_many_requests_wait_at_most() {
    let mut subject = leading(config(3));
    subject.effects.clear();
    asks(&mut subject, 1, Request::Resign);
    let id = asked(&subject)[0];
    assert_eq!(id.by, p(1));
    subject.tell(Input::Answer { id, answer: Answer::Done });
    assert_eq!(answers(&subject), [(1, Answer::Done)]);
    let mut follower = Subject::following(config(3));
    for number in 0..=MAX_ASKED as u64 {
        asks(&mut follower, number, Request::Resign);
    }
    assert_eq!(answers(&follower), [(MAX_ASKED as u64, Answer::Busy)]);
}
