//! Clients beside servers: they write at a steady rate, or as fast as they are answered, and what they saw is kept.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::time::sleep_until;

use crate::wan::EmulatedHost;

/// Writes that were answered later than this say nothing of a rate that was kept: clients for it are counted so that
/// they keep it while writes take less.
const USUAL: f64 = 0.25;

/// A client's way to write.
pub trait Writer: Send + 'static {
    /// Writes once; whether it was done.
    fn write(&mut self) -> impl Future<Output = bool> + Send;
}

/// How often clients write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// So often a second in all, each at its own times. One that was held up does not make up for it.
    Steady(f64),
    /// So many clients, each as soon as its last write was answered.
    Closed(u32),
}

impl Pace {
    /// Clients, and the time between the writes of each.
    fn clients(self) -> (u32, Duration) {
        match self {
            Pace::Steady(rate) if rate <= 0.0 => (0, Duration::ZERO),
            Pace::Steady(rate) => {
                let clients = (rate * USUAL).ceil() as u32 + 2;
                (clients, Duration::from_secs_f64(f64::from(clients) / rate))
            }
            Pace::Closed(clients) => (clients, Duration::ZERO),
        }
    }
}

/// A write that was done.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Where its client is.
    pub place: usize,
    /// When it was sent.
    pub sent: Instant,
    /// How long it took.
    pub took: Duration,
}

/// Clients in several places. They end with it.
#[derive(Debug, Default)]
pub struct Load {
    written: Arc<Mutex<Vec<Write>>>,
    failed: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    /// One for each host, its threads on that host.
    runtimes: Vec<Runtime>,
}

impl Load {
    /// Nobody yet.
    pub fn new() -> Self {
        Load::default()
    }

    /// Adds clients on a host. `make` is called on it, with a number for each client.
    pub fn add<W: Writer>(
        &mut self,
        host: &EmulatedHost,
        place: usize,
        pace: Pace,
        make: impl Fn(u32) -> W + Send,
    ) -> std::io::Result<()> {
        let (clients, every) = pace.clients();
        if clients == 0 {
            return Ok(());
        }
        let runtime = host.runtime()?;
        let began = tokio::time::Instant::now();
        for number in 0..clients {
            let _inside = runtime.enter();
            let (written, failed, ends) =
                (self.written.clone(), self.failed.clone(), self.ends.clone());
            let mut writer = make(number);
            let mut due = began + every.mul_f64(f64::from(number) / f64::from(clients));
            runtime.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    sleep_until(due).await;
                    let sent = Instant::now();
                    due = (due + every).max(sent.into());
                    if writer.write().await {
                        let write = Write { place, sent, took: sent.elapsed() };
                        written.lock().unwrap_or_else(PoisonError::into_inner).push(write);
                    } else {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        self.runtimes.push(runtime);
        Ok(())
    }

    /// How many writes were not done, or may not have been.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// What was done since this was last asked, in the order in which it ended.
    pub fn take(&self) -> Vec<Write> {
        std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits, and tells of the writes that were sent meanwhile.
    pub fn measure(&self, length: Duration) -> MeasuredWrites {
        self.take();
        let began = Instant::now();
        std::thread::sleep(length);
        let ended = Instant::now();
        // Those that were sent last are still under way.
        std::thread::sleep(Duration::from_millis(300));
        let writes = self.take().into_iter().filter(|it| (began..ended).contains(&it.sent));
        MeasuredWrites { writes: writes.collect(), length }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
    }
}

/// Writes of some time.
#[derive(Clone, Debug)]
pub struct MeasuredWrites {
    /// The writes.
    pub writes: Vec<Write>,
    /// How long they were counted.
    pub length: Duration,
}

impl MeasuredWrites {
    /// How long they took at one place, or at all, sorted, in milliseconds.
    pub fn sorted_ms(&self, place: Option<usize>) -> Vec<f64> {
        let chosen = self.writes.iter().filter(|it| place.is_none_or(|place| it.place == place));
        let mut took: Vec<_> = chosen.map(|it| it.took.as_secs_f64() * 1000.0).collect();
        took.sort_by(f64::total_cmp);
        took
    }

    /// Those of some places.
    #[must_use]
    pub fn of(&self, places: impl Fn(usize) -> bool) -> Self {
        let writes = self.writes.iter().copied().filter(|write| places(write.place)).collect();
        MeasuredWrites { writes, length: self.length }
    }

    /// The mean at one place, or of all; `None` if there were none.
    pub fn mean_ms(&self, place: Option<usize>) -> Option<f64> {
        let took = self.sorted_ms(place);
        (!took.is_empty()).then(|| took.iter().sum::<f64>() / took.len() as f64)
    }

    /// Writes a second.
    pub fn rate(&self) -> f64 {
        self.writes.len() as f64 / self.length.as_secs_f64()
    }
}

/// The value below which this share of sorted values lies.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((share * last as f64).round() as usize).copied()
}

/// The longest time between two writes that were done one after the other, in milliseconds; `None` if there are not two.
pub fn longest_gap_ms(writes: &[Write]) -> Option<f64> {
    let mut ends: Vec<_> = writes.iter().map(|write| write.sent + write.took).collect();
    ends.sort_unstable();
    ends.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0).reduce(f64::max)
}
