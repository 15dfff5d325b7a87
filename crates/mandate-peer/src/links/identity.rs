//! What a member shows to prove who it is, and whom it believes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The group's certificate authority, and this member's own certificate and key.
///
/// The certificate names the member as `p5.GROUP.mandate` (a DNS name among its subject alternative
/// names). Where it restricts its use, it must allow both client and server authentication, because a
/// member is both.
#[derive(Clone)]
pub struct Identity {
    pub(crate) authorities: Arc<RootCertStore>,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: Arc<PrivateKeyDer<'static>>,
}

/// Why certificates and key are no identity. Nothing was kept.
#[derive(Debug, thiserror::Error)]
pub enum InvalidIdentity {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The text of the authority's certificates is damaged.
    #[error(
        "the certificates of the authority are damaged ({0}); expected are PEM blocks BEGIN CERTIFICATE"
    )]
    DamagedAuthority(String),
    /// No certificate of an authority.
    #[error("there is no certificate of an authority; give the group's CA in PEM form")]
    NoAuthority,
    /// The text of the member's certificates is damaged.
    #[error("the member's certificate is damaged ({0}); expected are PEM blocks BEGIN CERTIFICATE")]
    DamagedChain(String),
    /// No certificate of this member.
    #[error(
        "there is no certificate of this member; give its certificate, then any intermediate ones, in PEM form"
    )]
    NoChain,
    /// No usable key.
    #[error(
        "there is no usable private key ({0}); give one in PEM form (PKCS#8, PKCS#1 or SEC1), not encrypted"
    )]
    NoKey(String),
    /// The key belongs to another certificate.
    #[error(
        "the private key does not belong to the member's certificate ({0}); give the key it was issued for"
    )]
    OtherKey(String),
}

impl Identity {
    /// Reads an identity from PEM texts: the authority's certificates, the member's certificate followed
    /// by intermediate ones if any, and the member's key.
    pub fn from_pem(ca: &[u8], chain: &[u8], key: &[u8]) -> Result<Identity, InvalidIdentity> {
        let mut authorities = RootCertStore::empty();
        for certificate in certificates(ca).map_err(InvalidIdentity::DamagedAuthority)? {
            let added = authorities.add(certificate);
            added.map_err(|error| InvalidIdentity::DamagedAuthority(error.to_string()))?;
        }
        if authorities.is_empty() {
            return Err(InvalidIdentity::NoAuthority);
        }
        let chain = certificates(chain).map_err(InvalidIdentity::DamagedChain)?;
        if chain.is_empty() {
            return Err(InvalidIdentity::NoChain);
        }
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| InvalidIdentity::NoKey(error.to_string()))?;
        check_key(&chain, &key)?;
        Ok(Identity { authorities: Arc::new(authorities), chain, key: Arc::new(key) })
    }

    /// Reads an identity from three PEM files; see [`Identity::from_pem`].
    pub fn from_files(ca: &Path, chain: &Path, key: &Path) -> Result<Identity, InvalidIdentity> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|source| InvalidIdentity::Unreadable { path: path.to_owned(), source })
        };
        Identity::from_pem(&read(ca)?, &read(chain)?, &read(key)?)
    }

    /// Whether another shows the same and believes the same.
    pub(crate) fn is_same(&self, other: &Identity) -> bool {
        self.chain == other.chain && self.authorities.roots == other.authorities.roots
    }

    /// When the member's certificate expires. What the other side checks is its own reading; this is for
    /// warnings.
    pub fn expires(&self) -> Option<SystemTime> {
        let (_, parsed) = x509_parser::parse_x509_certificate(self.chain.first()?).ok()?;
        let seconds = u64::try_from(parsed.validity().not_after.timestamp()).ok()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    }
}

impl fmt::Debug for Identity {
    /// Says nothing about the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (authorities, chain) = (self.authorities.len(), self.chain.len());
        write!(f, "Identity {{ {authorities} authorities, {chain} certificates }}")
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())
}

/// Checked here so that a mix-up of files is told at the start and not as a failed handshake.
fn check_key(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<(), InvalidIdentity> {
    let signing = rustls::crypto::ring::sign::any_supported_type(key)
        .map_err(|error| InvalidIdentity::NoKey(error.to_string()))?;
    match CertifiedKey::new(chain.to_vec(), signing).keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(()),
        Err(rustls::Error::InconsistentKeys(difference)) => {
            Err(InvalidIdentity::OtherKey(format!("{difference:?}")))
        }
        Err(error) => Err(InvalidIdentity::DamagedChain(error.to_string())),
    }
}
