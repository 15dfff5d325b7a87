//! The loop that drives a member: one sleep, effects in order, nothing past a write that is not on disk.

use std::sync::Arc;
use std::time::Duration;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::oracle::Occasion;
use mandate_proto::pole::installation::{Boot, Promised};
use mandate_proto::pole::member::{
    Config, Effect, Event, Figures, Input, Member, Message, NoTransfer, Record, State,
};
use mandate_proto::time::Instant;
use mandate_proto::wire;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::sleep;

use crate::clock::Clock;
use crate::durable::{DurableError, DurableFile};
use crate::election::{ElectionState, Status};
use crate::mandate::{Board, Held, Mandate};
use crate::transport::{Delivery, Inbound, Transport};

/// The longest pause between attempts to write to a disk that refuses.
const MAX_RETRY: Duration = Duration::from_secs(2);

/// What the handle asks of its driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// Resign; only from this term, if one is named.
    Resign {
        term: Option<Term>,
        done: Option<oneshot::Sender<()>>,
    },
    Transfer {
        to: MemberId,
        done: oneshot::Sender<Result<(), NoTransfer>>,
    },
    Figures(Figures),
    Status {
        done: oneshot::Sender<Status>,
    },
    Stop {
        done: oneshot::Sender<()>,
    },
}

pub(crate) struct Driver<R> {
    member: Member,
    effects: Effects<Effect>,
    clock: Clock,
    board: Arc<Board>,
    durable: Arc<DurableFile>,
    transport: Arc<dyn Transport>,
    others: Vec<MemberId>,
    lease: Duration,
    state: watch::Sender<ElectionState>,
    events: broadcast::Sender<Event>,
    remember: R,
    /// What the last transfer came to.
    refused: Option<NoTransfer>,
    frame: Vec<u8>,
}

impl<R: FnMut(Record) + Send + 'static> Driver<R> {
    #[allow(clippy::too_many_arguments, reason = "called once, from the handle")]
    pub(crate) fn new(
        config: Config,
        boot: Boot,
        board: Arc<Board>,
        durable: DurableFile,
        transport: Arc<dyn Transport>,
        state: watch::Sender<ElectionState>,
        events: broadcast::Sender<Event>,
        remember: R,
    ) -> Self {
        let mut effects = Effects::new();
        let clock = board.clock();
        let (me, lease) = (config.me(), config.guarantee().lease());
        let others = config.members().iter().copied().filter(|id| *id != me).collect();
        let member = Member::start(config, boot, clock.now(), &mut effects);
        Driver {
            member,
            effects,
            clock,
            board,
            durable: Arc::new(durable),
            transport,
            others,
            lease,
            state,
            events,
            remember,
            refused: None,
            frame: Vec::new(),
        }
    }

    pub(crate) async fn run(
        mut self,
        mut inbound: mpsc::Receiver<Inbound>,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) {
        loop {
            self.carry_out().await;
            let pause = self.pause();
            tokio::select! {
                // What has arrived goes before what is due.
                biased;
                command = commands.recv() => match command {
                    Some(Command::Stop { done }) => {
                        self.stop().await;
                        let _ = done.send(());
                        return;
                    }
                    Some(command) => self.obey(command).await,
                    None => return self.stop().await,
                },
                Some(arrived) = inbound.recv() => self.receive(arrived),
                () = sleep(pause) => {
                    self.member.handle_timeout(self.clock.now(), &mut self.effects);
                }
            }
        }
    }

    /// How long to sleep: until the machine's deadline, or until the lease is in jeopardy. At most a
    /// second, because timers do not count suspension.
    fn pause(&self) -> Duration {
        let now = self.clock.now();
        let jeopardy = match &*self.state.borrow() {
            ElectionState::Leading(_) => self.jeopardy_at(),
            _ => None,
        };
        let due = self.member.deadline().into_iter().chain(jeopardy).min();
        due.map_or(Duration::from_secs(1), |due| (due - now).min(Duration::from_secs(1)))
    }

    fn jeopardy_at(&self) -> Option<Instant> {
        let until = self.board.held()?.until?;
        let third = u64::try_from((self.lease / 3).as_nanos()).unwrap_or(u64::MAX);
        Some(Instant::from_nanos(until.as_nanos().saturating_sub(third)))
    }

    fn receive(&mut self, arrived: Inbound) {
        let input = match arrived {
            Inbound::Up { member } => Input::LinkUp { member },
            Inbound::Broken { member } => Input::LinkBroken { member },
            Inbound::Received { from, frame } => match wire::decode::<Message>(&frame) {
                Ok(message) => Input::Received { from, message },
                Err(error) => {
                    tracing::warn!(%from, %error, "a frame that is no message was ignored");
                    return;
                }
            },
        };
        self.member.handle(input, self.clock.now(), &mut self.effects);
    }

    async fn obey(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Resign { term, done } => {
                let led = self.member.mandate(now).map(|(term, _)| term);
                if term.is_none() || term == led {
                    self.member.handle(Input::Resign, now, &mut self.effects);
                    self.carry_out().await;
                }
                done.map(|done| done.send(()));
            }
            Command::Transfer { to, done } => {
                self.refused = None;
                self.member.handle(Input::Transfer { to }, now, &mut self.effects);
                self.carry_out().await;
                let _ = done.send(self.refused.take().map_or(Ok(()), Err));
            }
            Command::Figures(figures) => {
                self.member.handle(Input::Figures(figures), now, &mut self.effects);
            }
            Command::Status { done } if done.is_closed() => {}
            Command::Status { done } => {
                let _ = done.send(Status {
                    state: self.state.borrow().clone(),
                    suspected: self.member.suspected().collect(),
                    view: self.member.view(Occasion::BeforeResignation),
                    standing: self.member.standing(Occasion::BeforeResignation, now),
                    has_vote: self.member.has_vote(),
                });
            }
            Command::Stop { .. } => {}
        }
    }

    async fn stop(&mut self) {
        self.member.handle(Input::Resign, self.clock.now(), &mut self.effects);
        self.board.publish(None);
        self.carry_out().await;
        self.board.publish(None);
        self.state.send_replace(ElectionState::Stopped);
    }

    /// Carries out everything that the member has asked for, in order.
    async fn carry_out(&mut self) {
        // What has ended must be seen to have ended before anyone else is told; what has begun is seen
        // when the member says so, after what it rests on is on disk.
        let held = self.held();
        if self.board.held().map(|held| held.term) == held.map(|held| held.term) {
            self.board.publish(held);
        } else {
            self.board.publish(None);
        }
        while let Some(effect) = self.effects.pop() {
            match effect {
                Effect::Persist(promised) => self.persist(promised).await,
                Effect::Send { to, message } => self.send([to], &message),
                Effect::Broadcast(message) => self.send(self.others.clone(), &message),
                Effect::Tell(event) => self.tell(event),
            }
        }
        self.check_jeopardy();
    }

    fn held(&self) -> Option<Held> {
        let (term, until) = self.member.mandate(self.clock.now())?;
        Some(Held { term, until })
    }

    /// Writes, for as long as it takes: what follows rests on it.
    async fn persist(&mut self, promised: Promised) {
        let mut pause = Duration::from_millis(50);
        loop {
            let durable = self.durable.clone();
            let written = tokio::task::spawn_blocking(move || durable.store(&promised)).await;
            match written {
                Ok(Ok(())) => return,
                Ok(Err(error)) => complain(&error),
                Err(error) => tracing::error!(%error, "the write of the state did not end"),
            }
            // This member says nothing more meanwhile, and the others will do without it.
            sleep(pause).await;
            pause = (pause * 2).min(MAX_RETRY);
        }
    }

    fn send(&mut self, to: impl IntoIterator<Item = MemberId>, message: &Message) {
        let delivery = match message {
            Message::Ping { .. } | Message::Pong { .. } | Message::Heartbeat { .. } => {
                Delivery::Datagram
            }
            Message::Selection(_) | Message::Installation(_) => Delivery::Stream,
        };
        self.frame.clear();
        wire::encode(message, &mut self.frame);
        for to in to {
            self.transport.send(to, delivery, self.frame.clone());
        }
    }

    fn tell(&mut self, event: Event) {
        match &event {
            Event::Changed(state) => {
                let state = self.shown(*state);
                self.state.send_replace(state);
            }
            Event::Elected(record) => (self.remember)((**record).clone()),
            Event::NoTransfer { reason, .. } => self.refused = Some(*reason),
            _ => {}
        }
        tracing::debug!(?event, "told");
        // Nobody listens, perhaps.
        let _ = self.events.send(event);
    }

    fn shown(&self, state: State) -> ElectionState {
        match state {
            State::Electing => ElectionState::Electing,
            State::Following { leader, term } => ElectionState::Following { leader, term },
            State::Leading { term } => {
                self.board.publish(self.held().filter(|held| held.term == term));
                ElectionState::Leading(Mandate::new(term, self.board.clone()))
            }
        }
    }

    /// Whether the lease is near its end, or is not any more.
    fn check_jeopardy(&self) {
        let in_jeopardy = self.jeopardy_at().is_some_and(|at| at <= self.clock.now());
        self.state.send_if_modified(|state| match state {
            ElectionState::Leading(mandate) if in_jeopardy => {
                tracing::warn!(term = %mandate.term(), "renewals fail: the lease is near its end");
                *state = ElectionState::Jeopardy(mandate.clone());
                true
            }
            ElectionState::Jeopardy(mandate) if !in_jeopardy => {
                *state = ElectionState::Leading(mandate.clone());
                true
            }
            _ => false,
        });
    }
}

impl<R> Drop for Driver<R> {
    /// However the driver ends, its mandate ends with it.
    fn drop(&mut self) {
        self.board.publish(None);
    }
}

fn complain(error: &DurableError) {
    tracing::error!(%error, "the state could not be written; this member is silent until it can be");
}
