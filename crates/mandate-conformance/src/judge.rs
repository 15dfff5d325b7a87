//! What in a history must not be.
//!
//! A pure function: the same history, the same verdict. Which rules hold depends on what the engine
//! promises. Time is compared exactly: all acts carry readings of one clock, each taken *before* the
//! mandate said yes, so an act proves that the mandate held at its time or later.
//!
//! | rule | fenced | leased |
//! | --- | --- | --- |
//! | in one term, one member acts | yes | yes |
//! | no act in a term after the first act in a higher one | by the same member | by anyone |
//! | no term begins after a higher one has begun | by the same member | by anyone |
//! | who sees a leader of a term names the one that acts in it, and all name the same | yes | yes |
//! | the term that a member sees never falls, also across its restarts | yes | yes |
//! | the register takes no older term after a newer, and of one term only one member's | yes | yes |
//! | no mandate holds after the register has refused its term | no | yes |
//!
//! Under *fenced*, a leader that was deposed without knowing may act: that is what terms are checked for,
//! and it may even be its first act. Not promised by anybody: that a leader which someone names ever acts
//! (it may die before), or that views change in the same order everywhere.

use std::collections::BTreeMap;
use std::time::Duration;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::PeerGuarantee;

use crate::history::{History, RefusedWrite};
use crate::register::Accepted;

/// Something that must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryViolation {
    /// A term had two leaders.
    #[error("in term {term} both {} and {} acted", members[0], members[1])]
    TwoInOneTerm {
        /// The term.
        term: Term,
        /// Two that acted in it.
        members: [MemberId; 2],
    },
    /// A leader acted after its successor had begun.
    #[error("{member} acted in term {term} until {overlap:?} after term {newer} had begun")]
    StaleAct {
        /// The former leader.
        member: MemberId,
        /// In its term.
        term: Term,
        /// The higher term in which someone had acted.
        newer: Term,
        /// For how long both acted.
        overlap: Duration,
    },
    /// A term began after a higher one.
    #[error("term {term} of {member} began after the higher term {newer} had")]
    TermsFell {
        /// Whose term.
        member: MemberId,
        /// The lower one, which began later.
        term: Term,
        /// The higher one.
        newer: Term,
    },
    /// A member named a leader of a term that had another.
    #[error("{observer} named {named} as the leader of term {term}, which was {other}")]
    NamedAnother {
        /// Who named it.
        observer: MemberId,
        /// The term.
        term: Term,
        /// Whom it named.
        named: MemberId,
        /// Who acted in it, or was named by others.
        other: MemberId,
    },
    /// A member saw a term after a higher one.
    #[error("{member} saw term {later} after term {earlier}")]
    ViewFell {
        /// The member whose view fell.
        member: MemberId,
        /// What it saw first.
        earlier: Term,
        /// And then.
        later: Term,
    },
    /// The register took an older term after a newer.
    #[error("the register took a write of {}, term {}, after term {newer}", write.member, write.term)]
    RegisterFell {
        /// What it took.
        write: Accepted,
        /// What it had taken.
        newer: Term,
    },
    /// A mandate held although a newer leader had written.
    #[error(
        "the mandate of {} held in term {} after term {} was in the register",
        refusal.member, refusal.term, refusal.highest
    )]
    HeldAfterRefusal {
        /// What was refused.
        refusal: RefusedWrite,
    },
}

/// Finds everything in a history that an engine of this guarantee must not do.
pub fn judge(guarantee: PeerGuarantee, history: &History) -> Vec<HistoryViolation> {
    let is_leased = matches!(guarantee, PeerGuarantee::Leased { .. });
    let mut found = Vec::new();
    two_in_one_term(history, &mut found);
    order_of_acts(history, is_leased, &mut found);
    names(history, &mut found);
    views(history, &mut found);
    register(history, is_leased, &mut found);
    found
}

fn two_in_one_term(history: &History, found: &mut Vec<HistoryViolation>) {
    let mut leaders = BTreeMap::new();
    let acted = history.reigns().map(|(term, member, _)| (term, member));
    // Of a term that nobody was seen to act in, what was written still counts.
    let written = history.accepted.iter().map(|write| (write.term, write.member));
    for (term, member) in acted.chain(written) {
        let first = *leaders.entry(term).or_insert(member);
        let violation = HistoryViolation::TwoInOneTerm { term, members: [first, member] };
        if first != member && !found.contains(&violation) {
            found.push(violation);
        }
    }
}

/// Acts of a reign against the beginnings of all higher terms. Of several only the earliest is named.
fn order_of_acts(history: &History, is_leased: bool, found: &mut Vec<HistoryViolation>) {
    // The earliest beginning of a higher term: by anyone, and by each member.
    let mut earliest: Option<(u64, Term)> = None;
    let mut earliest_of: BTreeMap<MemberId, (u64, Term)> = BTreeMap::new();
    let mut reigns = history.reigns().rev().peekable();
    while let Some(&(term, ..)) = reigns.peek() {
        let mut of_this_term = Vec::new();
        while let Some(reign) = reigns.next_if(|(other, ..)| *other == term) {
            of_this_term.push(reign);
        }
        for (_, member, reign) in &of_this_term {
            let by_anyone = earliest.filter(|_| is_leased);
            let higher = by_anyone.or_else(|| earliest_of.get(member).copied());
            let Some((began, newer)) = higher else { continue };
            let member = *member;
            if reign.first > began {
                found.push(HistoryViolation::TermsFell { member, term, newer });
            } else if reign.last > began {
                let overlap = Duration::from_nanos(reign.last - began);
                found.push(HistoryViolation::StaleAct { member, term, newer, overlap });
            }
        }
        for (_, member, reign) in of_this_term {
            let began = (reign.first, term);
            earliest = Some(earliest.map_or(began, |earliest| earliest.min(began)));
            let own = earliest_of.entry(member).or_insert(began);
            *own = (*own).min(began);
        }
    }
}

fn names(history: &History, found: &mut Vec<HistoryViolation>) {
    let mut leaders: BTreeMap<Term, MemberId> =
        history.reigns().map(|(term, member, _)| (term, member)).collect();
    for view in history.views() {
        let Some((named, term)) = view.seen.leader(view.member) else { continue };
        let other = *leaders.entry(term).or_insert(named);
        if other != named {
            found.push(HistoryViolation::NamedAnother {
                observer: view.member,
                term,
                named,
                other,
            });
        }
    }
}

fn views(history: &History, found: &mut Vec<HistoryViolation>) {
    let mut highest = BTreeMap::new();
    for view in history.views() {
        let Some((_, later)) = view.seen.leader(view.member) else { continue };
        let earlier = highest.entry(view.member).or_insert(later);
        if later < *earlier {
            found.push(HistoryViolation::ViewFell {
                member: view.member,
                earlier: *earlier,
                later,
            });
        }
        *earlier = later.max(*earlier);
    }
}

fn register(history: &History, is_leased: bool, found: &mut Vec<HistoryViolation>) {
    let mut newest = Term::NONE;
    found.extend(falls(&mut newest, &history.accepted));
    let held = history.refusals().iter().filter(|refusal| refusal.held && is_leased);
    found.extend(held.map(|refusal| HistoryViolation::HeldAfterRefusal { refusal: *refusal }));
}

/// Writes of an older term after a newer, which nothing that checks terms may have taken. `newest` is the highest term
/// that was written before these, and after them.
pub fn falls(newest: &mut Term, writes: &[Accepted]) -> Vec<HistoryViolation> {
    let mut found = Vec::new();
    for write in writes {
        if write.term < *newest {
            found.push(HistoryViolation::RegisterFell { write: *write, newer: *newest });
        }
        *newest = write.term.max(*newest);
    }
    found
}

#[cfg(test)]
mod tests;
