//! Ports on loopback that are free.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Ports are looked for here: below those that the system gives to outgoing connections, which could take
/// the port of a server while it is down.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// So many ports on loopback that are free for TCP. Where to look first is random, so that several
/// processes seldom look at the same ports.
pub fn free_ports(number: usize) -> io::Result<Vec<u16>> {
    let width = usize::from(PORTS.end - PORTS.start);
    let start = RandomState::new().hash_one(number) as usize % width;
    let mut found = BTreeSet::new();
    for step in 0..width {
        let port = PORTS.start + ((start + step) % width) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            found.insert(port);
        }
        if found.len() == number {
            return Ok(found.into_iter().collect());
        }
    }
    let what = format!("no {number} ports between {} and {} are free", PORTS.start, PORTS.end);
    Err(io::Error::new(io::ErrorKind::AddrInUse, what))
}

/// One of them.
pub(crate) fn free_port() -> io::Result<u16> {
    free_ports(1).map(|ports| ports[0])
}
