//! One connection, kept: connected again after pauses when it breaks, and given up when it is silent.
//!
//! A statement is carried out on the connection that is there when it is asked for, or not at all: what waits for
//! a connection would be carried out when nobody wants it any more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, broadcast, watch};
use tokio::time::sleep;

use crate::batch::{Batch, Done};
use crate::error::Trouble;
use crate::session::Session;
use crate::url::Address;

/// Pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often an operator is told that there is still no connection.
const REMIND: Duration = Duration::from_secs(30);

/// One connection, kept. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Line {
    shared: Arc<Shared>,
    keeper: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    address: Address,
    patience: Duration,
    heard: broadcast::Sender<String>,
    session: watch::Sender<Option<Arc<Session>>>,
    /// Why there is none.
    reason: Mutex<String>,
    /// The connection is to be dropped.
    hang_up: Notify,
    listens: watch::Sender<bool>,
    /// Answers that came, to anyone.
    answers: AtomicU64,
}

impl Line {
    pub(crate) fn open(
        address: &Address,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> Self {
        let shared = Arc::new(Shared {
            address: address.clone(),
            patience,
            heard,
            session: watch::Sender::new(None),
            reason: Mutex::new("not connected yet".into()),
            hang_up: Notify::new(),
            listens: watch::Sender::new(false),
            answers: AtomicU64::new(0),
        });
        let keeper = tokio::spawn(keep(shared.clone()));
        Line { shared, keeper }
    }

    /// Waits until there is a connection, or says why there is none after this time.
    pub(crate) async fn connected(&self, patience: Duration) -> Result<Arc<Session>, String> {
        let mut session = self.shared.session.subscribe();
        let there = session.wait_for(Option::is_some);
        match tokio::time::timeout(patience, there).await {
            Ok(Ok(session)) => Ok(session.clone().expect("it was waited for")),
            _ => Err(self.shared.reason()),
        }
    }

    /// The connection, if there is one.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.shared.session.borrow().clone()
    }

    /// Carries a batch out, now or not at all.
    pub(crate) async fn run(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        let Some(session) = self.session() else {
            return Err(Trouble::refused(self.shared.reason()));
        };
        let done = session.run(batch).await;
        self.shared.answers.fetch_add(1, Ordering::Relaxed);
        if let Err(trouble) = &done
            && trouble.broken
        {
            self.shared.drop_session(&session, &trouble.reason);
        }
        done
    }

    /// How many answers have come.
    pub(crate) fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Relaxed)
    }

    /// Something that was sent when so many answers had come is waited for no more. If nothing was answered
    /// since, nothing will be: the connection is dropped.
    pub(crate) fn gave_up(&self, answers: u64) {
        if self.answers() == answers
            && let Some(session) = self.session()
        {
            self.shared.drop_session(&session, "it does not answer");
        }
    }

    /// Hears of changes from now on, or no more.
    pub(crate) fn listen(&self, listen: bool) {
        self.shared.listens.send_if_modified(|listens| {
            let changes = *listens != listen;
            *listens = listen;
            changes
        });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.keeper.abort();
        self.shared.session.send_replace(None);
    }
}

impl Shared {
    fn reason(&self) -> String {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_reason(&self, reason: &str) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason.to_owned();
    }

    /// Drops that connection, and no later one.
    fn drop_session(&self, session: &Arc<Session>, reason: &str) {
        let is_it = self.session.send_if_modified(|current| {
            let is_it = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session));
            if is_it {
                *current = None;
            }
            is_it
        });
        if is_it {
            self.set_reason(reason);
            self.hang_up.notify_one();
        }
    }
}

async fn keep(shared: Arc<Shared>) {
    let mut pause = FIRST_PAUSE;
    let mut lost: Option<Lost> = None;
    loop {
        let opened = Session::open(&shared.address, shared.patience, shared.heard.clone()).await;
        match opened {
            Ok(session) => {
                if let Some(lost) = lost.take() {
                    tracing::info!(address = %shared.address, after = ?lost.since.elapsed(), "connected again");
                }
                let since = Instant::now();
                serve(&shared, Arc::new(session)).await;
                lost = Some(Lost { since: Instant::now(), said: None });
                // One that breaks at once is no better than none.
                if since.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
            }
            Err(reason) => shared.set_reason(&reason),
        }
        let lost = lost.get_or_insert(Lost { since: Instant::now(), said: None });
        lost.say(&shared.address, &shared.reason());
        sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Between a half and the whole, so that a thousand members do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let chance = getrandom::u32().unwrap_or_default();
    pause / 2 + (pause / 2).mul_f64(f64::from(chance) / f64::from(u32::MAX))
}

/// Hands the connection out until it has ended.
async fn serve(shared: &Shared, session: Arc<Session>) {
    let mut listens = shared.listens.subscribe();
    if *listens.borrow_and_update() {
        let _ = session.listen(true).await;
    }
    shared.session.send_replace(Some(session.clone()));
    loop {
        tokio::select! {
            () = session.ended() => {
                shared.drop_session(&session, "the connection broke");
                // What it left behind is not for the next one.
                shared.hang_up.notified().await;
                return;
            }
            () = shared.hang_up.notified() => return,
            Ok(()) = listens.changed() => {
                let listen = *listens.borrow_and_update();
                let _ = session.listen(listen).await;
            }
        }
    }
}

/// There is no connection.
struct Lost {
    since: Instant,
    said: Option<(Instant, String)>,
}

impl Lost {
    /// Tells the operator: at once, when the reason changes, and now and then.
    fn say(&mut self, address: &Address, reason: &str) {
        let is_news =
            self.said.as_ref().is_none_or(|(when, said)| when.elapsed() > REMIND || said != reason);
        if is_news {
            tracing::warn!(%address, reason, "no connection to the database; trying again");
            self.said = Some((Instant::now(), reason.to_owned()));
        }
    }
}
