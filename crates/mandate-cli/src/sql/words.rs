//! What happens to elections on a database, in words.

use mandate_proto::registers::{Event, Loss, Reason, SqlGuarantee};

use crate::output::readable;

/// Why a term began, or was given back.
pub(crate) fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::First => "there was no leader before",
        Reason::Silence => "the lease of the one before ran out",
        Reason::Lapsed => "it let its lease run out, and nobody else had taken over",
        Reason::SessionGone => "the session of the one before ended",
        Reason::Resigned => "the one before resigned",
        Reason::Transferred => "the one before was asked to hand over",
        Reason::TooSlow => "the database was too slow for the one before",
    }
}

/// The same, for metrics and programs.
pub(crate) fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::First => "first",
        Reason::Silence => "silence",
        Reason::Lapsed => "lapsed",
        Reason::SessionGone => "session_gone",
        Reason::Resigned => "resigned",
        Reason::Transferred => "transferred",
        Reason::TooSlow => "too_slow",
    }
}

/// What a leader relies on.
pub(crate) fn guarantee_name(guarantee: SqlGuarantee) -> &'static str {
    match guarantee {
        SqlGuarantee::Fenced => "fenced",
        SqlGuarantee::Leased => "leased",
    }
}

/// An event.
pub(crate) fn event_text(event: &Event) -> String {
    match event {
        Event::Published { leader, term, value } => {
            format!("{leader} has published with term {term}: {value}")
        }
        Event::Reigned(reign) => match reign.leader {
            Some(leader) => {
                format!("{leader} leads in term {}: {}", reign.term, because(reign.reason))
            }
            None => format!("term {} was given back: {}", reign.term, because(reign.reason)),
        },
        Event::Lost { term, loss } => match loss {
            Loss::Expired => format!("term {term} is lost: renewals were not acknowledged in time"),
            Loss::Superseded => {
                format!("term {term} is lost: another leads, or the row was replaced")
            }
            Loss::GaveBack(_) => format!("term {term} is given back"),
            Loss::Mismatched => format!("term {term} is lost to another version of the protocol"),
        },
        Event::Joined { incarnation } => format!("in the group, as number {incarnation}"),
        Event::Evicted { incarnation } => format!(
            "evicted as number {incarnation}, although alive: joining again. If this repeats, the round is too short \
             for this database, or another process uses this member's id"
        ),
        Event::Removed { member } => format!("{member} is silent, and was evicted"),
        Event::RoundChanged { round } => format!("rounds take {} from now on", readable(*round)),
        Event::WentBack { from, to: Some(to) } => format!(
            "the control row went back from {from} to {to}: was the database restored, or a standby promoted? Terms may \
             have been given out twice"
        ),
        Event::WentBack { from, to: None } => format!(
            "the control row, which was at {from}, is gone: was the database emptied? Waiting for leases that may have \
             been lost with it"
        ),
        Event::Remade { term } => format!(
            "the control row was lost and made again at term {term}: waiting for leases that may have been lost with it"
        ),
        Event::Differs { leader, theirs } => format!(
            "{leader} leads with another guarantee ({}): taking no part while it does",
            guarantee_name(*theirs)
        ),
        Event::Mismatched { protocol } => format!(
            "the group is run by protocol {protocol}, which this program does not speak: taking no part until that changes"
        ),
        Event::RolesMoved { roles } => format!("preferring others for {roles} roles"),
        Event::Failed { times, unknown: false } => {
            format!("a statement failed ({times} in succession)")
        }
        Event::Failed { times, unknown: true } => {
            format!("nobody knows what became of a statement ({times} in succession)")
        }
        Event::Left => "out of the group".into(),
        // Told by others of their own.
        Event::Changed(_) | Event::NoTransfer { .. } => String::new(),
    }
}
