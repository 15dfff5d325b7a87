//! What is asked of the leader by way of any member, as the handle and the driver see it.
//!
//! The machines send requests and answers ([`LeaderRequest`]). Here is who waits for an answer, and who carries out
//! what another member has asked for: a task of the leader's, with the same commands as its own handle, bound to the term.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use mandate_proto::election::NoTransfer;
use mandate_proto::identity::Term;
use mandate_proto::pole::installation::{NoChange, RosterId};
use mandate_proto::pole::member::{ANSWERED_WITHIN, LeaderAnswer, LeaderRequest, LeaderRequestId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::election::{ChangeError, Election};
use crate::ends::Command;

/// Why what the leader was asked for was not done, or may have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaderRequestError {
    /// Nothing was done: whom to ask is not known.
    #[error("this member knows of no leader; try again when there is one")]
    NoLeader,
    /// Nothing was done: the leader is of an older release, or is held back by its configuration.
    #[error(
        "the leader is of a release that takes no requests of other members, or is held back by `protocol` in its configuration: \
         ask its own daemon"
    )]
    TooOld,
    /// Nothing was done: the leader that was asked leads no more, or in another term.
    #[error(
        "the leader that was asked leads no more in that term; look who leads now, and ask again"
    )]
    NotInTerm,
    /// Nothing was done: too many requests are under way.
    #[error("too many requests to the leader are under way; try again")]
    Busy,
    /// Leadership was not handed over.
    #[error(transparent)]
    NoTransfer(#[from] NoTransfer),
    /// The members were not changed, or may have been: its kind says which.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// It may have been done.
    #[error("no answer came from the leader in time: it is not known whether it was done")]
    Unknown,
    /// Nothing was done: members of this engine do not ask each other for anything.
    #[error("this engine has no messages to a leader; ask the leader itself")]
    Unsupported,
}

impl LeaderRequestError {
    /// Whether what was asked for may have been done.
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            LeaderRequestError::Unknown
                | LeaderRequestError::Change(ChangeError::LeadershipLost | ChangeError::Stopped)
        )
    }
}

/// What an answer comes to: the number of the list, if the members were changed.
fn outcome(answer: LeaderAnswer) -> Result<Option<RosterId>, LeaderRequestError> {
    match answer {
        LeaderAnswer::Done => Ok(None),
        LeaderAnswer::Changed(list) => Ok(Some(list)),
        LeaderAnswer::NotInTerm => Err(LeaderRequestError::NotInTerm),
        LeaderAnswer::Busy => Err(LeaderRequestError::Busy),
        LeaderAnswer::NoTransfer(reason) => Err(reason.into()),
        LeaderAnswer::NoChange(reason) => Err(ChangeError::Refused(reason).into()),
        LeaderAnswer::Unknown => Err(LeaderRequestError::Unknown),
        LeaderAnswer::NoLeader => Err(LeaderRequestError::NoLeader),
        LeaderAnswer::TooOld => Err(LeaderRequestError::TooOld),
    }
}

/// Who waits for an answer; an error says why none comes.
pub(crate) type Done = oneshot::Sender<Result<LeaderAnswer, LeaderRequestError>>;

/// Who waits for answers.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    waiting: BTreeMap<u64, Done>,
    number: u64,
}

impl Asked {
    /// The number of a request whose answer goes there.
    pub(crate) fn begin(&mut self, done: Done) -> u64 {
        self.waiting.retain(|_, waiting| !waiting.is_closed());
        self.number += 1;
        self.waiting.insert(self.number, done);
        self.number
    }

    /// Nobody will answer.
    pub(crate) fn refuse(&mut self, number: u64) {
        if let Some(done) = self.waiting.remove(&number) {
            let _ = done.send(Err(LeaderRequestError::Unsupported));
        }
    }

    pub(crate) fn answered(&mut self, number: u64, answer: LeaderAnswer) {
        if let Some(done) = self.waiting.remove(&number) {
            let _ = done.send(Ok(answer));
        }
    }
}

/// What a machine tells of requests.
#[derive(Clone, Debug)]
pub(crate) enum RequestEvent {
    /// This member, which leads, is asked.
    Asked(Wanted),
    /// This member has an answer.
    Answered { number: u64, answer: LeaderAnswer },
}

/// What a member asks of this one, which leads.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) id: LeaderRequestId,
    pub(crate) term: Term,
    pub(crate) request: LeaderRequest,
}

/// Awaited before leadership is given up because it was asked for; what it returns is dropped after that.
pub(crate) type Gate =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Box<dyn Send>> + Send>> + Send + Sync>;

/// The one that the application has set up, if it has.
#[derive(Clone, Default)]
pub(crate) struct GateCell(Arc<OnceLock<Gate>>);

impl std::fmt::Debug for GateCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GateCell").field(&self.0.get().is_some()).finish()
    }
}

/// Carries out what members ask of this one, until it ends. How many at a time, the machine bounds.
pub(crate) async fn serve(
    mut wanted: mpsc::Receiver<Wanted>,
    commands: mpsc::WeakSender<Command>,
    gate: GateCell,
) {
    while let Some(one) = wanted.recv().await {
        let (commands, gate) = (commands.clone(), gate.clone());
        tokio::spawn(async move {
            let Wanted { id, term, request } = one;
            let answer = carry_out((term, request), &commands, &gate).await;
            if let Some(commands) = commands.upgrade() {
                let _ = commands.send(Command::Answer { id, answer }).await;
            }
        });
    }
}

async fn carry_out(
    (term, request): (Term, LeaderRequest),
    commands: &mpsc::WeakSender<Command>,
    gate: &GateCell,
) -> LeaderAnswer {
    let of = Some(term);
    match request {
        LeaderRequest::Resign => {
            let _open = gate.opened().await;
            match ordered(commands, |done| Command::ResignFrom { term, done }).await {
                Some(()) => LeaderAnswer::Done,
                None => LeaderAnswer::Unknown,
            }
        }
        LeaderRequest::Transfer { to } => {
            let _open = gate.opened().await;
            match ordered(commands, |done| Command::Transfer { to, of, done }).await {
                Some(Ok(())) => LeaderAnswer::Done,
                Some(Err(NoTransfer::NotLeading)) => LeaderAnswer::NotInTerm,
                Some(Err(reason)) => LeaderAnswer::NoTransfer(reason),
                None => LeaderAnswer::Unknown,
            }
        }
        LeaderRequest::Change(change) => {
            match ordered(commands, |done| Command::Change { change, of, done }).await {
                Some(Ok(list)) => LeaderAnswer::Changed(list.id()),
                Some(Err(ChangeError::Refused(NoChange::NotLeading))) => LeaderAnswer::NotInTerm,
                Some(Err(ChangeError::Refused(reason))) => LeaderAnswer::NoChange(reason),
                Some(Err(_)) | None => LeaderAnswer::Unknown,
            }
        }
    }
}

/// Gives a command and waits for what came of it; `None` if the member has ended.
async fn ordered<T>(
    commands: &mpsc::WeakSender<Command>,
    command: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Option<T> {
    let (done, told) = oneshot::channel();
    let commands = commands.upgrade()?;
    commands.send(command(done)).await.ok()?;
    // It does not keep the member running.
    drop(commands);
    told.await.ok()
}

impl GateCell {
    async fn opened(&self) -> Option<Box<dyn Send>> {
        match self.0.get() {
            Some(gate) => Some(gate().await),
            None => None,
        }
    }
}

/// Carries out what is asked of this member by a way that its engine has for it, such as a row of a database. It does not keep the member
/// running.
#[derive(Clone, Debug)]
pub struct LeaderRequestServer {
    commands: mpsc::WeakSender<Command>,
    gate: GateCell,
}

impl LeaderRequestServer {
    /// Does that in this term or not at all, once the application's [gate](Election::set_gate) is open.
    pub async fn serve(
        &self,
        term: Term,
        request: LeaderRequest,
    ) -> Result<Option<RosterId>, LeaderRequestError> {
        outcome(carry_out((term, request), &self.commands, &self.gate).await)
    }
}

impl Election {
    /// What carries out requests that reach this member by a way of its engine's own.
    pub fn request_server(&self) -> LeaderRequestServer {
        let (commands, gate) = (self.end.commands.downgrade(), self.end.gate.clone());
        LeaderRequestServer { commands, gate }
    }

    /// Asks the leader for something, whichever member that is: this one sends it on to the leader that it follows. It is carried out in
    /// that leader's present term or not at all, however late it arrives. Returns the number of the new list if the members were
    /// changed; a quorum has it on disk then. Answered within 13 s; if no answer comes by then, it may have been done all the same
    /// ([`LeaderRequestError::Unknown`]).
    pub async fn request(
        &self,
        request: LeaderRequest,
    ) -> Result<Option<RosterId>, LeaderRequestError> {
        let (done, told) = oneshot::channel();
        let answered = async {
            self.end.commands.send(Command::Ask { request, done }).await.ok()?;
            told.await.ok()
        };
        // A driver that waits for its disk hears of no answer.
        let patience = ANSWERED_WITHIN + std::time::Duration::from_secs(1);
        match timeout(patience, answered).await {
            Ok(Some(Ok(answer))) => outcome(answer),
            Ok(Some(Err(error))) => Err(error),
            Ok(None) | Err(_) => Err(LeaderRequestError::Unknown),
        }
    }

    /// From now on `gate` is awaited whenever leadership is to be given up because a member [asked](Election::request) for it; what it
    /// returns is dropped once that is done. For an application that lets others act on its mandate and ends that first. Set once; it should
    /// take no longer than 10 s, and must not own a handle of this member.
    pub fn set_gate<F>(&self, gate: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let gate: Gate = Arc::new(move || {
            let opened = gate();
            Box::pin(async move { Box::new(opened.await) as Box<dyn Send> })
        });
        let _ = self.end.gate.0.set(gate);
    }
}
