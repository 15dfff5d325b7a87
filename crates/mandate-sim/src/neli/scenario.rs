//! One seed of exclusive mode: a storm of faults; then healing, and the demand that every partition has a
//! leader, that it stays, and that its crash is survived.

use core::time::Duration;
use std::io::Write;

use mandate_proto::identity::Term;
use mandate_proto::neli::{Holding, Partition, RoleLoss};

use super::layouts::Layouts;
use super::setting::Setting;
use super::storm;
use super::watch::{Holders, Reigns};
use super::{MemberNode, Mutant, Node, NodeInput, Options, Trouble};
use crate::fault::{DiskFate, Fault, MemberName};
use crate::network::HostIndex;
use crate::scenario::{Run, Scenario, Watched};
use crate::storm::{Faults, LeaderFault, Storm};
use crate::verdict::Outcome;
use crate::watch::Watch;
use crate::world::World;

/// Reported when a member gives up what it leads for another partition's sake.
const NOT_GIVEN_UP: &str = "what is led is not given up unasked";
/// Reported when a member loses a partition that does not move.
const KEPT_TERMS: &str = "what does not move keeps its leader and term";

/// Runs a seed; `trace` receives it line by line.
pub fn run(seed: u64, options: &Options, trace: Option<&mut dyn Write>) -> Outcome {
    run_in(Setting::exclusive(seed, options), seed, options, trace)
}

/// Runs a seed in this setting.
pub(super) fn run_in(
    mut setting: Setting,
    seed: u64,
    options: &Options,
    trace: Option<&mut dyn Write>,
) -> Outcome {
    let nodes = std::mem::take(&mut setting.nodes);
    let layouts = Layouts::of(&nodes);
    let watch = Watch::new(Reigns::default(), trace);
    let world = World::new(seed, nodes, setting.rough, setting.machinery, watch);
    let holders = setting.partitions().map(|partition| Holders::new(partition, seed)).collect();
    Run { world, case: Case { setting, holders, layouts, options: *options } }.play(seed)
}

struct Case {
    setting: Setting,
    holders: Vec<Holders>,
    layouts: Layouts,
    options: Options,
}

impl Scenario for Case {
    type Subject = Node;
    type Invariants = Reigns;

    const CHECKS_LEADER_FAULTS: bool = true;

    fn storm(&mut self, _: &mut Watched<'_, Self>, seed: u64) -> Storm<NodeInput> {
        storm::draw(seed, &self.setting)
    }

    fn leader_faults(run: &Run<'_, Self>, fault: LeaderFault) -> Faults<NodeInput> {
        let leader = run.case.setting.partitions().find_map(|one| run.holder(one));
        leader.map_or(Vec::new(), |host| storm::leader_faults(fault, host, &run.case.setting))
    }

    /// Asks every member what it holds.
    fn check(run: &mut Run<'_, Self>) {
        let now = run.world.now();
        let mut layouts = Vec::new();
        for partition in run.case.setting.partitions() {
            let holding: Vec<_> = (0..run.case.setting.size)
                .filter_map(|host| Some((host, run.holding(host, partition)?)))
                .collect();
            if let Err((name, what)) =
                run.case.holders[partition.get() as usize].check(&holding, now)
            {
                run.world.observer.fail(name, what);
            }
            layouts.extend(holding.iter().filter_map(|(host, _)| {
                let node = run.world.machine(*host).and_then(Node::member)?;
                Some((*host, node.config().plan.agreement()))
            }));
        }
        if let Err((name, what)) = run.case.layouts.check(&layouts, now) {
            run.world.observer.fail(name, what);
        }
        run.check_given_up();
    }

    fn heal(run: &mut Run<'_, Self>) {
        let calm = vec![Fault::SetLinks(Box::new(run.case.setting.calm))];
        run.calm_down(calm, |run, host| {
            let member = run.world.machine(host).and_then(Node::member);
            if member.is_some_and(|node| node.member().member().is_leaving()) {
                run.world.inject(Fault::Crash(host));
            }
            run.world.inject(Fault::Recover { host, disk: DiskFate::Kept });
            run.world.tell(host, NodeInput::WorkQuick);
            run.world.tell(host, NodeInput::LoseJoins(Duration::ZERO));
        });
        let fresh = NodeInput::Broker(Trouble::OldMarks(false));
        run.world.tell(run.case.setting.coordinator, fresh);
        run.run_until(run.world.last_arrival());
    }

    fn demand(run: &mut Run<'_, Self>) {
        if !run.case.setting.shares_names && run.case.setting.patience.is_finite() {
            run.demand_leaders();
        } else {
            run.run_until(run.world.now() + run.case.setting.storm);
        }
    }
}

impl Run<'_, Case> {
    /// Nobody gives up what it leads, unless it is asked to.
    fn check_given_up(&mut self) {
        for host in 0..self.case.setting.size {
            let node = self.world.machine(host).and_then(Node::member);
            if let Some(partition) = node.and_then(MemberNode::gave_up_unasked) {
                let what = format!("{} gave {partition} up", MemberName(host));
                self.world.observer.fail(NOT_GIVEN_UP, what);
            }
        }
    }

    fn holding(&self, host: HostIndex, partition: Partition) -> Option<Holding> {
        let node = self.world.machine(host).and_then(Node::member)?;
        let mut holding = node.member().mandate(partition, self.world.local_time(host))?;
        if self.case.options.mutant == Some(Mutant::GenerationIsTerm) {
            holding.term = Some(Term::new(node.generation()));
        }
        Some(holding)
    }

    fn holder(&self, partition: Partition) -> Option<HostIndex> {
        (0..self.case.setting.size).find(|host| self.holding(*host, partition).is_some())
    }

    fn demand_leaders(&mut self) {
        let bound = self.case.setting.plan.recovers_within(self.latency());
        self.demand_all_led("leaders after healing", bound);
        // Of members that do not agree no more is asked: one that stayed out comes back now and then, and when the last of a
        // layout crashes the others have to find that out first.
        if self.case.setting.patience > 1.0 {
            return;
        }
        // What was still to end in the storm's time has ended, and loads are even.
        self.run_until(self.world.now() + bound);
        if self.world.observer.is_done() {
            return;
        }
        let terms: Vec<_> = self.case.holders.iter().map(Holders::highest).collect();
        self.run_until(self.world.now() + self.case.setting.plan.grants().session * 8);
        let after: Vec<_> = self.case.holders.iter().map(Holders::highest).collect();
        if terms != after && !self.world.observer.is_done() {
            self.world.observer.stall("stability", format!("{terms:?} became {after:?}"));
        }
        self.demand_kept_terms();
        let Some(host) = self.holder(Partition::new(0)).filter(|_| self.case.setting.size > 1)
        else {
            return;
        };
        self.world.inject(Fault::Crash(host));
        let plan = &self.case.setting.plan;
        // Where everyone gives everything back first, work has to end everywhere.
        let bound = plan.fails_over_within(self.latency()) + plan.grants().heartbeat;
        self.demand_all_led("leaders after a crash", bound);
    }

    /// One member dies, and another is started in its place at once: nobody else is to notice. The join waits for a whole
    /// session, because the dead one is waited for.
    fn demand_kept_terms(&mut self) {
        let is_done = self.world.observer.is_done();
        if !self.case.setting.keeps_terms || self.case.setting.size < 2 || is_done {
            return;
        }
        let kept = self.holder(Partition::new(0));
        let Some(dead) = (0..self.case.setting.size).rev().find(|host| Some(*host) != kept) else {
            return;
        };
        self.world.observer.invariants.ended.clear();
        self.world.inject(Fault::Crash(dead));
        self.world.inject(Fault::Recover { host: dead, disk: DiskFate::Kept });
        let plan = &self.case.setting.plan;
        self.demand_all_led(
            "leaders after a member was replaced",
            plan.fails_over_within(self.latency()) * 2,
        );
        let (session, now) = (self.case.setting.plan.grants().session, self.world.now());
        self.run_until(now + session * 2);
        let may_move = self.case.setting.counts_the_dead;
        let is_disturbed = |(host, _, loss): &&(HostIndex, Partition, RoleLoss)| {
            *host != dead && !(may_move && *loss == RoleLoss::Revoked)
        };
        let disturbed = self.world.observer.invariants.ended.iter().find(is_disturbed).copied();
        if let Some((host, partition, loss)) = disturbed {
            let what =
                format!("{} lost {partition} ({loss:?}) as another was replaced", MemberName(host));
            self.world.observer.stall(KEPT_TERMS, what);
        }
    }

    /// What a message takes, and a process until it gets round to it.
    fn latency(&self) -> Duration {
        self.case.setting.delay + self.case.setting.machinery.lateness * 2
    }

    /// Runs until every partition has a leader; it must be within the bound.
    fn demand_all_led(&mut self, what: &'static str, bound: Duration) {
        // Clocks that are slow make it longer.
        let bound = bound.mul_f64(1.06 * self.case.setting.patience);
        let missing =
            |run: &Self| run.case.setting.partitions().find(|one| run.holder(*one).is_none());
        self.demand_within(what, bound, missing);
    }
}
