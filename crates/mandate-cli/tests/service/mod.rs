//! A small HTTP service, as a leader would offer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

/// A service on loopback that answers every request with its own text and the path that was asked for; where it is.
pub(crate) fn service(text: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let text = text.to_owned();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 1024];
            let read = stream.read(&mut head).unwrap_or_default();
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let body = format!("{text} {path}");
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}
