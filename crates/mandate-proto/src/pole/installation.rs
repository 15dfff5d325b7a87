//! Installing a leader: from a candidate that was selected to one that holds a term.
//!
//! Selection names a leader, and different members may name different ones. What makes a leader
//! safe is a quorum of *promises*: a member promises to follow one leader per term, and writes
//! that down before it says so. Two quorums share a member, so no two leaders hold one term.
//!
//! # Guarantees
//!
//! - [`Guarantee::Fenced`]: one leader per term. A leader that was replaced may not know it yet;
//!   whoever checks terms is safe. Nothing is assumed of time.
//! - [`Guarantee::Leased`]: besides, at any instant at most one member's
//!   [`mandate`](Installation::mandate) holds. Assumed: steady clocks that count suspension, and
//!   whose rates differ by less than the drift allowance; never synchronised clocks.
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
//! shorter one in the configuration does not shorten the wait.
//!
//! A member that has lost its disk has no vote: it may have promised anything. An operator who
//! knows that it is new says so ([`Boot::is_new`]).
//!
//! # Bounds
//!
//! A claim that was delayed until after its release binds once more, for a lease at most: that is
//! safe, and costs time only.
//!
//! One answer to a claim; one claim to each member per renewal, a third of the lease apart (or
//! [`Config::retry`]). A leader remembers its last [`SENDS`] claims, and one answer of each member.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::identity::{MemberId, Term};
use crate::machine::{self, Effects, Machine};
use crate::oracle::quorum;
use crate::time::Instant;

/// Claims of which an answer still counts. A claim is repeated at most 32 times a lease, so older
/// ones would renew nothing.
pub const SENDS: usize = 64;

/// No lease is longer: a claim that asks for more is refused, lest a wrong number block a group.
pub const MAX_LEASE: Duration = Duration::from_secs(86_400);

/// Terms beyond this were not counted up by anyone: a group that elected a thousand times a second
/// would need millions of years. What names one is ignored, lest it use up all terms.
fn is_plausible(term: Term) -> bool {
    term.get() < 1 << 62
}

/// What a leader may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// One leader per term.
    Fenced,
    /// Besides, one at any instant.
    Leased {
        /// How long a promise binds; [`MAX_LEASE`] at most.
        lease: Duration,
        /// The drift allowance, in parts of a thousand of the lease: at least twice what a clock
        /// may be off.
        allowance_per_mille: u16,
    },
}

impl Guarantee {
    fn lease(self) -> Duration {
        match self {
            Guarantee::Fenced => Duration::ZERO,
            Guarantee::Leased { lease, .. } => lease.min(MAX_LEASE),
        }
    }
}

/// How a member is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This member.
    pub me: MemberId,
    /// All members, this one included.
    pub members: Vec<MemberId>,
    /// What leaders may rely on.
    pub guarantee: Guarantee,
    /// How often a claim is repeated while promises are missing.
    pub retry: Duration,
}

/// What a start needs from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// What was found on disk.
    pub stored: Option<Promised>,
    /// Whether the member takes part for the first time. Without that, and without a disk, it has
    /// no vote.
    pub is_new: bool,
}

/// A promise, as it is kept on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promised {
    /// For this term,
    pub term: Term,
    /// to follow this leader,
    pub to: MemberId,
    /// and nobody else for this long.
    pub lease: Duration,
}

/// What members send each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Promise me this term, or renew that promise.
    Claim {
        /// The term.
        term: Term,
        /// Which claim this is; answered with it.
        number: u64,
        /// How long the claimant will rely on the answer; zero without leases.
        lease: Duration,
    },
    /// Promised, or renewed.
    Promise {
        /// The term.
        term: Term,
        /// Of the claim.
        number: u64,
    },
    /// Not promised.
    Refuse {
        /// What was claimed.
        term: Term,
        /// The highest term that the sender has promised.
        promised: Term,
    },
    /// The leader of this term has resigned.
    Release {
        /// The term.
        term: Term,
    },
}

/// What the machine can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// We were selected in this epoch: claim a term no lower.
    Claim {
        /// The epoch.
        epoch: Term,
    },
    /// Give the mandate back, or stop claiming.
    Resign,
    /// A message arrived.
    Received {
        /// Who sent it.
        from: MemberId,
        /// What it says.
        message: Message,
    },
}

/// What the application is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// We hold this term.
    Installed {
        /// The term.
        term: Term,
    },
    /// We do not hold it any more, or did not get it.
    Lost {
        /// The term.
        term: Term,
        /// Why.
        reason: Reason,
    },
}

/// Why a mandate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was given back.
    Resigned,
    /// A higher term exists.
    Superseded,
    /// Renewals were not answered in time.
    Expired,
    /// No quorum promised it in time.
    NoQuorum,
    /// It was not even claimed: we have promised another and must wait, or have no vote.
    Bound,
}

/// What the machine asks for.
pub type Effect = machine::Effect<Message, Promised, Event>;

/// One member's part in installing leaders: it promises, and it may claim.
#[derive(Clone, Debug)]
pub struct Installation {
    config: Config,
    promised: Option<Promised>,
    /// Until then nobody but the one promised to is promised anything.
    bound_until: Instant,
    has_vote: bool,
    claim: Option<Claim>,
    /// The highest term heard of.
    highest: Term,
    numbers: u64,
}

/// A term that we claim or hold.
#[derive(Clone, Debug)]
struct Claim {
    term: Term,
    began: Instant,
    holds: bool,
    /// When the last claims were sent, by number.
    sends: VecDeque<(u64, Instant)>,
    /// For each member that promised, when what it last answered was sent.
    answered: BTreeMap<MemberId, Instant>,
    next: Instant,
}

impl Installation {
    /// Starts a member. One that is new writes that down first: the next time, an empty disk means
    /// that it was lost.
    pub fn start(
        mut config: Config,
        boot: Boot,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) -> Self {
        config.members.push(config.me);
        config.members.sort_unstable();
        config.members.dedup();
        let blank = Promised { term: Term::NONE, to: config.me, lease: Duration::ZERO };
        if boot.stored.is_none() && boot.is_new {
            effects.push(Effect::Persist(blank));
        }
        // What we promised ourselves ended with the life that held it.
        let to_another = boot.stored.filter(|promised| promised.to != config.me);
        let waits = to_another.map_or(Duration::ZERO, |promised| promised.lease);
        Installation {
            promised: boot.stored,
            bound_until: now + waits,
            has_vote: boot.stored.is_some() || boot.is_new,
            claim: None,
            highest: boot.stored.map_or(Term::NONE, |promised| promised.term),
            numbers: 0,
            config,
        }
    }

    /// The term that this member holds at `now`, and until when it can be sure of it (`None`: for
    /// as long as nobody holds a higher one). In a group of one, only once [`Event::Installed`]
    /// was told: the promise to itself is durable by then, and not before.
    pub fn mandate(&self, now: Instant) -> Option<(Term, Option<Instant>)> {
        let claim = self.claim.as_ref().filter(|claim| claim.holds)?;
        match self.config.guarantee {
            Guarantee::Fenced => Some((claim.term, None)),
            Guarantee::Leased { .. } => {
                let deadline = self.sure_until(claim)?;
                (now < deadline).then_some((claim.term, Some(deadline)))
            }
        }
    }

    /// The promise that binds this member, if any.
    pub fn promised(&self) -> Option<Promised> {
        self.promised
    }

    /// Whether a lease holds, so that nobody else can lead at `now`.
    fn is_sure(&self, now: Instant) -> bool {
        self.mandate(now).is_some_and(|(_, until)| until.is_some())
    }

    /// Until when a quorum is bound, reckoned from when we sent what it answered.
    fn sure_until(&self, claim: &Claim) -> Option<Instant> {
        let Guarantee::Leased { allowance_per_mille, .. } = self.config.guarantee else {
            return None;
        };
        let lease = self.config.guarantee.lease();
        let mut sent: Vec<_> = claim.answered.values().copied().collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        // Our own promise binds for as long as we claim; the others of a quorum must answer.
        let others = quorum(self.config.members.len()) - 1;
        let sure = lease.saturating_mul(1000u32.saturating_sub(allowance_per_mille.into())) / 1000;
        match others.checked_sub(1) {
            None => Some(claim.next + sure),
            Some(last) => sent.get(last).map(|sent| *sent + sure),
        }
    }

    fn begin_claim(&mut self, epoch: Term, now: Instant, effects: &mut Effects<Effect>) {
        let promised = self.promised.map_or(Term::NONE, |promised| promised.term);
        // Terms have run out: better no leader than a term used twice.
        let Some(above) = promised.max(self.highest).next() else { return };
        if self.claim.is_some() || !is_plausible(epoch) {
            return;
        }
        let term = above.max(epoch);
        // Bound to another, or without a vote, we could not even promise ourselves.
        if !self.may_promise(self.config.me, now) {
            effects.push(Effect::Tell(Event::Lost { term, reason: Reason::Bound }));
            return;
        }
        self.promise(term, self.config.me, Duration::ZERO, now, effects);
        self.claim = Some(Claim {
            term,
            began: now,
            holds: false,
            sends: VecDeque::new(),
            answered: BTreeMap::new(),
            next: now,
        });
        self.send_claim(now, effects);
        self.check_held(now, effects);
    }

    fn send_claim(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let Some(claim) = &mut self.claim else { return };
        self.numbers += 1;
        claim.sends.push_back((self.numbers, now));
        if claim.sends.len() > SENDS {
            claim.sends.pop_front();
        }
        let lease = self.config.guarantee.lease();
        let pause = match self.config.guarantee {
            Guarantee::Leased { .. } if claim.holds => lease / 3,
            Guarantee::Leased { .. } => self.config.retry.clamp(lease / 32, lease / 3),
            Guarantee::Fenced => self.config.retry,
        };
        claim.next = now + pause.max(Duration::from_millis(1));
        let (term, number) = (claim.term, self.numbers);
        effects.push(Effect::Broadcast(Message::Claim { term, number, lease }));
    }

    /// Whether we are free to promise: not bound to another. A claim of our own does not bind us
    /// before it holds; after that [`mandate`](Self::mandate) does.
    fn may_promise(&self, to: MemberId, now: Instant) -> bool {
        let bound = |promised: Promised| promised.to != to && promised.to != self.config.me;
        self.has_vote && !(self.promised.is_some_and(bound) && now < self.bound_until)
    }

    /// Promises, durably before anything that follows in the effects; for as long as the other
    /// will rely on it, or as long as we grant ourselves, whichever is longer.
    fn promise(
        &mut self,
        term: Term,
        to: MemberId,
        relied_on: Duration,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let lease = self.config.guarantee.lease().max(relied_on);
        let promised = Promised { term, to, lease };
        if self.promised != Some(promised) {
            self.promised = Some(promised);
            effects.push(Effect::Persist(promised));
        }
        self.bound_until = self.bound_until.max(now + promised.lease);
    }

    fn receive_claim(
        &mut self,
        from: MemberId,
        (term, number, lease): (Term, u64, Duration),
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let promised = self.promised.map_or(Term::NONE, |promised| promised.term);
        let renews = self.promised.is_some_and(|p| p.term == term && p.to == from);
        let free = term > promised && self.may_promise(from, now) && !self.is_sure(now);
        if !(renews || free) || lease > MAX_LEASE {
            let message = Message::Refuse { term, promised };
            effects.push(Effect::Send { to: from, message });
            return;
        }
        if !renews {
            self.lose(Reason::Superseded, effects);
        }
        self.promise(term, from, lease, now, effects);
        effects.push(Effect::Send { to: from, message: Message::Promise { term, number } });
    }

    fn receive_promise(
        &mut self,
        from: MemberId,
        term: Term,
        number: u64,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let Some(claim) = self.claim.as_mut().filter(|claim| claim.term == term) else { return };
        let sent = claim.sends.iter().find(|(sent, _)| *sent == number);
        let Some((_, sent)) = sent.copied() else { return };
        let answered = claim.answered.entry(from).or_insert(sent);
        *answered = (*answered).max(sent);
        self.check_held(now, effects);
    }

    /// Whether a quorum has promised, and with leases is still bound.
    fn check_held(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let Some(claim) = self.claim.as_ref().filter(|claim| !claim.holds) else { return };
        let promised = claim.answered.len() + 1 >= quorum(self.config.members.len());
        let bound = match self.config.guarantee {
            Guarantee::Fenced => true,
            Guarantee::Leased { .. } => self.sure_until(claim).is_some_and(|sure| now < sure),
        };
        if promised
            && bound
            && let Some(claim) = &mut self.claim
        {
            claim.holds = true;
            effects.push(Effect::Tell(Event::Installed { term: claim.term }));
        }
    }

    fn lose(&mut self, reason: Reason, effects: &mut Effects<Effect>) {
        if let Some(claim) = self.claim.take() {
            effects.push(Effect::Tell(Event::Lost { term: claim.term, reason }));
        }
    }

    /// Ends our claim and frees everyone who has promised it.
    fn release(&mut self, reason: Reason, effects: &mut Effects<Effect>) {
        let Some(claim) = &self.claim else { return };
        let term = claim.term;
        self.lose(reason, effects);
        effects.push(Effect::Broadcast(Message::Release { term }));
    }

    /// When to give up a claim that no quorum promises. Two claimants that each bind a part of the
    /// group would otherwise renew these promises, and keep each other out, for ever.
    fn gives_up(&self, claim: &Claim) -> Option<Instant> {
        let patience = self.config.guarantee.lease().max(self.config.retry.saturating_mul(4));
        (!claim.holds).then_some(claim.began + patience)
    }
}

impl Machine for Installation {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, input: Input, now: Instant, effects: &mut Effects<Effect>) {
        match input {
            Input::Claim { epoch } => self.begin_claim(epoch, now, effects),
            Input::Resign => self.release(Reason::Resigned, effects),
            Input::Received { from, message } => {
                let known = self.config.members.binary_search(&from).is_ok();
                if !known || from == self.config.me {
                    return;
                }
                match message {
                    Message::Claim { term, number, lease } if is_plausible(term) => {
                        self.highest = self.highest.max(term);
                        self.receive_claim(from, (term, number, lease), now, effects);
                    }
                    Message::Promise { term, number } => {
                        self.receive_promise(from, term, number, now, effects);
                    }
                    Message::Refuse { term, promised } if is_plausible(promised) => {
                        self.highest = self.highest.max(promised);
                        let ours = self.claim.as_ref().is_some_and(|claim| claim.term == term);
                        // While a lease holds, one that promised another is in the minority.
                        if ours && promised > term && !self.is_sure(now) {
                            self.release(Reason::Superseded, effects);
                        }
                    }
                    Message::Claim { .. } | Message::Refuse { .. } => {}
                    Message::Release { term } => {
                        if self.promised.is_some_and(|p| p.term == term && p.to == from) {
                            self.bound_until = self.bound_until.min(now);
                        }
                    }
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let Some(claim) = &self.claim else { return };
        if claim.holds && self.mandate(now).is_none() {
            self.lose(Reason::Expired, effects);
        } else if self.gives_up(claim).is_some_and(|end| end <= now) {
            self.release(Reason::NoQuorum, effects);
        } else if claim.next <= now {
            self.send_claim(now, effects);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let claim = self.claim.as_ref()?;
        let ends = if claim.holds { self.sure_until(claim) } else { self.gives_up(claim) };
        Some(ends.map_or(claim.next, |ends| ends.min(claim.next)))
    }
}

#[cfg(test)]
mod tests;
