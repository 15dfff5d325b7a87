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

use crate::clock::HostClocks;
use crate::fault::Fault;
use crate::host::member;
use crate::installation::invariants::one_mandate_at_a_time;
use crate::link::{Delay, LinkModel};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::scenario::{Run, Scenario, Watched};
use crate::storm::{Happening, Storm};
use crate::subject::{Boot, Moment, Observation, Subject};
use crate::time::SimTime;
use crate::verdict::Outcome;
use crate::watch::{Broken, Invariants, Watch};
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
pub struct PrintedProcess {
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

impl PrintedProcess {
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
pub struct PrintedDatabase {
    vars: Vars,
    descriptors: BTreeMap<u64, u64>,
    holders: Vec<(MemberId, bool)>,
    waiting: VecDeque<(MemberId, bool)>,
}

impl PrintedDatabase {
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
pub enum PrintedNode {
    /// A process.
    Process(Box<PrintedProcess>),
    /// The database.
    Server(Box<PrintedDatabase>),
}

/// How a node is set up.
#[derive(Clone, Copy, Debug)]
pub enum PrintedNodeConfig {
    /// A process, where its database is, and when its rounds begin.
    Process(MemberId, Rounds),
    /// The database.
    Server,
}

type NodeEffect = Effect<Message, (), ()>;

impl Machine for PrintedNode {
    type Input = (MemberId, Message);
    type Effect = NodeEffect;

    fn handle(
        &mut self,
        (from, message): (MemberId, Message),
        now: Instant,
        effects: &mut Effects<NodeEffect>,
    ) {
        match self {
            PrintedNode::Server(server) => server.handle(from, message, effects),
            PrintedNode::Process(process) => match (message, &process.phase) {
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
        if let PrintedNode::Process(process) = self
            && matches!(process.phase, Phase::Sleeping(until) if until <= now)
        {
            process.begin(now, effects);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            PrintedNode::Process(process) => match process.phase {
                Phase::Sleeping(until) => Some(until),
                Phase::Locking | Phase::Committing(_) => None,
            },
            PrintedNode::Server(_) => None,
        }
    }
}

impl Subject for PrintedNode {
    type Message = Message;
    type Stable = ();
    type Event = ();
    type Config = PrintedNodeConfig;

    fn boot(
        config: &PrintedNodeConfig,
        _: Boot<()>,
        now: Instant,
        effects: &mut Effects<NodeEffect>,
    ) -> Self {
        let (round, evict_flag) = (ROUND, false);
        match config {
            PrintedNodeConfig::Server => PrintedNode::Server(Box::new(PrintedDatabase {
                vars: Vars { max_id: 0, round, evict_flag },
                descriptors: BTreeMap::new(),
                holders: Vec::new(),
                waiting: VecDeque::new(),
            })),
            PrintedNodeConfig::Process(database, rounds) => {
                let mut process = PrintedProcess {
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
                PrintedNode::Process(Box::new(process))
            }
        }
    }

    fn received(from: MemberId, message: Message) -> (MemberId, Message) {
        (from, message)
    }
}

/// Who led last, and how often that changed.
#[derive(Default)]
struct Reigns {
    leader: Option<HostIndex>,
    count: u64,
}

impl Invariants<PrintedNode> for Reigns {
    fn check(&mut self, _: Moment, _: &Observation<'_, PrintedNode>) -> Result<(), Broken> {
        Ok(())
    }

    fn reigns(&self) -> u64 {
        self.count
    }
}

/// Runs a seed: two minutes in which some messages are slow, and some processes pause. Nothing is lost.
pub fn run(seed: u64, rounds: Rounds, trace: Option<&mut dyn Write>) -> Outcome {
    let mut random = Random::new(seed, Stream::Setting);
    let size = 2 + random.below(4) as usize;
    let process = PrintedNodeConfig::Process(member(size), rounds);
    let processes = (0..size).map(|_| (process, HostClocks::new(0)));
    let nodes = processes.chain([(PrintedNodeConfig::Server, HostClocks::new(0))]);
    let machinery = Machinery { lateness: Duration::from_millis(5), write_time: Duration::ZERO };
    let (links, watch) = (slow(Duration::from_millis(2)), Watch::new(Reigns::default(), trace));
    let world = World::new(seed, nodes, links, machinery, watch);
    Run { world, case: Case { size, random } }.play(seed)
}

fn slow(mean: Duration) -> LinkModel {
    LinkModel { delay: Delay::Exponential(mean), max_delay: ROUND * 2, ..LinkModel::perfect(mean) }
}

struct Case {
    size: usize,
    random: Random,
}

impl Scenario for Case {
    type Subject = PrintedNode;
    type Invariants = Reigns;

    fn storm(&mut self, world: &mut Watched<'_, Self>, _: u64) -> Storm<(MemberId, Message)> {
        let (size, random) = (self.size, &mut self.random);
        // Some are nearer to the database than others, and none is far.
        for host in 0..size {
            let model = slow(Duration::from_millis(random.pick(&[2, 20, 100, 300])));
            world.network_mut().set(host, size, model);
            world.network_mut().set(size, host, model);
        }
        let mut happenings = Vec::new();
        for _ in 0..random.below(12) {
            let host = random.below(size as u64) as usize;
            let at = SimTime::ZERO + random.between(ROUND, ROUND * 60);
            let over = at + random.between(Duration::ZERO, ROUND * 5);
            happenings.push((at, Happening::Fault(Fault::Pause(host))));
            happenings.push((over, Happening::Fault(Fault::Resume(host))));
        }
        Storm { happenings, leader_faults: Vec::new(), lasts: ROUND * 60 }
    }

    fn check(run: &mut Run<'_, Self>) {
        let leads = |host| leads(&run.world, host);
        let (checked, leader) = (
            one_mandate_at_a_time::check(run.case.size, leads),
            (0..run.case.size).find(|host| leads(*host)),
        );
        if let Err(what) = checked {
            let what = format!("{what} (at {} s)", run.world.now());
            run.world.observer.fail(one_mandate_at_a_time::NAME, what);
        }
        let reigns = &mut run.world.observer.invariants;
        if leader.is_some() && leader != reigns.leader {
            reigns.count += 1;
            reigns.leader = leader;
        }
    }

    /// Nothing is asked of it after that.
    fn heal(_: &mut Run<'_, Self>) {}

    fn demand(_: &mut Run<'_, Self>) {}
}

fn leads(world: &Watched<'_, Case>, host: HostIndex) -> bool {
    match world.machine(host) {
        Some(PrintedNode::Process(process)) => process.is_leader(world.local_time(host)),
        _ => false,
    }
}
