//! The loop that drives a member, whatever engine elects: one sleep, effects in order, inputs before what is due.
//!
//! An engine is a [machine](Elector) and a [`Backend`] that carries its effects out. The driver keeps the rules that
//! none of them may break:
//!
//! - The end of a mandate is published before anything that reveals it is sent; its start only when the machine tells
//!   of it, after what it rests on is durable.
//! - Nothing is carried out after an effect that waits to be durable before it is. Meanwhile questions are answered,
//!   other commands wait in a bounded queue, and a stop holds at once.
//! - Inputs go before what is due, but only so many of them.
//! - However the loop ends, nothing is held before the backend is closed, and the handle is told last.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use mandate_proto::election::{Elector, Figures, Lease, NoTransfer};
use mandate_proto::identity::Term;
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::pole::installation::NoChange;
use mandate_proto::pole::member::LeaderRequest;
use mandate_proto::time::Instant;
use mandate_proto::value::{NoPublish, Value};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::election::Status;
use crate::ends::QUEUE;
use crate::engine_side::{Command, EngineSide};
use crate::event::Event;
use crate::mandate::Mandate;

/// So many inputs may go before what is due: enough to read what arrived during a pause, and few enough that a
/// flood does not keep a leader from its heartbeats or renewals.
const MAX_BEFORE_DUE: u32 = 512;

/// The longest sleep: timers do not count suspension.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How long an engine may take to say that it ends. The handle waits for two seconds.
pub const LAST_WORDS: Duration = Duration::from_millis(1500);

/// What an engine does for its machine.
///
/// [`next`](Backend::next) and [`durable`](Backend::durable) are dropped and called again whenever something else
/// comes first: dropping their futures must lose nothing.
pub trait Backend<M: Elector>: Send + 'static {
    /// What it waits for: frames, answers, assignments.
    type Arrival: Send;

    /// How long the member goes on after the handle has asked it to stop, unless it [has ended](Backend::has_ended)
    /// before. Zero: it ends when what the stop asked for has been carried out.
    const LEAVES_WITHIN: Duration;

    /// Publishes what the machine holds. Called before any of its effects is carried out.
    fn settle(&mut self, driven: &mut Driven<M>) {
        let held = driven.held();
        driven.side.settle(held);
    }

    /// Carries one effect out, without waiting.
    fn carry_out(&mut self, effect: M::Effect, driven: &mut Driven<M>) -> Carried;

    /// All effects have been carried out.
    fn carried_out(&mut self, _driven: &mut Driven<M>) {}

    /// Waits until what was [begun](Carried::Begun) is durable.
    fn durable(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// The next thing that arrives.
    fn next(&mut self) -> impl Future<Output = Self::Arrival> + Send;

    /// Tells the machine of it.
    fn arrived(&mut self, arrival: Self::Arrival, driven: &mut Driven<M>);

    /// Within what time something is due that the machine does not know of.
    fn wakes_in(&self) -> Option<Duration> {
        None
    }

    /// Whether the member has ended by itself: nothing more comes of it.
    fn has_ended(&self) -> bool {
        false
    }

    /// What the member knows now.
    fn status(&self, driven: &Driven<M>) -> Status;

    /// Ends. Nothing is held any more. It should take no longer than [`LAST_WORDS`].
    fn close(self) -> impl Future<Output = ()> + Send
    where
        Self: Sized,
    {
        ready(())
    }
}

/// What became of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// It was carried out.
    Done,
    /// It was begun, and nothing may follow before it is [durable](Backend::durable).
    Begun,
}

/// A machine and the engine's side of its handle.
pub struct Driven<M: Machine> {
    /// The engine's side.
    pub side: EngineSide,
    /// The machine.
    pub machine: M,
    effects: Effects<M::Effect>,
}

impl<M: Elector> Driven<M> {
    /// What the clock reads that mandates are checked against.
    pub fn now(&self) -> Instant {
        self.side.now()
    }

    /// What the member holds now.
    pub fn held(&self) -> Option<Lease> {
        self.machine.held(self.now())
    }

    /// Tells the machine.
    pub fn handle(&mut self, input: M::Input) {
        self.machine.handle(input, self.side.now(), &mut self.effects);
    }

    /// Tells the application.
    pub fn tell(&mut self, event: Event) {
        let held = self.held();
        self.side.tell(event, held);
    }

    fn handle_timeout(&mut self) {
        self.machine.handle_timeout(self.side.now(), &mut self.effects);
    }

    fn take_figures(&mut self, figures: Figures) {
        if let Some(input) = M::figures(figures) {
            self.handle(input);
        }
    }
}

/// Drives a member.
pub struct Driver<M: Machine, B> {
    /// Before the backend, so that nothing is held when that is dropped, however it comes about.
    driven: Driven<M>,
    backend: B,
    /// What was asked while something was not durable yet.
    deferred: VecDeque<Command>,
    /// When the member ends at the latest, once it was asked to stop.
    ends_by: Option<Instant>,
}

/// The member has ended.
struct Ended;

impl<M, B> Driver<M, B>
where
    M: Elector<Input: Send, Effect: Send> + Send,
    B: Backend<M>,
{
    /// A driver of a machine that was started with these effects.
    pub fn new(machine: M, effects: Effects<M::Effect>, side: EngineSide, backend: B) -> Self {
        let driven = Driven { side, machine, effects };
        Driver { driven, backend, deferred: VecDeque::new(), ends_by: None }
    }

    /// Drives until the handle asks to stop, or is gone, or the member ends by itself.
    pub async fn run(mut self) {
        let Err(Ended) = self.drive().await;
        let Driver { mut driven, backend, .. } = self;
        driven.side.settle(None);
        backend.close().await;
    }

    async fn drive(&mut self) -> Result<Infallible, Ended> {
        let mut before_due = 0;
        loop {
            self.carry_out().await?;
            if self.backend.has_ended() || self.ends_by.is_some_and(|by| by <= self.driven.now()) {
                return Err(Ended);
            }
            if let Some(command) = self.deferred.pop_front() {
                self.obey(command).await?;
                continue;
            }
            let pause = self.pause();
            if before_due >= MAX_BEFORE_DUE && pause.is_zero() {
                before_due = 0;
                self.driven.handle_timeout();
                continue;
            }
            before_due += 1;
            let is_asked = self.ends_by.is_none();
            tokio::select! {
                // What has arrived goes before what is due.
                biased;
                command = self.driven.side.next(), if is_asked => self.obey(command).await?,
                arrival = self.backend.next() => self.backend.arrived(arrival, &mut self.driven),
                () = sleep(pause) => {
                    before_due = 0;
                    self.driven.handle_timeout();
                }
            }
        }
    }

    /// How long to sleep: until something is due, or a lease is in jeopardy.
    fn pause(&self) -> Duration {
        let Driven { side, machine, .. } = &self.driven;
        let (now, due) = (side.now(), [machine.deadline(), side.wakes_at(), self.ends_by]);
        let due = due.into_iter().flatten().map(|due| due - now).chain(self.backend.wakes_in());
        due.chain([LONGEST_SLEEP]).min().unwrap_or_default()
    }

    async fn obey(&mut self, command: Command) -> Result<(), Ended> {
        match command {
            Command::Resign { of, done } => {
                if self.driven.side.concerns(of.as_ref(), self.driven.held()) {
                    self.driven.handle(M::resign());
                    self.carry_out().await?;
                }
                done.map(|done| done.send(()));
            }
            Command::ResignFrom { term, done } => {
                let input = M::serve(term, LeaderRequest::Resign);
                if let Some(input) = input.or_else(|| self.leads_in(term).then(M::resign)) {
                    self.driven.handle(input);
                    self.carry_out().await?;
                }
                let _ = done.send(());
            }
            Command::Transfer { to, of, done } => {
                self.driven.side.refusal();
                let input = match of {
                    Some(term) => match M::serve(term, LeaderRequest::Transfer { to }) {
                        Some(input) => Ok(input),
                        None if self.leads_in(term) => M::transfer(to),
                        None => Err(NoTransfer::NotLeading),
                    },
                    None => M::transfer(to),
                };
                match input {
                    Ok(input) => self.driven.handle(input),
                    Err(reason) => self.driven.side.refuse(reason),
                }
                self.carry_out().await?;
                let _ = done.send(self.driven.side.refusal().map_or(Ok(()), Err));
            }
            Command::Publish { of, value, done } => {
                let published = self.publish(&of, value);
                self.carry_out().await?;
                let _ = done.send(published);
            }
            Command::Change { change, of, done } => {
                let input = match of {
                    Some(term) => M::serve(term, LeaderRequest::Change(change.clone()))
                        .ok_or(NoChange::Unsupported),
                    None => M::change(change.clone()),
                };
                if let Some(input) = self.driven.side.begin_change(change, input, done) {
                    self.driven.handle(input);
                }
                self.carry_out().await?;
            }
            Command::Ask { request, done } => {
                let number = self.driven.side.asked.begin(done);
                match M::ask(number, request) {
                    Some(input) => self.driven.handle(input),
                    None => self.driven.side.asked.refuse(number),
                }
                self.carry_out().await?;
            }
            Command::Answer { id, answer } => {
                if let Some(input) = M::answer(id, answer) {
                    self.driven.handle(input);
                }
                self.carry_out().await?;
            }
            Command::Figures(figures) => self.driven.take_figures(figures),
            Command::Status { done } => self.answer(done),
            Command::Stop => {
                self.driven.handle(M::stop());
                self.ends_by = Some(self.driven.now() + B::LEAVES_WITHIN);
            }
        }
        Ok(())
    }

    /// Whether the member holds this term, for protocols that do not compare terms themselves.
    fn leads_in(&self, term: Term) -> bool {
        self.driven.held().is_some_and(|held| held.term == term)
    }

    /// Has the machine publish a value, if that reign is the one that is held.
    fn publish(&mut self, of: &Mandate, value: Value) -> Result<(), NoPublish> {
        if !self.driven.side.concerns(Some(of), self.driven.held()) {
            return Err(NoPublish::NotLeading);
        }
        self.driven.handle(M::publish(value)?);
        Ok(())
    }

    fn answer(&self, done: oneshot::Sender<Status>) {
        if !done.is_closed() {
            let _ = done.send(self.backend.status(&self.driven));
        }
    }

    /// Carries out everything that the machine has asked for, in order.
    async fn carry_out(&mut self) -> Result<(), Ended> {
        self.backend.settle(&mut self.driven);
        while let Some(effect) = self.driven.effects.pop() {
            if self.backend.carry_out(effect, &mut self.driven) == Carried::Begun {
                self.until_durable().await?;
            }
        }
        self.backend.carried_out(&mut self.driven);
        let held = self.driven.held();
        self.driven.side.check_change(held);
        self.driven.side.check_jeopardy();
        Ok(())
    }

    /// Waits for as long as it takes: what follows rests on it. Meanwhile this member says nothing to others, who will
    /// do without it; questions are answered.
    async fn until_durable(&mut self) -> Result<(), Ended> {
        loop {
            let has_room = self.deferred.len() < QUEUE;
            tokio::select! {
                biased;
                () = self.backend.durable() => {
                    self.driven.machine.persisted(self.driven.side.now());
                    return Ok(());
                }
                command = self.driven.side.next_if(has_room) => match command {
                    Command::Status { done } => self.answer(done),
                    Command::Figures(figures) => self.driven.take_figures(figures),
                    // It cannot be said to the others, but here it holds at once.
                    Command::Stop => return Err(Ended),
                    command => {
                        if let Command::Resign { of, .. } = &command {
                            self.driven.side.withdraw(of.as_ref());
                        }
                        self.deferred.push_back(command);
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;
