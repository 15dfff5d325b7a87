//! Answers connections of members and clients.
//!
//! Who calls is known from its certificate. Members and clients have places of their own ([`callers`]), so clients cannot
//! keep members out. What a connection may make this member hold is counted in bytes, and read from the connection
//! only when there is room for it.

mod callers;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::SinkExt;
use mandate_peer::links::Caller;
use mandate_proto::identity::MemberId;
use openraft::error::{InstallSnapshotError, RaftError};
use openraft::raft::{AppendEntriesResponse, InstallSnapshotRequest};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::link::Service;
use super::member::Member;
use super::room::Room;
use super::wire::{self, Call, Hello, Lane, Piece, Reply, Request, Return};
use callers::{Activity, Callers, Place};

/// Requests that one connection may have under way; then nothing more is read from it.
const UNDER_WAY: usize = 1024;

/// Bytes of clients' requests that are worked on, of all connections. Then nothing more is read from clients.
pub(super) const REQUESTS: usize = 64 << 20;

/// Bytes of messages that one connection of a member may have under way.
pub(super) const MESSAGES: usize = 32 << 20;

/// How long after connecting a caller has to prove who it is and to say whom it calls.
const HELLO: Duration = Duration::from_secs(5);

/// How long a frame may take to come once it has begun, and to be taken by the other side. It holds memory meanwhile.
const FRAME: Duration = Duration::from_secs(30);

/// How often a member that waits for a snapshot to be installed hears that this goes on.
const BUSY: Duration = Duration::from_secs(1);

/// Accepts connections, until it is dropped.
pub(crate) async fn accept(listener: TcpListener, member: Arc<Member>, service: Service) {
    let server = Arc::new(Server {
        tls: service.tls.accepts().into(),
        service,
        callers: Callers::default(),
        requests: Arc::new(Semaphore::new(REQUESTS)),
        member,
    });
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let server = server.clone();
                let (begin, began) = oneshot::channel::<AbortHandle>();
                let task = tokio::spawn({
                    let server = server.clone();
                    async move {
                        let Ok(handle) = began.await else { return };
                        let place = server.callers.arrive(handle);
                        if let Err(error) = server.serve(stream, place).await {
                            tracing::debug!(%from, %error, "the connection has ended");
                        }
                    }
                });
                let _ = begin.send(task.abort_handle());
            }
            Err(error) => {
                // No descriptors left, for instance: it passes.
                tracing::warn!(%error, "cannot accept a connection: trying again");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

struct Server {
    tls: TlsAcceptor,
    service: Service,
    member: Arc<Member>,
    callers: Callers,
    requests: Arc<Semaphore>,
}

/// An answer, and what it takes until it is sent.
type Answered = (Return, Option<Room>);

/// A connection whose caller is known.
struct Connection {
    server: Arc<Server>,
    /// The member that calls; `None` if a client does.
    from: Option<MemberId>,
    lane: Lane,
    /// Bytes of what comes.
    budget: Arc<Semaphore>,
    activity: Arc<Activity>,
}

impl Server {
    async fn serve(self: &Arc<Self>, stream: TcpStream, mut place: Place<'_>) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (caller, hello, input, output) = timeout(HELLO, self.greet(stream)).await??;
        let (lane, from) = match (hello.lane, caller) {
            // A member's certificate does for a client, too.
            (Lane::Requests, Caller::Client) => (hello.lane, None),
            (lane, Caller::Member(member)) if self.member.is_other(member) => (lane, Some(member)),
            (Lane::Requests, Caller::Member(_)) => (hello.lane, None),
            (lane, caller) => {
                tracing::warn!(
                    ?caller,
                    ?lane,
                    "refused a connection: the caller is no other member of the service"
                );
                return Err(refused(format!("{caller:?} is no other member")));
            }
        };
        let activity = match (lane, from) {
            (Lane::Raft | Lane::Snapshots, Some(member)) => place.becomes_member(member, lane),
            _ => place
                .becomes_client()
                .ok_or_else(|| refused("there are too many clients".into()))?,
        };
        let budget = match lane {
            Lane::Requests => self.requests.clone(),
            Lane::Raft | Lane::Snapshots => Arc::new(Semaphore::new(MESSAGES)),
        };
        let connection = Connection { server: self.clone(), from, lane, budget, activity };
        let (replies, waiting) = mpsc::channel(UNDER_WAY);
        tokio::select! {
            sent = send(lane, &connection.activity, output, waiting) => sent,
            received = connection.receive(input, replies) => received,
        }
    }

    /// Who calls, and what for.
    async fn greet(
        &self,
        stream: TcpStream,
    ) -> io::Result<(Caller, Hello, impl AsyncRead + Unpin, impl AsyncWrite + Unpin)> {
        let stream = self.tls.accept(stream).await?;
        let caller = self.service.tls.caller(stream.get_ref().1.peer_certificates());
        let caller =
            caller.ok_or_else(|| refused("its certificate is not of this group".into()))?;
        let (input, output) = tokio::io::split(stream);
        let mut input = BufReader::new(input);
        let length = wire::next_length(&mut input, wire::MAX_REQUEST).await?;
        let length = length.ok_or(io::ErrorKind::UnexpectedEof)?;
        let hello: Hello = wire::next_frame(&mut input, length).await?;
        let (me, name) = (u64::from(self.member.me.get()), &*self.service.name);
        if (hello.version, hello.service.as_str(), hello.to) != (wire::VERSION, name, me) {
            return Err(refused(format!("it calls {hello:?}, and this is member {me} of {name}")));
        }
        Ok((caller, hello, input, output))
    }
}

fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

/// Sends answers as they come. The other side has [`FRAME`] to take each: however many there are, it is dropped only if it
/// takes nothing.
async fn send(
    lane: Lane,
    activity: &Activity,
    output: impl AsyncWrite + Unpin,
    mut waiting: mpsc::Receiver<Answered>,
) -> io::Result<()> {
    let mut sink = wire::frames_out(output);
    loop {
        let next = match lane {
            Lane::Snapshots => timeout(BUSY, waiting.recv()).await,
            Lane::Raft | Lane::Requests => Ok(waiting.recv().await),
        };
        let first = match next {
            Ok(Some(first)) => first,
            Ok(None) => return Ok(()),
            Err(_) if activity.is_idle() => continue,
            Err(_) => (Return { number: 0, reply: Reply::Busy }, None),
        };
        let mut next = Some(first);
        let mut buffered = None;
        while let Some((reply, room)) = next {
            let frame = wire::encode(&reply)?;
            drop(reply);
            timeout(FRAME, sink.feed(frame)).await??;
            // The frame before is sent; this one is in the sink's buffer.
            drop(std::mem::replace(&mut buffered, room));
            next = waiting.try_recv().ok();
        }
        timeout(FRAME, SinkExt::<Bytes>::flush(&mut sink)).await??;
        drop(buffered);
    }
}

impl Connection {
    async fn receive(
        &self,
        mut input: impl AsyncRead + Unpin,
        replies: mpsc::Sender<Answered>,
    ) -> io::Result<()> {
        let places = Arc::new(Semaphore::new(UNDER_WAY));
        let closed = |_| io::Error::from(io::ErrorKind::ConnectionAborted);
        while let Some(length) = wire::next_length(&mut input, self.lane.max_frame()).await? {
            let place = places.clone().acquire_owned().await.map_err(closed)?;
            let bytes = u32::try_from(length).unwrap_or(u32::MAX);
            let bytes = self.budget.clone().acquire_many_owned(bytes).await.map_err(closed)?;
            let frame = timeout(FRAME, wire::next_frame(&mut input, length)).await?;
            let Call { number, request } = frame?;
            let busy = self.activity.begin();
            // Raft's messages, and pieces, are taken in the order in which they come; whatever may wait does so by
            // itself.
            let in_order =
                matches!(request, Request::Vote(_) | Request::Append(_) | Request::Piece(_));
            let (server, replies) = (self.server.clone(), replies.clone());
            let (lane, from) = (self.lane, self.from);
            let answering = async move {
                let is_allowed = lane.carries(&request) && speaks_for_itself(&request, from);
                let (reply, room) = match request {
                    _ if !is_allowed => (not_for_it(from, lane), None),
                    Request::Read { key, way } => server.member.read(key, way).await,
                    request => (answer(&server.member, from, request).await, None),
                };
                drop(bytes);
                let _ = replies.send((Return { number, reply }, room)).await;
                drop((place, busy));
            };
            if in_order {
                answering.await;
            } else {
                tokio::spawn(answering);
            }
        }
        Ok(())
    }
}

/// Whether a message of Raft's is in the name of the member that sends it.
fn speaks_for_itself(request: &Request, from: Option<MemberId>) -> bool {
    let vote = match request {
        Request::Vote(request) => request.vote,
        Request::Append(request) => request.vote,
        Request::Piece(piece) => piece.vote,
        _ => return true,
    };
    from.is_some_and(|from| u64::from(from.get()) == vote.leader_id.node_id)
}

fn not_for_it(from: Option<MemberId>, lane: Lane) -> Reply {
    let who = from.map_or("a client".to_owned(), |member| member.to_string());
    tracing::warn!(%who, ?lane, "refused a request that is not for this caller to make");
    Reply::Refused(format!("{who} may not ask this here"))
}

async fn answer(member: &Member, from: Option<MemberId>, request: Request) -> Reply {
    match (request, from) {
        (Request::Vote(request), _) => match member.raft.vote(request).await {
            Ok(response) => Reply::Vote(response),
            Err(error) => Reply::Refused(error.to_string()),
        },
        (Request::Append(request), _) => {
            let began = Instant::now();
            match member.raft.append_entries(request).await {
                Ok(response) => {
                    let took_us = u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX);
                    let lacks_some = response == AppendEntriesResponse::Conflict;
                    let end = if lacks_some { member.peers.log_end() } else { None };
                    Reply::Append { response, took_us, end }
                }
                Err(error) => Reply::Refused(error.to_string()),
            }
        }
        (Request::Piece(piece), _) => take(member, *piece).await,
        (Request::RaftDriver(request), Some(from)) => {
            Reply::RaftDriver(member.driver.answer(from, request).await)
        }
        (Request::RaftDriver(_), None) => Reply::Refused("a client may not ask this".into()),
        (Request::Write { command, way }, _) => member.write(command, way).await,
        (Request::Read { key, way }, _) => member.read(key, way).await.0,
        (Request::Status, _) => Reply::Status(Box::new(member.status())),
        (Request::Transfer { to }, _) => member.transfer(to).await,
    }
}

/// Takes a piece of a snapshot.
async fn take(member: &Member, piece: Piece) -> Reply {
    let Piece { vote, meta, offset, data, done } = piece;
    let request = InstallSnapshotRequest { vote, meta, offset, data: data.into(), done };
    match member.raft.install_snapshot(request).await {
        Ok(response) => Reply::Piece(response),
        Err(RaftError::APIError(InstallSnapshotError::SnapshotMismatch(_))) => Reply::OtherSnapshot,
        Err(error) => Reply::Refused(error.to_string()),
    }
}
