//! Selecting a leader (Algorithm 1 of the POLE paper, section 3.2).
//!
//! Who has lost its leader opens an epoch and proposes itself with its score. Proposals are
//! ordered by epoch, score and id; a member that hears a greater one adopts it and passes it on, and
//! one that hears a lesser one answers with its own. Once a quorum has proposed, a timer of length
//! T bounds the wait for the others; when it ends, the greatest proposal names the leader. Members
//! that follow a leader answer proposals with a *vote* for it: a quorum of votes, the leader's own
//! among them, makes a newcomer follow too, so that it disturbs nobody.
//!
//! # What it gives
//!
//! On timely links, and with suspicions that are right, all members that are up select the same
//! leader, the one with the best score when the epoch began. Otherwise members may select different leaders, or one that has just crashed: selection is
//! unreliable by design (it is the paper's Omega), and what makes a leader *safe* is a quorum of
//! promises, which is not part of it.
//!
//! # Improvements over the paper, each of which can be switched off ([`Rules`])
//!
//! - *End early.* The paper ends at once only if all members have proposed, so that after a crash
//!   of the leader every election waits out T. Here it ends as soon as all that are not suspected
//!   have proposed (and they are a quorum).
//! - *Hear a quorum.* In the paper anyone may be elected, also a member that could not commit
//!   anything. Here only members that hear a quorum are candidates.
//! - *Voters do not take part.* In the paper (lines 64 and 65) a vote that does not decide counts as if its sender had
//!   proposed, so that a minority that has noticed a crash comes to an end while the others still follow the dead
//!   leader. So does a minority that cannot hear a leader that is well, and it selects against it. Here who
//!   follows a leader takes no part; [`member`](super::member) has it probe the leader when it is asked, which ends in a round
//!   trip or two if the leader is gone.
//!
//! # Where the paper is silent
//!
//! - A proposal of an older epoch is answered, but does not count as having proposed in this one.
//! - A member that proposes again what is known already has not heard everybody: it is answered, unless it was sent something
//!   within the last T. Otherwise it would wait for the others' next retry, up to 64 T, although both hear each other. The
//!   pause keeps two members from answering each other's answers.
//! - The pause before a retry doubles up to a bound, with [`Rules::PAPER`] as well.
//! - A member without a score (see [`NoScore`]) takes part, so that there
//!   is a quorum, but proposes nobody until it hears of a candidate. An election without any
//!   candidate is repeated.
//! - Of a voter only the latest vote counts.
//!
//! # Bounds
//!
//! A member holds at most one proposal and one vote of each other member; what non-members send
//! is ignored. Within an epoch, and without retries, a member broadcasts at most N times (once to
//! begin, and once for each of the at most N-1 greater proposals) and answers each proposal it
//! receives at most once: at most `2 N^2 (N-1)` messages in a group of N; when all are timely and
//! hear the best first, `N (N-1)`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::election::{Candidacy, quorum};
use crate::identity::{MemberId, Term};
use crate::machine::{self, Effects, Machine};
use crate::oracle::{Measure, Measured, NoScore};
use crate::score::Score;
use crate::time::Instant;
use crate::timer::{TimerKey, Timers};

/// Retries wait up to this many times T: doubling without end would leave a group that was cut
/// off for an hour waiting for another after the cut has healed.
const MAX_BACKOFF: u32 = 64;

/// A candidate with its score; the greater one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Proposal {
    /// Its score.
    pub score: Score,
    /// Who; the higher id breaks ties.
    pub id: MemberId,
}

/// What members send each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// `P`: the sender takes part in an epoch.
    Propose {
        /// The epoch that the sender takes part in.
        epoch: Term,
        /// What the sender is worth itself, or why it is no candidate.
        own: Candidacy,
        /// The greatest proposal it knows of.
        best: Option<Proposal>,
    },
    /// `V`: the sender follows a leader.
    Vote {
        /// Since which epoch.
        epoch: Term,
        /// Whom.
        leader: MemberId,
    },
}

/// What the selection can be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// The leader is lost, or there was none: select one (`new-election`), in an epoch above any
    /// that we took part in and above this one.
    Elect {
        /// The highest term heard of.
        above: Term,
    },
    /// This member is led: it answers proposals with votes.
    Follow {
        /// In this term.
        epoch: Term,
        /// By this member, which may be itself.
        leader: MemberId,
    },
    /// What this member is worth from now on, or why it is no candidate (`get-score`).
    Scored(Candidacy),
    /// A member is suspected to be down, or is not any more.
    Suspected {
        /// The member that is, or was, suspected.
        member: MemberId,
        /// Whether it is.
        suspected: bool,
    },
    /// A message arrived.
    Received {
        /// Who sent it.
        from: MemberId,
        /// What it says.
        message: Message,
    },
}

/// What the selection tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A leader was selected.
    Elected {
        /// The epoch.
        epoch: Term,
        /// Whom.
        leader: MemberId,
        /// What ended the election.
        ended: SelectionEnd,
    },
}

/// What ended an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionEnd {
    /// All members have proposed.
    Everyone,
    /// All members that are not suspected have proposed.
    Unsuspected,
    /// A quorum has proposed, and the others did not in time.
    Timeout,
    /// A quorum follows that leader already, and so does it itself.
    Votes,
}

/// What the selection asks for. It keeps nothing on disk.
pub type Effect = machine::Effect<Message, Infallible, Event>;

/// Which improvements over the paper are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// End as soon as all members that are not suspected have proposed.
    pub end_early: bool,
    /// Only members that hear a quorum are candidates. Selection itself is told by its caller who
    /// is one; [`member`](super::member) is that caller.
    pub hear_quorum: bool,
    /// Who votes for a leader takes no part in electing another.
    pub voters_abstain: bool,
}

impl Rules {
    /// As printed, but for what [the paper is silent on](self#where-the-paper-is-silent).
    pub const PAPER: Rules = Rules { end_early: false, hear_quorum: false, voters_abstain: false };
}

impl Default for Rules {
    /// All improvements.
    fn default() -> Self {
        Rules { end_early: true, hear_quorum: true, voters_abstain: true }
    }
}

/// How a selection is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This member.
    pub me: MemberId,
    /// All members, this one included.
    pub members: Vec<MemberId>,
    /// T: how long to wait for the others once a quorum has proposed, and for anything at all
    /// before trying again.
    pub timeout: Duration,
    /// Improvements.
    pub rules: Rules,
}

#[derive(Clone, Copy)]
enum Timer {
    Election,
    Retry,
}

impl TimerKey for Timer {
    fn slot(self) -> usize {
        self as usize
    }
}

/// One member's part in selecting a leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selection {
    config: Config,
    epoch: Term,
    leader: Option<MemberId>,
    score: Candidacy,
    /// The score that we take part with in this epoch: it must not change while it lasts, or
    /// members that have concluded have another leader than those that have not.
    own: Candidacy,
    best: Option<Proposal>,
    /// What those are worth that have proposed in this epoch.
    proposed: BTreeMap<MemberId, Candidacy>,
    votes: BTreeMap<MemberId, (Term, MemberId)>,
    /// When each member was last sent our proposal of this epoch.
    sent: BTreeMap<MemberId, Instant>,
    suspected: Vec<MemberId>,
    timers: Timers<2>,
    backoff: u32,
}

impl Selection {
    /// A member that follows nobody and takes part in nothing yet.
    pub fn new(mut config: Config) -> Self {
        config.members.push(config.me);
        config.members.sort_unstable();
        config.members.dedup();
        Selection {
            config,
            epoch: Term::NONE,
            leader: None,
            score: Err(NoScore::Unknown(Measure::Constant)),
            own: Err(NoScore::Unknown(Measure::Constant)),
            best: None,
            proposed: BTreeMap::new(),
            votes: BTreeMap::new(),
            sent: BTreeMap::new(),
            suspected: Vec::new(),
            timers: Timers::default(),
            backoff: 1,
        }
    }

    /// Who takes part from now on. What those who are gone have said counts no longer.
    pub fn set_members(&mut self, members: impl IntoIterator<Item = MemberId>) {
        self.config.members = members.into_iter().collect();
        self.config.members.sort_unstable();
        self.config.members.dedup();
        let members = &self.config.members;
        let is_member = |id: &MemberId| members.binary_search(id).is_ok();
        self.proposed.retain(|id, _| is_member(id));
        self.votes.retain(|id, _| is_member(id));
        self.suspected.retain(is_member);
        self.best = self.best.filter(|best| is_member(&best.id));
    }

    /// Takes no part for now, and follows nobody: what was decided before says nothing of what comes.
    pub fn stand_by(&mut self) {
        self.leader = None;
        self.timers = Timers::default();
        self.backoff = 1;
    }

    /// The leader, if one was selected.
    pub fn leader(&self) -> Option<MemberId> {
        self.leader
    }

    /// The epoch it was selected in, or is being.
    pub fn epoch(&self) -> Term {
        self.epoch
    }

    /// What the members said of themselves that have proposed in this epoch.
    pub fn proposed(&self) -> &BTreeMap<MemberId, Candidacy> {
        &self.proposed
    }

    fn proposal_of(&self, standing: Candidacy) -> Option<Proposal> {
        standing.ok().map(|Measured { score, .. }| Proposal { score, id: self.config.me })
    }

    /// Lines 14 to 18.
    fn elect(&mut self, above: Term, now: Instant, effects: &mut Effects<Effect>) {
        // Epochs do not run out: one a nanosecond would last 584 years.
        let above = self.epoch.max(above);
        let epoch = above.next().unwrap_or(above);
        self.backoff = 1;
        self.start_epoch(epoch, None, now, effects);
    }

    /// Lines 10 to 13.
    fn start_epoch(
        &mut self,
        epoch: Term,
        heard: Option<Proposal>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        self.epoch = epoch;
        self.leader = None;
        self.own = self.score;
        self.best = self.proposal_of(self.own).max(heard);
        self.proposed.clear();
        self.votes.clear();
        self.timers.clear(Timer::Election);
        self.start_retry(now);
        self.broadcast(now, effects);
        self.count(self.config.me, self.own, now, effects);
    }

    fn start_retry(&mut self, now: Instant) {
        let pause = self.config.timeout.saturating_mul(self.backoff);
        self.timers.set(Timer::Retry, now + pause);
    }

    /// Lines 33 to 49.
    fn receive_proposal(
        &mut self,
        from: MemberId,
        epoch: Term,
        own: Candidacy,
        best: Option<Proposal>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if let Some(leader) = self.leader {
            let message = Message::Vote { epoch: self.epoch, leader };
            effects.push(Effect::Send { to: from, message });
            return;
        }
        let best = best.filter(|proposal| self.is_member(proposal.id));
        if epoch > self.epoch {
            self.start_epoch(epoch, best, now, effects);
        } else if epoch == self.epoch && best > self.best {
            self.best = best;
            self.broadcast(now, effects);
        } else if epoch < self.epoch || best < self.best || self.was_silent_to(from, now) {
            self.sent.insert(from, now);
            effects.push(Effect::Send { to: from, message: self.proposal() });
        }
        if epoch == self.epoch {
            self.count(from, own, now, effects);
        }
    }

    /// Lines 54 to 65.
    fn receive_vote(
        &mut self,
        from: MemberId,
        epoch: Term,
        leader: MemberId,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if self.leader.is_some() || self.timers.get(Timer::Retry).is_none() {
            return;
        }
        self.votes.insert(from, (epoch, leader));
        let agreeing = self.votes.values().filter(|vote| **vote == (epoch, leader)).count();
        // Line 60: a leader that has crashed does not vote for itself.
        let led = self.votes.get(&leader) == Some(&(epoch, leader));
        if led && agreeing >= quorum(self.config.members.len()) {
            self.epoch = epoch;
            self.conclude(leader, SelectionEnd::Votes, effects);
        } else if !self.config.rules.voters_abstain {
            // Lines 64 and 65.
            self.end_or_wait(now, effects);
        }
    }

    /// Counts who has proposed.
    fn count(
        &mut self,
        from: MemberId,
        own: Candidacy,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        self.proposed.insert(from, own);
        self.end_or_wait(now, effects);
    }

    /// Whether a member takes part in this epoch.
    fn takes_part(&self, member: MemberId) -> bool {
        self.proposed.contains_key(&member)
            || !self.config.rules.voters_abstain && self.votes.contains_key(&member)
    }

    fn is_quorum(&self) -> bool {
        let members = &self.config.members;
        members.iter().filter(|id| self.takes_part(**id)).count() >= quorum(members.len())
    }

    /// Lines 27 to 32: ends the election or bounds the wait.
    fn end_or_wait(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.end_if_complete(effects);
        let is_quorum = self.is_quorum();
        let waits = self.leader.is_none() && self.timers.get(Timer::Election).is_none();
        if waits && is_quorum {
            self.timers.set(Timer::Election, now + self.config.timeout);
        }
    }

    fn end_if_complete(&mut self, effects: &mut Effects<Effect>) {
        let members = &self.config.members;
        if self.leader.is_some() || !self.is_quorum() {
            return;
        }
        let missing = |id: &&MemberId| !self.takes_part(**id);
        let unheard = members.iter().filter(missing).count();
        let all_suspected =
            members.iter().filter(missing).all(|member| self.suspected.contains(member));
        let ended = match unheard {
            0 => SelectionEnd::Everyone,
            _ if self.config.rules.end_early && all_suspected => SelectionEnd::Unsuspected,
            _ => return,
        };
        if let Some(best) = self.best {
            self.conclude(best.id, ended, effects);
        }
    }

    /// We are led, whatever came of the election.
    fn follow(&mut self, epoch: Term, leader: MemberId) {
        if self.epoch != epoch {
            self.proposed.clear();
        }
        self.epoch = epoch;
        self.leader = Some(leader);
        self.sent.clear();
        self.timers = Timers::default();
        self.backoff = 1;
    }

    fn conclude(&mut self, leader: MemberId, ended: SelectionEnd, effects: &mut Effects<Effect>) {
        let epoch = self.epoch;
        self.follow(epoch, leader);
        effects.push(Effect::Tell(Event::Elected { epoch, leader, ended }));
    }

    fn proposal(&self) -> Message {
        Message::Propose { epoch: self.epoch, own: self.own, best: self.best }
    }

    fn broadcast(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.sent = self.config.members.iter().map(|member| (*member, now)).collect();
        effects.push(Effect::Broadcast(self.proposal()));
    }

    /// Whether we have sent a member nothing for T, so that a proposal of its which brings nothing new is no
    /// answer to one of ours: it lacks what we propose.
    fn was_silent_to(&self, member: MemberId, now: Instant) -> bool {
        self.sent.get(&member).is_none_or(|sent| now >= *sent + self.config.timeout)
    }

    fn is_member(&self, id: MemberId) -> bool {
        self.config.members.binary_search(&id).is_ok()
    }

    fn set_suspected(
        &mut self,
        member: MemberId,
        suspected: bool,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if !self.is_member(member) || member == self.config.me {
            return;
        }
        let before = self.suspected.len();
        self.suspected.retain(|other| *other != member);
        if suspected {
            self.suspected.push(member);
            self.end_if_complete(effects);
        } else if self.suspected.len() < before && self.timers.get(Timer::Retry).is_some() {
            // It is back, and has not heard what we proposed meanwhile: pauses that have grown long
            // are over.
            self.backoff = 1;
            self.timers.set(Timer::Retry, now);
        }
    }
}

impl Machine for Selection {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, input: Input, now: Instant, effects: &mut Effects<Effect>) {
        match input {
            Input::Elect { above } => self.elect(above, now, effects),
            Input::Follow { epoch, leader } => self.follow(epoch, leader),
            Input::Scored(score) => self.score = score,
            Input::Suspected { member, suspected } => {
                self.set_suspected(member, suspected, now, effects);
            }
            Input::Received { from, .. } if !self.is_member(from) || from == self.config.me => {}
            Input::Received { message: Message::Propose { epoch, .. }, .. }
            | Input::Received { message: Message::Vote { epoch, .. }, .. }
                if !epoch.is_plausible_after(self.epoch) => {}
            Input::Received { from, message: Message::Propose { epoch, own, best } } => {
                self.receive_proposal(from, epoch, own, best, now, effects);
            }
            Input::Received { from, message: Message::Vote { epoch, leader } } => {
                self.receive_vote(from, epoch, leader, now, effects);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        // Line 50.
        if self.timers.expired(Timer::Election, now).is_some()
            && let Some(best) = self.best
        {
            self.conclude(best.id, SelectionEnd::Timeout, effects);
        }
        // Lines 20 to 25.
        if self.timers.expired(Timer::Retry, now).is_some() {
            self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
            self.start_retry(now);
            if self.best.is_none() {
                // Nobody is a candidate yet; we may be one by now.
                self.own = self.score;
                self.best = self.proposal_of(self.own);
            }
            self.broadcast(now, effects);
            self.count(self.config.me, self.own, now, effects);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }
}

#[cfg(test)]
mod tests;
