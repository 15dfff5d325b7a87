//! One seed of non-exclusive mode: one failure after another, each given the time to heal. No role may be
//! without a leader that runs for longer than stated; with two disjoint groups, at no instant.

use core::time::Duration;
use std::io::Write;

use mandate_proto::neli::{Input, Partition};

use super::setting::Setting;
use super::watch::Watch;
use super::{Node, NodeInput, Options, Trouble};
use crate::fault::{DiskFate, Fault, Name};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::time::SimTime;
use crate::trace::Trace;
use crate::verdict::Outcome;
use crate::world::World;

/// Reported when a role is without a leader for too long.
const NO_GAP: &str = "no role without a leader";
/// Reported when a member leads by a record that is older than the threshold.
const NO_BACKLOG: &str = "records that waited revive nobody";

/// Reported when a role is without a leader though nothing failed.
const SMOOTH: &str = "handing over leaves no gap";

/// Failures in a run.
const FAILURES: u32 = 3;

/// Runs a seed; `trace` receives it line by line.
pub fn run(seed: u64, options: &Options, trace: Option<&mut dyn Write>) -> Outcome {
    let mut setting = Setting::overlapping(seed, options);
    let nodes = std::mem::take(&mut setting.nodes);
    let watch = Watch::new(trace.map(Trace::new));
    let world = World::new(seed, nodes, setting.rough, setting.machinery, watch);
    let latency = setting.delay + setting.machinery.lateness * 2;
    // Clocks that are slow make it longer.
    let bound = setting.plan.gap_within(latency).mul_f64(1.06);
    let since = vec![None; setting.partitions as usize * setting.groups];
    let mut run = Run {
        world,
        setting,
        bound,
        outage: Duration::ZERO,
        since,
        worst: 0.0,
        is_warm: false,
        is_smooth: false,
    };
    run.world.start_all();
    let warm = run.setting.plan.recovers_within(latency);
    run.run_until(SimTime::ZERO + warm);
    run.is_warm = true;
    let mut random = Random::new(seed, Stream::Faults);
    for _ in 0..FAILURES {
        run.fail_once(&mut random);
    }
    let Run { world, worst, .. } = run;
    let verdict = world.observer.violation.clone().map_or(Ok(()), Err);
    let reigns = world.observer.reigns;
    world.outcome(verdict, reigns, worst)
}

struct Run<'a> {
    setting: Setting,
    world: World<Node, Watch<'a>>,
    /// The longest gap after a failure of one member.
    bound: Duration,
    /// For how long the ledger itself is out of reach, besides.
    outage: Duration,
    /// Since when a group has no leader for a partition.
    since: Vec<Option<SimTime>>,
    /// The longest gap, as a share of what is allowed.
    worst: f64,
    /// Everyone has had the time to begin.
    is_warm: bool,
    /// What failed has been mended, and everything is led again.
    is_smooth: bool,
}

impl Run<'_> {
    fn run_until(&mut self, until: SimTime) {
        while self.world.step(until) {
            self.check();
        }
    }

    fn is_done(&self) -> bool {
        self.world.observer.violation.is_some()
    }

    fn check(&mut self) {
        for partition in self.setting.partitions() {
            let led: Vec<bool> =
                (0..self.setting.groups).map(|group| self.is_led(group, partition)).collect();
            for (group, is_led) in led.iter().enumerate() {
                self.check_gap(group, partition, *is_led);
            }
            if self.setting.groups > 1 && self.is_warm && !led.contains(&true) {
                let what = format!("{partition} in both groups (at {} s)", self.world.now());
                self.world.observer.fail(NO_GAP, what);
            }
        }
        self.check_backlog();
    }

    fn check_gap(&mut self, group: usize, partition: Partition, is_led: bool) {
        let now = self.world.now();
        let place = group * self.setting.partitions as usize + partition.get() as usize;
        if is_led || !self.is_warm {
            self.since[place] = None;
            return;
        }
        let since = *self.since[place].get_or_insert(now);
        if self.is_smooth {
            self.world.observer.fail(SMOOTH, format!("{partition} (at {now} s)"));
        }
        let allowed = self.bound + self.outage;
        self.worst = self.worst.max((now - since).as_secs_f64() / allowed.as_secs_f64());
        if now - since > allowed {
            let what = format!("{partition} for more than {allowed:?} (at {now} s)");
            self.world.observer.fail(NO_GAP, what);
        }
    }

    fn is_led(&self, group: usize, partition: Partition) -> bool {
        (0..self.setting.size)
            .filter(|host| host % self.setting.groups == group && self.world.runs(*host))
            .any(|host| self.leads(host, partition))
    }

    fn leads(&self, host: HostIndex, partition: Partition) -> bool {
        let node = self.world.machine(host).and_then(Node::member);
        let local = self.world.local_time(host);
        node.is_some_and(|node| node.member().mandate(partition, local).is_some())
    }

    /// Whoever leads has had a record that was on the ledger no longer than the threshold ago, but for
    /// what acknowledgements take.
    fn check_backlog(&mut self) {
        let log = self.setting.logs[0];
        let Some(broker) = self.world.machine(log).and_then(Node::broker) else { return };
        let now = broker.wall(self.world.local_time(log));
        // Ages are worked out on the young side, by what two clocks may drift; so may they be here.
        let drift = f64::from(self.setting.plan.allowance_per_mille()) / 1000.0;
        let allowed = self.setting.plan.threshold().div_f64(1.0 - 4.0 * drift)
            + self.setting.delay * 4
            + self.setting.machinery.lateness * 4;
        for host in 0..self.setting.size {
            for partition in self.setting.partitions() {
                let node = self.world.machine(host).and_then(Node::member);
                let newest = node.and_then(|node| node.member().newest(partition));
                // A calendar that was set back makes no record old.
                let Some(Ok(age)) = newest.map(|newest| now.since(newest)) else { continue };
                if self.leads(host, partition) && age > allowed && self.outage.is_zero() {
                    let what = format!("{} leads {partition} by one {age:?} old", Name(host));
                    self.world.observer.fail(NO_BACKLOG, what);
                }
            }
        }
    }

    /// One failure, until it is mended and forgotten.
    fn fail_once(&mut self, random: &mut Random) {
        let session = self.setting.plan.grants().session;
        let longest = session * random.pick(&[1, 3, 8]);
        let lasting = random.between(Duration::ZERO, longest);
        let host = random.below(self.setting.size as u64) as usize;
        let over = self.world.now() + lasting;
        let (coordinator, log) = (self.setting.coordinator, self.setting.logs[0]);
        let one_group = self.setting.groups == 1;
        let kind = random.below(if one_group { 10 } else { 6 });
        match kind {
            0 | 1 => {
                self.world.inject(Fault::Crash(host));
                self.world.schedule(over, Fault::Recover { host, disk: DiskFate::Kept });
            }
            2 => {
                self.world.inject(Fault::Pause(host));
                self.world.schedule(over, Fault::Resume(host));
            }
            3 => self.cut(host, &[coordinator], over),
            4 => self.cut(host, random.pick(&[&[log][..], &[coordinator, log]]), over),
            5 => {
                self.world.tell(host, NodeInput::Stall(lasting));
                // A client beats on for as long as its member may take to ask for news.
                self.outage = self.setting.plan.grants().barrier;
            }
            6 => {
                let broker = random.pick(&[coordinator, log]);
                self.world.inject(Fault::Pause(broker));
                self.world.schedule(over, Fault::Resume(broker));
                self.outage = lasting + session;
            }
            7 => {
                self.world.tell(coordinator, NodeInput::Broker(Trouble::Restart));
                self.outage = session;
            }
            8 => {
                let hour = 3_600_000_000_000;
                let step = Trouble::StepClock(random.pick(&[hour, -hour]));
                self.world.tell(log, NodeInput::Broker(step));
                // Only records appended before the step are judged by the wrong clock.
                self.outage = session;
            }
            _ => {
                self.world.tell(host, NodeInput::Member(Input::Leave));
                self.run_until(self.world.now() + session / 4);
                self.world.inject(Fault::Crash(host));
                self.world.schedule(over, Fault::Recover { host, disk: DiskFate::Kept });
            }
        }
        let plan = &self.setting.plan;
        let settled = plan.gap_within(self.setting.delay) + plan.grants().session * 12;
        let until = over + settled;
        self.run_until(over);
        // Once everything is led again, a newcomer takes its share without a gap. (After other failures,
        // some find out later than others what has happened to them.)
        while !self.is_done() && self.since.iter().any(Option::is_some) && self.world.step(until) {
            self.check();
        }
        self.is_smooth = matches!(kind, 0 | 1 | 9);
        self.run_until(until);
        self.is_smooth = false;
        self.outage = Duration::ZERO;
    }

    fn cut(&mut self, host: HostIndex, from: &[HostIndex], over: SimTime) {
        for other in from {
            for (from, to) in [(host, *other), (*other, host)] {
                self.world.inject(Fault::Cut { from, to });
                self.world.schedule(over, Fault::Mend { from, to });
            }
        }
    }
}
