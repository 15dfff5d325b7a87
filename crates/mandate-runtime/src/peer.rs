//! The backend of protocols that members speak with each other: frames over a [`Transport`], votes in a
//! [`DurableFile`].

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::Effect;
use mandate_proto::pole::installation::{NoVote, RosterId, WhyNoVote};
use mandate_proto::pole::member::LeaderAnswer;
use mandate_proto::time::Instant;
use mandate_proto::wire;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::disk::Disk;
use crate::driver::{Backend, Carried, Driven};
use crate::durable::DurableFile;
use crate::election::Status;
use crate::event::Event;
use crate::protocol::PeerProtocol;
use crate::requests::{RequestEvent, Wanted};
use crate::start::Kept;
use crate::transport::{Frame, Inbound, Transport};

/// The longest pause between attempts to write to a disk that refuses.
const MAX_RETRY: Duration = Duration::from_secs(2);

/// How often it is looked whether the member has a vote. Most get one sooner, and nothing is logged.
const LOOK_AT_VOTE: Duration = Duration::from_secs(1);

/// What a member needs besides its machine.
pub(crate) struct PeerBackend {
    durable: Arc<DurableFile>,
    transport: Arc<dyn Transport>,
    me: MemberId,
    /// Who broadcasts go to.
    others: Vec<MemberId>,
    /// Which list they are from, where members come and go.
    roster: Option<RosterId>,
    inbound: mpsc::Receiver<Inbound>,
    /// The write that everything else waits for.
    write: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// What members ask of this one, for the task that carries it out.
    wanted: mpsc::Sender<Wanted>,
    next_look: Instant,
    /// Why the member has no vote, as it was logged.
    logged: Option<NoVote>,
}

impl PeerBackend {
    pub(crate) fn new(
        durable: Arc<DurableFile>,
        transport: Arc<dyn Transport>,
        (me, others): (MemberId, Vec<MemberId>),
        inbound: mpsc::Receiver<Inbound>,
        wanted: mpsc::Sender<Wanted>,
        now: Instant,
    ) -> Self {
        PeerBackend {
            durable,
            transport,
            me,
            others,
            roster: None,
            inbound,
            write: None,
            wanted,
            next_look: now + LOOK_AT_VOTE,
            logged: None,
        }
    }

    fn receive<M: PeerProtocol>(&self, from: MemberId, frame: &Frame, driven: &mut Driven<M>) {
        match wire::decode_as::<M::Message>(frame.version, &frame.bytes) {
            Ok(message) => {
                let delay = self.transport.round_trip(from).map(|round_trip| round_trip / 2);
                if let Some(input) = delay.and_then(|delay| M::delay(from, delay)) {
                    driven.handle(input);
                }
                driven.handle(M::received(from, message));
            }
            Err(error) => {
                tracing::warn!(%from, %error, "a frame that is no message was ignored");
            }
        }
    }

    /// Has what a member asks of this one carried out.
    fn pass_on<M: PeerProtocol>(&mut self, wanted: Wanted, driven: &mut Driven<M>) {
        let Wanted { id, term, request } = &wanted;
        tracing::info!(%term, "{} asks this leader, for an operator or an application, {request}", id.by);
        let id = *id;
        // There is a place for each that the machine lets through.
        if self.wanted.try_send(wanted).is_err()
            && let Some(input) = M::answer(id, LeaderAnswer::Busy)
        {
            driven.handle(input);
        }
    }

    fn send<M: PeerProtocol>(&self, to: &[MemberId], message: &M::Message) {
        let delivery = M::delivery(message);
        // Most links speak one version.
        let mut written: Option<Frame> = None;
        for to in to {
            let version = self.transport.speaks(*to);
            if written.as_ref().is_none_or(|frame| frame.version != version) {
                let mut bytes = Vec::new();
                // What an older version cannot say is nothing to a member that speaks no other.
                written = wire::encode_as(version, message, &mut bytes)
                    .then_some(Frame { version, bytes });
            }
            if let Some(frame) = &written {
                self.transport.send(*to, delivery, frame.clone());
            }
        }
    }
}

impl<M: PeerProtocol> Backend<M> for PeerBackend {
    type Arrival = Inbound;

    const LEAVES_WITHIN: Duration = Duration::ZERO;

    /// Links are told of a new list first, so that what is sent to a member that is new goes somewhere.
    fn settle(&mut self, driven: &mut Driven<M>) {
        let held = driven.held();
        driven.side.settle(held);
        let Some(roster) = driven.machine.roster() else { return };
        if self.roster.replace(roster.id()) != Some(roster.id()) {
            self.others = roster.members().filter(|id| *id != self.me).collect();
            self.transport.goes_by(roster);
        }
    }

    fn carry_out(&mut self, effect: M::Effect, driven: &mut Driven<M>) -> Carried {
        match effect {
            Effect::Persist(stable) => {
                let write = write(self.durable.clone(), driven.side.disk(), stable);
                self.write = Some(Box::pin(write));
                return Carried::Begun;
            }
            Effect::Send { to, message } => self.send::<M>(&[to], &message),
            Effect::Broadcast(message) => self.send::<M>(&self.others, &message),
            Effect::Tell(event) => match M::request(&event) {
                Some(RequestEvent::Asked(wanted)) => self.pass_on(wanted, driven),
                Some(RequestEvent::Answered { number, answer }) => {
                    driven.side.asked.answered(number, answer);
                }
                None => {
                    for event in driven.machine.told(event) {
                        driven.tell(event);
                    }
                }
            },
        }
        Carried::Done
    }

    /// Logs why the member has no vote, when that is news.
    fn carried_out(&mut self, driven: &mut Driven<M>) {
        let now = driven.now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_AT_VOTE;
        let no_vote = driven.machine.no_vote();
        if let Some(reason) = no_vote.as_ref().filter(|_| no_vote != self.logged) {
            log(reason);
        }
        self.logged = no_vote;
    }

    async fn durable(&mut self) {
        if let Some(write) = &mut self.write {
            write.await;
            self.write = None;
        }
    }

    async fn next(&mut self) -> Inbound {
        match self.inbound.recv().await {
            Some(arrived) => arrived,
            None => std::future::pending().await,
        }
    }

    fn arrived(&mut self, arrived: Inbound, driven: &mut Driven<M>) {
        match arrived {
            Inbound::Twin { member } => driven.tell(Event::Twin { member }),
            Inbound::Received { from, frame } => self.receive(from, &frame, driven),
            change => {
                if let Some(input) = M::link(&change) {
                    driven.handle(input);
                }
            }
        }
    }

    fn status(&self, driven: &Driven<M>) -> Status {
        let round_trip = |id: &MemberId| Some((*id, self.transport.round_trip(*id)?));
        let round_trips = self.others.iter().filter_map(round_trip).collect();
        let status = Status::of(&driven.side);
        driven.machine.known(round_trips, driven.now(), status)
    }
}

/// Says why the member has no vote, and what to do.
fn log(reason: &NoVote) {
    match reason.why {
        WhyNoVote::Joining | WhyNoVote::Learning | WhyNoVote::Observing => {
            tracing::info!("{reason}");
        }
        WhyNoVote::NotAMember => tracing::warn!(
            "{reason}. If it was removed, stop it; it can be added anew with another id and an empty state"
        ),
        WhyNoVote::Outdated => tracing::warn!("{reason}"),
        WhyNoVote::New
        | WhyNoVote::Unsure
        | WhyNoVote::NoState
        | WhyNoVote::Lost
        | WhyNoVote::Changed
        | WhyNoVote::WentBack
        | WhyNoVote::Disputed => {
            tracing::warn!(
                "{reason}. Start the members that are missing, or see why they are refused"
            );
        }
    }
}

/// Tries until it is done.
async fn write<T: Kept + Clone + Send + Sync + 'static>(
    durable: Arc<DurableFile>,
    disk: Disk,
    stable: T,
) {
    let mut pause = Duration::from_millis(50);
    disk.begin();
    loop {
        let (durable, stable) = (durable.clone(), stable.clone());
        match tokio::task::spawn_blocking(move || durable.store_in(stable.form(), &stable)).await {
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
