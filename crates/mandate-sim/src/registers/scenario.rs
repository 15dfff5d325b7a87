//! One seed: a storm of faults, resignations, transfers, slow and lost statements; then healing, and the
//! demand that there is a leader, that all know it, that it stays, and that its crash is survived.

use core::time::Duration;
use std::io::Write;

use mandate_proto::election::State;
use mandate_proto::registers::{Config, Input, Part, SqlGuarantee};

use super::printed::{self, Rounds};
use super::storm::{self, Setting};
use super::watch::Terms;
use super::{Mutant, Node, NodeInput, SimulatedNodeConfig, Tables, Trouble};
use crate::fault::{DiskFate, Fault};
use crate::host::member;
use crate::installation::invariants::one_mandate_at_a_time;
use crate::network::HostIndex;
use crate::pole::register::Register;
use crate::scenario::{Run, Scenario, Watched};
use crate::storm::{Faults, Happening, LeaderFault, Storm};
use crate::time::SimTime;
use crate::values;
use crate::verdict::Outcome;
use crate::watch::{Invariants, Watch};
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
    if options.mutant == Some(Mutant::PrintedRegisters) {
        return printed::run(seed, Rounds::AsPrinted, trace);
    }
    let mut setting = Setting::draw(seed, options);
    let loses = (options.restores, options.losses);
    let watch = Watch::new(Terms::new(setting.size, loses), trace);
    let nodes = std::mem::take(&mut setting.nodes);
    let may_lead = nodes.iter().map(|(node, _)| may_lead(node)).collect();
    let world = World::new(seed, nodes, setting.rough, setting.machinery, watch);
    let (register, options) = (Register::new(seed), *options);
    let (forgotten, preferred) = (SimTime::ZERO, None);
    let publishes = storm::publishes(seed);
    let case = Case { setting, options, may_lead, register, forgotten, preferred, publishes };
    Run { world, case }.play(seed)
}

fn may_lead(node: &SimulatedNodeConfig) -> bool {
    match node {
        SimulatedNodeConfig::Member { config, .. } => {
            config.part() != Part::Observer && config.may_lead()
        }
        SimulatedNodeConfig::Database(_) => false,
    }
}

struct Case {
    options: Options,
    register: Register,
    /// When the storm has no effect any more.
    forgotten: SimTime,
    /// Who should lead the role in the end.
    preferred: Option<HostIndex>,
    setting: Setting,
    may_lead: Vec<bool>,
    /// Whether leaders publish values.
    publishes: bool,
}

impl Scenario for Case {
    type Subject = Node;
    type Invariants = Terms;

    fn leader_faults(run: &Run<'_, Self>, fault: LeaderFault) -> Faults<NodeInput> {
        let Some(host) = run.leader() else { return Vec::new() };
        let faults = fault.common(host, run.case.setting.database()).into_iter();
        faults.map(|(fault, undone)| (Happening::Fault(fault), Some(undone))).collect()
    }

    fn storm(&mut self, _: &mut Watched<'_, Self>, seed: u64) -> Storm<NodeInput> {
        storm::draw(seed, &self.setting, &self.options)
    }

    /// Asks every member whether its mandate holds.
    fn check(run: &mut Run<'_, Self>) {
        let (world, now) = (&run.world, run.world.now());
        let mut holders = 0;
        for host in 0..run.case.setting.size {
            let local = world.local_time(host);
            let Some(member) = world.machine(host).and_then(Node::member) else { continue };
            if let Some(term) = member.mandate(local) {
                holders += 1;
                // Without leases also who is paused may write: it is about to.
                run.case.register.write(host, term, now);
            }
        }
        if holders > 1
            && let Some(pair) = run.not_alone()
        {
            let holds = |host| pair.contains(&host);
            if let Err(what) = one_mandate_at_a_time::check(run.case.setting.size, holds) {
                let what = format!("{what} (at {now} s)");
                // Before anything was lost there is no excuse.
                let terms = &run.world.observer.invariants;
                if !(terms.loses && terms.has_lost) {
                    run.world.observer.fail(one_mandate_at_a_time::NAME, what);
                }
            }
        }
        if !run.world.observer.invariants.goes_back
            && let Err(what) = run.case.register.check(now)
        {
            let what = format!("{what} (at {now} s)");
            run.world.observer.fail(Register::NAME, what);
        }
    }

    fn heal(run: &mut Run<'_, Self>) {
        let database = run.case.setting.database();
        let calm = vec![Fault::SetLinks(Box::new(run.case.setting.calm))];
        run.calm_down(calm, |run, host| {
            let member = run.world.machine(host).and_then(Node::member);
            if member.is_some_and(|member| member.member().is_leaving()) {
                run.world.inject(Fault::Crash(host));
            }
            run.world.inject(Fault::Recover { host, disk: DiskFate::Kept });
        });
        let strain = Trouble::Strain(run.case.setting.calm_strain());
        run.world.tell(database, NodeInput::Database(strain));
        if let Some(preferred) = run.case.setting.preferred {
            run.case.preferred =
                Some(preferred).filter(|host| run.case.may_lead[*host]).or(Some(0));
            let preferred = run.case.preferred.map(member);
            run.world.tell(database, NodeInput::Database(Trouble::Prefer(preferred)));
            for host in 0..run.case.setting.size {
                run.world.tell(host, storm::joined(Some(host as u64)));
            }
        }
        run.run_until(run.world.last_arrival());
        run.case.forgotten = run.world.now() + run.case.setting.forgotten;
    }

    fn demand(run: &mut Run<'_, Self>) {
        run.demand_soon("a leader after healing", |run| run.leader().is_some());
        run.run_until(run.case.forgotten);
        run.demand_soon("agreement after healing", |run| run.is_agreed());
        if let Some(preferred) = run.case.preferred {
            run.demand_soon("the preferred one leads", |run| run.leader() == Some(preferred));
            run.demand_soon("agreement on the preferred one", |run| run.is_agreed());
        }
        let Some(leader) = run.leader().filter(|_| !run.world.observer.is_done()) else {
            return;
        };
        if run.case.publishes {
            run.demand_that_a_value_reaches_all(leader);
        }
        let reigns = run.world.observer.invariants.reigns();
        run.run_until(run.world.now() + run.round() * 8);
        let after = run.world.observer.invariants.reigns();
        if after != reigns || run.leader() != Some(leader) {
            let what = format!("{} did not stay leader", member(leader));
            run.world.observer.stall("stability", what);
        }
        run.world.inject(Fault::Crash(leader));
        // From a leader without a lease only those take over that rely on none.
        let may_follow = |host: HostIndex| run.is_leased(leader) || !run.is_leased(host);
        let others = (0..run.case.setting.size)
            .any(|host| host != leader && run.case.may_lead[host] && may_follow(host));
        if others {
            let bound = run.fails_over_within() * 2 + run.waits_for_lost_leases();
            run.demand_so("a leader after a crash", bound, |run| run.leader().is_some());
        }
    }
}

impl Run<'_, Case> {
    /// One that relies on its lease and is not alone, and with whom.
    ///
    /// A leader without a lease promises nothing of time, and one that was cut off and deposed by another of its kind may hold
    /// on for as long as it likes. But a leader that follows directly on one that relies on a lease has waited for it, and one that relies
    /// on a lease follows on another kind only when that one has stopped.
    fn not_alone(&self) -> Option<[HostIndex; 2]> {
        let term = |host| {
            let member = self.world.machine(host).and_then(Node::member)?;
            Some((host, member.mandate(self.world.local_time(host))?))
        };
        let holders: Vec<_> = (0..self.case.setting.size).filter_map(term).collect();
        let terms = &self.world.observer.invariants;
        let excludes = |(one, first), (other, second)| match self.is_leased(other) {
            true => one != other,
            false => !terms.goes_back && !terms.has_fenced_term_between(second, first),
        };
        let leased = || holders.iter().copied().filter(|(host, _)| self.is_leased(*host));
        leased().find_map(|one| {
            let other =
                holders.iter().copied().find(|other| other.0 != one.0 && excludes(one, *other));
            other.map(|other| [one.0, other.0])
        })
    }

    /// The leader publishes a value once more, and everyone that follows it comes to show that.
    fn demand_that_a_value_reaches_all(&mut self, leader: HostIndex) {
        let value = values::of_host(leader, u64::MAX);
        let publish = NodeInput::Member(Input::Publish(value.clone()));
        self.world.tell(leader, publish);
        self.demand_soon("a value reaches all", |run| {
            let shows = |host: HostIndex| {
                let Some(node) = run.world.machine(host).and_then(Node::member) else {
                    return true;
                };
                let state = node.member().state(run.world.local_time(host));
                let follows =
                    matches!(state, State::Following { leader: l, .. } if l == member(leader));
                let is_asked = host == leader || follows;
                !is_asked || node.member().value() == Some(&value)
            };
            (0..run.case.setting.size).all(shows)
        });
    }

    fn is_leased(&self, host: HostIndex) -> bool {
        let config = &self.case.setting.configs[host];
        config.guarantee() == SqlGuarantee::Leased
    }

    fn holds(&self, host: HostIndex) -> bool {
        let member = self.world.machine(host).and_then(Node::member);
        member.is_some_and(|member| member.mandate(self.world.local_time(host)).is_some())
    }

    fn tables(&self) -> Option<&Tables> {
        let database = self.world.machine(self.case.setting.database()).and_then(Node::database);
        database.map(|database| database.tables())
    }

    /// How long it takes from the crash of a leader until another leads, in a group that is well: a look shows the row, its lease
    /// is waited out, and even the last of the successors has its turn.
    fn fails_over_within(&self) -> Duration {
        let round = self.round();
        let taken =
            |config: &Config| config.wait(config.lease(round)) + round + config.turns(round);
        let taken = self.case.setting.configs.iter().map(taken).max().unwrap_or_default();
        taken + self.delay() * 6
    }

    /// What a statement takes at most on calm days, there and back, wake-ups included.
    fn delay(&self) -> Duration {
        self.case.setting.delay + self.case.setting.machinery.lateness * 2
    }

    /// The round that the group has come to, or may yet come to because of the storm.
    fn round(&self) -> Duration {
        let row = self.tables().and_then(|tables| tables.control);
        row.map_or(self.case.setting.config.round(), |row| row.published.round)
    }

    /// Runs until something is so; it must be within what recovery takes.
    fn demand_soon(&mut self, what: &'static str, is_so: impl Fn(&Self) -> bool) {
        let (round, delay) = (self.round(), self.delay());
        let bound = |config: &Config| config.recovers_within(round, delay);
        let bound = self.case.setting.configs.iter().map(bound).max().unwrap_or_default();
        // Before anything else, and once more if the first who takes over is told that its term was given out before.
        self.demand_so(what, bound + self.waits_for_lost_leases() * 2, is_so);
    }

    /// Where writes were lost, the longest lease is waited for: also later, by who takes over and is told that the history knows its term.
    fn waits_for_lost_leases(&self) -> Duration {
        let longest =
            self.case.setting.configs.iter().map(|config| config.wait(config.longest_lease()));
        let goes_back = self.world.observer.invariants.goes_back;
        longest.max().filter(|_| goes_back).unwrap_or_default()
    }

    /// Runs until something is so; it must be within the bound, and what slow clocks add to it.
    fn demand_so(&mut self, what: &'static str, bound: Duration, is_so: impl Fn(&Self) -> bool) {
        let missing = |run: &Self| (!is_so(run)).then_some("");
        self.demand_within(what, bound.mul_f64(1.06), missing);
    }

    fn leader(&self) -> Option<HostIndex> {
        (0..self.case.setting.size).find(|host| self.holds(*host))
    }

    fn is_agreed(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        (0..self.case.setting.size).all(|host| {
            match self.world.observer.invariants.leaders.states[host] {
                State::Following { leader: followed, .. } => followed == member(leader),
                State::Leading { .. } => host == leader,
                State::Electing => false,
            }
        })
    }
}
