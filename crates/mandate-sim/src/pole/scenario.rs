//! One seed: a storm of faults, resignations, transfers and changing figures; then healing, to full or
//! partial connectivity, and the demand that there is a leader, that it stays, and that its crash
//! is survived.

use core::time::Duration;
use std::io::Write;

use mandate_proto::election::{Figures, State};
use mandate_proto::oracle::{Oracle, Preference};
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_proto::pole::member::{
    ANSWERED_WITHIN, Config, Input, LeaderRequest, MIN_TIME, Member, Moves,
};
use mandate_proto::pole::selection::Rules;

use super::register::Register;
use super::releases::{NobodyLeftBehind, Releases};
use super::shape::{Shape, has_centre};
use super::watch::Elections;
use super::{MemberConfig, Mutant, put_back, requests};
use crate::changes::Changes;
use crate::fault::{Fault, MemberName};
use crate::host::member;
use crate::installation::invariants::holders::Holders;
use crate::installation::invariants::one_mandate_at_a_time;
use crate::link::Delay;
use crate::mixture::{Mixture, Version};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::scenario::{Run, Scenario, Watched};
use crate::storm::{self, Happening, Setting, Storm};
use crate::time::SimTime;
use crate::values;
use crate::verdict::Outcome;
use crate::watch::Watch;
use crate::world::World;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put back on purpose.
    pub mutant: Option<Mutant>,
    /// Whether members come and go.
    pub changes: bool,
    /// Whether some members are of an older release at first. Then members come and go, too.
    pub releases: bool,
}

/// Twice what the clocks of a storm may be off, and a little.
const ALLOWANCE_PER_MILLE: u16 = 4;

const ORACLES: [&str; 9] = [
    "constant",
    "history",
    "requests",
    "consensus",
    "latency/10ms, history",
    "worst/5ms, requests",
    "rotating",
    "preference, latency",
    // A figure that nobody ever tells.
    "application, history",
];

/// Runs a seed; `trace` receives it line by line.
pub fn run(seed: u64, options: &Options, trace: Option<&mut dyn Write>) -> Outcome {
    let mut setting = Setting::draw(seed);
    let mut random = Random::new(seed ^ 0x901E, Stream::Setting);
    // A few groups are of one or two.
    if random.chance(0.05) {
        setting.size = 1 + random.below(2) as usize;
        setting.clocks.truncate(setting.size);
    }
    // In some groups a round trip takes several intervals.
    if random.chance(0.1) {
        let (least, most) = (setting.interval * 5 / 2, setting.interval * 3);
        setting.calm.delay = Delay::Uniform(least, most);
        setting.calm.max_delay = most;
    }
    // In some groups the plan is kept current, and there is time enough for that.
    let planned = Random::new(seed ^ 0x91A7, Stream::Setting).chance(0.02);
    if planned {
        setting.storm *= 8;
    }
    let changes = (options.changes || options.releases).then(|| Changes::draw(seed, &mut setting));
    let releases = match options.releases {
        true => Releases::draw(seed, &setting),
        false => Releases::default(),
    };
    let size = changes.as_ref().map_or(setting.size, |changes| changes.hosts(setting.size));
    let mixture = match changes {
        Some(_) => Mixture::draw(seed, size).alike(),
        None => Mixture::draw(seed, size),
    };
    let mut hosts = configure(&setting, (&mixture, changes.as_ref()), options.mutant, &mut random);
    if planned {
        hosts.iter_mut().for_each(|host| host.config = kept_current(&host.config));
    }
    for (host, setup) in hosts.iter_mut().enumerate().filter(|(host, _)| releases.is_old(*host)) {
        (setup.config, setup.edited) = releases.configure(host, setup.config.clone());
        setup.is_upgraded = true;
    }
    setting.machinery.write_time = mixture.slow_disks.unwrap_or(setting.machinery.write_time);
    // The slowest of those that agree says how long things may take.
    let agrees = |(host, config): (usize, &MemberConfig)| {
        mixture.agrees(host).then(|| config.config.clone())
    };
    let config = hosts.iter().enumerate().filter_map(agrees);
    let config = config.max_by_key(|config| config.recovers_within(Duration::ZERO));
    let config = config.expect("a majority agrees");
    let mut elections = Elections::new(size);
    let may_leave = changes.iter().flat_map(Changes::may_leave);
    elections.left_behind =
        NobodyLeftBehind::new((0..size).filter(|host| releases.is_old(*host)), may_leave);
    let watch = Watch::new(elections, trace);
    let hosts = hosts.into_iter().zip(setting.clocks.iter().cloned());
    let world = World::new(seed, hosts, setting.rough, setting.machinery, watch);
    let register = Register::new(seed);
    let mutant = options.mutant;
    let holders = Holders::default();
    let hints = Random::new(seed ^ 0x417, Stream::Faults);
    let publishing = Random::new(seed ^ 0x7A1E, Stream::Faults);
    let asking = Random::new(seed ^ 0xA5C, Stream::Faults);
    let case = Case {
        config,
        random,
        setting,
        size,
        mixture,
        changes,
        releases,
        planned,
        holders,
        register,
        mutant,
        hints,
        publishing,
        asking,
    };
    Run { world, case }.play(seed)
}

/// A group: the same for all members but for what they are themselves, and for what is mixed.
fn configure(
    setting: &Setting,
    (mixture, changes): (&Mixture, Option<&Changes>),
    mutant: Option<Mutant>,
    random: &mut Random,
) -> Vec<MemberConfig> {
    // A lease or a timeout that is not much longer than a message takes cannot be kept on calm
    // days either.
    let (delay, machinery) = (setting.calm.max_delay, setting.machinery);
    let step = delay + machinery.write_time + machinery.lateness;
    let lease = setting.detect + step * 4;
    let guarantee = if random.chance(0.4) {
        PeerGuarantee::Fenced
    } else {
        PeerGuarantee::Leased { lease, allowance_per_mille: ALLOWANCE_PER_MILLE }
    };
    let timeout = step * (3 + random.below(4) as u32);
    let ping_every = setting.interval * random.pick(&[1, 2, 4]);
    let oracle: Oracle = random.pick(&ORACLES).parse().expect("these are oracles");
    let rules = if random.chance(0.9) { Rules::default() } else { Rules::PAPER };
    let rules = match mutant {
        Some(Mutant::IsolatedCandidates) => Rules { hear_quorum: false, ..Rules::default() },
        _ => rules,
    };
    let moves = Moves {
        every: setting.detect,
        threshold: 0.1,
        tenure: setting.detect * 2,
        shadow: random.chance(0.3),
    };
    let moves = random.chance(0.3).then_some(moves);
    // At most a minority may never lead.
    let minority = (setting.size as u64).saturating_sub(1) / 2;
    let barred = if random.chance(0.2) { random.below(minority + 1) } else { 0 };
    // The others may be removed.
    let barred = if changes.is_some() { 0 } else { barred };
    let size = changes.map_or(setting.size, |changes| changes.hosts(setting.size));
    let setup = |host: HostIndex, random: &mut Random| {
        let never = (host as u64) < barred;
        let rank = Preference::Rank(random.below(3) as i32);
        let config = |version| {
            let members = match changes {
                Some(_) => (0..setting.size).map(member).collect(),
                None => mixture.members(host, version),
            };
            let guarantee = mixture.guarantee((host, version), guarantee, lease, step * 5);
            Config::new(member(host), members, setting.interval, setting.detect)
                .and_then(|config| config.with_guarantee(guarantee))
                .and_then(|config| config.with_timeout(mixture.timeout(host, timeout)))
                .and_then(|config| config.with_ping_every(ping_every))
                .map(|config| config.with_oracle(oracle.clone()).with_rules(rules))
                .map(|c| c.with_preference(if never { Preference::Never } else { rank }))
                .and_then(|c| moves.map_or(Ok(c.clone()), |moves| c.with_moves(moves)))
                .expect("a sound configuration")
                .without(mutant.and_then(Mutant::without))
        };
        let is_edited = mixture.is_edited(host) || mixture.has_two_lists();
        let edited = is_edited.then(|| config(Version::Edited));
        let config = config(Version::First);
        let joins = changes.is_some_and(|changes| changes.is_spare(host));
        let is_upgraded = false;
        MemberConfig { config, edited, is_upgraded, joins, figures: figures(random), mutant }
    };
    (0..size).map(|host| setup(host, random)).collect()
}

/// A plan that asks for much, so that rough links make for short intervals.
fn kept_current(config: &Config) -> Config {
    let (detect, least) = (config.detect(), (config.interval() / 8).max(MIN_TIME));
    config.clone().with_mistakes(detect * 10_000, detect, least).expect("bounds above zero")
}

fn figures(random: &mut Random) -> Figures {
    Figures {
        history: Some(random.below(100)),
        requests: random.below(1000) as f64,
        application: None,
    }
}

pub(super) struct Case {
    pub(super) setting: Setting,
    pub(super) config: Config,
    pub(super) random: Random,
    /// How many hosts there are.
    pub(super) size: usize,
    mixture: Mixture,
    /// Who comes and goes, in runs in which members do.
    changes: Option<Changes>,
    /// Who is of an older release at first.
    pub(super) releases: Releases,
    /// Whether plans are kept current.
    planned: bool,
    holders: Holders,
    register: Register,
    mutant: Option<Mutant>,
    /// Whether a hint reaches all.
    pub(super) hints: Random,
    /// Whether leaders publish values, and when.
    publishing: Random,
    /// Whether members are asked to have their leader do something, and when.
    asking: Random,
}

/// One run in so many has a request after the storm, too.
const ASKS_AFTERWARDS: f64 = 0.2;

/// One run in so many has leaders that publish values.
const PUBLISHES: f64 = 0.2;

impl Case {
    /// In some runs everyone is asked to publish, now and then: the leader of that moment does.
    fn publications(&mut self) -> Vec<(SimTime, Happening<Input>)> {
        let mut asked = Vec::new();
        if !self.publishing.chance(PUBLISHES) {
            return asked;
        }
        for number in 0..self.publishing.below(40) {
            let at = self.publishing.between(Duration::ZERO, self.setting.storm);
            for host in 0..self.size {
                let input = Input::Publish(values::of_host(host, number));
                asked.push((SimTime::ZERO + at, Happening::Tell(host, input)));
            }
        }
        asked
    }
}

impl Scenario for Case {
    type Subject = Member;
    type Invariants = Elections;

    fn storm(&mut self, world: &mut Watched<'_, Self>, seed: u64) -> Storm<Input> {
        let (size, storm) = (self.size as u64, self.setting.storm);
        let mut faults = storm::faults(seed, &self.setting);
        faults.extend(self.mixture.faults(seed, &self.setting));
        faults.extend(self.releases.faults(seed, self.setting.detect));
        let older = match self.changes {
            Some(_) => Vec::new(),
            None => put_back::older_disks(seed, &self.setting),
        };
        // What is promised assumes that no disk is put back.
        world.observer.is_outside = !older.is_empty();
        faults.extend(older);
        let mut happenings = Vec::new();
        for (at, fault) in faults {
            let fault = fault.with_counted_suspension();
            // A connection breaks when a process ends, and some notice.
            if let Fault::Crash(host) = fault {
                let noticed = at + self.setting.calm.max_delay;
                for other in (0..self.size).filter(|other| *other != host) {
                    if self.random.chance(0.5) {
                        let input = Input::LinkBroken { member: member(host) };
                        happenings.push((noticed, Happening::Tell(other, input)));
                    }
                }
            }
            happenings.push((at, Happening::Fault(fault)));
        }
        for _ in 0..self.random.below(30) {
            let at = SimTime::ZERO + self.random.between(Duration::ZERO, storm);
            let host = self.random.below(size) as usize;
            let other = member(self.random.below(size) as usize);
            let input = match self.random.below(10) {
                0 | 1 => Input::Resign,
                2..=5 => Input::Transfer { to: other },
                6 | 7 => Input::LinkBroken { member: other },
                _ => Input::Figures(figures(&mut self.random)),
            };
            // The leader of that moment is the one that is asked.
            let asked = if self.random.chance(0.5) { 0..self.size } else { host..host + 1 };
            happenings.extend(asked.map(|asked| (at, Happening::Tell(asked, input.clone()))));
        }
        let count = self.random.below(4);
        happenings.extend(storm::orderly_ends(&mut self.random, &self.setting, count, Input::Stop));
        happenings.extend(self.publications());
        let has_changes = self.changes.is_some();
        happenings.extend(requests::storm(&mut self.asking, (self.size, storm), has_changes));
        world.set_willing(Some(self.setting.detect * 3));
        if let Some(changes) = &self.changes {
            happenings.extend(changes.happenings(Input::Change));
        }
        Storm { happenings, leader_faults: Vec::new(), lasts: storm }
    }

    fn heal(run: &mut Run<'_, Self>) {
        run.world.set_willing(None);
        let (calm, settlement) = run.case.mixture.healing(&run.case.setting);
        run.calm_down_with_disks(calm, settlement);
    }

    /// Asks every member whether its mandate holds, and has each that thinks it leads write to a register that checks terms.
    fn check(run: &mut Run<'_, Self>) {
        let now = run.world.now();
        if run.case.config.guarantee() != PeerGuarantee::Fenced {
            // Alone, a member holds once it has said so: what it promised itself is on disk by then.
            let (states, alone) =
                (&run.world.observer.invariants.leaders.states, run.may_be_alone());
            let says_so = |host: HostIndex, term| states[host] == State::Leading { term };
            let until = |host, machine: &Member, now| {
                machine.mandate(now).filter(|it| !alone || says_so(host, it.0)).and_then(|it| it.1)
            };
            run.case.holders.look(&run.world, until);
            let holds = |host| run.holds(host);
            let orphans = run.case.holders.orphans();
            if let Err(what) = one_mandate_at_a_time::check_all(run.case.size, holds, orphans) {
                let what = format!("{what} (at {now} s)");
                run.world.observer.fail(one_mandate_at_a_time::NAME, what);
            }
        }
        for host in 0..run.case.size {
            if let State::Leading { term } = run.world.observer.invariants.leaders.states[host] {
                run.case.register.write(host, term, now);
            }
        }
        if let Err(what) = run.case.register.check(now) {
            run.world.observer.fail(Register::NAME, what);
        }
    }

    /// There must be a leader, for good.
    fn demand(run: &mut Run<'_, Self>) {
        let step = run.step();
        // Who has lost its disk asks all others; who can recover has done so by then.
        run.run_until(run.world.last_arrival() + run.case.setting.interval * 2 + step * 4);
        if run.case.changes.is_some() {
            run.upgrade_the_rest();
            return run.demand_of_a_changed_group();
        }
        let size = run.case.size;
        let votes = |host: &HostIndex| {
            run.case.mixture.agrees(*host) && run.world.machine(*host).is_some_and(Member::has_vote)
        };
        let voters: Vec<_> = (0..size).filter(votes).collect();
        // As printed, a member that cannot commit anything may be elected again and again.
        let partial = run.case.config.rules().hear_quorum
            || run.case.mutant == Some(Mutant::IsolatedCandidates);
        let shape = if partial { Shape::draw(&mut run.case.random) } else { Shape::Full };
        let cuts = shape.cuts(size, &voters, &mut run.case.random);
        if !run.has_candidates(&voters, &cuts) {
            return;
        }
        for cut in &cuts {
            run.world.inject(cut.clone());
        }
        run.await_leader("a leader after healing", run.recovery());
        let Some(leader) = run.leader() else { return };
        if shape == Shape::Full && !run.moves() {
            run.demand_agreement();
            run.demand_that_a_value_reaches_all();
            run.demand_that_requests_are_answered();
        }
        run.demand_stability(shape);
        let is_well = shape == Shape::Full && run.case.mixture.all_agree() && !run.moves();
        if is_well && voters.len() == size && size > 2 && run.case.random.chance(0.2) {
            run.demand_that_an_older_disk_is_noticed(leader);
        }
        if run.world.observer.is_done() || voters.len() <= size / 2 + 1 {
            return;
        }
        // And once more, after the crash of the leader.
        let leader = run.leader().unwrap_or(leader);
        run.world.inject(Fault::Crash(leader));
        let voters: Vec<_> = voters.into_iter().filter(|host| *host != leader).collect();
        if run.has_candidates(&voters, &cuts) {
            match is_well {
                true => run.await_a_successor(),
                false => run.await_leader("a leader after a crash", run.recovery()),
            }
        }
    }
}

impl Run<'_, Case> {
    /// The leader of a group that is well has crashed: another leads, not later than in twice what that takes when nothing goes wrong.
    pub(super) fn await_a_successor(&mut self) {
        let bound = match self.case.config.rules() == Rules::default() {
            true => self.case.config.fails_over_within(self.quick_step()) * 2 + self.slow_writes(),
            false => self.recovery(),
        };
        self.await_leader("a leader after a crash", bound);
    }

    pub(super) fn has_slow_disks(&self) -> bool {
        self.case.mixture.slow_disks.is_some()
    }

    /// Whether a member may decide alone. What it promised itself is on disk once it says that it leads.
    fn may_be_alone(&self) -> bool {
        self.case.size == 1 || self.case.changes.is_some()
    }

    /// Whether the mandate of the member on a host holds now, by its own clock.
    fn holds(&self, host: HostIndex) -> bool {
        let state = self.world.observer.invariants.leaders.states[host];
        let says_so = |term| self.case.changes.is_none() || state == State::Leading { term };
        let machine = self.world.machine(host);
        let mandate = machine.and_then(|machine| machine.mandate(self.world.local_time(host)));
        mandate.is_some_and(|(term, _)| says_so(term))
    }

    /// Within how long there is a leader after the storm.
    pub(super) fn recovery(&self) -> Duration {
        let bound = self.case.config.recovers_within(self.quick_step()).mul_f64(1.01);
        bound + self.slow_writes()
    }

    /// What a message, a write and a wake-up take at most on calm days.
    pub(super) fn step(&self) -> Duration {
        let machinery = self.case.setting.machinery;
        self.case.setting.calm.max_delay + machinery.write_time + machinery.lateness
    }

    /// The same where no disk is slow.
    fn quick_step(&self) -> Duration {
        let write_time = self.case.setting.machinery.write_time;
        self.step() - write_time + write_time.min(storm::WRITE_TIME)
    }

    /// What slow disks may add: a claim costs two writes in succession, and some may come to nothing, since a claimant whose own write
    /// was quick does not know how slow those of the others are. (With eight, one run in 20,000 had a leader in the last instant.)
    fn slow_writes(&self) -> Duration {
        self.case.mixture.slow_disks.unwrap_or_default() * 12
    }

    /// Whether one that may lead hears a quorum: a member that never may must not be the only one.
    fn has_candidates(&self, voters: &[HostIndex], cuts: &[Fault]) -> bool {
        let may_lead = |host: &HostIndex| {
            let machine = self.world.machine(*host);
            machine.is_some_and(|machine| machine.config().preference() != Preference::Never)
        };
        let centres = voters.iter().copied().filter(may_lead);
        has_centre(self.case.size, centres, voters, cuts)
    }

    /// Who holds the highest term: without leases, a leader that was replaced may not know it yet.
    pub(super) fn leader(&self) -> Option<HostIndex> {
        let held = |host: HostIndex| {
            let local = self.world.local_time(host);
            Some((self.world.machine(host)?.mandate(local)?.0, host))
        };
        (0..self.case.size).filter_map(held).max().map(|(_, host)| host)
    }

    /// Within the bound there is a leader that stays.
    fn await_leader(&mut self, what: &'static str, bound: Duration) {
        let step = self.quick_step();
        let began = self.world.now();
        // A leader that was there before may be about to lose it, so the whole time is waited for.
        let (mut leader, mut since) = (None, began);
        while self.world.now() < began + bound && !self.world.observer.is_done() {
            self.run_until((self.world.now() + step).min(began + bound));
            let present = self.leader().filter(|leader| self.is_followed(*leader));
            if present != leader {
                (leader, since) = (present, self.world.now());
            }
        }
        // A leader that has just moved is on its way.
        let is_done = |run: &Self| run.world.observer.is_done() || !run.moves();
        while leader.is_none() && !is_done(self) && self.world.now() < began + bound * 2 {
            self.run_until(self.world.now() + step);
            leader = self.leader().filter(|leader| self.is_followed(*leader));
        }
        let took = since - began;
        if !self.moves() {
            self.world.observer.took(took, bound);
        }
        if leader.is_none() {
            let states = self.world.observer.invariants.leaders.states.clone();
            self.world.observer.stall(what, format!("none within {bound:?}: {states:?}"));
        }
    }

    /// Whether a quorum follows, the leader itself included.
    fn is_followed(&self, leader: HostIndex) -> bool {
        let leader = member(leader);
        let follows =
            |state: &State| matches!(state, State::Following { leader: l, .. } if *l == leader);
        let states = self.world.observer.invariants.leaders.states.iter().enumerate();
        let followers = states.filter(|(host, state)| self.world.runs(*host) && follows(state));
        followers.count() >= self.case.size / 2
    }

    pub(super) fn moves(&self) -> bool {
        self.case.config.moves().is_some_and(|moves| !moves.shadow)
    }

    /// With all links there, everyone that has a vote follows the leader.
    fn demand_agreement(&mut self) {
        let leader = self.leader();
        let agrees = |host: HostIndex| match self.world.observer.invariants.leaders.states[host] {
            State::Leading { .. } => leader == Some(host),
            State::Following { leader: followed, .. } => leader.map(member) == Some(followed),
            State::Electing => !self.world.machine(host).is_some_and(Member::has_vote),
        };
        let mut alike = (0..self.case.size).filter(|host| self.case.mixture.agrees(*host));
        if !alike.all(agrees) {
            let states = self.world.observer.invariants.leaders.states.clone();
            self.world.observer.stall("agreement", format!("{leader:?} leads, and {states:?}"));
        }
    }

    /// In some runs the leader publishes a value once more, and everyone that follows it shows that.
    fn demand_that_a_value_reaches_all(&mut self) {
        let Some(leader) = self.leader() else { return };
        if !self.case.publishing.chance(PUBLISHES) || self.world.observer.is_done() {
            return;
        }
        let value = values::of_host(leader, u64::MAX);
        self.world.tell(leader, Input::Publish(value.clone()));
        let bound = self.case.setting.interval * 4 + self.step() * 6;
        self.demand_within("a value reaches all", bound, |run| {
            let lacks = |host: &HostIndex| {
                let machine = run.world.machine(*host);
                run.case.mixture.agrees(*host)
                    && machine.is_some_and(|it| it.has_vote() && it.value() != Some(&value))
            };
            (0..run.case.size)
                .find(lacks)
                .map(|host| format!("{} shows {value:?}", MemberName(host)))
        });
    }

    /// In some runs a member that follows has the leader asked for something that cannot be, and hears so.
    fn demand_that_requests_are_answered(&mut self) {
        let Some(leader) = self.leader() else { return };
        if !self.case.asking.chance(ASKS_AFTERWARDS) || self.world.observer.is_done() {
            return;
        }
        let host = self.case.asking.below(self.case.size as u64) as HostIndex;
        let (number, request) = (u64::MAX, LeaderRequest::Transfer { to: member(leader) });
        self.world.tell(host, Input::Ask { number, request });
        // If a message is lost, it says that it does not know.
        let bound = ANSWERED_WITHIN.mul_f64(1.01) + self.step() * 2;
        self.demand_within("a request is answered", bound, |run| {
            let waits = run.world.observer.invariants.requests.waits(host, number);
            waits.then(|| format!("an answer to {}", MemberName(host)))
        });
    }

    /// Nothing happens, so nobody who leads stops to, unless scores move it.
    fn demand_stability(&mut self, shape: Shape) {
        let before = self.leader();
        // Connections break and are made again, while messages get through: hints, and no more than that.
        if let Some(leader) = before.map(member) {
            for _ in 0..self.case.random.below(4) {
                let at = self.world.now()
                    + self.case.random.between(Duration::ZERO, self.case.setting.detect * 7);
                let host = self.case.random.below(self.case.size as u64) as usize;
                let again = at + self.case.random.between(Duration::ZERO, self.case.setting.detect);
                // In some runs all connections to it break at once.
                let all = 0..self.case.size;
                for host in if self.case.hints.chance(0.3) { all } else { host..host + 1 } {
                    self.world.schedule_input(at, host, Input::LinkBroken { member: leader });
                    self.world.schedule_input(again, host, Input::LinkUp { member: leader });
                }
            }
        }
        self.world.observer.invariants.suspicions.clear();
        self.run_until(self.world.now() + self.case.setting.detect * 8);
        if !self.moves() && self.leader() != before && !self.world.observer.is_done() {
            let after = self.leader();
            let what = format!("{before:?} led, and now {after:?}, though nothing happened");
            self.world.observer.stall("stability", what);
        }
        // Who hears the leader, by pings and heartbeats, has no reason to suspect it. Where plans are kept current, they allow a mistake in
        // 10,000 detection times, whatever connections do (seed 60048139).
        let agree = |one, other| self.case.mixture.agrees(one) && self.case.mixture.agrees(other);
        let suspicions = self.world.observer.invariants.suspicions.iter();
        let suspicion = suspicions.copied().find(|(by, of)| before == Some(*of) && agree(*by, *of));
        let may_err = self.moves() || self.case.planned;
        if let Some((by, of)) = suspicion.filter(|_| shape == Shape::Full && !may_err) {
            let what = format!("{} suspects {}, which it hears", MemberName(by), MemberName(of));
            self.world.observer.stall("a broken connection is no proof", what);
        }
    }
}
