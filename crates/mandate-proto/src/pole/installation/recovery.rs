//! How a member that has lost its disk gets its vote back.
//!
//! It may have promised anything, and its promises may still be under way. So it asks *all* others
//! what they have promised, and promises nothing up to the highest term they name.
//!
//! # Why all of them, and not a quorum
//!
//! - A term that a leader *held* was promised by a quorum. Whoever lost its disk was one of it at
//!   most, and any quorum of the others shares a member with the rest: they name the term.
//! - A term that a leader *may come to hold*, by a promise that this member made before the loss
//!   and that is still under way, was promised by the claimant itself before it claimed. None of a
//!   quorum need know it, but the claimant does, and it is one of the others. (If the claimant has
//!   lost its disk as well, its claim is lost with it.)
//!
//! A quorum would do if every promise named the life it was made in, and every member knew which
//! lives of the others still count. That is a field in every message and a table on every disk, for
//! a case in which a group of N has N-1 votes until the last of its members is back, or an operator
//! says that the member is new. In a group of three, a quorum of the others is both of them anyway.
//!
//! Others that have lost their disks answer that they have nothing to report; a quorum must.
//!
//! # Leases
//!
//! What it granted before the loss binds it still, and it does not know to whom: a leader of a lower
//! term than the highest reported may rest on it. It waits for the longest lease that anyone
//! reports or that it grants itself, from when it has recovered, before it promises anything.

use alloc::collections::BTreeMap;

use super::Promised;
use crate::identity::{Lifetime, MemberId};
use crate::time::Instant;

/// A recovery under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    pub(super) life: Lifetime,
    reports: BTreeMap<MemberId, Option<Promised>>,
    /// When to ask again.
    pub(super) next: Instant,
}

impl Recovery {
    pub(super) fn new(life: Lifetime, now: Instant) -> Self {
        Recovery { life, reports: BTreeMap::new(), next: now }
    }

    pub(super) fn report(&mut self, from: MemberId, promised: Option<Promised>) {
        self.reports.insert(from, promised);
    }

    /// What to promise from now on, once `others` members have reported, and a `quorum` of them
    /// had something to report.
    pub(super) fn outcome(&self, others: usize, quorum: usize) -> Option<Promised> {
        let known = || self.reports.values().flatten();
        if self.reports.len() < others || known().count() < quorum {
            return None;
        }
        let term = known().map(|promised| promised.term).max()?;
        let lease = known().map(|promised| promised.lease).max()?;
        let mut leaders = known().filter(|promised| promised.term == term).map(|p| p.to);
        // All others have reported, so if we promised that term to someone else, its claim is
        // reported too. We may follow whom the others follow.
        let to = leaders.next().flatten();
        let to = to.filter(|to| leaders.all(|other| other == Some(*to)));
        Some(Promised { term, to, lease, recovered: true })
    }
}
