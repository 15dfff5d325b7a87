//! The loop that drives a member: one sleep, effects in order, nothing past a write that is not on disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effect, Effects};
use mandate_proto::pole::installation::NoVote;
use mandate_proto::time::Instant;
use mandate_proto::wire;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::disk::Disk;
use crate::durable::DurableFile;
use crate::election::Status;
use crate::event::{Event, Figures};
use crate::office::{Command, Held, Office};
use crate::protocol::Spoken;
use crate::seat::QUEUE;
use crate::transport::{Inbound, Transport};

/// The longest pause between attempts to write to a disk that refuses.
const MAX_RETRY: Duration = Duration::from_secs(2);

/// So many inputs may go before what is due: enough to read what arrived during a pause, and few enough that a
/// flood does not keep a leader from sending heartbeats.
const MAX_BEFORE_DUE: u32 = 512;

/// How often it is looked whether the member has a vote. Most get one sooner, and nothing is logged.
const LOOK_AT_VOTE: Duration = Duration::from_secs(1);

pub(crate) struct Driver<M: Spoken> {
    pub(crate) machine: M,
    pub(crate) effects: Effects<M::Effect>,
    pub(crate) office: Office,
    pub(crate) durable: Arc<DurableFile>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) others: Vec<MemberId>,
    /// What came while a write was waited for.
    pub(crate) deferred: VecDeque<Command>,
    pub(crate) frame: Vec<u8>,
    pub(crate) voting: Voting,
}

/// What was logged of a member without a vote.
pub(crate) struct Voting {
    next: Instant,
    logged: Option<NoVote>,
}

impl Voting {
    pub(crate) fn new(now: Instant) -> Self {
        Voting { next: now + LOOK_AT_VOTE, logged: None }
    }
}

/// The member is to end, or has been let go.
struct Stopped;

impl<M: Spoken> Driver<M> {
    pub(crate) async fn run(mut self, mut inbound: mpsc::Receiver<Inbound>) {
        let _ = self.drive(&mut inbound).await;
    }

    async fn drive(&mut self, inbound: &mut mpsc::Receiver<Inbound>) -> Result<(), Stopped> {
        let mut before_due = 0;
        loop {
            self.carry_out().await?;
            self.look_at_vote();
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
                command = self.office.next() => self.obey(command).await?,
                Some(arrived) = inbound.recv() => self.receive(arrived),
                () = sleep(pause) => {
                    before_due = 0;
                    self.machine.handle_timeout(self.now(), &mut self.effects);
                }
            }
        }
    }

    fn now(&self) -> Instant {
        self.office.now()
    }

    /// How long to sleep: until the machine's deadline, or until the lease is in jeopardy. At most a
    /// second, because timers do not count suspension.
    fn pause(&self) -> Duration {
        let due = self.machine.deadline().into_iter().chain(self.office.wakes_at()).min();
        let now = self.now();
        due.map_or(Duration::from_secs(1), |due| (due - now).min(Duration::from_secs(1)))
    }

    /// Logs why the member has no vote, when that is news.
    fn look_at_vote(&mut self) {
        let now = self.now();
        if now < self.voting.next {
            return;
        }
        self.voting.next = now + LOOK_AT_VOTE;
        let no_vote = self.machine.no_vote();
        if let Some(reason) = no_vote.as_ref().filter(|_| no_vote != self.voting.logged) {
            tracing::warn!(
                "{reason}. Start the members that are missing, or see why they are refused"
            );
        }
        self.voting.logged = no_vote;
    }

    fn receive(&mut self, arrived: Inbound) {
        let now = self.now();
        if let Inbound::Twin { member } = arrived {
            let held = self.held();
            return self.office.tell(Event::Twin { member }, held);
        }
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
                if self.office.concerns(of.as_ref(), self.held()) {
                    self.machine.handle(M::resign(), now, &mut self.effects);
                    self.carry_out().await?;
                }
                done.map(|done| done.send(()));
            }
            Command::Transfer { to, done } => {
                self.office.refusal();
                match M::transfer(to) {
                    Ok(input) => self.machine.handle(input, now, &mut self.effects),
                    Err(reason) => self.office.refuse(reason),
                }
                self.carry_out().await?;
                let _ = done.send(self.office.refusal().map_or(Ok(()), Err));
            }
            Command::Figures(figures) => self.take_figures(figures),
            Command::Status { done } if done.is_closed() => {}
            Command::Status { done } => {
                let _ = done.send(self.status(now));
            }
            Command::Stop => {
                self.machine.handle(M::stop(), now, &mut self.effects);
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
            state: self.office.state(),
            suspected: known.suspected,
            view: known.view,
            standing: known.standing,
            has_vote: known.has_vote,
            no_vote: self.machine.no_vote(),
            detection: known.detection,
            renewals: self.office.renewals(),
        }
    }

    /// Carries out everything that the machine has asked for, in order.
    async fn carry_out(&mut self) -> Result<(), Stopped> {
        // What has ended must be seen to have ended before anyone else is told; what has begun is seen
        // when the member says so, after what it rests on is on disk.
        self.office.settle(self.held());
        while let Some(effect) = self.effects.pop() {
            match effect {
                Effect::Persist(stable) => self.persist(stable).await?,
                Effect::Send { to, message } => self.send([to], &message),
                Effect::Broadcast(message) => self.send(self.others.clone(), &message),
                Effect::Tell(event) => {
                    self.machine.told(event).into_iter().for_each(|event| {
                        let held = self.held();
                        self.office.tell(event, held);
                    });
                }
            }
        }
        self.office.check_jeopardy();
        Ok(())
    }

    fn held(&self) -> Option<Held> {
        self.machine.held(self.now())
    }

    /// Writes, for as long as it takes: what follows rests on it. Meanwhile this member says nothing to the
    /// others, who will do without it; questions are answered.
    async fn persist(&mut self, stable: M::Stable) -> Result<(), Stopped> {
        let write = write(self.durable.clone(), self.office.disk(), stable);
        tokio::pin!(write);
        loop {
            let has_room = self.deferred.len() < QUEUE;
            tokio::select! {
                biased;
                () = &mut write => {
                    self.machine.persisted(self.now());
                    return Ok(());
                }
                command = self.office.next_if(has_room) => match command {
                    Command::Status { done } => {
                        let _ = done.send(self.status(self.now()));
                    }
                    Command::Figures(figures) => self.take_figures(figures),
                    // It cannot be said to the others, but here it holds at once.
                    Command::Stop => return Err(Stopped),
                    command => {
                        if let Command::Resign { of, .. } = &command {
                            self.office.withdraw(of.as_ref());
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
}

/// Tries until it is done.
async fn write<T: serde::Serialize + Clone + Send + Sync + 'static>(
    durable: Arc<DurableFile>,
    disk: Disk,
    stable: T,
) {
    let mut pause = Duration::from_millis(50);
    disk.begin();
    loop {
        let (durable, stable) = (durable.clone(), stable.clone());
        match tokio::task::spawn_blocking(move || durable.store(&stable)).await {
            Ok(Ok(())) => return disk.done(),
            Ok(Err(error)) => {
                tracing::error!(
                    %error,
                    "could not write the state: this member is silent until it can; free space, or mend the disk"
                );
                disk.failed(error.to_string());
            }
            Err(error) => {
                tracing::error!(%error, "the write of the state did not end");
                disk.failed(error.to_string());
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_RETRY);
    }
}
