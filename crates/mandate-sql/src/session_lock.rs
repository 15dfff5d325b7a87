//! Locks whose end tells that a process died.
//!
//! The process of a leader holds a lock, in a session of its own, whose number it writes into the control row.
//! Successors wait for that lock. They get it the moment the server notices that the session is gone, which for a
//! process that was killed is at once. That is a hint and no more: terms keep it safe under `Fenced`, and under
//! `Leased` the lease is waited out all the same.
//!
//! The number is drawn at random for each session, so that no one else's locks are in the way, and a lock that was
//! lost is not taken for the one that follows it. Where a pooler answers there are no such locks: a session that is lent
//! to others has locks that are others', too.
//!
//! Locks are of one server. On a standby the leader's lock would seem free, and a healthy leader would be deposed: a server
//! that may only be read is refused, and the next attempt may find the primary.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::dbms::HeldLock;
use crate::url::Address;

/// Between attempts to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// So many leaders are waited for at once: a process that succeeds many relies on leases for the rest.
const MAX_WAITS: usize = 4;

/// The locks of a process.
#[derive(Debug)]
pub(crate) struct SessionLock {
    address: Address,
    /// The lock that this process holds, once it wants one.
    held: Mutex<Option<Holding>>,
    waits: Arc<Mutex<HashMap<i64, watch::Receiver<bool>>>>,
}

#[derive(Debug)]
struct Holding {
    number: watch::Receiver<Option<i64>>,
    task: tokio::task::AbortHandle,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SessionLock {
    pub(crate) fn new(address: Address) -> Self {
        SessionLock { address, held: Mutex::new(None), waits: Arc::default() }
    }

    /// Takes a lock, soon.
    pub(crate) fn hold(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get_or_insert_with(|| {
            let (tell, number) = watch::channel(None);
            let task = tokio::spawn(keep(self.address.clone(), tell)).abort_handle();
            Holding { number, task }
        });
    }

    /// The number of the lock that this process holds, if it does.
    pub(crate) fn held(&self) -> Option<i64> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().and_then(|holding| *holding.number.borrow())
    }

    /// Lets it go: no member of this process leads, or comes next.
    pub(crate) fn release(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Becomes true when the lock with this number is free; `None` if too many are waited for already.
    pub(crate) fn wait(&self, number: i64) -> Option<watch::Receiver<bool>> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that ended, or that nobody but this table waits for, make room: their tasks see it, too.
        waits.retain(|_, waiting| waiting.has_changed().is_ok());
        if let Some(waiting) = waits.get(&number) {
            return Some(waiting.clone());
        }
        if waits.len() >= MAX_WAITS {
            return None;
        }
        let (tell, waiting) = watch::channel(false);
        waits.insert(number, waiting.clone());
        let (address, waits) = (self.address.clone(), self.waits.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = until_free(&address, number) => {
                    tell.send_replace(true);
                }
                // One receiver is the table's own.
                () = until_unwanted(&tell) => {}
            }
            let mut waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
            waits.remove(&number);
        });
        Some(waiting)
    }
}

async fn until_unwanted(tell: &watch::Sender<bool>) {
    while tell.receiver_count() > 1 {
        sleep(PAUSE).await;
    }
}

/// Holds a lock, and another one when its session ends.
async fn keep(address: Address, tell: watch::Sender<Option<i64>>) {
    loop {
        match take(&address).await {
            Ok((number, held)) => {
                tell.send_replace(Some(number));
                held.await;
                tell.send_replace(None);
            }
            Err(reason) => {
                tracing::debug!(reason, "no lock that would tell of this process's death")
            }
        }
        sleep(PAUSE).await;
    }
}

/// Takes a lock with a number of its own.
async fn take(address: &Address) -> Result<(i64, HeldLock), String> {
    let number = getrandom::u64().map_err(|error| error.to_string())?;
    let number = (number >> 1) as i64;
    Ok((number, address.dbms().take_lock(number).await?))
}

/// Waits until the lock with this number is free, over as many connections as that takes.
async fn until_free(address: &Address, number: i64) {
    while let Err(reason) = address.dbms().await_lock(number).await {
        tracing::debug!(reason, "could not wait for the end of the leader's session");
        sleep(PAUSE).await;
    }
}
