//! What a seed draws: the setting of a run, and its faults. The same forevery protocol, so that
//! a fault that is thought of for one is there for all.

use core::time::Duration;

use crate::clock::HostClocks;
use crate::fault::{DiskFate, Fault};
use crate::link::{Bursts, Delay, LinkModel};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::time::SimTime;
use crate::world::Machinery;

const MS: Duration = Duration::from_millis(1);

/// Monotonic clocks may be this much off: a tenth of a per cent, twenty times what bad quartz does.
pub(crate) const MAX_DRIFT_PPB: i64 = 1_000_000;

/// What a write takes at most, where disks are not slow.
pub(crate) const WRITE_TIME: Duration = Duration::from_millis(50);

/// Something that is to happen.
pub(crate) enum Happening<Input> {
    /// A fault.
    Fault(Fault),
    /// The application of a host says something.
    Tell(HostIndex, Input),
}

/// What happens, and when.
pub(crate) type Happenings<Input> = Vec<(SimTime, Happening<Input>)>;

/// Parts of a fault, each with what ends it.
pub(crate) type Faults<Input> = Vec<(Happening<Input>, Option<Fault>)>;

/// What befalls a group until everything heals.
pub(crate) struct Storm<Input> {
    /// What is drawn beforehand.
    pub(crate) happenings: Happenings<Input>,
    /// What hits the leader of that time, in order.
    pub(crate) leader_faults: Vec<(SimTime, LeaderFault)>,
    /// How long it lasts.
    pub(crate) lasts: Duration,
}

/// A fault of the host that leads when the fault comes.
#[derive(Clone, Copy)]
pub(crate) struct LeaderFault {
    /// Which: below [`COMMON`](Self::COMMON), the same forevery protocol that has a server.
    pub(crate) kind: u64,
    pub(crate) lasts: Duration,
}

impl LeaderFault {
    /// How many kinds are the same forevery protocol.
    pub(crate) const COMMON: u64 = 5;

    /// Fewer than `count`, of so many kinds, from `unit` after the start of the storm on. Each lasts for up to six units.
    pub(crate) fn draw(
        seed: u64,
        (unit, storm): (Duration, Duration),
        (count, kinds): (u64, u64),
    ) -> Vec<(SimTime, Self)> {
        let mut random = Random::new(seed ^ 0x57E1, Stream::Faults);
        let draw = |random: &mut Random| {
            let at = SimTime::ZERO + random.between(unit, storm);
            let longest = unit * random.pick(&[1, 3, 6]);
            let lasts = random.between(Duration::ZERO, longest);
            (at, LeaderFault { kind: random.below(kinds), lasts })
        };
        let mut faults: Vec<_> = (0..random.below(count)).map(|_| draw(&mut random)).collect();
        faults.sort_by_key(|(at, _)| *at);
        faults
    }

    /// A common kind: the host crashes, pauses, or is cut off from its server. With what ends it.
    pub(crate) fn common(self, host: HostIndex, server: HostIndex) -> Vec<(Fault, Fault)> {
        let cut = |from, to| (Fault::Cut { from, to }, Fault::Mend { from, to });
        match self.kind {
            0 => vec![(Fault::Crash(host), Fault::Recover { host, disk: DiskFate::Kept })],
            1 => vec![(Fault::Pause(host), Fault::Resume(host))],
            2 => vec![cut(host, server)],
            3 => vec![cut(server, host)],
            _ => vec![cut(host, server), cut(server, host)],
        }
    }
}

/// The setting of a run.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// How many members.
    pub(crate) size: usize,
    /// Time between heartbeats.
    pub(crate) interval: Duration,
    /// Detection bound.
    pub(crate) detect: Duration,
    /// The links during the storm.
    pub(crate) rough: LinkModel,
    /// The links after it: nothing is lost, and nothing takes longer than its `max_delay`.
    pub(crate) calm: LinkModel,
    /// Lateness of hosts.
    pub(crate) machinery: Machinery,
    /// A clock for each member.
    pub(crate) clocks: Vec<HostClocks>,
    /// How long the storm lasts.
    pub(crate) storm: Duration,
    /// How many arrivals are averaged.
    pub(crate) window: usize,
    /// How many others a member remembers.
    pub(crate) max_peers: usize,
    /// A member of higher priority, in some groups.
    pub(crate) favoured: Option<HostIndex>,
    /// Changes of plan during the storm, in some groups: when, whose, and what times the interval
    /// and the detection bound.
    pub(crate) replans: Vec<(SimTime, HostIndex, f64)>,
}

/// What a change of plan multiplies by, at most.
pub(crate) const MAX_REPLAN: u32 = 2;

impl Setting {
    /// The setting of `seed`.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, Stream::Setting);
        let size = 3 + random.below(7) as usize;
        // A few groups are as large as they may be. They see less of the storm, since each instant costs more.
        let mut large = Random::new(seed ^ 0x1A26E, Stream::Setting);
        let large = large.chance(0.002).then(|| 10 + large.below(55) as usize);
        let size = large.unwrap_or(size);
        let interval = random.between(MS * 50, MS * 400);
        let detect = interval.mul_f64(2.2 + random.below(280) as f64 / 100.0);
        let max_delay = random.between(MS, MS * 50);
        let calm = LinkModel {
            delay: Delay::Uniform(Duration::from_micros(100), max_delay),
            max_delay,
            ..LinkModel::perfect(max_delay)
        };
        let storm = detect * if large.is_some() { 8 } else { 30 };
        let favoured = random.chance(0.1).then(|| random.below(size as u64) as usize);
        let changes = if random.chance(0.2) { random.below(8) } else { 0 };
        let replan = |random: &mut Random| {
            let at = SimTime::ZERO + random.between(Duration::ZERO, storm);
            (at, random.below(size as u64) as usize, 0.5 + random.below(150) as f64 / 100.0)
        };
        Setting {
            window: random.pick(&[1, 8, 32, 100]),
            max_peers: if random.chance(0.1) { 2 } else { 1024 },
            favoured,
            replans: (0..changes).map(|_| replan(&mut random)).collect(),
            size,
            interval,
            detect,
            rough: rough_links(&mut random, detect),
            calm,
            machinery: Machinery { lateness: MS * 5, write_time: WRITE_TIME },
            clocks: (0..size).map(|_| clock(&mut random)).collect(),
            storm,
        }
    }
}

/// Links as they are in a storm.
pub(crate) fn rough_links(random: &mut Random, detect: Duration) -> LinkModel {
    let mean = random.between(Duration::from_micros(200), MS * 40);
    let delay = match random.below(4) {
        0 => Delay::Exponential(mean),
        1 => Delay::LogNormal { mean, variance: 25e-6 },
        2 => Delay::Pareto { min: mean, shape: 1.5 },
        _ => Delay::Uniform(Duration::ZERO, mean * 2),
    };
    let bursts = Bursts {
        every: detect * 5,
        lasting: detect,
        loss: random.below(100) as f64 / 100.0,
        delay: Delay::Pareto { min: random.between(MS, MS * 200), shape: 1.2 },
    };
    LinkModel {
        delay,
        max_delay: detect * 3,
        loss: random.pick(&[0.0, 0.01, 0.05, 0.2, 0.5]),
        duplication: random.pick(&[0.0, 0.05]),
        in_order: random.chance(0.2),
        bursts: random.chance(0.5).then_some(bursts),
    }
}

fn clock(random: &mut Random) -> HostClocks {
    let drift = random.below(2 * MAX_DRIFT_PPB as u64 + 1) as i64 - MAX_DRIFT_PPB;
    let mut clock = HostClocks::new(drift);
    clock.step_wall(wall_step(random));
    clock
}

/// Up to an hour either way, at all scales.
pub(crate) fn wall_step(random: &mut Random) -> i64 {
    let magnitude = random.pick(&[10, 1_000, 60_000, 3_600_000]);
    let nanos = random.below(magnitude * 1_000_000) as i64;
    if random.chance(0.5) { nanos } else { -nanos }
}

/// Links on which what was sent arrives in any order, up to twenty detection times later: former incarnations
/// are heard long after their end.
pub(crate) fn late_links(random: &mut Random, detect: Duration) -> LinkModel {
    LinkModel {
        delay: Delay::Exponential(detect.mul_f64(random.pick(&[0.02, 0.1, 0.3, 1.0]))),
        max_delay: detect * 20,
        loss: random.pick(&[0.0, 0.1, 0.3]),
        duplication: random.pick(&[0.0, 0.1]),
        in_order: false,
        bursts: None,
    }
}

/// Crashes in quick succession, most of which take the disk with them; never of more than a minority
/// at once.
pub(crate) fn lost_disks(random: &mut Random, setting: &Setting) -> Vec<(SimTime, Fault)> {
    let mut faults = Vec::new();
    let over = SimTime::ZERO + setting.storm;
    let mut begin = SimTime::ZERO + setting.detect;
    while begin < over {
        let first = random.below(setting.size as u64) as usize;
        let minority = (setting.size as u64 - 1) / 2;
        for other in 0..=random.below(minority) as usize {
            let host = (first + other) % setting.size;
            let at = begin + random.between(Duration::ZERO, setting.detect);
            let back = at + random.between(Duration::ZERO, setting.interval / 4);
            let disk = if random.chance(0.8) { DiskFate::Lost } else { DiskFate::Kept };
            faults.push((at, Fault::Crash(host)));
            faults.push((back, Fault::Recover { host, disk }));
        }
        begin = begin + setting.detect * random.pick(&[1, 3, 6]);
    }
    faults.retain(|(at, _)| *at < over);
    faults
}

/// Some processes are told to end in good order, end, and start again soon.
pub(crate) fn orderly_ends<Input: Clone>(
    random: &mut Random,
    setting: &Setting,
    count: u64,
    stop: Input,
) -> Happenings<Input> {
    let mut happenings = Vec::new();
    for _ in 0..count {
        let at = SimTime::ZERO + random.between(Duration::ZERO, setting.storm);
        let host = random.below(setting.size as u64) as usize;
        let ended = at + setting.machinery.write_time * 2;
        let back = ended + random.between(Duration::ZERO, setting.detect / 2);
        let recover = Fault::Recover { host, disk: DiskFate::Kept };
        happenings.push((at, Happening::Tell(host, stop.clone())));
        happenings.push((ended, Happening::Fault(Fault::Crash(host))));
        happenings.push((back, Happening::Fault(recover)));
    }
    happenings
}

/// The disk of a member that recovers: mostly still there.
pub(crate) fn disk(random: &mut Random) -> DiskFate {
    if random.chance(0.2) { DiskFate::Lost } else { DiskFate::Kept }
}

/// The faults of `seed`, each with its end; what would come after the storm does not.
pub(crate) fn faults(seed: u64, setting: &Setting) -> Vec<(SimTime, Fault)> {
    let mut random = Random::new(seed, Stream::Faults);
    let mut faults = Vec::new();
    for _ in 0..3 + random.below(13) {
        let begin = SimTime::ZERO + random.between(Duration::ZERO, setting.storm);
        // From a hiccup to several detection times.
        let scale = random.pick(&[1, 3, 8]);
        let end = begin + random.between(Duration::ZERO, setting.detect * scale);
        let host = random.below(setting.size as u64) as usize;
        let other = (host + 1 + random.below(setting.size as u64 - 1) as usize) % setting.size;
        let (fault, undone) = match random.below(10) {
            0..=2 => (Fault::Crash(host), Some(Fault::Recover { host, disk: disk(&mut random) })),
            3 => (Fault::Pause(host), Some(Fault::Resume(host))),
            4 => {
                let clock_stops = random.chance(0.5);
                (Fault::Suspend { host, clock_stops }, Some(Fault::Resume(host)))
            }
            5 | 6 => {
                let all = u64::MAX >> (u64::BITS as usize - setting.size);
                let side = 1 + random.below(all - 1);
                (Fault::Partition(side), Some(Fault::Heal))
            }
            7 | 8 => {
                let (from, to) = (host, other);
                (Fault::Cut { from, to }, Some(Fault::Mend { from, to }))
            }
            _ => (Fault::StepWall { host, by_nanos: wall_step(&mut random) }, None),
        };
        faults.push((begin, fault));
        faults.extend(undone.map(|fault| (end, fault)));
    }
    faults.extend(late_start(seed, setting));
    faults.extend(flapping(seed, setting));
    let over = SimTime::ZERO + setting.storm;
    faults.retain(|(at, _)| *at < over);
    faults
}

/// In some groups a member is not there at first.
fn late_start(seed: u64, setting: &Setting) -> Vec<(SimTime, Fault)> {
    let mut random = Random::new(seed ^ 0x1A7E, Stream::Faults);
    if !random.chance(0.1) {
        return Vec::new();
    }
    let host = random.below(setting.size as u64) as usize;
    let back = SimTime::ZERO + random.between(Duration::ZERO, setting.storm / 4);
    let recover = Fault::Recover { host, disk: DiskFate::Kept };
    vec![(SimTime::ZERO, Fault::Crash(host)), (back, recover)]
}

/// In some groups a link flaps: it is cut and mended again and again, one direction or both.
fn flapping(seed: u64, setting: &Setting) -> Vec<(SimTime, Fault)> {
    let mut random = Random::new(seed ^ 0xF1A9, Stream::Faults);
    let mut faults = Vec::new();
    if !random.chance(0.1) {
        return faults;
    }
    let host = random.below(setting.size as u64) as usize;
    let other = (host + 1 + random.below(setting.size as u64 - 1) as usize) % setting.size;
    let both = random.chance(0.5);
    let mut at = SimTime::ZERO + random.between(Duration::ZERO, setting.storm / 2);
    for _ in 0..10 + random.below(30) {
        let mended = at + random.between(Duration::ZERO, setting.interval);
        for (from, to) in [(host, other), (other, host)].into_iter().take(1 + usize::from(both)) {
            faults.push((at, Fault::Cut { from, to }));
            faults.push((mended, Fault::Mend { from, to }));
        }
        at = mended + random.between(Duration::ZERO, setting.interval);
    }
    faults
}
