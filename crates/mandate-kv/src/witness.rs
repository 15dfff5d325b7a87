//! Clients that read and write a few keys all the time, and whether what they saw can have happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::KvClient;
use crate::linearizable::{Action, ClientOperation, NotLinearizable, check};

/// Few, so that clients meet.
const KEYS: u64 = 4;

/// Between two operations of a client.
const PAUSE: Duration = Duration::from_millis(2);

/// Clients, and what they have seen.
#[derive(Debug)]
pub struct Witnesses {
    began: Instant,
    stop: Arc<AtomicBool>,
    /// Every write has a value of its own.
    values: Arc<AtomicU64>,
    running: Vec<JoinHandle<Vec<(u64, ClientOperation)>>>,
}

impl Default for Witnesses {
    fn default() -> Self {
        Witnesses {
            began: Instant::now(),
            stop: Arc::default(),
            values: Arc::default(),
            running: Vec::new(),
        }
    }
}

impl Witnesses {
    /// One more client, on the current runtime.
    pub fn add(&mut self, client: KvClient) {
        let witness = Witness {
            client,
            values: self.values.clone(),
            began: self.began,
            random: self.running.len() as u64,
        };
        self.running.push(tokio::spawn(witness.watch(self.stop.clone())));
    }

    /// Stops them: how many operations they have seen, and whether all of that can have happened one after the other.
    pub async fn judge(self) -> (usize, Result<(), NotLinearizable>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut histories: BTreeMap<u64, Vec<ClientOperation>> = BTreeMap::new();
        for witness in self.running {
            for (key, operation) in witness.await.unwrap_or_default() {
                histories.entry(key).or_default().push(operation);
            }
        }
        let operations = histories.values().map(Vec::len).sum();
        (operations, histories.values().try_for_each(|history| check(history)))
    }
}

struct Witness {
    client: KvClient,
    values: Arc<AtomicU64>,
    began: Instant,
    random: u64,
}

impl Witness {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn draw(&mut self) -> u64 {
        let (by, plus) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.random = self.random.wrapping_mul(by).wrapping_add(plus);
        self.random >> 33
    }

    async fn watch(mut self, stop: Arc<AtomicBool>) -> Vec<(u64, ClientOperation)> {
        let mut seen = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let (key, writes) = (self.draw() % KEYS, self.draw().is_multiple_of(2));
            let operation = if writes { Some(self.write(key).await) } else { self.read(key).await };
            seen.extend(operation.map(|operation| (key, operation)));
            tokio::time::sleep(PAUSE).await;
        }
        seen
    }

    async fn write(&mut self, key: u64) -> ClientOperation {
        let value = self.values.fetch_add(1, Ordering::Relaxed);
        let began = self.now();
        let written = self.client.put(key.to_string(), value.to_string().into_bytes()).await;
        // Whatever is not surely done may be.
        let ended = written.is_ok().then(|| self.now());
        ClientOperation { began, ended, action: Action::Write(value) }
    }

    async fn read(&mut self, key: u64) -> Option<ClientOperation> {
        let began = self.now();
        let found = self.client.get(key.to_string()).await.ok()?;
        // What nobody wrote is taken for a value that nobody wrote.
        let parse = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse().ok();
        let found = found.map(|bytes| parse(&bytes).unwrap_or(u64::MAX));
        Some(ClientOperation { began, ended: Some(self.now()), action: Action::Read(found) })
    }
}
