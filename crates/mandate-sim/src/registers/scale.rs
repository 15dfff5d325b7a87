//! Large groups on a quick database: how many statements it has to carry out, and how long a group is
//! without a leader when that dies.
//!
//! No faults but the deaths of leaders, and links of one kind: that is what lets thousands of members run
//! in seconds. Time at the database is not modelled; what is counted is what it would have to do.

use core::time::Duration;

use mandate_proto::machine::{Effects, Machine};
use mandate_proto::registers::{
    Config, DatabaseAnswer, Effect, Input, Member, Statement, StatementId, StatementOutcome,
};
use mandate_proto::time::Instant;

use super::tables::{Flaws, Tables};
use crate::host::member;
use crate::network::HostIndex;
use crate::queue::Queue;
use crate::random::{Random, Stream};
use crate::time::SimTime;

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleFigures {
    /// Statements a second, all members together, in steady state.
    pub statements_per_second: f64,
    /// Rows read or written a second.
    pub rows_per_second: f64,
    /// Takeovers that were asked for, for each that succeeded.
    pub takeovers_asked: f64,
    /// From the death of a leader until another's mandate holds, in order.
    pub failovers: Vec<Duration>,
    /// The round that the group has come to.
    pub round: Duration,
}

/// From a member to the database or back: between these.
const LINK: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(1));

enum Due {
    Start(HostIndex),
    Wake(HostIndex, u32),
    Arrives(HostIndex, u32, StatementId, Statement),
    Answered(HostIndex, u32, StatementId, DatabaseAnswer),
}

struct Host {
    member: Option<Member>,
    incarnation: u32,
    wakes: Option<SimTime>,
}

struct Group {
    config: Config,
    now: SimTime,
    queue: Queue<Due>,
    hosts: Vec<Host>,
    tables: Tables,
    random: Random,
    statements: u64,
    rows: u64,
    takeovers: u64,
    leader: Option<HostIndex>,
}

/// Runs a group of `size` set up like `config`, and kills its leader `kills` times.
pub fn measure(size: usize, config: &Config, kills: usize, seed: u64) -> ScaleFigures {
    let host = || Host { member: None, incarnation: 0, wakes: None };
    let mut group = Group {
        config: config.clone(),
        now: SimTime::ZERO,
        queue: Queue::default(),
        hosts: (0..size).map(|_| host()).collect(),
        tables: Tables::default(),
        random: Random::new(seed, Stream::Setting),
        statements: 0,
        rows: 0,
        takeovers: 0,
        leader: None,
    };
    let round = config.round();
    for host in 0..size {
        let at = SimTime::ZERO + group.random.between(Duration::ZERO, round * 2);
        group.queue.push(at, Due::Start(host));
    }
    group.run_until(SimTime::ZERO + round * 10, |_| false);
    (group.statements, group.rows) = (0, 0);
    group.run_until(group.now + round * 10, |_| false);
    let seconds = (round * 10).as_secs_f64();
    let (statements, rows) = (group.statements as f64, group.rows as f64);
    group.takeovers = 0;
    let mut failovers: Vec<_> = (0..kills).map(|_| group.kill_leader()).collect();
    failovers.sort_unstable();
    ScaleFigures {
        statements_per_second: statements / seconds,
        rows_per_second: rows / seconds,
        takeovers_asked: group.takeovers as f64 / kills.max(1) as f64,
        failovers,
        round: group.tables.control.map_or(round, |row| row.published.round),
    }
}

impl Group {
    /// Kills the leader at some moment of a round; it comes back three rounds later. How long it took.
    fn kill_leader(&mut self) -> Duration {
        let round = self.config.round();
        let moment = self.random.between(Duration::ZERO, round);
        self.run_until(self.now + moment, |_| false);
        let Some(dead) = self.leader.take() else { return Duration::MAX };
        self.hosts[dead].member = None;
        self.hosts[dead].incarnation += 1;
        let died = self.now;
        self.run_until(died + round * 20, |group| group.leader.is_some());
        let took = self.now - died;
        self.queue.push(self.now + round * 3, Due::Start(dead));
        self.run_until(self.now + round * 6, |_| false);
        took
    }

    fn run_until(&mut self, until: SimTime, is_enough: impl Fn(&Self) -> bool) {
        while !is_enough(self) {
            if self.queue.next_time().is_none_or(|at| at > until) {
                self.now = until;
                return;
            }
            let Some((at, due)) = self.queue.pop() else { return };
            self.now = at;
            self.step(due);
        }
    }

    fn step(&mut self, due: Due) {
        let local = Instant::from_nanos(self.now.as_nanos());
        let mut effects = Effects::new();
        let host = match due {
            Due::Start(host) => {
                let config = self.config.clone().with_me(member(host));
                let seed = self.random.number();
                let started = Member::start(config, seed, local, &mut effects);
                self.hosts[host].member = Some(started);
                self.hosts[host].incarnation += 1;
                self.hosts[host].wakes = None;
                host
            }
            Due::Wake(host, incarnation) => {
                if self.hosts[host].incarnation == incarnation
                    && self.hosts[host].wakes == Some(self.now)
                {
                    self.hosts[host].wakes = None;
                    if let Some(member) = &mut self.hosts[host].member {
                        member.handle_timeout(local, &mut effects);
                    }
                }
                host
            }
            Due::Arrives(host, incarnation, id, statement) => {
                let answer = self.carry_out(&statement);
                let at = self.now + self.random.between(LINK.0, LINK.1);
                self.queue.push(at, Due::Answered(host, incarnation, id, answer));
                return;
            }
            Due::Answered(host, incarnation, id, answer) => {
                if self.hosts[host].incarnation == incarnation
                    && let Some(member) = &mut self.hosts[host].member
                {
                    let outcome = StatementOutcome::Answered(answer);
                    member.handle(Input::Answered { id, outcome }, local, &mut effects);
                }
                host
            }
        };
        self.settle(host, local, effects);
    }

    fn carry_out(&mut self, statement: &Statement) -> DatabaseAnswer {
        let answer = self.tables.apply(statement, Flaws::default());
        self.statements += 1;
        self.takeovers += u64::from(matches!(statement, Statement::Takeover { .. }));
        self.rows += match (statement, &answer) {
            (_, DatabaseAnswer::Members(rows)) => rows.len() as u64,
            (Statement::Look, _) => 1,
            _ => 2,
        };
        answer
    }

    fn settle(&mut self, host: HostIndex, local: Instant, mut effects: Effects<Effect>) {
        let incarnation = self.hosts[host].incarnation;
        for effect in effects.drain() {
            if let Effect::Execute { id, statement } = effect {
                let at = self.now + self.random.between(LINK.0, LINK.1);
                self.queue.push(at, Due::Arrives(host, incarnation, id, statement));
            }
        }
        let Host { member: Some(member), wakes, .. } = &mut self.hosts[host] else { return };
        if member.mandate(local).is_some() {
            self.leader = Some(host);
        }
        let Some(deadline) = member.deadline() else { return };
        let at = SimTime::from_nanos(deadline.as_nanos()).max(self.now);
        if wakes.is_none_or(|wakes| at < wakes) {
            *wakes = Some(at);
            self.queue.push(at, Due::Wake(host, incarnation));
        }
    }
}
