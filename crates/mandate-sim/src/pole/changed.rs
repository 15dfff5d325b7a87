//! What must happen after a storm in which members came and went.

use core::time::Duration;

use mandate_proto::election::{State, quorum};
use mandate_proto::pole::installation::{Contact, MemberChange, Roster, WhyNoVote};
use mandate_proto::pole::member::{Input, LeaderRequest};
use mandate_proto::wire;

use super::scenario::Case;
use crate::host::{host_of, member};
use crate::network::HostIndex;
use crate::scenario::Run;

/// How much longer than in a group that does not change a leader may be waited for: a list has to reach everyone first.
const LISTS: u32 = 2;

impl Run<'_, Case> {
    /// A quorum of the newest list that has its disks has a leader that its members follow, and can be changed once more. All the
    /// others hear of the list.
    pub(super) fn demand_of_a_changed_group(&mut self) {
        // Lists reach everyone, and members are promoted and removed that it was begun with.
        let bound = (self.recovery() + self.case.setting.interval * 8) * LISTS;
        self.run_until(self.world.now() + bound);
        let Some(roster) = self.newest_roster() else { return };
        let voters: Vec<_> = roster.voters().map(host_of).filter(|it| self.is_kept(*it)).collect();
        if voters.len() < roster.quorum() || self.world.observer.is_done() {
            return;
        }
        self.demand_within("a leader of a changed group", bound, |run| {
            let lacks = run.newest_roster().is_none_or(|roster| !run.is_led_by(&roster));
            lacks.then(|| format!("{:?}", run.world.observer.invariants.leaders.states))
        });
        // Where writes take as long as leases are, a change may cost leadership.
        if self.has_slow_disks() {
            return;
        }
        // There is no process of it: it observes, and costs nothing.
        let (member, contact) = (member(self.case.size), Contact::default());
        let (began, leader) = (self.world.now(), self.leader());
        let is_done = |run: &Self| {
            let settled = run.world.observer.invariants.changes.newest_settled();
            let machines = (0..run.case.size).filter_map(|host| run.world.machine(host));
            let mut rosters = machines.map(|machine| machine.roster());
            rosters.any(|roster| roster.id() <= settled && roster.has(member))
        };
        // Any member can be asked: it has the leader do it.
        let host = leader.map_or(0, |leader| (leader + 1) % self.case.size);
        let mut number = u64::MAX;
        self.world.set_willing(Some(Duration::ZERO));
        while !is_done(self) && self.world.now() < began + bound && !self.world.observer.is_done() {
            let change = MemberChange::Observe { member, contact: contact.clone() };
            for asked in [host, leader.unwrap_or(host)] {
                let request = LeaderRequest::Change(change.clone());
                self.world.tell(asked, Input::Ask { number, request });
            }
            number -= 1;
            let now = self.world.now();
            self.run_until(now + self.step() * 3);
        }
        let took = self.world.now() - began;
        self.world.observer.took(took, bound);
        if !is_done(self) {
            let what = format!("a change was not settled within {bound:?}");
            self.world.observer.stall("a list is changed", what);
        }
        // A claim may overtake the list that it counts by: it is repeated after a third of the lease.
        let lease = self.case.config.guarantee().lease();
        let may_lapse = !lease.is_zero() && self.step() * 6 > lease;
        // Without leases a leader gives way to whom a vote went astray, if a voter without its disk makes that a quorum (seed 129931).
        let may_be_stuck = lease.is_zero() && voters.len() < roster.voters().count();
        let is_judged =
            !self.moves() && !may_lapse && !may_be_stuck && !self.world.observer.is_done();
        if is_judged && self.leader() != leader {
            let what = format!("{leader:?} led before it, and now {:?}", self.leader());
            self.world.observer.stall("a change costs no leadership", what);
        }
        self.demand_within("everyone hears of a change", bound, |run| {
            let lacks = |host: &HostIndex| {
                run.world.machine(*host).is_some_and(|machine| !machine.roster().has(member))
            };
            (0..run.case.size).find(lacks).map(|host| format!("host {host} has not"))
        });
    }

    /// Whether enough members of the newest list have votes for a leader, or will have when they have heard of it.
    pub(super) fn newest_has_quorum(&self) -> bool {
        self.newest_roster().is_some_and(|roster| {
            let voters = roster.voters().map(host_of);
            let knows = |host: &HostIndex| {
                let machine = self.world.machine(*host);
                let speaks = machine.map(|machine| machine.config().speaks());
                roster.id().is_seed() || speaks >= Some(wire::CHANGES_SINCE)
            };
            voters.filter(|host| self.is_kept(*host) && knows(host)).count() >= roster.quorum()
        })
    }

    /// The newest list that any member knows.
    fn newest_roster(&self) -> Option<Roster> {
        let rosters = (0..self.case.size).filter_map(|host| self.world.machine(host));
        rosters.map(|machine| machine.roster()).max_by_key(|roster| roster.id()).cloned()
    }

    /// Whether a member has its disk, and so a vote, or will have one once it hears of the list.
    fn is_kept(&self, host: HostIndex) -> bool {
        let never = |why| {
            matches!(
                why,
                WhyNoVote::Lost | WhyNoVote::Outdated | WhyNoVote::WentBack | WhyNoVote::New
            )
        };
        let machine = self.world.machine(host);
        machine.is_some_and(|it| it.no_vote().is_none_or(|no_vote| !never(no_vote.why)))
    }

    /// Whether a voter leads whom a quorum of the list follows, itself included.
    fn is_led_by(&self, roster: &Roster) -> bool {
        let Some(leader) = self.leader().map(member) else { return false };
        let states = &self.world.observer.invariants.leaders.states;
        let follows = |id: &_| match states[host_of(*id)] {
            State::Leading { .. } => *id == leader,
            State::Following { leader: followed, .. } => followed == leader,
            State::Electing => false,
        };
        let followers = roster.voters().filter(|id| host_of(*id) < self.case.size).filter(follows);
        followers.count() >= quorum(roster.voters().count())
    }
}
