//! Terms: one leader each, and ever higher.

use mandate_runtime::Start;

use super::{Proof, Trial, conclude, ensure};

const KILLS: u32 = 4;

pub(super) fn over_kills(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    for _ in 0..KILLS {
        let leader = group.settle()?;
        group.kill(leader.member)?;
        group.next(leader.term)?;
        group.restart(leader.member, Start::Stored)?;
    }
    group.settle()?;
    let terms = group.history()?.reigns().count();
    conclude(group, format!("{KILLS} kills, {terms} terms"))
}

pub(super) fn across_restarts(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    let first = group.settle()?;
    group.kill(first.member)?;
    group.restart(first.member, Start::Stored)?;
    let second = group.next(first.term)?;
    group.settle()?;
    let all = group.members();
    for member in &all {
        group.kill(*member)?;
    }
    // Nobody runs: whatever begins from here on must be above everything before, whatever the guarantee.
    let highest = group.history()?.latest().map_or(second.term, |act| act.term);
    for member in &all {
        group.restart(*member, Start::Stored)?;
    }
    let last = group.settle()?;
    ensure(last.term > highest, || {
        format!("after a restart of all, term {} began; there had been {highest}", last.term)
    })?;
    conclude(group, format!("terms {}, {}, {}", first.term, second.term, last.term))
}
