//! One seed, from the first start to the last demand: the same course forevery protocol.
//!
//! A storm, in which what must never happen must not happen; then everything heals, and what must happen must happen in time.
//! A protocol says what befalls it, how it heals, what is asked of its members after everything that happens, and
//! what is demanded in the end.

use core::fmt::Display;
use core::time::Duration;

use mandate_proto::machine::Machine;

use crate::fault::{DiskFate, Fault};
use crate::network::HostIndex;
use crate::storm::{Faults, LeaderFault, Storm};
use crate::subject::Subject;
use crate::time::SimTime;
use crate::verdict::Outcome;
use crate::watch::{Invariants, Watch};
use crate::world::World;

/// A world that is watched.
pub(crate) type Watched<'a, C> =
    World<<C as Scenario>::Subject, Watch<'a, <C as Scenario>::Invariants>>;

/// What an application says to the machines of a scenario.
pub(crate) type InputOf<C> = <<C as Scenario>::Subject as Machine>::Input;

/// What a protocol fills in; what implements it is drawn by the seed, and kept during the run.
pub(crate) trait Scenario: Sized {
    /// What runs.
    type Subject: Subject;
    /// What must hold of it.
    type Invariants: Invariants<Self::Subject>;

    /// Whether members are asked after each part of a leader's fault, and not only after what happens next.
    const CHECKS_LEADER_FAULTS: bool = false;

    /// What befalls it.
    fn storm(&mut self, world: &mut Watched<'_, Self>, seed: u64) -> Storm<InputOf<Self>>;

    /// What a fault of the leader consists of; nothing, if nobody leads.
    fn leader_faults(_: &Run<'_, Self>, _: LeaderFault) -> Faults<InputOf<Self>> {
        Vec::new()
    }

    /// Asks members what no observation shows, after everything that happens.
    fn check(_: &mut Run<'_, Self>) {}

    /// Everything is as it should be from now on: see [`Run::calm_down`].
    fn heal(run: &mut Run<'_, Self>);

    /// What must happen after that.
    fn demand(run: &mut Run<'_, Self>);
}

/// A run of one seed.
pub(crate) struct Run<'a, C: Scenario> {
    pub(crate) world: Watched<'a, C>,
    pub(crate) case: C,
}

impl<C: Scenario> Run<'_, C> {
    /// From the first start to the last demand.
    pub(crate) fn play(mut self, seed: u64) -> Outcome {
        let Storm { happenings, leader_faults, lasts } = self.case.storm(&mut self.world, seed);
        for (at, happening) in happenings {
            self.world.schedule_happening(at, happening);
        }
        self.world.start_all();
        for (at, fault) in leader_faults {
            self.run_until(at);
            self.fault_leader(fault);
        }
        self.run_until(SimTime::ZERO + lasts);
        C::heal(&mut self);
        C::demand(&mut self);
        let watch = &self.world.observer;
        self.world.outcome(watch.verdict(), watch.invariants.reigns(), watch.agreement())
    }

    /// Runs until then, or until something is violated.
    pub(crate) fn run_until(&mut self, until: SimTime) {
        while self.world.step(until) {
            C::check(self);
        }
    }

    /// Injects a fault into the leader.
    fn fault_leader(&mut self, fault: LeaderFault) {
        let over = self.world.now() + fault.lasts;
        for (happening, undone) in C::leader_faults(self, fault) {
            self.world.happen(happening);
            if let Some(fault) = undone {
                self.world.schedule(over, fault);
            }
            if C::CHECKS_LEADER_FAULTS {
                C::check(self);
            }
        }
    }

    /// Mends all links, has them become `calm`, and resumes every host; `recover` does the rest for each.
    pub(crate) fn calm_down(&mut self, calm: Vec<Fault>, recover: impl Fn(&mut Self, HostIndex)) {
        self.world.inject(Fault::Heal);
        self.inject_all(calm);
        for host in 0..self.world.size() {
            self.world.inject(Fault::Resume(host));
            recover(self, host);
        }
    }

    /// The same where disks may be stuck, or lost by now: every process runs with the disk that it has. Then `settlement`.
    pub(crate) fn calm_down_with_disks(&mut self, calm: Vec<Fault>, settlement: Vec<Fault>) {
        self.calm_down(calm, |run, host| {
            let recover = Fault::Recover { host, disk: DiskFate::Kept };
            run.inject_all([Fault::FreeDisk(host), recover]);
        });
        self.inject_all(settlement);
    }

    /// Injects one fault after the other, now.
    pub(crate) fn inject_all(&mut self, faults: impl IntoIterator<Item = Fault>) {
        faults.into_iter().for_each(|fault| self.world.inject(fault));
    }

    /// Runs until nothing is missing; that must be within the bound.
    pub(crate) fn demand_within<M: Display>(
        &mut self,
        what: &'static str,
        bound: Duration,
        missing: impl Fn(&Self) -> Option<M>,
    ) {
        let began = self.world.now();
        while missing(self).is_some() && self.world.step(began + bound) {
            C::check(self);
        }
        let took = self.world.now() - began;
        self.world.observer.took(took, bound);
        if let Some(missing) = missing(self) {
            let what_failed = format!("{missing} not within {bound:?}");
            self.world.observer.stall(what, what_failed.trim_start().to_owned());
        }
    }
}
