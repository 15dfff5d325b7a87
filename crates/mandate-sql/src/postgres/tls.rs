//! TLS to a server, on the terms that users of `libpq` know.
//!
//! | trust | what is checked | libpq |
//! | --- | --- | --- |
//! | [`Trust::Anything`] | that the server that answers has the certificate's key | `prefer`, `require` |
//! | [`Trust::Chain`] | besides, that the certificate comes from one that is trusted | `verify-ca` |
//! | [`Trust::Name`] | besides, that it is for this server | `verify-full` |
//!
//! A server's own certificate may be named as the one to trust. What PostgreSQL's manual has people make is such a one: it
//! signs itself, says of itself that it is an authority, and has its name where names used to be (the common name). A
//! verifier of the web refuses it three times over. Here it is compared byte by byte.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::{ASN1Time, FromDer};

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Anything,
    Chain,
    Name,
}

/// Whom to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Whom the system trusts.
    System,
    /// The certificates in a file.
    File(PathBuf),
}

/// Who this is, to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// What a TLS connection is made with.
pub(crate) fn config(
    trust: Trust,
    roots: &Roots,
    identity: Option<&Identity>,
) -> Result<rustls::ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(trust, roots, provider.clone())?;
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some(Identity { certificate, key }) = identity else {
        return Ok(config.with_no_client_auth());
    };
    let chain = certificates("sslcert", certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        let path = key.display();
        format!("sslkey {path}: {error} (a key must be in PEM form, and not encrypted)")
    })?;
    config.with_client_auth_cert(chain, secret).map_err(|error| {
        format!("sslcert {} and sslkey {}: {error}", certificate.display(), key.display())
    })
}

/// What to do about a server's certificate that was refused.
pub(crate) fn advice(error: &Error) -> Option<&'static str> {
    let Error::InvalidCertificate(error) = error else { return None };
    Some(match error {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ": the certificate is not for this host; write the name that it is for, or sslmode=verify-ca"
        }
        CertificateError::UnknownIssuer => {
            ": nobody who is trusted has issued it; name its issuer, or the certificate itself, with sslrootcert=FILE"
        }
        CertificateError::Other(_) => {
            ": name the issuer of the server's certificate, or that certificate itself, with sslrootcert=FILE"
        }
        _ => return None,
    })
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |reason: String| format!("{what} {}: {reason}", path.display());
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?.collect();
    match found {
        Ok(found) if found.is_empty() => Err(wrong("it has no certificate".into())),
        found => found.map_err(|error| wrong(error.to_string())),
    }
}

#[derive(Debug)]
struct Verifier {
    trust: Trust,
    /// Certificates in the file: a server that shows one of them is the one that was meant.
    named: Vec<CertificateDer<'static>>,
    chains: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(trust: Trust, roots: &Roots, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        if trust == Trust::Anything {
            return Ok(Verifier { trust, named: Vec::new(), chains: None, provider });
        }
        let named = match roots {
            Roots::System => Vec::new(),
            Roots::File(path) => certificates("sslrootcert", path)?,
        };
        let mut store = rustls::RootCertStore::empty();
        match roots {
            Roots::System => {
                store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            // One that cannot be an authority can still be the server's own.
            Roots::File(_) => {
                store.add_parsable_certificates(named.iter().cloned());
            }
        }
        if store.is_empty() && named.is_empty() {
            return Err("there is no certificate to trust: name one with sslrootcert=FILE".into());
        }
        let builder = WebPkiServerVerifier::builder_with_provider(store.into(), provider.clone());
        Ok(Verifier { trust, named, chains: builder.build().ok(), provider })
    }

    /// A certificate that is itself in the file.
    fn verify_named(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = parse(certificate)?;
        let now = ASN1Time::from_timestamp(now.as_secs() as i64)
            .map_err(|_| Error::FailedToGetCurrentTime)?;
        if now < parsed.validity().not_before {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > parsed.validity().not_after {
            return Err(CertificateError::Expired.into());
        }
        if self.trust == Trust::Name && !is_for(&parsed, certificate, name) {
            return Err(CertificateError::NotValidForName.into());
        }
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.trust == Trust::Anything {
            return Ok(ServerCertVerified::assertion());
        }
        if self.named.iter().any(|named| named == certificate) {
            return self.verify_named(certificate, name, now);
        }
        let chains = self.chains.as_ref().ok_or(CertificateError::UnknownIssuer)?;
        match chains.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The chain is looked at before the name: it is fine.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.trust == Trust::Chain || is_for(&parse(certificate)?, certificate, name) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    let parsed = X509Certificate::from_der(certificate);
    parsed.map(|(_, parsed)| parsed).map_err(|_| CertificateError::BadEncoding.into())
}

/// Whether a certificate is for this server: by its alternative names, or by its common name if it has none.
fn is_for(
    parsed: &X509Certificate<'_>,
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
) -> bool {
    if parsed.subject_alternative_name().is_ok_and(|names| names.is_some()) {
        // Not through the chain, which an authority that shows its own certificate does not have.
        return rustls::client::verify_server_name(
            &match rustls::server::ParsedCertificate::try_from(certificate) {
                Ok(parsed) => parsed,
                Err(_) => return false,
            },
            name,
        )
        .is_ok();
    }
    let wanted = name.to_str();
    let mut common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    match name {
        ServerName::DnsName(_) => common.any(|common| fits(common, &wanted)),
        // No part of an address stands for anything.
        _ => common.any(|common| common == wanted),
    }
}

/// Whether a name, perhaps with a star for its first part, is this one.
fn fits(name: &str, wanted: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(rest) => {
            wanted.split_once('.').is_some_and(|(_, domain)| domain.eq_ignore_ascii_case(rest))
        }
        None => name.eq_ignore_ascii_case(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_part_of_a_name() {
        assert!(fits("db.example", "DB.example") && fits("*.example", "db.example"));
        assert!(!fits("*.example", "a.db.example") && !fits("*.example", "example"));
        assert!(!fits("db.example", "db2.example"));
    }
}
