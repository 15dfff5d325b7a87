//! Gives mandates back, and can do nothing else.
//!
//! For whatever leads on behalf of an application and must be able to stop: it does not keep the member running, so an
//! application that drops its last [`Election`] handle still ends it.

use tokio::sync::{mpsc, oneshot};

use crate::election::Election;
use crate::ends::Command;
use crate::mandate::Mandate;

/// Gives mandates of one member back.
#[derive(Clone, Debug)]
pub struct Resigner {
    commands: mpsc::WeakSender<Command>,
}

impl Resigner {
    /// Gives up that reign, and no later one. When this returns, the mandate does not hold any more, or the member has
    /// ended.
    pub async fn give_back(&self, mandate: &Mandate) {
        let Some(commands) = self.commands.upgrade() else { return };
        let (done, told) = oneshot::channel();
        let of = Some(mandate.clone());
        let _ = commands.send(Command::Resign { of, done: Some(done) }).await;
        drop(commands);
        let _ = told.await;
    }
}

impl Election {
    /// One that gives this member's mandates back, and does not keep the member running.
    pub fn resigner(&self) -> Resigner {
        Resigner { commands: self.end.commands.downgrade() }
    }
}
