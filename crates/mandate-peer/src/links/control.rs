//! What the two sides of a link say to each other about the link itself, on the stream of their greetings.
//!
//! A watch that breaks says that a process may have died. It may also have been reset by something on the way, while
//! the QUIC connection is well: an idle TCP connection is what load balancers and firewalls forget first. So a
//! broken watch is a hint. The link stays up; this side asks the other whether it is there, and ends the link only if no
//! answer comes. If one comes, a new watch is opened beside the living link.
//!
//! A process that was killed should be replaced sooner than that. What tells the two apart: where a process is gone, nobody
//! listens any more, and its kernel refuses a connection at once; where a watch was reset on the way, the other side listens
//! on. So this side *knocks*: it opens a TCP connection to where the member listens, and closes it. If that is refused, the
//! consumer is told ([`LinkEvent::Deserted`]), and has reason to hurry. Whoever could never be reached there (behind an
//! address translation, or with a wrong address) would seem to be gone; so only doors count that have opened before.
//!
//! | word | from | meaning |
//! | --- | --- | --- |
//! | `Ask` | dialler | give me a number for a watch. The first word of a dialler: it has accepted the greeting |
//! | `Number` | acceptor | show this number over TCP |
//! | `Watched` | acceptor | the number was shown, and the watch stands |
//! | `Unwatched` | acceptor | the watch broke at my side: say that you are there, and open another |
//! | `Probe`, `Alive` | both | are you there; yes |
//! | `Twin` | both | another process shows your id, and was refused |
//!
//! Rejected: to close the link when its watch breaks, and to dial again. That took longer than a probe, so that every
//! reset deposed a leader that was well. And to have the consumer probe whenever a watch breaks: a leader that is busy for some
//! milliseconds, or waits for its disk, does not answer in time.

use std::future::{Future, pending};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use quinn::{Connection, ReadError, ReadExactError, RecvStream, SendStream};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::backoff::Backoff;
use super::event::LinkEvent;
use super::failure::{Failure, Refusal};
use super::limits::{
    PROBE_ROUND_TRIPS, PROBE_TIMEOUT, SETTLED_AFTER, WATCH_AGAIN, WATCH_TIMEOUT, WORDS,
};
use super::link::End;
use super::nonce::{Issued, NONCE_BYTES, Nonce};
use super::shared::Shared;
use super::sockets::canonical;
use super::watch::{self, Broke};

/// Something said about the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Watched,
    Ask,
    Number(Nonce),
    Probe,
    Alive,
    Unwatched,
    Twin,
}

impl Word {
    /// A byte, and for a number its bytes.
    pub(crate) fn encode(self) -> Vec<u8> {
        match self {
            Word::Watched => vec![1],
            Word::Ask => vec![2],
            Word::Number(nonce) => [&[3], &nonce.as_bytes()[..]].concat(),
            Word::Probe => vec![4],
            Word::Alive => vec![5],
            Word::Unwatched => vec![6],
            Word::Twin => vec![7],
        }
    }

    /// Reads the next one; none once the other side has ended the stream.
    pub(crate) async fn read(stream: &mut RecvStream) -> Result<Option<Word>, Failure> {
        let mut byte = [0];
        if ended(stream.read_exact(&mut byte).await)? {
            return Ok(None);
        }
        Ok(Some(match byte[0] {
            1 => Word::Watched,
            2 => Word::Ask,
            3 => {
                let mut nonce = [0; NONCE_BYTES];
                if ended(stream.read_exact(&mut nonce).await)? {
                    return Ok(None);
                }
                Word::Number(Nonce::from_bytes(nonce))
            }
            4 => Word::Probe,
            5 => Word::Alive,
            6 => Word::Unwatched,
            7 => Word::Twin,
            _ => return Err(Refusal::UnknownWord.into()),
        }))
    }
}

fn ended(read: Result<(), ReadExactError>) -> Result<bool, Failure> {
    match read {
        Ok(()) => Ok(false),
        Err(ReadExactError::ReadError(ReadError::ConnectionLost(error))) => Err(error.into()),
        Err(_) => Ok(true),
    }
}

/// The stream of the greetings, for as long as the link lasts.
pub(crate) struct Control {
    pub(crate) sender: SendStream,
    pub(crate) receiver: RecvStream,
    /// Whether this side dialled: it opens the watches.
    pub(crate) dials: bool,
}

/// Somebody who wants to know whether the other side of a link is there: answered if it is, dropped if not.
pub(crate) type Challenge = oneshot::Sender<()>;

/// Attends to a link's watch and to questions about the link, until the link is to end.
pub(crate) async fn attend(
    shared: &Shared,
    (member, connection): (MemberId, &Connection),
    control: &mut Control,
    watch: &mut Option<TcpStream>,
    challenges: &mut mpsc::Receiver<Challenge>,
) -> End {
    let Control { sender, receiver, dials } = control;
    let (heard, words) = mpsc::channel(WORDS);
    let attendant = Attendant {
        shared,
        member,
        connection,
        sender,
        watch,
        dials: *dials,
        issued: None,
        opening: None,
        opened: None,
        ask_at: None,
        number_by: None,
        probe: None,
        challengers: Vec::new(),
        backoff: Backoff::new(),
        watched_since: None,
        is_told: false,
        door: None,
        knocking: None,
    };
    tokio::select! {
        failure = listen(receiver, heard) => End::Failed(failure),
        end = attendant.run(words, challenges) => end,
    }
}

async fn listen(stream: &mut RecvStream, heard: mpsc::Sender<Word>) -> Failure {
    loop {
        match Word::read(stream).await {
            Ok(Some(word)) => {
                let _ = heard.send(word).await;
            }
            // The connection goes on, without a watch if that breaks.
            Ok(None) => return pending().await,
            Err(failure) => return failure,
        }
    }
}

struct Attendant<'a> {
    shared: &'a Shared,
    member: MemberId,
    connection: &'a Connection,
    sender: &'a mut SendStream,
    watch: &'a mut Option<TcpStream>,
    dials: bool,
    /// The accepting side has given a number out.
    issued: Option<Issued>,
    /// The dialler opens a watch.
    opening: Option<Pin<Box<dyn Future<Output = Option<TcpStream>> + Send>>>,
    /// It is open, and the other side has not said yet that it has it.
    opened: Option<TcpStream>,
    /// When the dialler asks for a number.
    ask_at: Option<Instant>,
    /// Until when a number, and then the word that the watch stands, may come.
    number_by: Option<Instant>,
    probe: Option<Probe>,
    /// They wait for the next probe.
    challengers: Vec<Challenge>,
    backoff: Backoff,
    watched_since: Option<Instant>,
    /// That no watch can be opened.
    is_told: bool,
    /// Where the other side listens, once it has opened there.
    door: Option<SocketAddr>,
    knocking: Option<Knocking>,
}

/// A knock under way: where, and what comes of it.
type Knocking = Pin<Box<dyn Future<Output = (SocketAddr, Knocked)> + Send>>;

/// What came of a knock.
enum Knocked {
    /// Somebody listens.
    Opened,
    /// Nobody does.
    Refused,
    /// Nothing can be said.
    Unanswered,
}

/// A question whether the other side is there.
struct Probe {
    until: Instant,
    asked_by: Vec<Challenge>,
}

/// What happens next.
enum Step {
    Heard(Word),
    Broke(Broke),
    Shown(Option<TcpStream>),
    Opened(Option<TcpStream>),
    /// It broke before the other side had it.
    Unopened,
    NoAnswer,
    Ask,
    NoWatch,
    Challenged(Challenge),
    Knocked(SocketAddr, Knocked),
}

impl Attendant<'_> {
    async fn run(
        mut self,
        mut words: mpsc::Receiver<Word>,
        challenges: &mut mpsc::Receiver<Challenge>,
    ) -> End {
        if self.dials {
            // It was the first word, and the answer is under way.
            self.number_by = Some(Instant::now() + 2 * WATCH_TIMEOUT);
        } else {
            self.give_a_number().await;
        }
        loop {
            match self.next(&mut words, challenges).await {
                Step::Heard(word) => self.heard(word).await,
                Step::Broke(Broke::Spoke) => return End::Failed(Refusal::WatchSpoke.into()),
                Step::Broke(Broke::Ended) => {
                    // The other side ended both, and has said why over QUIC.
                    if let Some(reason) = self.connection.close_reason() {
                        return End::Failed(reason.into());
                    }
                    self.broke().await;
                }
                Step::Shown(stream) => {
                    self.issued = None;
                    if let Some(stream) = stream {
                        self.stands(stream);
                        self.say(Word::Watched).await;
                    }
                }
                Step::Opened(Some(stream)) => {
                    self.opening = None;
                    self.opened = Some(stream);
                }
                Step::Unopened => {
                    (self.opened, self.number_by) = (None, None);
                    self.watch_again();
                }
                Step::Opened(None) | Step::NoWatch => self.does_without(),
                Step::NoAnswer => return End::NoAnswer,
                Step::Knocked(door, knocked) => self.knocked(door, knocked).await,
                Step::Ask => self.ask().await,
                Step::Challenged(challenger) => match self.probe {
                    Some(_) => self.challengers.push(challenger),
                    None => self.probe(vec![challenger], Word::Probe).await,
                },
            }
        }
    }

    async fn next(
        &mut self,
        words: &mut mpsc::Receiver<Word>,
        challenges: &mut mpsc::Receiver<Challenge>,
    ) -> Step {
        let (issued, opening) = (self.issued.as_mut(), self.opening.as_mut());
        let shown = async {
            match issued {
                Some(issued) => (&mut issued.stream).await.ok(),
                None => pending().await,
            }
        };
        let knocking = self.knocking.as_mut();
        let knocked = async {
            match knocking {
                Some(knocking) => knocking.await,
                None => pending().await,
            }
        };
        let opened = async {
            match opening {
                Some(opening) => opening.await,
                None => pending().await,
            }
        };
        tokio::select! {
            Some(word) = words.recv() => Step::Heard(word),
            Some(challenger) = challenges.recv() => Step::Challenged(challenger),
            broke = watch::until_broken(self.watch.as_mut()) => Step::Broke(broke),
            stream = shown => Step::Shown(stream),
            stream = opened => Step::Opened(stream),
            (door, knocked) = knocked => Step::Knocked(door, knocked),
            _ = watch::until_broken(self.opened.as_mut()) => Step::Unopened,
            () = until(self.probe.as_ref().map(|probe| probe.until)) => Step::NoAnswer,
            () = until(self.ask_at) => Step::Ask,
            () = until(self.number_by) => Step::NoWatch,
        }
    }

    async fn heard(&mut self, word: Word) {
        match word {
            Word::Probe => self.say(Word::Alive).await,
            Word::Alive => self.is_alive().await,
            Word::Ask => self.give_a_number().await,
            Word::Number(nonce) => {
                let address = canonical(self.connection.remote_address());
                self.opening = Some(Box::pin(async move {
                    timeout(WATCH_TIMEOUT, watch::open(address, &nonce)).await.ok()?.ok()
                }));
            }
            Word::Watched => {
                if let Some(stream) = self.opened.take() {
                    self.stands(stream);
                }
            }
            Word::Unwatched => {
                self.say(Word::Alive).await;
                if self.watch.take().is_some() {
                    self.shared.set_watched(self.member, false);
                    self.watch_again();
                }
            }
            Word::Twin => self.shared.found_my_twin(self.member).await,
        }
    }

    fn stands(&mut self, stream: TcpStream) {
        *self.watch = Some(stream);
        self.shared.set_watched(self.member, true);
        self.watched_since = Some(Instant::now());
        self.number_by = None;
        self.is_told = false;
        tracing::debug!(member = %self.member, "the watch stands");
        let seen_at = canonical(self.connection.remote_address());
        if self.dials {
            self.opens(seen_at);
        } else if self.door.is_none()
            && let Some(port) = self.listens_on()
        {
            self.knock(SocketAddr::new(seen_at.ip(), port));
        }
    }

    fn opens(&mut self, door: SocketAddr) {
        self.door = Some(door);
        self.shared.set_reachable(self.member, true);
    }

    /// The port that the other side listens on, as configured.
    fn listens_on(&self) -> Option<u16> {
        self.shared.peers.get(self.member)?.addresses().first()?.rsplit_once(':')?.1.parse().ok()
    }

    /// Looks whether somebody listens there.
    fn knock(&mut self, door: SocketAddr) {
        self.knocking = Some(Box::pin(async move {
            let knocked = match timeout(WATCH_TIMEOUT, TcpStream::connect(door)).await {
                Ok(Ok(_)) => Knocked::Opened,
                Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Knocked::Refused,
                Ok(Err(_)) | Err(_) => Knocked::Unanswered,
            };
            (door, knocked)
        }));
    }

    async fn knocked(&mut self, door: SocketAddr, knocked: Knocked) {
        self.knocking = None;
        match knocked {
            Knocked::Opened => self.opens(door),
            Knocked::Refused if self.door == Some(door) => {
                tracing::info!(member = %self.member, "nobody listens where the member did");
                self.shared.tell(LinkEvent::Deserted { member: self.member }).await;
            }
            Knocked::Refused | Knocked::Unanswered => {}
        }
    }

    /// The watch broke: a hint, and no more.
    async fn broke(&mut self) {
        *self.watch = None;
        self.shared.set_watched(self.member, false);
        tracing::info!(
            member = %self.member,
            "the watch broke: asking over the link, which stays up, whether the member is there"
        );
        if let Some(door) = self.door {
            self.knock(door);
        }
        self.shared.tell(LinkEvent::WatchBroke { member: self.member }).await;
        let question = if self.dials { Word::Probe } else { Word::Unwatched };
        match self.probe {
            Some(_) => self.say(question).await,
            None => self.probe(Vec::new(), question).await,
        }
        if self.dials {
            self.watch_again();
        }
    }

    /// Asks for a number: at once if the last watch was a good one, else after a pause.
    fn watch_again(&mut self) {
        let lasted = self.watched_since.take().map(|since| since.elapsed());
        let pause = if lasted.is_some_and(|lasted| lasted >= SETTLED_AFTER) {
            self.backoff.reset();
            Duration::ZERO
        } else {
            self.backoff.pause(rand::random())
        };
        self.ask_at = Some(Instant::now() + pause);
    }

    async fn ask(&mut self) {
        self.ask_at = None;
        self.number_by = Some(Instant::now() + 2 * WATCH_TIMEOUT);
        self.say(Word::Ask).await;
    }

    /// No watch can be opened now. It is tried again, seldom.
    fn does_without(&mut self) {
        (self.opening, self.opened, self.number_by) = (None, None, None);
        self.ask_at = Some(Instant::now() + WATCH_AGAIN);
        if !std::mem::replace(&mut self.is_told, true) {
            let (member, address) = (self.member, canonical(self.connection.remote_address()));
            tracing::warn!(%member, %address, "no watch: TCP does not get through to the port that QUIC uses. \
                A crash of this member will be noticed by timeouts only; allow TCP there, too");
        }
    }

    async fn give_a_number(&mut self) {
        if !self.dials {
            let issued = self.shared.nonces.issue(std::time::Instant::now());
            let number = Word::Number(issued.nonce);
            self.issued = Some(issued);
            self.say(number).await;
        }
    }

    async fn probe(&mut self, asked_by: Vec<Challenge>, question: Word) {
        let patience = PROBE_TIMEOUT + self.connection.rtt() * PROBE_ROUND_TRIPS;
        self.probe = Some(Probe { until: Instant::now() + patience, asked_by });
        self.say(question).await;
    }

    async fn is_alive(&mut self) {
        let Some(Probe { asked_by, .. }) = self.probe.take() else { return };
        if !asked_by.is_empty() {
            for challenger in asked_by {
                let _ = challenger.send(());
            }
            self.say(Word::Twin).await;
        }
        // They came after this answer was asked for.
        let waiting = std::mem::take(&mut self.challengers);
        if !waiting.is_empty() {
            self.probe(waiting, Word::Probe).await;
        }
    }

    async fn say(&mut self, word: Word) {
        // If the connection is lost, whoever reads from it notices.
        let _ = self.sender.write_all(&word.encode()).await;
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => pending().await,
    }
}
