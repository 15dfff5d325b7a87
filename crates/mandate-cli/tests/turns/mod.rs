//! Groups of real processes take turns, two at a time: leases and sessions are real time, which a host that is too busy
//! would not keep; and most of that time is spent waiting.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for its turn. It ends with the value.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static LANES: [Mutex<()>; 2] = [const { Mutex::new(()) }; 2];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let lane = NEXT.fetch_add(1, Ordering::Relaxed) % LANES.len();
    LANES[lane].lock().unwrap_or_else(PoisonError::into_inner)
}
