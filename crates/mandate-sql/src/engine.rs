//! A member of a group that elects on a database: the loop that drives its machine.

use std::collections::HashMap;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::registers::{
    Config, Effect, Event as Told, Guarantee, Incarnation, Input, Member, Outcome, Part, RequestId,
    Statement,
};
use mandate_proto::time::Instant;
use mandate_runtime::event::NoTransfer;
use mandate_runtime::office::{Command, Held};
use mandate_runtime::{Election, Event, Office, Promise, Status};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::database::Database;
use crate::error::{SqlError, Trouble};
use crate::reminder::Reminder;
use crate::rows::MAX_TEXT;
use crate::statements::{Extra, Key, Reply};

/// How long a member that is to end tries to say so. The handle waits for two seconds.
const LAST_WORDS: Duration = Duration::from_millis(1500);

/// What can be said of a database that is silent: all of these look the same from here.
const NO_ANSWER: &str = "no answer in time: the database is frozen or slow, the way to it is cut, another holds a \
                         lock on the row, or its synchronous standby does not confirm commits";

/// Inputs that go before what is due, as in the driver of the peer engine.
const MAX_BEFORE_DUE: u32 = 512;

/// How a member is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The group's name.
    pub group: String,
    /// Who this is, for people: a host and a process, say. What is beyond 255 characters is cut off.
    pub label: String,
    /// The member, and how its group elects.
    pub config: Config,
}

/// A member on this process's tokio runtime.
#[derive(Clone, Debug)]
pub struct Sql {
    election: Election,
    database: Database,
    group: String,
    me: MemberId,
    incarnation: watch::Receiver<Option<Incarnation>>,
}

/// What a driver is about.
pub(crate) struct Seat {
    pub(crate) key: Key,
    pub(crate) label: String,
    /// Roles: under which number this process is in the group, as its member of the group tells.
    pub(crate) follows: Option<watch::Receiver<Option<Incarnation>>>,
    /// The group's member: whom it tells.
    pub(crate) tells: Option<watch::Sender<Option<Incarnation>>>,
}

/// Starts a machine with its driver.
pub(crate) fn start(
    database: &Database,
    mut seat: Seat,
    config: Config,
) -> Result<Election, SqlError> {
    check_group(&seat.key.group)?;
    seat.label = shown_label(&seat.label);
    if config.part() != Part::Observer {
        database.check_writable()?;
        database.check_durable()?;
    }
    let seed = getrandom::u64().map_err(SqlError::Random)?;
    let lease = config.lease(config.round());
    let lease = (config.guarantee() == Guarantee::Leased).then_some(lease);
    let (election, office) = Office::open(lease);
    let mut effects = Effects::new();
    let machine = Member::start(config, seed, office.now(), &mut effects);
    let (answers, answered) = mpsc::unbounded_channel();
    let driver = Driver {
        machine,
        effects,
        office,
        database: database.clone(),
        seat,
        answers,
        flights: HashMap::new(),
        session: None,
        waits: None,
        listens: Wish::new(database, Database::listen),
        leads: Wish::new(database, Database::lead),
        holds: Wish::new(database, Database::hold),
        trouble: None,
        reminder: Reminder::default(),
        dictated: Default::default(),
    };
    tokio::spawn(driver.run(answered, database.heard()));
    Ok(election)
}

/// As much of a label as its column takes. MySQL refuses longer ones, and PostgreSQL a zero within: nobody could join.
fn shown_label(label: &str) -> String {
    label.chars().filter(|c| *c != '\0').take(MAX_TEXT).collect()
}

/// Whether a name can be a group's.
pub fn check_group(name: &str) -> Result<(), SqlError> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_fine) {
        return Err(SqlError::Group(name.to_owned()));
    }
    Ok(())
}

impl Sql {
    /// Starts a member. It needs no connection to begin with: without one it tries until there is one.
    pub fn start(database: &Database, setup: Setup) -> Result<Self, SqlError> {
        let Setup { group, label, config } = setup;
        let me = config.me();
        let (tells, incarnation) = watch::channel(None);
        let key = Key { group: group.clone(), role: None };
        let seat = Seat { key, label, follows: None, tells: Some(tells) };
        let election = start(database, seat, config)?;
        Ok(Sql { election, database: database.clone(), group, me, incarnation })
    }

    /// Whether this member's number is in use by a process that lives: watched for as long as it may take to
    /// show. To be asked before [`start`](Sql::start) where numbers are given by hand. A row that a crash left
    /// behind costs this wait, of one and a half rounds.
    pub async fn is_running(
        database: &Database,
        group: &str,
        member: MemberId,
    ) -> Result<Option<String>, SqlError> {
        let sign = async || {
            let row = database.members(group).await?.into_iter().find(|row| row.member == member);
            let Some(row) = row else { return Ok(None) };
            let standing = database.standing(group).await?;
            let control = standing.map(|standing| standing.control);
            let leads = control.filter(|row| row.leader.is_some_and(|by| by.member == member));
            let round = control.map_or(Duration::ZERO, |control| control.published.round);
            // A leader renews its row, and everyone else beats.
            let sign = (row.incarnation, row.counter, leads.map(|control| control.version));
            Ok::<_, SqlError>(Some((sign, round, row.label)))
        };
        let Some((first, round, _)) = sign().await? else { return Ok(None) };
        let began = std::time::Instant::now();
        while began.elapsed() < round.mul_f64(1.5) {
            sleep((round / 8).max(Duration::from_millis(5))).await;
            let Some((now, _, label)) = sign().await? else { return Ok(None) };
            // That it leads no more is nothing that it has done.
            let renewed = first.2.zip(now.2).is_some_and(|(before, now)| before != now);
            if (now.0, now.1) != (first.0, first.1) || renewed {
                return Ok(Some(label));
            }
        }
        Ok(None)
    }

    /// The handle.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// The database that it elects on.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Its group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Under which number it is in the group, to watch.
    pub(crate) fn incarnation(&self) -> watch::Receiver<Option<Incarnation>> {
        self.incarnation.clone()
    }

    /// Its number.
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// Gives leadership back, leaves the group, and ends. Bounded: after two seconds it is let go.
    pub async fn shutdown(&self) {
        self.election.shutdown().await;
    }
}

/// What leaders of such a group rely on.
pub fn promise(config: &Config) -> Promise {
    match config.guarantee() {
        Guarantee::Fenced => Promise::Fenced,
        Guarantee::Leased => Promise::Leased { lease: config.lease(config.round()) },
    }
}

type Answered = (RequestId, Result<Reply, Trouble>);

struct Driver {
    machine: Member,
    effects: Effects<Effect>,
    office: Office,
    database: Database,
    seat: Seat,
    answers: mpsc::UnboundedSender<Answered>,
    /// What is under way, and how many answers had come when it was sent.
    flights: HashMap<RequestId, (Statement, u64)>,
    /// The lock that the row names, and the term.
    session: Option<(mandate_proto::identity::Term, i64)>,
    waits: Option<Waits>,
    listens: Wish,
    leads: Wish,
    holds: Wish,
    /// How often in succession something went wrong, and whether the operator knows.
    trouble: Option<(u32, bool)>,
    reminder: Reminder,
    dictated: crate::warnings::Dictated,
}

/// The leader's lock is waited for.
struct Waits {
    term: mandate_proto::identity::Term,
    number: i64,
    free: watch::Receiver<bool>,
}

/// Something that this member wants of the database, or not, and that the database does if any member wants it.
struct Wish {
    database: Database,
    tell: fn(&Database, bool),
    on: bool,
}

impl Wish {
    fn new(database: &Database, tell: fn(&Database, bool)) -> Self {
        Wish { database: database.clone(), tell, on: false }
    }

    fn set(&mut self, on: bool) {
        if self.on != on {
            self.on = on;
            (self.tell)(&self.database, on);
        }
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// The member has ended.
struct Stopped;

impl Driver {
    async fn run(
        mut self,
        mut answered: mpsc::UnboundedReceiver<Answered>,
        mut heard: broadcast::Receiver<String>,
    ) {
        let Err(Stopped) = self.drive(&mut answered, &mut heard).await;
        let leaving = async {
            while let Some((id, result)) = answered.recv().await {
                self.answered(id, result);
                self.machine.handle_timeout(self.now(), &mut self.effects);
                if self.carry_out().is_err() {
                    return;
                }
            }
        };
        let _ = timeout(LAST_WORDS, leaving).await;
    }

    async fn drive(
        &mut self,
        answered: &mut mpsc::UnboundedReceiver<Answered>,
        heard: &mut broadcast::Receiver<String>,
    ) -> Result<std::convert::Infallible, Stopped> {
        let mut before_due = 0;
        loop {
            self.carry_out()?;
            let pause = self.pause();
            if before_due >= MAX_BEFORE_DUE && pause.is_zero() {
                before_due = 0;
                self.machine.handle_timeout(self.now(), &mut self.effects);
                continue;
            }
            before_due += 1;
            tokio::select! {
                biased;
                command = self.office.next() => self.obey(command)?,
                Some((id, result)) = answered.recv() => self.answered(id, result),
                joined = joined(&mut self.seat.follows) => {
                    self.machine.handle(Input::Joined(joined), self.now(), &mut self.effects);
                }
                term = gone(&mut self.waits) => {
                    tracing::debug!(%term, "the session of the leader has ended");
                    let input = Input::LeaderSessionGone { term };
                    self.machine.handle(input, self.now(), &mut self.effects);
                }
                changed = next_of(heard, &self.seat.key.group) => {
                    if changed && self.machine.is_next() {
                        self.machine.handle(Input::RowChanged, self.now(), &mut self.effects);
                    }
                }
                () = sleep(pause) => {
                    before_due = 0;
                    self.machine.handle_timeout(self.now(), &mut self.effects);
                }
            }
        }
    }

    fn now(&self) -> Instant {
        self.office.now()
    }

    fn held(&self) -> Option<Held> {
        let (term, until) = self.machine.mandate(self.now())?;
        Some(Held { term, began: Instant::ORIGIN, until })
    }

    /// Until something is due. At most a second, because timers do not count suspension.
    fn pause(&self) -> Duration {
        let due = self.machine.deadline().into_iter().chain(self.office.wakes_at()).min();
        let now = self.now();
        due.map_or(Duration::from_secs(1), |due| (due - now).min(Duration::from_secs(1)))
    }

    fn obey(&mut self, command: Command) -> Result<(), Stopped> {
        let now = self.now();
        match command {
            Command::Resign { of, done } => {
                if self.office.concerns(of.as_ref(), self.held()) {
                    self.machine.handle(Input::Resign, now, &mut self.effects);
                    self.carry_out()?;
                }
                done.map(|done| done.send(()));
            }
            Command::Transfer { to, done } => {
                self.office.refusal();
                self.machine.handle(Input::Transfer { to }, now, &mut self.effects);
                self.carry_out()?;
                let _ = done.send(self.office.refusal().map_or(Ok(()), Err::<_, NoTransfer>));
            }
            Command::Figures(figures) => {
                self.machine.handle(Input::Figures(figures), now, &mut self.effects);
            }
            Command::Status { done } => {
                let _ = done.send(self.status());
            }
            Command::Stop => {
                self.machine.handle(Input::Leave, now, &mut self.effects);
                self.carry_out()?;
                return Err(Stopped);
            }
        }
        Ok(())
    }

    fn status(&self) -> Status {
        Status {
            state: self.office.state(),
            suspected: self.machine.suspected().collect(),
            view: self.machine.view(),
            standing: self.machine.standing(),
            has_vote: self.machine.incarnation().is_some(),
            no_vote: None,
            detection: Default::default(),
            renewals: self.office.renewals(),
        }
    }

    fn answered(&mut self, id: RequestId, result: Result<Reply, Trouble>) {
        let Some((statement, _)) = self.flights.remove(&id) else { return };
        let outcome = match result {
            Ok(Reply { answer, row }) => {
                if let Some(row) = row {
                    self.session = row.session.map(|number| (row.control.version.term, number));
                }
                if let Some((times, true)) = self.trouble.take() {
                    tracing::info!(times, "the database answers again");
                }
                Outcome::Answered(answer)
            }
            Err(trouble) => {
                self.say(&statement, &trouble);
                if trouble.unknown { Outcome::Unknown } else { Outcome::Failed }
            }
        };
        let input = Input::Answered { id, outcome };
        self.machine.handle(input, self.now(), &mut self.effects);
    }

    /// Tells the operator what is wrong: each reason at once, and then every half minute.
    fn say(&mut self, statement: &Statement, trouble: &Trouble) {
        let (times, is_told) = self.trouble.take().unwrap_or_default();
        let (times, reason) = (times + 1, &trouble.reason);
        let is_due = self.reminder.is_due(reason);
        if is_due {
            tracing::warn!(statement = name(statement), times, reason, "statement failed");
        }
        self.trouble = Some((times, is_told || is_due));
    }

    /// Carries out everything that the machine has asked for, in order.
    fn carry_out(&mut self) -> Result<(), Stopped> {
        self.office.settle(self.held());
        let mut left = false;
        while let Some(effect) = self.effects.pop() {
            match effect {
                Effect::Execute { id, statement } => self.execute(id, statement),
                Effect::Abandon { id } => {
                    if let Some((statement, answers)) = self.flights.remove(&id) {
                        self.database.gave_up(&statement, answers);
                        let reason = NO_ANSWER.to_owned();
                        let trouble = Trouble { unknown: true, ..Trouble::refused(reason) };
                        self.say(&statement, &trouble);
                    }
                }
                Effect::Tell(event) => {
                    left |= event == Told::Left;
                    crate::warnings::log(&event, self.machine.config());
                    let held = self.held();
                    self.office.tell(told(event), held);
                }
            }
        }
        if let Some(row) = self.machine.row() {
            self.office.set_lease(row.published.lease);
            self.dictated.check(row, self.machine.config());
        }
        self.office.check_jeopardy();
        if let Some(tells) = &self.seat.tells {
            let now = self.machine.incarnation();
            tells.send_if_modified(|told| std::mem::replace(told, now) != now);
        }
        self.keep_watch();
        if left { Err(Stopped) } else { Ok(()) }
    }

    fn execute(&mut self, id: RequestId, statement: Statement) {
        let answers = self.database.answers(&statement);
        self.flights.insert(id, (statement.clone(), answers));
        let session = match &statement {
            Statement::Renew { .. } | Statement::Takeover { .. } => {
                self.database.sentry().and_then(|sentry| sentry.held())
            }
            _ => None,
        };
        let extra = Extra { session, label: self.seat.label.clone() };
        let (database, key, tell) =
            (self.database.clone(), self.seat.key.clone(), self.answers.clone());
        tokio::spawn(async move {
            let result = database.execute(&key, &statement, &extra).await;
            let _ = tell.send((id, result));
        });
    }

    /// Who comes next waits for the end of the leader's session, and hears of changes.
    fn keep_watch(&mut self) {
        let leads = self.machine.mandate(self.now()).is_some();
        let is_next = self.machine.is_next() && !leads;
        self.listens.set(is_next);
        self.leads.set(leads);
        let comes_next = is_next && self.machine.config().part() != Part::Observer;
        // Held beforehand, so that a new leader's first write names it.
        self.holds.set(leads || comes_next);
        let wanted = self.session.filter(|_| comes_next);
        match (wanted, &self.waits) {
            (None, _) => self.waits = None,
            (Some((_, number)), Some(waits)) if waits.number == number => {}
            (Some((term, number)), _) => {
                let sentry = self.database.sentry();
                let free = sentry.and_then(|sentry| sentry.wait(number));
                self.waits = free.map(|free| Waits { term, number, free });
            }
        }
    }
}

/// Waits until this process is in the group under another number, or is not in it any more.
async fn joined(follows: &mut Option<watch::Receiver<Option<Incarnation>>>) -> Option<Incarnation> {
    let Some(follows) = follows else { return std::future::pending().await };
    match follows.changed().await {
        Ok(()) => *follows.borrow_and_update(),
        Err(_) => std::future::pending().await,
    }
}

/// Waits until the leader's lock is free; its term.
async fn gone(waits: &mut Option<Waits>) -> mandate_proto::identity::Term {
    let Some(waiting) = waits else { return std::future::pending().await };
    let term = waiting.term;
    if waiting.free.wait_for(|free| *free).await.is_err() {
        return std::future::pending().await;
    }
    // Told once.
    waiting.free = watch::channel(false).1;
    term
}

/// Whether the next change that is heard of may be this group's.
async fn next_of(heard: &mut broadcast::Receiver<String>, group: &str) -> bool {
    match heard.recv().await {
        Ok(name) => name == group,
        // Which ones were missed is not known.
        Err(broadcast::error::RecvError::Lagged(_)) => true,
        Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
    }
}

fn told(event: Told) -> Event {
    match event {
        Told::Changed(state) => Event::Changed(state),
        Told::NoTransfer { to, reason } => Event::NoTransfer { to, reason },
        event => Event::OnDatabase(event),
    }
}

fn name(statement: &Statement) -> &'static str {
    match statement {
        Statement::Look => "look",
        Statement::Join { .. } => "join",
        Statement::Heartbeat { .. } => "heartbeat",
        Statement::Renew { .. } => "renew",
        Statement::Takeover { .. } => "take over",
        Statement::Vacate { .. } => "vacate",
        Statement::Leave { .. } => "leave",
        Statement::Sweep { .. } => "sweep",
        Statement::Evict { .. } => "evict",
        Statement::ReadRoles => "read roles",
        Statement::Prefer { .. } => "prefer",
    }
}
