//! The watch: an idle TCP connection whose only job is to break when the other process dies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::connection_limit::ConnectionLimit;
use super::limits::{
    NONCE_LIFETIME, WATCH_KEEP_ALIVE, WATCH_KEEP_ALIVE_RETRIES, WATCH_KEEP_ALIVE_RETRY,
};
use super::nonce::{NONCE_BYTES, Nonce};
use super::shared::Shared;

/// After the system could not give us a connection (too many open files), it is left alone this long.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// How a watch ended.
pub(crate) enum Broke {
    /// The other side is gone, or ended the link.
    Ended,
    /// It sent something, which no member does.
    Spoke,
}

/// Waits until a watch breaks; for ever where there is none.
pub(crate) async fn until_broken(watch: Option<&mut TcpStream>) -> Broke {
    let Some(stream) = watch else { return std::future::pending().await };
    match stream.read(&mut [0]).await {
        Ok(0) | Err(_) => Broke::Ended,
        Ok(_) => Broke::Spoke,
    }
}

/// Opens a watch. Whether the other side takes it, it says over QUIC.
pub(crate) async fn open(address: SocketAddr, nonce: &Nonce) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    keep_alive(&stream);
    stream.write_all(nonce.as_bytes()).await?;
    Ok(stream)
}

/// Has the system send a sign of life now and then: what lies on the way forgets idle connections, and then resets them.
fn keep_alive(stream: &TcpStream) {
    // Without, a watch is worth less, but not nothing.
    let kept = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, WATCH_KEEP_ALIVE))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, WATCH_KEEP_ALIVE_RETRY))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, WATCH_KEEP_ALIVE_RETRIES));
    if let Err(error) = kept {
        tracing::debug!(%error, "the system does not keep this watch alive");
    }
}

/// Accepts watches until the member stops.
pub(crate) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let places = ConnectionLimit::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, address)) = accepted else {
            tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            continue;
        };
        let place = match places.take(address.ip()) {
            Ok(place) => place,
            Err(full) => {
                shared.turn_away(address, full);
                continue;
            }
        };
        let shared_by_task = shared.clone();
        shared.tasks.spawn(async move {
            let _place = place;
            tokio::select! {
                () = shared_by_task.stop.cancelled() => {}
                () = introduce(&shared_by_task, stream, address) => {}
            }
        });
    }
}

/// Reads the number of a newcomer and hands it to the link that waits for it. Anything else is closed.
async fn introduce(shared: &Shared, mut stream: TcpStream, address: SocketAddr) {
    keep_alive(&stream);
    let mut bytes = [0; NONCE_BYTES];
    match timeout(NONCE_LIFETIME, stream.read_exact(&mut bytes)).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) | Err(_) => return,
    }
    if !shared.nonces.redeem(&Nonce::from_bytes(bytes), stream, Instant::now()) {
        tracing::debug!(%address, "a watch with a number that is not, or no longer, good; closed");
    }
}
