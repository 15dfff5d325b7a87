//! One link, from the moment both sides know each other until it ends.

use std::convert::Infallible;
use std::sync::Arc;

use mandate_proto::identity::MemberId;
use quinn::{Connection, VarInt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::event::LinkEvent;
use super::failure::{Failure, REPLACED, Refusal, STOPPING, VIOLATION, WATCH_BROKE};
use super::limits::{CLOSE_TIMEOUT, QUEUE_FRAMES};
use super::shared::{Counts, Outgoing, Shared};
use super::sockets::canonical;
use super::{frames, watch};

/// What the two sides need of each other, made by the handshake.
pub(crate) struct Established {
    pub(crate) member: MemberId,
    pub(crate) connection: Connection,
    /// Absent where only QUIC gets through.
    pub(crate) watch: Option<TcpStream>,
    /// Counts among the unauthenticated ones until the link is up.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// Why a link ended.
enum End {
    Stopping,
    Replaced,
    WatchBroke,
    Failed(Failure),
}

/// Runs a link until it ends. Tells the consumer that it is up, and later that it broke.
pub(crate) async fn run(shared: &Arc<Shared>, established: Established) {
    let Established { member, connection, mut watch, permit } = established;
    let Some(peer) = shared.peers.get(&member) else { return };
    let replaced = shared.stop.child_token();
    peer.supersede(replaced.clone());
    let _turn = tokio::select! {
        biased;
        () = replaced.cancelled() => return connection.close(REPLACED, b"replaced before it was up"),
        turn = peer.turn.lock() => turn,
    };

    let address = canonical(connection.remote_address());
    shared.reports.forget(address);
    let (queue, mut queued) = mpsc::channel(QUEUE_FRAMES);
    peer.set_outgoing(Some(Outgoing { connection: connection.clone(), queue }));
    tracing::info!(%member, %address, watched = watch.is_some(), "link up");
    shared.tell(LinkEvent::Up { member }).await;
    drop(permit);

    // In no fixed order: a member that floods one of these must not hide the others.
    let end = tokio::select! {
        () = shared.stop.cancelled() => End::Stopping,
        () = replaced.cancelled() => End::Replaced,
        Err(failure) = read_datagrams(shared, member, &connection) => End::Failed(failure),
        Err(failure) = read_stream(shared, member, &connection) => End::Failed(failure),
        Err(failure) = write_stream(&connection, &mut queued) => End::Failed(failure),
        broke = watch::until_broken(watch.as_mut()) => match (broke, connection.close_reason()) {
            (watch::Broke::Spoke, _) => End::Failed(Refusal::WatchSpoke.into()),
            // The other side ended both, and has said why over QUIC.
            (watch::Broke::Ended, Some(reason)) => End::Failed(reason.into()),
            (watch::Broke::Ended, None) => End::WatchBroke,
        },
    };

    peer.set_outgoing(None);
    let (code, reason) = closing(&end);
    connection.close(code, reason.as_bytes());
    // Only now: the reason should get there first.
    drop(watch);
    tracing::info!(%member, %address, "link ended: {reason}");
    if let End::Failed(Failure::Refused(refusal)) = end {
        shared.refuse(Some(member), address, refusal.to_string()).await;
    }
    shared.tell(LinkEvent::Broken { member }).await;
}

/// What the other side is told.
fn closing(end: &End) -> (VarInt, String) {
    match end {
        End::Stopping => (STOPPING, "this member stops".to_owned()),
        End::Replaced => (REPLACED, "a newer connection took its place".to_owned()),
        End::WatchBroke => (WATCH_BROKE, "the watch broke".to_owned()),
        End::Failed(Failure::Refused(refusal)) => (VIOLATION, refusal.to_string()),
        End::Failed(Failure::Lost(reason)) => (STOPPING, reason.clone()),
    }
}

/// Hands datagrams on. While the consumer is slow they are dropped: late ones would only mislead.
async fn read_datagrams(
    shared: &Shared,
    member: MemberId,
    connection: &Connection,
) -> Result<Infallible, Failure> {
    loop {
        tokio::task::coop::consume_budget().await;
        let frame = connection.read_datagram().await?;
        frames::check_length(frame.len())?;
        let event = LinkEvent::Received { from: member, frame: frame.into() };
        if let Err(TrySendError::Full(_)) = shared.events.try_send(event) {
            Counts::raise(&shared.counts.not_taken);
        }
    }
}

/// Hands frames of the stream on. While the consumer is slow the sender is held back.
async fn read_stream(
    shared: &Shared,
    member: MemberId,
    connection: &Connection,
) -> Result<Infallible, Failure> {
    let mut stream = connection.accept_uni().await?;
    while let Some(frame) = frames::read(&mut stream).await? {
        shared.tell(LinkEvent::Received { from: member, frame }).await;
    }
    // A member that ends a link ends its stream a moment before, and says why with the connection.
    match timeout(CLOSE_TIMEOUT, connection.closed()).await {
        Ok(reason) => Err(reason.into()),
        Err(_) => Err(Failure::Lost("the other side ended its stream".to_owned())),
    }
}

async fn write_stream(
    connection: &Connection,
    queue: &mut mpsc::Receiver<Vec<u8>>,
) -> Result<Infallible, Failure> {
    let stream = connection.open_uni().await?;
    frames::write(stream, queue).await?;
    Err(Failure::Lost("nobody sends any more".to_owned()))
}
