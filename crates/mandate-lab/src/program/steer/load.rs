//! Clients: writes of one kilobyte, at a steady rate, to the server of their data centre.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mandate_lab::load::{Load, MeasuredWrites, Pace, Writer};
use mandate_lab::pole::deployment::Shares;
use mandate_lab::pole::etcd::{EtcdStage, EtcdWriter};

/// As in the paper.
static VALUE: [u8; 1024] = [b'x'; 1024];

/// Clients at the three data centres.
pub(super) struct Clients {
    load: Load,
    /// Which server the clients of each data centre write to; 0 is none.
    targets: [Arc<AtomicU32>; 3],
}

impl Clients {
    /// Starts clients that write so often a second in all, to these servers.
    pub(super) fn start(
        stage: &EtcdStage,
        shares: &Shares,
        rate: f64,
        serving: [u32; 3],
    ) -> anyhow::Result<Self> {
        let targets = serving.map(|server| Arc::new(AtomicU32::new(server)));
        let mut load = Load::new();
        for (centre, server) in serving.into_iter().enumerate() {
            let make = |number: u32| {
                let writer = |server: u32| {
                    let key = format!("{centre}-{number}");
                    (server, stage.writer(server, key, &VALUE).expect("every server is up"))
                };
                Aimed { writers: stage.up().map(writer).collect(), target: targets[centre].clone() }
            };
            // Beside their server.
            load.add(stage.host(server), centre, Pace::Steady(rate * shares.0[centre]), make)?;
        }
        Ok(Clients { load, targets })
    }

    /// Clients of a data centre write to another server from now on.
    pub(super) fn aim(&self, centre: usize, server: Option<u32>) {
        self.targets[centre].store(server.unwrap_or(0), Ordering::Relaxed);
    }

    /// Waits, and tells of the writes that were sent meanwhile.
    pub(super) fn measure(&self, length: Duration) -> MeasuredWrites {
        self.load.measure(length)
    }
}

/// A client that writes to whatever server its data centre has now.
struct Aimed {
    writers: BTreeMap<u32, EtcdWriter>,
    target: Arc<AtomicU32>,
}

impl Writer for Aimed {
    async fn write(&mut self) -> bool {
        match self.writers.get_mut(&self.target.load(Ordering::Relaxed)) {
            Some(writer) => writer.write().await,
            None => false,
        }
    }
}
