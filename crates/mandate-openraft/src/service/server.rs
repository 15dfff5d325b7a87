//! Answers connections of members and clients.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use openraft::error::{InstallSnapshotError, RaftError};
use openraft::raft::{AppendEntriesResponse, InstallSnapshotRequest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use super::member::Member;
use super::wire::{self, Call, Hello, Piece, Reply, Request, Return};

/// Connections at most; further ones wait to be accepted.
const CONNECTIONS: usize = 1024;

/// Requests that one connection may have under way; then nothing more is read from it.
const UNDER_WAY: usize = 1024;

/// How long after connecting a caller has to say whom it calls.
const HELLO: Duration = Duration::from_secs(5);

/// Accepts connections, for ever.
pub(crate) async fn accept(listener: TcpListener, member: Arc<Member>, service: Arc<str>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let (member, service) = (member.clone(), service.clone());
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, member, &service).await {
                        tracing::debug!(%from, %error, "the connection has ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                // No descriptors left, for instance: it passes.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, member: Arc<Member>, service: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut sink, mut stream) = wire::frames(stream).split();
    let first = timeout(HELLO, stream.next()).await?;
    let Some(first) = first else { return Ok(()) };
    let hello: Hello = wire::decode(&first?)?;
    let me = u64::from(member.me.get());
    if (hello.version, hello.service.as_str(), hello.to) != (wire::VERSION, service, me) {
        let what = format!("it calls {hello:?}, and this is member {me} of {service}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let (replies, mut waiting) = mpsc::channel::<Return>(UNDER_WAY);
    let sending = async {
        while let Some(reply) = waiting.recv().await {
            sink.feed(wire::encode(&reply)?).await?;
            while let Ok(reply) = waiting.try_recv() {
                sink.feed(wire::encode(&reply)?).await?;
            }
            sink.flush().await?;
        }
        Ok(())
    };
    let receiving = async {
        let places = Arc::new(Semaphore::new(UNDER_WAY));
        while let Some(frame) = stream.next().await {
            let Call { number, request } = wire::decode(&frame?)?;
            let Ok(place) = places.clone().acquire_owned().await else { break };
            // Raft's messages are taken in the order in which they come; whatever may wait does so by itself.
            let in_order = matches!(request, Request::Vote(_) | Request::Append(_));
            let (member, replies) = (member.clone(), replies.clone());
            let answering = async move {
                let reply = answer(&member, request).await;
                let _ = replies.send(Return { number, reply }).await;
                drop(place);
            };
            if in_order {
                answering.await;
            } else {
                tokio::spawn(answering);
            }
        }
        Ok(())
    };
    tokio::select! {
        sent = sending => sent,
        received = receiving => received,
    }
}

async fn answer(member: &Member, request: Request) -> Reply {
    match request {
        Request::Vote(request) => match member.raft.vote(request).await {
            Ok(response) => Reply::Vote(response),
            Err(error) => Reply::Refused(error.to_string()),
        },
        Request::Append(request) => {
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
        Request::Piece(piece) => take(member, *piece).await,
        Request::Driver(request) => Reply::Driver(member.driver.answer(request).await),
        Request::Write { command, way } => member.write(command, way).await,
        Request::Read { key, way } => member.read(key, way).await,
        Request::Status => Reply::Status(Box::new(member.status())),
        Request::Transfer { to } => member.transfer(to).await,
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
