//! The loop that drives a member: one sleep, effects in order, nothing past a write that is not on disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effect, Effects};
use mandate_proto::time::Instant;
use mandate_proto::wire;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::durable::DurableFile;
use crate::election::{ElectionState, Status};
use crate::event::{Event, Figures, State};
use crate::mandate::{Board, Held, Mandate};
use crate::protocol::Spoken;
use crate::seat::{Command, QUEUE, Seat};
use crate::transport::{Inbound, Transport};

/// The longest pause between attempts to write to a disk that refuses.
const MAX_RETRY: Duration = Duration::from_secs(2);

/// So many inputs may go before what is due: enough to read what arrived during a pause, and few enough that a
/// flood does not keep a leader from sending heartbeats.
const MAX_BEFORE_DUE: u32 = 512;

pub(crate) struct Driver<M: Spoken> {
    pub(crate) machine: M,
    pub(crate) effects: Effects<M::Effect>,
    pub(crate) board: Arc<Board>,
    pub(crate) durable: Arc<DurableFile>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) others: Vec<MemberId>,
    /// Zero without leases.
    pub(crate) lease: Duration,
    pub(crate) seat: Seat,
    /// What came while a write was waited for.
    pub(crate) deferred: VecDeque<Command>,
    pub(crate) renewals: u64,
    pub(crate) frame: Vec<u8>,
}

/// The member is to end, or has been let go.
struct Stopped;

impl<M: Spoken> Driver<M> {
    pub(crate) async fn run(mut self, mut inbound: mpsc::Receiver<Inbound>) {
        let _ = self.drive(&mut inbound).await;
        self.board.publish(None);
        // Last: who waits for it finds everything ended.
        self.seat.state.send_replace(ElectionState::Stopped);
    }

    async fn drive(&mut self, inbound: &mut mpsc::Receiver<Inbound>) -> Result<(), Stopped> {
        let mut before_due = 0;
        loop {
            self.carry_out().await?;
            if let Some(command) = self.deferred.pop_front() {
                self.obey(command).await?;
                continue;
            }
            let pause = self.pause();
            if before_due >= MAX_BEFORE_DUE && pause.is_zero() {
                before_due = 0;
                self.machine.handle_timeout(self.now(), &mut self.effects);
                continue;
            }
            before_due += 1;
            tokio::select! {
                // What has arrived goes before what is due.
                biased;
                command = self.seat.next() => self.obey(command).await?,
                Some(arrived) = inbound.recv() => self.receive(arrived),
                () = sleep(pause) => {
                    before_due = 0;
                    self.machine.handle_timeout(self.now(), &mut self.effects);
                }
            }
        }
    }

    fn now(&self) -> Instant {
        self.clock().now()
    }

    fn clock(&self) -> Clock {
        self.board.clock()
    }

    /// How long to sleep: until the machine's deadline, or until the lease is in jeopardy. At most a
    /// second, because timers do not count suspension.
    fn pause(&self) -> Duration {
        let jeopardy = match &*self.seat.state.borrow() {
            ElectionState::Leading(_) => self.jeopardy_at(),
            _ => None,
        };
        let due = self.machine.deadline().into_iter().chain(jeopardy).min();
        let now = self.now();
        due.map_or(Duration::from_secs(1), |due| (due - now).min(Duration::from_secs(1)))
    }

    fn jeopardy_at(&self) -> Option<Instant> {
        let until = self.board.held()?.until.filter(|_| !self.lease.is_zero())?;
        let third = u64::try_from((self.lease / 3).as_nanos()).unwrap_or(u64::MAX);
        Some(Instant::from_nanos(until.as_nanos().saturating_sub(third)))
    }

    fn receive(&mut self, arrived: Inbound) {
        let now = self.now();
        let Inbound::Received { from, frame } = &arrived else {
            if let Some(input) = M::link(&arrived) {
                self.machine.handle(input, now, &mut self.effects);
            }
            return;
        };
        match wire::decode::<M::Message>(frame) {
            Ok(message) => {
                let delay = self.transport.round_trip(*from).map(|round_trip| round_trip / 2);
                if let Some(input) = delay.and_then(|delay| M::delay(*from, delay)) {
                    self.machine.handle(input, now, &mut self.effects);
                }
                self.machine.handle(M::received(*from, message), now, &mut self.effects);
            }
            Err(error) => {
                tracing::warn!(%from, %error, "a frame that is no message was ignored");
            }
        }
    }

    async fn obey(&mut self, command: Command) -> Result<(), Stopped> {
        let now = self.now();
        match command {
            Command::Resign { of, done } => {
                let held = self.held();
                if of.is_none_or(|of| held.is_some_and(|held| of.is_of(held))) {
                    self.machine.handle(M::resign(), now, &mut self.effects);
                    self.carry_out().await?;
                }
                done.map(|done| done.send(()));
            }
            Command::Transfer { to, done } => {
                self.seat.refused = None;
                match M::transfer(to) {
                    Ok(input) => self.machine.handle(input, now, &mut self.effects),
                    Err(reason) => self.seat.refused = Some(reason),
                }
                self.carry_out().await?;
                let _ = done.send(self.seat.refused.take().map_or(Ok(()), Err));
            }
            Command::Figures(figures) => self.take_figures(figures),
            Command::Status { done } if done.is_closed() => {}
            Command::Status { done } => {
                let _ = done.send(self.status(now));
            }
            Command::Stop => {
                self.machine.handle(M::resign(), now, &mut self.effects);
                self.carry_out().await?;
                return Err(Stopped);
            }
        }
        Ok(())
    }

    fn take_figures(&mut self, figures: Figures) {
        if let Some(input) = M::figures(figures) {
            self.machine.handle(input, self.now(), &mut self.effects);
        }
    }

    fn status(&self, now: Instant) -> Status {
        let round_trip = |id: &MemberId| Some((*id, self.transport.round_trip(*id)?));
        let round_trips = self.others.iter().filter_map(round_trip).collect();
        let known = self.machine.knowledge(round_trips, now);
        Status {
            state: self.seat.state.borrow().clone(),
            suspected: known.suspected,
            view: known.view,
            standing: known.standing,
            has_vote: known.has_vote,
            detection: known.detection,
            renewals: self.renewals,
        }
    }

    /// Carries out everything that the machine has asked for, in order.
    async fn carry_out(&mut self) -> Result<(), Stopped> {
        // What has ended must be seen to have ended before anyone else is told; what has begun is seen
        // when the member says so, after what it rests on is on disk.
        let held = self.held();
        let same = |one: Held, other: Held| (one.term, one.began) == (other.term, other.began);
        match (self.board.held(), held) {
            (Some(shown), Some(held)) if same(shown, held) => self.renew(shown, held),
            _ => self.board.publish(None),
        }
        while let Some(effect) = self.effects.pop() {
            match effect {
                Effect::Persist(stable) => self.persist(stable).await?,
                Effect::Send { to, message } => self.send([to], &message),
                Effect::Broadcast(message) => self.send(self.others.clone(), &message),
                Effect::Tell(event) => {
                    self.machine.told(event).into_iter().for_each(|event| self.tell(event));
                }
            }
        }
        self.check_jeopardy();
        Ok(())
    }

    fn held(&self) -> Option<Held> {
        self.machine.held(self.now())
    }

    fn renew(&mut self, shown: Held, held: Held) {
        self.renewals += u64::from(held.until > shown.until && !self.lease.is_zero());
        self.board.publish(Some(held));
    }

    /// Writes, for as long as it takes: what follows rests on it. Meanwhile this member says nothing to the
    /// others, who will do without it; questions are answered.
    async fn persist(&mut self, stable: M::Stable) -> Result<(), Stopped> {
        let write = write(self.durable.clone(), stable);
        tokio::pin!(write);
        loop {
            let has_room = self.deferred.len() < QUEUE;
            tokio::select! {
                biased;
                () = &mut write => return Ok(()),
                command = self.seat.next_if(has_room) => match command {
                    Command::Status { done } => {
                        let _ = done.send(self.status(self.now()));
                    }
                    Command::Figures(figures) => self.take_figures(figures),
                    // It cannot be said to the others, but here it holds at once.
                    Command::Stop => return Err(Stopped),
                    command => {
                        if let Command::Resign { of, .. } = &command
                            && let Some(held) = self.board.held()
                            && of.as_ref().is_none_or(|of| of.is_of(held))
                        {
                            self.board.publish(None);
                        }
                        self.deferred.push_back(command);
                    }
                },
            }
        }
    }

    fn send(&mut self, to: impl IntoIterator<Item = MemberId>, message: &M::Message) {
        let delivery = M::delivery(message);
        self.frame.clear();
        wire::encode(message, &mut self.frame);
        for to in to {
            self.transport.send(to, delivery, self.frame.clone());
        }
    }

    fn tell(&mut self, event: Event) {
        if let Event::Changed(state) = &event {
            let state = self.shown(*state);
            self.seat.state.send_replace(state);
        }
        self.seat.tell(event);
    }

    fn shown(&self, state: State) -> ElectionState {
        match state {
            State::Electing => ElectionState::Electing,
            State::Following { leader, term } => ElectionState::Following { leader, term },
            State::Leading { term } => {
                let held = self.held().filter(|held| held.term == term);
                self.board.publish(held);
                // What has ended meanwhile is shown as led until the next event says so; it does not hold.
                let held = held.unwrap_or(Held { term, began: self.now(), until: None });
                ElectionState::Leading(Mandate::new(held, self.board.clone()))
            }
        }
    }

    /// Whether the lease is near its end, or is not any more.
    fn check_jeopardy(&self) {
        let in_jeopardy = self.jeopardy_at().is_some_and(|at| at <= self.now());
        self.seat.state.send_if_modified(|state| match state {
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

impl<M: Spoken> Drop for Driver<M> {
    /// However the driver ends, its mandate ends with it.
    fn drop(&mut self) {
        self.board.publish(None);
    }
}

/// Tries until it is done.
async fn write<T: serde::Serialize + Clone + Send + Sync + 'static>(
    durable: Arc<DurableFile>,
    stable: T,
) {
    let mut pause = Duration::from_millis(50);
    loop {
        let (durable, stable) = (durable.clone(), stable.clone());
        match tokio::task::spawn_blocking(move || durable.store(&stable)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => tracing::error!(
                %error,
                "the state could not be written; this member is silent until it can be"
            ),
            Err(error) => tracing::error!(%error, "the write of the state did not end"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_RETRY);
    }
}
