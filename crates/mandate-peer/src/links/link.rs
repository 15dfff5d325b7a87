//! One link, from the moment both sides know each other until it ends.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mandate_proto::identity::MemberId;
use quinn::{Connection, SendStream, VarInt};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::connection_limit::Place;
use super::control::{self, Control};
use super::event::LinkEvent;
use super::failure::{Failure, NO_ANSWER, REPLACED, STOPPING, VIOLATION};
use super::frames;
use super::handle::Spoken;
use super::hello::Hello;
use super::limits::{GOODBYE_TIMEOUT, MAX_CHALLENGES, MAX_FRAME_BYTES, QUEUE_FRAMES};
use super::peers::{Outgoing, Peer};
use super::shared::{Counts, Shared};
use super::sockets::canonical;

/// What the two sides need of each other, made by the handshake.
pub(crate) struct Established {
    pub(crate) member: MemberId,
    pub(crate) peer: Arc<Peer>,
    pub(crate) hello: Hello,
    /// Which version of the protocol was agreed on.
    pub(crate) version: u32,
    pub(crate) connection: Connection,
    pub(crate) control: Control,
    /// Counts among the newcomers until the link is up.
    pub(crate) place: Option<Place>,
}

/// Why a link ended.
pub(crate) enum End {
    /// The other side has not said that it has read everything.
    Unheard,
    Stopping,
    Replaced,
    /// It is no member any more.
    Left,
    /// The other side did not say that it is there, when its watch broke or another showed its id.
    NoAnswer,
    Failed(Failure),
}

/// Runs a link until it ends. Tells the consumer that it is up, and later that it broke.
pub(crate) async fn run(shared: &Arc<Shared>, established: Established) {
    let Established { member, peer, hello, version, connection, mut control, place } = established;
    let replaced = CancellationToken::new();
    peer.supersede(version, replaced.clone());
    // The list of members may have changed since we greeted; the other side comes again, and is told.
    if version < shared.hello().speaks().oldest {
        return connection.close(REPLACED, b"come again");
    }
    let _turn = tokio::select! {
        biased;
        () = replaced.cancelled() => return connection.close(REPLACED, b"replaced before it was up"),
        () = shared.stop.cancelled() => return connection.close(STOPPING, b"this member stops"),
        turn = peer.turn.lock() => turn,
    };
    // It made room for another meanwhile, or is no member any more.
    if !shared.peers.knows(member, &peer) {
        return connection.close(STOPPING, b"come again");
    }

    let address = canonical(connection.remote_address());
    shared.reports.forget(address);
    let (queue, mut queued) = mpsc::channel(QUEUE_FRAMES);
    let spoken = Spoken { version, release: hello.release };
    peer.set_outgoing(Some(Outgoing { connection: connection.clone(), queue, spoken }));
    shared.forget_trouble(member);
    let (challenge, mut challenges) = mpsc::channel(MAX_CHALLENGES);
    peer.shown.up(hello.life, challenge);
    tracing::info!(%member, %address, version, "link up");
    shared.tell(LinkEvent::Up { member }).await;
    drop(place);

    // Both live until the connection is closed: a stream that ends before says goodbye, and a watch is to end last.
    let (mut stream, mut watch) = (None, None);
    let source = Source { member, version, disk: hello.disk, peer: &peer };
    // In no fixed order: a member that floods one of these must not hide the others.
    let end = tokio::select! {
        () = too_late(shared) => End::Unheard,
        () = replaced.cancelled() => End::Replaced,
        () = peer.gone.cancelled() => End::Left,
        Err(failure) = read_datagrams(shared, &source, &connection) => End::Failed(failure),
        Err(failure) = read_stream(shared, &source, &connection) => End::Failed(failure),
        written = write_stream(shared, &connection, &mut stream, &mut queued) => match written {
            Ok(()) => End::Stopping,
            Err(failure) => End::Failed(failure),
        },
        end = control::attend(
            shared, (member, &connection), &mut control, &mut watch, &mut challenges,
        ) => end,
    };

    peer.set_outgoing(None);
    peer.shown.down();
    shared.set_watched(member, false);
    shared.set_reachable(member, false);
    drop(challenges);
    let (code, reason) = closing(&end);
    if matches!(end, End::Unheard) {
        shared.is_unheard.store(true, Ordering::Relaxed);
    }
    connection.close(code, reason.as_bytes());
    // Only now: the reason should get there first.
    drop((watch, control));
    tracing::info!(%member, %address, "link ended: {reason}");
    if let End::Failed(Failure::Refused(refusal)) = end {
        shared.refuse(Some(member), address, refusal.to_string()).await;
    }
    shared.tell(LinkEvent::Broken { member }).await;
    shared.peers.guest_left(member, &peer);
}

/// What the other side is told.
fn closing(end: &End) -> (VarInt, String) {
    match end {
        End::Stopping | End::Unheard => (STOPPING, "this member stops".to_owned()),
        End::Replaced => (REPLACED, "a newer connection took its place".to_owned()),
        End::Left => (STOPPING, "the other side is no member any more".to_owned()),
        End::NoAnswer => (NO_ANSWER, "the other side does not answer".to_owned()),
        End::Failed(Failure::Refused(refusal)) => (VIOLATION, refusal.to_string()),
        End::Failed(Failure::Lost(reason)) => (STOPPING, reason.clone()),
    }
}

/// Whose frames a link carries.
struct Source<'a> {
    member: MemberId,
    version: u32,
    disk: u64,
    peer: &'a Peer,
}

impl Source<'_> {
    fn received(&self, frame: Vec<u8>) -> LinkEvent {
        self.peer.shown.spoke(self.disk);
        LinkEvent::Received { from: self.member, version: self.version, frame }
    }
}

/// Hands datagrams on. While the consumer is slow they are dropped: late ones would only mislead.
async fn read_datagrams(
    shared: &Shared,
    source: &Source<'_>,
    connection: &Connection,
) -> Result<Infallible, Failure> {
    loop {
        tokio::task::coop::consume_budget().await;
        let frame = connection.read_datagram().await?;
        frames::check_length(frame.len(), MAX_FRAME_BYTES)?;
        let event = source.received(frame.into());
        if let Err(TrySendError::Full(_)) = shared.events.try_send(event) {
            Counts::raise(&shared.counts.not_taken);
        }
    }
}

/// Hands frames of the stream on. While the consumer is slow the sender is held back.
async fn read_stream(
    shared: &Shared,
    source: &Source<'_>,
    connection: &Connection,
) -> Result<Infallible, Failure> {
    let mut stream = connection.accept_uni().await?;
    while let Some(frame) = frames::read(&mut stream).await? {
        shared.tell(source.received(frame)).await;
    }
    // It says goodbye, and everything that it said before has been handed on: closing tells it so.
    Err(Failure::Lost("the other side has said goodbye".to_owned()))
}

/// Writes what is queued. When this member stops, writes the rest, says goodbye, and waits until the other
/// side has read it all: that is when it closes the connection. (An acknowledgement by its QUIC would not
/// do: a connection that closes then may hide from the reader what has arrived.)
async fn write_stream(
    shared: &Shared,
    connection: &Connection,
    stream: &mut Option<SendStream>,
    queue: &mut mpsc::Receiver<Vec<u8>>,
) -> Result<(), Failure> {
    let stream = stream.insert(connection.open_uni().await?);
    frames::write(stream, queue, &shared.stop).await?;
    let _ = stream.finish();
    connection.closed().await;
    Ok(())
}

/// Waits until the time for goodbyes is over.
async fn too_late(shared: &Shared) {
    shared.stop.cancelled().await;
    sleep(GOODBYE_TIMEOUT).await;
}
