//! Who answers, how far away everyone is, and what they say of themselves.
//!
//! Everyone is pinged on a period. The mean round trip is that of about the last
//! [`SAMPLES`] answers. Who has not answered for a while is suspected; a hint that a member is gone
//! starts a *probe*: three pings in quick succession, and if none is answered, it is suspected at
//! once instead of after a while. The pause between them goes by the round trip and by how much it varies: by the
//! mean alone, on a link whose delays vary a lot, a probe can fail while all three answers are under way (seed 2073).
//!
//! Bounded: one entry for each member, the times of the last [`ROUNDS`] pings.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use super::Config;
use crate::identity::{Incarnation, MemberId, Term};
use crate::oracle::Measured;
use crate::pole::installation::{RosterId, Safeguard, WhyNoVote};
use crate::time::{Instant, nanos};

/// How many answers the mean is about.
pub const SAMPLES: u32 = 64;

/// Pings of which an answer still counts.
pub(super) const ROUNDS: usize = 16;

/// Pings of a probe.
const PROBES: u32 = 3;

/// The least time between the pings of a probe: a busy host takes a while to answer.
const PROBE_PAUSE: Duration = Duration::from_millis(3);

#[derive(Clone, Debug)]
pub(super) struct Pings {
    peers: BTreeMap<MemberId, Peer>,
    /// When the last pings were sent, by number.
    sent: VecDeque<(u64, Instant)>,
    number: u64,
    answers_within: Duration,
    /// What a probe waits when the round trip is not known.
    unknown_round_trip: Duration,
    /// Probes wait by the round trip to the nearest member: wrong, and done on purpose only.
    by_nearest: bool,
}

#[derive(Clone, Debug)]
struct Peer {
    /// Of the round trip, nanoseconds.
    mean: f64,
    /// How far round trips are from the mean, on average; nanoseconds.
    deviation: f64,
    samples: u32,
    /// Until when it counts as answering.
    trusted_until: Instant,
    suspected: bool,
    /// Answers to pings up to this one prove nothing: they were sent before it was suspected.
    proves_above: u64,
    probe: Option<Probe>,
    requests: f64,
    /// The newest version of the protocol that it speaks, as it last said.
    speaks: Option<u32>,
    /// The incarnation of it that answered last.
    incarnation: Option<Incarnation>,
    has_vote: bool,
    /// Why not, if it has said so.
    no_vote: Option<WhyNoVote>,
    /// By which list it goes, once it has said so.
    list: Option<RosterId>,
    /// It has just said that it has none.
    said_no_vote: bool,
    standing: Option<Measured>,
    /// The highest term that it is known to have promised, and the last ping before that was known.
    witnessed: (Term, u64),
    /// It has answered a later ping with a lower one.
    distrusted: bool,
    /// The incarnation of it that has asked what it may have promised.
    excused: Option<Incarnation>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    above: u64,
    left: u32,
    pause: Duration,
    next: Instant,
}

impl Peer {
    /// Of whom nothing is known; answers to pings up to this number prove nothing.
    fn unknown(number: u64, trusted_until: Instant) -> Self {
        Peer {
            mean: 0.0,
            deviation: 0.0,
            samples: 0,
            trusted_until,
            suspected: false,
            proves_above: number,
            probe: None,
            requests: 0.0,
            speaks: None,
            incarnation: None,
            has_vote: false,
            no_vote: None,
            list: None,
            said_no_vote: false,
            standing: None,
            witnessed: (Term::NONE, number),
            distrusted: false,
            excused: None,
        }
    }

    /// Takes a round trip, in nanoseconds. The first is taken to vary by half, as TCP does (RFC 6298).
    fn measure(&mut self, round_trip: f64) {
        let distance = match self.samples {
            0 => round_trip / 2.0,
            _ => (round_trip - self.mean).max(self.mean - round_trip),
        };
        self.samples = (self.samples + 1).min(SAMPLES);
        self.mean += (round_trip - self.mean) / f64::from(self.samples);
        self.deviation += (distance - self.deviation) / f64::from(self.samples);
    }

    /// What a probe waits for an answer: the first of its pings has three times as long.
    fn probe_pause(&self) -> Duration {
        let pause = (self.mean * 1.25).max(self.mean + 2.0 * self.deviation);
        Duration::from_nanos(pause as u64)
    }
}

impl Pings {
    pub(super) fn new(
        others: impl Iterator<Item = MemberId>,
        config: &Config,
        incarnation: Incarnation,
        now: Instant,
    ) -> Self {
        // Numbers of one incarnation are not taken for those of another.
        let number = incarnation.get() >> 2;
        let answers_within = config.answers_within();
        let peer = Peer::unknown(number, now + answers_within);
        Pings {
            peers: others.map(|id| (id, peer.clone())).collect(),
            sent: VecDeque::new(),
            number,
            answers_within,
            unknown_round_trip: config.timeout,
            by_nearest: config.without == Some(Safeguard::OwnRoundTrip),
        }
    }

    /// The number of a ping that is sent now; all that are sent at once share one.
    pub(super) fn next(&mut self, now: Instant) -> u64 {
        if let Some((number, _)) = self.sent.back().filter(|(_, at)| *at == now) {
            return *number;
        }
        self.number += 1;
        self.sent.push_back((self.number, now));
        if self.sent.len() > ROUNDS {
            self.sent.pop_front();
        }
        self.number
    }

    /// Takes by which list a member goes.
    pub(super) fn goes_by(&mut self, from: MemberId, list: RosterId) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.list = Some(list);
        }
    }

    /// Why members have no vote, and by which lists they go, as far as they have said.
    pub(super) fn said(
        &self,
    ) -> impl Iterator<Item = (MemberId, Option<WhyNoVote>, RosterId)> + '_ {
        self.peers.iter().filter_map(|(id, peer)| Some((*id, peer.no_vote, peer.list?)))
    }

    /// Takes what another says of its clients.
    pub(super) fn heard(&mut self, from: MemberId, requests: f64) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.requests = requests;
        }
    }

    /// Takes which version of the protocol another speaks.
    pub(super) fn spoke(&mut self, from: MemberId, version: u32) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.speaks = Some(version);
        }
    }

    /// As if nobody had said it yet.
    #[cfg(test)]
    pub(super) fn forget_spoken(&mut self) {
        self.peers.values_mut().for_each(|peer| peer.speaks = None);
    }

    /// The version that each other said last that it speaks.
    pub(super) fn spoken(&self) -> impl Iterator<Item = (MemberId, Option<u32>)> + '_ {
        self.peers.iter().map(|(id, peer)| (*id, peer.speaks))
    }

    /// Takes which incarnation of a member answered a ping, if that ping proves anything; whether it is the one that
    /// answered before.
    pub(super) fn same_incarnation(
        &mut self,
        from: MemberId,
        number: u64,
        incarnation: Incarnation,
    ) -> Option<bool> {
        let was_sent = self.sent.iter().any(|(sent, _)| *sent == number);
        let peer = self.peers.get_mut(&from).filter(|it| was_sent && number > it.proves_above)?;
        let before = peer.incarnation.replace(incarnation);
        Some(before.is_none_or(|before| before == incarnation))
    }

    /// Remembers that a member has promised a term.
    pub(super) fn witness(&mut self, from: MemberId, term: Term) {
        let number = self.number;
        if let Some(peer) = self.peers.get_mut(&from).filter(|peer| term > peer.witnessed.0) {
            peer.witnessed = (term, number);
        }
    }

    /// What a member has promised is not held against this incarnation of it any more: it asks the others, since it has lost its disk or
    /// knows that it went back. Its next incarnation may find the older disk still, so nothing is forgotten.
    pub(super) fn excuse(&mut self, from: MemberId, incarnation: Incarnation) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.excused = Some(incarnation);
            peer.distrusted = false;
        }
    }

    /// Takes what a member says that it has promised, in answer to a ping; the term that it is known to have
    /// promised before that ping, if that is higher.
    pub(super) fn went_back(
        &mut self,
        from: MemberId,
        (number, incarnation): (u64, Incarnation),
        has_vote: bool,
        promised: Term,
    ) -> Option<Term> {
        let was_sent = self.sent.iter().any(|(sent, _)| *sent == number);
        self.witness(from, promised);
        let peer = self.peers.get_mut(&from).filter(|_| was_sent)?;
        let (term, since) = peer.witnessed;
        if peer.excused == Some(incarnation) {
            return None;
        }
        peer.distrusted = has_vote && promised < term && (number > since || peer.distrusted);
        peer.distrusted.then_some(term)
    }

    /// Whether a member has forgotten what it promised.
    pub(super) fn is_distrusted(&self, member: MemberId) -> bool {
        self.peers.get(&member).is_some_and(|peer| peer.distrusted)
    }

    /// Takes an answer; true if it ends a suspicion.
    pub(super) fn answered(
        &mut self,
        from: MemberId,
        number: u64,
        (no_vote, standing): (Option<WhyNoVote>, Option<Measured>),
        now: Instant,
    ) -> bool {
        let sent = self.sent.iter().find(|(sent, _)| *sent == number).map(|(_, at)| *at);
        let (Some(sent), Some(peer)) = (sent, self.peers.get_mut(&from)) else { return false };
        // The first answer to a ping measures; one that was repeated by the network does not.
        if number <= peer.proves_above {
            return false;
        }
        peer.proves_above = number;
        // An answer that waited for us while we were stalled says nothing of the link.
        if now - sent <= self.answers_within {
            peer.measure(nanos(now - sent) as f64);
        }
        peer.trusted_until = peer.trusted_until.max(sent + self.answers_within);
        peer.has_vote = no_vote.is_none();
        peer.said_no_vote = no_vote.is_some();
        peer.no_vote = no_vote;
        peer.standing = standing;
        if peer.probe.is_some_and(|probe| number > probe.above) {
            peer.probe = None;
        }
        core::mem::take(&mut peer.suspected)
    }

    /// Suspects a member: only pings from now on can prove that it is up. False if it was
    /// suspected already.
    pub(super) fn suspect(&mut self, member: MemberId) -> bool {
        let number = self.number;
        let Some(peer) = self.peers.get_mut(&member) else { return false };
        peer.proves_above = number;
        peer.probe = None;
        peer.standing = None;
        !core::mem::replace(&mut peer.suspected, true)
    }

    /// Begins to probe a member, unless it is being probed already or is suspected.
    pub(super) fn probe(&mut self, member: MemberId, now: Instant) {
        // A ping that is sent now, for whatever reason, counts.
        let sent_now = self.sent.back().is_some_and(|(_, at)| *at == now);
        let above = self.number - u64::from(sent_now);
        let unknown = self.unknown_round_trip;
        let nearest = self.peers.values().filter(|peer| self.by_nearest && peer.samples > 0);
        let nearest = nearest.map(Peer::probe_pause).min();
        let Some(peer) = self.peers.get_mut(&member) else { return };
        if peer.suspected || peer.probe.is_some() {
            return;
        }
        let pause = if peer.samples == 0 {
            unknown / PROBES
        } else {
            nearest.unwrap_or_else(|| peer.probe_pause())
        };
        let pause = pause.max(PROBE_PAUSE);
        peer.probe = Some(Probe { above, left: PROBES, pause, next: now });
    }

    /// A sign of life other than an answer: a probe need not go on.
    pub(super) fn end_probe(&mut self, member: MemberId) {
        if let Some(peer) = self.peers.get_mut(&member) {
            peer.probe = None;
        }
    }

    /// We were stalled and could not listen: nobody is silent before `until`.
    pub(super) fn forgive(&mut self, until: Instant) {
        for peer in self.peers.values_mut().filter(|peer| !peer.suspected) {
            peer.trusted_until = peer.trusted_until.max(until);
        }
    }

    /// Members whose probe wants another ping now.
    pub(super) fn next_probe(&mut self, now: Instant) -> Option<Probed> {
        let due = |(_, peer): &(&MemberId, &mut Peer)| peer.probe.is_some_and(|p| p.next <= now);
        let (member, peer) = self.peers.iter_mut().find(due)?;
        let member = *member;
        let probe = peer.probe.as_mut()?;
        if probe.left == 0 {
            return Some(Probed::Failed(member));
        }
        probe.left -= 1;
        probe.next = now + probe.pause;
        Some(Probed::Ping(member))
    }

    /// A member that has not answered for too long, and is not suspected yet.
    pub(super) fn next_silent(&self, now: Instant) -> Option<MemberId> {
        let silent = |peer: &Peer| !peer.suspected && peer.trusted_until <= now;
        self.peers.iter().find(|(_, peer)| silent(peer)).map(|(id, _)| *id)
    }

    /// When something is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let of = |peer: &Peer| {
            let silence = (!peer.suspected).then_some(peer.trusted_until);
            silence.into_iter().chain(peer.probe.map(|probe| probe.next)).min()
        };
        self.peers.values().filter_map(of).min()
    }

    pub(super) fn is_suspected(&self, member: MemberId) -> bool {
        self.peers.get(&member).is_some_and(|peer| peer.suspected)
    }

    /// Whether it has said that it has a vote.
    pub(super) fn has_vote(&self, member: MemberId) -> bool {
        self.peers.get(&member).is_some_and(|peer| peer.has_vote)
    }

    /// Whether its last answer was that it has none; true once for each such answer. (If it were true until the next answer, two that
    /// have not heard from each other since would answer every ping with a ping, and be busy with nothing else.)
    pub(super) fn take_no_vote(&mut self, member: MemberId) -> bool {
        self.peers.get_mut(&member).is_some_and(|peer| core::mem::take(&mut peer.said_no_vote))
    }

    pub(super) fn suspected(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.peers.iter().filter(|(_, peer)| peer.suspected).map(|(id, _)| *id)
    }

    /// How many others answer and have a vote.
    pub(super) fn answering(&self) -> usize {
        self.round_trips().count()
    }

    /// Whether every other of these was measured.
    pub(super) fn knows_all(&self, mut members: impl Iterator<Item = MemberId>) -> bool {
        members.all(|id| self.peers.get(&id).is_none_or(|peer| peer.samples > 0))
    }

    /// Who is pinged from now on; nothing is known of those that are new.
    pub(super) fn set_peers(&mut self, others: impl Iterator<Item = MemberId>, now: Instant) {
        let mut before = core::mem::take(&mut self.peers);
        let new = Peer::unknown(self.number, now + self.answers_within);
        self.peers =
            others.map(|id| (id, before.remove(&id).unwrap_or_else(|| new.clone()))).collect();
    }

    /// Those that answer.
    pub(super) fn unsuspected(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.peers.iter().filter(|(_, peer)| !peer.suspected).map(|(id, _)| *id)
    }

    /// The mean round trip to a member, once it was measured.
    pub(super) fn round_trip(&self, member: MemberId) -> Option<Duration> {
        let peer = self.peers.get(&member).filter(|peer| peer.samples > 0)?;
        Some(Duration::from_nanos(peer.mean as u64))
    }

    /// Mean round trips to those that answer. Who has no vote is no help to a leader, and left out.
    pub(super) fn round_trips(&self) -> impl Iterator<Item = (MemberId, Duration)> + '_ {
        let measured = |peer: &Peer| !peer.suspected && peer.samples > 0 && peer.has_vote;
        let mean = |peer: &Peer| Duration::from_nanos(peer.mean as u64);
        let measured = self.peers.iter().filter(move |(_, peer)| measured(peer));
        measured.map(move |(id, peer)| (*id, mean(peer)))
    }

    /// What everyone that answers says of its clients.
    pub(super) fn request_rates(&self) -> impl Iterator<Item = (MemberId, f64)> + '_ {
        self.peers.iter().map(|(id, peer)| (*id, peer.requests))
    }

    /// What those that answer would be worth in place of the present leader.
    pub(super) fn standings(&self) -> impl Iterator<Item = (MemberId, Measured)> + '_ {
        let standing = |peer: &Peer| peer.standing.filter(|_| !peer.suspected);
        self.peers.iter().filter_map(move |(id, peer)| Some((*id, standing(peer)?)))
    }
}

/// What a probe wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probed {
    /// Another ping to this member.
    Ping(MemberId),
    /// It has not answered.
    Failed(MemberId),
}
