//! The two sockets of a member: UDP for QUIC and TCP for watches, with the same port number.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use tokio::net::TcpListener;

/// A port that is free for UDP may be taken for TCP. With port 0 we ask again this often.
const ATTEMPTS: u32 = 32;

/// Which of the two could not be had.
#[derive(Debug)]
pub(crate) struct Unbound {
    pub(crate) protocol: &'static str,
    pub(crate) source: io::Error,
}

/// Binds both.
pub(crate) async fn bind(listen: SocketAddr) -> Result<(UdpSocket, TcpListener), Unbound> {
    let mut attempt = 1;
    loop {
        let udp = UdpSocket::bind(listen).map_err(|source| Unbound { protocol: "UDP", source })?;
        let address = udp.local_addr().map_err(|source| Unbound { protocol: "UDP", source })?;
        match TcpListener::bind(address).await {
            Ok(tcp) => return Ok((udp, tcp)),
            Err(source)
                if listen.port() == 0
                    && source.kind() == io::ErrorKind::AddrInUse
                    && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            Err(source) => return Err(Unbound { protocol: "TCP", source }),
        }
    }
}

/// An IPv4 address as such, also where an IPv6 socket has received it.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
