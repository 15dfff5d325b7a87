//! What the tasks of all links have in common.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Instant;

use mandate_proto::identity::MemberId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::event::LinkEvent;
use super::hello::Hello;
use super::nonce::Nonces;
use super::reports::Reports;
use super::sockets::canonical;

/// What the tasks of all links have in common.
pub(crate) struct Shared {
    pub(crate) me: MemberId,
    pub(crate) hello: Hello,
    pub(crate) endpoint: quinn::Endpoint,
    pub(crate) client: quinn::ClientConfig,
    pub(crate) peers: BTreeMap<MemberId, Peer>,
    pub(crate) nonces: Nonces,
    pub(crate) events: mpsc::Sender<LinkEvent>,
    pub(crate) reports: Reports,
    pub(crate) counts: Counts,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// A configured peer, and its link if there is one.
pub(crate) struct Peer {
    /// `host:port`, resolved at each attempt.
    pub(crate) address: String,
    /// Held by the one link that is up, so that its `Broken` comes before the next one's `Up`.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Ends the newest link, or the one that waits for its turn.
    pub(crate) newest: Mutex<Option<CancellationToken>>,
    pub(crate) outgoing: RwLock<Option<Outgoing>>,
}

/// Where frames to a member go while its link is up.
pub(crate) struct Outgoing {
    pub(crate) connection: quinn::Connection,
    pub(crate) queue: mpsc::Sender<Vec<u8>>,
}

/// Frames that were dropped, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// To send, while there was no link.
    pub without_link: u64,
    /// To send on the stream, while its queue was full.
    pub queue_full: u64,
    /// To send, but longer than a frame may be.
    pub too_long: u64,
    /// Received as datagrams while the consumer did not take its events.
    pub not_taken: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) without_link: AtomicU64,
    pub(crate) queue_full: AtomicU64,
    pub(crate) too_long: AtomicU64,
    pub(crate) not_taken: AtomicU64,
}

impl Counts {
    pub(crate) fn raise(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Dropped {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Dropped {
            without_link: read(&self.without_link),
            queue_full: read(&self.queue_full),
            too_long: read(&self.too_long),
            not_taken: read(&self.not_taken),
        }
    }
}

impl Peer {
    pub(crate) fn new(address: String) -> Self {
        let (turn, newest, outgoing) = Default::default();
        Peer { address, turn, newest, outgoing }
    }

    pub(crate) fn set_outgoing(&self, outgoing: Option<Outgoing>) {
        *self.outgoing.write().unwrap_or_else(PoisonError::into_inner) = outgoing;
    }

    /// Makes a link the newest, and ends the one before it.
    pub(crate) fn supersede(&self, token: CancellationToken) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(older) = newest.replace(token) {
            older.cancel();
        }
    }
}

impl Shared {
    /// Tells the consumer, and waits for it if it is slow; but not when we are to stop.
    pub(crate) async fn tell(&self, event: LinkEvent) {
        tokio::select! {
            biased;
            // An error means that nobody listens any more, which is the consumer's choice.
            _ = self.events.send(event) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Tells of a refusal, unless it was told before.
    pub(crate) async fn refuse(
        &self,
        member: Option<MemberId>,
        address: SocketAddr,
        reason: String,
    ) {
        let address = canonical(address);
        if !self.reports.is_news(address, &reason, Instant::now()) {
            return;
        }
        match member {
            Some(member) => tracing::warn!(%member, %address, "no link: {reason}"),
            None => tracing::warn!(%address, "no link: {reason}"),
        }
        self.tell(LinkEvent::Refused { member, address, reason }).await;
    }
}
