//! Members of two releases in one group, in runs of their own: some hosts begin with a release that speaks the oldest version of the
//! protocol, and are upgraded in the storm or after it, one by one, while members are to come and go. A member of that release
//! is one that is held back: it says what that version can say, and what is said to it goes through the same bytes.

use core::time::Duration;
use std::collections::BTreeSet;

use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::Roster;
use mandate_proto::pole::member::Config;
use mandate_proto::wire;

use super::scenario::Case;
use crate::fault::{DiskFate, Fault};
use crate::host::host_of;
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::scenario::Run;
use crate::storm::Setting;
use crate::time::SimTime;

/// The invariant.
pub(super) const NAME: &str = "what is new begins when all can";

/// Who begins with the older release, and when it is upgraded; nobody in the other runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Releases {
    /// By host; `Some(None)`: after the storm.
    upgrades: Vec<Option<Option<SimTime>>>,
}

impl Releases {
    /// Those of `seed`, among the members that a group is set up with. One is old at least.
    pub(super) fn draw(seed: u64, setting: &Setting) -> Self {
        let mut random = Random::new(seed ^ 0x0DD, Stream::Setting);
        let all = setting.size as u64;
        let (always, share) = (random.below(all), random.pick(&[0.2, 0.5, 0.9]));
        let upgrades = (0..all).map(|host| {
            let is_old = host == always || random.chance(share);
            let at = random.between(setting.detect, setting.storm);
            let in_storm = random.chance(0.4);
            is_old.then(|| in_storm.then_some(SimTime::ZERO + at))
        });
        Releases { upgrades: upgrades.collect() }
    }

    /// Whether there are two.
    pub(super) fn is_mixed(&self) -> bool {
        !self.upgrades.is_empty()
    }

    /// Whether a host begins with the older release.
    pub(super) fn is_old(&self, host: HostIndex) -> bool {
        self.upgrades.get(host).is_some_and(Option::is_some)
    }

    /// What a host of the older release is configured with, and what after its upgrade.
    pub(super) fn configure(&self, host: HostIndex, config: Config) -> (Config, Option<Config>) {
        match self.is_old(host) {
            true => {
                let old = config.clone().with_protocol(wire::OLDEST);
                (old.expect("that is spoken"), Some(config))
            }
            false => (config, None),
        }
    }

    /// The upgrades in the storm: the process is stopped, and another program started in its place a while later.
    pub(super) fn faults(&self, seed: u64, detect: Duration) -> Vec<(SimTime, Fault)> {
        let mut random = Random::new(seed ^ 0x0DD, Stream::Faults);
        let mut faults = Vec::new();
        for (host, at) in self.upgrades.iter().enumerate() {
            let Some(Some(at)) = at else { continue };
            let again = *at + random.between(Duration::ZERO, detect * 2);
            faults.push((*at, Fault::Edit(host)));
            faults.push((*at, Fault::Crash(host)));
            faults.push((again, Fault::Recover { host, disk: DiskFate::Kept }));
        }
        faults
    }
}

/// Nobody who stays in a group is left behind by its first change: watched, from what members tell.
#[derive(Debug, Default)]
pub(super) struct NobodyLeftBehind {
    /// Hosts on which the older release runs, or ran last.
    old: BTreeSet<HostIndex>,
    /// Members that somebody wanted removed or replaced: they may be left behind.
    may_leave: BTreeSet<MemberId>,
}

impl NobodyLeftBehind {
    pub(super) fn new(
        old: impl IntoIterator<Item = HostIndex>,
        may_leave: impl IntoIterator<Item = MemberId>,
    ) -> Self {
        let (old, may_leave) = (old.into_iter().collect(), may_leave.into_iter().collect());
        NobodyLeftBehind { old, may_leave }
    }

    /// A process was started, of the newer release perhaps.
    pub(super) fn started(&mut self, host: HostIndex, is_new: bool) {
        if is_new {
            self.old.remove(&host);
        }
    }

    /// Somebody goes by this list.
    pub(super) fn changed(&self, roster: &Roster) -> Result<(), String> {
        let stays = |id: &MemberId| !self.may_leave.contains(id);
        let is_old = |id: &MemberId| self.old.contains(&host_of(*id));
        match roster.members().filter(stays).find(is_old) {
            Some(member) if !roster.id().is_seed() => Err(format!(
                "the list {} names {member}, which knows of no list but the first",
                roster.id()
            )),
            _ => Ok(()),
        }
    }
}

impl Run<'_, Case> {
    /// A group of two releases has a leader. Then the rest is upgraded, one by one.
    pub(super) fn upgrade_the_rest(&mut self) {
        if !self.case.releases.is_mixed() {
            return;
        }
        let bound = self.recovery() + self.case.setting.interval * 8;
        self.run_until(self.world.now() + bound);
        if self.newest_has_quorum() {
            self.demand_within("a leader of a group of two releases", bound, |run| {
                run.leader().is_none().then_some("there is none")
            });
        }
        let old = (0..self.case.size).filter(|host| {
            let machine = self.world.machine(*host);
            machine.is_some_and(|machine| machine.config().speaks() < wire::VERSION)
        });
        for host in old.collect::<Vec<_>>() {
            self.inject_all([Fault::Edit(host), Fault::Crash(host)]);
            let step = self.step();
            self.run_until(self.world.now() + step);
            self.inject_all([Fault::Recover { host, disk: DiskFate::Kept }]);
            self.run_until(self.world.now() + bound);
        }
    }
}
