//! Instruction counts of elections by score: what a member does for a heartbeat, a ping, a proposal
//! and a claim, and what a failover costs a group of five, all members together.
//!
//! OmniPaxos is the named alternative: a replicated log whose ballot leader election is made for
//! partial connectivity, too, also a state machine without clock or socket, and with a priority for
//! a score. Both groups run over a network that takes no time, from the death of the leader until the
//! four others have another.

// What gungraun's macros expand to is neither documented nor silent.
#![allow(missing_docs, clippy::disallowed_macros)]

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use gungraun::prelude::*;
use mandate_proto::detector::{Beat, Label};
use mandate_proto::election::{Candidacy, Figures, State};
use mandate_proto::identity::{Incarnation, MemberId, Term};
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::oracle::Measured;
use mandate_proto::pole::installation::{self, Boot, ClaimId, PeerGuarantee, Promised};
use mandate_proto::pole::member::{Config, Effect, Input, Member, Message};
use mandate_proto::pole::selection::{self, Proposal};
use mandate_proto::score::Score;
use mandate_proto::time::Instant;
use omnipaxos::macros::Entry;
use omnipaxos::{ClusterConfig, OmniPaxos, OmniPaxosConfig, ServerConfig};
use omnipaxos_storage::memory_storage::MemoryStorage;

const INTERVAL: Duration = Duration::from_millis(330);
const DETECT: Duration = Duration::from_secs(1);
const SIZE: u32 = 5;
const STEPS: u64 = 1_000;

/// Members over a network that takes no time.
struct Group {
    members: Vec<Option<Member>>,
    under_way: VecDeque<(MemberId, MemberId, Message)>,
    now: Instant,
}

impl Group {
    fn start() -> Self {
        let mut group =
            Group { members: Vec::new(), under_way: VecDeque::new(), now: Instant::ORIGIN };
        for id in 1..=SIZE {
            let members = (1..=SIZE).map(MemberId::new);
            let config = Config::new(MemberId::new(id), members, INTERVAL, DETECT)
                .and_then(|config| config.with_guarantee(PeerGuarantee::Fenced))
                .unwrap()
                .with_oracle("latency/10ms, history".parse().unwrap());
            let lifetime = Incarnation::new(u64::from(id) << 40);
            let stored = Some(Promised::ADMITTED);
            let stored = stored.map(Into::into);
            let boot = Boot {
                stored,
                is_new: false,
                is_changed: false,
                joins: false,
                auto: None,
                lifetime,
            };
            let mut effects = Effects::new();
            let mut member = Member::start(config, boot, group.now, &mut effects);
            let figures = Figures { history: Some(7), requests: 100.0, application: None };
            member.handle(Input::Figures(figures), group.now, &mut effects);
            group.members.push(Some(member));
            group.carry_out(id, effects);
        }
        group
    }

    /// A group with a leader, some time after.
    fn settled() -> Self {
        let mut group = Group::start();
        while group.now < Instant::ORIGIN + Duration::from_secs(30) {
            group.step();
        }
        assert!(group.is_led());
        group
    }

    /// The same, whose leader has just died.
    fn bereft() -> Self {
        let mut group = Group::settled();
        let leads = |member: &Option<Member>| {
            member.as_ref().is_some_and(|member| matches!(member.state(), State::Leading { .. }))
        };
        let leader = group.members.iter().position(leads).unwrap();
        group.members[leader] = None;
        group
    }

    fn follower(self) -> (Member, Instant, Term) {
        let follows = |member: &Member| matches!(member.state(), State::Following { .. });
        let member = self.members.into_iter().flatten().find(follows).unwrap();
        let State::Following { term, .. } = member.state() else { unreachable!() };
        (member, self.now, term)
    }

    fn is_led(&self) -> bool {
        self.members.iter().flatten().all(|member| member.state() != State::Electing)
    }

    fn carry_out(&mut self, from: u32, mut effects: Effects<Effect>) {
        let id = MemberId::new(from);
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::Send { to, message } => self.under_way.push_back((id, to, message)),
                Effect::Broadcast(message) => {
                    for to in (1..=SIZE).filter(|to| *to != from) {
                        self.under_way.push_back((id, MemberId::new(to), message.clone()));
                    }
                }
                Effect::Persist(_) | Effect::Tell(_) => {}
            }
        }
    }

    /// Delivers everything, then lets the next timer ring.
    fn step(&mut self) {
        while let Some((from, to, message)) = self.under_way.pop_front() {
            if let Some(member) = &mut self.members[to.get() as usize - 1] {
                let mut effects = Effects::new();
                member.handle(Input::Received { from, message }, self.now, &mut effects);
                self.carry_out(to.get(), effects);
            }
        }
        let due = self.members.iter().flatten().filter_map(Machine::deadline).min();
        self.now = self.now.max(due.unwrap());
        for id in 1..=SIZE {
            if let Some(member) = &mut self.members[id as usize - 1] {
                let mut effects = Effects::new();
                member.handle_timeout(self.now, &mut effects);
                self.carry_out(id, effects);
            }
        }
    }
}

#[library_benchmark]
#[bench::of_five(Group::bereft())]
fn failover(mut group: Group) -> Group {
    // Someone must notice first.
    while group.is_led() {
        group.step();
    }
    while !group.is_led() {
        group.step();
    }
    group
}

#[derive(Clone, Debug, Entry)]
struct Command;

struct Nodes {
    nodes: Vec<Option<OmniPaxos<Command, MemoryStorage<Command>>>>,
}

impl Nodes {
    fn start() -> Self {
        let ids: Vec<u64> = (1..=u64::from(SIZE)).collect();
        let node = |pid: u64| {
            let cluster_config =
                ClusterConfig { configuration_id: 1, nodes: ids.clone(), ..Default::default() };
            let server_config =
                ServerConfig { pid, leader_priority: pid as u32, ..Default::default() };
            let config = OmniPaxosConfig { cluster_config, server_config };
            Some(config.build(MemoryStorage::default()).unwrap())
        };
        let mut nodes = Nodes { nodes: ids.iter().map(|pid| node(*pid)).collect() };
        (0..20).for_each(|_| nodes.tick());
        assert!(nodes.leader().is_some());
        nodes
    }

    fn bereft() -> Self {
        let mut nodes = Nodes::start();
        let leader = nodes.leader().unwrap();
        nodes.nodes[leader as usize - 1] = None;
        nodes
    }

    /// The one leader that all know, if its election is over.
    fn leader(&self) -> Option<u64> {
        let mut known = self.nodes.iter().flatten().map(|node| node.get_current_leader());
        let first = known.next()??;
        (first.1 && known.all(|leader| leader == Some(first))).then_some(first.0)
    }

    fn tick(&mut self) {
        self.nodes.iter_mut().flatten().for_each(OmniPaxos::tick);
        let mut messages = Vec::new();
        loop {
            for node in self.nodes.iter_mut().flatten() {
                node.take_outgoing_messages(&mut messages);
            }
            if messages.is_empty() {
                break;
            }
            for message in messages.drain(..) {
                if let Some(node) = &mut self.nodes[message.get_receiver() as usize - 1] {
                    node.handle_incoming(message);
                }
            }
        }
    }
}

#[library_benchmark]
#[bench::of_five(Nodes::bereft())]
fn failover_of_omnipaxos(mut nodes: Nodes) -> Nodes {
    let before = nodes.leader();
    while nodes.leader().is_none() || nodes.leader() == before {
        nodes.tick();
    }
    nodes
}

fn feed(member: &mut Member, now: Instant, input: impl Fn(u64) -> Input) {
    let mut effects = Effects::new();
    for i in 0..STEPS {
        member.handle(black_box(input(i)), now + Duration::from_micros(i), &mut effects);
        black_box(member.deadline());
        effects.drain().for_each(drop);
    }
}

const LEADER: MemberId = MemberId::new(5);

#[library_benchmark]
#[bench::of_five(Group::settled().follower())]
fn heartbeat((mut member, now, term): (Member, Instant, Term)) -> Member {
    feed(&mut member, now, |i| {
        let label = Label::from_nanos((now - Instant::ORIGIN).as_nanos() as i64 + i as i64 * 1000);
        let beat = Beat { label, interval: INTERVAL };
        Input::Received { from: LEADER, message: Message::Heartbeat { term, beat } }
    });
    member
}

#[library_benchmark]
#[bench::of_five(Group::settled().follower())]
fn ping((mut member, now, _): (Member, Instant, Term)) -> Member {
    let config = member.config().seed_id();
    feed(&mut member, now, |number| Input::Received {
        from: LEADER,
        message: Message::Ping { number, requests: 100.0, interval: None, config },
    });
    member
}

#[library_benchmark]
#[bench::of_five(Group::settled().follower())]
fn proposal((mut member, now, term): (Member, Instant, Term)) -> Member {
    let from = MemberId::new(3);
    feed(&mut member, now, |i| {
        // Epoch by epoch, each opened by another: the whole of a member's part in a selection.
        let score = Score::new(&[-(i as f64), 7.0]).unwrap();
        let own: Candidacy = Ok(Measured { values: score, score });
        let epoch = Term::new(term.get() + 1 + i);
        let best = Some(Proposal { score, id: from });
        let message = selection::Message::Propose { epoch, own, best };
        Input::Received { from, message: Message::Selection(message) }
    });
    member
}

#[library_benchmark]
#[bench::of_five(Group::settled().follower())]
fn claim((mut member, now, term): (Member, Instant, Term)) -> Member {
    let config = member.config().seed_id();
    feed(&mut member, now, |i| {
        let id = ClaimId { life: Incarnation::new(1), count: i, config };
        let term = Term::new(term.get() + 1 + i);
        let message = installation::Message::Claim { term, id, lease: Duration::ZERO, freed: None };
        Input::Received { from: MemberId::new(3), message: Message::Installation(message) }
    });
    member
}

library_benchmark_group!(
    name = elections,
    benchmarks = [heartbeat, ping, proposal, claim, failover, failover_of_omnipaxos]
);
main!(library_benchmark_groups = elections);
