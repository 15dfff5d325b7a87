//! Bytes that are no messages do no harm.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::cluster::{BOUND, Cluster, p};

#[tokio::test(flavor = "multi_thread")]
async fn bad_bytes_end_their_connection_and_nothing_else() {
    let cluster = Cluster::start(3, &[]);
    let leader = cluster.settled().await;
    let hostile: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: kv\r\n\r\n",
        // A frame longer than any; a frame that is no greeting; half a frame.
        &[0xff, 0xff, 0xff, 0xff, 0, 0, 0],
        &[0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff],
        &[0, 0, 1, 0, 1, 2, 3],
    ];
    for bytes in hostile {
        // Strangers do not get past the handshake.
        let mut stream = TcpStream::connect(&cluster.addresses[&leader]).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // Closed, perhaps with a TLS alert (its first byte is 21), or reset because something was left unread.
        let mut answered = Vec::new();
        let _ = stream.read_to_end(&mut answered);
        assert!(matches!(answered[..], [] | [21, ..]), "{answered:?}");
    }
    let mut client = cluster.client(leader, BOUND);
    client.put("k", &b"v"[..]).await.unwrap();
    let other = p(leader.get() % 3 + 1);
    let mut client = cluster.client(other, BOUND);
    assert_eq!(client.get("k").await.unwrap().as_deref(), Some(&b"v"[..]));
    let long = client.put("x".repeat(2000), &b"v"[..]).await.unwrap_err().to_string();
    assert!(long.contains("a key has at most 1024 bytes, not 2000"), "{long}");
}
