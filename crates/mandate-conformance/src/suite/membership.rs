//! What members know of each other, and that each runs once.

use mandate_runtime::Start;

use super::{Proof, Trial, conclude, ensure, ensure_kept};
use crate::protocol::Instruction;

/// After each change all members that run come to name the same leader and term, and that leader acts in
/// it. What they named on the way is for the judge: of each term one leader, and terms that never fall.
pub(super) fn agreement(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    let leader = group.settle()?;
    group.kill(leader.member)?;
    group.next(leader.term)?;
    let second = group.settle()?;
    group.restart(leader.member, Start::Stored)?;
    let third = group.settle()?;
    ensure(third.term >= second.term, || "the newcomer brought an older term".into())?;
    let views = group.history()?.views().len();
    conclude(group, format!("{views} views"))
}

pub(super) fn twin(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    let leader = group.settle()?;
    let mut why = String::new();
    for member in group.members() {
        let (status, complaint) = group.start_twin(member)?;
        ensure(!status.success(), || format!("a second {member} was let in"))?;
        ensure(!complaint.trim().is_empty(), || format!("a second {member} was not told why"))?;
        why = complaint.lines().last().unwrap_or_default().to_owned();
        // The first one is as well as before.
        let answer = group.order(member, Instruction::Status)?;
        ensure(answer.is_ok(), || format!("{member} does not answer any more: {answer:?}"))?;
    }
    let after = group.settle()?;
    ensure_kept(leader.term, after.term)?;
    conclude(group, format!("\"{why}\""))
}
