//! Where a member of an election sits: it tells here what becomes of it, and acts while it leads.
//!
//! What is told goes to standard output, a line each:
//!
//! | line | meaning |
//! | --- | --- |
//! | `joined M` | member M takes part |
//! | `act M AT` | M asked whether it leads, after the clock read AT (nanoseconds), and it did |
//! | `evicted M` | M was thrown out though it is alive |
//! | `lost M WHY` | M's connection or session ended; it comes back |
//! | `round MS` | how long rounds last, as a leader sees it |

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use mandate_conformance::history::now;
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// Between two acts: the resolution of what is measured.
const PACE: Duration = Duration::from_millis(1);

type Check = Box<dyn Fn() -> bool + Send>;

/// The members of this process that lead, or think so, and how each finds out.
#[derive(Default)]
pub(super) struct Leading {
    checks: Mutex<BTreeMap<u64, Check>>,
    changed: Condvar,
}

impl Leading {
    /// Acts for those who lead, on a thread of its own: an act waits for no election, nor an election for
    /// an act.
    pub(super) fn act(self: Arc<Self>) {
        thread::spawn(move || {
            loop {
                let checks = self.checks();
                let checks = self.changed.wait_while(checks, |checks| checks.is_empty());
                let checks = checks.unwrap_or_else(PoisonError::into_inner);
                checks.iter().for_each(|(member, check)| act(*member, check));
                drop(checks);
                thread::sleep(PACE);
            }
        });
    }

    fn checks(&self) -> MutexGuard<'_, BTreeMap<u64, Check>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn act(member: u64, leads: &Check) {
    // Read first: so an act proves that it led then or later.
    let at = now();
    if leads() {
        say(format_args!("act {member} {at}"));
    }
}

/// Tells the harness. If it is gone, the process will be soon.
pub(super) fn say(line: std::fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Where one member sits.
pub struct RivalMember {
    pub(super) member: u64,
    pub(super) leading: Arc<Leading>,
    pub(super) resign: Arc<Notify>,
    pub(super) entrance: Option<OwnedSemaphorePermit>,
}

impl RivalMember {
    /// Who it is.
    pub fn member(&self) -> u64 {
        self.member
    }

    /// It takes part. Until then it keeps others of its process from joining, all at once.
    pub fn joined(&mut self) {
        self.entrance = None;
        say(format_args!("joined {}", self.member));
    }

    /// It leads as long as this is so. Called again, the new condition replaces the old.
    pub fn lead(&self, check: impl Fn() -> bool + Send + 'static) {
        let check: Check = Box::new(check);
        act(self.member, &check);
        self.leading.checks().insert(self.member, check);
        self.leading.changed.notify_one();
    }

    /// It knows that it does not lead.
    pub fn follow(&self) {
        self.leading.checks().remove(&self.member);
    }

    /// It finds that it was taken for dead.
    pub fn evicted(&self) {
        say(format_args!("evicted {}", self.member));
    }

    /// Rounds last so long now.
    pub fn round(&self, length: Duration) {
        say(format_args!("round {}", length.as_millis()));
    }

    /// Waits until it is asked to hand over.
    pub async fn asked_to_resign(&self) {
        self.resign.notified().await;
    }
}
