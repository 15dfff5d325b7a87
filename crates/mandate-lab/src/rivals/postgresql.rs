//! A connection to PostgreSQL that says when it has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio_postgres::{Client, NoTls};

/// Whether a connection has ended.
#[derive(Clone, Default)]
pub(super) struct Ended(Arc<(AtomicBool, Notify)>);

impl Ended {
    pub(super) fn has(&self) -> bool {
        self.0.0.load(Ordering::Acquire)
    }

    /// Waits for it.
    pub(super) async fn wait(&self) {
        while !self.has() {
            self.0.1.notified().await;
        }
    }

    fn now(&self) {
        self.0.0.store(true, Ordering::Release);
        self.0.1.notify_one();
    }
}

/// Connects, as a program does that sets nothing in particular.
pub(super) async fn connect(url: &str) -> Result<(Client, Ended), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let ended = Ended::default();
    let tells = ended.clone();
    tokio::spawn(async move {
        let _ = connection.await;
        tells.now();
    });
    Ok((client, ended))
}
