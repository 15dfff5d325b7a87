//! The algorithm as the paper prints it (Algorithm 1), to see it fail.
//!
//! Each round is a transaction: a shared or exclusive lock on the row VARS, a read of all DESCRIPTORS, and
//! a commit. A leader is suspected when its counter has not changed for Max_mhb *rounds*. The proof of
//! theorem 1 takes it that so many rounds last for so many round times; but a round whose lock
//! or commit was slow is followed by others at once, in particular by the one that the algorithm itself
//! repeats with an exclusive lock (line 22), after it was evicted, or found that it may lead and was wrong.
//! Then a leader is suspected within its lease.
//!
//! The lock manager is kinder than real ones: first come, first served, so that nobody starves.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effect, Effects, Machine};
use mandate_proto::time::Instant;

use crate::clock::Clock;
use crate::fault::Fault;
use crate::host::member;
use crate::installation::invariants::one_mandate_at_a_time;
use crate::link::{Delay, LinkModel};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::subject::{Boot, Moment, Observation, Observer, Subject};
use crate::time::SimTime;
use crate::trace::Trace;
use crate::verdict::{Outcome, Violation};
use crate::world::{Machinery, World};

/// When a round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// A round time after the last has ended: line 22.
    AsPrinted,
    /// A round time after the last has begun, and at once if that is over: a timer that takes off what the transaction
    /// took, as implementations have it.
    FixedRate,
}

/// Rounds that may be missed (Max_mhb, section 6).
const MISSED: usize = 2;
/// The first round time (T_p, section 6).
const ROUND: Duration = Duration::from_secs(2);
/// By how much it grows (Delta, section 6).
const STEP: Duration = Duration::from_millis(50);
/// For clock drift (mu): the clocks of these runs do not drift at all.
const ALLOWANCE: Duration = Duration::from_millis(50);

/// The register VARS, without the lock.
#[derive(Clone, Copy, Debug)]
pub struct Vars {
    max_id: u64,
    round: Duration,
    evict_flag: bool,
}

/// What goes between processes and database.
#[derive(Clone, Debug)]
pub enum Message {
    /// Begin a transaction with this lock on VARS.
    Begin {
        /// Whether it is exclusive.
        exclusive: bool,
    },
    /// The lock is held; this is what is there.
    Granted(Vars, BTreeMap<u64, u64>),
    /// Write this, and commit.
    Commit {
        /// What VARS becomes; `None` under a shared lock, but for the flag.
        vars: Option<Vars>,
        /// Whether to raise the flag.
        evict_flag: bool,
        /// A counter to write.
        counter: Option<(u64, u64)>,
        /// Processes to evict.
        dead: Vec<u64>,
    },
    /// It is committed.
    Committed,
}

/// What is waited for in a round.
enum Phase {
    Sleeping(Instant),
    Locking,
    Committing(Next),
}

/// The local variables, should the transaction commit (section 4.5).
struct Next {
    id: Option<u64>,
    is_leader: bool,
    round: Duration,
    lease_from: Instant,
    force_exclusive: bool,
}

/// A process (Algorithm 1).
pub struct Process {
    database: MemberId,
    id: Option<u64>,
    is_leader: bool,
    round: Duration,
    lease_from: Instant,
    force_exclusive: bool,
    is_exclusive: bool,
    history: VecDeque<BTreeMap<u64, u64>>,
    rounds: Rounds,
    began: Instant,
    phase: Phase,
}

impl Process {
    /// Lines 45 to 50.
    fn is_leader(&self, now: Instant) -> bool {
        let lease = self.round * MISSED as u32 - ALLOWANCE;
        self.is_leader && now - self.lease_from < lease
    }

    /// Lines 5 to 9.
    fn begin(&mut self, now: Instant, effects: &mut Effects<NodeEffect>) {
        self.began = now;
        let exclusive = self.is_leader || self.id.is_none() || self.force_exclusive;
        self.is_exclusive = exclusive;
        self.phase = Phase::Locking;
        effects.push(Effect::Send { to: self.database, message: Message::Begin { exclusive } });
    }

    /// Lines 10 to 21, and 23 to 44.
    fn granted(
        &mut self,
        mut vars: Vars,
        descriptors: BTreeMap<u64, u64>,
        now: Instant,
    ) -> Message {
        let mut next = Next {
            id: self.id,
            is_leader: self.is_leader,
            round: vars.round,
            lease_from: now,
            force_exclusive: false,
        };
        let (mut counter, mut dead, mut evict_flag) = (None, Vec::new(), false);
        match self.id.and_then(|id| descriptors.get(&id).map(|counter| (id, *counter))) {
            Some((id, count)) => counter = Some((id, count + 1)),
            None if self.id.is_some() && !self.is_exclusive => {
                next.force_exclusive = true;
                evict_flag = true;
            }
            None => {
                vars.max_id += 1;
                next.id = Some(vars.max_id);
                counter = Some((vars.max_id, 1));
            }
        }
        let alive = |id: &u64| next.id == Some(*id) || !self.is_dead(*id, descriptors[id]);
        let smallest = descriptors.keys().copied().filter(alive).chain(next.id).min();
        if smallest.is_some() && smallest == next.id {
            if self.is_exclusive {
                next.is_leader = true;
                dead = descriptors.keys().copied().filter(|id| !alive(id)).collect();
            } else {
                next.force_exclusive = true;
            }
        } else {
            next.is_leader = false;
        }
        self.history.push_back(descriptors);
        if self.history.len() > MISSED {
            self.history.pop_front();
        }
        if next.is_leader && vars.evict_flag {
            vars.round += STEP;
            next.round = vars.round;
            vars.evict_flag = false;
        }
        self.phase = Phase::Committing(next);
        let vars = self.is_exclusive.then_some(vars);
        Message::Commit { vars, evict_flag, counter, dead }
    }

    /// Whether a counter is the same as in each of the last rounds.
    fn is_dead(&self, id: u64, counter: u64) -> bool {
        let missed = self.history.iter().filter(|round| round.get(&id) == Some(&counter));
        missed.count() >= MISSED
    }

    /// Line 22.
    fn committed(&mut self, now: Instant) {
        if let Phase::Committing(next) = std::mem::replace(&mut self.phase, Phase::Locking) {
            let took = match self.rounds {
                Rounds::AsPrinted => Duration::ZERO,
                Rounds::FixedRate => now - self.began,
            };
            let sleeps = match next.force_exclusive {
                true => Duration::ZERO,
                false => next.round.saturating_sub(took),
            };
            let Next { id, is_leader, round, lease_from, force_exclusive } = next;
            self.id = id;
            self.is_leader = is_leader;
            self.round = round;
            self.lease_from = lease_from;
            self.force_exclusive = force_exclusive;
            self.phase = Phase::Sleeping(now + sleeps);
        }
    }
}

/// The database: two tables, and one lock that matters.
pub struct Server {
    vars: Vars,
    descriptors: BTreeMap<u64, u64>,
    holders: Vec<(MemberId, bool)>,
    waiting: VecDeque<(MemberId, bool)>,
}

impl Server {
    fn handle(&mut self, from: MemberId, message: Message, effects: &mut Effects<NodeEffect>) {
        match message {
            Message::Begin { exclusive } => {
                // A process that was restarted: its transaction is rolled back.
                self.holders.retain(|(holder, _)| *holder != from);
                self.waiting.retain(|(waits, _)| *waits != from);
                self.waiting.push_back((from, exclusive));
            }
            Message::Commit { vars, evict_flag, counter, dead } => {
                if !self.holders.iter().any(|(holder, _)| *holder == from) {
                    return;
                }
                self.vars = vars.unwrap_or(self.vars);
                self.vars.evict_flag |= evict_flag;
                self.descriptors.extend(counter);
                self.descriptors.retain(|id, _| !dead.contains(id));
                self.holders.retain(|(holder, _)| *holder != from);
                effects.push(Effect::Send { to: from, message: Message::Committed });
            }
            Message::Granted(..) | Message::Committed => {}
        }
        self.grant(effects);
    }

    fn grant(&mut self, effects: &mut Effects<NodeEffect>) {
        while let Some((first, exclusive)) = self.waiting.front().copied() {
            let is_held = self.holders.iter().any(|(_, held)| *held || exclusive);
            if is_held {
                break;
            }
            self.waiting.pop_front();
            self.holders.push((first, exclusive));
            let message = Message::Granted(self.vars, self.descriptors.clone());
            effects.push(Effect::Send { to: first, message });
        }
    }
}

/// A process or the database.
pub enum Node {
    /// A process.
    Process(Box<Process>),
    /// The database.
    Server(Box<Server>),
}

/// How a node is set up.
#[derive(Clone, Copy, Debug)]
pub enum NodeConfig {
    /// A process, where its database is, and when its rounds begin.
    Process(MemberId, Rounds),
    /// The database.
    Server,
}

type NodeEffect = Effect<Message, (), ()>;

impl Machine for Node {
    type Input = (MemberId, Message);
    type Effect = NodeEffect;

    fn handle(
        &mut self,
        (from, message): (MemberId, Message),
        now: Instant,
        effects: &mut Effects<NodeEffect>,
    ) {
        match self {
            Node::Server(server) => server.handle(from, message, effects),
            Node::Process(process) => match (message, &process.phase) {
                (Message::Granted(vars, descriptors), Phase::Locking) => {
                    let message = process.granted(vars, descriptors, now);
                    effects.push(Effect::Send { to: process.database, message });
                }
                (Message::Committed, Phase::Committing(_)) => process.committed(now),
                _ => {}
            },
        }
    }

    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<NodeEffect>) {
        if let Node::Process(process) = self
            && matches!(process.phase, Phase::Sleeping(until) if until <= now)
        {
            process.begin(now, effects);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Node::Process(process) => match process.phase {
                Phase::Sleeping(until) => Some(until),
                Phase::Locking | Phase::Committing(_) => None,
            },
            Node::Server(_) => None,
        }
    }
}

impl Subject for Node {
    type Message = Message;
    type Stable = ();
    type Event = ();
    type Config = NodeConfig;

    fn boot(
        config: &NodeConfig,
        _: Boot<()>,
        now: Instant,
        effects: &mut Effects<NodeEffect>,
    ) -> Self {
        let (round, evict_flag) = (ROUND, false);
        match config {
            NodeConfig::Server => Node::Server(Box::new(Server {
                vars: Vars { max_id: 0, round, evict_flag },
                descriptors: BTreeMap::new(),
                holders: Vec::new(),
                waiting: VecDeque::new(),
            })),
            NodeConfig::Process(database, rounds) => {
                let mut process = Process {
                    database: *database,
                    id: None,
                    is_leader: false,
                    round,
                    lease_from: now,
                    force_exclusive: false,
                    is_exclusive: false,
                    history: VecDeque::new(),
                    rounds: *rounds,
                    began: now,
                    phase: Phase::Locking,
                };
                process.begin(now, effects);
                Node::Process(Box::new(process))
            }
        }
    }

    fn received(from: MemberId, message: Message) -> (MemberId, Message) {
        (from, message)
    }
}

struct Watch<'a>(Option<Trace<'a>>);

impl Observer<Node> for Watch<'_> {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, Node>) {
        if let Some(trace) = &mut self.0 {
            trace.observe(moment, what);
        }
    }
}

/// Runs a seed: two minutes in which some messages are slow, and some processes pause. Nothing is lost.
pub fn run(seed: u64, rounds: Rounds, trace: Option<&mut dyn Write>) -> Outcome {
    let mut random = Random::new(seed, Stream::Setting);
    let size = 2 + random.below(4) as usize;
    let process = NodeConfig::Process(member(size), rounds);
    let processes = (0..size).map(|_| (process, Clock::new(0)));
    let nodes = processes.chain([(NodeConfig::Server, Clock::new(0))]);
    let slow = |mean| LinkModel {
        delay: Delay::Exponential(mean),
        max_delay: ROUND * 2,
        ..LinkModel::perfect(mean)
    };
    let machinery = Machinery { lateness: Duration::from_millis(5), write_time: Duration::ZERO };
    let links = slow(Duration::from_millis(2));
    let mut world = World::new(seed, nodes, links, machinery, Watch(trace.map(Trace::new)));
    // Some are nearer to the database than others, and none is far.
    for host in 0..size {
        let model = slow(Duration::from_millis(random.pick(&[2, 20, 100, 300])));
        world.network_mut().set(host, size, model);
        world.network_mut().set(size, host, model);
    }
    for _ in 0..random.below(12) {
        let host = random.below(size as u64) as usize;
        let at = SimTime::ZERO + random.between(ROUND, ROUND * 60);
        world.schedule(at, Fault::Pause(host));
        world.schedule(at + random.between(Duration::ZERO, ROUND * 5), Fault::Resume(host));
    }
    world.start_all();
    let mut reigns = 0;
    let mut leader = None;
    let mut verdict = Ok(());
    while verdict.is_ok() && world.step(SimTime::ZERO + ROUND * 60) {
        let holds = |host: HostIndex| leads(&world, host);
        if let Err(what) = one_mandate_at_a_time::check(size, holds) {
            let what = format!("{what} (at {} s)", world.now());
            let invariant = one_mandate_at_a_time::NAME;
            verdict = Err(Violation::Correctness { invariant, what });
        }
        let now = (0..size).find(|host| leads(&world, *host));
        if now.is_some() && now != leader {
            reigns += 1;
            leader = now;
        }
    }
    world.outcome(verdict, reigns, 0.0)
}

fn leads(world: &World<Node, Watch<'_>>, host: HostIndex) -> bool {
    match world.machine(host) {
        Some(Node::Process(process)) => process.is_leader(world.local_time(host)),
        _ => false,
    }
}
