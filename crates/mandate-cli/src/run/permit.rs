//! Whether this host leads, as a wrapper needs to know it: from a member of its own, or from a daemon.

use std::time::Duration;

use mandate::{Election, ElectionState, Mandate};
use mandate_proto::identity::Term;
use tokio::sync::watch;
use tokio::time::timeout;

use super::guard_protocol::{Until, boottime};

/// Whether the command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// It may not.
    Waiting,
    /// It may, in this term, until then.
    Leading { term: Term, until: Until },
    /// It may until the time that was last told, or this one if it is sooner, and is to end before: then leadership moves.
    Ending { by: Option<Duration> },
}

impl Permit {
    /// The mandate, if it can be begun with: enough of it is left.
    pub(crate) fn fresh(self) -> Option<(Term, Until)> {
        match self {
            Permit::Leading { term, until } => {
                let is_fresh = until.ask_at().is_none_or(|at| boottime() < at);
                is_fresh.then_some((term, until))
            }
            Permit::Waiting | Permit::Ending { .. } => None,
        }
    }
}

/// How often a lease of this length is looked at: several times between two renewals.
pub(crate) fn look_every(lease: Duration) -> Duration {
    (lease / 12).clamp(Duration::from_millis(5), Duration::from_millis(250))
}

/// Tells what a member of this process holds, as long as somebody listens and the member runs. While leadership is `wanted` back, what
/// was begun is to end.
pub(crate) async fn of_member(
    election: Election,
    lease: Option<Duration>,
    mut wanted: watch::Receiver<usize>,
    standing: watch::Sender<Permit>,
) {
    let mut states = election.state();
    let pause = look_every(lease.unwrap_or(Duration::MAX));
    let mut last: Option<Mandate> = None;
    loop {
        let state = states.borrow_and_update().clone();
        if matches!(state, ElectionState::Stopped) || standing.is_closed() {
            return;
        }
        if let Some(mandate) = state.mandate() {
            last = Some(mandate.clone());
        }
        let now = last.as_ref().map_or(Permit::Waiting, |mandate| held(mandate, lease));
        let now = match now {
            Permit::Leading { .. } if *wanted.borrow_and_update() > 0 => {
                Permit::Ending { by: None }
            }
            now => now,
        };
        standing.send_if_modified(|before| std::mem::replace(before, now) != now);
        let changed = async {
            tokio::select! {
                changed = states.changed() => changed,
                changed = wanted.changed() => changed,
            }
        };
        if let Ok(Err(_)) = timeout(pause, changed).await {
            return;
        }
    }
}

fn held(mandate: &Mandate, lease: Option<Duration>) -> Permit {
    // Read before what remains, so that the deadline is not counted from later than it was measured.
    let now = boottime();
    match (mandate.remaining(), lease) {
        // The caller that wants it back may wait for what was begun under it.
        (Some(Duration::ZERO), _) => match mandate.drains_for() {
            Some(left) => {
                let until = Until::At { at: now + left, of: lease.unwrap_or(left) };
                Permit::Ending { by: until.kill_at() }
            }
            None => Permit::Waiting,
        },
        (Some(left), Some(of)) => {
            Permit::Leading { term: mandate.term(), until: Until::At { at: now + left, of } }
        }
        _ => Permit::Leading { term: mandate.term(), until: Until::Unbounded },
    }
}
