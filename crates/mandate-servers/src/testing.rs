//! What tests of real processes share: waiting for a condition, children that end with a test, turns.

use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A bound is for what hangs, not for speed: tests share two cores with servers, browsers and each other.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something, for as long as is said and for [`PATIENCE`] at least.
///
/// # Panics
///
/// When it does not come.
pub fn within<T>(bound: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let bound = bound.max(PATIENCE);
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < bound, "not within {bound:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A child that is killed with this value, whatever ends the test.
#[derive(Debug)]
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many processes work below a directory, as they see it.
pub fn processes_in(directory: &str) -> usize {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let places =
        processes.filter_map(|process| std::fs::read_link(process.path().join("cwd")).ok());
    places.filter(|place| place.display().to_string().starts_with(directory)).count()
}

/// Waits for its turn, which ends with the value. Groups of real processes take turns, two at a time: leases and sessions are real
/// time, which a host that is too busy would not keep; and most of that time is spent waiting.
pub fn turn() -> MutexGuard<'static, ()> {
    static LANES: [Mutex<()>; 2] = [const { Mutex::new(()) }; 2];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let lane = NEXT.fetch_add(1, Ordering::Relaxed) % LANES.len();
    LANES[lane].lock().unwrap_or_else(PoisonError::into_inner)
}
