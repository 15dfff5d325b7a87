//! A way to a member that takes its time, and on which TCP connections can be reset while UDP goes on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::group::{PATIENCE, local};

/// Ends with the test's runtime.
pub(crate) struct Relay {
    /// Where it is to be dialled.
    pub(crate) address: SocketAddr,
    /// How often TCP connections were reset.
    resets: watch::Sender<u64>,
    /// Whether packets are lost. Bytes over TCP are few, and get through.
    is_cut: Arc<AtomicBool>,
    /// How many TCP connections there were on which something was said: watches. Who only looks whether somebody listens says
    /// nothing.
    connections: watch::Receiver<u64>,
}

impl Relay {
    /// A way to `to` that takes `delay` in each direction.
    pub(crate) async fn start(to: SocketAddr, delay: Duration) -> Relay {
        let (near, listener) = bind().await;
        let address = near.local_addr().unwrap();
        let near = Arc::new(near);
        let far = Arc::new(UdpSocket::bind(local(0)).await.unwrap());
        let (dialler, known) = watch::channel(local(1));
        let is_cut = Arc::new(AtomicBool::new(false));
        let there = Way { delay, is_cut: is_cut.clone(), sender: Some(dialler) };
        tokio::spawn(there.carry(near.clone(), far.clone(), watch::channel(to).1));
        let back = Way { delay, is_cut: is_cut.clone(), sender: None };
        tokio::spawn(back.carry(far, near, known));
        let (resets, reset) = watch::channel(0);
        let (counted, connections) = watch::channel(0);
        tokio::spawn(accept(listener, to, reset, counted));
        Relay { address, resets, is_cut, connections }
    }

    /// Resets all TCP connections, as something on the way does that has forgotten them.
    pub(crate) fn reset(&self) {
        self.resets.send_modify(|resets| *resets += 1);
    }

    /// Loses all packets from now on, or none.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Waits until so many watches were opened in all.
    pub(crate) async fn until_connections(&mut self, wanted: u64) {
        let made = self.connections.wait_for(|count| *count >= wanted);
        timeout(PATIENCE, made).await.expect("no new watch").unwrap();
    }
}

/// UDP and TCP with one port number.
async fn bind() -> (UdpSocket, TcpListener) {
    loop {
        let udp = UdpSocket::bind(local(0)).await.unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
}

async fn accept(
    listener: TcpListener,
    to: SocketAddr,
    reset: watch::Receiver<u64>,
    counted: watch::Sender<u64>,
) {
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        let Ok(mut far) = TcpStream::connect(to).await else { continue };
        let mut reset = reset.clone();
        reset.mark_unchanged();
        let counted = counted.clone();
        tokio::spawn(async move {
            if matches!(near.peek(&mut [0]).await, Ok(1)) {
                counted.send_modify(|count| *count += 1);
            }
            tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => {}
                _ = reset.changed() => {
                    for stream in [&near, &far] {
                        sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
                    }
                }
            }
        });
    }
}

/// Packets in one direction.
struct Way {
    delay: Duration,
    is_cut: Arc<AtomicBool>,
    /// Noted here, if asked to.
    sender: Option<watch::Sender<SocketAddr>>,
}

impl Way {
    async fn carry(
        self,
        from: Arc<UdpSocket>,
        out: Arc<UdpSocket>,
        to: watch::Receiver<SocketAddr>,
    ) {
        let mut packet = vec![0; 2048];
        while let Ok((length, source)) = from.recv_from(&mut packet).await {
            if let Some(sender) = &self.sender {
                sender.send_replace(source);
            }
            if self.is_cut.load(Ordering::Relaxed) {
                continue;
            }
            let (out, bytes, to) = (out.clone(), packet[..length].to_vec(), *to.borrow());
            let due = Instant::now() + self.delay;
            tokio::spawn(async move {
                tokio::time::sleep_until(due).await;
                let _ = out.send_to(&bytes, to).await;
            });
        }
    }
}
