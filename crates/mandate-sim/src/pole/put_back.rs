//! A disk that is put back to an older state, as a backup would: outside what is guaranteed, so it must be noticed.
//!
//! In a group that is well a follower crashes, or the leader, which another replaces, and comes back with its disk as it was some
//! writes ago. Who remembers more than it says so, before it can promise a term twice; it has no vote until it has asked all
//! others, and then has one again.
//!
//! In some storms disks are put back, too, whosever they are. Then a term may be held twice, or two mandates at once, if nobody who
//! remembers is heard before it counts; that is no violation. But what must happen after the storm must happen.

use core::time::Duration;

use mandate_proto::pole::member::Member;

use super::scenario::Case;
use crate::fault::{DiskFate, Fault, MemberName};
use crate::host::host_of;
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::scenario::Run;
use crate::storm::Setting;
use crate::time::SimTime;

/// In a few runs disks are put back in the storm, the leader's perhaps.
pub(super) fn older_disks(seed: u64, setting: &Setting) -> Vec<(SimTime, Fault)> {
    let mut random = Random::new(seed ^ 0x01D, Stream::Faults);
    let mut faults = Vec::new();
    if !random.chance(0.1) {
        return faults;
    }
    for _ in 0..1 + random.below(2) {
        let host = random.below(setting.size as u64) as usize;
        let at = SimTime::ZERO + random.between(setting.storm / 3, setting.storm);
        let back = at + random.between(Duration::ZERO, setting.detect);
        let disk = DiskFate::Restored(1 + random.below(4) as usize);
        faults.push((at, Fault::Crash(host)));
        faults.push((back, Fault::Recover { host, disk }));
    }
    faults
}

impl Run<'_, Case> {
    /// Puts back the disk of one that follows `leader`, or its own, and demands that this is noticed.
    pub(super) fn demand_that_an_older_disk_is_noticed(&mut self, leader: HostIndex) {
        let follows = |host: &HostIndex| *host != leader && self.follows(*host, leader);
        let followers: Vec<_> = (0..self.case.setting.size).filter(follows).collect();
        if followers.is_empty() {
            return;
        }
        let mut host = self.case.random.pick(&followers);
        let writes = 1 + self.case.random.below(3) as usize;
        let deposed = self.case.hints.chance(0.3);
        if deposed {
            host = leader;
        }
        let term = self.promised(host);
        self.world.inject(Fault::Crash(host));
        if deposed {
            self.await_a_successor();
        }
        self.world.inject(Fault::Recover { host, disk: DiskFate::Restored(writes) });
        if self.promised(host) >= term {
            return;
        }
        // Two rounds of pings, and the way there and back.
        let ping = self.case.config.answers_within();
        self.run_until(self.world.now() + ping + self.step() * 6);
        if self.world.observer.is_done() {
            return;
        }
        // If its leader had it promise the same again before that, nothing is forgotten that matters.
        if !self.world.observer.invariants.went_back[host] && self.promised(host) < term {
            let what = format!(
                "{} has forgotten term {term:?} (knows {:?}), and nobody says so",
                MemberName(host),
                self.promised(host)
            );
            return self.world.observer.stall("an older disk is noticed", what);
        }
        self.run_until(self.world.now() + self.case.setting.interval * 4 + self.step() * 12);
        let votes = self.world.machine(host).is_some_and(Member::has_vote);
        if !votes && !self.world.observer.is_done() {
            let what = format!("{} has no vote, though all others are there", MemberName(host));
            self.world.observer.stall("an older disk is recovered from", what);
        }
    }

    fn promised(&self, host: HostIndex) -> Option<u64> {
        self.world.machine(host).map(|machine| machine.promised_term().get())
    }

    fn follows(&self, host: HostIndex, leader: HostIndex) -> bool {
        use mandate_proto::election::State;
        matches!(self.world.observer.invariants.leaders.states[host],
            State::Following { leader: followed, .. } if host_of(followed) == leader)
    }
}
