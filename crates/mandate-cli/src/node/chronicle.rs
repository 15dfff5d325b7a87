//! What has happened at this member: numbered, with the time of day, and kept for who asks later.
//!
//! The election tells an event once, to those that listen at that moment. A page that is opened afterwards, or that was away
//! for a moment, wants what it has missed; so events get numbers here, and the last of them are kept. The
//! time of day is for people: nothing is decided by it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use mandate::{Event, State};
use mandate_proto::identity::MemberId;
use mandate_proto::neli;
use mandate_proto::registers;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use utoipa::ToSchema;

use super::document::{About, ElectionDocument};
use crate::ledger::words::loss_name;

/// Events that are kept for readers that come later.
const EVENTS: usize = 256;

/// Elections that are kept: as many as the library remembers.
const ELECTIONS: usize = 64;

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventDocument {
    /// Counts from 1 at each start of the daemon; absent on what is told to one reader alone.
    pub id: Option<u64>,
    /// When, in milliseconds since 1970 by this host's clock.
    pub at_ms: u64,
    pub kind: EntryKind,
    /// The same in words.
    pub text: String,
    /// The member that it is about, if it is about one.
    pub member: Option<String>,
    pub term: Option<u64>,
    /// What the leader has published with that term, of events that tell of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// No leader is known any more.
    Electing,
    /// Another leads.
    Following,
    /// This member leads.
    Leading,
    /// The leader has published a value with its term.
    Published,
    /// An election has ended.
    Elected,
    /// A member does not answer.
    Suspected,
    /// It answers again.
    Answers,
    /// A transfer was refused.
    NoTransfer,
    /// Another would serve better.
    Advised,
    /// What came of a move.
    Moved,
    /// All others have answered, and this member has a vote.
    Recovered,
    /// The quality of detection that is wanted cannot be had on the link as it is.
    Unachievable,
    /// Two processes show the id of a member.
    Twin,
    /// This member goes by another list of members.
    Members,
    /// Something else that an operator may want to know: the text says what.
    Note,
    /// This reader was too slow, and some events are lost to it.
    Missed,
}

impl EventDocument {
    /// What a reader is told that was too slow.
    pub fn missed(count: u64) -> Self {
        EventDocument {
            id: None,
            at_ms: now_ms(),
            kind: EntryKind::Missed,
            text: format!("{count} events were missed: this reader is too slow"),
            member: None,
            term: None,
            value: None,
        }
    }

    /// What happened to member `me`.
    fn new(id: u64, event: &Event, me: MemberId) -> Self {
        let (kind, member, term) = match event {
            Event::Changed(State::Electing) => (EntryKind::Electing, None, None),
            Event::Changed(State::Following { leader, term }) => {
                (EntryKind::Following, Some(*leader), Some(*term))
            }
            Event::Changed(State::Leading { term }) => (EntryKind::Leading, Some(me), Some(*term)),
            Event::Published { leader, term, .. } => {
                (EntryKind::Published, Some(*leader), Some(*term))
            }
            Event::Elected(record) => (EntryKind::Elected, Some(record.leader), Some(record.term)),
            Event::Suspected { member, suspected: true } => {
                (EntryKind::Suspected, Some(*member), None)
            }
            Event::Suspected { member, .. } => (EntryKind::Answers, Some(*member), None),
            Event::NoTransfer { to, .. } => (EntryKind::NoTransfer, Some(*to), None),
            Event::Advised(advice) => (EntryKind::Advised, Some(advice.to), None),
            Event::Moved(effect) => (EntryKind::Moved, Some(effect.advice.to), None),
            Event::Recovered => (EntryKind::Recovered, None, None),
            Event::Unachievable { leader, .. } => (EntryKind::Unachievable, Some(*leader), None),
            Event::LeaderRestarted { leader } | Event::LeaderTooSlow { leader, .. } => {
                (EntryKind::Note, Some(*leader), None)
            }
            Event::WentBack { member, term } => (EntryKind::Note, Some(*member), Some(*term)),
            Event::Differs { member } => (EntryKind::Note, Some(*member), None),
            Event::OnDatabase(registers::Event::Reigned(reign)) => {
                (EntryKind::Elected, reign.leader, Some(reign.term))
            }
            Event::OnLedger(neli::Event::Acquired { term, .. }) => {
                (EntryKind::Leading, Some(me), *term)
            }
            Event::OnLedger(neli::Event::Published { term, .. }) => {
                (EntryKind::Published, Some(me), Some(*term))
            }
            Event::Twin { member } => (EntryKind::Twin, Some(*member), None),
            Event::RosterChanged(list) => (EntryKind::Members, None, Some(list.id().term)),
            Event::NotChanged { change, .. } => (EntryKind::Note, Some(change.member()), None),
            _ => (EntryKind::Note, None, None),
        };
        EventDocument {
            id: Some(id),
            at_ms: now_ms(),
            kind,
            text: super::event_text(event),
            member: member.as_ref().map(MemberId::to_string),
            term: term.map(|term| term.get()),
            value: match event {
                Event::Published { value, .. }
                | Event::OnLedger(neli::Event::Published { value, .. }) => Some(value.to_string()),
                _ => None,
            },
        }
    }
}

/// The events of a member since its process started.
#[derive(Debug)]
pub(crate) struct Chronicle {
    kept: Mutex<Kept>,
    told: broadcast::Sender<Arc<EventDocument>>,
    started_ms: u64,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Arc<EventDocument>>,
    /// The latest first.
    elections: VecDeque<ElectionDocument>,
    /// Events so far.
    last: u64,
}

impl Chronicle {
    pub(crate) fn new() -> Self {
        let (told, _) = broadcast::channel(EVENTS);
        Chronicle { kept: Mutex::default(), told, started_ms: now_ms() }
    }

    /// When the daemon was started, in milliseconds since 1970.
    pub(crate) fn started_ms(&self) -> u64 {
        self.started_ms
    }

    /// Takes note of an event, and passes it on.
    pub(crate) fn note(&self, event: &Event, about: &About) -> Arc<EventDocument> {
        let mut kept = self.kept();
        kept.last += 1;
        let document = Arc::new(EventDocument::new(kept.last, event, about.me));
        match event {
            Event::Elected(record) => {
                kept.end_reign(Some(record.term.get()), document.at_ms);
                kept.elections.push_front(about.election(record, document.at_ms));
                kept.elections.truncate(ELECTIONS);
            }
            Event::OnDatabase(registers::Event::Reigned(reign)) => {
                kept.end_reign(reign.leader.map(|_| reign.term.get()), document.at_ms);
                if let Some(mut election) = about.reign(reign, document.at_ms) {
                    // The row does not name who vacated it, but this member has seen it lead.
                    if reign.reason != registers::Reason::First && election.former.is_none() {
                        election.former = kept.elections.front().map(|last| last.leader.clone());
                    }
                    kept.elections.push_front(election);
                    kept.elections.truncate(ELECTIONS);
                }
            }
            Event::OnLedger(event) => kept.on_ledger(event, about, document.at_ms),
            Event::Changed(State::Electing) => kept.end_reign(None, document.at_ms),
            Event::Changed(State::Following { term, .. } | State::Leading { term }) => {
                kept.end_reign(Some(term.get()), document.at_ms);
            }
            _ => {}
        }
        kept.events.push_back(document.clone());
        if kept.events.len() > EVENTS {
            kept.events.pop_front();
        }
        // Under the lock, so that a subscriber misses nothing and hears nothing twice.
        let _ = self.told.send(document.clone());
        document
    }

    /// What is kept of what came after event `after` (nothing, if that is `None`), and then what happens.
    pub(crate) fn follow(
        &self,
        after: Option<u64>,
    ) -> (Vec<Arc<EventDocument>>, broadcast::Receiver<Arc<EventDocument>>) {
        let kept = self.kept();
        let news = self.told.subscribe();
        let missed = match after {
            None => Vec::new(),
            // A number of an earlier start: the reader knows nothing of this one.
            Some(after) if after > kept.last => kept.events.iter().cloned().collect(),
            Some(after) => {
                let is_later = |event: &&Arc<EventDocument>| event.id > Some(after);
                kept.events.iter().filter(is_later).cloned().collect()
            }
        };
        (missed, news)
    }

    /// The last elections, the latest first.
    pub(crate) fn elections(&self) -> Vec<ElectionDocument> {
        self.kept().elections.iter().cloned().collect()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Each partition has terms of its own.
    fn on_ledger(&mut self, event: &neli::Event, about: &About, at_ms: u64) {
        match event {
            neli::Event::Acquired { partition, term } => {
                self.elections.push_front(about.assigned(*partition, *term, at_ms));
                self.elections.truncate(ELECTIONS);
            }
            neli::Event::Ended { partition, loss, .. } => {
                let is_of = |one: &&mut ElectionDocument| one.partition == Some(partition.get());
                if let Some(last) = self.elections.iter_mut().find(is_of) {
                    last.until_ms.get_or_insert(at_ms);
                    last.ended.get_or_insert_with(|| loss_name(*loss).to_owned());
                }
            }
            _ => {}
        }
    }

    /// Writes down when the last leader's time ended, unless it is of the present term.
    fn end_reign(&mut self, present: Option<u64>, at_ms: u64) {
        let last = self.elections.front_mut().filter(|last| Some(last.term) != present);
        if let Some(last) = last {
            last.until_ms.get_or_insert(at_ms);
        }
    }
}

/// The time of day, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_proto::identity::Term;

    fn about() -> About {
        About {
            group: "test".into(),
            me: MemberId::new(1),
            guarantee: "fenced".into(),
            lease: None,
            has_terms: true,
            oracle: "constant".parse().unwrap(),
        }
    }

    fn suspected(member: u32) -> Event {
        Event::Suspected { member: MemberId::new(member), suspected: true }
    }

    #[test]
    fn who_comes_back_gets_what_it_has_missed_and_nothing_twice() {
        let chronicle = Chronicle::new();
        (0..3).for_each(|_| drop(chronicle.note(&suspected(2), &about())));
        let ids = |after| {
            let (missed, _) = chronicle.follow(after);
            missed.iter().map(|event| event.id.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(ids(None), [0; 0], "only what happens from now on");
        assert_eq!((ids(Some(0)), ids(Some(2))), (vec![1, 2, 3], vec![3]));
        assert_eq!(ids(Some(3)), [0; 0]);
        assert_eq!(ids(Some(99)), [1, 2, 3], "that number is of an earlier start");
        let (_, mut news) = chronicle.follow(Some(3));
        chronicle.note(&suspected(2), &about());
        assert_eq!(news.try_recv().unwrap().id, Some(4));
    }

    #[test]
    fn leading_names_the_member_that_leads() {
        let chronicle = Chronicle::new();
        let leading = Event::Changed(State::Leading { term: Term::new(3) });
        let noted = chronicle.note(&leading, &about());
        assert_eq!((noted.kind, noted.member.as_deref()), (EntryKind::Leading, Some("p1")));
    }

    fn reigned(term: u64, leader: Option<u32>, reason: registers::Reason) -> Event {
        let (term, leader) = (Term::new(term), leader.map(MemberId::new));
        let reign = registers::Reign { term, leader, reason, former: None };
        Event::OnDatabase(registers::Event::Reigned(reign))
    }

    /// The row of a database does not name who vacated it.
    #[test]
    fn who_led_before_on_a_database_is_who_was_seen_to_lead_and_a_transfer_was_asked_for() {
        use registers::Reason;
        let chronicle = Chronicle::new();
        let note = |event: Event| drop(chronicle.note(&event, &about()));
        let last = || {
            let last = chronicle.elections().into_iter().next().unwrap();
            (last.term, last.former, last.handed_over_by)
        };
        note(reigned(1, Some(2), Reason::First));
        assert_eq!(last(), (1, None, None), "nobody led before");
        note(reigned(1, None, Reason::Resigned));
        note(reigned(2, Some(3), Reason::Resigned));
        assert_eq!(last(), (2, Some("p2".into()), None));
        note(reigned(2, None, Reason::Transferred));
        note(reigned(3, Some(2), Reason::Transferred));
        assert_eq!(last(), (3, Some("p3".into()), Some("request".into())));
        assert_eq!(chronicle.elections().len(), 3, "what was vacated is no election");
    }

    #[test]
    fn only_the_last_events_are_kept() {
        let chronicle = Chronicle::new();
        (0..=EVENTS).for_each(|_| drop(chronicle.note(&suspected(2), &about())));
        let (missed, _) = chronicle.follow(Some(0));
        assert_eq!((missed.len(), missed[0].id), (EVENTS, Some(2)));
    }
}
