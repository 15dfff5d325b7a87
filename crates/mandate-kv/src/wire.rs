//! What members and clients say to each other, as bytes.
//!
//! A connection is TLS 1.3 with certificates of the group's authority on both sides ([`mandate_peer::links::StreamTls`]),
//! and carries frames: four bytes of length, then postcard. The first frame is a `Hello`, which says what the connection
//! is for; then the dialling side sends `Call`s and is sent a `Return` for each, in any order. Bytes that are no frame,
//! or a frame that is no message, end the connection with an error; nothing that is sent can do more.
//!
//! Raft's and the driver's messages are taken from members only, and only in the name of the member whose certificate
//! was shown.

use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, LogId, SnapshotMeta, Vote};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_util::codec::{Framed, FramedWrite, LengthDelimitedCodec};

use super::types::{Kv, WriteCommand, WriteOutcome};
use mandate_openraft::driver::{Answer, Request as DriverRequest};

/// Rises with every change of a message.
pub const VERSION: u32 = 4;

/// What the protocol is called in the TLS handshake.
pub(crate) const PROTOCOL: &[u8] = b"mandate-kv";

/// No frame is longer: a megabyte of entries and one value on top of it, or a piece of a snapshot.
pub const MAX_FRAME: usize = 8 << 20;

/// No frame with a client's request is longer: a compare-and-swap has two values.
pub(crate) const MAX_REQUEST: usize = 4 << 20;

/// What a connection is for. Requests of clients, and pieces of snapshots, must not hold up Raft's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Lane {
    /// Raft and the driver, between members.
    Raft,
    /// Pieces of snapshots, between members.
    Snapshots,
    /// Requests of clients, or passed on for them.
    Requests,
}

impl Lane {
    /// Whether a request belongs here.
    pub(crate) fn carries(self, request: &Request) -> bool {
        match request {
            Request::Vote(_) | Request::Append(_) | Request::RaftDriver(_) => self == Lane::Raft,
            Request::Piece(_) => self == Lane::Snapshots,
            Request::Write { .. }
            | Request::Read { .. }
            | Request::Status
            | Request::Transfer { .. } => self == Lane::Requests,
        }
    }

    /// No frame is longer.
    pub(crate) fn max_frame(self) -> usize {
        if self == Lane::Requests { MAX_REQUEST } else { MAX_FRAME }
    }
}

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    /// The service's name: members of another answer nothing.
    pub(crate) service: String,
    /// Whom the caller believes to call.
    pub(crate) to: u64,
    /// What for.
    pub(crate) lane: Lane,
}

/// A question, with a number that its answer has, too.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) request: Request,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Return {
    pub(crate) number: u64,
    pub(crate) reply: Reply,
}

/// A piece of a snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) vote: Vote<u64>,
    pub(crate) meta: SnapshotMeta<u64, BasicNode>,
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    pub(crate) done: bool,
}

/// What can be asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Raft, between members.
    Vote(VoteRequest<u64>),
    Append(AppendEntriesRequest<Kv>),
    Piece(Box<Piece>),
    /// The driver, between members.
    RaftDriver(DriverRequest),
    /// A client's, or one that a follower passes on.
    Write {
        command: WriteCommand,
        way: Way,
    },
    Read {
        key: String,
        way: Way,
    },
    Status,
    /// Asks the member, if it leads the election, to hand over to another.
    Transfer {
        to: u32,
    },
}

/// How a client's request came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Way {
    /// Passed on by a member that took this one for the leader: it is not passed on again.
    pub(crate) passed_on: bool,
    /// How long the client still waits, in milliseconds.
    pub(crate) within_ms: u32,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Vote(VoteResponse<u64>),
    Append {
        response: AppendEntriesResponse<u64>,
        /// How long it took, in microseconds.
        took_us: u32,
        /// The last entry of the follower's log, if it lacks the entry before those it was sent and has any.
        end: Option<LogId<u64>>,
    },
    Piece(InstallSnapshotResponse<u64>),
    /// Another snapshot is being received; begin again.
    OtherSnapshot,
    RaftDriver(Answer),
    Written(WriteOutcome),
    Value(Option<Bytes>),
    Status(Box<KvStatus>),
    Transferred,
    /// Ask another; nothing was done.
    NotLeading {
        leader: Option<u64>,
    },
    /// It may be done or not.
    Unknown(String),
    /// It was not done.
    Refused(String),
    /// No answer to anything: something takes its time, and the connection is alive.
    Busy,
}

impl Reply {
    /// Why it is no answer to what was asked.
    pub(crate) fn unexpected(&self) -> io::Error {
        let what = match self {
            Reply::Refused(reason) => reason.clone(),
            _ => "the answer does not belong to the question".into(),
        };
        io::Error::new(io::ErrorKind::InvalidData, what)
    }
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvStatus {
    /// Who it is.
    pub member: u32,
    /// Whom its Raft names as the leader,
    pub leader: Option<u64>,
    /// in which of Raft's terms,
    pub raft_term: u64,
    /// and whether that is itself, with a quorum that answers.
    pub leads: bool,
    /// Who leads the election: whom the scores want to lead.
    pub elected: Option<u32>,
    /// In which term of the election.
    pub term: u64,
    /// The index of the last entry of its log.
    pub last_index: Option<u64>,
    /// The index of the last entry that was carried out.
    pub applied: Option<u64>,
    /// What the driver does, in words.
    pub driver: String,
    /// How often it has taken over from a leader that stood aside.
    pub moves: u64,
    /// Whether Raft's own timeouts elect.
    pub own_elections: bool,
    /// Requests that clients have sent to it since it was started.
    pub requests: u64,
    /// Why its Raft has ended; `None` while it runs.
    pub failed: Option<String>,
    /// How long those took that were answered in the last seconds, in microseconds: median and 99 of 100.
    pub latency_us: Option<(u64, u64)>,
}

/// Frames over a connection.
pub(crate) type Frames<T> = Framed<T, LengthDelimitedCodec>;

/// Cuts a connection into frames.
pub(crate) fn frames<T: AsyncRead + AsyncWrite>(connection: T) -> Frames<T> {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME).new_framed(connection)
}

/// Writes frames.
pub(crate) fn frames_out<T: AsyncWrite>(connection: T) -> FramedWrite<T, LengthDelimitedCodec> {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME).new_write(connection)
}

/// The length of the next frame, or `None` at the end.
pub(crate) async fn next_length(
    connection: &mut (impl AsyncRead + Unpin),
    max: usize,
) -> io::Result<Option<usize>> {
    let length = match connection.read_u32().await {
        Ok(length) => length as usize,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > max {
        let what = format!("a frame has at most {max} bytes here, not {length}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(Some(length))
}

/// The next frame, which has this length.
pub(crate) async fn next_frame<T: DeserializeOwned>(
    connection: &mut (impl AsyncRead + Unpin),
    length: usize,
) -> io::Result<T> {
    let mut frame = vec![0; length];
    connection.read_exact(&mut frame).await?;
    decode(&frame)
}

/// A message as the bytes of a frame.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Bytes> {
    let bytes = postcard::to_allocvec(message).map_err(io::Error::other)?;
    if bytes.len() > MAX_FRAME {
        let what = format!("a message has at most {MAX_FRAME} bytes, not {}", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(bytes.into())
}

/// The message that a frame is.
pub(crate) fn decode<T: DeserializeOwned>(frame: &[u8]) -> io::Result<T> {
    let what = || format!("{} bytes that are no message of version {VERSION}", frame.len());
    match postcard::take_from_bytes(frame) {
        Ok((message, [])) => Ok(message),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, what())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_what_they_were() {
        let way = Way { passed_on: true, within_ms: 20 };
        let call = Call { number: 3, request: Request::Read { key: "k".into(), way } };
        let bytes = encode(&call).unwrap();
        let read: Call = decode(&bytes).unwrap();
        assert!(
            matches!(read.request, Request::Read { key, way: read } if key == "k" && read == way)
        );
        let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert!(decode::<Call>(&longer).is_err(), "trailing bytes");
    }

    proptest! {
        #[test]
        fn bad_bytes_are_an_error_and_never_a_panic(bytes: Vec<u8>) {
            let _ = decode::<Hello>(&bytes);
            let _ = decode::<Call>(&bytes);
            let _ = decode::<Return>(&bytes);
        }
    }
}
