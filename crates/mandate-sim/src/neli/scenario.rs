//! One seed of exclusive mode: a storm of faults; then healing, and the demand that every partition has a
//! leader, that it stays, and that its crash is survived.

use core::time::Duration;
use std::io::Write;

use mandate_proto::identity::Term;
use mandate_proto::neli::{Holding, Loss, Partition};

use super::layouts;
use super::setting::Setting;
use super::storm::{self, Happening, Strike};
use super::watch::{Holders, Watch};
use super::{MemberNode, Mutant, Node, NodeInput, Options, Trouble};
use crate::fault::{DiskFate, Fault, Name};
use crate::network::HostIndex;
use crate::subject::Observer;
use crate::time::SimTime;
use crate::trace::Trace;
use crate::verdict::Outcome;
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
    let watch = Watch::new(trace.map(Trace::new));
    let world = World::new(seed, nodes, setting.rough, setting.machinery, watch);
    let holders = setting.partitions().map(|partition| Holders::new(partition, seed)).collect();
    let mut run = Run { world, setting, holders, options: *options, agreement: 0.0 };
    for (at, happening) in storm::happenings(seed, &run.setting) {
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
    if !run.setting.shares_names && run.setting.patience.is_finite() {
        run.demand_leaders();
    } else {
        run.run_until(run.world.now() + run.setting.storm);
    }
    let Run { world, agreement, .. } = run;
    let verdict = world.observer.violation.clone().map_or(Ok(()), Err);
    let reigns = world.observer.reigns;
    world.outcome(verdict, reigns, agreement)
}

struct Run<'a> {
    setting: Setting,
    world: World<Node, Watch<'a>>,
    holders: Vec<Holders>,
    options: Options,
    agreement: f64,
}

impl Run<'_> {
    /// Runs, asking every member after everything that happens what it holds.
    fn run_until(&mut self, until: SimTime) {
        while self.world.step(until) {
            self.check();
        }
    }

    fn check(&mut self) {
        let now = self.world.now();
        let mut layouts = Vec::new();
        for partition in self.setting.partitions() {
            let holding: Vec<_> = (0..self.setting.size)
                .filter_map(|host| Some((host, self.holding(host, partition)?)))
                .collect();
            if let Err((name, what)) = self.holders[partition.get() as usize].check(&holding, now) {
                self.world.observer.fail(name, what);
            }
            layouts.extend(holding.iter().filter_map(|(host, _)| {
                let node = self.world.machine(*host).and_then(Node::member)?;
                Some((*host, node.config().plan.agreement()))
            }));
        }
        if let Err((name, what)) = layouts::check(&layouts, now) {
            self.world.observer.fail(name, what);
        }
        self.check_given_up();
    }

    /// Nobody gives up what it leads, unless it is asked to.
    fn check_given_up(&mut self) {
        for host in 0..self.setting.size {
            let node = self.world.machine(host).and_then(Node::member);
            if let Some(partition) = node.and_then(MemberNode::gave_up_unasked) {
                let what = format!("{} gave {partition} up", Name(host));
                self.world.observer.fail(NOT_GIVEN_UP, what);
            }
        }
    }

    fn holding(&self, host: HostIndex, partition: Partition) -> Option<Holding> {
        let node = self.world.machine(host).and_then(Node::member)?;
        let mut holding = node.member().mandate(partition, self.world.local_time(host))?;
        if self.options.mutant == Some(Mutant::GenerationIsTerm) {
            holding.term = Some(Term::new(node.generation()));
        }
        Some(holding)
    }

    fn holder(&self, partition: Partition) -> Option<HostIndex> {
        (0..self.setting.size).find(|host| self.holding(*host, partition).is_some())
    }

    /// Whoever leads something is struck.
    fn strike(&mut self, strike: Strike) {
        let Some(host) = self.setting.partitions().find_map(|one| self.holder(one)) else { return };
        let over = self.world.now() + strike.lasting;
        for (happening, undone) in strike.happen(host, &self.setting) {
            match happening {
                Happening::Fault(fault) => self.world.inject(fault),
                Happening::Tell(host, input) => self.world.tell(host, input),
            }
            if let Some(fault) = undone {
                self.world.schedule(over, fault);
            }
            self.check();
        }
    }

    fn heal(&mut self) {
        self.world.inject(Fault::Heal);
        self.world.inject(Fault::SetLinks(Box::new(self.setting.calm)));
        for host in 0..self.setting.everyone() {
            self.world.inject(Fault::Resume(host));
            let member = self.world.machine(host).and_then(Node::member);
            if member.is_some_and(|node| node.member().member().is_leaving()) {
                self.world.inject(Fault::Crash(host));
            }
            self.world.inject(Fault::Recover { host, disk: DiskFate::Kept });
            self.world.tell(host, NodeInput::WorkQuick);
            self.world.tell(host, NodeInput::LoseJoins(Duration::ZERO));
        }
        let fresh = NodeInput::Broker(Trouble::OldMarks(false));
        self.world.tell(self.setting.coordinator, fresh);
        self.run_until(self.world.last_arrival());
    }

    fn demand_leaders(&mut self) {
        let bound = self.setting.plan.recovers_within(self.latency());
        self.demand("leaders after healing", bound);
        // Of members that do not agree no more is asked: one that stayed out comes back now and then, and when the last of a
        // layout crashes the others have to find that out first.
        if self.setting.patience > 1.0 {
            return;
        }
        // What was still to end in the storm's time has ended, and loads are even.
        self.run_until(self.world.now() + bound);
        if self.world.observer.is_done() {
            return;
        }
        let terms: Vec<_> = self.holders.iter().map(Holders::highest).collect();
        self.run_until(self.world.now() + self.setting.plan.grants().session * 8);
        let after: Vec<_> = self.holders.iter().map(Holders::highest).collect();
        if terms != after && !self.world.observer.is_done() {
            self.world.observer.stall("stability", format!("{terms:?} became {after:?}"));
        }
        self.demand_kept_terms();
        let Some(host) = self.holder(Partition::new(0)).filter(|_| self.setting.size > 1) else {
            return;
        };
        self.world.inject(Fault::Crash(host));
        let plan = &self.setting.plan;
        // Where everyone gives everything back first, work has to end everywhere.
        let bound = plan.fails_over_within(self.latency()) + plan.grants().heartbeat;
        self.demand("leaders after a crash", bound);
    }

    /// One member dies, and another is started in its place at once: nobody else is to notice. The join waits for a whole
    /// session, because the dead one is waited for.
    fn demand_kept_terms(&mut self) {
        let is_done = self.world.observer.is_done();
        if !self.setting.keeps_terms || self.setting.size < 2 || is_done {
            return;
        }
        let kept = self.holder(Partition::new(0));
        let Some(dead) = (0..self.setting.size).rev().find(|host| Some(*host) != kept) else {
            return;
        };
        self.world.observer.ended.clear();
        self.world.inject(Fault::Crash(dead));
        self.world.inject(Fault::Recover { host: dead, disk: DiskFate::Kept });
        let plan = &self.setting.plan;
        self.demand(
            "leaders after a member was replaced",
            plan.fails_over_within(self.latency()) * 2,
        );
        let (session, now) = (self.setting.plan.grants().session, self.world.now());
        self.run_until(now + session * 2);
        let may_move = self.setting.counts_the_dead;
        let is_disturbed = |(host, _, loss): &&(HostIndex, Partition, Loss)| {
            *host != dead && !(may_move && *loss == Loss::Revoked)
        };
        let disturbed = self.world.observer.ended.iter().find(is_disturbed).copied();
        if let Some((host, partition, loss)) = disturbed {
            let what =
                format!("{} lost {partition} ({loss:?}) as another was replaced", Name(host));
            self.world.observer.stall(KEPT_TERMS, what);
        }
    }

    /// What a message takes, and a process until it gets round to it.
    fn latency(&self) -> Duration {
        self.setting.delay + self.setting.machinery.lateness * 2
    }

    /// Runs until every partition has a leader; it must be within the bound.
    fn demand(&mut self, what: &'static str, bound: Duration) {
        let began = self.world.now();
        // Clocks that are slow make it longer.
        let bound = bound.mul_f64(1.06 * self.setting.patience);
        let missing = |run: &Self| run.setting.partitions().find(|one| run.holder(*one).is_none());
        while missing(self).is_some() && !self.world.observer.is_done() {
            if !self.world.step(began + bound) {
                break;
            }
            self.check();
        }
        let took = self.world.now() - began;
        self.agreement = self.agreement.max(took.as_secs_f64() / bound.as_secs_f64());
        if let Some(partition) = missing(self) {
            let what_failed = format!("{partition} not within {bound:?}");
            self.world.observer.stall(what, what_failed);
        }
    }
}
