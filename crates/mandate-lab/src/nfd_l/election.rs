//! The paper's own measurements (section 4.1): mistake rate and duration for each of the four
//! monitors over hours without a crash; detection and recovery times over crash and recovery
//! cycles of a leader of higher priority.

use std::time::Duration;

use mandate_proto::detector::Verdict;
use mandate_proto::detector::configurator::Plan;
use mandate_proto::detector::quartiles::Quartiles;
use mandate_proto::detector::recorder::{DetectorReport, Recorder};
use mandate_proto::identity::MemberId;
use mandate_proto::nfd_l::{Config, Event, NfdL};
use mandate_proto::time::Instant;
use mandate_sim::clock::HostClocks;
use mandate_sim::fault::{DiskFate, Fault};
use mandate_sim::link::LinkModel;
use mandate_sim::nfd_l::MemberConfig;
use mandate_sim::random::{Random, Stream};
use mandate_sim::subject::{Moment, Observation, SimulationObserver};
use mandate_sim::time::SimTime;
use mandate_sim::world::{Machinery, World};
use mandate_sim::{host_of, member};

use super::{MEMBERS, NfdLSettings, calm_link};

/// Wake-ups come up to a millisecond late, as on a loaded machine.
const MACHINERY: Machinery =
    Machinery { lateness: Duration::from_millis(1), write_time: Duration::from_millis(10) };

/// Time for the group to come to rest before anything is measured.
const SETTLE: Duration = Duration::from_secs(30);

/// Between a crash and the recovery, and between that and the next crash.
const CYCLE: Duration = Duration::from_secs(60);

/// Accuracy: one report for each monitor and run.
#[derive(Clone, Debug)]
pub struct Accuracy {
    /// What each monitor did, in each run.
    pub monitors: Vec<DetectorReport>,
    /// Messages sent per interval, for which a single broadcaster needs four.
    pub messages_per_interval: f64,
}

impl Accuracy {
    /// Quartiles of the paper's mistake rate, per second.
    pub fn mistake_rate(&self) -> Option<Quartiles> {
        Quartiles::of(self.monitors.iter().map(|report| report.mistake_rate))
    }

    /// Mistakes in all.
    pub fn mistakes(&self) -> u64 {
        self.monitors.iter().map(|report| report.mistakes).sum()
    }

    /// Mistakes per monitor and hour.
    pub fn mistakes_per_hour(&self) -> f64 {
        let hours: f64 = self.monitors.iter().map(|report| report.up.as_secs_f64() / 3600.0).sum();
        self.mistakes() as f64 / hours
    }

    /// Quartiles of each monitor's average mistake duration, in seconds; monitors without
    /// mistakes do not count, as in the paper.
    pub fn mistake_duration(&self) -> Option<Quartiles> {
        let durations = self.monitors.iter().filter_map(|report| report.mistake_duration);
        Quartiles::of(durations.map(|duration| duration.mean))
    }

    /// Mean query accuracy.
    pub fn query_accuracy(&self) -> f64 {
        let sum: f64 = self.monitors.iter().map(|report| report.accuracy).sum();
        sum / self.monitors.len().max(1) as f64
    }
}

/// Speed: every detection and every recovery, in seconds.
#[derive(Clone, Debug, Default)]
pub struct Speed {
    /// From a crash to each monitor's suspicion (T_D).
    pub detection: Vec<f64>,
    /// From a recovery to each monitor's trust (T_DR).
    pub recovery: Vec<f64>,
    /// Crashes that a monitor did not notice.
    pub missed: u64,
}

impl Speed {
    /// Quartiles of the detection times, in seconds.
    pub fn detection_quartiles(&self) -> Option<Quartiles> {
        Quartiles::of(self.detection.iter().copied())
    }

    /// Quartiles of the recovery detection times, in seconds.
    pub fn recovery_quartiles(&self) -> Option<Quartiles> {
        Quartiles::of(self.recovery.iter().copied())
    }
}

/// Hours in which nobody crashes.
pub fn measure_accuracy(
    settings: &NfdLSettings,
    plan: &Plan,
    link: LinkModel,
    progress: &mut impl FnMut(),
) -> Accuracy {
    let mut monitors = Vec::new();
    let mut per_interval = 0.0;
    for run in 0..settings.runs {
        let mut world = group(plan, settings.seed + run, link, 0);
        world.run_until(SimTime::ZERO + SETTLE);
        let leader = common_leader(&world);
        world.observer.begin(leader, world.now());
        let before = world.counts().messages;
        world.run_until(world.now() + settings.length);
        let beats = settings.length.as_secs_f64() / plan.interval.as_secs_f64();
        let sent = world.counts().messages - before;
        per_interval += sent as f64 / beats / settings.runs as f64;
        let now = steady(world.now());
        let others = world.observer.recorders.iter().enumerate();
        let others = others.filter(|(host, _)| *host != host_of(leader));
        monitors.extend(others.map(|(_, recorder)| recorder.report(now)));
        progress();
    }
    Accuracy { monitors, messages_per_interval: per_interval }
}

/// Crash and recovery cycles of a leader that is preferred, so that it is re-elected as soon as
/// it is back.
pub fn measure_speed(settings: &NfdLSettings, plan: &Plan, progress: &mut impl FnMut()) -> Speed {
    let mut random = Random::new(settings.seed, Stream::Faults);
    let mut speed = Speed::default();
    for cycle in 0..settings.cycles {
        let favoured = member(random.below(MEMBERS as u64) as usize);
        let host = host_of(favoured);
        let mut world = group(plan, settings.seed + cycle, calm_link(), 1 << host);
        // At any point of the interval.
        let crash = SETTLE + random.between(Duration::ZERO, plan.interval);
        world.run_until(SimTime::ZERO + crash);
        let now = world.now();
        world.observer.begin(favoured, now);
        world.inject(Fault::Crash(host));
        world.run_until(now + CYCLE);
        world.inject(Fault::Recover { host, disk: DiskFate::Kept });
        world.run_until(now + CYCLE * 2);
        let others = world.observer.recorders.iter().enumerate();
        for (_, recorder) in others.filter(|(monitor, _)| *monitor != host) {
            speed.detection.extend(recorder.detections().map(|t| t.as_secs_f64()));
            speed.recovery.extend(recorder.recoveries().map(|t| t.as_secs_f64()));
            let report = recorder.report(steady(world.now()));
            speed.missed += report.crashes - report.detected;
        }
        progress();
    }
    speed
}

fn group(plan: &Plan, seed: u64, link: LinkModel, favoured: u64) -> World<NfdL, Monitors> {
    let hosts = (0..MEMBERS).map(|host| {
        let priority = u8::from(favoured & (1 << host) != 0);
        let config = Config::from_plan(member(host), plan).expect("a plan has a margin");
        let config = config.with_priority(priority);
        (MemberConfig { config, mutant: None }, HostClocks::new(0))
    });
    let monitors = Monitors { subject: None, recorders: Vec::new(), outputs: vec![None; MEMBERS] };
    let mut world = World::new(seed, hosts, link, MACHINERY, monitors);
    world.start_all();
    world
}

/// Whom most name: a monitor may just be mistaken.
fn common_leader(world: &World<NfdL, Monitors>) -> MemberId {
    let named = |leader: &MemberId| {
        world.observer.outputs.iter().filter(|output| **output == Some(*leader)).count()
    };
    (0..MEMBERS).map(member).max_by_key(named).expect("there are members")
}

/// True time as the recorders know it.
fn steady(now: SimTime) -> Instant {
    Instant::from_nanos(now.as_nanos())
}

/// Compares what each member says with the truth about one of them.
struct Monitors {
    subject: Option<MemberId>,
    recorders: Vec<Recorder>,
    outputs: Vec<Option<MemberId>>,
}

impl Monitors {
    /// Begins to record how well `subject` is known to be up.
    fn begin(&mut self, subject: MemberId, now: SimTime) {
        self.subject = Some(subject);
        self.recorders = vec![Recorder::new(steady(now)); MEMBERS];
        for host in 0..MEMBERS {
            self.record(host, now);
        }
    }

    fn record(&mut self, host: usize, now: SimTime) {
        if let Some(recorder) = self.recorders.get_mut(host) {
            let trusts = self.outputs[host] == self.subject;
            let verdict = if trusts { Verdict::Trust } else { Verdict::Suspect };
            recorder.output(verdict, steady(now));
        }
    }
}

impl SimulationObserver<NfdL> for Monitors {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, NfdL>) {
        let now = steady(moment.now);
        match what {
            Observation::Told(Event::LeaderChanged { leader, .. }) => {
                self.outputs[moment.host] = *leader;
                self.record(moment.host, moment.now);
            }
            Observation::Faulted(Fault::Crash(host)) if self.subject == Some(member(*host)) => {
                self.recorders.iter_mut().for_each(|recorder| recorder.crashed(now));
            }
            Observation::Faulted(Fault::Recover { host, .. })
                if self.subject == Some(member(*host)) =>
            {
                self.recorders.iter_mut().for_each(|recorder| recorder.recovered(now));
            }
            _ => {}
        }
    }
}
