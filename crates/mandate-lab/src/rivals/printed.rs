//! The NewSQL paper's Algorithm 1 as it is printed, as transactions on PostgreSQL.
//!
//! Every round is a transaction: a shared lock on the row VARS (`for share`), exclusive for leaders, newcomers and
//! those who would lead (`for update`); a read of all descriptors; the own counter. Who finds under a
//! shared lock that it needs the exclusive one repeats the round at once. Numbers are lines of the
//! algorithm. The simulator's form of it (`mandate_sim::registers::printed`) shows by search that two can
//! lead at once; this one shows what it costs.
//!
//! Members of one process may share connections, beyond the number that PostgreSQL has processes for: then a
//! round waits for the rounds of others on its connection.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OnceCell};
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Statement};

use super::member::RivalMember;
use super::members::{Contender, MemberError};
use super::postgresql::connect;

/// Rounds that may be missed (Max_mhb, section 6).
const MISSED: usize = 2;
/// By how much the round time grows (Delta, section 6).
const STEP: Duration = Duration::from_millis(50);
/// For clock drift (mu), which the paper gives no figure for.
const ALLOWANCE: Duration = Duration::from_millis(50);

/// The registers, with a first round time.
pub fn schema(round: Duration) -> String {
    format!(
        "create table vars (max_id bigint not null, round_ms bigint not null, evict_flag boolean not null);
         insert into vars values (0, {}, false);
         create table descriptors (id bigint primary key, counter bigint not null) with (fillfactor = 50)",
        round.as_millis()
    )
}

/// Processes of the algorithm.
pub struct Printed {
    url: String,
    /// Connections that members of this process share; none if each has its own.
    shared: Vec<OnceCell<Mutex<Line>>>,
    next: AtomicUsize,
}

/// A connection, and what is prepared on it.
struct Line {
    client: Client,
    statements: Statements,
}

impl Line {
    async fn open(url: &str) -> Result<Mutex<Self>, tokio_postgres::Error> {
        let (client, _) = connect(url).await?;
        let statements = Statements::prepare(&client).await?;
        Ok(Mutex::new(Line { client, statements }))
    }
}

impl Printed {
    /// Members with a connection each, or with so many for all of this process.
    pub fn new(url: String, connections: Option<usize>) -> Self {
        let shared = (0..connections.unwrap_or(0)).map(|_| OnceCell::new()).collect();
        Printed { url, shared, next: AtomicUsize::new(0) }
    }
}

impl Contender for Printed {
    async fn contend(&self, seat: &mut RivalMember) -> Result<Infallible, MemberError> {
        let place = self.next.fetch_add(1, Ordering::Relaxed).checked_rem(self.shared.len());
        let own;
        let line = match place {
            Some(place) => self.shared[place].get_or_try_init(|| Line::open(&self.url)).await?,
            None => {
                own = Line::open(&self.url).await?;
                &own
            }
        };
        let mut process = Process::default();
        loop {
            let was_member = process.id.is_some();
            let round = process.round(&mut *line.lock().await, seat).await;
            let sleeps = match round {
                Ok(sleeps) => sleeps,
                // Section 4.5: a transaction that fails changes nothing. The next round is a new attempt.
                Err(error) if is_conflict(&error) => process.round_time,
                Err(error) => return Err(error.into()),
            };
            if process.id.is_some() && !was_member {
                seat.joined();
            }
            tokio::select! {
                () = sleep(sleeps) => {}
                // The paper has no handover: who goes is missed.
                () = seat.asked_to_resign() => return Err("left".into()),
            }
        }
    }
}

/// Whether the server broke off a transaction for the sake of another.
fn is_conflict(error: &tokio_postgres::Error) -> bool {
    let conflicts = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
    error.code().is_some_and(|code| conflicts.contains(code))
}

struct Statements {
    shared: Statement,
    exclusive: Statement,
    descriptors: Statement,
    beat: Statement,
    insert: Statement,
    evict: Statement,
    raise_flag: Statement,
    vars: Statement,
}

impl Statements {
    async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
        let vars = "select max_id, round_ms, evict_flag from vars";
        Ok(Statements {
            shared: client.prepare(&format!("{vars} for share")).await?,
            exclusive: client.prepare(&format!("{vars} for update")).await?,
            descriptors: client.prepare("select id, counter from descriptors").await?,
            beat: client.prepare("update descriptors set counter = $2 where id = $1").await?,
            insert: client.prepare("insert into descriptors values ($1, 1)").await?,
            evict: client.prepare("delete from descriptors where id = any($1)").await?,
            raise_flag: client.prepare("update vars set evict_flag = true").await?,
            vars: client
                .prepare("update vars set max_id = $1, round_ms = $2, evict_flag = $3")
                .await?,
        })
    }
}

/// The local variables.
#[derive(Default)]
struct Process {
    id: Option<i64>,
    is_leader: bool,
    force_exclusive: bool,
    round_time: Duration,
    /// What was read in the last rounds.
    history: VecDeque<BTreeMap<i64, i64>>,
}

impl Process {
    /// Lines 4 to 22; how long to sleep. If it fails, nothing has changed but the history, which the paper
    /// does not list among what is rolled back.
    async fn round(
        &mut self,
        line: &mut Line,
        seat: &RivalMember,
    ) -> Result<Duration, tokio_postgres::Error> {
        let Line { client, statements } = line;
        let exclusive = self.is_leader || self.id.is_none() || self.force_exclusive;
        let transaction = client.transaction().await?;
        let lock = if exclusive { &statements.exclusive } else { &statements.shared };
        let vars = transaction.query_one(lock, &[]).await?;
        let (mut max_id, mut round_ms, evict_flag): (i64, i64, bool) =
            (vars.get(0), vars.get(1), vars.get(2));
        let rows = transaction.query(&statements.descriptors, &[]).await?;
        let descriptors: BTreeMap<i64, i64> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();

        // Lines 23 to 33.
        let (mut id, mut force_exclusive) = (self.id, false);
        match self.id.and_then(|id| descriptors.get(&id).map(|counter| (id, *counter))) {
            Some((id, counter)) => {
                transaction.execute(&statements.beat, &[&id, &(counter + 1)]).await?;
            }
            None if self.id.is_some() && !exclusive => {
                force_exclusive = true;
                transaction.execute(&statements.raise_flag, &[]).await?;
            }
            None => {
                max_id += 1;
                id = Some(max_id);
                transaction.execute(&statements.insert, &[&max_id]).await?;
            }
        }

        // Lines 34 to 44.
        let is_alive =
            |other: &i64| id == Some(*other) || !self.is_dead(*other, descriptors[other]);
        let smallest = descriptors.keys().copied().filter(is_alive).chain(id).min();
        let mut is_leader = false;
        if smallest.is_some() && smallest == id {
            if exclusive {
                is_leader = true;
                let dead: Vec<i64> =
                    descriptors.keys().copied().filter(|id| !is_alive(id)).collect();
                if !dead.is_empty() {
                    transaction.execute(&statements.evict, &[&dead]).await?;
                }
            } else {
                is_leader = self.is_leader;
                force_exclusive = true;
            }
        }
        self.remember(descriptors);

        // Lines 16 to 19.
        let grows = is_leader && exclusive && evict_flag;
        if grows {
            round_ms += STEP.as_millis() as i64;
        }
        if exclusive && (grows || id != self.id) {
            let flag = evict_flag && !grows;
            transaction.execute(&statements.vars, &[&max_id, &round_ms, &flag]).await?;
        }
        let lease_from = Instant::now();
        transaction.commit().await?;
        if self.id.is_some() && id != self.id {
            seat.evicted();
        }
        let round_time = Duration::from_millis(round_ms.unsigned_abs());
        self.committed(id, is_leader, force_exclusive, round_time, lease_from, seat);
        Ok(if force_exclusive { Duration::ZERO } else { self.round_time })
    }

    /// The local variables follow the registers (section 4.5), and with them whether it leads (lines 45 to 50).
    fn committed(
        &mut self,
        id: Option<i64>,
        is_leader: bool,
        force_exclusive: bool,
        round_time: Duration,
        lease_from: Instant,
        seat: &RivalMember,
    ) {
        let leads_from_now = is_leader && !self.is_leader;
        if is_leader && (leads_from_now || round_time != self.round_time) {
            seat.round(round_time);
        }
        (self.id, self.is_leader, self.force_exclusive) = (id, is_leader, force_exclusive);
        self.round_time = round_time;
        if is_leader {
            let until = lease_from + (round_time * MISSED as u32).saturating_sub(ALLOWANCE);
            seat.lead(move || Instant::now() < until);
        } else {
            seat.follow();
        }
    }

    /// Whether a counter is the same as in each of the last rounds.
    fn is_dead(&self, id: i64, counter: i64) -> bool {
        let missed = self.history.iter().filter(|round| round.get(&id) == Some(&counter));
        missed.count() >= MISSED
    }

    fn remember(&mut self, descriptors: BTreeMap<i64, i64>) {
        self.history.push_back(descriptors);
        if self.history.len() > MISSED {
            self.history.pop_front();
        }
    }
}
