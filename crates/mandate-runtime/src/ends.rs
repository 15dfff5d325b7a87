//! The driver's end of an election: what the handle asks for comes in here, and what happens goes out.
//!
//! Everything is bounded. Questions and orders wait in a short queue; of figures only the latest counts; and a
//! mandate that is given back by dropping a future, where nobody can wait, has a place of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use mandate_proto::election::{Figures, NoTransfer};
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::{MemberChange, Roster};
use mandate_proto::pole::member::{LeaderAnswer, LeaderRequest, LeaderRequestId};
use mandate_proto::value::{NoPublish, Value};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::disk::Disk;
use crate::election::{ChangeError, ElectionState, Status};
use crate::event::{Event, Record};
use crate::mandate::Mandate;
use crate::requests::{GateCell, LeaderRequestError};

/// Questions and orders that may wait.
pub(crate) const QUEUE: usize = 64;

/// Events that a slow observer may be behind; older ones are lost to it, and it is told so.
const EVENTS: usize = 256;

/// Elections that are remembered.
const RECORDS: usize = 64;

/// What the handle asks of its driver.
#[derive(Debug)]
pub enum Command {
    /// Give leadership up.
    Resign {
        /// Only that reign, if one is named.
        of: Option<Mandate>,
        /// Told when the mandate does not hold any more.
        done: Option<oneshot::Sender<()>>,
    },
    /// Give leadership of that term up, and of no later one.
    ResignFrom {
        /// The term.
        term: Term,
        /// Told when it is over.
        done: oneshot::Sender<()>,
    },
    /// Hand leadership over.
    Transfer {
        /// To whom.
        to: MemberId,
        /// Only from this term, if one is named.
        of: Option<Term>,
        /// Told when it has begun, or why it was not.
        done: oneshot::Sender<Result<(), NoTransfer>>,
    },
    /// Publish a value with a term.
    Publish {
        /// Only with the term of that reign.
        of: Mandate,
        /// The value.
        value: Value,
        /// Told when it is on its way to the others, or why it is not.
        done: oneshot::Sender<Result<(), NoPublish>>,
    },
    /// Change the members of the group.
    Change {
        /// How.
        change: MemberChange,
        /// Only as the leader of this term, if one is named.
        of: Option<Term>,
        /// Told when it will not be undone, with the list that it led to, or why it was not made.
        done: oneshot::Sender<Result<Roster, ChangeError>>,
    },
    /// Ask the leader for something, which may be another member.
    Ask {
        /// For what.
        request: LeaderRequest,
        /// Told what came of it.
        done: oneshot::Sender<Result<LeaderAnswer, LeaderRequestError>>,
    },
    /// Answer what a member has asked of this one.
    Answer {
        /// Which request.
        id: LeaderRequestId,
        /// What came of it.
        answer: LeaderAnswer,
    },
    /// What the application knows, from now on.
    Figures(Figures),
    /// Say what is known.
    Status {
        /// To whom.
        done: oneshot::Sender<Status>,
    },
    /// Give leadership back and end.
    Stop,
}

/// The last elections.
pub(crate) type Records = Arc<Mutex<VecDeque<Record>>>;

/// The driver's end.
#[derive(Debug)]
pub(crate) struct EngineEnd {
    commands: mpsc::Receiver<Command>,
    figures: watch::Receiver<Option<Figures>>,
    given_back: watch::Receiver<Option<Mandate>>,
    stop: watch::Receiver<bool>,
    pub(crate) state: watch::Sender<ElectionState>,
    pub(crate) members: watch::Sender<Option<Roster>>,
    events: broadcast::Sender<Event>,
    records: Records,
    pub(crate) disk: Disk,
    /// What the last transfer came to.
    pub(crate) refused: Option<NoTransfer>,
}

/// The handle's end.
#[derive(Clone, Debug)]
pub(crate) struct HandleEnd {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) figures: watch::Sender<Option<Figures>>,
    pub(crate) given_back: watch::Sender<Option<Mandate>>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) state: watch::Receiver<ElectionState>,
    pub(crate) members: watch::Receiver<Option<Roster>>,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) records: Records,
    pub(crate) disk: Disk,
    pub(crate) gate: GateCell,
}

/// Both ends.
pub(crate) fn pair() -> (HandleEnd, EngineEnd) {
    let (commands, received) = mpsc::channel(QUEUE);
    let (figures, latest) = watch::channel(None);
    let (given_back, returned) = watch::channel(None);
    let (stop, stopped) = watch::channel(false);
    let (state, watched) = watch::channel(ElectionState::Electing);
    let (members, listed) = watch::channel(None);
    let (events, _) = broadcast::channel(EVENTS);
    let (records, disk) = (Records::default(), Disk::default());
    let handle = HandleEnd {
        commands,
        figures,
        given_back,
        stop,
        state: watched,
        members: listed,
        events: events.clone(),
        records: records.clone(),
        disk: disk.clone(),
        gate: GateCell::default(),
    };
    let engine = EngineEnd {
        commands: received,
        figures: latest,
        given_back: returned,
        stop: stopped,
        state,
        members,
        events,
        records,
        disk,
        refused: None,
    };
    (handle, engine)
}

impl EngineEnd {
    /// What is asked for next. When the last handle is gone, to stop.
    pub(crate) async fn next(&mut self) -> Command {
        tokio::select! {
            biased;
            Ok(_) = self.stop.wait_for(|stop| *stop) => Command::Stop,
            Ok(()) = self.given_back.changed() => {
                // If one was overwritten before it was read here, its reign was over by then.
                let of = self.given_back.borrow_and_update().clone();
                Command::Resign { of, done: None }
            }
            command = self.commands.recv() => command.unwrap_or(Command::Stop),
            Ok(()) = self.figures.changed() => {
                Command::Figures(self.figures.borrow_and_update().unwrap_or_default())
            }
        }
    }

    /// What is asked for next, where there is room for it; without, only to stop.
    pub(crate) async fn next_if(&mut self, has_room: bool) -> Command {
        if has_room {
            return self.next().await;
        }
        // An error says that the last handle is gone.
        let _ = self.stop.wait_for(|stop| *stop).await;
        Command::Stop
    }

    /// Tells everyone who listens, and remembers elections.
    pub(crate) fn tell(&mut self, event: Event) {
        match &event {
            Event::Elected(record) => self.remember((**record).clone()),
            Event::NoTransfer { reason, .. } => self.refused = Some(*reason),
            _ => {}
        }
        tracing::debug!(?event, "told");
        // Nobody listens, perhaps.
        let _ = self.events.send(event);
    }

    fn remember(&self, record: Record) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.push_back(record);
        if records.len() > RECORDS {
            records.pop_front();
        }
    }
}
