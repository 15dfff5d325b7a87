//! One seed: a storm of faults, resignations, transfers, slow and lost statements; then healing, and the
//! demand that there is a leader, that all know it, that it stays, and that its crash is survived.

use core::time::Duration;
use std::io::Write;

use mandate_proto::pole::member::State;
use mandate_proto::registers::{Config, Guarantee, Part};

use super::storm::{self, Happening, Setting, Strike};
use super::watch::Watch;
use super::{Mutant, Node, NodeConfig, NodeInput, Tables, Trouble};
use crate::fault::{DiskFate, Fault};
use crate::host::member;
use crate::installation::invariants::one_mandate_at_a_time;
use crate::network::HostIndex;
use crate::pole::register::Register;
use crate::subject::Observer;
use crate::time::SimTime;
use crate::trace::Trace;
use crate::verdict::Outcome;
use crate::world::World;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put back on purpose.
    pub mutant: Option<Mutant>,
    /// Whether the database is once put back to what it was, after a lease without answers.
    pub restores: bool,
    /// Whether control rows vanish and the database forgets what it has acknowledged, at any moment. Then two may lead at
    /// once, and that must be told of; but nobody may take over while a lease runs that it has seen.
    pub losses: bool,
    /// Whether it is a role that is led: a control row of its own, members that others let into the group and throw
    /// out, and whom the group's leader prefers, which changes.
    pub role: bool,
}

/// Runs a seed; `trace` receives it line by line.
pub fn run(seed: u64, options: &Options, trace: Option<&mut dyn Write>) -> Outcome {
    let mut setting = Setting::draw(seed, options);
    let loses = (options.restores, options.losses);
    let watch = Watch::new(setting.size, loses, trace.map(Trace::new));
    let nodes = std::mem::take(&mut setting.nodes);
    let may_lead = nodes.iter().map(|(node, _)| may_lead(node)).collect();
    let world = World::new(seed, nodes, setting.rough, setting.machinery, watch);
    let register = Register::new(seed);
    let (forgotten, preferred) = (SimTime::ZERO, None);
    let mut run = Run { world, setting, may_lead, register, forgotten, preferred, agreement: 0.0 };
    for (at, happening) in storm::happenings(seed, &run.setting, options) {
        match happening {
            Happening::Fault(fault) => run.world.schedule(at, fault),
            Happening::Tell(host, input) => run.world.schedule_input(at, host, input),
        }
    }
    run.world.start_all();
    for (at, strike) in storm::strikes(seed, &run.setting) {
        run.run_until(at);
        run.strike(strike);
    }
    run.run_until(SimTime::ZERO + run.setting.storm);
    run.heal();
    run.demand_a_leader();
    let Run { world, agreement, .. } = run;
    let (verdict, reigns) = (
        world.observer.violation.clone().map_or(Ok(()), Err),
        world.observer.one_leader.terms() as u64,
    );
    world.outcome(verdict, reigns, agreement)
}

fn may_lead(node: &NodeConfig) -> bool {
    match node {
        NodeConfig::Member { config, .. } => config.part() != Part::Observer && config.may_lead(),
        NodeConfig::Database(_) => false,
    }
}

struct Run<'a> {
    setting: Setting,
    may_lead: Vec<bool>,
    world: World<Node, Watch<'a>>,
    register: Register,
    /// When the storm has no effect any more.
    forgotten: SimTime,
    /// Who should lead the role in the end.
    preferred: Option<HostIndex>,
    agreement: f64,
}

impl Run<'_> {
    /// Runs, asking every member after everything that happens whether its mandate holds.
    fn run_until(&mut self, until: SimTime) {
        while self.world.step(until) {
            self.check();
        }
    }

    fn check(&mut self) {
        let (world, now) = (&self.world, self.world.now());
        let mut holders = 0;
        for host in 0..self.setting.size {
            let local = world.local_time(host);
            let Some(member) = world.machine(host).and_then(Node::member) else { continue };
            if let Some(term) = member.mandate(local) {
                holders += 1;
                // Without leases also who is paused may write: it is about to.
                self.register.write(host, term, now);
            }
        }
        if holders > 1
            && let Some(pair) = self.not_alone()
        {
            let holds = |host| pair.contains(&host);
            if let Err(what) = one_mandate_at_a_time::check(self.setting.size, holds) {
                let what = format!("{what} (at {now} s)");
                // Before anything was lost there is no excuse.
                if !(self.world.observer.loses && self.world.observer.has_lost) {
                    self.world.observer.fail(one_mandate_at_a_time::NAME, what);
                }
            }
        }
        if !self.world.observer.goes_back
            && let Err(what) = self.register.check(now)
        {
            let what = format!("{what} (at {now} s)");
            self.world.observer.fail(Register::NAME, what);
        }
    }

    /// One that relies on its lease and is not alone, and with whom.
    ///
    /// A leader without a lease promises nothing of time, and one that was cut off and deposed by another of its kind may hold
    /// on for as long as it likes. But whoever follows directly on one that relies on a lease has waited for it, and whoever relies
    /// on a lease follows on another kind only when that one has stopped.
    fn not_alone(&self) -> Option<[HostIndex; 2]> {
        let term = |host| {
            let member = self.world.machine(host).and_then(Node::member)?;
            Some((host, member.mandate(self.world.local_time(host))?))
        };
        let holders: Vec<_> = (0..self.setting.size).filter_map(term).collect();
        let watch = &self.world.observer;
        let excludes = |(one, first), (other, second)| match self.is_leased(other) {
            true => one != other,
            false => !watch.goes_back && !watch.has_fenced_term_between(second, first),
        };
        let leased = || holders.iter().copied().filter(|(host, _)| self.is_leased(*host));
        leased().find_map(|one| {
            let other =
                holders.iter().copied().find(|other| other.0 != one.0 && excludes(one, *other));
            other.map(|other| [one.0, other.0])
        })
    }

    fn is_leased(&self, host: HostIndex) -> bool {
        let config = &self.setting.configs[host];
        config.guarantee() == Guarantee::Leased
    }

    fn holds(&self, host: HostIndex) -> bool {
        let member = self.world.machine(host).and_then(Node::member);
        member.is_some_and(|member| member.mandate(self.world.local_time(host)).is_some())
    }

    fn tables(&self) -> Option<&Tables> {
        let database = self.world.machine(self.setting.database()).and_then(Node::database);
        database.map(|database| database.tables())
    }

    /// Whoever leads is struck.
    fn strike(&mut self, strike: Strike) {
        let Some(host) = self.leader() else { return };
        let over = self.world.now() + strike.lasting;
        for (fault, undone) in strike.faults(host, self.setting.database()) {
            self.world.inject(fault);
            self.world.schedule(over, undone);
        }
    }

    fn heal(&mut self) {
        let database = self.setting.database();
        self.world.inject(Fault::Heal);
        self.world.inject(Fault::SetLinks(Box::new(self.setting.calm)));
        for host in 0..=database {
            self.world.inject(Fault::Resume(host));
            let member = self.world.machine(host).and_then(Node::member);
            if member.is_some_and(|member| member.member().is_leaving()) {
                self.world.inject(Fault::Crash(host));
            }
            self.world.inject(Fault::Recover { host, disk: DiskFate::Kept });
        }
        let strain = Trouble::Strain(self.setting.calm_strain());
        self.world.tell(database, NodeInput::Database(strain));
        if let Some(preferred) = self.setting.preferred {
            self.preferred = Some(preferred).filter(|host| self.may_lead[*host]).or(Some(0));
            let preferred = self.preferred.map(member);
            self.world.tell(database, NodeInput::Database(Trouble::Prefer(preferred)));
            for host in 0..self.setting.size {
                self.world.tell(host, storm::joined(Some(host as u64)));
            }
        }
        self.run_until(self.world.last_arrival());
        self.forgotten = self.world.now() + self.setting.forgotten;
    }

    fn demand_a_leader(&mut self) {
        self.demand("a leader after healing", |run| run.leader().is_some());
        self.run_until(self.forgotten);
        self.demand("agreement after healing", |run| run.is_agreed());
        if let Some(preferred) = self.preferred {
            self.demand("the preferred one leads", |run| run.leader() == Some(preferred));
            self.demand("agreement on the preferred one", |run| run.is_agreed());
        }
        let Some(leader) = self.leader().filter(|_| !self.world.observer.is_done()) else {
            return;
        };
        let reigns = self.world.observer.one_leader.terms();
        self.run_until(self.world.now() + self.round() * 8);
        if self.world.observer.one_leader.terms() != reigns || self.leader() != Some(leader) {
            let what = format!("{} did not stay leader", member(leader));
            self.world.observer.stall("stability", what);
        }
        self.world.inject(Fault::Crash(leader));
        // From a leader without a lease only those take over that rely on none.
        let may_follow = |host: HostIndex| self.is_leased(leader) || !self.is_leased(host);
        let others = (0..self.setting.size)
            .any(|host| host != leader && self.may_lead[host] && may_follow(host));
        if others {
            let bound = self.fails_over_within() * 2;
            self.demand_within("a leader after a crash", bound, |run| run.leader().is_some());
        }
    }

    /// How long it takes from the crash of a leader until another leads, in a group that is well: a look shows the row, its lease
    /// is waited out, and even the last of the successors has its turn.
    fn fails_over_within(&self) -> Duration {
        let round = self.round();
        let taken =
            |config: &Config| config.wait(config.lease(round)) + round + config.turns(round);
        let taken = self.setting.configs.iter().map(taken).max().unwrap_or_default();
        taken + self.delay() * 6
    }

    /// What a statement takes at most on calm days, there and back, wake-ups included.
    fn delay(&self) -> Duration {
        self.setting.delay + self.setting.machinery.lateness * 2
    }

    /// The round that the group has come to, or may yet come to because of the storm.
    fn round(&self) -> Duration {
        let row = self.tables().and_then(|tables| tables.control);
        row.map_or(self.setting.config.round(), |row| row.published.round)
    }

    /// Runs until something is so; it must be within what recovery takes.
    fn demand(&mut self, what: &'static str, is_so: impl Fn(&Self) -> bool) {
        let (round, delay) = (self.round(), self.delay());
        let bound = |config: &Config| config.recovers_within(round, delay);
        let bound = self.setting.configs.iter().map(bound).max().unwrap_or_default();
        // Where writes were lost, the longest lease is waited for before anything else.
        let longest = self.setting.configs.iter().map(|config| config.wait(config.longest_lease()));
        let lost = longest.max().filter(|_| self.world.observer.goes_back).unwrap_or_default();
        self.demand_within(what, bound + lost, is_so);
    }

    /// Runs until something is so; it must be within the bound, and what slow clocks add to it.
    fn demand_within(
        &mut self,
        what: &'static str,
        bound: Duration,
        is_so: impl Fn(&Self) -> bool,
    ) {
        let began = self.world.now();
        let bound = bound.mul_f64(1.06);
        while !is_so(self) && !self.world.observer.is_done() {
            if !self.world.step(began + bound) {
                break;
            }
            self.check();
        }
        let took = self.world.now() - began;
        self.agreement = self.agreement.max(took.as_secs_f64() / bound.as_secs_f64());
        if !is_so(self) {
            self.world.observer.stall(what, format!("not within {bound:?}"));
        }
    }

    fn leader(&self) -> Option<HostIndex> {
        (0..self.setting.size).find(|host| self.holds(*host))
    }

    fn is_agreed(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        (0..self.setting.size).all(|host| match self.world.observer.states[host] {
            State::Following { leader: followed, .. } => followed == member(leader),
            State::Leading { .. } => host == leader,
            State::Electing => false,
        })
    }
}
