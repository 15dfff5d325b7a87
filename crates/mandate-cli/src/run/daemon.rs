//! Leadership as the local daemon has it.
//!
//! The wrapper *holds* the daemon's mandate for a while at a time (see `node::mandate_api`), and counts that
//! while from before it asked. So it needs to trust no clock but the one that both share, and no answer to
//! be quick: a daemon that hangs, is stopped or is killed does not renew, and the guard ends the command in
//! time. A second question waits at the daemon for a change, so that the command starts and ends at once
//! when leadership does.
//!
//! A hold names the role. One process at a time holds a role; another that wants the same waits until the first
//! has let go. Different roles do not disturb each other: leadership is given back with the last.

use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use mandate::Value;
use mandate_proto::identity::Term;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::{sleep, timeout};

use super::guard_protocol::{Until, boottime};
use super::permit::{Permit, look_every};
use crate::client::{ApiArgs, DaemonClient};
use crate::node::mandate_api::{HoldDocument, HoldRequest, MandateDocument, Resign};

/// The longest wait for the first answer, and for one while nothing is held.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two attempts to reach a daemon that does not answer.
const PAUSE: Duration = Duration::from_millis(200);

/// Longer than the daemon lets a question wait for a change.
const CHANGE: Duration = Duration::from_secs(15);

/// How long a daemon may take to hear that it is let go of: if it does not, its promise ends by itself.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);

/// The daemon gives its mandate up as soon as nobody holds it.
const GONE: u16 = 410;

/// The daemon, and under which name this process holds its mandate.
pub(crate) struct Daemon {
    client: DaemonClient,
    holder: String,
    role: String,
    /// Why it is not held, as the daemon said last.
    refused: StdMutex<Option<String>>,
    /// Whether this process still wants to hold it. Locked while it asks, so that no question overtakes that it
    /// has let go.
    wanted: Mutex<bool>,
}

impl Daemon {
    /// Asks whether it is there. The role is what will be held.
    pub(crate) async fn connect(
        args: &ApiArgs,
        role: &str,
    ) -> anyhow::Result<(Arc<Self>, MandateDocument)> {
        let daemon = Arc::new(Daemon {
            client: DaemonClient::new(args)?,
            // Two containers may each know their wrapper as process 1.
            holder: format!(
                "run-{}-{:08x}",
                std::process::id(),
                getrandom::u32().unwrap_or_default()
            ),
            role: role.to_owned(),
            refused: StdMutex::default(),
            wanted: Mutex::new(true),
        });
        let first = daemon.ask(PATIENCE, "GET", "/mandate", "").await;
        let first = first.map_err(|error| match error.downcast() {
            Ok(error) => daemon.client.unreached(error),
            Err(error) => error,
        })?;
        let first = first.map_err(|(_, reason)| anyhow::anyhow!("the daemon refuses: {reason}"))?;
        Ok((daemon, first))
    }

    /// Tells what the daemon lets this process hold, as long as somebody listens.
    pub(crate) async fn follow(
        self: Arc<Self>,
        first: MandateDocument,
        standing: watch::Sender<Permit>,
    ) {
        let changed = Arc::new(Notify::new());
        let waiting = tokio::spawn(self.clone().wait_for_changes(first, changed.clone()));
        // Whether it was said that it does not answer, since it is tried again and again.
        let mut is_silent = false;
        while !standing.is_closed() {
            let wanted = self.wanted.lock().await;
            if !*wanted {
                break;
            }
            let pause = match self.hold(self.patience(&standing)).await {
                Ok(Ok((now, of))) => {
                    standing.send_replace(now);
                    is_silent = false;
                    self.note(None);
                    look_every(of)
                }
                Ok(Err((code, reason))) => {
                    let ending = Permit::Ending { by: None };
                    let now = if code == GONE { ending } else { Permit::Waiting };
                    standing.send_if_modified(|before| std::mem::replace(before, now) != now);
                    is_silent = false;
                    self.note(Some(reason.trim_end().to_owned()));
                    CHANGE
                }
                Err(error) => {
                    // What was promised holds, and ends by itself.
                    if !is_silent {
                        tracing::warn!("the daemon does not answer: {error:#}. Trying again");
                        is_silent = true;
                    }
                    PAUSE
                }
            };
            drop(wanted);
            let _ = timeout(pause, changed.notified()).await;
        }
        waiting.abort();
    }

    fn note(&self, refused: Option<String>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    /// Why it is not held, as the daemon said last.
    pub(crate) fn why_not(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Holds the mandate, or holds it on: what that means, and how long a hold lasts at most.
    async fn hold(
        self: &Arc<Self>,
        patience: Duration,
    ) -> anyhow::Result<Result<(Permit, Duration), (u16, String)>> {
        // Counted from before the question: the answer may be late, the promise is not longer for it.
        let asked = boottime();
        let path = format!("/mandate/holders/{}", self.holder);
        let request = HoldRequest { role: Some(self.role.clone()) };
        let body = serde_json::to_string(&request)?;
        let answer = self.ask::<HoldDocument>(patience, "PUT", &path, &body).await?;
        Ok(answer.map(|hold| {
            let time = |ms: f64| Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default();
            let (at, of) = (asked + time(hold.hold_ms), time(hold.of_ms));
            let term = Term::new(hold.term);
            (Permit::Leading { term, until: Until::At { at, of } }, of)
        }))
    }

    /// How long an answer may take: while something is held, not so long that one late answer costs it.
    fn patience(&self, standing: &watch::Sender<Permit>) -> Duration {
        match *standing.borrow() {
            Permit::Leading { until: Until::At { of, .. }, .. } => of / 4,
            _ => PATIENCE,
        }
    }

    async fn wait_for_changes(self: Arc<Self>, first: MandateDocument, changed: Arc<Notify>) {
        let mut seen = first.version;
        loop {
            let path = format!("/mandate?changed_from={seen}");
            match self.ask::<MandateDocument>(CHANGE, "GET", &path, "").await {
                Ok(Ok(document)) if document.version == seen => {}
                Ok(Ok(document)) => {
                    seen = document.version;
                    changed.notify_one();
                }
                _ => {
                    changed.notify_one();
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Lets go of the mandate: nothing acts on it any more. If for good, this process does not ask for it again.
    pub(crate) async fn let_go(self: &Arc<Self>, for_good: bool) {
        let mut wanted = self.wanted.lock().await;
        *wanted = !for_good;
        let path = format!("/mandate/holders/{}", self.holder);
        if let Err(error) = self.send(FAREWELL, "DELETE", &path, "").await {
            tracing::warn!("the daemon could not be told that the command has ended: {error:#}");
        }
    }

    /// Lets go for good, and has the daemon give this term up if nobody else holds it: one step, so that nobody takes
    /// the role over under the same term in between.
    pub(crate) async fn resign(self: &Arc<Self>, term: Term) {
        *self.wanted.lock().await = false;
        let request = Resign { term: Some(term.get()), holder: Some(self.holder.clone()) };
        let body = serde_json::to_string(&request).unwrap_or_default();
        match self.send(PATIENCE, "POST", "/resign", &body).await {
            Ok((200..300, _)) => {}
            Ok((_, reason)) => tracing::info!("leadership stays: {}", reason.trim_end()),
            Err(error) => tracing::warn!("leadership could not be given back: {error:#}"),
        }
    }

    /// Has the daemon publish a value with this term. The command runs also without.
    pub(crate) async fn publish(self: &Arc<Self>, term: Term, value: &Value) {
        let path = format!("/value?term={term}");
        match self.send(PATIENCE, "PUT", &path, value.as_str()).await {
            Ok((200..300, _)) => {}
            Ok((_, reason)) => tracing::warn!("the value is not published: {}", reason.trim_end()),
            Err(error) => tracing::warn!("the value could not be published: {error:#}"),
        }
    }

    /// An answer, or the code and reason with which the daemon refuses one.
    async fn ask<T: DeserializeOwned>(
        self: &Arc<Self>,
        patience: Duration,
        method: &'static str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<Result<T, (u16, String)>> {
        let (code, text) = self.send(patience, method, path, body).await?;
        if !(200..300).contains(&code) {
            return Ok(Err((code, text)));
        }
        serde_json::from_str(&text).map(Ok).context("the answer is not that of a mandate daemon")
    }

    /// The code and text of an answer.
    async fn send(
        self: &Arc<Self>,
        patience: Duration,
        method: &'static str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<(u16, String)> {
        let (daemon, path, body) = (self.clone(), format!("/v1{path}"), body.to_owned());
        tokio::task::spawn_blocking(move || daemon.client.exchange(patience, method, &path, body))
            .await?
    }
}
