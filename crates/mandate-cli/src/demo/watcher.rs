//! Asks a member how it is, again and again, and tells it what the demo has its clients do.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client::DaemonClient;
use crate::node::document::StatusDocument;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(300);

/// What the oracle is told of a member.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figures {
    /// The position of its log.
    pub(super) history: u64,
    /// Requests a second that clients send to it.
    pub(super) requests: f64,
}

impl Figures {
    /// What everyone begins with.
    pub(super) const FIRST: Figures = Figures { history: 1000, requests: 100.0 };
}

/// A member, as a thread of its own sees it: it may not answer for long.
pub(super) struct Watcher {
    shared: Arc<Shared>,
}

struct Shared {
    wanted: Mutex<Figures>,
    status: Mutex<Option<StatusDocument>>,
}

impl Watcher {
    pub(super) fn start(api: SocketAddr) -> Self {
        let shared =
            Arc::new(Shared { wanted: Mutex::new(Figures::FIRST), status: Mutex::default() });
        let weak = Arc::downgrade(&shared);
        thread::spawn(move || {
            let client = DaemonClient::on_loopback(api);
            // The incarnation of the member that was told, and what.
            let mut told = None;
            while let Some(shared) = weak.upgrade() {
                let status: Option<StatusDocument> = client.get("/v1/status").ok();
                let wanted = *shared.wanted.lock().unwrap_or_else(PoisonError::into_inner);
                // A member that was restarted has forgotten.
                let due = status.as_ref().map(|status| (status.started_ms, wanted));
                if due.is_some() && due != told && client.put("/v1/score", &wanted).is_ok() {
                    told = due;
                }
                *shared.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
                drop(shared);
                thread::sleep(PAUSE);
            }
        });
        Watcher { shared }
    }

    pub(super) fn figures(&self) -> Figures {
        *self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_figures(&self, figures: Figures) {
        *self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    /// What it said last; `None` if it does not answer.
    pub(super) fn status(&self) -> Option<StatusDocument> {
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
