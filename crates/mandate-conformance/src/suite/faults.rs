//! Leaders that do not know what has happened: stopped, or cut off.
//!
//! What is judged is what they did: each act of theirs against the first of the next leader. Under leases
//! none may come after it; without, the register refuses what does.

use std::time::Duration;

use super::{ATTEMPTS, CheckFailure, Proof, Trial, conclude, ensure};
use crate::group::ProcessGroup;
use crate::history::{Act, now};
use crate::protocol::Instruction;

pub(super) fn pause(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    let leader = group.settle()?;
    let began = now();
    group.pause(leader.member)?;
    let next = group.next(leader.term)?;
    // Its lease is over by any clock.
    sleep_until(&mut group, began, trial.lease() * 3 / 2)?;
    group.resume(leader.member)?;
    group.settle()?;
    // It goes on as a member like any other.
    let answer = group.order(leader.member, Instruction::Status)?;
    ensure(answer.is_ok(), || format!("{} does not answer: {answer:?}", leader.member))?;
    conclude(group, format!("the next acted after {:.1?}", after(began, next)))
}

pub(super) fn cut(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    // On a busy host the leader may not run for as long as its lease lasts: then another is cut off.
    for _ in 0..ATTEMPTS {
        let leader = group.settle()?;
        let began = now();
        group.cables()?.isolate(leader.member);
        let next = group.next(leader.term)?;
        let known = group.history()?.reign(leader.term, leader.member);
        group.cables()?.heal();
        let last = group.settle()?;
        if known.is_some_and(|reign| reign.last > began) {
            let (took, term) = (after(began, next), last.term);
            return conclude(
                group,
                format!("the next acted after {took:.1?}; term {term} in the end"),
            );
        }
    }
    Err(CheckFailure::Otherwise("the leader was to go on acting while it could not know".into()))
}

fn after(began: u64, act: Act) -> Duration {
    Duration::from_nanos(act.at.saturating_sub(began))
}

/// Waits until so much time has passed since some time.
fn sleep_until(group: &mut ProcessGroup, since: u64, length: Duration) -> Result<(), CheckFailure> {
    let passed = || Duration::from_nanos(now().saturating_sub(since)) >= length;
    Ok(group.until("time passes", |_| passed().then_some(()))?)
}
