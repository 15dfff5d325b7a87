//! A first start without a human.
//!
//! A member that finds no state on its disk may be new, or may have lost the disk: it is *unsure* ([`Boot::auto`](super::Boot::auto)).
//! It has no vote, writes down at once the number of the incarnation that found the disk empty ([`Unsure::first`]), which from
//! then on names this disk, and asks all others like any member without a vote. There are three ways on:
//!
//! - (a) *First start.* All other members of its list have answered that they are unsure, too, or new, each having named its disk
//!   before it was asked for the answer that counts. Then it has its vote, and writes down who *founded* the group with it: the
//!   members, and the disk of each.
//! - (b) *Late founder.* A member with a vote knows founders, and names this very disk among them: it has its vote.
//! - (c) *Lost.* Otherwise it is one that has lost its disk, and comes back as the module [`recovery`](super::recovery) says: never in
//!   a group that was changed while it ran, and else from what all others report. What is unsure itself knows nothing.
//!
//! # Why a member that gets its vote by (a) or (b) breaks no promise
//!
//! Let a member have seen (a), and let `x` be the moment when it asked the questions whose answers it counted. It knew the disks of
//! all members at `x`, and each of them said later that it has never voted. So *at `x` no present disk of the group has voted*:
//!
//! - Whatever was promised before `x` was promised by disks that are lost.
//! - Whatever was claimed before `x` was claimed by an incarnation with such a disk, since who claims promises itself first: that
//!   incarnation has ended, and no promise that is made after `x` counts for it.
//! - So a term that was held, or may come to be held, by claims from before `x` rests on lost disks alone, of which there was a
//!   quorum; and if only fewer than a quorum were lost, there is no such term.
//!
//! From `x` on the group is one of new members with these disks, the founders. A founder that has not voted yet, as its disk says,
//! has broken no promise when it gets its vote, whenever that is, and any member that names it: that is (b). Several members may see (a), at
//! several moments, with other disks of one that has lost its disk meanwhile: each of them is right about its own moment, and a disk
//! that one of them names is one that has not voted before it was named. Nothing can be concluded of a disk that nobody names.
//!
//! The answers must belong together, so whenever a disk is heard of for the first time all are asked once more: what they say then,
//! they say after the end of the disk that it came after.
//!
//! # If all disks are lost
//!
//! Then (a) holds, and should: there is nobody to ask. Nor can it be told apart from a group of which a quorum has lost its disks and the
//! rest has never voted. What was promised before binds still, and nobody remembers it. So
//!
//! - who gets its vote by (a) or (b) promises nothing for the longest lease that any of the founders is set up with: by then every lease of
//!   the former group has run out, if those were no longer;
//! - it promises no term up to its *floor* ([`Unsure::floor`]), which the driver takes from the wall clock. Any quorum has one in
//!   common with the quorum of a former term, and that one started again after the term was claimed. So terms go on rising if floors
//!   rise faster than terms did: if the group had fewer claims than one a second on average, and no clock was set back behind where it
//!   was when the floors of the former group were taken.
//!
//! # Members that are new by word of a human
//!
//! They answer that they are new, and count as such under (a): a group may have members of both kinds. They get their own votes by
//! their own rule, from the answers of all others, of whom those that are unsure know nothing.
//!
//! # Lists
//!
//! All of this is about the members that the configuration names. An unsure member never starts a group for the first time once it
//! has heard of a list that a leader made. If the list was changed by hand, while all members were stopped, founders of the old list
//! mean nothing for the new one: who recovers from such a change forgets them before it has a vote.

use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::recovery::Recovery;
use super::{Effect, Event, Installation, MAX_LEASE, MAX_MEMBERS, Message, Promised, Safeguard};
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine::Effects;
use crate::time::Instant;

/// What a member keeps on its disk as long as it does not know whether it is new or has lost its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unsure {
    /// The incarnation that found the disk empty: it names the disk.
    pub first: Incarnation,
    /// If the group starts for the first time, this member promises no term up to this one.
    pub floor: Term,
}

/// One of those that a group was started with, without a human.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Founder {
    /// The member.
    pub member: MemberId,
    /// What names its disk: see [`Unsure::first`].
    pub first: Incarnation,
}

/// What a member that has never voted says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fresh {
    /// What names its disk.
    pub(super) disk: Incarnation,
    /// Whether it is unsure; if not, it is new by word of a human.
    pub(super) is_unsure: bool,
    pub(super) floor: Term,
    pub(super) lease: Duration,
}

impl Fresh {
    /// Of a member that is new by word of a human, if that is what it reports.
    pub(super) fn of_new(by: Incarnation, promised: Option<Promised>) -> Option<Self> {
        let is_new = promised == Some(Promised::NOTHING);
        let (floor, lease) = (Term::NONE, Duration::ZERO);
        is_new.then_some(Fresh { disk: by, is_unsure: false, floor, lease })
    }
}

impl Installation {
    /// What is answered to a member that has no vote.
    pub(super) fn answer(&self, life: Incarnation, round: u32) -> Message {
        if let Some(unsure) = self.unsure {
            let lease = self.config.guarantee.lease();
            return Message::Unsure { life, round, unsure, lease };
        }
        let (by, promised) = (self.incarnation, self.promised);
        match &self.recovery {
            None if !self.founders.is_empty() => {
                let founders = self.founders.clone();
                Message::Founded { life, round, by, promised, founders }
            }
            recovery => {
                let known = recovery.as_ref().is_none_or(Recovery::can_report);
                let promised = known.then_some(promised);
                Message::Report { life, round, by, promised }
            }
        }
    }

    /// Another does not know whether it is new or has lost its disk.
    pub(super) fn receive_unsure(
        &mut self,
        from: MemberId,
        (theirs, lease): (Unsure, Duration),
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if !theirs.floor.is_plausible_after(Term::NONE) || lease > MAX_LEASE {
            return;
        }
        let counts_as_knowledge = !self.config.keeps(Safeguard::UnsureKnowNothing);
        let promised = counts_as_knowledge.then_some(Promised::NOTHING);
        if self.unsure.is_none() {
            return self.receive_report(from, theirs.first, promised, now, effects);
        }
        let fresh = Fresh { disk: theirs.first, is_unsure: true, floor: theirs.floor, lease };
        if let Some(recovery) = &mut self.recovery {
            recovery.report_fresh(from, fresh, promised, &self.config);
        }
        self.go_on_recovering(now, effects);
    }

    /// Another has a vote, and knows who founded the group.
    pub(super) fn receive_founded(
        &mut self,
        from: MemberId,
        (by, promised, founders): (Incarnation, Promised, Vec<Founder>),
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if founders.len() > MAX_MEMBERS {
            return;
        }
        let Some(recovery) = &mut self.recovery else { return };
        recovery.learn_founders(&founders);
        let me = self.config.me;
        let is_named =
            |ours: &Unsure| founders.contains(&Founder { member: me, first: ours.first });
        if let Some(ours) = self.unsure.filter(is_named) {
            return self.found((ours.floor, promised.lease, founders), now, effects);
        }
        self.receive_report(from, by, Some(promised), now, effects);
    }

    /// The group starts for the first time, if all others are unsure or new: with its founders, the highest of their floors, and the
    /// longest of their leases.
    pub(super) fn first_start(&self) -> Option<(Term, Duration, Vec<Founder>)> {
        let ours = self.unsure.filter(|_| self.roster.id().is_seed())?;
        let recovery = self.recovery.as_ref()?;
        let others = || self.others().map(|id| (id, recovery.fresh.get(&id)));
        if others().any(|(_, fresh)| fresh.is_none()) || others().next().is_none() {
            return None;
        }
        let told = || others().filter_map(|(_, fresh)| fresh);
        let floor = told().map(|fresh| fresh.floor).fold(ours.floor.max(self.highest()), Term::max);
        let lease = told().map(|fresh| fresh.lease).fold(Duration::ZERO, Duration::max);
        let theirs = others().filter_map(|(member, fresh)| {
            let first = fresh.filter(|fresh| fresh.is_unsure)?.disk;
            Some(Founder { member, first })
        });
        let me = Founder { member: self.config.me, first: ours.first };
        let mut founders: Vec<_> = theirs.chain([me]).collect();
        founders.sort_unstable_by_key(|founder| founder.member);
        Some((floor, lease, founders))
    }

    /// We have lost nothing: from now on we vote, for terms above the floor, and not before a lease of the former life of the group, if
    /// it had one, has run out.
    pub(super) fn found(
        &mut self,
        (floor, lease, founders): (Term, Duration, Vec<Founder>),
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let lease = match self.config.keeps(Safeguard::FirstLease) {
            true => lease.max(self.config.guarantee.lease()),
            false => Duration::ZERO,
        };
        self.unsure = None;
        self.founders = founders;
        self.recover(Promised { term: floor, lease, ..Promised::ADMITTED }, now, effects);
    }

    /// We have our vote: what was promised before, or may have been, is this.
    pub(super) fn recover(
        &mut self,
        promised: Promised,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        self.recovery = None;
        self.promised = promised;
        self.bound_until = now + promised.lease;
        self.persist(now, effects);
        effects.push(Effect::Tell(Event::Recovered { term: promised.term }));
    }
}
