//! The handle of an election: what an application holds, whatever engine elects.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mandate_proto::identity::{Lifetime, MemberId, Term};
use mandate_proto::oracle::{Standing, View};
use mandate_proto::pole::installation::{Boot, Promised};
use mandate_proto::pole::member::{Config, Event, Figures, NoTransfer, Record};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::clock::Clock;
use crate::driver::{Command, Driver};
use crate::durable::{DurableError, DurableFile, Owner};
use crate::mandate::{Board, Mandate};
use crate::transport::{Inbound, Transport};

/// Events that a slow observer may be behind; older ones are lost to it, and it is told so.
const EVENTS: usize = 256;

/// Elections that are remembered.
const RECORDS: usize = 64;

/// How long a shutdown may take: after that the driver is let go.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// How long a question may take: a driver that waits for its disk answers nobody.
const STATUS: Duration = Duration::from_secs(1);

/// What a member starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The state on its disk, which must be there.
    Stored,
    /// It takes part for the first time; its disk must be empty.
    New,
    /// Its disk was lost: it has no vote until all others have told it what they promised.
    Lost,
}

/// How a member is set up.
#[derive(Debug)]
pub struct Setup {
    /// The protocol.
    pub config: Config,
    /// The group's name.
    pub group: String,
    /// Where its state is kept.
    pub state: std::path::PathBuf,
    /// What it starts from.
    pub start: Start,
}

/// Why a member cannot start. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state cannot be used.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// There is none.
    #[error(
        "there is no state at {0}. If this member takes part for the first time, start it with --new; if its \
         disk was lost, with --lost: it will ask the others what it may have promised"
    )]
    NoState(std::path::PathBuf),
    /// There is one, and none was expected.
    #[error(
        "there is a state at {0} already: this member has taken part before. Start it without --new or --lost; \
         if it is to forget everything, and only then, move that file away"
    )]
    HasState(std::path::PathBuf),
    /// The system gave no random number.
    #[error("the system gave no random number: {0}")]
    Random(getrandom::Error),
}

/// Why leading ended before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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

/// Who leads, as a member knows it.
#[derive(Clone, Debug)]
pub enum ElectionState {
    /// Nobody, as far as it knows.
    Electing,
    /// Another.
    Following {
        /// Who.
        leader: MemberId,
        /// In which term.
        term: Term,
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
}

/// What a member knows now.
#[derive(Clone, Debug)]
pub struct Status {
    /// Who leads.
    pub state: ElectionState,
    /// Members that are suspected to be down.
    pub suspected: Vec<MemberId>,
    /// Round trips, request rates and its own figures.
    pub view: View,
    /// What it would be worth as a leader, or why it is no candidate.
    pub standing: Standing,
    /// Whether it has a vote.
    pub has_vote: bool,
}

/// A member's part in an election. Cheap to clone; the member stops when it is
/// [shut down](Election::shutdown) or when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Election {
    commands: mpsc::UnboundedSender<Command>,
    state: watch::Receiver<ElectionState>,
    events: broadcast::Sender<Event>,
    records: Arc<Mutex<VecDeque<Record>>>,
}

impl Election {
    /// Starts a member on the current tokio runtime.
    pub fn start(
        setup: Setup,
        transport: Arc<dyn Transport>,
        inbound: mpsc::Receiver<Inbound>,
    ) -> Result<Self, StartError> {
        let owner = Owner { group: setup.group, member: setup.config.me().to_string() };
        let (durable, stored) = DurableFile::open::<Promised>(&setup.state, owner)?;
        match (setup.start, stored.is_some()) {
            (Start::Stored, false) => return Err(StartError::NoState(setup.state)),
            (Start::New | Start::Lost, true) => return Err(StartError::HasState(setup.state)),
            _ => {}
        }
        let lifetime = Lifetime::new(getrandom::u64().map_err(StartError::Random)?);
        let boot = Boot { stored, is_new: setup.start == Start::New, lifetime };
        let board = Board::new(Clock::start());
        let (commands, received) = mpsc::unbounded_channel();
        let (state, watched) = watch::channel(ElectionState::Electing);
        let (events, _) = broadcast::channel(EVENTS);
        let records = Arc::new(Mutex::new(VecDeque::new()));
        let election = Election { commands, state: watched, events: events.clone(), records };
        let remember = {
            let records = election.records.clone();
            move |record: Record| remember(&records, record)
        };
        let driver =
            Driver::new(setup.config, boot, board, durable, transport, state, events, remember);
        tokio::spawn(driver.run(inbound, received));
        Ok(election)
    }

    /// Who leads, to watch.
    pub fn state(&self) -> watch::Receiver<ElectionState> {
        self.state.clone()
    }

    /// What happens from now on, with reasons.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// The last elections, the latest first, each with who stood and why it went as it did.
    pub fn records(&self) -> Vec<Record> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.iter().rev().cloned().collect()
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
        let _resign = ResignOnDrop { commands: self.commands.clone(), term: mandate.term() };
        tokio::select! {
            biased;
            () = self.lost(&mandate) => Err(LeadError::Lost { term: mandate.term() }),
            done = work(mandate.clone()) => Ok(done),
        }
    }

    /// Gives leadership up, if this member has it, and leaves it to the others. When this returns, the
    /// mandate does not hold any more, and the others have been told.
    pub async fn resign(&self) {
        let (done, told) = oneshot::channel();
        let _ = self.commands.send(Command::Resign { term: None, done: Some(done) });
        let _ = told.await;
    }

    /// Hands leadership over to another member. When this returns, the mandate does not hold any more,
    /// and the successor has been told; or nothing has changed, and the error says why.
    pub async fn transfer(&self, to: MemberId) -> Result<(), NoTransfer> {
        let (done, told) = oneshot::channel();
        let _ = self.commands.send(Command::Transfer { to, done });
        told.await.unwrap_or(Err(NoTransfer::NotLeading))
    }

    /// Tells what the oracle may want to know of this member, from now on.
    pub fn set_figures(&self, figures: Figures) {
        let _ = self.commands.send(Command::Figures(figures));
    }

    /// What this member knows now; `None` if it was shut down, or does not get to answer within a second
    /// because its disk refuses writes.
    pub async fn status(&self) -> Option<Status> {
        let (done, told) = oneshot::channel();
        self.commands.send(Command::Status { done }).ok()?;
        timeout(STATUS, told).await.ok()?.ok()
    }

    /// Gives leadership back and stops the member. Bounded: after two seconds it is let go.
    pub async fn shutdown(&self) {
        let (done, told) = oneshot::channel();
        if self.commands.send(Command::Stop { done }).is_ok() {
            let _ = timeout(SHUTDOWN, told).await;
        }
    }
}

fn remember(records: &Mutex<VecDeque<Record>>, record: Record) {
    let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
    records.push_back(record);
    if records.len() > RECORDS {
        records.pop_front();
    }
}

/// Gives a term back when it goes out of scope, however that comes about.
struct ResignOnDrop {
    commands: mpsc::UnboundedSender<Command>,
    term: Term,
}

impl Drop for ResignOnDrop {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Resign { term: Some(self.term), done: None });
    }
}
