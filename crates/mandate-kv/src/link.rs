//! A connection to a member, kept: made when it is first needed, and again after it broke.
//!
//! There is one for each pair, direction of asking and [`Lane`]. Calls are sent in the order in which they were made, and
//! a connection that breaks fails what was under way on it, so that nothing is sent twice. Order is kept within a
//! connection: what was sent last on one that broke may still be read while the next one is used. Raft, the driver
//! and clients' numbers all allow for that.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use mandate_peer::links::StreamTls;
use mandate_proto::identity::MemberId;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::room::{Replies, Room};
use super::wire::{self, Call, Hello, Lane, Reply, Request, Return};

/// How many calls may wait to be sent; a caller with more waits itself.
const QUEUE: usize = 64;

/// How many calls may be under way to one member; a caller with more waits.
const UNDER_WAY: usize = 1024;

/// A connection on which nothing has come for so long, although something is waited for, is given up: a cut that
/// lasted would otherwise leave it to TCP's own patience, which is minutes.
const SILENCE: Duration = Duration::from_secs(5);

/// How long making a connection may take, TLS included.
const CONNECT: Duration = Duration::from_secs(2);

/// After a connection could not be made, none is tried for this long: callers get the error at once.
const PAUSE: Duration = Duration::from_millis(20);

/// What came of a call.
#[derive(Debug)]
pub(crate) enum Came {
    /// An answer, and the room that a value in it takes.
    Reply(Reply, Option<Room>),
    /// A value for which there was no room. It was dropped.
    NoRoom,
}

/// Where a call's answer goes.
type Answered = oneshot::Sender<io::Result<Came>>;

/// A call that waits to be sent.
struct Asked {
    request: Request,
    answered: Answered,
    /// Room for a value that may come.
    room: Option<Room>,
}

/// A call that was sent.
struct UnderWay {
    answered: Answered,
    room: Option<Room>,
}

/// What comes of a question that was sent. If it fails, whether the question has been acted upon is not known.
pub(crate) type Answer = Pin<Box<dyn Future<Output = io::Result<Reply>> + Send>>;

/// Which service, and who one is there.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// Its name, which certificates carry.
    pub(crate) name: Arc<str>,
    pub(crate) tls: StreamTls,
}

/// Who is called, and how.
struct Callee {
    address: Arc<str>,
    tls: StreamTls,
    member: MemberId,
    hello: Hello,
}

/// A way to ask a member. Cheap to clone; the connection ends with the last of them.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    calls: mpsc::Sender<Asked>,
    under_way: Arc<Semaphore>,
}

impl Link {
    /// A link to member `to`, which is at `address`.
    pub(crate) fn new(address: Arc<str>, tls: &Service, to: MemberId, lane: Lane) -> Self {
        Link::with_room(address, tls, to, lane, None)
    }

    /// A link that takes values only as far as there is room for them, if that is bounded.
    pub(crate) fn with_room(
        address: Arc<str>,
        tls: &Service,
        to: MemberId,
        lane: Lane,
        replies: Option<Replies>,
    ) -> Self {
        let (calls, waiting) = mpsc::channel(QUEUE);
        let (version, service) = (wire::VERSION, tls.name.to_string());
        let hello = Hello { version, service, to: to.get().into(), lane };
        let callee = Callee { address, tls: tls.tls.clone(), member: to, hello };
        tokio::spawn(keep(callee, waiting, replies));
        Link { calls, under_way: Arc::new(Semaphore::new(UNDER_WAY)) }
    }

    /// Sends a question; what comes is its answer. Questions of one caller arrive in their order.
    pub(crate) async fn send(&self, request: Request) -> io::Result<Answer> {
        let answer = self.ask(request, None).await?;
        Ok(Box::pin(async move {
            match answer.await? {
                Came::Reply(reply, _) => Ok(reply),
                Came::NoRoom => Err(io::Error::other("there is no room for the value")),
            }
        }))
    }

    /// Sends a question that a value may be the answer to, with room reserved for it if there was none before.
    pub(crate) async fn ask(
        &self,
        request: Request,
        room: Option<Room>,
    ) -> io::Result<impl Future<Output = io::Result<Came>> + Send + use<>> {
        let place = self.under_way.clone().acquire_owned().await.map_err(|_| ended())?;
        let (answered, answer) = oneshot::channel();
        self.calls.send(Asked { request, answered, room }).await.map_err(|_| ended())?;
        Ok(async move {
            let _place = place;
            answer.await.map_err(|_| ended())?
        })
    }

    /// Asks. If this fails after the call was sent, whether it has been acted upon is not known.
    pub(crate) async fn call(&self, request: Request) -> io::Result<Reply> {
        self.send(request).await?.await
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection has ended")
}

async fn keep(callee: Callee, mut waiting: mpsc::Receiver<Asked>, replies: Option<Replies>) {
    let address = &callee.address;
    let mut failed: Option<(Instant, io::ErrorKind)> = None;
    while let Some(asked) = waiting.recv().await {
        if let Some((at, kind)) = failed
            && at.elapsed() < PAUSE
        {
            let _ = asked.answered.send(Err(kind.into()));
            continue;
        }
        match callee.connect().await {
            Ok(frames) => {
                failed = None;
                if let Err(error) = exchange(frames, asked, &mut waiting, replies.as_ref()).await {
                    tracing::debug!(%address, %error, "the connection broke");
                }
            }
            Err(error) => {
                tracing::debug!(%address, %error, "cannot connect");
                failed = Some((Instant::now(), error.kind()));
                let _ = asked.answered.send(Err(error));
            }
        }
    }
}

impl Callee {
    async fn connect(&self) -> io::Result<wire::Frames<TlsStream<TcpStream>>> {
        let making = async {
            let stream = TcpStream::connect(&*self.address).await?;
            stream.set_nodelay(true)?;
            let name = self.tls.name_of(self.member).map_err(io::Error::other)?;
            let stream = TlsConnector::from(self.tls.dials()).connect(name, stream).await?;
            let mut frames = wire::frames(stream);
            frames.send(wire::encode(&self.hello)?).await?;
            Ok(frames)
        };
        timeout(CONNECT, making).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// Sends calls and passes answers on, until the connection breaks. What was under way then fails, because its
/// answers can go nowhere. Neither waits for the other: two members that both waited to send would wait without end.
async fn exchange<T: AsyncRead + AsyncWrite>(
    frames: wire::Frames<T>,
    first: Asked,
    waiting: &mut mpsc::Receiver<Asked>,
    replies: Option<&Replies>,
) -> io::Result<()>
where
    wire::Frames<T>: Unpin,
{
    let (mut sink, mut stream) = frames.split();
    let under_way: Mutex<HashMap<u64, UnderWay>> = Mutex::default();
    let lock = || under_way.lock().unwrap_or_else(PoisonError::into_inner);
    let sending = async {
        let mut number = 0;
        let mut next = Some(first);
        while let Some(Asked { request, answered, room }) = next {
            number += 1;
            match wire::encode(&Call { number, request }) {
                Ok(frame) => {
                    note(&mut lock(), number, UnderWay { answered, room });
                    sink.feed(frame).await?;
                }
                Err(error) => drop(answered.send(Err(error))),
            }
            // What waits already goes into the same packet.
            next = waiting.try_recv().ok();
            if next.is_none() {
                sink.flush().await?;
                next = waiting.recv().await;
            }
        }
        Ok(())
    };
    let receiving = async {
        loop {
            let Ok(frame) = timeout(SILENCE, stream.next()).await else {
                lock().retain(|_, call| !call.answered.is_closed());
                if lock().is_empty() {
                    continue;
                }
                return Err(io::ErrorKind::TimedOut.into());
            };
            let Return { number, reply } = wire::decode(&frame.ok_or_else(ended)??)?;
            let call = lock().remove(&number);
            if let Some(UnderWay { answered, room }) = call {
                let _ = answered.send(Ok(take(reply, room, replies)));
            }
        }
    };
    tokio::select! {
        sent = sending => sent,
        received = receiving => received,
    }
}

fn note(under_way: &mut HashMap<u64, UnderWay>, number: u64, call: UnderWay) {
    // The caller may have given up since.
    if under_way.len() >= UNDER_WAY {
        under_way.retain(|_, call| !call.answered.is_closed());
    }
    under_way.insert(number, call);
}

/// Keeps an answer if there is room for it.
fn take(reply: Reply, reserved: Option<Room>, replies: Option<&Replies>) -> Came {
    match (&reply, replies) {
        (Reply::Value(Some(value)), Some(replies)) => {
            match replies.try_take(value.len(), reserved) {
                Some(room) => Came::Reply(reply, Some(room)),
                None => Came::NoRoom,
            }
        }
        _ => Came::Reply(reply, None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::Way;
    use super::*;

    const MEGABYTE: usize = 1 << 20;

    fn read() -> Request {
        Request::Read { key: "k".into(), way: Way { passed_on: true, within_ms: 1000 } }
    }

    /// The caller has not looked at its answer yet, or waits for its own client to take it.
    #[tokio::test]
    async fn values_are_taken_as_far_as_there_is_room() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let replies = Replies::new(3 * MEGABYTE);
        let (calls, mut waiting) = mpsc::channel(QUEUE);
        let link = Link { calls, under_way: Arc::new(Semaphore::new(UNDER_WAY)) };
        let room = replies.clone();
        tokio::spawn(async move {
            let first = waiting.recv().await.unwrap();
            exchange(wire::frames(ours), first, &mut waiting, Some(&room)).await
        });
        tokio::spawn(async move {
            let mut frames = wire::frames(theirs);
            while let Some(Ok(frame)) = frames.next().await {
                let Call { number, .. } = wire::decode(&frame).unwrap();
                let reply = Reply::Value(Some(vec![7; MEGABYTE].into()));
                frames.send(wire::encode(&Return { number, reply }).unwrap()).await.unwrap();
            }
        });
        let mut answers = Vec::new();
        for _ in 0..8 {
            answers.push(link.ask(read(), None).await.unwrap());
        }
        let came: Vec<_> = futures_util::future::join_all(answers).await;
        let taken = came.iter().filter(|it| matches!(it, Ok(Came::Reply(_, Some(_))))).count();
        let dropped = came.iter().filter(|it| matches!(it, Ok(Came::NoRoom))).count();
        assert_eq!((taken, dropped, replies.free()), (3, 5, 0));
        drop(came);
        assert_eq!(replies.free(), 3 * MEGABYTE);
        // Who has reserved room gets the value, whatever the others do.
        let reserved = replies.reserve().await;
        let _others = replies.take(2 * MEGABYTE).await;
        let came = link.ask(read(), reserved).await.unwrap().await.unwrap();
        assert!(matches!(came, Came::Reply(Reply::Value(Some(_)), Some(_))), "{came:?}");
    }
}
