//! Ports on loopback, reserved for this process.
//!
//! A port that is only looked at may be taken before it is used: by another test that looks at the same moment, or by an
//! outgoing connection. Binding it and handing the socket over is not possible for servers that others wrote. So a port is
//! reserved: a lock on a file named after it, which the system releases when this process ends, however it ends. Ports
//! below those that the system gives to outgoing connections are nobody else's in practice, and are tried for TCP and
//! UDP besides.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Where ports are looked for: below those that the system gives to outgoing connections, which could take the port of a
/// server while it is down.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// What this process has reserved, until it ends.
static RESERVED: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// So many ports on loopback that are free for TCP and UDP, and stay reserved for this process until it ends. Where to look
/// first is random, so that several processes seldom look at the same ports.
pub fn free_ports(number: usize) -> io::Result<Vec<u16>> {
    let user = rustix::process::getuid().as_raw();
    // The same for all processes, whatever their TMPDIR.
    let directory = Path::new("/tmp").join(format!("mandate-ports-{user}"));
    fs::create_dir_all(&directory)?;
    let width = usize::from(PORTS.end - PORTS.start);
    let start = RandomState::new().hash_one(number) as usize % width;
    let mut found = Vec::new();
    for step in 0..width {
        if found.len() == number {
            return Ok(found);
        }
        let port = PORTS.start + ((start + step) % width) as u16;
        if let Some(reservation) = reserve(&directory, port)? {
            RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(reservation);
            found.push(port);
        }
    }
    let what = format!("no {number} ports between {} and {} are free", PORTS.start, PORTS.end);
    Err(io::Error::new(io::ErrorKind::AddrInUse, what))
}

/// The lock on a port, unless another process has it or something is bound to the port. Files stay: a lock on a file that
/// was removed would exclude nobody.
fn reserve(directory: &Path, port: u16) -> io::Result<Option<File>> {
    let path = directory.join(port.to_string());
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    if file.try_lock().is_err() {
        return Ok(None);
    }
    let address = (Ipv4Addr::LOCALHOST, port);
    let is_free = TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok();
    Ok(is_free.then_some(file))
}

/// One of them.
pub(crate) fn free_port() -> io::Result<u16> {
    free_ports(1).map(|ports| ports[0])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice_though_nothing_is_bound_to_it() {
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(|| free_ports(200))).collect();
        let ports: Vec<_> =
            threads.into_iter().flat_map(|thread| thread.join().unwrap().unwrap()).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
    }

    #[test]
    fn a_port_that_is_bound_is_not_reserved() {
        let directory = tempfile::tempdir().unwrap();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = udp.local_addr().unwrap().port();
        assert!(reserve(directory.path(), port).unwrap().is_none());
    }
}
