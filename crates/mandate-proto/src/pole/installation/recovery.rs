//! How a member that has lost its disk gets its vote back, and a new one its first.
//!
//! It may have promised anything, and its promises may still be under way. So it asks *all* others
//! what they have promised, and promises nothing up to the highest term they name.
//!
//! # Why all of them, and not a quorum
//!
//! Only terms matter whose quorum this member was part of.
//!
//! - A term that a leader *held* was promised by a quorum. All others that still have their disks
//!   report, and as long as they are so many that they share a member with every quorum (this one and
//!   the others without disks taken away), one of them names the term.
//! - A term that a leader *may come to hold*, by a promise that this member made before the loss
//!   and that is still under way, was promised by the claimant itself before it claimed. None of a
//!   quorum need know it, but the claimant does, and it is one of the others.
//! - If the claimant has lost its disk as well, its claim is lost with it. But it may have held the
//!   term before, by promises that were made *after* those who made them had reported. So whenever
//!   another's incarnation turns out to have no disk, all are asked anew: what they say then, they say
//!   after that claimant's end, and all promises it can have counted are in it.
//!
//! A quorum would do if every promise named the incarnation it was made in, and every member knew which
//! incarnations of the others still count. That is a field in every message and a table on every disk, for
//! a case in which a group of N has N-1 votes until the last of its members is back, or an operator
//! says that the member is new. In a group of three, a quorum of the others is both of them anyway.
//!
//! # Members that were changed
//!
//! After a change of the list of members, made while all were stopped, a quorum of the new list need not share a member with
//! one of the old: a term could be held twice. So every member starts like one that has lost its disk, but for what
//! it knows itself: it asks all others of the new list, and reports what it has promised meanwhile.
//!
//! # Members that are new
//!
//! A group whose list grows by editing files, one member after the other, has two lists for a while. New members may be a
//! quorum of the longer one (p2 and p3 beside p1, which leads alone), and would elect beside a leader that is well. So
//! a new member starts like one whose group was changed: no vote before *all* of its list have answered, and who has another list
//! does not answer. The first start of a group needs all of its members, once; after that a quorum is enough.
//!
//! That a member is new is [`Promised::NOTHING`] on its disk, so one that crashes while it waits is new when it
//! comes back; once all have answered it writes [`Promised::ADMITTED`], or what they have told it. New members answer
//! each other that they have promised nothing. What a new member knows of itself does not count: a member that has lost
//! its disk and was started as new by mistake learns from the others what it may have promised, as any
//! that has lost its disk.
//!
//! # Leases
//!
//! What it granted before the loss binds it still, and it does not know to whom: a leader of a lower
//! term than the highest reported may rest on it. It waits for the longest lease that anyone
//! reports or that it grants itself, from when it has recovered, before it promises anything. A new member need not wait if nobody
//! has ever promised anything: the holder of a term had promised it to itself.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::founding::{Founder, Fresh};
use super::{
    Config, ConfigId, Effect, Event, Installation, MAX_LEASE, Message, Promised, Reason, Roster,
    Safeguard, WhyNoVote,
};
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine::Effects;
use crate::time::Instant;

/// A recovery under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    pub(super) incarnation: Incarnation,
    /// Which round of questions this is; only its answers count.
    pub(super) round: u32,
    pub(super) why: WhyNoVote,
    /// What this member knows itself: the group was changed, and its disk is there, or it is new.
    pub(super) own: Option<Promised>,
    /// Whether its disk is there.
    has_disk: bool,
    reports: BTreeMap<MemberId, Option<Promised>>,
    /// The others' incarnations that have no disk either, as far as they have said.
    bereft: BTreeMap<MemberId, Incarnation>,
    /// Of a member that is unsure: those that have said in this round that they have never voted.
    pub(super) fresh: BTreeMap<MemberId, Fresh>,
    /// What names the disks of those that have ever said so.
    disks: BTreeMap<MemberId, Incarnation>,
    /// One of the disks was heard of for the first time in this round: all are asked once more.
    is_stale: bool,
    /// Who founded the group, as far as others have said.
    pub(super) founders: Vec<Founder>,
    /// When to ask again.
    pub(super) next: Instant,
}

impl Recovery {
    /// Of a member without a vote; questions begin with this round.
    pub(super) fn new(why: WhyNoVote, incarnation: Incarnation, round: u32, now: Instant) -> Self {
        Recovery {
            incarnation,
            round,
            why,
            own: None,
            has_disk: false,
            reports: BTreeMap::new(),
            bereft: BTreeMap::new(),
            fresh: BTreeMap::new(),
            disks: BTreeMap::new(),
            is_stale: false,
            founders: Vec::new(),
            next: now,
        }
    }

    /// Of a member whose group was changed, and which has promised this itself, as its disk says if there is one.
    pub(super) fn of_changed(
        (own, has_disk): (Promised, bool),
        incarnation: Incarnation,
        now: Instant,
    ) -> Self {
        let own = Some(own);
        Recovery { own, has_disk, ..Recovery::new(WhyNoVote::Changed, incarnation, 0, now) }
    }

    /// What the others are asked.
    pub(super) fn question(&self, config: ConfigId) -> Message {
        Message::Ask { life: self.incarnation, round: self.round, config }
    }

    /// Whether this member can tell others what it has promised.
    pub(super) fn can_report(&self) -> bool {
        self.own.is_some() || self.why == WhyNoVote::New
    }

    /// Whether this member's report is there.
    pub(super) fn has_report_of(&self, member: MemberId) -> bool {
        self.reports.contains_key(&member)
    }

    /// Takes a report of this round, by that incarnation of another.
    pub(super) fn report(
        &mut self,
        from: MemberId,
        by: Incarnation,
        promised: Option<Promised>,
        now: Instant,
    ) {
        if promised.is_none() && self.bereft.insert(from, by) != Some(by) {
            return self.begin_round(now);
        }
        self.fresh.remove(&from);
        // Of several the highest: an earlier one may come later.
        let known = self.reports.get(&from).copied().flatten();
        let highest = known.into_iter().chain(promised).max_by_key(|promised| promised.term);
        self.reports.insert(from, highest);
    }

    /// Takes a report of this round, by a member that has never voted, to one that is unsure itself.
    pub(super) fn report_fresh(
        &mut self,
        from: MemberId,
        fresh: Fresh,
        promised: Option<Promised>,
        config: &Config,
    ) {
        let is_known = self.disks.insert(from, fresh.disk) == Some(fresh.disk);
        self.is_stale |= !is_known && config.keeps(Safeguard::DisksKnown);
        // It may have got its vote since, and have said so already.
        let is_outdated = self.reports.contains_key(&from) && !self.fresh.contains_key(&from);
        if !is_outdated {
            self.fresh.insert(from, fresh);
            self.reports.insert(from, promised);
        }
    }

    /// All are asked anew.
    fn begin_round(&mut self, now: Instant) {
        self.round = self.round.wrapping_add(1);
        self.reports.clear();
        self.fresh.clear();
        self.is_stale = false;
        self.next = now;
    }

    /// Whether someone has reported that has voted, or may have.
    pub(super) fn is_beside_voters(&self) -> bool {
        self.reports.keys().any(|id| !self.fresh.contains_key(id))
    }

    /// Notes who founded the group.
    pub(super) fn learn_founders(&mut self, founders: &[Founder]) {
        for founder in founders {
            if self.founders.iter().all(|known| known.member != founder.member) {
                self.founders.push(*founder);
            }
        }
    }

    /// Whether all of these have reported.
    fn is_complete(&self, mut others: impl Iterator<Item = MemberId>) -> bool {
        others.all(|id| self.has_report_of(id))
    }

    /// What to promise from now on, once all others of a group of `size` have reported, and enough
    /// of them had something to report.
    pub(super) fn outcome(
        &self,
        (roster, me): (&Roster, MemberId),
        without: Option<Safeguard>,
    ) -> Option<Promised> {
        let counts = |id: &MemberId| roster.has_voter(*id);
        let reports = || self.reports.iter().filter(|(id, _)| counts(id));
        let known = || reports().filter_map(|(_, report)| report.as_ref()).chain(&self.own);
        let size = roster.voters().count();
        let enough = size - roster.quorum() + 1;
        let others = roster.voters().filter(|id| *id != me).count();
        if reports().count() < others || known().count() < enough {
            return None;
        }
        let highest = known().max_by_key(|promised| promised.term)?;
        let lease = match without {
            Some(Safeguard::LongestLease) => highest.lease,
            _ => known().map(|promised| promised.lease).max()?,
        };
        // All others have reported, so if we promised that term to someone else, its claim is
        // reported too. We may follow whom the others follow.
        let same = |p: &Promised| (p.to, p.life) == (highest.to, highest.life);
        let agreed = known().filter(|p| p.term == highest.term).all(same);
        let to = highest.to.filter(|_| agreed);
        Some(Promised { to, lease, recovered: true, released: false, ..*highest })
    }
}

/// A member without a vote: how it asks, and what it makes of the answers.
impl Installation {
    /// Another remembers that we promised this term: our disk went back. We may have promised anything since.
    pub(super) fn go_back(
        &mut self,
        by: MemberId,
        term: Term,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if term <= self.promised.term || self.recovery.is_some() {
            return;
        }
        self.lose(Reason::NoVote, effects);
        self.highest = self.highest.max(term);
        self.recoveries += 1;
        // Reports of an earlier recovery of this incarnation must not count in this one.
        let round = self.recoveries << 16;
        self.recovery = Some(Recovery::new(WhyNoVote::WentBack, self.incarnation, round, now));
        effects.push(Effect::Tell(Event::WentBack { by, term }));
        self.ask(now, effects);
    }

    /// Asks the others what they have promised, while we have no vote, and their answers may give us one.
    pub(super) fn ask(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if self.asks_at().is_none_or(|next| now < next) {
            return;
        }
        let Some(recovery) = &mut self.recovery else { return };
        recovery.next = now + self.config.retry.max(Duration::from_millis(1));
        let question = recovery.question(self.config_id);
        effects.push(Effect::Broadcast(question));
    }

    /// When to ask again, if ever.
    pub(super) fn asks_at(&self) -> Option<Instant> {
        // Who is unsure may be a founder in any group.
        let is_asking = |it: &&Recovery| it.why == WhyNoVote::Unsure || self.may_recover(it);
        Some(self.recovery.as_ref().filter(is_asking)?.next)
    }

    /// Asks a member that can be reached now, without waiting until all are asked again.
    pub(super) fn ask_one(&self, member: MemberId, effects: &mut Effects<Effect>) {
        let is_other = member != self.config.me && self.roster.has(member);
        if let Some(recovery) = self.recovery.as_ref().filter(|_| is_other) {
            let message = recovery.question(self.config_id);
            effects.push(Effect::Send { to: member, message });
        }
    }

    /// Whether an answer is one to the questions of this round.
    pub(super) fn has_asked(&self, life: Incarnation, round: u32) -> bool {
        let recovery = self.recovery.as_ref();
        recovery.is_some_and(|asked| (asked.incarnation, asked.round) == (life, round))
    }

    pub(super) fn receive_report(
        &mut self,
        from: MemberId,
        by: Incarnation,
        promised: Option<Promised>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let Some(recovery) = &mut self.recovery else { return };
        match Fresh::of_new(by, promised).filter(|_| recovery.why == WhyNoVote::Unsure) {
            Some(fresh) => recovery.report_fresh(from, fresh, promised, &self.config),
            None => recovery.report(from, by, promised, now),
        }
        self.go_on_recovering(now, effects);
    }

    /// Makes of the reports what can be made of them.
    pub(super) fn go_on_recovering(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let others: Vec<_> = self.others().filter(|id| self.roster.has_voter(*id)).collect();
        let Some(recovery) = &mut self.recovery else { return };
        if recovery.is_stale && recovery.is_complete(others.into_iter()) {
            recovery.begin_round(now);
        }
        if recovery.is_stale {
            return self.ask(now, effects);
        }
        if let Some(founded) = self.first_start() {
            return self.found(founded, now, effects);
        }
        let Some(recovery) = &self.recovery else { return };
        let why = recovery.why;
        let outcome = recovery.outcome((&self.roster, self.config.me), self.config.without);
        let Some(mut recovered) = outcome.filter(|_| self.may_recover(recovery)) else {
            return self.ask(now, effects);
        };
        // Our own were those of another list, if that was changed.
        if why == WhyNoVote::Changed || self.founders.is_empty() {
            self.founders = recovery.founders.clone();
        }
        recovered.to = recovered.to.filter(|to| *to != self.config.me);
        // Where nobody has promised anything yet, a new member has not either.
        let is_new = why == WhyNoVote::New;
        if !is_new || recovered.term > Term::NONE {
            recovered.lease = recovered.lease.max(self.config.guarantee.lease());
        }
        self.unsure = None;
        self.recover(recovered, now, effects);
    }

    /// Whether what the others report can give a member its vote. Not in a group that was changed, unless the member has its
    /// disk: it may have forgotten a roster that only it and one other had.
    pub(super) fn may_recover(&self, recovery: &Recovery) -> bool {
        self.roster.id().is_seed()
            || recovery.has_disk
            || !self.config.keeps(Safeguard::LostForGood)
    }

    /// Whether a promise that was reported can have been made.
    pub(super) fn is_sound(&self, promised: Promised) -> bool {
        promised.term.is_plausible_after(self.highest()) && promised.lease <= MAX_LEASE
    }
}
