//! Members that are not set up alike, in some runs: other leases, other disks, and a minority with another list of members or
//! another guarantee.
//!
//! Leases and disks may differ: all invariants must hold. Who has another list or guarantee must be refused: so such members
//! are a minority, each with a list of its own in which it finds no quorum that agrees, and if votes were counted across lists
//! they would find one. In most such groups they had the common list at first, and their configuration is edited in the storm, as
//! by an operator who goes from host to host: the others have a leader then, and must keep having one. Where members differ from their
//! first start on, nobody that hears of it votes, and mostly there is no leader.
//!
//! In a few groups all members are new and have one of two lists, each with a quorum that agrees: nobody may lead before the lists are
//! made one, which they are after the storm.

use core::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::PeerGuarantee;

use crate::fault::{DiskFate, Fault};
use crate::host::member;
use crate::link::{Delay, LinkModel};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::storm::{Setting, rough_links};
use crate::time::SimTime;

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Difference {
    /// The list of members.
    Members(Vec<MemberId>),
    /// The guarantee.
    Guarantee,
}

/// Which of a host's two configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// That of its first start.
    First,
    /// What an operator made of it.
    Edited,
}

/// How the members of a run differ.
#[derive(Clone, Debug)]
pub(crate) struct Mixture {
    /// What each member's lease is, times the usual one.
    leases: Vec<f64>,
    /// What each member's election timeout is, times the usual one.
    timeouts: Vec<u32>,
    differences: Vec<Option<Difference>>,
    /// How many members have the first of two lists, in groups that are started so.
    first_list: Option<usize>,
    /// Whether they come about by edits in the storm; if not, they are there from the first start on.
    by_edit: bool,
    /// The longest time that a write takes, in runs with slow disks.
    pub(crate) slow_disks: Option<Duration>,
    /// Whether disks are stuck now and then.
    stuck_disks: bool,
    /// Whether every pair of members has links of its own quality.
    own_links: bool,
    /// For each pair of members, what messages take between them after the storm, as a share of what they take at most; in groups
    /// whose members are not all equally far from each other.
    distances: Option<Vec<f64>>,
}

impl Mixture {
    /// That of `seed`, for so many members.
    pub(crate) fn draw(seed: u64, size: usize) -> Self {
        let mut random = Random::new(seed, Stream::Mixture);
        let mixed = random.chance(0.3);
        let lease = |random: &mut Random| if mixed { random.pick(&[0.2, 1.0, 3.0]) } else { 1.0 };
        let leases = (0..size).map(|_| lease(&mut random)).collect();
        let timeout = |random: &mut Random| if mixed { random.pick(&[1, 1, 2]) } else { 1 };
        let timeouts = (0..size).map(|_| timeout(&mut random)).collect();
        let mut differences = vec![None; size];
        let first_list = first_list(seed, size);
        let minority = (size as u64).saturating_sub(1) / 2;
        // (Drawn in any case, so that everything else of the seed stays as it is.)
        if minority > 0 && random.chance(0.15) {
            let first = random.below(size as u64) as usize;
            for other in 0..=random.below(minority) as usize {
                let host = (first + other) % size;
                differences[host] = Some(Difference::draw(host, size, &mut random));
            }
        }
        if first_list.is_some() {
            differences.fill(None);
        }
        let slow = [300, 1000, 2000].map(Duration::from_millis);
        Mixture {
            leases,
            timeouts,
            first_list,
            by_edit: Random::new(seed ^ 0xED17, Stream::Mixture).chance(0.8),
            differences,
            slow_disks: random.chance(0.15).then(|| random.pick(&slow)),
            stuck_disks: random.chance(0.2),
            own_links: random.chance(0.3),
            distances: distances(seed, size),
        }
    }

    /// The same for a group in which all members have one list and guarantee.
    pub(crate) fn alike(self) -> Self {
        let size = self.leases.len();
        Mixture { differences: vec![None; size], first_list: None, distances: None, ..self }
    }

    /// Whether a member has the list and the guarantee of the majority.
    pub(crate) fn agrees(&self, host: HostIndex) -> bool {
        self.differences[host].is_none()
    }

    /// Whether all do.
    pub(crate) fn all_agree(&self) -> bool {
        self.differences.iter().all(Option::is_none)
    }

    /// Whether a member's configuration is edited in the storm.
    pub(crate) fn is_edited(&self, host: HostIndex) -> bool {
        self.by_edit && self.differences[host].is_some()
    }

    /// Whether the group is started with two lists, and edited to have one after the storm.
    pub(crate) fn has_two_lists(&self) -> bool {
        self.first_list.is_some()
    }

    /// What differs at a host by then.
    fn difference(&self, host: HostIndex, version: Version) -> Option<&Difference> {
        let is_there = !self.by_edit || version == Version::Edited;
        self.differences[host].as_ref().filter(|_| is_there)
    }

    /// The list of members that a host has.
    pub(crate) fn members(&self, host: HostIndex, version: Version) -> Vec<MemberId> {
        let size = self.leases.len();
        // Each list has one member of the other half.
        match self.first_list.filter(|_| version == Version::First) {
            Some(first) if host < first => return (0..=first).map(member).collect(),
            Some(first) => return (first - 1..size).map(member).collect(),
            None => {}
        }
        match self.difference(host, version) {
            Some(Difference::Members(members)) => members.clone(),
            _ => (0..size).map(member).collect(),
        }
    }

    /// The guarantee that a host has, where `usual` is that of the majority and `lease` its lease if it has one. A lease
    /// below `least` cannot be kept on calm days either.
    pub(crate) fn guarantee(
        &self,
        (host, version): (HostIndex, Version),
        usual: PeerGuarantee,
        lease: Duration,
        least: Duration,
    ) -> PeerGuarantee {
        let differs = self.difference(host, version) == Some(&Difference::Guarantee);
        match usual {
            PeerGuarantee::Fenced if differs => {
                PeerGuarantee::Leased { lease, allowance_per_mille: 100 }
            }
            PeerGuarantee::Leased { .. } if differs => PeerGuarantee::Fenced,
            PeerGuarantee::Leased { allowance_per_mille, .. } => {
                let lease = lease.mul_f64(self.leases[host]).max(least);
                PeerGuarantee::Leased { lease, allowance_per_mille }
            }
            PeerGuarantee::Fenced => PeerGuarantee::Fenced,
        }
    }

    /// A member's election timeout, where `usual` is the usual one.
    pub(crate) fn timeout(&self, host: HostIndex, usual: Duration) -> Duration {
        usual * self.timeouts[host]
    }

    /// The longest lease of all, where `usual` is the usual one.
    pub(crate) fn longest(&self, usual: Duration) -> Duration {
        usual.mul_f64(self.leases.iter().copied().fold(1.0, f64::max))
    }

    /// What makes links calm after the storm; and, once every process runs, what has all members agree that can.
    pub(crate) fn healing(&self, setting: &Setting) -> (Vec<Fault>, Vec<Fault>) {
        (self.calm(setting), self.settlement())
    }

    /// What makes links calm after the storm: all of them, and then those that are shorter than the longest. Both directions
    /// of a link are alike.
    fn calm(&self, setting: &Setting) -> Vec<Fault> {
        let mut faults = vec![Fault::SetLinks(Box::new(setting.calm))];
        let Some(distances) = &self.distances else { return faults };
        let pairs = (0..setting.size).flat_map(|to| (0..to).map(move |from| (from, to)));
        let links = pairs.zip(distances).flat_map(|((one, other), distance)| {
            let max_delay = setting.calm.max_delay.mul_f64(*distance);
            let delay = Delay::Uniform(max_delay.mul_f64(0.8), max_delay);
            let model = Box::new(LinkModel { delay, max_delay, ..setting.calm });
            let link = |from, to| Fault::SetLink { from, to, model: model.clone() };
            [link(one, other), link(other, one)]
        });
        faults.extend(links);
        faults
    }

    /// What makes two lists one: all are edited and restarted.
    fn settlement(&self) -> Vec<Fault> {
        let hosts = (0..self.leases.len()).filter(|_| self.has_two_lists());
        let settled = |host| {
            let recover = Fault::Recover { host, disk: DiskFate::Kept };
            [Fault::Edit(host), Fault::Crash(host), recover]
        };
        hosts.flat_map(settled).collect()
    }

    /// Edits of configurations, each with the restart that makes it count. The first elections are over by then, mostly.
    fn edits(&self, seed: u64, setting: &Setting) -> Vec<(SimTime, Fault)> {
        let mut random = Random::new(seed ^ 0xED17_5EED, Stream::Mixture);
        let mut faults = Vec::new();
        for host in (0..setting.size).filter(|host| self.is_edited(*host)) {
            let at = SimTime::ZERO + random.between(setting.storm / 3, setting.storm * 9 / 10);
            let back = at + random.between(Duration::ZERO, setting.detect / 2);
            faults.push((at, Fault::Edit(host)));
            faults.push((at, Fault::Crash(host)));
            faults.push((back, Fault::Recover { host, disk: DiskFate::Kept }));
        }
        faults
    }

    /// Faults of disks and links, and edits, that only some runs have.
    pub(crate) fn faults(&self, seed: u64, setting: &Setting) -> Vec<(SimTime, Fault)> {
        let mut random = Random::new(seed ^ 0x5EED, Stream::Mixture);
        let mut faults = Vec::new();
        let hosts = 0..setting.size;
        if self.own_links {
            let pairs = hosts.clone().flat_map(|from| (0..setting.size).map(move |to| (from, to)));
            faults.extend(pairs.map(|(from, to)| {
                let model = Box::new(rough_links(&mut random, setting.detect));
                (SimTime::ZERO, Fault::SetLink { from, to, model })
            }));
        }
        if self.stuck_disks {
            for _ in 0..1 + random.below(4) {
                let host = random.below(setting.size as u64) as usize;
                let at = SimTime::ZERO + random.between(Duration::ZERO, setting.storm);
                let end = at + random.between(Duration::ZERO, setting.detect * 4);
                faults.push((at, Fault::StickDisk(host)));
                faults.push((end, Fault::FreeDisk(host)));
            }
        }
        faults.extend(self.edits(seed, setting));
        let over = SimTime::ZERO + setting.storm;
        faults.retain(|(at, _)| *at < over);
        faults
    }
}

/// Where each of the two has at least two members that agree.
fn first_list(seed: u64, size: usize) -> Option<usize> {
    let mut random = Random::new(seed ^ 0x21575, Stream::Mixture);
    let choices = size.checked_sub(3).filter(|choices| *choices > 0)? as u64;
    random.chance(0.03).then(|| 2 + random.below(choices) as usize)
}

/// Near and far, in a third of the groups.
fn distances(seed: u64, size: usize) -> Option<Vec<f64>> {
    let mut random = Random::new(seed ^ 0xD157, Stream::Mixture);
    let pairs = size * size.saturating_sub(1) / 2;
    random.chance(0.3).then(|| (0..pairs).map(|_| random.pick(&[0.02, 0.1, 1.0])).collect())
}

impl Difference {
    fn draw(host: HostIndex, size: usize, random: &mut Random) -> Self {
        if random.chance(0.5) {
            return Difference::Guarantee;
        }
        // Itself, another, and one that nobody else knows: with votes across lists, two are a quorum.
        let other = (host + 1 + random.below(size as u64 - 1) as usize) % size;
        Difference::Members(vec![member(host), member(other), MemberId::new(100 + host as u32)])
    }
}
