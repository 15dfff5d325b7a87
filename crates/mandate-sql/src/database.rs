//! A database, shared by all members of a process that elect on it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mandate_proto::election::RoleId;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::{Published, Reason, Statement};
use tokio::sync::broadcast;

use crate::batch::{Batch, Done, Step};
use crate::durability;
use crate::engine::check_group;
use crate::error::{NoConnection, SqlError, Trouble};
use crate::reconnecting::Reconnecting;
use crate::rows::{self, ControlRow, Row, RowRequest};
use crate::schema::{self, Dialect, GROUP_ROLE};
use crate::session::Session;
use crate::session_lock::SessionLock;
use crate::statements::{self, Extra, Key, Reply, reason_of};
use crate::url::Address;

/// Names that a slow listener may be behind.
const HEARD: usize = 256;

/// How long to go on trying for the first connection. One attempt may take longer.
const FIRST: Duration = Duration::from_secs(10);

/// A database. Cheap to clone; its connections end with the last clone.
///
/// It has one connection for what decides who leads. A process that leads or comes next has one more, in which it holds a
/// lock that tells by its end that the process died; besides, one that leads has one for what takes longer, and one that
/// comes next has one to wait for the leader's lock.
#[derive(Clone, Debug)]
pub struct Database {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: Address,
    control: Reconnecting,
    /// While a member of this process leads.
    chores: Mutex<Option<Arc<Reconnecting>>>,
    heard: broadcast::Sender<String>,
    /// How many members want to hear of changes, and how many lead.
    listeners: AtomicUsize,
    leaders: AtomicUsize,
    /// How many lead or come next.
    holders: AtomicUsize,
    patience: Duration,
    sentry: SessionLock,
}

/// A row of the table of members.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberEntry {
    /// The member's id.
    pub member: MemberId,
    /// Its stay in the group: who has a lower one has been there for longer.
    pub incarnation: u64,
    /// Its heartbeats.
    pub counter: u64,
    /// What it is worth as a leader; `None` if it is no candidate.
    pub score: Option<Vec<f64>>,
    /// Who it is, for people.
    pub label: String,
}

/// A role's control row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleEntry {
    /// The role's number.
    pub role: RoleId,
    /// Its term.
    pub term: Term,
    /// Renewals of that term: a leader whose beat stands still for a lease leads no more.
    pub beat: u64,
    /// Who leads it, or led it last.
    pub leader: Option<MemberId>,
}

/// A term, from the table of history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reigned {
    /// The term.
    pub term: Term,
    /// Who led.
    pub leader: MemberId,
    /// Who that was, for people.
    pub label: String,
    /// Why it began.
    pub reason: Reason,
    /// Who led before.
    pub former: Option<MemberId>,
    /// When, by the leader's wall clock, in milliseconds since 1970.
    pub began_ms: i64,
}

/// The control row, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlRowStatus {
    /// What it says.
    pub control: mandate_proto::registers::ControlState,
    /// Whether the leader's process holds a lock that tells of its death.
    pub has_session_lock: bool,
    /// What the leader has published with its term.
    pub value: Option<mandate_proto::value::Value>,
}

impl ControlRow {
    fn standing(self) -> ControlRowStatus {
        let ControlRow { control, session, value, .. } = self;
        let value = value.filter(|(term, _)| *term == control.version.term);
        let value = value.map(|(_, value)| value).filter(|_| control.leader.is_some());
        ControlRowStatus { control, has_session_lock: session.is_some(), value }
    }
}

impl Database {
    /// Connects, and sees that the tables are there and of this version. `patience` is how long a statement may
    /// take. A server that cannot be reached is tried again for ten seconds.
    pub async fn open(address: &Address, patience: Duration) -> Result<Self, SqlError> {
        let database = Database::begin(address, patience);
        database.check_schema().await?;
        Ok(database)
    }

    /// The same with one attempt: for callers that try again by themselves, or not at all.
    pub async fn open_once(address: &Address, patience: Duration) -> Result<Self, SqlError> {
        let heard = broadcast::Sender::new(HEARD);
        let session = Session::open(address, patience, heard.clone()).await;
        let session = session.map_err(|failure| failure.at(address))?;
        let control = Reconnecting::over(Some(session), address, patience, heard.clone());
        let database = Database::with(control, address, patience, heard);
        database.check_schema().await?;
        Ok(database)
    }

    /// The same, without waiting for the first connection: members try until it is there.
    pub fn begin(address: &Address, patience: Duration) -> Self {
        let heard = broadcast::Sender::new(HEARD);
        let control = Reconnecting::open(address, patience, heard.clone());
        Database::with(control, address, patience, heard)
    }

    fn with(
        control: Reconnecting,
        address: &Address,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> Self {
        let shared = Shared {
            address: address.clone(),
            control,
            chores: Mutex::new(None),
            heard,
            listeners: AtomicUsize::new(0),
            leaders: AtomicUsize::new(0),
            holders: AtomicUsize::new(0),
            patience,
            sentry: SessionLock::new(address.clone()),
        };
        Database { shared: Arc::new(shared) }
    }

    /// Which database.
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    async fn check_schema(&self) -> Result<(), SqlError> {
        let connected = self.shared.control.connected(FIRST).await;
        connected.map_err(|failure| failure.at(&self.shared.address))?;
        match self.shared.control.run_bounded(Batch::one(schema::look())).await {
            Ok(done) => match schema::found(&done[0].rows) {
                Some(found) if schema::is_usable(found) => self.check_server().await,
                Some(found) => {
                    Err(SqlError::Schema { address: self.shared.address.to_string(), found })
                }
                None => Err(SqlError::NoSchema { address: self.shared.address.to_string() }),
            },
            Err(trouble) if lacks_tables(&trouble.reason) => {
                Err(SqlError::NoSchema { address: self.shared.address.to_string() })
            }
            Err(trouble) => {
                let Trouble { reason, is_final, .. } = trouble;
                Err(NoConnection { reason, is_final }.at(&self.shared.address))
            }
        }
    }

    /// Refuses a server on which members would not meet, and tells of one that may forget what it has acknowledged.
    async fn check_server(&self) -> Result<(), SqlError> {
        let dialect = self.shared.address.dialect();
        if dialect == Dialect::MySql
            && let Ok(done) = self.shared.control.run_bounded(durability::engines()).await
            && let Some(reason) = durability::split(&done)
        {
            return Err(NoConnection::lasting(reason).at(&self.shared.address));
        }
        for doubt in self.doubts().await {
            tracing::warn!(server = %self.shared.address, "{doubt}");
        }
        Ok(())
    }

    /// What elections rest on and this server does not give, in words for an operator. Nothing, where it cannot be asked.
    pub async fn doubts(&self) -> Vec<String> {
        let dialect = self.shared.address.dialect();
        let Some(question) = durability::question(dialect) else { return Vec::new() };
        match self.read_batch(question).await {
            Ok(done) => durability::doubts(dialect, &done),
            Err(_) => Vec::new(),
        }
    }

    /// Raises the terms of a group and of its roles: from now on they are above this one. For an operator who has put an older
    /// database back, and knows how far terms had come. Who leads leads no more; the next may after the longest lease.
    /// The control row of the group as it is then.
    pub async fn raise(
        &self,
        group: &str,
        above: Term,
        first: &Published,
    ) -> Result<ControlRowStatus, SqlError> {
        check_group(group)?;
        let key = Key { group: group.to_owned(), role: None };
        let done = self.read_batch(statements::raise(&key, above, first)).await?;
        let last = done.last().map(|done| done.rows.as_slice()).unwrap_or_default();
        let row = rows::control(last).map_err(|trouble| self.failed(trouble))?;
        let nothing = || self.failed(Trouble::refused("the row that was written is not there"));
        row.map(ControlRow::standing).ok_or_else(nothing)
    }

    /// Whether members could never write here: a file that may only be read. It can still be looked at.
    pub(crate) fn check_writable(&self) -> Result<(), SqlError> {
        match self.shared.control.session().is_some_and(|session| session.is_read_only()) {
            false => Ok(()),
            true => {
                let reason =
                    "it may only be read: members need to write the file and its directory";
                Err(NoConnection::lasting(reason).at(&self.shared.address))
            }
        }
    }

    /// Whether members may lead here: not where a crash can undo what was acknowledged, unless the address says that this
    /// is accepted. Nothing is known without a connection; then the first statement that decides something is refused.
    pub(crate) fn check_durable(&self) -> Result<(), SqlError> {
        let session = self.shared.control.session();
        match session.as_ref().and_then(|session| session.unsafe_because()) {
            None => Ok(()),
            Some(reason) => Err(NoConnection::lasting(reason).at(&self.shared.address)),
        }
    }

    /// Makes the tables where they are not there yet, or are of an older version.
    pub async fn make_schema(address: &Address) -> Result<(), SqlError> {
        match address.dbms().make_schema() {
            Some(making) => making.await.map_err(|failure| failure.at(address)),
            // Opening it makes them.
            None => Database::open(address, FIRST).await?.check_writable(),
        }
    }

    /// Carries a statement out.
    pub(crate) async fn execute(
        &self,
        key: &Key,
        statement: &Statement,
        extra: &Extra,
    ) -> Result<Reply, Trouble> {
        if matches!(statement, Statement::Takeover { .. } | Statement::Renew { .. })
            && let Some(session) = self.shared.control.session()
            && let Some(reason) = session.unsafe_because()
        {
            return Err(Trouble { is_final: true, ..Trouble::refused(reason) });
        }
        let batch = statements::batch(key, statement, extra);
        let done = match self.chores(statement) {
            None => self.shared.control.run(batch).await?,
            Some(line) => line.run(batch).await?,
        };
        statements::reply(statement, done)
    }

    /// The connection for what takes longer, if this is such a thing, and once it is there.
    fn chores(&self, statement: &Statement) -> Option<Arc<Reconnecting>> {
        let takes_long = matches!(
            statement,
            Statement::Sweep { .. } | Statement::ReadRoles | Statement::Prefer { .. }
        );
        let mut chores = self.shared.chores.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || {
            let Shared { address, patience, heard, .. } = &*self.shared;
            Arc::new(Reconnecting::open(address, *patience, heard.clone()))
        };
        // Until it is connected, the other one does: a new leader wants to know its members.
        let line = takes_long.then(|| chores.get_or_insert_with(open).clone());
        line.filter(|line| line.session().is_some())
    }

    /// One more member leads, or one less: what only leaders need ends with the last.
    pub(crate) fn lead(&self, leads: bool) {
        match leads {
            true => {
                self.shared.leaders.fetch_add(1, Ordering::Relaxed);
            }
            false if self.shared.leaders.fetch_sub(1, Ordering::Relaxed) == 1 => {
                *self.shared.chores.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            false => {}
        }
    }

    /// One more member leads or comes next, or one less.
    pub(crate) fn hold(&self, holds: bool) {
        match holds {
            true => {
                self.shared.holders.fetch_add(1, Ordering::Relaxed);
                if let Some(sentry) = self.sentry() {
                    sentry.hold();
                }
            }
            false if self.shared.holders.fetch_sub(1, Ordering::Relaxed) == 1 => {
                self.shared.sentry.release();
            }
            false => {}
        }
    }

    /// How many answers have come where this statement goes.
    pub(crate) fn answers(&self, statement: &Statement) -> u64 {
        match self.chores(statement) {
            None => self.shared.control.answers(),
            Some(line) => line.answers(),
        }
    }

    /// Nobody waits any more for a statement that was sent when so many answers had come.
    pub(crate) fn gave_up(&self, statement: &Statement, answers: u64) {
        match self.chores(statement) {
            None => self.shared.control.gave_up(answers),
            Some(line) => line.gave_up(answers),
        }
    }

    /// Names of groups whose rows have changed.
    pub(crate) fn heard(&self) -> broadcast::Receiver<String> {
        self.shared.heard.subscribe()
    }

    /// One more member wants to hear of changes, or one less.
    pub(crate) fn listen(&self, listen: bool) {
        let before = match listen {
            true => self.shared.listeners.fetch_add(1, Ordering::Relaxed),
            false => self.shared.listeners.fetch_sub(1, Ordering::Relaxed) - 1,
        };
        if before == 0 {
            self.shared.control.listen(listen);
        }
    }

    /// Locks that tell of the death of a process; `None` where there are none.
    pub(crate) fn sentry(&self) -> Option<&SessionLock> {
        let session = self.shared.control.session()?;
        session.has_session_locks().then_some(&self.shared.sentry)
    }

    async fn read(&self, step: Step) -> Result<Vec<Done>, SqlError> {
        self.read_batch(Batch::one(step)).await
    }

    /// Reads where nobody is kept waiting: a leader has a connection for it.
    async fn read_batch(&self, batch: Batch) -> Result<Vec<Done>, SqlError> {
        let chores = self.shared.chores.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let line = chores.as_deref().unwrap_or(&self.shared.control);
        let connected = line.connected(FIRST).await;
        connected.map_err(|failure| failure.at(&self.shared.address))?;
        line.run_bounded(batch).await.map_err(|trouble| self.failed(trouble))
    }

    fn failed(&self, trouble: Trouble) -> SqlError {
        let (address, reason) = (self.shared.address.to_string(), trouble.reason);
        match trouble.is_final {
            true => SqlError::Refused { address, reason },
            false => SqlError::Statement { address, reason },
        }
    }

    /// The control row of a group; `None` if nobody has joined it yet.
    pub async fn standing(&self, group: &str) -> Result<Option<ControlRowStatus>, SqlError> {
        let key = Key { group: group.to_owned(), role: None };
        let batch = statements::batch(&key, &Statement::Look, &Extra::default());
        let done = self.read_batch(batch).await?;
        let row = rows::control(&done[0].rows).map_err(|trouble| self.failed(trouble))?;
        Ok(row.map(ControlRow::standing))
    }

    /// Asks the leader of a term to give leadership up, or to hand it over to another, by a line in its row. Whether the request is
    /// there: not if that term is over. The leader finds it with its next renewal, carries it out in that term or not at all, and says
    /// in its log what came of it; everyone else sees it by the row ([`Database::standing`]).
    pub async fn request(
        &self,
        group: &str,
        term: Term,
        to: Option<MemberId>,
    ) -> Result<bool, SqlError> {
        let id = (getrandom::u64().map_err(SqlError::Random)? >> 1) as i64;
        let request = RowRequest { term, to, id };
        let done = self.read_batch(statements::request(group, &request)).await?;
        let row = done.get(1).map_or(Ok(None), |done| rows::control(&done.rows));
        let row = row.map_err(|trouble| self.failed(trouble))?;
        Ok(row.is_some_and(|row| row.request == Some(request)))
    }

    /// Everyone who is in a group, in order.
    pub async fn members(&self, group: &str) -> Result<Vec<MemberEntry>, SqlError> {
        let step = Step::new(
            "select member, incarnation, counter, score, was_evicted, label from mandate_member \
             where group_name = $1 order by member",
            vec![group.into()],
        );
        let done = self.read(step).await?;
        let entry = |cells: &Vec<_>| {
            let row = rows::member_row(cells)?;
            Ok(MemberEntry {
                member: row.holder.member,
                incarnation: row.holder.incarnation.get(),
                counter: row.counter,
                score: row.score.map(|score| score.components().to_vec()),
                label: Row { table: "mandate_member", cells }.text(5),
            })
        };
        let entries: Result<_, Trouble> = done[0].rows.iter().map(entry).collect();
        entries.map_err(|trouble| self.failed(trouble))
    }

    /// The roles of a group, in order: who led each when it was last renewed. None, if it has no roles beside the group's
    /// own.
    pub async fn roles(&self, group: &str) -> Result<Vec<RoleEntry>, SqlError> {
        let step = Step::new(
            "select role, term, beat, leader from mandate_control where group_name = $1 and role >= 0 order by role",
            vec![group.into()],
        );
        let done = self.read(step).await?;
        let entry = |cells: &Vec<_>| {
            let row = Row { table: "mandate_control", cells };
            Ok(RoleEntry {
                role: RoleId::new(row.number(0, "role")?),
                term: Term::new(row.number(1, "term")?),
                beat: row.number(2, "beat")?,
                leader: row.optional(3, "leader")?.map(MemberId::new),
            })
        };
        let entries: Result<_, Trouble> = done[0].rows.iter().map(entry).collect();
        entries.map_err(|trouble| self.failed(trouble))
    }

    /// The last terms of a group, the latest first.
    pub async fn history(&self, group: &str, limit: u32) -> Result<Vec<Reigned>, SqlError> {
        let step = Step::new(
            "select term, leader, reason, former, began_ms, label from mandate_history \
             where group_name = $1 and role = $2 order by term desc limit $3",
            vec![group.into(), GROUP_ROLE.into(), i64::from(limit).into()],
        );
        let done = self.read(step).await?;
        let reign = |cells: &Vec<_>| {
            let row = Row { table: "mandate_history", cells };
            let reason: i64 = row.number(2, "reason")?;
            Ok(Reigned {
                term: Term::new(row.number(0, "term")?),
                leader: MemberId::new(row.number(1, "leader")?),
                reason: reason_of(reason).ok_or_else(|| row.nonsense("an unknown reason"))?,
                former: row.optional(3, "former")?.map(MemberId::new),
                began_ms: row.number(4, "began_ms")?,
                label: row.text(5),
            })
        };
        let reigns: Result<_, Trouble> = done[0].rows.iter().map(reign).collect();
        reigns.map_err(|trouble| self.failed(trouble))
    }
}

fn lacks_tables(reason: &str) -> bool {
    // PostgreSQL, MySQL, SQLite.
    reason.contains("(42P01)") || reason.contains("1146") || reason.contains("no such table")
}
