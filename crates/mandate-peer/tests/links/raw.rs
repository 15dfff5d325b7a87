//! A dialler that can break every rule: written against the bytes, not against the library.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, TransportConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::authority::{Authority, Papers};
use crate::group::{GROUP, local};

// What is said about a link.
const ASK: u8 = 2;
const NUMBER: u8 = 3;

/// A connection and its greeting stream.
pub(crate) struct Raw {
    pub(crate) endpoint: Endpoint,
    pub(crate) connection: Connection,
}

/// A raw connection that has greeted, with the number for its watch.
pub(crate) struct Greeted {
    pub(crate) connection: Connection,
    pub(crate) nonce: [u8; 32],
    pub(crate) streams: (SendStream, RecvStream),
    _endpoint: Endpoint,
}

/// Connects with TLS and says nothing. With the trust of `authority`; without papers if there are none.
pub(crate) async fn connect(
    authority: &Authority,
    papers: Option<&Papers>,
    to: SocketAddr,
    expected: &str,
) -> Result<Raw, quinn::ConnectionError> {
    let mut endpoint = Endpoint::client(local(0)).unwrap();
    endpoint.set_default_client_config(client(authority, papers));
    let connection = endpoint.connect(to, expected).unwrap().await?;
    Ok(Raw { endpoint, connection })
}

/// How to connect, with TLS.
pub(crate) fn client(authority: &Authority, papers: Option<&Papers>) -> ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut tls = match papers {
        Some(papers) => {
            let chain = CertificateDer::from_pem_slice(papers.chain.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(papers.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![b"mandate-links".to_vec()];
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    client.transport_config(Arc::new(TransportConfig::default()));
    client
}

/// The bytes of a greeting.
pub(crate) fn greeting(version: u32, group: &str) -> Vec<u8> {
    let mut bytes = b"MNDT".to_vec();
    bytes.extend(version.to_be_bytes());
    bytes.extend(77u64.to_be_bytes());
    bytes.extend(1u64.to_be_bytes());
    bytes.push(0);
    bytes.push(group.len() as u8);
    bytes.extend(group.as_bytes());
    // No settings.
    bytes.extend([0, 0]);
    bytes
}

/// Reads a member's greeting, in a group whose name is as long as that.
async fn read_greeting(receiver: &mut RecvStream, group: &str) -> Vec<u8> {
    let mut head = vec![0; greeting(1, group).len()];
    receiver.read_exact(&mut head).await.unwrap();
    let settings = u16::from_be_bytes([head[head.len() - 2], head[head.len() - 1]]);
    receiver.read_exact(&mut vec![0; settings.into()]).await.unwrap();
    head
}

impl Raw {
    /// Greets as a member does.
    pub(crate) async fn greet(self) -> Greeted {
        let (mut sender, mut receiver) = self.connection.open_bi().await.unwrap();
        let greeting = greeting(1, GROUP);
        sender.write_all(&greeting).await.unwrap();
        let answer = read_greeting(&mut receiver, GROUP).await;
        assert_eq!(answer[..4], *b"MNDT");
        sender.write_all(&[ASK]).await.unwrap();
        let mut number = [0; 33];
        receiver.read_exact(&mut number).await.unwrap();
        let [NUMBER, nonce @ ..] = number else { panic!("no number: {number:?}") };
        let streams = (sender, receiver);
        Greeted { connection: self.connection, nonce, streams, _endpoint: self.endpoint }
    }
}

impl Greeted {
    /// Opens the watch, and waits until it is taken.
    pub(crate) async fn watch(&mut self) -> TcpStream {
        let mut watch = TcpStream::connect(self.connection.remote_address()).await.unwrap();
        watch.write_all(&self.nonce).await.unwrap();
        let mut taken = [0];
        self.streams.1.read_exact(&mut taken).await.unwrap();
        assert_eq!(taken, [1]);
        watch
    }
}
