//! Random numbers that bind a watch to its connection. Each is good once, and for a short while.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::limits::NONCE_LIFETIME;

/// Long enough that nobody guesses one.
pub(crate) const NONCE_BYTES: usize = 32;

/// A number that only the two ends of one connection know.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Nonce([u8; NONCE_BYTES]);

impl Nonce {
    pub(crate) fn from_bytes(bytes: [u8; NONCE_BYTES]) -> Self {
        Nonce(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; NONCE_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Nonce {
    /// A secret while it is good.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce")
    }
}

struct Waiting {
    expires: Instant,
    stream: oneshot::Sender<TcpStream>,
}

/// Numbers given out and not yet shown: at most one for each connection that is being authenticated.
#[derive(Clone, Default)]
pub(crate) struct Nonces(Arc<Mutex<HashMap<Nonce, Waiting>>>);

/// A number given out; forgotten when this is dropped.
pub(crate) struct Issued {
    pub(crate) nonce: Nonce,
    /// Yields the TCP connection that has shown the number.
    pub(crate) stream: oneshot::Receiver<TcpStream>,
    nonces: Nonces,
}

impl Nonces {
    /// Gives out a number.
    pub(crate) fn issue(&self, now: Instant) -> Issued {
        let nonce = Nonce(rand::random());
        let (sender, stream) = oneshot::channel();
        let waiting = Waiting { expires: now + NONCE_LIFETIME, stream: sender };
        self.waiting().insert(nonce, waiting);
        Issued { nonce, stream, nonces: self.clone() }
    }

    /// Hands a connection that shows a number to whoever waits for it, if anyone does and it is in time.
    /// Whatever the outcome, the number is not good a second time.
    pub(crate) fn redeem(&self, nonce: &Nonce, stream: TcpStream, now: Instant) -> bool {
        match self.waiting().remove(nonce) {
            Some(waiting) if now <= waiting.expires => waiting.stream.send(stream).is_ok(),
            _ => false,
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<Nonce, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Issued {
    fn drop(&mut self) {
        self.nonces.waiting().remove(&self.nonce);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn stream() -> TcpStream {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_number_is_good_once_in_time_and_while_somebody_waits() {
        let (nonces, now) = (Nonces::default(), Instant::now());
        let mut first = nonces.issue(now);
        assert!(nonces.redeem(&first.nonce, stream().await, now + NONCE_LIFETIME));
        assert!(first.stream.try_recv().is_ok());
        assert!(!nonces.redeem(&first.nonce, stream().await, now), "shown twice");

        let late = nonces.issue(now);
        let after = now + NONCE_LIFETIME + Duration::from_nanos(1);
        assert!(!nonces.redeem(&late.nonce, stream().await, after), "shown late");

        let Issued { nonce, .. } = nonces.issue(now);
        assert!(!nonces.redeem(&nonce, stream().await, now), "nobody waits");
        assert!(nonces.waiting().is_empty());
    }
}
