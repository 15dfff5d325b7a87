//! Room for values on their way to clients, counted in bytes.
//!
//! A value takes room from before this member has it until it was sent: when it is read from the state, or received from
//! the leader for a client that asked a follower. Answers that were merely asked for take none.
//!
//! A follower does not know how long a value is that it asks the leader for. It asks without reserving anything; if there
//! is no room when the value comes, it drops the value and asks again, with room for the longest value reserved. Rejected:
//! to wait for room before reading further from the leader, because a client that takes no answers would then hold up
//! everybody whose answers come over the same connection; and to reserve for every read, because that lets 64 be under way,
//! whatever they read.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::types::MAX_VALUE;

/// Bytes of values that are on their way to clients, to all of them. Then further answers wait.
pub(crate) const REPLIES: usize = 64 << 20;

/// Room that is taken until this is dropped.
pub(crate) type Room = OwnedSemaphorePermit;

/// Room for values, shared by all connections of a member.
#[derive(Clone, Debug)]
pub(crate) struct Replies(Arc<Semaphore>);

impl Default for Replies {
    fn default() -> Self {
        Replies::new(REPLIES)
    }
}

impl Replies {
    pub(crate) fn new(bytes: usize) -> Self {
        Replies(Arc::new(Semaphore::new(bytes)))
    }

    /// Room for a value of this length, if there is any now. `reserved` is used if there is some.
    pub(crate) fn try_take(&self, length: usize, reserved: Option<Room>) -> Option<Room> {
        match reserved {
            Some(mut reserved) if reserved.num_permits() > length => reserved.split(length),
            Some(reserved) if reserved.num_permits() == length => Some(reserved),
            _ => self.0.clone().try_acquire_many_owned(permits(length)).ok(),
        }
    }

    /// Waits for room for a value of this length. `None` only if that is more than there ever is.
    pub(crate) async fn take(&self, length: usize) -> Option<Room> {
        if length > REPLIES {
            return None;
        }
        self.0.clone().acquire_many_owned(permits(length)).await.ok()
    }

    /// Waits for room for any value.
    pub(crate) async fn reserve(&self) -> Option<Room> {
        self.take(MAX_VALUE).await
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.0.available_permits()
    }
}

fn permits(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
