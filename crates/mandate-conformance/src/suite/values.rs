//! What a leader publishes with its term.
//!
//! Every value says by whom and in which term it was published, so that a member that shows it with another leader or in
//! another term gives itself away. Members are asked all the time, from the first value until everyone shows the last.

use mandate_proto::identity::{MemberId, Term};
use mandate_runtime::Start;

use super::{CheckFailure, Proof, Trial, conclude, ensure};
use crate::group::{GroupError, ProcessGroup};
use crate::history::Act;
use crate::protocol::Instruction;
use crate::subject::Ability;

/// How often leadership moves: by resignation and by a kill in turn.
const MOVES: u32 = 4;

pub(super) fn with_the_term(trial: &Trial<'_>) -> Proof {
    let mut group = trial.group()?;
    let mut leader = publish_and_see(trial, &mut group)?;
    for number in 0..MOVES {
        let former = leader;
        match number % 2 {
            0 => drop(group.order(former.member, Instruction::Resign)?),
            _ => group.kill(former.member)?,
        }
        see_another(&mut group, former.term)?;
        match number % 2 {
            0 => too_late(&mut group, former)?,
            _ => group.restart(former.member, Start::Stored)?,
        }
        leader = publish_and_see(trial, &mut group)?;
    }
    conclude(group, format!("{} values", MOVES + 1))
}

/// The leader publishes a value, and everyone that knows leaders comes to show it; who does not lead publishes nothing.
fn publish_and_see(trial: &Trial<'_>, group: &mut ProcessGroup) -> Result<Act, CheckFailure> {
    let leader = loop {
        let leader = published(group)?;
        let knows =
            |member: &MemberId| *member == leader.member || trial.can(Ability::KnowTheLeader);
        let members: Vec<_> = group.members().into_iter().filter(knows).collect();
        let mut is_shown = true;
        for member in members {
            is_shown = is_shown && until_shown(group, member, leader.term)?;
        }
        // A busy host may cost a leader its lease before everyone has looked.
        if is_shown {
            break leader;
        }
    };
    for member in group.members() {
        if leads(group, member)? {
            continue;
        }
        let answer = group.order(member, Instruction::Publish("not-mine".into()))?;
        let excused = answer.is_err() || leads(group, member)?;
        ensure(excused, || format!("{member} does not lead, and published a value"))?;
        see(group, leader.member)?;
    }
    Ok(leader)
}

/// The leader publishes a value that names it and its term. A busy host may cost a leader its lease: then another does.
fn published(group: &mut ProcessGroup) -> Result<Act, CheckFailure> {
    loop {
        let leader = group.settle()?;
        let publish = Instruction::Publish(text(leader.member, leader.term));
        let answer = group.order(leader.member, publish)?;
        let Err(reason) = answer else { return Ok(leader) };
        let after = group.settle()?;
        ensure(after.term > leader.term, || {
            format!(
                "{} leads in term {}, and published nothing: {reason}",
                leader.member, leader.term
            )
        })?;
    }
}

fn leads(group: &mut ProcessGroup, member: MemberId) -> Result<bool, GroupError> {
    let seen = group.order(member, Instruction::Status)?.unwrap_or_default();
    Ok(seen.starts_with("leading") || seen.starts_with("jeopardy"))
}

/// Waits until a member shows a value of that term or a later one, or someone has acted in a later one: whether it was the former. What is
/// shown meanwhile must be of its term.
fn until_shown(
    group: &mut ProcessGroup,
    member: MemberId,
    term: Term,
) -> Result<bool, CheckFailure> {
    let mut asked = None;
    let mut wrong = None;
    let what = format!("{member} shows the value of term {term}");
    let is_shown = group.until(what, |group| {
        let number = match asked {
            Some(number) => number,
            None => *asked.insert(group.tell(member, Instruction::Value).ok()?),
        };
        let answer = group.answered(number)?;
        asked = None;
        match shown(&answer.unwrap_or_default()) {
            Ok(Some(of)) if of >= term => Some(true),
            Ok(_) => {
                let latest = group.history().ok()?.latest()?.term;
                (latest > term).then_some(false)
            }
            Err(what) => {
                wrong = Some(what);
                Some(false)
            }
        }
    })?;
    ensure(wrong.is_none(), || format!("{member} {}", wrong.unwrap_or_default()))?;
    Ok(is_shown)
}

/// Waits for a leader of a higher term, and asks everyone all the while.
fn see_another(group: &mut ProcessGroup, after: Term) -> Result<(), CheckFailure> {
    see_all(group)?;
    group.next(after)?;
    see_all(group)?;
    group.settle()?;
    see_all(group)
}

fn see_all(group: &mut ProcessGroup) -> Result<(), CheckFailure> {
    group.members().into_iter().try_for_each(|member| see(group, member))
}

fn see(group: &mut ProcessGroup, member: MemberId) -> Result<(), CheckFailure> {
    let answer = group.order(member, Instruction::Value)?.unwrap_or_default();
    shown(&answer).map(drop).map_err(|what| CheckFailure::Otherwise(format!("{member} {what}")))
}

/// A leader that has resigned publishes nothing any more, unless it leads again.
fn too_late(group: &mut ProcessGroup, former: Act) -> Result<(), CheckFailure> {
    let late = Instruction::Publish(text(former.member, former.term));
    let answer = group.order(former.member, late)?;
    let excused = answer.is_err() || leads(group, former.member)?;
    ensure(excused, || {
        format!("{} published in term {} after it had resigned", former.member, former.term)
    })
}

fn text(member: MemberId, term: Term) -> String {
    format!("{member}.{term}")
}

/// The term of the value that an answer shows, if it shows one; what is wrong with it otherwise.
fn shown(answer: &str) -> Result<Option<Term>, String> {
    let words: Vec<_> = answer.split(' ').collect();
    let [leader, term, value] = words[..] else { return Ok(None) };
    if value != format!("{leader}.{term}") {
        return Err(format!("shows {value} with {leader} and term {term}"));
    }
    Ok(term.parse().ok().map(Term::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_leader_or_term_is_found() {
        assert_eq!(shown(""), Ok(None));
        assert_eq!(shown("p2 7 p2.7"), Ok(Some(Term::new(7))));
        assert!(shown("p3 8 p2.7").is_err() && shown("p2 8 p2.7").is_err());
    }
}
