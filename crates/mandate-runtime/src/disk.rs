//! How the writes of a member's state go, for those who monitor the member.
//!
//! A member that cannot write says nothing to the others, so from outside it looks like one that is down. Its
//! daemon can still be asked: what is counted here is read without the driver, which may be waiting.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A write that takes longer delays an election noticeably: two of them in a row are as long as a usual lease.
pub const SLOW: Duration = Duration::from_millis(500);

/// How often slow writes are logged.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What became of the writes since the start.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DiskHealth {
    /// Writes that are on disk.
    pub writes: u64,
    /// Attempts that the system refused. A write is attempted until it succeeds.
    pub failures: u64,
    /// Writes that took longer than [`SLOW`], failed attempts included.
    pub slow: u64,
    /// What all writes that are on disk took together.
    pub spent: Duration,
    /// What the slowest of them took.
    pub longest: Duration,
    /// How long the write has taken so far that the member waits for; `None` if it waits for none.
    pub waiting: Option<Duration>,
    /// Why the last attempt of that write failed, if it did.
    pub error: Option<String>,
}

impl DiskHealth {
    /// What is wrong now, for people: the write that is waited for fails, or takes too long.
    pub fn trouble(&self) -> Option<String> {
        match (&self.error, self.waiting) {
            (Some(error), _) => Some(format!("the state cannot be written: {error}")),
            (None, Some(waiting)) if waiting > SLOW => {
                let ms = waiting.as_millis();
                Some(format!(
                    "a write of the state has taken {ms} ms so far: is the disk overloaded?"
                ))
            }
            _ => None,
        }
    }
}

/// Counts. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    health: DiskHealth,
    since: Option<Instant>,
    warned: Option<Instant>,
}

impl Disk {
    /// A write begins.
    pub(crate) fn begin(&self) {
        self.counted().since = Some(Instant::now());
    }

    /// An attempt was refused.
    pub(crate) fn failed(&self, error: String) {
        let mut counted = self.counted();
        counted.health.failures += 1;
        counted.health.error = Some(error);
    }

    /// The write is on disk.
    pub(crate) fn done(&self) {
        let mut counted = self.counted();
        let took = counted.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        let health = &mut counted.health;
        health.writes += 1;
        health.spent += took;
        health.longest = health.longest.max(took);
        health.error = None;
        if took > SLOW {
            health.slow += 1;
            if counted.warned.is_none_or(|when| when.elapsed() >= WARN_EVERY) {
                counted.warned = Some(Instant::now());
                tracing::warn!(
                    ?took,
                    "a write of the state was slow, and elections wait for such writes: \
                     move the state to a disk that is less busy"
                );
            }
        }
    }

    pub(crate) fn health(&self) -> DiskHealth {
        let counted = self.counted();
        let waiting = counted.since.map(|since| since.elapsed());
        DiskHealth { waiting, ..counted.health.clone() }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_is_trouble_until_it_succeeds() {
        let disk = Disk::default();
        assert_eq!(disk.health().trouble(), None);
        disk.begin();
        disk.failed("No space left on device".into());
        let health = disk.health();
        assert_eq!((health.writes, health.failures), (0, 1));
        assert!(health.waiting.is_some());
        assert!(health.trouble().unwrap().contains("No space left"));
        disk.done();
        let health = disk.health();
        assert_eq!((health.writes, health.failures, health.waiting), (1, 1, None));
        assert_eq!(health.trouble(), None);
    }

    #[test]
    fn a_write_that_takes_too_long_is_trouble_while_it_lasts() {
        let waiting = |waiting| DiskHealth { waiting: Some(waiting), ..DiskHealth::default() };
        assert_eq!(waiting(SLOW).trouble(), None);
        assert!(waiting(SLOW * 2).trouble().unwrap().contains("1000 ms"));
    }
}
