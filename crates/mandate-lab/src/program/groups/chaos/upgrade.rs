//! Members of two releases in one group: some are run by an older program while everything goes wrong. Then the members cannot be
//! changed; the rest is upgraded, one process after the other, and they can.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mandate_conformance::group::{GroupError, ProcessGroup};
use mandate_conformance::protocol::Instruction;
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{Contact, MemberChange};
use mandate_runtime::Start;

use super::runner::{Evidence, Outcome, Runner};
use super::target::ChaosTarget;

/// What a leader says that cannot change the members yet.
const TOO_OLD: &str = "speaks protocol version";

/// Nobody is there, and nobody need be: it observes.
const NOWHERE: &str = "192.0.2.1:7100";

/// Which members an older program runs.
pub(super) struct OlderProgram {
    program: PathBuf,
    members: RefCell<BTreeSet<MemberId>>,
}

impl OlderProgram {
    /// Every other member of so many, from the first on.
    pub(super) fn of_half(program: &Path, size: u32) -> Self {
        let members = (1..=size).step_by(2).map(MemberId::new).collect();
        OlderProgram { program: program.to_owned(), members: RefCell::new(members) }
    }

    /// Those that it runs still.
    pub(super) fn members(&self) -> Vec<MemberId> {
        self.members.borrow().iter().copied().collect()
    }

    /// It runs this member no more, from its next start on.
    pub(super) fn upgrade(&self, member: MemberId) {
        self.members.borrow_mut().remove(&member);
    }

    /// The program that runs a member, if it is this one.
    pub(super) fn of(&self, member: MemberId) -> Option<PathBuf> {
        self.members.borrow().contains(&member).then(|| self.program.clone())
    }
}

/// All faults are over: what is new has not begun, and begins when the rest is upgraded.
pub(super) fn complete(
    runner: &mut Runner<'_>,
    ground: &dyn ChaosTarget,
    say: &dyn Fn(&str),
) -> Result<Outcome, GroupError> {
    let older = ground.older();
    let group = &mut runner.group;
    let newer = group.members().into_iter().find(|member| !older.contains(member));
    let Some(newer) = newer.filter(|_| !older.is_empty()) else { return Ok(Outcome::Passed) };
    let observer = MemberId::new(group.members().len() as u32 + 1);
    say(&format!(
        "{newer} is to change the members beside {older:?}, which are of the older release"
    ));
    let answer = group.until(format!("{newer} says whether it changes the members"), |group| {
        let leader = group.settle().ok()?.member;
        if leader != newer {
            let _ = group.order(leader, Instruction::Transfer(newer)).ok()?;
            return None;
        }
        let answer = asked(group, newer, observer)?;
        (answer.is_ok() || answer.as_ref().is_err_and(|why| why.contains(TOO_OLD)))
            .then_some(answer)
    })?;
    match answer {
        Ok(_) => {
            let what = format!("{newer} changed the members, and {older:?} know nothing of that");
            return Ok(Outcome::Broken(Evidence { what: vec![what], around: Vec::new() }));
        }
        Err(why) => say(&format!("    {why}")),
    }
    for member in older {
        say(&format!("upgrade {member}"));
        ground.upgrade(member);
        runner.group.terminate(member)?;
        runner.group.ended(member)?;
        runner.group.restart(member, Start::Stored)?;
        runner.group.settle()?;
    }
    runner.group.until("the members are changed once all are upgraded", |group| {
        let leader = group.settle().ok()?.member;
        asked(group, leader, observer)?.ok()
    })?;
    say(&format!("all are upgraded, and {observer} observes"));
    runner.settle_first()
}

/// Has the leader add one that observes; what it answers.
fn asked(
    group: &mut ProcessGroup,
    leader: MemberId,
    member: MemberId,
) -> Option<Result<String, String>> {
    let contact = Contact { name: String::new(), address: NOWHERE.to_owned() };
    group.order(leader, Instruction::Change(MemberChange::Observe { member, contact })).ok()
}
