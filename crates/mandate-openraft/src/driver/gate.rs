//! Where writes wait while leadership moves.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout;

/// Every write passes here before it is given to Raft. Open, it costs nothing that can be measured; closed, writes
/// wait. The task that closes it first waits until the writes that have passed are done: what Raft has begun when its
/// leader stands aside would otherwise have an unknown outcome.
///
/// It is a lock that writes share; a task that asks for it alone goes before those that come later.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    lock: Arc<RwLock<()>>,
}

/// Shows that the gate was passed; to be kept until the write is done.
#[must_use = "the gate counts a write as done when this is dropped"]
#[derive(Debug)]
pub struct Pass {
    _shared: OwnedRwLockReadGuard<()>,
}

/// Keeps the gate closed.
#[derive(Debug)]
pub(crate) struct Closed {
    _alone: OwnedRwLockWriteGuard<()>,
}

impl Gate {
    /// Waits until the gate is open: at most as long as the driver holds writes.
    pub async fn enter(&self) -> Pass {
        Pass { _shared: self.lock.clone().read_owned().await }
    }

    /// Closes it; `None`, and open, if what has passed is not done in time.
    pub(crate) async fn close(&self, within: Duration) -> Option<Closed> {
        let alone = timeout(within, self.lock.clone().write_owned()).await.ok()?;
        Some(Closed { _alone: alone })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn writes_wait_while_it_is_closed_and_it_waits_for_writes() {
        let gate = Gate::default();
        let pass = gate.enter().await;
        assert!(gate.close(Duration::from_millis(5)).await.is_none(), "a write is under way");
        let _another = gate.enter().await;
        drop((pass, _another));
        let closed = gate.close(Duration::from_secs(5)).await.unwrap();
        assert!(timeout(Duration::from_millis(5), gate.enter()).await.is_err());
        drop(closed);
        let _open = gate.enter().await;
    }
}
