//! Changing the members of a group that runs.
//!
//! # How
//!
//! The leader changes the [`Roster`] by one voter at a time, and goes by the new one from then on. It sends it to everyone who is in
//! the old one or in the new one, claims its term again, and writes it down: who promises by the new roster has it on disk. The
//! change is *settled*, and the next one may come, when a quorum of the new roster, the leader among them, has it on disk. A member that goes by an older
//! roster is sent the newer one, promises nothing to who has an older one, and has its claims refused by who has a newer one.
//!
//! A member is added as a learner, which promises and does not count, and becomes a voter once it follows: a host that
//! cannot be reached never makes quorums larger. A leader makes no change after which a quorum would not be bound to it at that
//! moment, so a change costs no leadership. It never removes itself: it hands over first.
//!
//! # Why there is one leader
//!
//! This is the reconfiguration without a log of MongoDB (Schultz, Dardik, Tripakis: *Design and Analysis of a Logless Dynamic
//! Reconfiguration Protocol*, OPODIS 2021), for promises with leases. In short:
//!
//! 1. Two rosters that follow each other differ by one voter, so each quorum of one shares a voter with each of the other.
//! 2. A change is made only when a quorum of the present roster has it *under the leader's own term*. So no quorum of any roster
//!    before the present one is left that would promise a claim: each has a voter with the present one, which refuses.
//!    That goes for rosters of former leaders, too, that nobody else has heard of: hence the first step of a leader, the
//!    same list under its own term ([`Safeguard::OwnTermFirst`]).
//! 3. So at any time claims can succeed by the newest roster, the one before it, and one made by a former leader that differs by one
//!    voter from the roster that the leader was elected by. All of them share a voter with the quorum that the leader relies on:
//!    terms have one leader each, and leases exclude each other, as among fixed members.
//!
//! A leader of a group that was never changed does not take the first step until a change is wanted: rosters of former leaders
//! that it has not heard of cannot be, unless by a former leader that took the first step, too, and whose claim no
//! quorum can have promised since. So groups that never change write and send nothing for the sake of those that do. In a group that
//! was changed, a leader that hears of a former leader's list that is newer than its own takes the first step, if it has not
//! yet: that list has not counted and never will, since those who promised the new leader refuse it.
//!
//! # What a change costs
//!
//! One write at each member and a round trip, and for a new leader's first change twice that. While a member writes it
//! answers nothing, so leadership is lost where a write of the leader, or of too many of the others, takes longer than what is left of a
//! lease. What a leader does by itself (the first step, making a learner a voter, removing who was replaced) waits a while if its own
//! disk was so slow lately: a group on slow disks keeps its leader, and is changed when they are quicker.
//!
//! # What a lost disk means
//!
//! A member that has lost its disk may have been one of two that had the newest roster; what the others report does not show
//! that. In a group that was changed it never votes again ([`Safeguard::LostForGood`]): a leader replaces it by
//! a member with another id, which needs a quorum of the others, and not all of them.
//!
//! A member that was added and is started once more as a process that joins, on an empty disk, has forgotten what it promised under the
//! same id. So a process that joins draws a number, keeps it on its disk and says it when it learns; it becomes a voter with that
//! number in the roster, and one that finds another number there has lost its disk ([`Safeguard::SameDisk`]).
//!
//! Ids are never used again: a roster knows the highest that was ever given away, and a member that is added has a higher one. So a
//! message of a member that was removed, or of one that is replaced, can never pass for its successor's.

use serde::{Deserialize, Serialize};

use super::claim::Electorate;
use super::recovery::Recovery;
use super::{
    ConfigId, Contact, Effect, Entry, Event, Fit, Installation, MAX_ADDRESS, MAX_MEMBERS, MAX_NAME,
    Membership, Message, PeerGuarantee, Reason, Roster, RosterId, Safeguard, WhyNoVote,
};
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine::Effects;
use crate::time::Instant;
use crate::wire::CHANGES_SINCE;

/// A change of members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberChange {
    /// Adds a member, which becomes a voter once it follows.
    Add {
        /// It has never been a member: its id is above all that members have had.
        member: MemberId,
        /// Where it is.
        contact: Contact,
        /// Who is removed once the new one votes.
        replaces: Option<MemberId>,
    },
    /// Adds a member that never votes.
    Observe {
        /// It has never been a member: its id is above all that members have had.
        member: MemberId,
        /// Where it is.
        contact: Contact,
    },
    /// Makes a learner a voter: what a leader does by itself.
    Promote {
        /// Who.
        member: MemberId,
    },
    /// Removes a member.
    Remove {
        /// Not the leader.
        member: MemberId,
    },
}

impl MemberChange {
    /// Whom it is about.
    pub fn member(&self) -> MemberId {
        match self {
            MemberChange::Add { member, .. }
            | MemberChange::Observe { member, .. }
            | MemberChange::Promote { member }
            | MemberChange::Remove { member } => *member,
        }
    }

    /// Whether a list is as it is after this change, and was not before it.
    pub fn is_made_in(&self, roster: &Roster) -> bool {
        match self {
            MemberChange::Add { member, .. } | MemberChange::Observe { member, .. } => {
                roster.has(*member)
            }
            MemberChange::Promote { member } => roster.has_voter(*member),
            MemberChange::Remove { member } => !roster.has(*member),
        }
    }
}

/// Why a change of members was not made. All is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum NoChange {
    /// Only a leader changes the members.
    #[error("this member does not lead; ask the leader")]
    NotLeading,
    /// Another change was not settled yet.
    #[error("another change of members is under way; try again when it is done")]
    UnderWay,
    /// Leadership was lost before the change was begun.
    #[error("leadership was lost before the change was begun; ask the next leader")]
    Lost,
    /// It is one already.
    #[error("that is a member of the group already")]
    Known,
    /// A member that was removed had that id.
    #[error("a member has had that id before, or a higher one: give it the next one")]
    UsedBefore,
    /// Another member has that name.
    #[error("another member of the group has that name")]
    NameTaken,
    /// Name or address are too long.
    #[error("a name has at most {MAX_NAME} bytes, and an address {MAX_ADDRESS}")]
    TooLong,
    /// It is not.
    #[error("that is no member of the group")]
    Unknown,
    /// A group has at least one voter.
    #[error("that is the last member that votes")]
    LastVoter,
    /// It must hand over first.
    #[error("that member leads; transfer leadership first")]
    Leads,
    /// It does not follow yet.
    #[error("that member does not follow the leader yet")]
    NotFollowing,
    /// Too few of the new list follow.
    #[error(
        "too few of the members that would be left follow the leader: it would lose its quorum"
    )]
    NoQuorum,
    /// A group can only be so large.
    #[error("a group has at most {MAX_MEMBERS} members")]
    TooMany,
    /// It was added to follow, and not to vote.
    #[error(
        "that member observes, and never votes; to have one that votes, add it with another id"
    )]
    Observes,
    /// It is of a release that knows of no changes, or is held back by its configuration.
    #[error(
        "{member} speaks protocol version {speaks}, and members can be changed from version {CHANGES_SINCE} on, once everyone \
         speaks it: upgrade {member}, or remove `protocol` from its configuration if that holds it back"
    )]
    TooOld {
        /// Who.
        member: MemberId,
        /// The newest version that it speaks.
        speaks: u32,
    },
    /// It has not answered since the leader was started, so it may be of a release that knows of no changes.
    #[error(
        "{0} has not answered this member yet, and might be of a release in which members cannot be changed: start it, or \
         have it removed or replaced"
    )]
    Unheard(MemberId),
    /// The engine keeps no list: who takes part in an election on a database, or on a ledger, is a member.
    #[error("this engine has no list of members that could be changed")]
    Unsupported,
}

impl Installation {
    /// What votes count by.
    pub(super) fn counted(&self) -> Electorate<'_> {
        self.electorate(self.counts_by.as_ref().unwrap_or(&self.roster))
    }

    fn electorate<'a>(&self, roster: &'a Roster) -> Electorate<'a> {
        Electorate { roster, is_open: !self.config.keeps(Safeguard::OnlyVoters) }
    }

    /// For who goes by another roster.
    pub fn our_roster(&self) -> Message {
        Message::Roster { roster: self.roster.clone(), config: self.config_id }
    }

    /// Another goes by this roster, or has been told ours.
    pub(super) fn receive_roster(
        &mut self,
        from: MemberId,
        roster: Roster,
        config: ConfigId,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let is_plausible = roster.id().term.is_plausible_after(self.highest())
            && roster.entries().len() <= MAX_MEMBERS
            && roster.is_sound_after(self.roster.id().version);
        if !is_plausible {
            return;
        }
        // The same list comes to something else there: another guarantee.
        let comes_to = ConfigId::of_roster(&roster, self.config.guarantee);
        match self.config_id.fit(config) {
            Fit::Same => {}
            Fit::Newer if comes_to == config => match self.mandate(now) {
                // Of a former leader, which has not counted and never will: who follows us refuses it.
                Some((term, _)) if roster.id().term < term && self.takes_own_term_first() => {
                    self.renumber(term, now, effects);
                }
                _ => self.adopt(roster, now, effects),
            },
            Fit::Newer | Fit::Differs => {
                if self.roster.has(from) {
                    effects.push(Effect::Tell(Event::Differs { member: from, config }));
                }
            }
            Fit::Older => effects.push(Effect::Send { to: from, message: self.our_roster() }),
        }
    }

    /// Goes by a newer roster. A claim counted on the one before, and is given up: only another leader can have made this one.
    fn adopt(&mut self, roster: Roster, now: Instant, effects: &mut Effects<Effect>) {
        self.release(Reason::Superseded, None, effects);
        self.highest = self.highest.max(roster.id().term);
        self.counts_by = None;
        self.look_for_lost_lists(now);
        self.go_by(roster, now, effects);
    }

    /// Who was set up alone has decided the first lists itself, and has told nobody of any before it was on disk. If others have one,
    /// that disk was lost, and the member was started as new: it led beside them, and has forgotten what it promised.
    fn look_for_lost_lists(&mut self, now: Instant) {
        let is_alone = self.roster.voters().eq([self.config.me]);
        let is_lost = self.roster.id() == RosterId::SEED && is_alone && self.recovery.is_none();
        if is_lost && self.config.keeps(Safeguard::LostForGood) {
            self.recovery = Some(Recovery::new(WhyNoVote::Lost, self.incarnation, 0, now));
        }
    }

    /// Goes by a newer roster from now on, and writes it down before it answers anyone by it.
    fn go_by(&mut self, roster: Roster, now: Instant, effects: &mut Effects<Effect>) {
        self.take(roster, now, effects);
        self.write_roster(now, effects);
    }

    fn take(&mut self, roster: Roster, now: Instant, effects: &mut Effects<Effect>) {
        self.config_id = ConfigId::of_roster(&roster, self.config.guarantee);
        self.roster = roster;
        if let Some(claim) = &mut self.claim {
            claim.roster_changed(now);
        }
        self.look_for_own_disk(now);
        effects.push(Effect::Tell(Event::RosterChanged { roster: self.roster.clone() }));
    }

    fn write_roster(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        // Without a vote there is nothing on disk to go with it: a list beside no promise would pass for a member's whole disk.
        if self.recovery.is_none() {
            self.persist(now, effects);
        }
    }

    /// A voter that was added has the disk that it had then, or it has forgotten what it promised: it was started as a
    /// process that joins once more.
    fn look_for_own_disk(&mut self, now: Instant) {
        let entry = self.roster.entry(self.config.me);
        let Some(Membership::Voter { joined, .. }) = entry.map(|entry| entry.part) else { return };
        let is_other = joined != self.joined && self.config.keeps(Safeguard::SameDisk);
        if is_other && self.recovery.is_none() {
            self.recovery = Some(Recovery::new(WhyNoVote::Lost, self.incarnation, 0, now));
        }
    }

    /// Whether an answer of a member that does not vote is one of the disk that it votes with, if it votes by now. Two processes may
    /// have its id for a while: one that was given up, and one that joins once more in its place.
    pub(super) fn is_of_its_disk(&self, from: MemberId, joined: Incarnation) -> bool {
        let part = self.roster.entry(from).map(|entry| entry.part);
        let votes_with = match part {
            Some(Membership::Voter { joined, .. }) => joined,
            _ => return true,
        };
        votes_with == Some(joined) || !self.config.keeps(Safeguard::SameDisk)
    }

    /// The same list under our own term.
    fn renumber(&mut self, term: Term, now: Instant, effects: &mut Effects<Effect>) {
        let id = RosterId { term, version: self.roster.id().version };
        self.decide(self.roster.numbered(id), now, effects);
    }

    /// The leader goes by another roster from now on, and has the others do so. They write while it does, so that a slow disk is
    /// waited for once, and not twice in one lease: its own counts for the change once that is done.
    fn decide(&mut self, roster: Roster, now: Instant, effects: &mut Effects<Effect>) {
        let roster = roster.with_contacts(&self.config.contacts);
        let before = core::mem::replace(&mut self.roster, roster.clone());
        if !self.config.keeps(Safeguard::NewQuorum) {
            self.counts_by.get_or_insert_with(|| before.clone());
        }
        self.take(roster, now, effects);
        // Who decided alone has told nobody of a list that its disk may not have: see `look_for_lost_lists`.
        let is_first = before.voters().count() == 1;
        if is_first {
            self.write_roster(now, effects);
        }
        let me = self.config.me;
        let removed = before.members().filter(|id| !self.roster.has(*id));
        let told = self.roster.members().chain(removed).filter(|id| *id != me);
        for to in told {
            effects.push(Effect::Send { to, message: self.our_roster() });
        }
        self.send_claim(now, effects);
        if !is_first {
            self.write_roster(now, effects);
        }
    }

    /// Whether we lead, and a quorum, of which we are one, has our roster on disk, under our own term: no later leader goes by an
    /// older one.
    pub fn is_settled(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| {
            let electorate = self.counted();
            claim.holds
                && !self.patience.is_writing()
                && self.roster.id().term == claim.term
                && (claim.followers(electorate) + 1 >= electorate.quorum()
                    || !self.config.keeps(Safeguard::QuorumSettles))
        })
    }

    /// Whether a change waits in vain for a voter that has promised our term to another: votes that went astray. Without leases nothing
    /// else would end that. The next term finds everyone free.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        let claim = self.claim.as_ref().filter(|claim| claim.holds && !self.is_settled());
        let since = claim.and_then(|claim| claim.astray_since(&self.roster));
        let patience = self.patience.of(self.config.give_up);
        self.config.guarantee == PeerGuarantee::Fenced
            && since.is_some_and(|since| since + patience <= now)
    }

    fn takes_own_term_first(&self) -> bool {
        self.config.keeps(Safeguard::OwnTermFirst)
    }

    pub(super) fn change(
        &mut self,
        change: MemberChange,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let term = match self.mandate(now) {
            Some((term, _)) => term,
            None => return not_changed(change, NoChange::NotLeading, effects),
        };
        if self.change.is_some() {
            return not_changed(change, NoChange::UnderWay, effects);
        }
        // What cannot be is said at once, and costs nothing.
        if let Err(reason) = self.changed(&change, now) {
            return not_changed(change, reason, effects);
        }
        let is_own = self.roster.id().term == term;
        if !is_own && self.takes_own_term_first() {
            self.change = Some(change);
            self.renumber(term, now, effects);
        } else if is_own && !self.is_settled() && self.config.keeps(Safeguard::OneChangeAtATime) {
            not_changed(change, NoChange::UnderWay, effects);
        } else {
            self.make(change, term, now, effects);
        }
    }

    fn make(
        &mut self,
        change: MemberChange,
        term: Term,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        match self.changed(&change, now) {
            Ok(roster) => {
                let version = self.roster.id().version + 1;
                self.decide(roster.numbered(RosterId { term, version }), now, effects);
            }
            Err(reason) => not_changed(change, reason, effects),
        }
    }

    /// What the roster would be after a change, if that can be made now.
    fn changed(&self, change: &MemberChange, now: Instant) -> Result<Roster, NoChange> {
        let member = change.member();
        let entry = self.roster.entry(member);
        let mut entries = self.roster.entries().to_vec();
        match change {
            MemberChange::Add { contact, replaces, .. } => {
                if replaces.is_some_and(|old| !self.roster.has_voter(old)) {
                    return Err(NoChange::Unknown);
                }
                self.check_new(member, contact, *replaces)?;
                let part = Membership::Learner { replaces: *replaces };
                entries.push(Entry { id: member, part, contact: contact.clone() });
            }
            MemberChange::Observe { contact, .. } => {
                self.check_new(member, contact, None)?;
                entries.push(Entry {
                    id: member,
                    part: Membership::Observer,
                    contact: contact.clone(),
                });
            }
            MemberChange::Promote { .. } => {
                let replaces = match entry.ok_or(NoChange::Unknown)?.part {
                    Membership::Learner { replaces } => replaces,
                    Membership::Voter { .. } => return Err(NoChange::Known),
                    Membership::Observer => return Err(NoChange::Observes),
                };
                let learnt = self.claim.as_ref().and_then(|claim| claim.learnt_by(member));
                let joined = Some(learnt.ok_or(NoChange::NotFollowing)?);
                let promoted = entries.iter_mut().filter(|entry| entry.id == member);
                promoted.for_each(|entry| entry.part = Membership::Voter { replaces, joined });
            }
            MemberChange::Remove { .. } => {
                let is_voter = entry.ok_or(NoChange::Unknown)?.is_voter();
                if is_voter && self.roster.voters().count() == 1 {
                    return Err(NoChange::LastVoter);
                }
                if member == self.config.me {
                    return Err(NoChange::Leads);
                }
                entries.retain(|entry| entry.id != member);
                for entry in &mut entries {
                    match &mut entry.part {
                        Membership::Voter { replaces, .. } | Membership::Learner { replaces } => {
                            *replaces = replaces.filter(|old| *old != member);
                        }
                        Membership::Observer => {}
                    }
                }
            }
        }
        let roster = self.roster.with_entries(entries);
        if self.has_quorum_of(&roster, now) { Ok(roster) } else { Err(NoChange::NoQuorum) }
    }

    fn check_new(
        &self,
        member: MemberId,
        contact: &Contact,
        replaces: Option<MemberId>,
    ) -> Result<(), NoChange> {
        let others = || self.roster.entries().iter().filter(|entry| Some(entry.id) != replaces);
        if self.roster.has(member) {
            return Err(NoChange::Known);
        }
        if member <= self.roster.last_id() {
            return Err(NoChange::UsedBefore);
        }
        if !contact.fits() {
            return Err(NoChange::TooLong);
        }
        if !contact.name.is_empty() && others().any(|entry| entry.contact.name == contact.name) {
            return Err(NoChange::NameTaken);
        }
        if self.roster.entries().len() >= MAX_MEMBERS {
            return Err(NoChange::TooMany);
        }
        Ok(())
    }

    /// Whether enough voters of a roster are bound to us now, so that going by it costs no leadership.
    fn has_quorum_of(&self, roster: &Roster, now: Instant) -> bool {
        let Some(claim) = &self.claim else { return false };
        let electorate = self.electorate(roster);
        match self.config.guarantee {
            PeerGuarantee::Fenced => claim.promises(electorate) + 1 >= electorate.quorum(),
            PeerGuarantee::Leased { .. } => {
                claim.bound_until(electorate, self.sure()).is_some_and(|until| now < until)
            }
        }
    }

    /// Makes the list of a group that was changed before our own, and goes on with what was begun once that is settled: the change
    /// that waited for it, a member that is replaced, a learner that follows.
    pub(super) fn go_on_changing(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let id = self.roster.id();
        let Some((term, _)) = self.mandate(now).filter(|_| !id.is_seed()) else { return };
        if id.term != term {
            if self.takes_own_term_first() && !self.patience.is_slow(self.sure(), now) {
                self.renumber(term, now, effects);
            }
            return;
        }
        if !self.is_settled() {
            return;
        }
        if self.settled != id {
            self.settled = id;
            effects.push(Effect::Tell(Event::Settled { roster: id }));
        }
        if let Some(change) = self.change.take().or_else(|| self.next_change(now)) {
            self.make(change, term, now, effects);
        }
    }

    /// What the roster itself says is to be done next, if it can be done now.
    fn next_change(&self, now: Instant) -> Option<MemberChange> {
        let entries = self.roster.entries();
        let voters = entries.iter().filter(|entry| entry.is_voter());
        let replaced =
            voters.filter_map(Entry::replaces).map(|member| MemberChange::Remove { member });
        let learners =
            entries.iter().filter(|entry| matches!(entry.part, Membership::Learner { .. }));
        let promoted = learners.map(|entry| MemberChange::Promote { member: entry.id });
        replaced.chain(promoted).find(|change| self.changed(change, now).is_ok())
    }
}

fn not_changed(change: MemberChange, reason: NoChange, effects: &mut Effects<Effect>) {
    effects.push(Effect::Tell(Event::NotChanged { change, reason }));
}
