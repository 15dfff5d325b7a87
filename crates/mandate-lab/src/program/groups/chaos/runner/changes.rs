//! Faults that change who the members are.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mandate_conformance::group::GroupError;
use mandate_conformance::protocol::Instruction;
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{MemberChange, NoChange};
use mandate_runtime::Start;

use super::super::membership::{adding, is_refusal};
use super::super::storm::{CUTS, Strike, Target};
use super::{Runner, refused};

/// Between two looks at whether a change that is wanted can be made, while faults last.
const LOOK: Duration = Duration::from_millis(20);

/// How long members that would have to confirm a change stand still, at the longest, while two are asked for.
const TWO_AT_ONCE: Duration = Duration::from_secs(5);

impl Runner<'_> {
    /// Changes who the members are, if the fault is one of those; whether it is.
    pub(super) fn change(
        &mut self,
        fault: &Strike,
        say: &dyn Fn(&str),
    ) -> Result<bool, GroupError> {
        match fault {
            Strike::AddMember if self.membership.can_grow() => self.add(None, say)?,
            Strike::AddMember => self.remove(Target::Leader, say)?,
            Strike::ReplaceMember { target, is_lost } => self.replace(*target, *is_lost, say)?,
            Strike::RemoveMember(target) if self.membership.can_shrink() => {
                self.remove(*target, say)?;
            }
            Strike::RemoveMember(_) => self.add(None, say)?,
            Strike::TwoChanges => self.two_at_once(say)?,
            other => {
                if CUTS.contains(&other.kind()) {
                    self.membership.cut(true);
                }
                return Ok(false);
            }
        }
        self.membership.go_on(&mut self.group, &self.paused)?;
        Ok(true)
    }

    /// Whether members come and go here.
    pub(super) fn members_change(&self) -> bool {
        self.ground.address(MemberId::new(1)).is_some()
    }

    /// Leaves everything as it is for so long, while the leader of the moment goes on with changes that are wanted.
    pub(super) fn hold(&mut self, length: Duration) -> Result<(), GroupError> {
        if !self.members_change() {
            sleep(length);
            return Ok(());
        }
        let end = Instant::now() + length;
        while Instant::now() < end {
            self.membership.go_on(&mut self.group, &self.paused)?;
            sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Who leads, if it is a process that can be told something.
    fn leader(&mut self) -> Result<Option<MemberId>, GroupError> {
        let leader = self.group.history()?.latest().map(|act| act.member);
        let running = self.group.members();
        Ok(leader.filter(|id| running.contains(id) && !self.paused.contains(id)))
    }

    /// Starts one more, which waits to be added. How it is added, if there is a place for it.
    fn newcomer(&mut self, replaces: Option<MemberId>) -> Result<Option<MemberChange>, GroupError> {
        let newcomer = self.membership.next_id();
        let Some(address) = self.ground.address(newcomer) else { return Ok(None) };
        self.group.begin_all(&BTreeSet::from([newcomer]), Start::Join)?;
        Ok(Some(adding(newcomer, address, replaces)))
    }

    fn add(&mut self, replaces: Option<MemberId>, say: &dyn Fn(&str)) -> Result<(), GroupError> {
        let Some(change) = self.newcomer(replaces)? else { return Ok(()) };
        let instead = replaces.map(|old| format!(" in place of {old}")).unwrap_or_default();
        self.note(format!("add {}{instead}", change.member()), say);
        self.want(change)
    }

    fn want(&mut self, change: MemberChange) -> Result<(), GroupError> {
        let leader = self.leader()?;
        self.membership.want(change, leader);
        Ok(())
    }

    fn replace(
        &mut self,
        target: Target,
        is_lost: bool,
        say: &dyn Fn(&str),
    ) -> Result<(), GroupError> {
        let old = self.member(target)?;
        if !self.membership.stays(old) {
            return self.add_or_remove(say);
        }
        if is_lost && !self.membership.has_lost() {
            self.note(format!("{old} ends, and its disk is lost"), say);
            if self.group.members().contains(&old) {
                self.kill(old)?;
            }
            self.ground.lose_disk(old).map_err(refused(format!("lose the disk of {old}")))?;
            self.membership.loses_disk(old);
            // One that was added, by whatever starts it, as one that joins once more.
            let start = if old.get() <= self.size { Start::Lost } else { Start::Join };
            self.diskless.insert(old, start);
            self.killed.insert(old);
        }
        self.add(Some(old), say)
    }

    fn remove(&mut self, target: Target, say: &dyn Fn(&str)) -> Result<(), GroupError> {
        let old = self.member(target)?;
        if !self.membership.stays(old) {
            return self.add_or_remove(say);
        }
        self.note(format!("remove {old}"), say);
        self.want(MemberChange::Remove { member: old })
    }

    /// The one that was meant leaves already: another change instead.
    fn add_or_remove(&mut self, say: &dyn Fn(&str)) -> Result<(), GroupError> {
        if self.membership.can_grow() {
            return self.add(None, say);
        }
        let stays = |id: &MemberId| self.membership.stays(*id);
        let Some(old) = self.membership.voters().iter().copied().find(stays) else {
            return Ok(());
        };
        self.note(format!("remove {old}"), say);
        self.want(MemberChange::Remove { member: old })
    }

    /// Asks the leader to add a member and to remove another, at once, while the others stand still, so that the first change cannot be
    /// settled before the second is looked at: that must be refused. The first stays wanted.
    fn two_at_once(&mut self, say: &dyn Fn(&str)) -> Result<(), GroupError> {
        let Some(leader) = self.leader()? else { return self.add_or_remove(say) };
        let stays = |id: &MemberId| *id != leader && self.membership.stays(*id);
        let staying: Vec<_> = self.membership.voters().iter().copied().filter(stays).collect();
        let [first, .., last] = staying[..] else { return self.add_or_remove(say) };
        let replaces = (!self.membership.can_grow()).then_some(first);
        let Some(adding) = self.newcomer(replaces)? else { return Ok(()) };
        let removing = MemberChange::Remove { member: last };
        self.note(
            format!("{leader} is to add {} and remove {last}, at once", adding.member()),
            say,
        );
        let others = self.group.members().into_iter();
        let others: Vec<_> =
            others.filter(|id| *id != leader && !self.paused.contains(id)).collect();
        others.iter().try_for_each(|id| self.group.pause(*id))?;
        let one = self.group.tell(leader, Instruction::Change(adding.clone()))?;
        let other = self.group.tell(leader, Instruction::Change(removing))?;
        self.membership.want(adding, Some(leader));
        self.membership.was_asked(leader, one);
        let began = Instant::now();
        let answer = loop {
            self.group.history()?;
            let answer = self.group.answered(other);
            if answer.is_some() || began.elapsed() > TWO_AT_ONCE {
                break answer;
            }
            sleep(Duration::from_millis(1));
        };
        others.iter().try_for_each(|id| self.group.resume(*id))?;
        match answer {
            Some(Ok(list)) => self.misdeeds.push(format!(
                "{last} was removed by list {list} while another change was under way, and no quorum ran"
            )),
            Some(Err(reason)) if is_refusal(&reason, NoChange::UnderWay) => {
                self.note(format!("{leader} refuses the second: another is under way"), say);
                self.membership.was_refused();
            }
            // It did not lead by then.
            Some(Err(reason)) if reason.starts_with("refused: ") => {
                self.note(format!("{leader} makes neither: {reason}"), say);
            }
            // It was taken first, or not looked at for so long: what comes of it is to be seen like of any other.
            answer => {
                self.note(format!("{leader} does not refuse the second: {answer:?}"), say);
                self.membership.want(MemberChange::Remove { member: last }, Some(leader));
                if answer.is_none() {
                    self.membership.was_asked(leader, other);
                }
            }
        }
        Ok(())
    }

    /// Has the changes of this phase made, and ends processes of members that were removed in an earlier one. What must not be.
    pub(super) fn complete_changes(&mut self) -> Result<Vec<String>, GroupError> {
        let mut found = std::mem::take(&mut self.misdeeds);
        if !self.members_change() {
            return Ok(found);
        }
        let ground = self.ground;
        let address = |member| ground.address(member).map(|at| at.to_string()).unwrap_or_default();
        let reuse = |member| adding(member, address(member), None);
        found.extend(self.membership.complete(&mut self.group, reuse)?);
        for member in self.membership.pass() {
            if self.group.members().contains(&member) {
                self.group.terminate(member)?;
                self.group.ended(member)?;
            }
        }
        found.extend(self.membership.violations(&mut self.group)?);
        Ok(found)
    }
}
