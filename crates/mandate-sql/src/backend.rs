//! What a member on a database does for its machine: statements under way, the leader's session, notifications.

use std::collections::HashMap;
use std::time::Duration;

use mandate_proto::identity::Term;
use mandate_proto::pole::member::LeaderRequest;
use mandate_proto::registers::{
    self, Effect, Input, Member, Part, Statement, StatementId, StatementOutcome, StayId,
};
use mandate_proto::time::Instant;
use mandate_runtime::driver::{Backend, Carried, Driven, LAST_WORDS};
use mandate_runtime::{Event, LeaderRequestServer, Status};
use tokio::sync::{broadcast, mpsc, watch};

use crate::database::Database;
use crate::engine::Contender;
use crate::error::Trouble;
use crate::reminder::Reminder;
use crate::rows::RowRequest;
use crate::statements::{Extra, Reply};
use crate::warnings::Dictated;

/// What can be said of a database that is silent: all of these look the same from here.
const NO_ANSWER: &str = "no answer in time: the database is frozen or slow, the way to it is cut, another holds a \
                         lock on the row, or its synchronous standby does not confirm commits";

type Answered = (StatementId, Result<Reply, Trouble>);

pub(crate) struct SqlBackend {
    database: Database,
    contender: Contender,
    answers: (mpsc::UnboundedSender<Answered>, mpsc::UnboundedReceiver<Answered>),
    heard: broadcast::Receiver<String>,
    /// What is under way, and how many answers had come when it was sent.
    flights: HashMap<StatementId, (Statement, u64)>,
    /// The lock that the row names, and the term.
    session: Option<(Term, i64)>,
    waits: Option<Waits>,
    listens: Subscription,
    leads: Subscription,
    holds: Subscription,
    /// How often in succession something went wrong, and whether the operator knows.
    trouble: Option<(u32, bool)>,
    reminder: Reminder,
    dictated: Dictated,
    requests: Requests,
    has_left: bool,
}

/// What operators ask of this member, when it leads, by a line in its row.
struct Requests {
    server: LeaderRequestServer,
    /// The last that the row had.
    found: Option<RowRequest>,
    /// The last that was begun.
    begun: Option<RowRequest>,
}

impl Requests {
    /// Begins with what was found in the row of this term, once.
    fn begin(&mut self, term: Term) {
        let Some(request) = self.found.filter(|found| found.term == term) else { return };
        if self.begun == Some(request) {
            return;
        }
        self.begun = Some(request);
        let server = self.server.clone();
        let wish = match request.to {
            Some(to) => LeaderRequest::Transfer { to },
            None => LeaderRequest::Resign,
        };
        tracing::info!(%term, request = ?wish, "an operator asks for it by the row of the database");
        tokio::spawn(async move {
            if let Err(error) = server.serve(term, wish).await {
                tracing::warn!(%term, "what an operator has asked for was not done: {error}");
            }
        });
    }
}

/// What a member on a database waits for.
pub(crate) enum Arrival {
    Answered(Box<Answered>),
    /// Under which number this process is in the group.
    Joined(Option<StayId>),
    /// The group's member of this process is gone, and nobody tells of it any more: a role must not be led without it.
    Orphaned,
    /// The session of the leader of this term has ended.
    Gone(Term),
    /// A row changed; whether it may be this group's.
    Heard(bool),
}

/// The leader's lock is waited for.
struct Waits {
    term: Term,
    number: i64,
    free: watch::Receiver<bool>,
}

/// A request that the database grants while at least one member of the process makes it.
struct Subscription {
    database: Database,
    tell: fn(&Database, bool),
    on: bool,
}

impl Subscription {
    fn new(database: &Database, tell: fn(&Database, bool)) -> Self {
        Subscription { database: database.clone(), tell, on: false }
    }

    fn set(&mut self, on: bool) {
        if self.on != on {
            self.on = on;
            (self.tell)(&self.database, on);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.set(false);
    }
}

impl Backend<Member> for SqlBackend {
    type Arrival = Arrival;

    const LEAVES_WITHIN: Duration = LAST_WORDS;

    fn carry_out(&mut self, effect: Effect, driven: &mut Driven<Member>) -> Carried {
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
                self.has_left |= event == registers::Event::Left;
                crate::warnings::log(&event, driven.machine.config());
                driven.tell(told(event));
            }
        }
        Carried::Done
    }

    fn carried_out(&mut self, driven: &mut Driven<Member>) {
        if let Some(row) = driven.machine.row() {
            driven.side.set_lease(row.published.lease);
            self.dictated.check(row, driven.machine.config());
        }
        if let Some(tells) = &self.contender.tells {
            let now = driven.machine.incarnation();
            tells.send_if_modified(|told| std::mem::replace(told, now) != now);
        }
        self.keep_watch(&driven.machine, driven.now());
    }

    async fn next(&mut self) -> Arrival {
        tokio::select! {
            biased;
            Some(answered) = self.answers.1.recv() => {
                Arrival::Answered(Box::new(answered))
            }
            joined = joined(&mut self.contender.follows) => joined,
            term = gone(&mut self.waits) => Arrival::Gone(term),
            is_ours = next_of(&mut self.heard, &self.contender.key.group) => {
                Arrival::Heard(is_ours)
            }
        }
    }

    fn arrived(&mut self, arrival: Arrival, driven: &mut Driven<Member>) {
        let input = match arrival {
            Arrival::Answered(answered) => self.answered(answered.0, answered.1),
            Arrival::Joined(incarnation) => Some(Input::Joined(incarnation)),
            Arrival::Orphaned => Some(Input::Leave),
            Arrival::Gone(term) => {
                tracing::debug!(%term, "the session of the leader has ended");
                Some(Input::LeaderSessionGone { term })
            }
            Arrival::Heard(is_ours) => {
                (is_ours && driven.machine.is_next()).then_some(Input::RowChanged)
            }
        };
        if let Some(input) = input {
            driven.handle(input);
        }
        if let Some(held) = driven.held() {
            self.requests.begin(held.term);
        }
    }

    fn has_ended(&self) -> bool {
        self.has_left
    }

    fn status(&self, driven: &Driven<Member>) -> Status {
        let machine = &driven.machine;
        let mut status = Status::of(&driven.side);
        let leads = machine.mandate(driven.now()).is_some();
        status.suspected = leads.then(|| machine.suspected().collect());
        status.view = Some(machine.view());
        status.candidacy = Some(machine.standing());
        status
    }
}

impl SqlBackend {
    pub(crate) fn new(
        database: &Database,
        contender: Contender,
        server: LeaderRequestServer,
    ) -> Self {
        SqlBackend {
            database: database.clone(),
            contender,
            answers: mpsc::unbounded_channel(),
            heard: database.heard(),
            flights: HashMap::new(),
            session: None,
            waits: None,
            listens: Subscription::new(database, Database::listen),
            leads: Subscription::new(database, Database::lead),
            holds: Subscription::new(database, Database::hold),
            trouble: None,
            reminder: Reminder::default(),
            dictated: Dictated::default(),
            requests: Requests { server, found: None, begun: None },
            has_left: false,
        }
    }

    fn answered(&mut self, id: StatementId, result: Result<Reply, Trouble>) -> Option<Input> {
        let (statement, _) = self.flights.remove(&id)?;
        let outcome = match result {
            Ok(Reply { answer, row }) => {
                if let Some(row) = row {
                    self.requests.found = row.request;
                    self.session = row.session.map(|number| (row.control.version.term, number));
                }
                if let Some((times, true)) = self.trouble.take() {
                    tracing::info!(times, "the database answers again");
                }
                StatementOutcome::Answered(answer)
            }
            Err(trouble) => {
                self.say(&statement, &trouble);
                if trouble.unknown { StatementOutcome::Unknown } else { StatementOutcome::Failed }
            }
        };
        Some(Input::Answered { id, outcome })
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

    fn execute(&mut self, id: StatementId, statement: Statement) {
        let answers = self.database.answers(&statement);
        self.flights.insert(id, (statement.clone(), answers));
        let session = match &statement {
            Statement::Renew { .. } | Statement::Takeover { .. } => {
                self.database.sentry().and_then(|sentry| sentry.held())
            }
            _ => None,
        };
        let extra = Extra { session, label: self.contender.label.clone() };
        let (database, key, tell) =
            (self.database.clone(), self.contender.key.clone(), self.answers.0.clone());
        tokio::spawn(async move {
            let result = database.execute(&key, &statement, &extra).await;
            let _ = tell.send((id, result));
        });
    }

    /// Who comes next waits for the end of the leader's session, and hears of changes.
    fn keep_watch(&mut self, machine: &Member, now: Instant) {
        let leads = machine.mandate(now).is_some();
        let is_next = machine.is_next() && !leads;
        self.listens.set(is_next);
        self.leads.set(leads);
        let comes_next = is_next && machine.config().part() != Part::Observer;
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
async fn joined(follows: &mut Option<watch::Receiver<Option<StayId>>>) -> Arrival {
    let Some(told) = follows else { return std::future::pending().await };
    match told.changed().await {
        Ok(()) => Arrival::Joined(*told.borrow_and_update()),
        Err(_) => {
            *follows = None;
            Arrival::Orphaned
        }
    }
}

/// Waits until the leader's lock is free; its term.
async fn gone(waits: &mut Option<Waits>) -> Term {
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

fn told(event: registers::Event) -> Event {
    match event {
        registers::Event::Changed(state) => Event::Changed(state),
        registers::Event::Published { leader, term, value } => {
            Event::Published { leader, term, value }
        }
        registers::Event::NoTransfer { to, reason } => Event::NoTransfer { to, reason },
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
