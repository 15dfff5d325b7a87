//! One connection, kept: connected again after pauses when it breaks, and given up when it is silent.
//!
//! A statement is carried out on the connection that is there when it is asked for, or not at all: what waits for
//! a connection would be carried out when nobody wants it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, broadcast, watch};
use tokio::time::sleep;

use crate::batch::{Batch, Done};
use crate::error::{NoConnection, Trouble};
use crate::reminder::Reminder;
use crate::session::Session;
use crate::url::Address;

/// A pause between attempts to connect is an eighth of the time that there has been no connection, within these bounds:
/// an outage lasts an eighth longer at most, and a thousand members do not keep a server busy that is starting.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const PAUSE_SHARE: u32 = 8;

/// A connection that lasts for less is no better than none: a standby takes it and refuses the first write.
const STEADY: Duration = Duration::from_secs(5);

/// The least and the most that a statement outside the protocol may take before it is given up.
const SHORTEST_BOUND: Duration = Duration::from_secs(5);
const LONGEST_BOUND: Duration = Duration::from_secs(60);

/// One connection, kept. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Reconnecting {
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
    failure: watch::Sender<Option<NoConnection>>,
    /// The connection is to be dropped.
    hang_up: Notify,
    listens: watch::Sender<bool>,
    /// Answers that came, to anyone.
    answers: AtomicU64,
}

impl Reconnecting {
    pub(crate) fn open(
        address: &Address,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> Self {
        Reconnecting::over(None, address, patience, heard)
    }

    /// The same over a connection that is there already.
    pub(crate) fn over(
        first: Option<Session>,
        address: &Address,
        patience: Duration,
        heard: broadcast::Sender<String>,
    ) -> Self {
        let shared = Arc::new(Shared {
            address: address.clone(),
            patience,
            heard,
            session: watch::Sender::new(None),
            failure: watch::Sender::new(None),
            hang_up: Notify::new(),
            listens: watch::Sender::new(false),
            answers: AtomicU64::new(0),
        });
        let keeper = tokio::spawn(keep(first, shared.clone()));
        Reconnecting { shared, keeper }
    }

    /// Waits until there is a connection. Says why there is none after this time, and no sooner than an attempt has failed;
    /// or as soon as one has failed for a reason that does not pass by itself.
    pub(crate) async fn connected(&self, patience: Duration) -> Result<(), NoConnection> {
        let mut session = self.shared.session.subscribe();
        let mut failure = self.shared.failure.subscribe();
        let mut failed = self.shared.failure.subscribe();
        let there = async { session.wait_for(Option::is_some).await.map(drop) };
        let hopeless = async {
            failure
                .wait_for(|failure| failure.as_ref().is_some_and(|it| it.is_final))
                .await
                .map(drop)
        };
        // An attempt ends by itself, if only after the last of several hosts.
        let given_up = async {
            sleep(patience).await;
            failed.wait_for(Option::is_some).await.map(drop)
        };
        tokio::select! {
            Ok(()) = there => Ok(()),
            Ok(()) = hopeless => Err(self.shared.failure()),
            Ok(()) = given_up => Err(self.shared.failure()),
            else => Err(self.shared.failure()),
        }
    }

    /// The connection, if there is one.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.shared.session.borrow().clone()
    }

    /// Carries a batch out, now or not at all.
    pub(crate) async fn run(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        let Some(session) = self.session() else {
            return Err(Trouble::refused(self.shared.failure().reason));
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

    /// The same for a caller that waits for nothing else meanwhile: given up after a while, and the connection with it.
    pub(crate) async fn run_bounded(&self, batch: Batch) -> Result<Vec<Done>, Trouble> {
        let answers = self.answers();
        let bound = bound(self.shared.patience);
        tokio::time::timeout(bound, self.run(batch)).await.unwrap_or_else(|_| {
            self.gave_up(answers);
            Err(Trouble::lost(format!("no answer within {bound:?}")))
        })
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

impl Drop for Reconnecting {
    fn drop(&mut self) {
        self.keeper.abort();
        self.shared.session.send_replace(None);
    }
}

impl Shared {
    /// Why there is no connection.
    fn failure(&self) -> NoConnection {
        let failure = self.failure.borrow().clone();
        failure.unwrap_or_else(|| NoConnection::passing("no answer yet"))
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
            self.failure.send_replace(Some(NoConnection::passing(reason)));
            self.hang_up.notify_one();
        }
    }
}

async fn keep(mut first: Option<Session>, shared: Arc<Shared>) {
    let mut outage = Outage::begin();
    loop {
        let opened = match first.take() {
            Some(session) => Ok(session),
            None => Session::open(&shared.address, shared.patience, shared.heard.clone()).await,
        };
        match opened {
            Ok(session) => {
                outage.say_over(&shared.address);
                let since = Instant::now();
                serve(&shared, Arc::new(session)).await;
                if since.elapsed() > STEADY {
                    outage = Outage::begin();
                }
            }
            Err(failure) => {
                shared.failure.send_replace(Some(failure));
            }
        }
        outage.say(&shared.address, &shared.failure().reason);
        sleep(jittered(pause(outage.began.elapsed()))).await;
    }
}

/// How long a statement outside the protocol may take.
fn bound(patience: Duration) -> Duration {
    (patience * 2).clamp(SHORTEST_BOUND, LONGEST_BOUND)
}

/// How long to wait before the next attempt when there has been no connection for so long.
fn pause(outage: Duration) -> Duration {
    (outage / PAUSE_SHARE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
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
        listen(shared, &session, true).await;
    }
    shared.failure.send_replace(None);
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
                let wanted = *listens.borrow_and_update();
                listen(shared, &session, wanted).await;
            }
        }
    }
}

/// Asks for notifications, or for none. Who does not answer that answers nothing else, either.
async fn listen(shared: &Shared, session: &Arc<Session>, wanted: bool) {
    let bound = bound(shared.patience);
    match tokio::time::timeout(bound, session.listen(wanted)).await {
        // Notifications are for speed alone: a member that hears none sees changes at its next look.
        Ok(_) => {}
        Err(_) => shared.drop_session(session, "it does not answer"),
    }
}

/// There is no connection, or none that lasts.
struct Outage {
    began: Instant,
    reminder: Reminder,
    /// The operator knows of it.
    is_told: bool,
}

impl Outage {
    fn begin() -> Self {
        Outage { began: Instant::now(), reminder: Reminder::default(), is_told: false }
    }

    /// Tells the operator: each reason at once, and then now and then.
    fn say(&mut self, address: &Address, reason: &str) {
        if self.reminder.is_due(reason) {
            tracing::warn!(%address, reason, "no connection to the database; trying again");
            self.is_told = true;
        }
    }

    /// There is a connection again.
    fn say_over(&mut self, address: &Address) {
        if std::mem::take(&mut self.is_told) {
            tracing::info!(%address, after = ?self.began.elapsed(), "connected again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_outage_and_are_bounded() {
        let pauses = [0, 1, 8, 30, 3600].map(|seconds| pause(Duration::from_secs(seconds)));
        let expected = [50, 125, 1000, 3750, 5000].map(Duration::from_millis);
        assert_eq!(pauses, expected);
        for _ in 0..1000 {
            let drawn = jittered(LONGEST_PAUSE);
            assert!(LONGEST_PAUSE / 2 <= drawn && drawn <= LONGEST_PAUSE, "{drawn:?}");
        }
    }
}
