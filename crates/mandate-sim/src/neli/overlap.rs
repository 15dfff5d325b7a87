//! One seed of non-exclusive mode: one failure after another, each given the time to heal. No role may be
//! without a leader that runs for longer than stated; with two disjoint groups, at no instant.

use core::time::Duration;
use std::io::Write;

use mandate_proto::neli::{Input, Partition};

use super::setting::Setting;
use super::watch::Reigns;
use super::{Node, NodeInput, Options, Trouble};
use crate::fault::{DiskFate, Fault, MemberName};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::scenario::{Run, Scenario, Watched};
use crate::storm::Storm;
use crate::time::SimTime;
use crate::verdict::Outcome;
use crate::watch::Watch;
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
    let watch = Watch::new(Reigns::default(), trace);
    let world = World::new(seed, nodes, setting.rough, setting.machinery, watch);
    let latency = setting.delay + setting.machinery.lateness * 2;
    // Clocks that are slow make it longer.
    let bound = setting.plan.gap_within(latency).mul_f64(1.06);
    let since = vec![None; setting.partitions as usize * setting.groups];
    let case = Case {
        setting,
        random: Random::new(seed, Stream::Faults),
        latency,
        bound,
        outage: Duration::ZERO,
        since,
        is_warm: false,
        is_smooth: false,
    };
    Run { world, case }.play(seed)
}

struct Case {
    setting: Setting,
    random: Random,
    /// What a message takes, and a process until it gets round to it.
    latency: Duration,
    /// The longest gap after a failure of one member.
    bound: Duration,
    /// For how long the ledger itself is out of reach, besides.
    outage: Duration,
    /// Since when a group has no leader for a partition.
    since: Vec<Option<SimTime>>,
    /// Everyone has had the time to begin.
    is_warm: bool,
    /// What failed has been mended, and everything is led again.
    is_smooth: bool,
}

impl Scenario for Case {
    type Subject = Node;
    type Invariants = Reigns;

    /// Nothing happens until everyone has had the time to begin.
    fn storm(&mut self, _: &mut Watched<'_, Self>, _: u64) -> Storm<NodeInput> {
        let lasts = self.setting.plan.recovers_within(self.latency);
        Storm { happenings: Vec::new(), leader_faults: Vec::new(), lasts }
    }

    fn heal(run: &mut Run<'_, Self>) {
        run.case.is_warm = true;
    }

    fn demand(run: &mut Run<'_, Self>) {
        for _ in 0..FAILURES {
            run.fail_once();
        }
    }

    fn check(run: &mut Run<'_, Self>) {
        for partition in run.case.setting.partitions() {
            let led: Vec<bool> =
                (0..run.case.setting.groups).map(|group| run.is_led(group, partition)).collect();
            for (group, is_led) in led.iter().enumerate() {
                run.check_gap(group, partition, *is_led);
            }
            if run.case.setting.groups > 1 && run.case.is_warm && !led.contains(&true) {
                let what = format!("{partition} in both groups (at {} s)", run.world.now());
                run.world.observer.fail(NO_GAP, what);
            }
        }
        run.check_backlog();
    }
}

impl Run<'_, Case> {
    fn check_gap(&mut self, group: usize, partition: Partition, is_led: bool) {
        let now = self.world.now();
        let place = group * self.case.setting.partitions as usize + partition.get() as usize;
        if is_led || !self.case.is_warm {
            self.case.since[place] = None;
            return;
        }
        let since = *self.case.since[place].get_or_insert(now);
        if self.case.is_smooth {
            self.world.observer.fail(SMOOTH, format!("{partition} (at {now} s)"));
        }
        let allowed = self.case.bound + self.case.outage;
        self.world.observer.took(now - since, allowed);
        if now - since > allowed {
            let what = format!("{partition} for more than {allowed:?} (at {now} s)");
            self.world.observer.fail(NO_GAP, what);
        }
    }

    fn is_led(&self, group: usize, partition: Partition) -> bool {
        (0..self.case.setting.size)
            .filter(|host| host % self.case.setting.groups == group && self.world.runs(*host))
            .any(|host| self.leads(host, partition))
    }

    fn leads(&self, host: HostIndex, partition: Partition) -> bool {
        let node = self.world.machine(host).and_then(Node::member);
        let local = self.world.local_time(host);
        node.is_some_and(|node| node.member().mandate(partition, local).is_some())
    }

    /// The leader has had a record that was on the ledger no longer than the threshold ago, but for
    /// what acknowledgements take.
    fn check_backlog(&mut self) {
        let log = self.case.setting.logs[0];
        let Some(broker) = self.world.machine(log).and_then(Node::broker) else { return };
        let now = broker.wall(self.world.local_time(log));
        // Ages are worked out on the young side, by what two clocks may drift; so may they be here.
        let drift = f64::from(self.case.setting.plan.allowance_per_mille()) / 1000.0;
        let allowed = self.case.setting.plan.threshold().div_f64(1.0 - 4.0 * drift)
            + self.case.setting.delay * 4
            + self.case.setting.machinery.lateness * 4;
        for host in 0..self.case.setting.size {
            for partition in self.case.setting.partitions() {
                let node = self.world.machine(host).and_then(Node::member);
                let newest = node.and_then(|node| node.member().newest(partition));
                // A wall clock that was set back makes no record old.
                let Some(Ok(age)) = newest.map(|newest| now.since(newest)) else { continue };
                if self.leads(host, partition) && age > allowed && self.case.outage.is_zero() {
                    let what = format!("{} leads {partition} by one {age:?} old", MemberName(host));
                    self.world.observer.fail(NO_BACKLOG, what);
                }
            }
        }
    }

    /// One failure, until it is mended and forgotten.
    fn fail_once(&mut self) {
        let session = self.case.setting.plan.grants().session;
        let longest = session * self.case.random.pick(&[1, 3, 8]);
        let lasting = self.case.random.between(Duration::ZERO, longest);
        let host = self.case.random.below(self.case.setting.size as u64) as usize;
        let over = self.world.now() + lasting;
        let (coordinator, log) = (self.case.setting.coordinator, self.case.setting.logs[0]);
        let one_group = self.case.setting.groups == 1;
        let kind = self.case.random.below(if one_group { 10 } else { 6 });
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
            4 => {
                let both = [coordinator, log];
                let from = self.case.random.pick(&[&both[1..], &both]);
                self.cut(host, from, over);
            }
            5 => {
                self.world.tell(host, NodeInput::Stall(lasting));
                // A client beats on for as long as its member may take to ask for news.
                self.case.outage = self.case.setting.plan.grants().barrier;
            }
            6 => {
                let broker = self.case.random.pick(&[coordinator, log]);
                self.world.inject(Fault::Pause(broker));
                self.world.schedule(over, Fault::Resume(broker));
                self.case.outage = lasting + session;
            }
            7 => {
                self.world.tell(coordinator, NodeInput::Broker(Trouble::Restart));
                self.case.outage = session;
            }
            8 => {
                let hour = 3_600_000_000_000;
                let step = Trouble::StepClock(self.case.random.pick(&[hour, -hour]));
                self.world.tell(log, NodeInput::Broker(step));
                // Only records appended before the step are judged by the wrong clock.
                self.case.outage = session;
            }
            _ => {
                self.world.tell(host, NodeInput::Member(Input::Leave));
                self.run_until(self.world.now() + session / 4);
                self.world.inject(Fault::Crash(host));
                self.world.schedule(over, Fault::Recover { host, disk: DiskFate::Kept });
            }
        }
        let plan = &self.case.setting.plan;
        let settled = plan.gap_within(self.case.setting.delay) + plan.grants().session * 12;
        let until = over + settled;
        self.run_until(over);
        // Once everything is led again, a newcomer takes its share without a gap. (After other failures,
        // some find out later than others what has happened to them.)
        while !self.world.observer.is_done()
            && self.case.since.iter().any(Option::is_some)
            && self.world.step(until)
        {
            Case::check(self);
        }
        self.case.is_smooth = matches!(kind, 0 | 1 | 9);
        self.run_until(until);
        self.case.is_smooth = false;
        self.case.outage = Duration::ZERO;
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
