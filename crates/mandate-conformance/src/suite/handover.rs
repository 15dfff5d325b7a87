//! Leadership that is given away: by resignation, transfer, cancelled work and shutdown.
//!
//! "At once" is shown against the lease. A leader renews its lease well before half of it is over; if it
//! did not release it on going, nobody could lead before the rest had run out. So a successor that acts
//! within half a lease has not waited for it. A busy host may delay any one handover: of a few, the
//! fastest counts. Without leases only the harness's patience bounds it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mandate_proto::identity::MemberId;
use mandate_runtime::Start;

use super::{CheckFailure, Proof, Trial, WATCHED_ACTS, conclude, ensure, ensure_kept};
use crate::group::ProcessGroup;
use crate::history::{Act, now};
use crate::protocol::Instruction;
use crate::subject::Ability;

/// How often a handover may be tried to show that it is fast.
const ATTEMPTS: u32 = 5;

/// How long a member may take to end. The runtime lets go of a driver after two seconds, and engines
/// have last words and links to end; more is a hang.
const SHUTDOWN: Duration = Duration::from_secs(6);

/// Has leaders give up until one's successor acts within half a lease; how long the fastest took.
/// `give_up` tells when it asked the leader to.
fn at_once(
    trial: &Trial<'_>,
    group: &mut ProcessGroup,
    mut give_up: impl FnMut(&mut ProcessGroup, Act) -> Result<u64, CheckFailure>,
) -> Result<Duration, CheckFailure> {
    let mut fastest = Duration::MAX;
    let mut attempts = 0;
    for _ in 0..ATTEMPTS * 3 {
        let leader = group.settle()?;
        let began = give_up(group, leader)?;
        let next = group.next(leader.term)?;
        // Where the others do not agree in time, or have not joined yet, as on a busy host, the one that gave up may
        // be elected again, in a higher term.
        if next.member == leader.member {
            continue;
        }
        attempts += 1;
        fastest = fastest.min(Duration::from_nanos(next.at.saturating_sub(began)));
        if trial.lease().is_zero() || fastest < trial.lease() / 2 {
            return Ok(fastest);
        }
        if attempts == ATTEMPTS {
            break;
        }
    }
    ensure(fastest < Duration::MAX, || "nobody else came to lead, again and again".into())?;
    Err(CheckFailure::Otherwise(format!(
        "the next leader acted after {fastest:?} at best, as if it had waited for the lease"
    )))
}

/// Orders something that must be carried out.
fn must(
    group: &mut ProcessGroup,
    member: MemberId,
    order: Instruction,
) -> Result<(), CheckFailure> {
    let answer = group.order(member, order.clone())?;
    ensure(answer.is_ok(), || format!("{member} did not {order}: {answer:?}"))
}

/// Orders something that must be refused; the reason.
fn must_not(
    group: &mut ProcessGroup,
    member: MemberId,
    order: Instruction,
) -> Result<String, CheckFailure> {
    match group.order(member, order.clone())? {
        Err(reason) => Ok(reason),
        Ok(_) => Err(CheckFailure::Otherwise(format!("{member} did {order}"))),
    }
}

pub(super) fn resignation(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    let mut resigned = Vec::new();
    let fastest = at_once(trial, &mut group, |group, leader| {
        let began = now();
        must(group, leader.member, Instruction::Resign)?;
        resigned.push((leader, now()));
        Ok(began)
    })?;
    // Under another leader, the one that resigned has every chance to act.
    group.settle()?;
    group.watch(WATCHED_ACTS)?;
    for (Act { member, term, .. }, by) in resigned {
        let last = group.history()?.reign(term, member).map_or(0, |reign| reign.last);
        ensure(last <= by, || format!("{member} acted in term {term} after it had resigned"))?;
    }
    conclude(group, format!("the next acted after {fastest:.1?}"))
}

pub(super) fn transfer(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    let members = group.members();
    let mut moves = 0;
    for to in members.iter().chain(&members) {
        if group.settle()?.member != *to {
            hand_over(&mut group, *to)?;
            moves += 1;
        }
    }
    conclude(group, format!("{moves} transfers"))
}

/// For how long a leader may refuse to hand over to a member that runs: a bound for hangs.
const REFUSES: Duration = Duration::from_secs(60);

/// Has the leader hand over to a member. A leader that has not heard of that one for a while may
/// refuse, on a busy host: then nothing has changed, and it is asked again.
fn hand_over(group: &mut ProcessGroup, to: MemberId) -> Result<Act, CheckFailure> {
    let mut refused = String::new();
    let began = Instant::now();
    while began.elapsed() < REFUSES {
        let leader = group.settle()?;
        if let Err(reason) = group.order(leader.member, Instruction::Transfer(to))? {
            group.acts_after(leader.member, leader.term, now())?;
            refused = reason;
            continue;
        }
        let next = group.next(leader.term)?;
        // On a busy host it may have gone on from there before anyone looked.
        let mut later = group.history()?.reigns().filter(|(term, ..)| *term > leader.term);
        let first = later.next().map_or(next.member, |(_, member, _)| member);
        ensure(first == to, || format!("it went to {first} instead of {to}"))?;
        return Ok(next);
    }
    Err(CheckFailure::Otherwise(format!("{to} was refused again and again: {refused}")))
}

/// Has a member lead: by transfer, or, where there is none, because all others are gone.
fn bring_back(
    trial: &Trial<'_>,
    group: &mut ProcessGroup,
    to: MemberId,
) -> Result<(), CheckFailure> {
    if trial.can(Ability::Transfer) {
        hand_over(group, to)?;
        return Ok(());
    }
    let others: BTreeSet<_> = group.members().into_iter().filter(|member| *member != to).collect();
    for member in &others {
        group.terminate(*member)?;
    }
    for member in &others {
        group.ended(*member)?;
    }
    let only = group.settle()?.member;
    ensure(only == to, || format!("{only} leads and not {to}"))?;
    Ok(group.restart_all(&others, Start::Stored)?)
}

pub(super) fn refused_transfer(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    let leader = group.settle()?;
    let others: Vec<_> =
        group.members().into_iter().filter(|member| *member != leader.member).collect();
    let stranger = Instruction::Transfer(MemberId::new(99));
    let mut reasons = vec![
        must_not(&mut group, leader.member, stranger)?,
        must_not(&mut group, others[0], Instruction::Transfer(others[1]))?,
    ];
    // Where there is no transfer, everybody is refused.
    if trial.can(Ability::Transfer) {
        group.kill(others[0])?;
        until_suspected(trial, &mut group, leader.member, others[0])?;
    }
    reasons.push(must_not(&mut group, leader.member, Instruction::Transfer(others[0]))?);
    let after = group.settle()?;
    ensure_kept(leader.term, after.term)?;
    group.acts_after(leader.member, leader.term, now())?;
    conclude(group, reasons.join("; "))
}

/// Waits until a member has noticed that another is gone.
fn until_suspected(
    trial: &Trial<'_>,
    group: &mut ProcessGroup,
    by: MemberId,
    gone: MemberId,
) -> Result<(), CheckFailure> {
    let began = Instant::now();
    while began.elapsed() < trial.subject.patience() {
        let known = group.order(by, Instruction::Status)?.unwrap_or_default();
        let suspects = known.split_once(" suspects").map_or("", |(_, members)| members);
        if suspects.split(' ').any(|member| member == gone.to_string()) {
            return Ok(());
        }
        // Leaders act all the time: that paces the question.
        group.watch(1)?;
    }
    Err(CheckFailure::Otherwise(format!("{by} does not notice that {gone} is gone")))
}

pub(super) fn cancelled_work(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    let leader = group.settle()?;
    let waiting = group.members().into_iter().find(|member| *member != leader.member);
    if let Some(member) = waiting {
        must(&mut group, member, Instruction::Lead)?;
        must(&mut group, member, Instruction::Cancel)?;
    }
    // Who only waited has not moved leadership.
    let still = group.settle()?;
    ensure_kept(leader.term, still.term)?;
    group.acts_after(leader.member, leader.term, now())?;
    let fastest = at_once(trial, &mut group, |group, leader| {
        must(group, leader.member, Instruction::Lead)?;
        group.works(leader.member, leader.term)?;
        let began = now();
        must(group, leader.member, Instruction::Cancel)?;
        Ok(began)
    })?;
    // The handle whose work was cancelled still works.
    if group.settle()?.member != leader.member {
        bring_back(trial, &mut group, leader.member)?;
    }
    conclude(group, format!("the next acted after {fastest:.1?}"))
}

pub(super) fn shutdown(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    let mut slowest = Duration::ZERO;
    let fastest = at_once(trial, &mut group, |group, leader| {
        let began = now();
        group.terminate(leader.member)?;
        let status = group.ended(leader.member)?;
        slowest = slowest.max(Duration::from_nanos(now() - began));
        ensure(status.success(), || format!("{} ended with {status}", leader.member))?;
        group.next(leader.term)?;
        group.restart(leader.member, Start::Stored)?;
        Ok(began)
    })?;
    ensure(slowest < SHUTDOWN, || format!("a shutdown took {slowest:?}"))?;
    conclude(group, format!("the next acted after {fastest:.1?}, ended after {slowest:.1?}"))
}
