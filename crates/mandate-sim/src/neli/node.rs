//! A member as a node: the machine, its client, and an application whose work takes its time to end.

use mandate_proto::identity::{Incarnation, MemberId};
use mandate_proto::machine::{Effect, Effects};
use mandate_proto::neli::memory::{Call, MemoryClient, Outgoing};
use mandate_proto::neli::{Event, Input, Partition, RoleLoss};
use mandate_proto::time::Instant;

use super::mutated::{Asked, Mutated};
use super::{Connection, MemberConfig, Message, NodeEffect, NodeInput};
use crate::host::host_of;
use crate::random::{Random, Stream};
use crate::values;

/// A member.
pub(crate) struct MemberNode {
    config: MemberConfig,
    member: Mutated,
    client: MemoryClient,
    /// The member's own thread does not run until then; its client does.
    stalled: Option<Instant>,
    held_back: Vec<Input>,
    /// Its joins are lost until then.
    loses_joins: Instant,
    /// When work ends.
    ending: Vec<(Instant, Partition)>,
    /// It was asked to resign or leave, and has not come to that yet.
    is_asked_to_go: bool,
    /// What it has given up without being asked to.
    gave_up: Option<Partition>,
    random: Random,
}

type Fx = Effects<NodeEffect>;

impl MemberNode {
    pub(super) fn start(
        config: MemberConfig,
        incarnation: Incarnation,
        now: Instant,
        effects: &mut Fx,
    ) -> Self {
        let mut asked = Vec::new();
        let member = Mutated::start(config.plan, incarnation, config.mutant, now, &mut asked);
        let mut node = MemberNode {
            client: MemoryClient::new(config.client, incarnation),
            member,
            stalled: None,
            held_back: Vec::new(),
            loses_joins: now,
            ending: Vec::new(),
            is_asked_to_go: false,
            gave_up: None,
            random: Random::new(incarnation.get(), Stream::Register),
            config,
        };
        node.carry_out(asked, now, effects);
        // Every claim of some incarnations carries a value.
        if incarnation.get().is_multiple_of(5) {
            let value = values::of_host(host_of(node.config.plan.me()), incarnation.get());
            node.tell(Input::Value(Some(value)), now, effects);
        }
        node
    }

    /// The machine, or what a wrong implementation would do.
    pub(crate) fn member(&self) -> &Mutated {
        &self.member
    }

    /// What it led and has given up without being asked to, if it ever did.
    pub(crate) fn gave_up_unasked(&self) -> Option<Partition> {
        self.gave_up
    }

    /// What its client was told last.
    pub(crate) fn generation(&self) -> u64 {
        self.client.generation()
    }

    /// How it is set up.
    pub(crate) fn config(&self) -> &MemberConfig {
        &self.config
    }

    pub(super) fn handle(&mut self, input: NodeInput, now: Instant, effects: &mut Fx) {
        match input {
            NodeInput::Received(_, Message::Reply(id, reply)) => {
                let mut out = Vec::new();
                self.client.replied(id, reply, now, &mut out);
                self.pass_on(out, now, effects);
            }
            // What an application asks for comes from the same thread.
            NodeInput::Member(_) if self.stalled.is_some() => {}
            NodeInput::Member(input) => {
                self.is_asked_to_go |= matches!(input, Input::Resign | Input::Leave);
                self.tell(input, now, effects);
            }
            NodeInput::Stall(lasting) => self.stalled = Some(now + lasting),
            NodeInput::LoseJoins(lasting) => self.loses_joins = now + lasting,
            NodeInput::WorkQuick => self.config.work = core::time::Duration::ZERO,
            NodeInput::Received(..) | NodeInput::Broker(_) => {}
        }
    }

    pub(super) fn time_out(&mut self, now: Instant, effects: &mut Fx) {
        // What waited comes first: in the order in which it happened.
        if self.stalled.take_if(|until| *until <= now).is_some() {
            for input in std::mem::take(&mut self.held_back) {
                self.tell(input, now, effects);
            }
        }
        let mut out = Vec::new();
        if self.stalled.is_none() {
            self.client.polled(now, &mut out);
        }
        self.client.advance(now, &mut out);
        self.pass_on(out, now, effects);
        if self.stalled.is_some() {
            return;
        }
        let mut asked = Vec::new();
        self.member.time_out(now, &mut asked);
        self.carry_out(asked, now, effects);
        while let Some(place) = self.ending.iter().position(|(at, _)| *at <= now) {
            let (_, partition) = self.ending.swap_remove(place);
            self.tell(Input::Drained { partition }, now, effects);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let own = match self.stalled {
            Some(until) => Some(until),
            None => {
                let ending = self.ending.iter().map(|(at, _)| *at);
                ending.chain(self.member.deadline()).min()
            }
        };
        own.into_iter().chain(self.client.deadline()).min()
    }

    fn tell(&mut self, input: Input, now: Instant, effects: &mut Fx) {
        if self.stalled.is_some() {
            self.held_back.push(input);
            return;
        }
        let mut asked = Vec::new();
        self.member.tell(input, now, &mut asked);
        self.carry_out(asked, now, effects);
    }

    fn carry_out(&mut self, asked: Vec<Asked>, now: Instant, effects: &mut Fx) {
        for asked in asked {
            match asked {
                Asked::Request(request) => {
                    let mut out = Vec::new();
                    self.client.ask(request, now, &mut out);
                    self.pass_on(out, now, effects);
                }
                Asked::Told(event) => {
                    if let Event::Ended { partition, loss, .. } = event {
                        let is_unasked = loss == RoleLoss::Left && !self.is_asked_to_go;
                        self.gave_up = self.gave_up.or(is_unasked.then_some(partition));
                        let takes = self.random.between(Default::default(), self.config.work);
                        self.ending.push((now + takes, partition));
                    }
                    self.is_asked_to_go &= event != Event::Left;
                    effects.push(Effect::Tell(event));
                }
            }
        }
    }

    /// Who is to answer a call: a fetch goes to every broker of which it wants something.
    fn addressed(&self, call: Call) -> Vec<(MemberId, Call)> {
        let logs = &self.config.logs;
        let log_of = |partition: Partition| logs[partition.get() as usize % logs.len()];
        match call {
            Call::Append { partition, .. } => vec![(log_of(partition), call)],
            Call::Fetch { from } => {
                let of = |log: MemberId| {
                    from.iter().copied().filter(|(one, _)| log_of(*one) == log).collect::<Vec<_>>()
                };
                let fetch = |log: &MemberId| (*log, Call::Fetch { from: of(*log) });
                logs.iter().map(fetch).filter(|(_, call)| !is_empty_fetch(call)).collect()
            }
            call => vec![(self.config.coordinator, call)],
        }
    }

    fn pass_on(&mut self, out: Vec<Outgoing>, now: Instant, effects: &mut Fx) {
        for outgoing in out {
            match outgoing {
                Outgoing::Call(_, Call::Join { .. }) if now < self.loses_joins => {}
                Outgoing::Call(id, call) => {
                    let connection = match &call {
                        Call::Commit { id: Some(_), .. } if self.config.renews_apart => {
                            Connection::Renewals
                        }
                        _ => Connection::Group,
                    };
                    for (to, call) in self.addressed(call) {
                        let message = Message::Call(self.config.group, id, call, connection);
                        effects.push(Effect::Send { to, message });
                    }
                }
                Outgoing::Tell(input) => self.tell(input, now, effects),
            }
        }
    }
}

fn is_empty_fetch(call: &Call) -> bool {
    matches!(call, Call::Fetch { from } if from.is_empty())
}
