//! Members that come and go, in runs of their own: in the storm members are added, replaced and removed, several at once perhaps, by
//! the member that leads at that moment, while hosts crash, disks are lost and networks fall apart.
//!
//! Beside the members that a group is set up with there are spare hosts, on which processes run that are to be added. They are
//! started in order to join each time, also after the loss of their disk: as by a unit file in which that word was left.

use core::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{Contact, MemberChange};

use crate::fault::Fault;
use crate::host::member;
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::storm::{self, Happening, Happenings, Setting};
use crate::time::SimTime;

/// The most members that a group is set up with.
const MAX_FIRST: u64 = 5;

/// The most spare hosts.
const MAX_SPARES: u64 = 4;

/// What is asked for, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// How many members the group is set up with: the first hosts.
    first: usize,
    /// How many more hosts there are.
    spares: usize,
    wanted: Vec<(SimTime, MemberChange)>,
    faults: Vec<(SimTime, Fault)>,
}

impl Changes {
    /// Those of `seed`. The group is made small, so that one member more or less makes a difference, and gets clocks for the spare hosts.
    pub(crate) fn draw(seed: u64, setting: &mut Setting) -> Self {
        let mut random = Random::new(seed ^ 0xC4A6E5, Stream::Setting);
        setting.size = setting.size.min(1 + random.below(MAX_FIRST) as usize);
        let (first, spares) = (setting.size, 1 + random.below(MAX_SPARES) as usize);
        let clocks = (0..first + spares).map(|host| setting.clocks[host % first].clone());
        setting.clocks = clocks.collect();
        let mut changes = Changes { first, spares, ..Changes::default() };
        changes.wanted = changes.draw_wanted(&mut random, setting);
        changes.faults = changes.draw_faults(seed, setting);
        for _ in 0..random.below(4) {
            changes.draw_isolation(&mut random, setting);
        }
        changes
    }

    fn draw_wanted(&self, random: &mut Random, setting: &Setting) -> Vec<(SimTime, MemberChange)> {
        let mut wanted = Vec::new();
        let count = 4 + random.below(16);
        // Some groups grow first.
        if random.chance(0.3) {
            let early = setting.storm / 4;
            let mut times: Vec<_> =
                (0..self.spares).map(|_| random.between(setting.detect, early)).collect();
            times.sort_unstable();
            for (spare, at) in (self.first..).zip(times) {
                let change = MemberChange::Add {
                    member: member(spare),
                    contact: contact(spare as u64),
                    replaces: None,
                };
                wanted.push((SimTime::ZERO + at, change));
            }
        }
        let mut at = setting.detect;
        for number in 0..count {
            // Some come close upon each other, and are under way at once.
            at = match random.chance(0.4) {
                true => at + random.between(Duration::ZERO, setting.interval),
                false => random.between(setting.detect, setting.storm),
            };
            // Ids rise: mostly the one whose turn it is.
            let turn = self.first as u64 + number * self.spares as u64 / count;
            let spare = if random.chance(0.8) { turn } else { self.pick_spare(random) };
            let joining = member(spare as usize);
            let present = member(random.below((self.first + self.spares) as u64) as usize);
            let contact = contact(spare);
            let change = match random.below(10) {
                0..=2 => MemberChange::Add { member: joining, contact, replaces: None },
                3..=5 => MemberChange::Add { member: joining, contact, replaces: Some(present) },
                6 => MemberChange::Observe { member: joining, contact },
                _ => MemberChange::Remove { member: present },
            };
            // Some come at once, or are asked for again.
            let times = if random.chance(0.2) { 2 } else { 1 };
            for _ in 0..times {
                let later = random.between(Duration::ZERO, setting.interval);
                wanted.push((SimTime::ZERO + at + later, change.clone()));
            }
        }
        wanted
    }

    /// A member, alone or with some of the first ones, hears nothing of the others for a while. It is to change the list meanwhile:
    /// what it has made of it by then, the others do not know.
    fn draw_isolation(&mut self, random: &mut Random, setting: &Setting) {
        let alone = random.below(self.first as u64) as HostIndex;
        let is_alone = random.chance(0.5);
        let is_inside: Vec<_> = (0..self.first + self.spares)
            .map(|host| host == alone || host < self.first && !is_alone && random.chance(0.4))
            .collect();
        let at = random.between(setting.detect, setting.storm);
        let (begin, end) = (SimTime::ZERO + at, SimTime::ZERO + at + setting.detect * 4);
        let end = end.min(SimTime::ZERO + setting.storm);
        let hosts = || 0..is_inside.len();
        for from in hosts() {
            for to in hosts().filter(|to| is_inside[*to] != is_inside[from]) {
                self.faults.push((begin, Fault::Cut { from, to }));
                self.faults.push((end, Fault::Mend { from, to }));
            }
        }
        for _ in 0..1 + random.below(4) {
            let later = random.between(Duration::ZERO, setting.interval);
            let present = member(random.below(self.first as u64) as usize);
            self.wanted.push((begin + later, MemberChange::Remove { member: present }));
        }
    }

    fn pick_spare(&self, random: &mut Random) -> u64 {
        self.first as u64 + random.below(self.spares as u64)
    }

    /// The same faults as those of members, of the spare hosts.
    fn draw_faults(&self, seed: u64, setting: &Setting) -> Vec<(SimTime, Fault)> {
        let mut random = Random::new(seed ^ 0xC4A6E5, Stream::Faults);
        let over = SimTime::ZERO + setting.storm;
        let all = (self.first + self.spares) as u64;
        let mut faults = Vec::new();
        for _ in 0..random.below(8) {
            let begin = SimTime::ZERO + random.between(Duration::ZERO, setting.storm);
            let end = begin + random.between(Duration::ZERO, setting.detect * 3);
            let (host, other) =
                (self.pick_spare(&mut random) as HostIndex, random.below(all) as usize);
            let (fault, undone) = match random.below(6) {
                0..=2 => {
                    (Fault::Crash(host), Fault::Recover { host, disk: storm::disk(&mut random) })
                }
                3 => (Fault::Pause(host), Fault::Resume(host)),
                4 => (Fault::Cut { from: host, to: other }, Fault::Mend { from: host, to: other }),
                _ => (Fault::Cut { from: other, to: host }, Fault::Mend { from: other, to: host }),
            };
            faults.push((begin, fault));
            faults.push((end, undone));
        }
        faults.retain(|(at, _)| *at < over);
        faults
    }

    /// Members that somebody wants to go.
    pub(crate) fn may_leave(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.wanted.iter().filter_map(|(_, change)| match change {
            MemberChange::Remove { member } => Some(*member),
            MemberChange::Add { replaces, .. } => *replaces,
            MemberChange::Observe { .. } | MemberChange::Promote { .. } => None,
        })
    }

    /// How many hosts there are, in a group that is set up with `size` members.
    pub(crate) fn hosts(&self, size: usize) -> usize {
        size + self.spares
    }

    /// Whether a host runs a process that is to be added.
    pub(crate) fn is_spare(&self, host: HostIndex) -> bool {
        self.spares > 0 && host >= self.first
    }

    /// What happens. Everyone is asked, and those that lead make the change.
    pub(crate) fn happenings<Input>(
        &self,
        input: impl Fn(MemberChange) -> Input,
    ) -> Happenings<Input> {
        let mut happenings = Vec::new();
        for (at, change) in &self.wanted {
            let asked = 0..self.first + self.spares;
            happenings
                .extend(asked.map(|host| (*at, Happening::Tell(host, input(change.clone())))));
        }
        let faults = self.faults.iter().cloned();
        happenings.extend(faults.map(|(at, fault)| (at, Happening::Fault(fault))));
        happenings
    }
}

fn contact(host: u64) -> Contact {
    Contact { name: String::new(), address: format!("host{host}:7101") }
}
