//! The handle of an election: what an application holds, whatever engine elects.

use std::collections::BTreeMap;
use std::fs::File;
use std::future::Future;
use std::sync::{PoisonError, Weak};
use std::time::Duration;

use mandate_proto::detector::quality::Detection;
use mandate_proto::election::{Candidacy, Figures, NoTransfer};
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::oracle::View;
use mandate_proto::pole::installation::{
    MemberChange, NoChange, NoVote, Roster, RosterId, WhyNoVote,
};
use mandate_proto::score::Score;
use mandate_proto::value::{NoPublish, Value};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::timeout;

use crate::disk::DiskHealth;
use crate::durable::DurableFile;
use crate::ends::{Command, HandleEnd, Records};
use crate::engine_side::EngineSide;
use crate::event::{Event, Record};
use crate::mandate::Mandate;

/// How long a shutdown may take: after that the driver is let go.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// How long a question may take: a driver that waits for its disk answers nobody.
const STATUS: Duration = Duration::from_secs(1);

/// Why leading ended before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeadError {
    /// Leadership was lost; the work was dropped where it waited.
    #[error("leadership of term {term} was lost")]
    Lost {
        /// The term.
        term: Term,
    },
    /// The member was shut down.
    #[error("this member was shut down")]
    Stopped,
}

/// Why a change of members did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// It was not made, and never will be.
    #[error(transparent)]
    Refused(#[from] NoChange),
    /// Leadership was lost after it was begun: the next leader goes on with it, or never hears of it. Ask that one who the
    /// members are before trying again.
    #[error(
        "leadership was lost before a quorum had the change on disk: look at the members that the next leader goes by"
    )]
    LeadershipLost,
    /// The member was shut down. As with lost leadership, it may have been made.
    #[error("this member was shut down before a quorum had the change on disk")]
    Stopped,
}

/// Who leads, as a member knows it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ElectionState {
    /// Nobody, as far as it knows.
    Electing,
    /// Another.
    Following {
        /// The leader that it follows.
        leader: MemberId,
        /// In which term.
        term: Term,
        /// What it has published with that term, once this member knows it.
        value: Option<Value>,
    },
    /// This member.
    Leading(Mandate),
    /// This member, but its lease is near its end and renewals fail: begin nothing that takes long.
    Jeopardy(Mandate),
    /// The member was shut down.
    Stopped,
}

impl ElectionState {
    /// The mandate, if this member leads.
    pub fn mandate(&self) -> Option<&Mandate> {
        match self {
            ElectionState::Leading(mandate) | ElectionState::Jeopardy(mandate) => Some(mandate),
            _ => None,
        }
    }

    /// What the leader has published with its term. Of this member itself only while its mandate holds.
    pub fn value(&self) -> Option<&Value> {
        match self {
            ElectionState::Following { value, .. } => value.as_ref(),
            state => state.mandate().filter(|mandate| mandate.check())?.value(),
        }
    }

    /// Takes what was published, if it belongs to the leader and the term of this state; whether anything changed.
    pub(crate) fn take_value(&mut self, by: MemberId, of: Term, published: &Value) -> bool {
        match self {
            ElectionState::Following { leader, term, value } if (*leader, *term) == (by, of) => {
                value.replace(published.clone()).as_ref() != Some(published)
            }
            ElectionState::Leading(mandate) | ElectionState::Jeopardy(mandate)
                if mandate.term() == of =>
            {
                mandate.set_value(published)
            }
            _ => false,
        }
    }
}

/// What a member knows now. What its engine does not know is absent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Who leads.
    pub state: ElectionState,
    /// Members that are suspected to be down; on a database only the leader looks.
    pub suspected: Option<Vec<MemberId>>,
    /// Round trips, request rates and its own figures.
    pub view: Option<View>,
    /// What it would be worth as a leader, or why it is no candidate, where candidates have scores.
    pub candidacy: Option<Candidacy>,
    /// Whether it has a vote, where members vote.
    pub has_vote: Option<bool>,
    /// Why it has none, and whose answers it waits for.
    pub no_vote: Option<NoVote>,
    /// By which lists of members the others go, as far as they have said.
    pub lists: BTreeMap<MemberId, RosterId>,
    /// Why others have no vote, as far as they have said.
    pub without_vote: BTreeMap<MemberId, WhyNoVote>,
    /// How well it watches its leader, where it does so by heartbeats.
    pub detection: Option<Detection>,
    /// How often a lease of its own was renewed since the start.
    pub renewals: u64,
}

impl Status {
    /// What every engine knows.
    pub fn of(side: &EngineSide) -> Self {
        Status {
            state: side.state(),
            suspected: None,
            view: None,
            candidacy: None,
            has_vote: None,
            no_vote: None,
            lists: BTreeMap::new(),
            without_vote: BTreeMap::new(),
            detection: None,
            renewals: side.renewals(),
        }
    }
}

/// A member's part in an election. Cheap to clone; the member stops when it is
/// [shut down](Election::shutdown) or when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Election {
    pub(crate) end: HandleEnd,
    /// Its state, where it has one, for as long as the member runs.
    pub(crate) durable: Weak<DurableFile>,
}

/// Sees what a member sees, and cannot do anything: it never contends, and does not keep the member running.
#[derive(Clone, Debug)]
pub struct Observer {
    state: watch::Receiver<ElectionState>,
    events: broadcast::WeakSender<Event>,
    records: Records,
}

impl Observer {
    /// Who leads, to watch. It is `Stopped` at the end.
    pub fn state(&self) -> watch::Receiver<ElectionState> {
        self.state.clone()
    }

    /// What happens from now on, with reasons; `None` once the member has ended.
    pub fn events(&self) -> Option<broadcast::Receiver<Event>> {
        self.events.upgrade().map(|events| events.subscribe())
    }

    /// The last elections, the latest first, each with who stood and why it went as it did.
    pub fn records(&self) -> Vec<Record> {
        latest_first(&self.records)
    }
}

impl Election {
    pub(crate) fn new(end: HandleEnd) -> Self {
        Election { end, durable: Weak::new() }
    }

    /// The lock of this member's state, shared: no process takes part as this member before every copy is closed. For a
    /// process that acts on the member's mandate and may outlive this one. `None` if the member has no state of its own,
    /// has ended, or the system gives no more files.
    pub fn state_lock(&self) -> Option<File> {
        self.durable.upgrade()?.lock_copy().ok()
    }

    /// One that sees what this member sees, and cannot do anything.
    pub fn observer(&self) -> Observer {
        Observer {
            state: self.state(),
            events: self.end.events.downgrade(),
            records: self.end.records.clone(),
        }
    }

    /// Who leads, to watch.
    pub fn state(&self) -> watch::Receiver<ElectionState> {
        self.end.state.clone()
    }

    /// What happens from now on, with reasons.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.end.events.subscribe()
    }

    /// The last elections, the latest first, each with who stood and why it went as it did.
    pub fn records(&self) -> Vec<Record> {
        latest_first(&self.end.records)
    }

    /// Waits until this member leads.
    pub async fn led(&self) -> Result<Mandate, LeadError> {
        let mut state = self.state();
        loop {
            match &*state.borrow_and_update() {
                ElectionState::Leading(mandate) if mandate.check() => return Ok(mandate.clone()),
                ElectionState::Stopped => return Err(LeadError::Stopped),
                _ => {}
            }
            state.changed().await.map_err(|_| LeadError::Stopped)?;
        }
    }

    /// Waits until a mandate does not hold any more: it was lost or given back, or its lease ended.
    pub async fn lost(&self, mandate: &Mandate) {
        let mut state = self.state();
        while mandate.check() {
            // Timers do not count suspension, the lease does, and a driver that waits for its disk says
            // nothing: look again now and then.
            let look = Duration::from_millis(250);
            let pause = mandate.remaining().map_or(look, |left| left.min(look));
            if let Ok(Err(_)) = timeout(pause, state.changed()).await {
                return;
            }
        }
    }

    /// Waits until this member leads, runs `work` with its mandate, and gives leadership back when the
    /// work is done. If leadership is lost before, the work is dropped where it waits: what it does
    /// between two waits it should check for itself. Dropping this future gives leadership back, too.
    pub async fn lead<T, F>(&self, work: impl FnOnce(Mandate) -> F) -> Result<T, LeadError>
    where
        F: Future<Output = T>,
    {
        let mandate = self.led().await?;
        let lost = LeadError::Lost { term: mandate.term() };
        let given_back = self.end.given_back.clone();
        let _resign = ResignOnDrop { given_back, mandate: mandate.clone() };
        // Given back when the work has been dropped.
        let _loan = mandate.lend().ok_or(lost)?;
        tokio::select! {
            biased;
            () = self.lost(&mandate) => Err(lost),
            done = work(mandate.clone()) => Ok(done),
        }
    }

    /// Gives leadership up, if this member has it, and leaves it to the others. When this returns, the
    /// mandate does not hold any more, and the others have been told. Dropped before it returns, leadership may
    /// be given up or not.
    pub async fn resign(&self) {
        self.resign_from(None).await;
    }

    /// The same, without waiting for it.
    pub fn resign_soon(&self) {
        self.end.given_back.send_replace(None);
    }

    /// Gives up that reign, and no later one.
    pub async fn give_back(&self, mandate: &Mandate) {
        self.resign_from(Some(mandate.clone())).await;
    }

    async fn resign_from(&self, of: Option<Mandate>) {
        let (done, told) = oneshot::channel();
        let _ = self.end.commands.send(Command::Resign { of, done: Some(done) }).await;
        let _ = told.await;
    }

    /// Hands leadership over to another member. When this returns, the mandate does not hold any more,
    /// and the successor has been told; or nothing has changed, and the error says why.
    pub async fn transfer(&self, to: MemberId) -> Result<(), NoTransfer> {
        let (done, told) = oneshot::channel();
        let _ = self.end.commands.send(Command::Transfer { to, of: None, done }).await;
        told.await.unwrap_or(Err(NoTransfer::NotLeading))
    }

    /// Changes the members of the group, which this member leads, and waits until a quorum has the new list on disk: the change
    /// will not be undone then. Returns the list that this member goes by at that moment; steps that the leader takes by itself may
    /// be in it already.
    ///
    /// An added member counts as added as soon as it is on the list, as a learner: it becomes a voter, and takes the place of the
    /// one that it replaces, once it follows. To wait for that, watch [`members`](Election::members). It is done by the leader,
    /// and by the next one if leadership moves.
    ///
    /// It takes a round trip to a quorum and its writes; two if this is the first change of this leader. Nothing bounds
    /// it if no quorum answers and leaders have no leases. Dropping this future does not take the change back.
    pub async fn change_members(&self, change: MemberChange) -> Result<Roster, ChangeError> {
        let (done, told) = oneshot::channel();
        let _ = self.end.commands.send(Command::Change { change, of: None, done }).await;
        told.await.unwrap_or(Err(ChangeError::Stopped))
    }

    /// The list of members that this member goes by, to watch: who votes, who learns, who observes, and where they are. In a group
    /// that was never changed it says nothing of where. [`Roster::NONE`] while it waits to be added to a group; `None` where the engine
    /// keeps no list.
    pub fn members(&self) -> watch::Receiver<Option<Roster>> {
        self.end.members.clone()
    }

    /// Publishes a value with the term that this member holds now: everyone sees it with the leader, and it ends with the
    /// term. Refused if this member does not lead. When this returns, the value is on its way to the others.
    pub async fn publish(&self, value: Value) -> Result<(), NoPublish> {
        let state = self.state().borrow().clone();
        let mandate = state.mandate().ok_or(NoPublish::NotLeading)?;
        self.publish_under(mandate, value).await
    }

    /// The same for that reign, and no later one: for work that may be late.
    pub async fn publish_under(&self, mandate: &Mandate, value: Value) -> Result<(), NoPublish> {
        let (done, told) = oneshot::channel();
        let command = Command::Publish { of: mandate.clone(), value, done };
        let _ = self.end.commands.send(command).await;
        told.await.unwrap_or(Err(NoPublish::NotLeading))
    }

    /// Tells what the oracle may want to know of this member, from now on.
    pub fn set_figures(&self, figures: Figures) {
        self.end.figures.send_replace(Some(figures));
    }

    /// Says what the application scores this member with, and leaves its other figures as they were said.
    pub fn set_score(&self, application: Option<Score>) {
        self.end.figures.send_modify(|figures| {
            figures.get_or_insert_default().application = application;
        });
    }

    /// What this member knows now; `None` if it was shut down, or does not get to answer within a second.
    pub async fn status(&self) -> Option<Status> {
        let (done, told) = oneshot::channel();
        let answer = async {
            self.end.commands.send(Command::Status { done }).await.ok()?;
            told.await.ok()
        };
        timeout(STATUS, answer).await.ok()?
    }

    /// How the writes of this member's state go. Asked of nobody: the driver may be waiting for its disk.
    /// Nothing was written where an engine keeps no state of its own.
    pub fn disk(&self) -> DiskHealth {
        self.end.disk.health()
    }

    /// Gives leadership back and stops the member. Bounded: after two seconds it is let go.
    pub async fn shutdown(&self) {
        let stopped = async {
            self.end.stop.send_replace(true);
            let _ = self.state().wait_for(|state| matches!(state, ElectionState::Stopped)).await;
        };
        let _ = timeout(SHUTDOWN, stopped).await;
    }
}

fn latest_first(records: &Records) -> Vec<Record> {
    let records = records.lock().unwrap_or_else(PoisonError::into_inner);
    records.iter().rev().cloned().collect()
}

/// Gives a reign back when it goes out of scope, however that comes about.
struct ResignOnDrop {
    given_back: watch::Sender<Option<Mandate>>,
    mandate: Mandate,
}

impl Drop for ResignOnDrop {
    fn drop(&mut self) {
        // One that is over does not stand in the way of one that is not.
        self.given_back.send_if_modified(|given_back| {
            let is_news = given_back.as_ref().is_none_or(|last| !last.is_later_than(&self.mandate));
            if is_news {
                *given_back = Some(self.mandate.clone());
            }
            is_news
        });
    }
}
