//! Installing a leader: from a candidate that was selected to one that holds a term.
//!
//! Selection names a leader, and different members may name different ones. What makes a leader
//! safe is a quorum of *promises*: a member promises to follow one leader per term, and writes
//! that down before it says so. Two quorums share a member, so no two leaders hold one term.
//!
//! # Guarantees
//!
//! - [`PeerGuarantee::Fenced`]: one leader per term. A leader that was replaced may not know it yet;
//!   a resource that checks terms is safe. Nothing is assumed of time.
//! - [`PeerGuarantee::Leased`]: besides, at any instant at most one member's
//!   [`mandate`](Installation::mandate) holds. Assumed: steady clocks that count suspension, and
//!   whose rates differ by less than the drift allowance; never synchronised clocks.
//!
//! Both assume that what is on disk stays there, or is gone as a whole; and that processes follow
//! the protocol: a member that lies can break them.
//!
//! # Leases
//!
//! A promise is a lease on the promiser's clock, from when it is made: until it ends, or is
//! released, nobody else is promised anything. The leader renews by claiming its term again, and
//! counts its own deadline from when it *sent* what a quorum has answered, less the allowance. So
//! whatever the delays, its deadline comes before the leases end that it rests on. A claim says for
//! how long it will be relied on, so members need not be set up alike.
//!
//! A member that was restarted waits for a full lease before it promises again: it does not know
//! when the promise on its disk was last renewed. The lease is stored with the promise, so that a
//! shorter one in the configuration does not shorten the wait. That holds for what it promised itself, too: what
//! acts on a mandate (a guarded command, a holder beside a daemon) may outlive the process that held it, until its
//! deadline. So a leader that crashed and is back waits a lease like everyone else, and its next incarnation is
//! another claimant to those who promised the one before. Only if it ended in good order ([`Input::Stop`]) does it
//! not wait: it has written down that nothing acts on its promise any more.
//!
//! # Different configurations
//!
//! Votes count among members with the same list and guarantee only; see [`ConfigId`]. A member that has never
//! promised anything and hears that another member of its list has a different configuration has no vote until that
//! is settled: in a group that starts with two lists, each might have a quorum.
//!
//! # Members that come and go
//!
//! Each member goes by a [`Roster`]: the list it counts votes by. The leader changes it while it leads; how, and why two leaders
//! cannot come of it, is said in the module `changing`. What follows here on lost disks and on new members is about groups that
//! were never changed. In a group that was, a member that has lost its disk is replaced by one with another id.
//!
//! # Members without a vote
//!
//! A member that has lost its disk has no vote: it may have promised anything. It gets it back when
//! all others have told it what they promised (the module `recovery` says why all). So does a member that is new
//! ([`Boot::is_new`]): it cannot know whether the others have a leader by another list. The first start of a group needs
//! all of its members; after that a quorum is enough. A member that is started without a word on whether it is new ([`Boot::auto`]) finds
//! out by itself, and the group writes down with whom it was started (module `founding`).
//!
//! # A vote that went astray
//!
//! A claim that came to nothing leaves behind members that have promised its term, and can promise
//! no lower one. A leader with leases that is refused for that reason claims a higher term itself,
//! in one round trip, and frees nobody meanwhile; without leases it gives up, since it cannot know that the other did not lead.
//!
//! A claim that so many have refused for good that no quorum is left is given up at once: they have promised that very term to
//! another. Waiting it out would keep the group without a leader for as long, on slow disks for seconds.
//!
//! # Handing over
//!
//! [`Input::Resign`] and [`Input::Transfer`] end the mandate at once, and then say so: nobody waits
//! for anything to time out. A transfer names the successor, which claims the next term as soon as
//! it hears of it; its claim passes the release on to those who have not heard of it yet. It takes
//! half a round trip to the successor, and one from there to the nearest quorum.
//!
//! # Bounds
//!
//! A claim that was delayed until after its release binds once more, for a lease at most: that is
//! safe, and costs time only.
//!
//! One answer to a claim; one claim to each member per renewal, a third of the lease apart. Without
//! leases a leader claims again only from those who have not promised yet, every
//! [`Config::retry`]. A leader remembers its last [`SENDS`] claims, and one answer of each member.

use alloc::vec::Vec;
use core::time::Duration;

use crate::identity::{Incarnation, MemberId, Term};
use crate::machine::{Effects, Machine};
use crate::time::Instant;

mod agreement;
mod changing;
mod claim;
mod founding;
mod interface;
mod patience;
mod recovery;
mod roster;

pub use agreement::{ConfigId, Fit, InvalidConfigId};
pub use changing::{MemberChange, NoChange};
use claim::Claim;
pub use claim::SENDS;
pub use founding::{Founder, Unsure};
pub use interface::{
    Boot, ClaimId, Config, Effect, Event, Freed, Input, Message, NoVote, PeerGuarantee, Promised,
    Reason, Safeguard, Stored, WhyNoVote,
};
use patience::Patience;
use recovery::Recovery;
pub use roster::{Contact, Entry, MAX_ADDRESS, MAX_NAME, Membership, Roster, RosterId};

/// No lease is longer: a claim that asks for more is refused, so that a wrong number cannot block a group.
pub const MAX_LEASE: Duration = Duration::from_secs(86_400);

/// The most members of a group. Every member pings every other, and an election costs up to
/// `2 N^2 (N-1)` messages: beyond a few dozen, elect among some and let the others observe.
pub const MAX_MEMBERS: usize = 64;

/// One member's part in installing leaders: it promises, and it may claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Installation {
    config: Config,
    incarnation: Incarnation,
    promised: Promised,
    /// Until then nobody but the one promised to is promised anything.
    bound_until: Instant,
    /// All others are asked what they promised; no vote meanwhile.
    recovery: Option<Recovery>,
    claim: Option<Claim>,
    /// An epoch to claim as soon as we are not bound any more.
    wants: Option<Term>,
    /// The highest term heard of.
    highest: Term,
    freed: Option<Freed>,
    claims: u64,
    /// Who the members are, as far as this one has heard.
    roster: Roster,
    config_id: ConfigId,
    /// A change of members that waits until the leader may make it.
    change: Option<MemberChange>,
    /// The last of our rosters that a quorum had on disk.
    settled: RosterId,
    /// When the last write was done, until what may come of it is looked at.
    written: Option<Instant>,
    /// What votes count by instead of the roster: wrong, and done on purpose only.
    counts_by: Option<Roster>,
    /// Another member of our list is known to have a different configuration.
    is_disputed: bool,
    patience: Patience,
    /// How often this incarnation has begun to recover.
    recoveries: u32,
    /// The incarnation in which this member joined, if it was added to the group.
    joined: Option<Incarnation>,
    /// It found no state, and does not know yet whether it is new or has lost its disk.
    unsure: Option<Unsure>,
    /// With whom the group was started, if that was without a human.
    founders: Vec<Founder>,
}

impl Installation {
    /// Starts a member. One that is new writes that down first: the next time, an empty disk means
    /// that it was lost.
    pub fn start(config: Config, boot: Boot, now: Instant, effects: &mut Effects<Effect>) -> Self {
        let roster = boot.roster(&config);
        let config_id = ConfigId::of_roster(&roster, config.guarantee);
        let is_added = roster.id() != RosterId::SEED;
        let joined = match &boot.stored {
            Some(stored) => stored.joined,
            None => boot.joins.then_some(boot.lifetime),
        };
        let (unsure, founders) = match &boot.stored {
            Some(stored) => (stored.unsure, stored.founders.clone()),
            None => {
                let is_auto = !boot.is_new && !boot.is_changed && !boot.joins;
                let floor = boot.auto.filter(|_| is_auto);
                let unsure = floor.map(|floor| Unsure { first: boot.lifetime, floor });
                (unsure, Vec::new())
            }
        };
        let stored = boot.stored.map(|stored| stored.promised);
        let promised = match stored {
            Some(stored) => stored,
            None if boot.joins => Promised::ADMITTED,
            None => Promised::NOTHING,
        };
        let is_over = promised.released || !config.keeps(Safeguard::OwnPromise);
        let is_own = promised.to == Some(config.me);
        let waits = if is_own && is_over { Duration::ZERO } else { promised.lease };
        let is_lost = stored.is_none() && !boot.is_new && !boot.joins;
        let is_first = promised == Promised::NOTHING
            && !is_added
            && roster.voters().count() > 1
            && config.keeps(Safeguard::FirstAnswers);
        let recovery = |why| Some(Recovery::new(why, boot.lifetime, 0, now));
        let recovery = match () {
            () if unsure.is_some() => recovery(WhyNoVote::Unsure),
            () if boot.is_changed => {
                Some(Recovery::of_changed((promised, stored.is_some()), boot.lifetime, now))
            }
            () if is_lost => recovery(WhyNoVote::Lost),
            () if is_first => recovery(WhyNoVote::New),
            () => None,
        };
        let mut member = Installation {
            incarnation: boot.lifetime,
            promised,
            bound_until: now + waits,
            recovery,
            claim: None,
            wants: None,
            // Of the list, too: who is no member has promised nothing, and its list tells how far the group was.
            highest: promised.term.max(roster.id().term),
            freed: None,
            claims: 0,
            roster,
            config_id,
            change: None,
            settled: RosterId::NONE,
            written: None,
            counts_by: None,
            is_disputed: false,
            patience: Patience::default(),
            recoveries: 0,
            joined,
            unsure,
            founders,
            config,
        };
        let is_new = boot.is_new && !boot.is_changed;
        if stored.is_none() && (is_new || boot.joins || unsure.is_some()) {
            member.persist(now, effects);
        }
        member.ask(now, effects);
        member
    }

    /// The term that this member holds at `now`, and until when it can be sure of it (`None`: for
    /// as long as nobody holds a higher one). In a group of one, only once [`Event::Installed`]
    /// was told: the promise to itself is durable by then, and not before.
    pub fn mandate(&self, now: Instant) -> Option<(Term, Option<Instant>)> {
        let claim = self.claim.as_ref().filter(|claim| claim.holds)?;
        match self.config.guarantee {
            PeerGuarantee::Fenced => Some((claim.term, None)),
            PeerGuarantee::Leased { .. } => {
                let deadline = self.sure_until(claim)?;
                (now < deadline).then_some((claim.term, Some(deadline)))
            }
        }
    }

    /// The promise that binds this member.
    pub fn promised(&self) -> Promised {
        self.promised
    }

    /// The highest term heard of.
    pub fn highest(&self) -> Term {
        self.highest.max(self.promised.term)
    }

    /// Whether this member's promises count: it votes by its roster, and may promise something.
    pub fn has_vote(&self) -> bool {
        self.can_promise() && self.roster.has_voter(self.config.me)
    }

    /// Whether this member may promise anything: it is a member; it has its disk, or all others have answered it; and it does not
    /// stand before its first promise in a group that is not configured alike. A member that does not vote may: the leader
    /// learns from it that it follows, and nobody relies on it.
    fn can_promise(&self) -> bool {
        self.recovery.is_none()
            && !(self.is_disputed && self.promised.term == Term::NONE)
            && self.roster.has(self.config.me)
    }

    /// Who the members are, as far as this one has heard.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Why it may not, and whose answers are missing.
    pub fn no_vote(&self) -> Option<NoVote> {
        if self.has_vote() {
            return None;
        }
        let why = |why| Some(NoVote { why, awaits: Vec::new() });
        let part = self.roster.entry(self.config.me).map(|entry| entry.part);
        match &self.recovery {
            _ if part.is_none() => why(match self.roster.id() {
                RosterId::NONE => WhyNoVote::Joining,
                _ => WhyNoVote::NotAMember,
            }),
            None => why(match part {
                Some(Membership::Learner { .. }) => WhyNoVote::Learning,
                Some(Membership::Observer) => WhyNoVote::Observing,
                _ => WhyNoVote::Disputed,
            }),
            Some(recovery) => {
                let awaits = self.others().filter(|id| !recovery.has_report_of(*id)).collect();
                let why = match recovery.why {
                    WhyNoVote::Unsure if !recovery.is_beside_voters() => WhyNoVote::Unsure,
                    _ if !self.may_recover(recovery) => return why(WhyNoVote::Outdated),
                    WhyNoVote::Unsure => WhyNoVote::NoState,
                    why => why,
                };
                Some(NoVote { why, awaits })
            }
        }
    }

    /// Whether it is new, or may be, and not all others have answered it.
    pub fn is_new(&self) -> bool {
        let is_new = |why| matches!(why, WhyNoVote::New | WhyNoVote::Unsure);
        self.recovery.as_ref().is_some_and(|recovery| is_new(recovery.why))
    }

    /// What this member counts votes by.
    pub fn config_id(&self) -> ConfigId {
        self.config_id
    }

    /// Whether another member of our list is known to have a different configuration.
    pub fn set_disputed(&mut self, is_disputed: bool) {
        self.is_disputed = is_disputed && self.config.keeps(Safeguard::ConfigId);
    }

    /// Somebody is known to lead: claims are as patient as at first again.
    pub fn led(&mut self) {
        self.patience.led();
    }

    /// How long a write to this member's disk takes, by the last ones.
    pub fn write_took(&self) -> Duration {
        self.patience.took()
    }

    /// Whether this member claims a term, or will as soon as it is free to.
    pub fn is_claiming(&self) -> bool {
        self.claim.is_some() || self.wants.is_some()
    }

    /// Whether a lease holds, so that nobody else can lead at `now`.
    fn is_sure(&self, now: Instant) -> bool {
        self.mandate(now).is_some_and(|(_, until)| until.is_some())
    }

    /// Until when a quorum is bound to us.
    fn sure_until(&self, claim: &Claim) -> Option<Instant> {
        match self.config.guarantee {
            PeerGuarantee::Fenced => None,
            PeerGuarantee::Leased { .. } => claim.bound_until(self.counted(), self.sure()),
        }
    }

    /// For how long a promise can be relied on: the lease, less the allowance.
    fn sure(&self) -> Duration {
        let PeerGuarantee::Leased { allowance_per_mille, .. } = self.config.guarantee else {
            return Duration::ZERO;
        };
        let kept = 1000u32.saturating_sub(allowance_per_mille.into());
        self.config.guarantee.lease().saturating_mul(kept) / 1000
    }

    fn begin_claim(&mut self, epoch: Term, now: Instant, effects: &mut Effects<Effect>) {
        // Whatever comes of it: what cannot be claimed now must not stay due.
        self.wants = None;
        // Terms have run out: better no leader than a term used twice.
        let Some(above) = self.highest().next() else { return };
        if self.claim.is_some() || !epoch.is_plausible_after(self.highest()) {
            return;
        }
        let term = above.max(epoch);
        if !self.has_vote() {
            effects.push(Effect::Tell(Event::Lost { term, reason: Reason::NoVote }));
            return;
        }
        if !self.may_promise((self.config.me, self.incarnation), now) {
            self.wants = Some(epoch);
            return;
        }
        self.promise(term, (self.config.me, self.incarnation), Duration::ZERO, now, effects);
        let is_sent = !self.config.keeps(Safeguard::GrowingPatience) || !self.patience.is_writing();
        self.claim = Some(Claim::new(term, is_sent, now));
        self.send_claim(now, effects);
        self.check_held(now, effects);
    }

    fn send_claim(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let Some(claim) = &mut self.claim else { return };
        self.claims += 1;
        let id = ClaimId { life: self.incarnation, count: self.claims, config: self.config_id };
        let lease = self.config.guarantee.lease();
        let pause = match self.config.guarantee {
            PeerGuarantee::Leased { .. } if claim.holds => lease / 3,
            PeerGuarantee::Leased { .. } => self.config.retry.clamp(lease / 32, lease / 3),
            PeerGuarantee::Fenced => self.config.retry,
        };
        claim.sent(id, now, now + pause.max(Duration::from_millis(1)));
        let message = Message::Claim { term: claim.term, id, lease, freed: self.freed };
        if claim.holds && self.config.guarantee == PeerGuarantee::Fenced {
            let me = self.config.me;
            let others = self.roster.members().filter(|id| *id != me);
            for to in others.filter(|id| !claim.is_followed_by(*id)) {
                effects.push(Effect::Send { to, message: message.clone() });
            }
        } else {
            effects.push(Effect::Broadcast(message));
        }
    }

    /// Whether we are free to promise: not bound to another, or to another incarnation. A claim of our own does
    /// not bind us before it holds; after that [`mandate`](Self::mandate) does.
    fn may_promise(&self, (to, incarnation): (MemberId, Incarnation), now: Instant) -> bool {
        let is_to = |id, incarnation, rule| {
            let same_incarnation = self.promised.life == incarnation || !self.config.keeps(rule);
            self.promised.to == Some(id) && same_incarnation
        };
        let free = is_to(to, incarnation, Safeguard::Incarnation)
            || is_to(self.config.me, self.incarnation, Safeguard::OwnPromise);
        let bound = !free || self.promised.recovered;
        self.can_promise() && !(bound && now < self.bound_until)
    }

    /// Writes down what is promised.
    fn persist(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.patience.writes(now);
        // A process that was to be added was told every list that it has, and its configuration file none.
        let is_told = self.joined.is_some() || self.roster.id() != RosterId::SEED;
        let roster = is_told.then(|| self.roster.clone());
        let (promised, joined, unsure) = (self.promised, self.joined, self.unsure);
        let founders = match self.config.keeps(Safeguard::FoundersWritten) {
            true => self.founders.clone(),
            false => Vec::new(),
        };
        effects.push(Effect::Persist(Stored { promised, roster, joined, unsure, founders }));
    }

    /// Promises, durably before anything that follows in the effects; for as long as the other
    /// will rely on it, or as long as we grant ourselves, whichever is longer.
    fn promise(
        &mut self,
        term: Term,
        (to, incarnation): (MemberId, Incarnation),
        relied_on: Duration,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let lease = self.config.guarantee.lease().max(relied_on);
        let promised = Promised {
            term,
            to: Some(to),
            life: incarnation,
            lease,
            recovered: false,
            released: false,
        };
        if self.promised != promised {
            self.promised = promised;
            self.persist(now, effects);
        }
        self.bound_until = self.bound_until.max(now + lease);
    }

    fn receive_claim(
        &mut self,
        from: MemberId,
        (term, id, lease): (Term, ClaimId, Duration),
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let promised = self.promised.term;
        let renews = self.promised.is_to(from, term) && self.promised.life == id.life;
        let free = renews || term > promised && !self.is_sure(now);
        let free = free && self.roster.has_voter(from);
        if !(free && self.may_promise((from, id.life), now)) || lease > MAX_LEASE {
            let message = Message::Refuse { term, promised };
            effects.push(Effect::Send { to: from, message });
            return;
        }
        let was_recovered = self.promised.recovered;
        self.lose(Reason::Superseded, effects);
        self.promise(term, (from, id.life), lease, now, effects);
        let message = match self.joined.filter(|_| !self.roster.has_voter(self.config.me)) {
            Some(joined) => Message::Follow { term, id, joined },
            None => Message::Promise { term, id },
        };
        effects.push(Effect::Send { to: from, message });
        if !renews || was_recovered {
            effects.push(Effect::Tell(Event::Promised { to: from, term }));
        }
    }

    fn receive_promise(
        &mut self,
        from: MemberId,
        (term, id): (Term, ClaimId),
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let claim = self.claim.as_mut().filter(|claim| claim.term == term);
        if claim.is_some_and(|claim| claim.answer(from, id, self.config_id)) {
            self.check_held(now, effects);
            self.go_on_changing(now, effects);
        }
    }

    /// Whether a quorum has promised, and with leases is still bound.
    fn check_held(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let Some(claim) = self.claim.as_ref().filter(|claim| !claim.holds) else { return };
        let promised = claim.promises(self.counted()) + 1 >= self.counted().quorum();
        let bound = match self.config.guarantee {
            PeerGuarantee::Fenced => true,
            PeerGuarantee::Leased { .. } => self.sure_until(claim).is_some_and(|sure| now < sure),
        };
        if promised
            && bound
            && let Some(claim) = &mut self.claim
        {
            claim.holds = true;
            self.patience.led();
            let term = claim.term;
            effects.push(Effect::Tell(Event::Installed { term }));
            self.go_on_changing(now, effects);
        }
    }

    fn lose(&mut self, reason: Reason, effects: &mut Effects<Effect>) {
        let wanted = self.wants.take();
        if let Some(change) = self.change.take() {
            effects.push(Effect::Tell(Event::NotChanged { change, reason: NoChange::Lost }));
        }
        if let Some(term) = self.claim.take().map(|claim| claim.term).or(wanted) {
            effects.push(Effect::Tell(Event::Lost { term, reason }));
        }
    }

    fn expire(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if self.claim.as_ref().is_some_and(|claim| claim.holds) && self.mandate(now).is_none() {
            self.lose(Reason::Expired, effects);
        }
    }

    /// Ends our claim and frees everyone who has promised it.
    fn release(&mut self, reason: Reason, next: Option<MemberId>, effects: &mut Effects<Effect>) {
        let term = self.claim.as_ref().map(|claim| claim.term);
        if self.config.keeps(Safeguard::EndBeforeRelease) || next.is_none() {
            self.lose(reason, effects);
        }
        if let Some(term) = term {
            let life = self.incarnation;
            self.freed = Some(Freed { term, by: self.config.me, life });
            effects.push(Effect::Broadcast(Message::Release { term, life, next }));
        }
    }

    /// A member has promised a higher term than ours, and so can never promise us this one.
    fn outdone(&mut self, term: Term, now: Instant, effects: &mut Effects<Effect>) {
        let Some(claim) = self.claim.as_ref().filter(|claim| claim.term == term) else { return };
        let settled = claim.began + self.config.guarantee.lease() <= now;
        if !self.is_sure(now) {
            self.release(Reason::Superseded, None, effects);
        } else if settled {
            // While a lease holds nobody else leads: the other's claim came to nothing. We claim a
            // term above it, so that its vote is not lost to the group; once a lease at most. Nobody is freed: those who
            // promised us may promise us the higher term, and nobody else anything before their leases end. So what acts
            // on the old term (a holder beside the daemon) may do so until its deadline.
            self.lose(Reason::Superseded, effects);
            self.begin_claim(self.highest(), now, effects);
        }
    }

    /// A member has promised our term to another, or to an earlier incarnation of ours, or is bound by what it was told when it had lost
    /// its disk. Once so many have that no quorum is left, the claim is given up: waiting longer would keep out the one that can lead. A
    /// member that is bound only for a while might have promised it later; that costs one more claim.
    fn refused(&mut self, by: MemberId, term: Term, effects: &mut Effects<Effect>) {
        let left = self.roster.voters().count() - self.roster.quorum();
        let Some(claim) = self.claim.as_mut().filter(|claim| claim.term == term) else { return };
        if claim.counts_refusals() && claim.refused(by, &self.roster) > left && !claim.holds {
            self.release(Reason::Refused, None, effects);
        }
    }

    fn transfer(&mut self, to: MemberId, now: Instant, effects: &mut Effects<Effect>) {
        let is_other = to != self.config.me && self.roster.has_voter(to);
        if is_other && self.mandate(now).is_some() {
            self.release(Reason::Transferred, Some(to), effects);
        }
    }

    fn receive_release(
        &mut self,
        freed: Freed,
        next: Option<MemberId>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        self.free(freed, now);
        if self.promised.is_to(freed.by, freed.term) {
            effects.push(Effect::Tell(Event::Released { term: freed.term, next }));
        }
        if next == Some(self.config.me)
            && freed.term >= self.promised.term
            && let Some(epoch) = freed.term.next()
        {
            self.begin_claim(epoch, now, effects);
        }
    }

    /// A claim was given back: it does not bind us any more, and we pass that on.
    fn free(&mut self, freed: Freed, now: Instant) {
        self.highest = self.highest.max(freed.term);
        if self.freed.is_none_or(|known| known.term < freed.term) {
            self.freed = Some(freed);
        }
        let Promised { life, recovered, .. } = self.promised;
        let is_ours = self.promised.is_to(freed.by, freed.term) && life == freed.life;
        // What was recovered binds towards more than the one it names.
        if is_ours && !recovered {
            self.bound_until = self.bound_until.min(now);
        }
    }

    /// When to give up a claim that no quorum promises; not before it was sent. Two claimants that each
    /// bind a part of the group would otherwise renew these promises, and keep each other out, without end.
    fn gives_up(&self, claim: &Claim) -> Option<Instant> {
        let least = self.config.guarantee.lease().max(self.config.give_up);
        if !self.config.keeps(Safeguard::GrowingPatience) {
            return (!claim.holds).then_some(claim.began + least);
        }
        let sent = claim.sent_since.filter(|_| !claim.holds)?;
        Some(sent + self.patience.of(least))
    }

    /// The process ends in good order: what we promised ourselves in this incarnation is over.
    fn stop(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.release(Reason::Resigned, None, effects);
        let is_ours =
            self.promised.to == Some(self.config.me) && self.promised.life == self.incarnation;
        if is_ours && !self.promised.released {
            self.promised.released = true;
            self.persist(now, effects);
        }
    }

    /// All other members, whether they vote or not.
    fn others(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.roster.members().filter(|id| *id != self.config.me)
    }

    /// Whether a message is to be taken, by the roster that its sender goes by; a member with another one is sent ours.
    fn is_taken(&self, from: MemberId, message: &Message, effects: &mut Effects<Effect>) -> bool {
        let config = match message {
            Message::Roster { .. } => return true,
            Message::Claim { id: ClaimId { config, .. }, .. } | Message::Ask { config, .. } => {
                *config
            }
            _ => return self.roster.has(from),
        };
        match self.config_id.fit(config) {
            Fit::Same => self.roster.has(from),
            _ if !self.config.keeps(Safeguard::ConfigId) => true,
            Fit::Older if self.is_renewed_by(from, message) => true,
            Fit::Older if !self.config.keeps(Safeguard::NewerRoster) => true,
            Fit::Differs => {
                if self.roster.has(from) {
                    effects.push(Effect::Tell(Event::Differs { member: from, config }));
                }
                false
            }
            Fit::Older | Fit::Newer => {
                effects.push(Effect::Send { to: from, message: self.our_roster() });
                false
            }
        }
    }

    /// Whether a claim was sent by the leader that we have promised its term, before it made the list by which we go: that renews the
    /// promise, and leaves the leader as much of its lease as if it had changed nothing.
    fn is_renewed_by(&self, from: MemberId, message: &Message) -> bool {
        let Message::Claim { term, id, .. } = message else { return false };
        let is_renewed = self.promised.is_to(from, *term) && self.promised.life == id.life;
        is_renewed && self.roster.id().term == *term && self.roster.has(from)
    }

    fn receive(
        &mut self,
        from: MemberId,
        message: Message,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        match message {
            Message::Roster { roster, config } => {
                self.receive_roster(from, roster, config, now, effects);
            }
            Message::Claim { term, id, lease, freed }
                if term.is_plausible_after(self.highest()) =>
            {
                if let Some(freed) = freed.filter(|freed| freed.term < term) {
                    self.free(freed, now);
                }
                self.highest = self.highest.max(term);
                self.receive_claim(from, (term, id, lease), now, effects);
            }
            Message::Promise { term, id } => self.receive_promise(from, (term, id), now, effects),
            Message::Follow { term, id, joined } if self.is_of_its_disk(from, joined) => {
                if let Some(claim) = self.claim.as_mut().filter(|claim| claim.term == term) {
                    claim.learns(from, joined);
                }
                self.receive_promise(from, (term, id), now, effects);
            }
            Message::Refuse { term, promised } if promised.is_plausible_after(self.highest()) => {
                self.highest = self.highest.max(promised);
                if promised > term {
                    self.outdone(term, now, effects);
                } else if promised == term {
                    self.refused(from, term, effects);
                }
            }
            Message::Release { term, life, next } if term.is_plausible_after(self.highest()) => {
                self.receive_release(Freed { term, by: from, life }, next, now, effects);
            }
            Message::Ask { life, round, .. } => {
                let message = self.answer(life, round);
                effects.push(Effect::Send { to: from, message });
            }
            Message::Report { life, round, by, promised } => {
                let is_sound = promised.is_none_or(|promised| self.is_sound(promised));
                if self.has_asked(life, round) && is_sound {
                    self.receive_report(from, by, promised, now, effects);
                }
            }
            Message::Unsure { life, round, unsure, lease } if self.has_asked(life, round) => {
                self.receive_unsure(from, (unsure, lease), now, effects);
            }
            Message::Founded { life, round, by, promised, founders }
                if self.has_asked(life, round) && self.is_sound(promised) =>
            {
                self.receive_founded(from, (by, promised, founders), now, effects);
            }
            Message::Behind { term } if term.is_plausible_after(self.highest()) => {
                self.go_back(from, term, now, effects);
            }
            Message::Claim { .. }
            | Message::Follow { .. }
            | Message::Refuse { .. }
            | Message::Release { .. }
            | Message::Unsure { .. }
            | Message::Founded { .. }
            | Message::Behind { .. } => {}
        }
    }
}

impl Machine for Installation {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, input: Input, now: Instant, effects: &mut Effects<Effect>) {
        // What has lapsed is lost, also if an answer comes that would renew it: the driver may have
        // noticed before, and a mandate that ended must not hold again.
        self.expire(now, effects);
        match input {
            Input::Claim { epoch } => self.begin_claim(epoch, now, effects),
            Input::Resign => self.release(Reason::Resigned, None, effects),
            Input::Stop => self.stop(now, effects),
            Input::Transfer { to } => self.transfer(to, now, effects),
            Input::Received { from, message } => {
                if from != self.config.me && self.is_taken(from, &message, effects) {
                    self.receive(from, message, now, effects);
                }
            }
            Input::Change(change) => self.change(change, now, effects),
            Input::Reached { member } => self.ask_one(member, effects),
        }
    }

    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.ask(now, effects);
        if let Some(epoch) = self.wants.filter(|_| self.bound_until <= now) {
            self.begin_claim(epoch, now, effects);
        }
        self.expire(now, effects);
        if self.written.take().is_some() {
            self.go_on_changing(now, effects);
        }
        let Some(claim) = &self.claim else { return };
        if self.gives_up(claim).is_some_and(|end| end <= now) {
            self.patience.fruitless();
            self.release(Reason::NoQuorum, None, effects);
        } else if self.is_stuck(now) {
            self.release(Reason::Superseded, None, effects);
        } else if claim.next <= now {
            self.send_claim(now, effects);
        }
    }

    fn persisted(&mut self, now: Instant) {
        self.patience.written(now);
        if self.patience.is_writing() {
            return;
        }
        self.written = Some(now);
        let is_slow = self.patience.took() > self.config.guarantee.lease() / 8;
        if let Some(claim) = self.claim.as_mut().filter(|claim| claim.sent_since.is_none()) {
            claim.sent_since = Some(now);
            // The lease counts from before the write: a claim that counts from now is worth a message.
            if is_slow {
                claim.next = claim.next.min(now);
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let claim = self.claim.as_ref().map(|claim| {
            let ends = if claim.holds { self.sure_until(claim) } else { self.gives_up(claim) };
            ends.map_or(claim.next, |ends| ends.min(claim.next))
        });
        let wants = self.wants.map(|_| self.bound_until);
        let asks = self.asks_at();
        let changes = self.written.filter(|_| self.claim.is_some() && !self.roster.id().is_seed());
        [claim, wants, asks, changes].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod automatic;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod first_start;
#[cfg(test)]
mod incarnations;
#[cfg(test)]
mod needed;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;
