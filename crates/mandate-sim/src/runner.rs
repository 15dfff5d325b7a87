//! Many seeds on all cores, and what came of them.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::verdict::{Outcome, Violation};

/// A seed that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedSeed {
    /// The seed: running it again gives the same failure.
    pub seed: u64,
    /// What went wrong.
    pub violation: Violation,
}

/// What came of many seeds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Those that failed, by seed.
    pub failures: Vec<FailedSeed>,
    /// Events simulated.
    pub events: u64,
    /// Messages sent.
    pub messages: u64,
    /// Time simulated.
    pub simulated: Duration,
    /// How often a member became leader.
    pub reigns: u64,
    /// The longest that any group took to agree, as a share of the bound.
    pub slowest_agreement: f64,
}

/// Runs every seed of `seeds` through `run` on `threads` threads, and stops early after
/// `max_failures`. `progress` is called from the calling thread, several times a second, with the
/// number of seeds done.
pub fn run_seeds(
    seeds: Range<u64>,
    threads: usize,
    max_failures: usize,
    run: impl Fn(u64) -> Outcome + Sync,
    mut progress: impl FnMut(u64),
) -> Summary {
    // Counted from 0, so that the last seeds of all do not wrap round to the first.
    let total = seeds.end.saturating_sub(seeds.start);
    let next = AtomicU64::new(0);
    let caller = thread::current();
    let done = AtomicU64::new(0);
    let enough = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    let work = || {
        let mut part = Summary::default();
        while !enough.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= total {
                break;
            }
            let seed = seeds.start + index;
            part.add(seed, run_caught(seed, &run));
            if part.failures.len() >= max_failures {
                enough.store(true, Ordering::Relaxed);
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        // Nothing panics while the lock is held: what might has been caught.
        summary.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).merge(part);
        caller.unpark();
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            progress(done.load(Ordering::Relaxed));
            thread::park_timeout(Duration::from_millis(50));
        }
    });
    progress(done.load(Ordering::Relaxed));
    let mut summary = summary.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    summary.failures.sort_by_key(|failure| failure.seed);
    summary.failures.truncate(max_failures);
    summary
}

/// Runs one seed; a panic is a violation like any other.
fn run_caught(seed: u64, run: impl Fn(u64) -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("unknown panic");
        Outcome {
            verdict: Err(Violation::Crash(text.to_owned())),
            events: 0,
            messages: 0,
            simulated: Duration::ZERO,
            reigns: 0,
            agreement: 0.0,
        }
    })
}

impl Summary {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        self.messages += outcome.messages;
        self.simulated += outcome.simulated;
        self.reigns += outcome.reigns;
        self.slowest_agreement = self.slowest_agreement.max(outcome.agreement);
        if let Err(violation) = outcome.verdict {
            self.failures.push(FailedSeed { seed, violation });
        }
    }

    fn merge(&mut self, other: Summary) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.messages += other.messages;
        self.simulated += other.simulated;
        self.reigns += other.reigns;
        self.slowest_agreement = self.slowest_agreement.max(other.slowest_agreement);
        self.failures.extend(other.failures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(verdict: Result<(), Violation>) -> Outcome {
        Outcome {
            verdict,
            events: 10,
            messages: 3,
            simulated: Duration::from_secs(1),
            reigns: 2,
            agreement: 0.5,
        }
    }

    #[test]
    fn every_seed_is_run_once_and_counted() {
        let summary = run_seeds(5..105, 2, 10, |_| outcome(Ok(())), |_| {});
        assert_eq!((summary.seeds, summary.events, summary.messages), (100, 1000, 300));
        assert_eq!(summary.failures, []);
    }

    #[test]
    fn the_very_last_seeds_end() {
        let summary = run_seeds(u64::MAX - 3..u64::MAX, 2, 10, |_| outcome(Ok(())), |_| {});
        assert_eq!(summary.seeds, 3);
    }

    #[test]
    fn a_panic_is_a_crash_of_that_seed_and_the_others_go_on() {
        let run = |seed| {
            assert!(seed != 7, "seed seven");
            outcome(Ok(()))
        };
        let summary = run_seeds(0..20, 2, 10, run, |_| {});
        assert_eq!(summary.seeds, 20);
        let crash = FailedSeed { seed: 7, violation: Violation::Crash("seed seven".into()) };
        assert_eq!(summary.failures, [crash]);
    }

    #[test]
    fn it_stops_after_enough_failures() {
        let failed = || Violation::Crash("no".into());
        let summary = run_seeds(0..100_000, 2, 3, |_| outcome(Err(failed())), |_| {});
        assert_eq!(summary.failures.len(), 3);
        assert!(summary.seeds < 1000);
    }
}
