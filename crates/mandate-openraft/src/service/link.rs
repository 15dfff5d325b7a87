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
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::wire::{self, Call, Hello, Lane, Reply, Request, Return};

/// Calls that wait to be sent; then whoever has more waits.
const QUEUE: usize = 64;

/// Calls under way to one member; then whoever has more waits.
const UNDER_WAY: usize = 1024;

/// A connection on which nothing has come for so long, although something is waited for, is given up: a cut that
/// lasted would otherwise leave it to TCP's own patience, which is minutes.
const SILENCE: Duration = Duration::from_secs(5);

/// How long making a connection may take, TLS included.
const CONNECT: Duration = Duration::from_secs(2);

/// How long after a connection could not be made none is tried: whoever asks is told at once instead.
const PAUSE: Duration = Duration::from_millis(20);

/// Where a call's answer goes.
type Answered = oneshot::Sender<io::Result<Reply>>;

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
    calls: mpsc::Sender<(Request, Answered)>,
    under_way: Arc<Semaphore>,
}

impl Link {
    /// A link to member `to`, which is at `address`.
    pub(crate) fn new(address: Arc<str>, tls: &Service, to: MemberId, lane: Lane) -> Self {
        let (calls, waiting) = mpsc::channel(QUEUE);
        let (version, service) = (wire::VERSION, tls.name.to_string());
        let hello = Hello { version, service, to: to.get().into(), lane };
        tokio::spawn(keep(Callee { address, tls: tls.tls.clone(), member: to, hello }, waiting));
        Link { calls, under_way: Arc::new(Semaphore::new(UNDER_WAY)) }
    }

    /// Sends a question; what comes is its answer. Questions of one caller arrive in their order.
    pub(crate) async fn send(&self, request: Request) -> io::Result<Answer> {
        let place = self.under_way.clone().acquire_owned().await.map_err(|_| ended())?;
        let (answered, answer) = oneshot::channel();
        self.calls.send((request, answered)).await.map_err(|_| ended())?;
        Ok(Box::pin(async move {
            let _place = place;
            answer.await.map_err(|_| ended())?
        }))
    }

    /// Asks. If this fails after the call was sent, whether it has been acted upon is not known.
    pub(crate) async fn call(&self, request: Request) -> io::Result<Reply> {
        self.send(request).await?.await
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection has ended")
}

async fn keep(callee: Callee, mut waiting: mpsc::Receiver<(Request, Answered)>) {
    let address = &callee.address;
    let mut failed: Option<(Instant, io::ErrorKind)> = None;
    while let Some((request, answered)) = waiting.recv().await {
        if let Some((at, kind)) = failed
            && at.elapsed() < PAUSE
        {
            let _ = answered.send(Err(kind.into()));
            continue;
        }
        match callee.connect().await {
            Ok(frames) => {
                failed = None;
                if let Err(error) = exchange(frames, (request, answered), &mut waiting).await {
                    tracing::debug!(%address, %error, "the connection broke");
                }
            }
            Err(error) => {
                tracing::debug!(%address, %error, "cannot connect");
                failed = Some((Instant::now(), error.kind()));
                let _ = answered.send(Err(error));
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
/// answers can go nowhere. Neither waits for the other: two members that both waited to send would wait for ever.
async fn exchange(
    frames: wire::Frames<TlsStream<TcpStream>>,
    first: (Request, Answered),
    waiting: &mut mpsc::Receiver<(Request, Answered)>,
) -> io::Result<()> {
    let (mut sink, mut stream) = frames.split();
    let under_way: Mutex<HashMap<u64, Answered>> = Mutex::default();
    let lock = || under_way.lock().unwrap_or_else(PoisonError::into_inner);
    let sending = async {
        let mut number = 0;
        let mut next = Some(first);
        while let Some((request, answered)) = next {
            number += 1;
            match wire::encode(&Call { number, request }) {
                Ok(frame) => {
                    note(&mut lock(), number, answered);
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
                lock().retain(|_, answered| !answered.is_closed());
                if lock().is_empty() {
                    continue;
                }
                return Err(io::ErrorKind::TimedOut.into());
            };
            let Return { number, reply } = wire::decode(&frame.ok_or_else(ended)??)?;
            let answered = lock().remove(&number);
            if let Some(answered) = answered {
                let _ = answered.send(Ok(reply));
            }
        }
    };
    tokio::select! {
        sent = sending => sent,
        received = receiving => received,
    }
}

fn note(under_way: &mut HashMap<u64, Answered>, number: u64, answered: Answered) {
    // Whoever asked may have given up since.
    if under_way.len() >= UNDER_WAY {
        under_way.retain(|_, answered| !answered.is_closed());
    }
    under_way.insert(number, answered);
}
