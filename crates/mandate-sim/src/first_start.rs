//! First starts without a human, in runs of their own: members find out by themselves whether they are new or have lost their disks,
//! while they crash in the middle of it, are partitioned, come late, and lose their disks, at times all of them at once.
//!
//! Their wall clocks are right: terms begin above what the clock says, in microseconds here, since what happens to a group in months is
//! pressed into a minute.

use core::ops::Range;
use core::time::Duration;

use mandate_proto::identity::Term;
use mandate_proto::time::WallTime;

use crate::clock::{EPOCH_NANOS, HostClocks};
use crate::fault::{DiskFate, Fault};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::storm::Setting;
use crate::time::SimTime;

/// The most members.
const MAX_SIZE: usize = 5;

/// The term that all terms of a group are above that starts at this time.
pub(crate) fn floor(wall: WallTime) -> Term {
    Term::new(wall.as_unix_nanos().saturating_sub(EPOCH_NANOS) / 1000)
}

/// How the members of a run are started, and what befalls them beside the storm.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstStart {
    is_auto: Vec<bool>,
    faults: Vec<(SimTime, Fault)>,
}

impl FirstStart {
    /// That of `seed`. The group is made small, so that all of a quorum can lose their disks.
    pub(crate) fn draw(seed: u64, setting: &mut Setting) -> Self {
        let mut random = Random::new(seed ^ 0xA0705, Stream::Setting);
        setting.size = setting.size.min(2 + random.below(MAX_SIZE as u64 - 1) as usize);
        setting.clocks.truncate(setting.size);
        setting.clocks.iter_mut().for_each(HostClocks::set_wall_right);
        // In a fifth of the runs some are new by word of a human.
        let mixed = random.chance(0.2);
        let is_auto = (0..setting.size).map(|_| !mixed || random.chance(0.6)).collect();
        let mut random = Random::new(seed ^ 0xA0705, Stream::Faults);
        let mut start = FirstStart { is_auto, faults: Vec::new() };
        start.draw_early(&mut random, setting);
        for _ in 0..random.below(4) {
            start.draw_losses(&mut random, setting);
        }
        let over = SimTime::ZERO + setting.storm;
        start.faults.retain(|(at, _)| *at < over);
        start
    }

    /// Whether a host's member finds out by itself whether it is new.
    pub(crate) fn is_auto(&self, host: HostIndex) -> bool {
        self.is_auto.get(host).copied().unwrap_or(false)
    }

    /// The hosts whose members are new, or have lost their disks, by word of a human, where others find out by themselves.
    pub(crate) fn by_word(&self, hosts: Range<HostIndex>) -> impl Iterator<Item = HostIndex> {
        hosts.filter(|host| self.is_auto.get(*host) == Some(&false))
    }

    /// What befalls the group, in place of these faults and beside them.
    pub(crate) fn faults(&self, faults: Vec<(SimTime, Fault)>) -> Vec<(SimTime, Fault)> {
        let set = |fault: &Fault| matches!(fault, Fault::StepWall { .. });
        let faults = faults.into_iter().filter(|(_, fault)| self.is_auto.is_empty() || !set(fault));
        faults.chain(self.faults.iter().cloned()).collect()
    }

    /// While the group starts: crashes, some of which take the disk along, cuts, and members that come late.
    fn draw_early(&mut self, random: &mut Random, setting: &Setting) {
        let early = setting.interval * random.pick(&[1, 3, 8]);
        for _ in 0..random.below(8) {
            let host = random.below(setting.size as u64) as HostIndex;
            let at = SimTime::ZERO + random.between(Duration::ZERO, early);
            let longest =
                random.pick(&[setting.interval / 8, setting.interval, setting.detect * 2]);
            let back = at + random.between(Duration::ZERO, longest);
            let disk = if random.chance(0.3) { DiskFate::Lost } else { DiskFate::Kept };
            self.faults.push((at, Fault::Crash(host)));
            self.faults.push((back, Fault::Recover { host, disk }));
        }
        for _ in 0..random.below(4) {
            let all = u64::MAX >> (u64::BITS as usize - setting.size);
            let at = SimTime::ZERO + random.between(Duration::ZERO, early);
            let healed = at + random.between(Duration::ZERO, setting.detect * 2);
            self.faults.push((at, Fault::Partition(1 + random.below(all - 1))));
            self.faults.push((healed, Fault::Heal));
        }
        if random.chance(0.4) {
            let host = random.below(setting.size as u64) as HostIndex;
            let back = SimTime::ZERO + random.between(Duration::ZERO, setting.storm / 3);
            self.faults.push((SimTime::ZERO, Fault::Crash(host)));
            self.faults.push((back, Fault::Recover { host, disk: DiskFate::Kept }));
        }
    }

    /// Some lose their disks at once, or all of them.
    fn draw_losses(&mut self, random: &mut Random, setting: &Setting) {
        let begin = SimTime::ZERO + random.between(Duration::ZERO, setting.storm);
        let share = random.pick(&[0.3, 0.6, 1.0]);
        // A cut meanwhile: what those that have their disks know is not heard at first.
        let is_cut = random.chance(0.5);
        for host in (0..setting.size).filter(|_| random.chance(share)).collect::<Vec<_>>() {
            let at = begin + random.between(Duration::ZERO, setting.interval / 4);
            let longest = random.pick(&[setting.interval / 8, setting.interval, setting.detect]);
            let back = at + random.between(Duration::ZERO, longest);
            self.faults.push((at, Fault::Crash(host)));
            self.faults.push((back, Fault::Recover { host, disk: DiskFate::Lost }));
            for other in (0..setting.size).filter(|other| *other != host) {
                if is_cut && random.chance(0.3) {
                    let mended = back + random.between(Duration::ZERO, setting.detect * 3);
                    for (from, to) in [(host, other), (other, host)] {
                        self.faults.push((at, Fault::Cut { from, to }));
                        self.faults.push((mended, Fault::Mend { from, to }));
                    }
                }
            }
        }
    }
}
