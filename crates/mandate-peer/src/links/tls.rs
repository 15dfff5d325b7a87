//! How connections are set up: TLS 1.3 with certificates on both sides, and bounds on everything.

use std::sync::Arc;

use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use rustls::client::Resumption;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls_pki_types::UnixTime;

use super::identity::Identity;
use super::limits::{
    DATAGRAM_BUFFER_BYTES, FIRST_ROUND_TRIP, IDLE_TIMEOUT_MILLISECONDS, INCOMING_BUFFER_BYTES,
    INCOMING_BUFFER_TOTAL_BYTES, KEEP_ALIVE, MAX_INCOMING, STREAM_WINDOW_BYTES,
};

/// Another protocol at the same port is turned away during the handshake.
const APPLICATION_PROTOCOL: &[u8] = b"mandate-links";

/// Why an identity cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    #[error(transparent)]
    Verifier(#[from] VerifierBuilderError),
    #[error(transparent)]
    CipherSuite(#[from] NoInitialCipherSuite),
}

/// Shows this identity to whoever accepts, and believes its authorities.
pub(crate) fn dials(
    identity: &Identity,
    protocol: &[u8],
) -> Result<rustls::ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(identity.authorities.clone())
        .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())?;
    // A resumed session would spare the certificates, and so outlive them.
    tls.resumption = Resumption::disabled();
    tls.alpn_protocols = vec![protocol.to_vec()];
    Ok(tls)
}

/// Shows this identity to whoever dials, and wants a certificate of its authorities.
pub(crate) fn accepts(
    identity: &Identity,
    protocol: &[u8],
) -> Result<rustls::ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = identity.authorities.clone();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(authorities, provider.clone()).build()?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())?;
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    tls.alpn_protocols = vec![protocol.to_vec()];
    Ok(tls)
}

/// For dialling.
pub(crate) fn client(identity: &Identity) -> Result<ClientConfig, TlsError> {
    let tls = dials(identity, APPLICATION_PROTOCOL)?;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    // The accepting side opens no stream in both directions.
    config.transport_config(Arc::new(transport(0)));
    Ok(config)
}

/// For accepting.
pub(crate) fn server(identity: &Identity) -> Result<ServerConfig, TlsError> {
    let tls = accepts(identity, APPLICATION_PROTOCOL)?;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config
        .transport_config(Arc::new(transport(1)))
        .max_incoming(MAX_INCOMING)
        .incoming_buffer_size(INCOMING_BUFFER_BYTES)
        .incoming_buffer_size_total(INCOMING_BUFFER_TOTAL_BYTES)
        // The watch stays at the old address anyway; a member that moved dials again.
        .migration(false);
    Ok(config)
}

/// Whether members that believe the same authorities would believe this certificate now; if not, why.
pub(crate) fn vouch(identity: &Identity) -> Result<(), String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = identity.authorities.clone();
    let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider).build();
    let verifier = verifier.map_err(|error| error.to_string())?;
    let [leaf, intermediates @ ..] = &identity.chain[..] else {
        return Err("there is none".into());
    };
    let vouched = verifier.verify_client_cert(leaf, intermediates, UnixTime::now());
    vouched.map(|_| ()).map_err(|error| error.to_string())
}

fn transport(bidirectional_streams: u32) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(bidirectional_streams))
        .max_concurrent_uni_streams(VarInt::from_u32(1))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(2 * STREAM_WINDOW_BYTES))
        .send_window(2 * u64::from(STREAM_WINDOW_BYTES))
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER_BYTES))
        .datagram_send_buffer_size(DATAGRAM_BUFFER_BYTES)
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_TIMEOUT_MILLISECONDS))))
        .initial_rtt(FIRST_ROUND_TRIP);
    transport
}
