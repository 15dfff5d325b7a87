//! Clients: writes of one kilobyte, at a steady rate, to the server of their data centre.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mandate_etcd::client::{Access, Endpoint};
use mandate_lab::wan::Wan;

use super::deployment::Distribution;

/// As in the paper.
const VALUE: [u8; 1024] = [b'x'; 1024];

/// A client gives a write up after this.
const PATIENCE: Duration = Duration::from_secs(2);

/// A write that was done.
#[derive(Clone, Copy, Debug)]
struct Write {
    /// The data centre.
    centre: usize,
    sent: Instant,
    took: Duration,
}

/// Clients at the three data centres.
pub(super) struct Load {
    written: Arc<Mutex<Vec<Write>>>,
    /// Which server the clients of each data centre write to; 0 is none.
    targets: [Arc<AtomicU32>; 3],
    ends: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts clients that write so often a second in all, to these servers.
    pub(super) fn start(
        wan: &Wan,
        urls: &BTreeMap<u32, String>,
        distribution: Distribution,
        rate: f64,
        serving: [u32; 3],
    ) -> anyhow::Result<Self> {
        let mut load = Load {
            written: Arc::default(),
            targets: serving.map(|server| Arc::new(AtomicU32::new(server))),
            ends: Arc::default(),
            clients: Vec::new(),
        };
        let endpoints: BTreeMap<u32, Endpoint> = urls
            .iter()
            .map(|(server, url)| Ok((*server, Endpoint::new(url, &Access::default())?)))
            .collect::<anyhow::Result<_>>()?;
        for (centre, server) in serving.into_iter().enumerate() {
            let rate = rate * distribution.share(centre);
            if rate == 0.0 {
                continue;
            }
            // As many as wait at once when a write takes a quarter of a second, and some more.
            let clients = (rate * 0.25).ceil() as u32 + 2;
            let pace = Duration::from_secs_f64(f64::from(clients) / rate);
            for number in 0..clients {
                let client = Client {
                    centre,
                    endpoints: endpoints.clone(),
                    target: load.targets[centre].clone(),
                    written: load.written.clone(),
                    ends: load.ends.clone(),
                    first: pace.mul_f64(f64::from(number) / f64::from(clients)),
                    pace,
                    key: format!("{centre}-{number}"),
                };
                let host = wan.host(&format!("p{server}")).expect("every server has a host");
                // Beside their server: a thread's sockets belong to where it was started.
                load.clients.push(host.within(|| thread::spawn(move || client.run())));
            }
        }
        Ok(load)
    }

    /// Clients of a data centre write to another server from now on.
    pub(super) fn aim(&self, centre: usize, server: Option<u32>) {
        self.targets[centre].store(server.unwrap_or(0), Ordering::Relaxed);
    }

    /// Waits, and tells how long writes took that were sent meanwhile: the mean, in milliseconds, at each data centre and
    /// of all.
    pub(super) fn measure(&self, length: Duration) -> Measured {
        let began = Instant::now();
        thread::sleep(length);
        let ended = Instant::now();
        // Those that were sent last are still under way.
        thread::sleep(Duration::from_millis(300));
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let writes: Vec<_> =
            written.drain(..).filter(|it| (began..ended).contains(&it.sent)).collect();
        drop(written);
        let mean = |centre: Option<usize>| {
            let chosen = writes.iter().filter(|it| centre.is_none_or(|centre| it.centre == centre));
            let (sum, count) = chosen.fold((0.0, 0u32), |(sum, count), it| {
                (sum + it.took.as_secs_f64() * 1000.0, count + 1)
            });
            (count > 0).then(|| sum / f64::from(count))
        };
        Measured { mean_ms: mean(None), at_ms: [0, 1, 2].map(|centre| mean(Some(centre))) }
    }
}

/// What writes took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) mean_ms: Option<f64>,
    pub(super) at_ms: [Option<f64>; 3],
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

struct Client {
    centre: usize,
    endpoints: BTreeMap<u32, Endpoint>,
    target: Arc<AtomicU32>,
    written: Arc<Mutex<Vec<Write>>>,
    ends: Arc<AtomicBool>,
    first: Duration,
    pace: Duration,
    key: String,
}

impl Client {
    fn run(self) {
        let mut due = Instant::now() + self.first;
        while !self.ends.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let sent = Instant::now();
            // One that was held up does not make up for it.
            due = (due + self.pace).max(sent);
            let Some(endpoint) = self.endpoints.get(&self.target.load(Ordering::Relaxed)) else {
                continue;
            };
            if endpoint.put(&self.key, &VALUE, PATIENCE).is_ok() {
                let write = Write { centre: self.centre, sent, took: sent.elapsed() };
                self.written.lock().unwrap_or_else(PoisonError::into_inner).push(write);
            }
        }
    }
}
