//! Leadership that somebody asks this host to give up, by way of another member or of the database: its command ends first.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// A transfer is begun at once; writes to a slow disk or database may go before it.
const DONE_WITHIN: Duration = Duration::from_secs(5);

/// Whether leadership is wanted back, and whether a command acts on it.
#[derive(Clone)]
pub(crate) struct Recall {
    /// How many wait for the command to end.
    wanted: Arc<watch::Sender<usize>>,
    acting: Arc<watch::Sender<bool>>,
}

/// Until it is dropped, no command is started.
pub(crate) struct Recalled(Arc<watch::Sender<usize>>);

impl Drop for Recalled {
    fn drop(&mut self) {
        self.0.send_modify(|wanted| *wanted -= 1);
    }
}

/// While it is there, a command acts.
pub(crate) struct Acting(Arc<watch::Sender<bool>>);

impl Drop for Acting {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

impl Recall {
    pub(crate) fn new() -> Self {
        Recall {
            wanted: Arc::new(watch::Sender::new(0)),
            acting: Arc::new(watch::Sender::new(false)),
        }
    }

    /// How many want leadership back, to watch.
    pub(crate) fn wanted(&self) -> watch::Receiver<usize> {
        self.wanted.subscribe()
    }

    /// A command is begun, unless leadership is wanted back.
    pub(crate) fn begin(&self) -> Option<Acting> {
        self.acting.send_replace(true);
        let acting = Acting(self.acting.clone());
        // Looked at after it is said: a request that comes from now on waits for the command.
        (*self.wanted.borrow() == 0).then_some(acting)
    }

    /// Waits until nobody wants leadership back any more, for a while: a successor that was named takes over from who still runs.
    pub(crate) async fn done(&self) {
        let _ = timeout(DONE_WITHIN, self.wanted().wait_for(|wanted| *wanted == 0)).await;
    }

    /// Has the command end; returns when none acts any more.
    pub(crate) async fn recall(self) -> Recalled {
        self.wanted.send_modify(|wanted| *wanted += 1);
        let recalled = Recalled(self.wanted.clone());
        // An error says that the sender is gone, and this is one.
        let _ = self.acting.subscribe().wait_for(|acting| !acting).await;
        recalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_ends_before_leadership_does_and_none_begins_meanwhile() {
        let recall = Recall::new();
        let acting = recall.begin().unwrap();
        let waits = tokio::spawn(recall.clone().recall());
        recall.wanted().wait_for(|wanted| *wanted == 1).await.unwrap();
        assert!(!waits.is_finished());
        drop(acting);
        let recalled = waits.await.unwrap();
        assert!(recall.begin().is_none());
        assert!(!*recall.acting.borrow(), "what was not begun does not act");
        drop(recalled);
        assert!(recall.begin().is_some());
    }
}
