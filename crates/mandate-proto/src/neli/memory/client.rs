//! A member's side of the ledger: it joins, beats, goes through the barrier and fetches by itself.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::identity::Incarnation;
use crate::neli::{
    BarrierId, Input, LedgerRequest, Mark, Partition, PublishOutcome, Renewed, RequestId,
};
use crate::time::Instant;

use super::assignment::AssignmentRule;
use super::broker::Coordination;
use super::protocol::{Call, ClientId, HeartbeatReply, InstanceId, Reply};

/// How a client is set up.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// How long a silence may last.
    pub session: Duration,
    /// Time between signs of life.
    pub heartbeat: Duration,
    /// How long others may have to wait for this one; and for how long its member may not ask for news
    /// before the client leaves in its stead, since somebody else beats on (`max.poll.interval.ms`).
    pub barrier: Duration,
    /// How partitions are given back, where groups are coordinated by generations.
    pub assignor: AssignmentRule,
    /// How groups are coordinated: as the broker does it.
    pub coordination: Coordination,
    /// A name that survives restarts.
    pub instance: Option<InstanceId>,
    /// If the broker does not know it when it joins again, it comes back as another and says nothing, as librdkafka does
    /// with a static name: what it held and is assigned again, it never lost, as far as its member can tell.
    pub hides_losses: bool,
    /// Over which connections renewals go.
    pub renewals: Renewals,
    /// Time between fetches; `None`: no records are wanted.
    pub fetches: Option<Duration>,
}

/// Over which connections renewals go, and what that means on Kafka.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renewals {
    /// Over that of everything else: they are signs of life, and one that is refused tells the client that it was replaced.
    #[default]
    WithTheRest,
    /// Over connections of their own: the client does not hear that one was refused.
    Apart,
    /// And they are no signs of life, as commits in transactions are none.
    ApartAndNoSigns,
}

/// For how many sessions a client with a static name stays out after it was lost: another process may go
/// by that name, and two that took it from each other in turn would keep both from ever leading.
const STATIC_REST: u32 = 4;

/// What comes out of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// For the broker.
    Call(ClientId, Call),
    /// For the member.
    Tell(Input),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Out,
    /// Its member does not ask for news.
    Neglected,
    /// It gives the process that has its static name now the time to live.
    Resting {
        until: Instant,
    },
    /// At the barrier, since then.
    Joining {
        since: Instant,
    },
    In,
}

/// A client.
#[derive(Clone, Debug)]
pub struct MemoryClient {
    config: ClientConfig,
    id: ClientId,
    phase: Phase,
    attempt: u32,
    generation: u64,
    /// It has been told of a generation in this session.
    is_member: bool,
    /// What the member has and has not released.
    held: BTreeSet<Partition>,
    /// What it was asked to release.
    revoking: BTreeSet<Partition>,
    /// Counts revocations, and losses, which make what was asked before moot.
    barriers: u64,
    next_heartbeat: Instant,
    /// When it last heard that all is well.
    heard: Instant,
    positions: BTreeMap<Partition, Option<u64>>,
    next_fetch: Instant,
    polled: Instant,
    /// Since when a sign of life is under way, in a group that is coordinated by epochs: one at a time.
    signed: Option<Instant>,
    /// Something was let go of meanwhile.
    owes_sign: bool,
}

type Out = Vec<Outgoing>;

impl MemoryClient {
    /// A client of a process with this incarnation.
    pub fn new(config: ClientConfig, incarnation: Incarnation) -> Self {
        MemoryClient {
            config,
            id: ClientId { life: incarnation, session: 0 },
            phase: Phase::Out,
            attempt: 0,
            generation: 0,
            is_member: false,
            held: BTreeSet::new(),
            revoking: BTreeSet::new(),
            barriers: 0,
            next_heartbeat: Instant::ORIGIN,
            heard: Instant::ORIGIN,
            positions: BTreeMap::new(),
            next_fetch: Instant::ORIGIN,
            polled: Instant::ORIGIN,
            signed: None,
            owes_sign: false,
        }
    }

    /// As which it is known to the broker.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// The member asks for news.
    pub fn polled(&mut self, now: Instant, out: &mut Out) {
        self.polled = now;
        if self.phase == Phase::Neglected {
            self.join(now, out);
        }
    }

    /// The member asks for something.
    pub fn ask(&mut self, request: LedgerRequest, now: Instant, out: &mut Out) {
        match request {
            LedgerRequest::Join => self.join(now, out),
            LedgerRequest::Publish { id, partition, record } => {
                self.call(Call::Append { id, partition, record }, out);
            }
            LedgerRequest::Renew { id, marks } if self.has_generation() => {
                self.commit(Some(id), marks, out);
            }
            LedgerRequest::Renew { id, .. } => {
                let outcome = Renewed::Failed;
                out.push(Outgoing::Tell(Input::Renewed { id, outcome }));
            }
            LedgerRequest::Inspect { id, .. } => self.call(Call::Inspect { id }, out),
            // What was lost meanwhile, and perhaps assigned again, has nothing to do with it.
            LedgerRequest::Release { barrier, .. } if barrier != self.barrier() => {}
            LedgerRequest::Release { partitions, marks, .. } => {
                self.last_words(marks, out);
                self.release(&partitions, now, out);
            }
            LedgerRequest::Leave { marks } => {
                self.last_words(marks, out);
                self.call(Call::Leave, out);
                self.forget();
                self.phase = Phase::Out;
            }
        }
    }

    /// The broker has answered.
    pub fn replied(&mut self, to: ClientId, reply: Reply, now: Instant, out: &mut Out) {
        if to != self.id {
            return;
        }
        match reply {
            Reply::Joined { attempt, generation, assigned } => {
                if attempt == self.attempt && matches!(self.phase, Phase::Joining { .. }) {
                    self.joined(generation, assigned, now, out);
                }
            }
            Reply::Reconciled { attempt, epoch, assigned } => {
                if attempt == self.attempt && self.has_generation() {
                    self.signed = None;
                    self.reconciled(epoch, assigned, now, out);
                    if core::mem::take(&mut self.owes_sign) {
                        self.give_sign(now, out);
                    }
                }
            }
            Reply::NotAMember { attempt } => {
                if attempt == self.attempt && matches!(self.phase, Phase::Joining { .. }) {
                    match self.config.hides_losses {
                        true => self.return_silently(now, out),
                        false => self.lose(now, out),
                    }
                }
            }
            Reply::Beat(_) if self.phase != Phase::In && !self.is_by_epochs() => {}
            Reply::Beat(_) if !self.has_generation() => {}
            Reply::Beat(HeartbeatReply::Fine) => self.heard = now,
            Reply::Beat(HeartbeatReply::Rebalancing) => {
                self.heard = now;
                self.rebalance(now, out);
            }
            Reply::Beat(HeartbeatReply::Unknown) => self.lose(now, out),
            Reply::Renewed { id, generation, outcome } => {
                self.renewed(id, generation, outcome, now, out);
            }
            Reply::Marks { id, marks } => {
                out.push(Outgoing::Tell(Input::Inspected { id, marks: Some(marks) }));
            }
            Reply::Appended { id, offset, stamp } => {
                let outcome = PublishOutcome::Appended { offset, stamp };
                out.push(Outgoing::Tell(Input::Published { id, outcome }));
            }
            Reply::Fetched { records, next } => {
                for (partition, offset) in next {
                    if let Some(position) = self.positions.get_mut(&partition) {
                        *position = Some(offset);
                    }
                }
                for fetched in records {
                    if self.held.contains(&fetched.partition) {
                        out.push(Outgoing::Tell(Input::Record {
                            partition: fetched.partition,
                            offset: fetched.offset,
                            stamp: fetched.stamp,
                            record: Some(fetched.record),
                        }));
                    }
                }
            }
            Reply::SessionRefused { .. } => self.phase = Phase::Out,
        }
    }

    fn renewed(
        &mut self,
        id: RequestId,
        generation: u64,
        outcome: Renewed,
        now: Instant,
        out: &mut Out,
    ) {
        // One that crossed the end of a barrier is refused though nothing was lost.
        let crossed = generation != self.generation || self.phase != Phase::In;
        let outcome = match outcome {
            Renewed::Refused if crossed => Renewed::Failed,
            outcome => outcome,
        };
        out.push(Outgoing::Tell(Input::Renewed { id, outcome }));
        match (outcome, self.config.renewals) {
            (Renewed::Accepted, Renewals::WithTheRest) => self.heard = now,
            (Renewed::Refused, Renewals::WithTheRest) => self.lose(now, out),
            _ => {}
        }
    }

    /// Does what is due.
    pub fn advance(&mut self, now: Instant, out: &mut Out) {
        let is_neglected = now >= self.polled + self.config.barrier;
        if self.has_generation() && is_neglected {
            self.call(Call::Leave, out);
            self.end_session(out);
            self.phase = Phase::Neglected;
        }
        match self.phase {
            Phase::Out | Phase::Neglected => return,
            Phase::Resting { until } => match now >= until {
                true if is_neglected => self.phase = Phase::Neglected,
                true => self.join(now, out),
                false => {}
            },
            Phase::Joining { since } => {
                if now >= since + self.config.barrier + self.config.session {
                    self.lose(now, out);
                } else if now >= self.next_heartbeat {
                    // The same attempt again: the call or its answer may have been lost.
                    self.next_heartbeat = now + self.config.heartbeat;
                    self.send_join(now, out);
                }
            }
            Phase::In if now >= self.heard + self.config.session => self.lose(now, out),
            Phase::In => {
                if now >= self.next_heartbeat {
                    self.give_sign(now, out);
                }
            }
        }
        if self.is_fetch_due().is_some_and(|due| due <= now) {
            let from = self.positions.iter().map(|(partition, from)| (*partition, *from)).collect();
            self.next_fetch = now + self.config.fetches.unwrap_or_default();
            self.call(Call::Fetch { from }, out);
        }
    }

    /// When [`advance`](Self::advance) is due.
    pub fn deadline(&self) -> Option<Instant> {
        let membership = match self.phase {
            Phase::Out | Phase::Neglected => return None,
            Phase::Resting { until } => return Some(until),
            Phase::Joining { since } => since + self.config.barrier + self.config.session,
            Phase::In => self.heard + self.config.session,
        };
        let neglect = self.polled + self.config.barrier;
        let own = membership.min(self.next_heartbeat).min(neglect);
        Some(own).into_iter().chain(self.is_fetch_due()).min()
    }

    fn is_fetch_due(&self) -> Option<Instant> {
        self.config.fetches.filter(|_| !self.positions.is_empty()).map(|_| self.next_fetch)
    }

    fn call(&self, call: Call, out: &mut Out) {
        out.push(Outgoing::Call(self.id, call));
    }

    fn commit(&self, id: Option<RequestId>, marks: Vec<(Partition, Mark)>, out: &mut Out) {
        // Last words have no name, and go ahead of what gives partitions back.
        let is_sign = id.is_none() || self.config.renewals != Renewals::ApartAndNoSigns;
        self.call(Call::Commit { id, generation: self.generation, is_sign, marks }, out);
    }

    /// Sent ahead of whatever gives partitions back, and of the same generation: it comes first, or is refused.
    fn last_words(&self, marks: Vec<(Partition, Mark)>, out: &mut Out) {
        if !marks.is_empty() && self.has_generation() {
            self.commit(None, marks, out);
        }
    }

    fn join(&mut self, now: Instant, out: &mut Out) {
        self.phase = Phase::Joining { since: now };
        self.attempt += 1;
        self.next_heartbeat = now + self.config.heartbeat;
        self.send_join(now, out);
    }

    fn is_by_epochs(&self) -> bool {
        self.config.coordination == Coordination::Epochs
    }

    fn give_sign(&mut self, now: Instant, out: &mut Out) {
        self.next_heartbeat = now + self.config.heartbeat;
        match self.is_by_epochs() {
            false => self.call(Call::Heartbeat { generation: self.generation }, out),
            true => self.sign(now, out),
        }
    }

    fn sign(&mut self, now: Instant, out: &mut Out) {
        let ClientConfig { session, barrier, .. } = self.config;
        if self.signed.is_some_and(|at| now < at + session / 2) {
            self.owes_sign = true;
            return;
        }
        self.signed = Some(now);
        self.attempt += 1;
        let owned = self.held.iter().copied().collect();
        let (attempt, epoch) = (self.attempt, if self.is_member { self.generation } else { 0 });
        self.call(Call::Sign { attempt, epoch, session, barrier, owned }, out);
    }

    /// The coordinator has said what this member is to have. What is to be let go of is said once.
    fn reconciled(&mut self, epoch: u64, assigned: Vec<Partition>, now: Instant, out: &mut Out) {
        let is_new = !self.is_member;
        self.phase = Phase::In;
        (self.generation, self.is_member, self.heard) = (epoch, true, now);
        let assigned: BTreeSet<_> = assigned.into_iter().collect();
        let added: Vec<_> = assigned.difference(&self.held).copied().collect();
        let over: BTreeSet<_> = self.held.difference(&assigned).copied().collect();
        self.held.extend(&added);
        self.positions.extend(added.iter().map(|partition| (*partition, None)));
        if is_new || !added.is_empty() {
            self.next_fetch = now;
            out.push(Outgoing::Tell(Input::Assigned { partitions: added }));
        }
        if over != self.revoking {
            self.revoking = over;
            self.revoke(out);
        }
    }

    fn send_join(&mut self, now: Instant, out: &mut Out) {
        if self.is_by_epochs() {
            return self.sign(now, out);
        }
        let ClientConfig { session, barrier, instance, .. } = self.config;
        let owned = self.held.iter().copied().collect();
        let (attempt, is_member) = (self.attempt, self.is_member);
        self.call(Call::Join { attempt, session, barrier, is_member, owned, instance }, out);
    }

    fn joined(&mut self, generation: u64, assigned: Vec<Partition>, now: Instant, out: &mut Out) {
        self.phase = Phase::In;
        self.generation = generation;
        self.is_member = true;
        self.heard = now;
        self.next_heartbeat = now + self.config.heartbeat;
        let assigned: BTreeSet<_> = assigned.into_iter().collect();
        let added: Vec<_> = assigned.difference(&self.held).copied().collect();
        self.revoking = self.held.difference(&assigned).copied().collect();
        self.held.extend(&added);
        self.positions.extend(added.iter().map(|partition| (*partition, None)));
        self.next_fetch = now;
        out.push(Outgoing::Tell(Input::Assigned { partitions: added }));
        self.revoke(out);
    }

    fn revoke(&mut self, out: &mut Out) {
        if !self.revoking.is_empty() {
            self.barriers += 1;
            let (barrier, partitions) = (self.barrier(), self.revoking.iter().copied().collect());
            out.push(Outgoing::Tell(Input::Revoking { barrier, partitions }));
        }
    }

    fn barrier(&self) -> BarrierId {
        BarrierId::new(self.barriers)
    }

    /// Everyone is to go through the barrier: with what it has, or with nothing.
    fn rebalance(&mut self, now: Instant, out: &mut Out) {
        if self.config.assignor.is_cooperative() || self.held.is_empty() {
            self.join(now, out);
        } else if self.revoking.is_empty() {
            self.revoking = self.held.clone();
            self.revoke(out);
        }
    }

    fn release(&mut self, partitions: &[Partition], now: Instant, out: &mut Out) {
        let mut is_less = false;
        for partition in partitions {
            is_less |= self.held.remove(partition);
            self.revoking.remove(partition);
            self.positions.remove(partition);
        }
        // Also if it was assigned again meanwhile: then it has to be assigned once more.
        if is_less && self.revoking.is_empty() && self.has_generation() {
            match self.is_by_epochs() {
                true => self.give_sign(now, out),
                false => self.join(now, out),
            }
        }
    }

    /// The session is over: everything is lost, and it comes back as another.
    fn lose(&mut self, now: Instant, out: &mut Out) {
        self.end_session(out);
        match self.config.instance {
            None => self.join(now, out),
            Some(_) => {
                self.phase = Phase::Resting { until: now + self.config.session * STATIC_REST };
            }
        }
    }

    /// It comes back as another, and keeps what it has.
    fn return_silently(&mut self, now: Instant, out: &mut Out) {
        self.is_member = false;
        self.id.session += 1;
        self.join(now, out);
    }

    fn end_session(&mut self, out: &mut Out) {
        let partitions = self.forget();
        out.push(Outgoing::Tell(Input::Lost { partitions }));
        self.id.session += 1;
    }

    fn has_generation(&self) -> bool {
        matches!(self.phase, Phase::In | Phase::Joining { .. })
    }

    /// The generation that it was last told of.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn forget(&mut self) -> Vec<Partition> {
        self.barriers += 1;
        self.is_member = false;
        (self.signed, self.owes_sign) = (None, false);
        self.revoking.clear();
        self.positions.clear();
        core::mem::take(&mut self.held).into_iter().collect()
    }
}
