//! One seed, from the first start to the last demand.

use core::time::Duration;
use std::io::Write;

use mandate_proto::identity::MemberId;
use mandate_proto::nfd_l::{Config, Input, NfdL};

use super::invariants::{Court, agreement, one_broadcaster, stability};
use super::{MemberConfig, Mutant};
use crate::fault::{DiskFate, Fault};
use crate::host::{host_of, member};
use crate::random::{Random, Stream};
use crate::scenario::{Run, Scenario, Watched};
use crate::storm::{self, Happening, MAX_REPLAN, Setting, Storm};
use crate::subject::Moment;
use crate::time::SimTime;
use crate::verdict::Outcome;
use crate::watch::Watch;
use crate::world::World;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put back on purpose.
    pub mutant: Option<Mutant>,
}

/// Within this time after healing all members agree, if no message takes longer than `delay` any
/// more and no wake-up or write longer than `lateness`.
///
/// The worst case is a chain: a dead leader whose last heartbeat arrived one detection time late
/// and is trusted for another; an interval for a stalled member to forgive or a newcomer to
/// listen, and one for the winner's next heartbeat.
fn bound(interval: Duration, detect: Duration, delay: Duration, lateness: Duration) -> Duration {
    detect * 2 + interval * 2 + (delay + lateness) * 4
}

/// Runs a seed; `trace` receives it line by line.
pub fn run(seed: u64, options: &Options, trace: Option<&mut dyn Write>) -> Outcome {
    let mut setting = Setting::draw(seed);
    let mut random = Random::new(seed ^ 0x91A7, Stream::Setting);
    // In some groups the plan is kept current, and there is time enough for that.
    let planned = random.chance(0.02);
    if planned {
        setting.storm *= 8;
    }
    let resignations = if random.chance(0.3) { random.below(6) } else { 0 };
    let (mut least, mut most, mut interval) = (setting.detect, setting.detect, setting.interval);
    if !setting.replans.is_empty() {
        (least, most) = (least / MAX_REPLAN, most * MAX_REPLAN);
        interval *= MAX_REPLAN;
    }
    let resignations: Vec<_> = (0..resignations)
        // Not so late that a member still abstains when all agree.
        .map(|_| SimTime::ZERO + random.between(Duration::ZERO, setting.storm / 4 * 3))
        .collect();
    let court = Court::new(setting.size, interval, least..=most);
    let hosts = setting.clocks.iter().enumerate().map(|(host, clock)| {
        let config = Config::new(member(host), setting.interval, setting.detect)
            .expect("the setting draws detection times above intervals")
            .with_window(setting.window)
            .with_max_peers(setting.max_peers)
            .with_priority(u8::from(setting.favoured == Some(host)));
        let config = if planned { kept_current(config) } else { config };
        (MemberConfig { config, mutant: options.mutant }, clock.clone())
    });
    let watch = Watch::new(court, trace);
    let world = World::new(seed, hosts, setting.rough, setting.machinery, watch);
    let random = Random::new(seed ^ 0x5EED, Stream::Faults);
    Run { world, case: Case { random, resignations, crashed: None, planned, setting } }.play(seed)
}

struct Case {
    setting: Setting,
    random: Random,
    /// When the leader of that moment resigns.
    resignations: Vec<SimTime>,
    crashed: Option<SimTime>,
    /// Followers ask for other intervals, so messages are not all heartbeats at the interval of the setting.
    planned: bool,
}

/// A plan that asks for much, so that rough links make for short intervals.
fn kept_current(config: Config) -> Config {
    let (detect, least) = (config.detect(), config.interval() / 8);
    config.with_mistakes(detect * 10_000, detect, least).expect("bounds above zero")
}

/// The run has failed; the watch knows why.
struct Failed;

impl Scenario for Case {
    type Subject = NfdL;
    type Invariants = Court;

    fn storm(&mut self, _: &mut Watched<'_, Self>, seed: u64) -> Storm<Input> {
        let mut happenings = Vec::new();
        for at in &self.resignations {
            let resign = |host| (*at, Happening::Tell(host, Input::Resign));
            happenings.extend((0..self.setting.size).map(resign));
        }
        let faults = storm::faults(seed, &self.setting);
        happenings.extend(faults.into_iter().map(|(at, fault)| (at, Happening::Fault(fault))));
        for (at, host, factor) in &self.setting.replans {
            happenings.push((*at, Happening::Tell(*host, self.replan(*factor))));
        }
        Storm { happenings, leader_faults: Vec::new(), lasts: self.setting.storm }
    }

    /// Some members stay down for good.
    fn heal(run: &mut Run<'_, Self>) {
        let calm = vec![Fault::SetLinks(Box::new(run.case.setting.calm))];
        run.calm_down(calm, |run, host| run.world.tell(host, run.case.replan(1.0)));
        let down = (0..run.case.setting.size).filter(|host| run.world.machine(*host).is_none());
        let down: Vec<_> = down.collect();
        let all_down = down.len() == run.case.setting.size;
        for host in down {
            if all_down || run.case.random.chance(0.7) {
                let disk = storm::disk(&mut run.case.random);
                run.world.inject(Fault::Recover { host, disk });
            }
        }
    }

    fn demand(run: &mut Run<'_, Self>) {
        // What fails is in the watch.
        let _ = run.demand_everything();
    }
}

impl Case {
    fn replan(&self, factor: f64) -> Input {
        let (interval, detect) = (self.setting.interval, self.setting.detect);
        Input::Replan { interval: interval.mul_f64(factor), detect: detect.mul_f64(factor) }
    }
}

impl Run<'_, Case> {
    fn demand_everything(&mut self) -> Result<(), Failed> {
        self.note("healed");
        let leader = self.demand_agreement(true)?;
        self.note(&format!("agreed on {leader}"));
        self.demand_silence(leader)?;
        self.demand_stability(leader)?;
        if self.up().len() > 1 {
            self.world.inject(Fault::Crash(host_of(leader)));
            self.demand_detection(leader)?;
            self.demand_swift_agreement()?;
            let next = self.demand_agreement(false)?;
            self.note(&format!("agreed on {next} after {leader}"));
        }
        Ok(())
    }

    fn up(&self) -> Vec<usize> {
        (0..self.case.setting.size).filter(|host| self.world.machine(*host).is_some()).collect()
    }

    /// Agreement within the bound, counted from when the last straggler has arrived.
    fn demand_agreement(&mut self, healing: bool) -> Result<MemberId, Failed> {
        let machinery = self.case.setting.machinery;
        let lateness = machinery.lateness.max(machinery.write_time);
        let delay = self.case.setting.calm.max_delay;
        let bound = bound(self.case.setting.interval, self.case.setting.detect, delay, lateness);
        let crashed = self.case.crashed.unwrap_or(self.world.now());
        let began = if healing { self.world.last_arrival() } else { crashed };
        self.world.run_until(began + bound);
        self.stop_if_violated()?;
        let agreement = &self.world.observer.invariants.agreement;
        match agreement.agreed() {
            Some((leader, _)) if !self.all_name(leader) => {
                let what = format!("not all machines say what they told: {leader}");
                self.fail(agreement::NAME, what)
            }
            Some((leader, _)) if self.is_passed_over(leader) => {
                let what = format!("{leader} leads, though another has the priority");
                self.stall(agreement::NAME, what)
            }
            Some((leader, since)) => {
                self.world.observer.took(since - began, bound);
                Ok(leader)
            }
            None => {
                let what = format!("none {bound:?} after healing: {}", agreement.describe());
                self.stall(agreement::NAME, what)
            }
        }
    }

    /// The crash of the leader, just now, is noticed by all within the detection time and the
    /// longest delay; by then all windows hold only arrivals of calm days.
    fn demand_detection(&mut self, leader: MemberId) -> Result<(), Failed> {
        let crashed = self.world.now();
        self.case.crashed = Some(crashed);
        let lateness = self.case.setting.machinery.lateness * 2 + Duration::from_millis(1);
        // The heartbeats' lateness and the suspicion's own. And two clocks drift apart by up to
        // twice what one may be off, while the mean over a window is half a window behind.
        let lateness =
            lateness + self.case.setting.interval.mul_f64(self.case.setting.window as f64 * 0.001);
        let bound =
            self.case.setting.detect.mul_f64(1.003) + self.case.setting.calm.max_delay + lateness;
        self.world.run_until(crashed + bound);
        self.stop_if_violated()?;
        let names = |host: &usize| {
            self.world.machine(*host).is_some_and(|machine| machine.leader() == Some(leader))
        };
        match self.up().into_iter().find(names) {
            None => Ok(()),
            Some(host) => {
                let what = format!("{} follows {leader} {bound:?} after its crash", member(host));
                self.stall("detection time", what)
            }
        }
    }

    /// Everyone has noticed the crash by now; one more delay, and all agree.
    fn demand_swift_agreement(&mut self) -> Result<(), Failed> {
        let lateness = self.case.setting.machinery.lateness * 2;
        let now = self.world.now();
        self.world.run_until(now + self.case.setting.calm.max_delay + lateness);
        self.stop_if_violated()?;
        let agreement = &self.world.observer.invariants.agreement;
        if agreement.agreed().is_none() {
            let what = format!("none one delay after all have noticed: {}", agreement.describe());
            return self.stall(agreement::NAME, what);
        }
        Ok(())
    }

    fn all_name(&self, leader: MemberId) -> bool {
        let named = |host: &usize| self.world.machine(*host).and_then(NfdL::leader);
        self.up().iter().all(|host| named(host) == Some(leader))
    }

    /// Whether a member of higher priority is up and does not lead.
    fn is_passed_over(&self, leader: MemberId) -> bool {
        let favoured =
            self.case.setting.favoured.filter(|host| self.world.machine(*host).is_some());
        favoured.is_some_and(|host| host != host_of(leader))
    }

    /// One broadcaster, and no change of mind, for more intervals than a window is long.
    fn demand_silence(&mut self, leader: MemberId) -> Result<(), Failed> {
        let (before, changes) = (self.world.counts().messages, self.changes());
        let began = self.world.now();
        self.world
            .run_until(began + self.case.setting.interval * (20 + self.case.setting.window as u32));
        self.stop_if_violated()?;
        if self.changes() != changes {
            let agreement = &self.world.observer.invariants.agreement;
            let what = format!("the agreement on {leader} did not last: {}", agreement.describe());
            return self.stall(agreement::NAME, what);
        }
        if self.case.planned {
            return Ok(());
        }
        let sent = self.world.counts().messages - before;
        let elapsed = self.world.now() - began;
        let (size, interval) = (self.case.setting.size, self.case.setting.interval);
        match one_broadcaster::check(sent, size, interval, elapsed) {
            Ok(()) => Ok(()),
            Err(what) => self.fail(one_broadcaster::NAME, what),
        }
    }

    /// A follower crashes and comes back, whatever became of its disk and its wall clock: nobody
    /// else changes its mind.
    fn demand_stability(&mut self, leader: MemberId) -> Result<(), Failed> {
        let followers: Vec<_> =
            self.up().into_iter().filter(|host| *host != host_of(leader)).collect();
        if followers.is_empty() {
            return Ok(());
        }
        let host = self.case.random.pick(&followers);
        let down = self.case.random.between(Duration::ZERO, self.case.setting.detect * 2);
        let by_nanos = storm::wall_step(&mut self.case.random);
        let disk = if self.case.random.chance(0.3) { DiskFate::Lost } else { DiskFate::Kept };
        self.world.inject(Fault::Crash(host));
        self.world.inject(Fault::StepWall { host, by_nanos });
        let now = self.world.now();
        self.world.run_until(now + down);
        let changes = self.changes();
        self.world.inject(Fault::Recover { host, disk });
        let now = self.world.now();
        self.world.run_until(now + self.case.setting.interval * 2 + self.case.setting.detect);
        self.stop_if_violated()?;
        // The newcomer's own: it hears the leader, or, if the one heartbeat came a little late,
        // claims and gives way again.
        let agreed = self.world.observer.invariants.agreement.agreed().map(|(leader, _)| leader);
        if agreed != Some(leader) || self.changes() - changes > 2 {
            let what = self.world.observer.invariants.agreement.describe();
            let what = format!("{} came back and {leader} was unseated: {what}", member(host));
            return self.fail(stability::NAME, what);
        }
        Ok(())
    }

    fn changes(&self) -> u64 {
        self.world.observer.invariants.agreement.changes()
    }

    fn stop_if_violated(&self) -> Result<(), Failed> {
        self.world.observer.verdict().map_err(|_| Failed)
    }

    fn fail<T>(&mut self, invariant: &'static str, what: String) -> Result<T, Failed> {
        self.world.observer.fail(invariant, what);
        Err(Failed)
    }

    fn stall<T>(&mut self, invariant: &'static str, what: String) -> Result<T, Failed> {
        self.world.observer.stall(invariant, what);
        Err(Failed)
    }

    fn note(&mut self, text: &str) {
        let moment = Moment { now: self.world.now(), host: 0, local: self.world.local_time(0) };
        self.world.observer.note(moment, text);
    }
}
