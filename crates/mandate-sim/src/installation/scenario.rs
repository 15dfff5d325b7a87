//! One seed: a storm of faults and of claims by anyone at any time, then healing and a demand that
//! someone is installed.

use core::time::Duration;
use std::io::Write;

use mandate_proto::identity::Term;
use mandate_proto::pole::installation::{Config, Event, Guarantee, Input, Installation, Reason};

use super::invariants::holders::Holders;
use super::invariants::one_leader_per_term::{self, OneLeaderPerTerm};
use super::invariants::one_mandate_at_a_time;
use super::invariants::terms_rise::{self, TermsRise};
use super::mutated::Mutated;
use super::{MemberConfig, Mutant};
use crate::clock::Clock;
use crate::fault::{DiskFate, Fault};
use crate::host::member;
use crate::mixture::{Mixture, Version};
use crate::random::{Random, Stream};
use crate::storm::{self, Setting};
use crate::subject::{Moment, Observation, Observer};
use crate::time::SimTime;
use crate::trace::Trace;
use crate::verdict::{Outcome, Violation};
use crate::world::World;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put back on purpose.
    pub mutant: Option<Mutant>,
}

/// What is allowed for clocks that are off by a tenth of a per cent, twice that and a little; and for
/// those of some runs, which are off by 5 %.
const ALLOWANCES_PER_MILLE: [u16; 2] = [4, 100];

/// A claim is waited for twice as long with each in succession that came to nothing, this often at most.
const MAX_DOUBLINGS: u32 = 3;

/// Runs a seed; `trace` receives it line by line.
pub fn run(seed: u64, options: &Options, trace: Option<&mut dyn Write>) -> Outcome {
    let mut setting = Setting::draw(seed);
    let mut random = Random::new(seed ^ 0xC1A1, Stream::Setting);
    // In a third of the runs disks are lost one after the other, and messages come very late.
    let lossy = random.chance(0.33);
    if lossy {
        setting.size = setting.size.min(5);
        setting.clocks.truncate(setting.size);
        setting.rough = storm::late_links(&mut random, setting.detect);
    }
    let drifting = random.chance(0.3);
    if drifting {
        let mut drift = || random.below(100_000_001) as i64 - 50_000_000;
        setting.clocks = setting.clocks.iter().map(|_| Clock::new(drift())).collect();
    }
    let allowance_per_mille = match options.mutant {
        Some(Mutant::NoAllowance) => 0,
        _ => ALLOWANCES_PER_MILLE[usize::from(drifting)],
    };
    // A lease that is not much longer than a claim takes cannot be kept on calm days either.
    let (delay, machinery) = (setting.calm.max_delay, setting.machinery);
    let lease = setting.detect + (delay + machinery.write_time + machinery.lateness) * 4;
    let least = (delay + machinery.write_time + machinery.lateness) * 5;
    let guarantee = if random.chance(0.3) {
        Guarantee::Fenced
    } else {
        Guarantee::Leased { lease, allowance_per_mille }
    };
    let mixture = Mixture::draw(seed, setting.size);
    let hosts = setting.clocks.iter().enumerate().map(|(host, clock)| {
        let retry = setting.interval;
        let give_up = retry * 4;
        let config = |version| Config {
            me: member(host),
            members: mixture.members(host, version),
            guarantee: mixture.guarantee((host, version), guarantee, lease, least),
            retry,
            give_up,
            without: options.mutant.and_then(Mutant::without),
        };
        let is_edited = mixture.is_edited(host) || mixture.has_two_lists();
        let edited = is_edited.then(|| config(Version::Edited));
        let config = config(Version::First);
        (MemberConfig { config, edited, mutant: options.mutant }, clock.clone())
    });
    let watch = Watch {
        one_leader: OneLeaderPerTerm::default(),
        terms_rise: TermsRise::new(setting.size),
        disk_lost: vec![false; setting.size],
        fruitless: vec![0; setting.size],
        mutated: Mutated::new(setting.size, guarantee),
        trace: trace.map(Trace::new),
        violation: None,
    };
    setting.machinery.write_time = mixture.slow_disks.unwrap_or(setting.machinery.write_time);
    let mut world = World::new(seed, hosts, setting.rough, setting.machinery, watch);
    if options.mutant == Some(Mutant::AnsweredBeforeWritten) {
        world.acknowledge_early();
    }
    let leased = guarantee != Guarantee::Fenced;
    let mutant = options.mutant;
    let mut run = Run {
        world,
        leased,
        lease: mixture.longest(lease),
        holders: Holders::default(),
        mixture,
        mutant,
        random,
        setting,
        agreement: 0.0,
    };
    let mut faults = match lossy {
        true => storm::lost_disks(&mut run.random, &run.setting),
        false => storm::faults(seed, &run.setting),
    };
    faults.extend(run.mixture.faults(seed, &run.setting));
    run.weather_the_storm(faults);
    run.demand_a_leader();
    let Run { world, agreement, .. } = run;
    let (verdict, reigns) = (
        world.observer.violation.clone().map_or(Ok(()), Err),
        world.observer.one_leader.terms() as u64,
    );
    world.outcome(verdict, reigns, agreement)
}

struct Run<'a> {
    setting: Setting,
    world: World<Installation, Watch<'a>>,
    random: Random,
    leased: bool,
    /// The longest that any member asks for.
    lease: Duration,
    holders: Holders,
    mixture: Mixture,
    mutant: Option<Mutant>,
    agreement: f64,
}

impl Run<'_> {
    fn weather_the_storm(&mut self, faults: Vec<(SimTime, Fault)>) {
        for (at, fault) in faults {
            let fault = fault.with_counted_suspension();
            self.world.schedule(at, fault);
        }
        for _ in 0..20 + self.random.below(60) {
            let at = SimTime::ZERO + self.random.between(Duration::ZERO, self.setting.storm);
            let host = self.random.below(self.setting.size as u64) as usize;
            let input = match self.random.below(20) {
                0 | 1 => Input::Resign,
                2..=5 => {
                    let to = self.random.below(self.setting.size as u64) as usize;
                    Input::Transfer { to: member(to) }
                }
                _ => Input::Claim { epoch: Term::new(1) },
            };
            self.world.schedule_input(at, host, input);
        }
        // Some processes end in good order, and start again.
        for _ in 0..self.random.below(6) {
            let at = SimTime::ZERO + self.random.between(Duration::ZERO, self.setting.storm);
            let host = self.random.below(self.setting.size as u64) as usize;
            let back = self.random.between(Duration::ZERO, self.setting.detect / 2);
            let ended = at + self.setting.machinery.write_time * 2;
            self.world.schedule_input(at, host, Input::Stop);
            self.world.schedule(ended, Fault::Crash(host));
            self.world.schedule(ended + back, Fault::Recover { host, disk: DiskFate::Kept });
        }
        self.world.start_all();
        self.run_until(SimTime::ZERO + self.setting.storm);
    }

    /// Runs, asking every member after everything that happens whether its mandate holds.
    fn run_until(&mut self, until: SimTime) {
        while self.world.step(until) {
            if !self.leased {
                continue;
            }
            let until = |_, machine: &Installation, now| machine.mandate(now).and_then(|it| it.1);
            self.holders.look(&self.world, until);
            let world = &self.world;
            let mutated = &world.observer.mutated;
            let answers = |host| match self.mutant {
                Some(Mutant::CachedCheck) => mutated.flag(host),
                Some(Mutant::DeadlineFromReply) => mutated.by_reply(host, world.local_time(host)),
                _ => one_mandate_at_a_time::holds(world, host),
            };
            if let Err(what) =
                one_mandate_at_a_time::check_all(self.setting.size, answers, self.holders.orphans())
            {
                let what = format!("{what} (at {} s)", self.world.now());
                self.world.observer.fail(one_mandate_at_a_time::NAME, what);
            }
        }
    }

    /// Everything heals; a quorum that has its disks must be able to install one of its members,
    /// once the leases of the storm have run out.
    fn demand_a_leader(&mut self) {
        self.world.inject(Fault::Heal);
        self.world.inject(Fault::SetLinks(Box::new(self.setting.calm)));
        for fault in self.mixture.calm_links(&self.setting) {
            self.world.inject(fault);
        }
        for host in 0..self.setting.size {
            self.world.inject(Fault::Resume(host));
            self.world.inject(Fault::FreeDisk(host));
            self.world.inject(Fault::Recover { host, disk: DiskFate::Kept });
        }
        for fault in self.mixture.settlement() {
            self.world.inject(fault);
        }
        let (delay, machinery) = (self.setting.calm.max_delay, self.setting.machinery);
        let leases = self.lease.mul_f64(1.06) + machinery.write_time * 4;
        self.run_until(self.world.last_arrival() + leases);
        // By now everyone who can has recovered.
        let votes = |host: &usize| {
            self.mixture.agrees(*host) && self.world.machine(*host).is_some_and(|m| m.has_vote())
        };
        let voters: Vec<_> = (0..self.setting.size).filter(votes).collect();
        let lost = &self.world.observer.disk_lost;
        let kept = (0..self.setting.size).filter(|host| !lost[*host]).count();
        let quorum = self.setting.size / 2 + 1;
        // Who differs answers no questions.
        let can_recover = kept >= quorum && self.mixture.all_agree();
        if can_recover && voters.len() < self.setting.size && !self.world.observer.is_done() {
            let what = format!("{} of {} have a vote", voters.len(), self.setting.size);
            let invariant = "recovery without a disk";
            self.world.observer.violation.get_or_insert(Violation::Liveness { invariant, what });
        }
        if self.world.observer.is_done() || voters.len() < quorum {
            return;
        }
        // A claim of the storm may still stand in the way until it is given up, and ours may be
        // given up meanwhile and made again; then promises may have to run out.
        let given_up = self.lease.max(self.setting.interval * 4);
        // After claims that came to nothing it is given up later.
        let fruitless = self.world.observer.fruitless.iter().copied().max().unwrap_or_default();
        let growth = 1 << fruitless.min(MAX_DOUBLINGS);
        let patience = (given_up * (growth + 1) + self.lease).mul_f64(1.06);
        let patience = patience + (delay + machinery.lateness + machinery.write_time) * 6;
        let began = self.world.now();
        let until = began + patience;
        let host = self.random.pick(&voters);
        while self.world.now() < until && !self.world.observer.is_done() && !self.is_led() {
            self.world.tell(host, Input::Claim { epoch: Term::new(1) });
            let now = self.world.now();
            let pause = (delay + machinery.lateness + machinery.write_time) * 3;
            self.run_until(now + pause);
        }
        let took = self.world.now() - began;
        self.agreement = took.as_secs_f64() / patience.as_secs_f64();
        if !self.world.observer.is_done() && !self.is_led() {
            let what = format!("nobody was installed {patience:?} after the leases had run out");
            let invariant = "installation";
            self.world.observer.violation.get_or_insert(Violation::Liveness { invariant, what });
        }
    }

    fn is_led(&self) -> bool {
        (0..self.setting.size).any(|host| one_mandate_at_a_time::holds(&self.world, host))
    }
}

/// Watches terms.
struct Watch<'a> {
    one_leader: OneLeaderPerTerm,
    terms_rise: TermsRise,
    /// Whose disk was lost at some time.
    disk_lost: Vec<bool>,
    /// How many claims of each member found no quorum, in its present life.
    fruitless: Vec<u32>,
    mutated: Mutated,
    trace: Option<Trace<'a>>,
    violation: Option<Violation>,
}

impl Watch<'_> {
    fn fail(&mut self, invariant: &'static str, what: String) {
        self.violation.get_or_insert(Violation::Correctness { invariant, what });
    }
}

impl Observer<Installation> for Watch<'_> {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, Installation>) {
        if let Some(trace) = &mut self.trace {
            trace.observe(moment, what);
        }
        self.mutated.observe(moment, what);
        let checked = match what {
            Observation::Told(Event::Installed { term }) => {
                (one_leader_per_term::NAME, self.one_leader.check(moment.host, *term))
            }
            Observation::Durable(promised) => {
                (terms_rise::NAME, self.terms_rise.check(moment.host, **promised))
            }
            Observation::Told(Event::Lost { reason: Reason::NoQuorum, .. }) => {
                self.fruitless[moment.host] += 1;
                return;
            }
            Observation::Started(_) => {
                self.fruitless[moment.host] = 0;
                return;
            }
            Observation::Faulted(Fault::Recover {
                host,
                disk: DiskFate::Lost | DiskFate::Restored(_),
            }) => {
                self.disk_lost[*host] = true;
                self.terms_rise.forget(*host);
                return;
            }
            _ => return,
        };
        if let (name, Err(what)) = checked {
            self.fail(name, format!("{what} (at {} s)", moment.now));
        }
    }

    fn is_done(&self) -> bool {
        self.violation.is_some()
    }
}
