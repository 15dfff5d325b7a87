//! TLS for a service's own TCP connections, with the certificates that its members have for the election.
//!
//! A service that runs beside the election has messages of its own between members, and clients. It should not need
//! certificates of its own for that. Both sides show a certificate of the group's authority, TLS 1.3 only. A
//! member's is the one that it has for its links (`p5.GROUP.mandate`); a client's has any other name of the group
//! (`client.GROUP.mandate`). Who dials checks that it reached the member that it meant.

use std::sync::Arc;

use mandate_proto::identity::MemberId;
use rustls_pki_types::{CertificateDer, ServerName};

use super::identity::Identity;
use super::name;
use super::tls;

/// Why an identity cannot be used for a service's connections.
#[derive(Debug, thiserror::Error)]
#[error("the certificates cannot be used for TLS: {0}")]
pub struct StreamTlsError(String);

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A member of the group.
    Member(MemberId),
    /// Somebody else whom the group's authority vouches for.
    Client,
}

/// How a service's TCP connections are set up.
#[derive(Clone, Debug)]
pub struct StreamTls {
    group: Arc<str>,
    dials: Arc<rustls::ClientConfig>,
    accepts: Arc<rustls::ServerConfig>,
}

impl StreamTls {
    /// For a service of this group that calls its protocol so. Another protocol at the same port is turned away during
    /// the handshake.
    pub fn new(identity: &Identity, group: &str, protocol: &[u8]) -> Result<Self, StreamTlsError> {
        let failed = |error: tls::TlsError| StreamTlsError(error.to_string());
        Ok(StreamTls {
            group: group.into(),
            dials: Arc::new(tls::dials(identity, protocol).map_err(failed)?),
            accepts: Arc::new(tls::accepts(identity, protocol).map_err(failed)?),
        })
    }

    /// For whoever dials.
    pub fn dials(&self) -> Arc<rustls::ClientConfig> {
        self.dials.clone()
    }

    /// For whoever accepts.
    pub fn accepts(&self) -> Arc<rustls::ServerConfig> {
        self.accepts.clone()
    }

    /// The name to ask for when a member is dialled.
    pub fn name_of(&self, member: MemberId) -> Result<ServerName<'static>, StreamTlsError> {
        let name = name::of_member(member, &self.group);
        ServerName::try_from(name).map_err(|error| StreamTlsError(error.to_string()))
    }

    /// Who has shown these certificates, in a handshake that succeeded; `None` if nobody of this group.
    pub fn caller(&self, shown: Option<&[CertificateDer<'_>]>) -> Option<Caller> {
        let leaf = shown?.first()?;
        match name::member_of(leaf, &self.group) {
            Ok(member) => Some(Caller::Member(member)),
            // Of several members: it must not pass for any of them.
            Err(name::Unnamed::Several { .. }) => None,
            Err(_) => name::is_of_group(leaf, &self.group).then_some(Caller::Client),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn certificate(names: &[&str]) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().unwrap();
        CertificateParams::new(names).unwrap().self_signed(&key).unwrap().der().clone()
    }

    fn identity() -> Identity {
        let key = KeyPair::generate().unwrap();
        let names = vec!["p1.shop.mandate".to_owned()];
        let pem = CertificateParams::new(names).unwrap().self_signed(&key).unwrap().pem();
        Identity::from_pem(pem.as_bytes(), pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }

    #[test]
    fn a_caller_is_who_its_certificate_names_and_nobody_without_one() {
        let tls = StreamTls::new(&identity(), "shop", b"test").unwrap();
        let caller = |names: &[&str]| tls.caller(Some(&[certificate(names)]));
        assert_eq!(caller(&["p5.shop.mandate"]), Some(Caller::Member(MemberId::new(5))));
        assert_eq!(caller(&["client.shop.mandate"]), Some(Caller::Client));
        assert_eq!(caller(&["p5.other.mandate"]), None, "another group");
        assert_eq!(caller(&["p5.shop.mandate", "p4.shop.mandate"]), None, "several");
        assert_eq!(caller(&["*.shop.mandate"]), None, "a wildcard");
        assert_eq!(caller(&["localhost"]), None);
        assert_eq!(tls.caller(None), None);
    }
}
