//! NFD-L: a leader election as a failure detector (Algorithm 2), for processes that crash and
//! recover. Guarantee: *overlap*. Each side of a partition has a leader as soon as it has noticed
//! that it lost one, and eventually there is one for all.
//!
//! The leader broadcasts heartbeats; everyone else watches them with
//! [NFD-E](crate::detector::nfd_e) and is silent. Who hears no leader claims to lead. Of two that
//! lead, the one that has led longer stays. In steady state that is one broadcaster, N-1 messages
//! an interval, and one write to stable storage in all of a member's incarnations: its *zero time*, from
//! which it labels its heartbeats, so that after a crash they go on as if they had only paused.
//!
//! # What it assumes
//!
//! Agreement needs links that eventually deliver in time, and processes that eventually stay up.
//! Nothing is assumed of wall clocks; of monotonic clocks, that their rates differ by little
//! (a per cent is plenty).
//!
//! # Bound
//!
//! Once links deliver within `d` and processes neither crash nor stall, all that are up agree on
//! one leader that is up within `2 * detect + 2 * interval + 4 * d`. The simulator demands it.
//!
//! # Where the paper is silent, or wrong
//!
//! - **Equal uptimes.** The paper compares counts of heartbeats, and breaks ties by id. But each
//!   of two leaders compares the other's count *as sent* with its own *by now*: of two that began
//!   within an interval of each other, each may find itself ahead, without end. The simulator finds
//!   such pairs readily ([`Seniority::Printed`] keeps the rule for that purpose). Here uptimes
//!   are compared in classes that double ([`Seniority::Classes`]): the first is half a second, and
//!   each lasts as long as all before it together, so for nearly all of the time both sides see
//!   the same two classes, and ids decide between equals. Classes only rise, and a leader weighs
//!   only the heartbeat it has just heard, so of two leaders never both give way to each other.
//! - **Uptime** is the length of the present reign, not of all reigns. With the sum, a member
//!   that once led for a day would, after a long pause, unseat a leader of an hour that does its
//!   work.
//! - **Stability.** A newcomer listens for one interval before it claims, and even if it claims
//!   (the one heartbeat was lost), its uptime is the least. A leader is unseated only by one
//!   whose reign is of the same class or a higher: after a partition, by the leader of the other
//!   side if it has led at least half as long; in its own first half second, by a higher id; and
//!   by one of higher [`priority`](Config::priority), which is equal for all unless the operator
//!   says otherwise.
//! - **The wall clock stepped back while a member was down.** Its labels are then lower than
//!   those it used before. Monitors that still trust its former incarnation ignore it until they no
//!   longer do, at most one detection time; after that they accept any label of a new incarnation. It is
//!   never muted for as long as the clock stepped. If the clock reads less than zero time, labels
//!   are negative, and still rise; the application is told.
//! - **It jumped ahead.** Labels jump; monitors start a new average ([NFD-E](crate::detector::nfd_e) does the same).
//!   Steps while a member is up do not matter: the wall clock is read once, at the start.
//! - **A leader comes back inside its own freshness period.** If it does so within one interval
//!   of listening, monitors never suspect it: it goes on leading, and they are told that it was
//!   restarted. Otherwise someone else leads by then, and it follows.
//! - **Several leaders after a partition heals.** The senior stays, the others follow it at its
//!   next heartbeat.
//! - **What a restart remembers.** Zero time and nothing else: not who led, not that it led.
//!   Without its disk a member takes a new zero time, and is treated like one whose clock stepped
//!   back.
//! - **A member that was stalled** (paused, starved, suspended) must not judge by time in which
//!   it did not listen: a follower that wakes late gives its leader one more interval before it
//!   suspects it, and a leader that could not beat for a whole detection time takes itself for
//!   deposed and listens first.
//! - **The leader falls silent while others claim.** A follower that has heard a claim follows
//!   the claimant when its own leader's freshness ends, instead of claiming as well. Those whose
//!   freshness ends within one delay of the first still claim, and settle it by id as soon as
//!   they hear each other.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::detector::quality::{Detection, Quality, Watched};
use crate::detector::schedule::Schedule;
use crate::detector::{FailureDetector, Label};
use crate::identity::{Incarnation, MemberId};
use crate::machine::{Effects, Machine};
use crate::time::Instant;

mod config;
mod interface;
mod peer;
mod quality;
mod resignation;
mod seniority;

pub use config::{Config, InvalidConfig};
pub use interface::{Boot, Effect, Event, Heartbeat, Input, Message, Reason, Stable};
use peer::Peer;
use seniority::Rank;
pub use seniority::Seniority;

/// One member.
#[derive(Clone, Debug)]
pub struct NfdL {
    config: Config,
    lifetime: Incarnation,
    schedule: Schedule,
    role: Role,
    peers: BTreeMap<MemberId, Peer>,
    /// How many heartbeats this incarnation has sent: the paper's uptime.
    sent: u64,
    /// A late wake-up was forgiven since the last fresh heartbeat.
    forgave: bool,
    impostor: Option<Incarnation>,
    quality: Quality,
    /// Mean one-way delay from a member, as the driver knows it.
    delay: Option<(MemberId, Duration)>,
    /// We have resigned, and do not claim before.
    abstains_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Listening { until: Instant },
    Following { leader: MemberId },
    Leading { since: Instant },
}

impl NfdL {
    /// Starts a member: for the first time, or after a crash.
    pub fn start(config: Config, boot: Boot, now: Instant, effects: &mut Effects<Effect>) -> Self {
        let zero = boot.stored.map_or(boot.wall, |stored| stored.zero);
        if boot.stored.is_none() {
            effects.push(Effect::Persist(Stable { zero }));
        }
        if let Err(by) = boot.wall.since(zero) {
            effects.push(Effect::Tell(Event::ClockBehind { by }));
        }
        NfdL {
            lifetime: boot.lifetime,
            schedule: Schedule::new(Label::at(boot.wall, zero), config.interval(), now),
            role: Role::Listening { until: now + config.interval() },
            peers: BTreeMap::new(),
            sent: 0,
            forgave: false,
            impostor: None,
            quality: Quality::new(config.wanted().copied()),
            delay: None,
            abstains_until: None,
            config,
        }
    }

    /// The output: who leads, as far as this member knows. `None` while it listens.
    pub fn leader(&self) -> Option<MemberId> {
        match self.role {
            Role::Listening { .. } => None,
            Role::Following { leader } => Some(leader),
            Role::Leading { .. } => Some(self.config.id()),
        }
    }

    /// Since when this member leads, if it does.
    pub fn leads_since(&self) -> Option<Instant> {
        match self.role {
            Role::Leading { since } => Some(since),
            _ => None,
        }
    }

    /// Until when the others, if they hear nothing more, believe that this member leads; if it does.
    pub fn believed_until(&self) -> Option<Instant> {
        self.leads_since()?;
        Some(self.schedule.last()? + self.config.detect())
    }

    /// This member's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How well the leader that is followed is watched, and what was delivered so far.
    pub fn detection(&self, now: Instant) -> Detection {
        let watched = match self.role {
            Role::Following { leader } => self
                .peers
                .get(&leader)
                .map(|peer| Watched::new(leader, &peer.detector, peer.link.estimate())),
            _ => None,
        };
        self.quality.detection(watched, now)
    }

    /// Whether a member that was heard leading is not any more.
    pub fn is_suspected(&self, member: MemberId, now: Instant) -> bool {
        self.peers.get(&member).is_some_and(|peer| !peer.is_trusted(now))
    }

    /// Bytes on the heap, for those who watch memory: it is bounded by
    /// [`Config::max_peers`].
    pub fn heap_bytes(&self) -> usize {
        let peer = |peer: &Peer| size_of::<(MemberId, Peer)>() + peer.detector.heap_bytes();
        self.peers.values().map(peer).sum()
    }

    fn receive(
        &mut self,
        from: MemberId,
        heartbeat: Heartbeat,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if from == self.config.id() {
            return self.report_impostor(heartbeat.lifetime, effects);
        }
        if !heartbeat.beat.is_plausible() {
            return;
        }
        let Some(peer) = self.peer_of_incarnation(from, &heartbeat, now) else { return };
        let arrival = peer.detector.arrive(heartbeat.beat, now);
        peer.link.arrive_as(arrival, heartbeat.beat, now);
        if !arrival.is_fresh() {
            return;
        }
        peer.uptime = heartbeat.uptime;
        peer.heard = now;
        peer.priority = heartbeat.priority;
        let restarted = core::mem::take(&mut peer.reborn);
        let slow = !peer.detector.keeps_bound();
        let newly_slow = slow && !core::mem::replace(&mut peer.slow, slow);
        self.quality.delivered.heard(from, !restarted, now);
        if self.role == (Role::Following { leader: from }) {
            self.forgave = false;
            if restarted {
                effects.push(Effect::Tell(Event::LeaderRestarted { leader: from }));
            }
        }
        self.weigh(from, now, effects);
        self.look_at_plan(from, heartbeat.beat, effects);
        if newly_slow && self.role == (Role::Following { leader: from }) {
            let interval = heartbeat.beat.interval;
            effects.push(Effect::Tell(Event::LeaderTooSlow { leader: from, interval }));
        }
    }

    /// What is known of the sender, begun anew if this is another incarnation of it. `None` if the
    /// heartbeat is of an incarnation that is over, or if there is no room to remember the sender.
    fn peer_of_incarnation(
        &mut self,
        from: MemberId,
        heartbeat: &Heartbeat,
        now: Instant,
    ) -> Option<&mut Peer> {
        if !self.peers.contains_key(&from) {
            self.make_room(from, heartbeat, now)?;
        }
        let incarnation = heartbeat.lifetime;
        let label = heartbeat.beat.label;
        let peer = self.peers.entry(from).or_insert_with(|| Peer::new(incarnation, &self.config));
        let latest = peer.detector.latest();
        if peer.lifetime != incarnation {
            // Labels go on across a restart. One that does not is a straggler from an earlier
            // incarnation, or the clock stepped back: either way, the incarnation that is trusted stands.
            let stale =
                peer.former.is_some_and(|former| former.0 == incarnation && label <= former.1);
            if stale || Some(label) <= latest && peer.is_trusted(now) {
                return None;
            }
            let former = latest.map(|latest| (peer.lifetime, latest));
            *peer = Peer { former, reborn: true, ..Peer::new(incarnation, &self.config) };
        } else if !peer.is_trusted(now) && heartbeat.reign_began() > latest {
            // What was averaged in an earlier reign may be long out of date.
            *peer = Peer { former: peer.former, ..Peer::new(incarnation, &self.config) };
        }
        Some(peer)
    }

    /// Makes room for one more, if there are too many: forgets the member that has been silent
    /// the longest, or the most junior if all are trusted; but not for one that is more junior
    /// still, and never the one that we follow.
    fn make_room(&mut self, from: MemberId, heartbeat: &Heartbeat, now: Instant) -> Option<()> {
        if self.peers.len() < self.config.max_peers() {
            return Some(());
        }
        let followed = self.leader();
        let spare = self.peers.iter().filter(|(id, _)| Some(**id) != followed);
        let standing = |(id, peer): &(&MemberId, &Peer)| {
            (peer.is_trusted(now).then(|| self.rank(**id, peer, now)), peer.heard)
        };
        let least = spare.min_by_key(standing)?;
        let newcomer = Rank {
            priority: heartbeat.priority,
            uptime: self.config.seniority().weight(heartbeat.uptime, Duration::ZERO),
            id: from,
        };
        if standing(&least).0 > Some(newcomer) {
            return None;
        }
        let least = *least.0;
        self.peers.remove(&least);
        Some(())
    }

    fn report_impostor(&mut self, lifetime: Incarnation, effects: &mut Effects<Effect>) {
        if lifetime != self.lifetime && self.impostor.replace(lifetime) != Some(lifetime) {
            effects.push(Effect::Tell(Event::DuplicateId { lifetime }));
        }
    }

    /// Weighs a leader that was just heard against us if we lead, or against our leader.
    ///
    /// Against nobody else: who was heard before may have given way since, and to give way to
    /// one that has itself given way would leave nobody.
    fn weigh(&mut self, heard: MemberId, now: Instant, effects: &mut Effects<Effect>) {
        let Some(challenger) = self.trusted_rank(heard, now) else { return };
        let reason = |than: u8| {
            if challenger.priority == than { Reason::Seniority } else { Reason::Priority }
        };
        match self.role {
            Role::Leading { .. } => {
                if challenger > self.own_rank(now) {
                    self.follow(heard, reason(self.config.priority()), now, effects);
                }
            }
            _ if self.config.priority() > challenger.priority && !self.abstains(now) => {
                self.claim(Reason::Priority, now, effects);
            }
            Role::Listening { .. } => self.follow(heard, Reason::Heard, now, effects),
            Role::Following { leader } if leader == heard => {}
            Role::Following { leader } => match self.trusted_rank(leader, now) {
                Some(rank) if challenger > rank => {
                    self.follow(heard, reason(rank.priority), now, effects);
                }
                // Silent, and our timer says so now: it knows whether we could have listened.
                Some(_) | None => {}
            },
        }
    }

    /// Our leader is gone: another that is trusted takes its place, or we do.
    fn replace(&mut self, reason: Reason, now: Instant, effects: &mut Effects<Effect>) {
        let trusted = self.peers.keys().filter_map(|id| self.trusted_rank(*id, now));
        match trusted.max() {
            Some(best) if best.priority >= self.config.priority() => {
                self.follow(best.id, reason, now, effects);
            }
            _ => self.claim(reason, now, effects),
        }
    }

    fn rank(&self, id: MemberId, peer: &Peer, now: Instant) -> Rank {
        let uptime = self.config.seniority().weight(peer.uptime, now - peer.heard);
        Rank { priority: peer.priority, uptime, id }
    }

    fn trusted_rank(&self, id: MemberId, now: Instant) -> Option<Rank> {
        let peer = self.peers.get(&id).filter(|peer| peer.is_trusted(now))?;
        Some(self.rank(id, peer, now))
    }

    fn own_rank(&self, now: Instant) -> Rank {
        Rank {
            priority: self.config.priority(),
            uptime: self.config.seniority().weight(self.uptime(now), Duration::ZERO),
            id: self.config.id(),
        }
    }

    fn uptime(&self, now: Instant) -> Duration {
        let reign = self.leads_since().map_or(Duration::ZERO, |since| now - since);
        match self.config.seniority() {
            Seniority::Classes => reign,
            Seniority::Printed => self.config.interval().saturating_mul(self.sent as u32),
        }
    }

    fn claim(&mut self, reason: Reason, now: Instant, effects: &mut Effects<Effect>) {
        self.role = Role::Leading { since: now };
        self.schedule.begin(now);
        self.tell_leader(reason, now, effects);
        self.beat(now, effects);
    }

    fn follow(
        &mut self,
        leader: MemberId,
        reason: Reason,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        self.role = Role::Following { leader };
        self.schedule.end();
        self.forgave = false;
        self.quality.new_leader();
        self.tell_leader(reason, now, effects);
    }

    fn listen(
        &mut self,
        until: Instant,
        reason: Reason,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        self.role = Role::Listening { until };
        self.schedule.end();
        self.forgave = true;
        self.tell_leader(reason, now, effects);
    }

    fn tell_leader(&mut self, reason: Reason, now: Instant, effects: &mut Effects<Effect>) {
        let leader = self.leader();
        self.quality.delivered.watch(matches!(self.role, Role::Following { .. }), now);
        effects.push(Effect::Tell(Event::LeaderChanged { leader, reason }));
    }

    fn beat(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.heed_requests();
        if let Some(beat) = self.schedule.beat(now) {
            self.quality.requests.age();
            effects.push(Effect::Broadcast(Message::Heartbeat(Heartbeat {
                lifetime: self.lifetime,
                beat,
                uptime: self.uptime(now),
                priority: self.config.priority(),
            })));
            self.sent += 1;
        }
    }

    /// Whether a wake-up came so late that we cannot have listened. Forgiven once, so that a
    /// member that is always late still comes to a decision.
    fn forgive(&mut self, due: Instant, now: Instant) -> bool {
        let stalled = now - due >= self.config.interval();
        stalled && !core::mem::replace(&mut self.forgave, true)
    }
}

impl Machine for NfdL {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, input: Input, now: Instant, effects: &mut Effects<Effect>) {
        match input {
            Input::Received { from, message: Message::Heartbeat(heartbeat) } => {
                self.receive(from, heartbeat, now, effects);
            }
            Input::Received { from, message: Message::Farewell { lifetime, label } } => {
                self.receive_farewell(from, lifetime, label, now, effects);
            }
            Input::Received { from, message: Message::Ask { interval } } => {
                self.receive_request(from, interval);
            }
            Input::Delay { member, delay } => self.delay = Some((member, delay)),
            Input::Resign => self.resign(now, effects),
            Input::Replan { interval, detect } => {
                if self.config.replan(interval, detect).is_ok() {
                    self.schedule.set_interval(interval);
                    self.peers.values_mut().for_each(|peer| peer.detector.set_detect(detect));
                    if self.leads_since().is_some() && self.schedule.last() != Some(now) {
                        // Announced at once, and so that our last heartbeat is not older than
                        // the new bound allows.
                        self.schedule.begin(now);
                        self.beat(now, effects);
                    }
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let Some(due) = self.deadline().filter(|due| *due <= now) else { return };
        match self.role {
            Role::Listening { .. } => {
                if self.forgive(due, now) {
                    self.role = Role::Listening { until: now + self.config.interval() };
                } else {
                    self.claim(Reason::NoneHeard, now, effects);
                }
            }
            Role::Following { leader } => {
                if self.forgive(due, now) {
                    let until = now + self.config.interval();
                    if let Some(peer) = self.peers.get_mut(&leader) {
                        peer.detector.extend(until);
                    }
                } else {
                    let heard = self.peers.get(&leader).map_or(now, |peer| peer.heard);
                    self.quality.delivered.suspect(leader, now - heard, now);
                    self.replace(Reason::Silence, now, effects);
                }
            }
            Role::Leading { .. } => {
                let silent = self.schedule.last().map_or(Duration::ZERO, |last| now - last);
                if silent >= self.config.detect() {
                    let until = now + self.config.interval();
                    self.listen(until, Reason::Stalled, now, effects);
                } else {
                    self.beat(now, effects);
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.role {
            Role::Listening { until } => Some(until),
            Role::Following { leader } => self.peers.get(&leader)?.detector.trusted_until(),
            Role::Leading { .. } => self.schedule.due(),
        }
    }
}

#[cfg(test)]
mod tests;
