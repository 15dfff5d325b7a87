//! A certificate authority for one test.

use mandate_peer::links::Identity;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, as PEM texts.
pub(crate) struct Papers {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Papers with these names.
    pub(crate) fn papers(&self, names: &[&str]) -> Papers {
        self.sign(params(names))
    }

    /// Papers that were good once.
    pub(crate) fn expired(&self, names: &[&str]) -> Papers {
        let mut params = params(names);
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        self.sign(params)
    }

    /// An identity whose holder believes this authority and shows these papers.
    pub(crate) fn identity(&self, papers: &Papers) -> Identity {
        let (ca, chain, key) =
            (self.pem.as_bytes(), papers.chain.as_bytes(), papers.key.as_bytes());
        Identity::from_pem(ca, chain, key).unwrap()
    }

    fn sign(&self, params: CertificateParams) -> Papers {
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Papers { chain, key: key.serialize_pem() }
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    CertificateParams::new(names).unwrap()
}

#[test]
fn an_identity_says_which_of_its_parts_is_wrong() {
    let authority = Authority::new();
    let (papers, other) =
        (authority.papers(&["p1.shop.mandate"]), authority.papers(&["p2.shop.mandate"]));
    let (ca, chain, key) =
        (authority.pem.as_bytes(), papers.chain.as_bytes(), papers.key.as_bytes());
    let wrong = |ca, chain, key| Identity::from_pem(ca, chain, key).unwrap_err().to_string();
    assert!(wrong(b"", chain, key).contains("no certificate of an authority"));
    assert!(wrong(ca, b"", key).contains("no certificate of this member"));
    assert!(wrong(ca, chain, b"").contains("no usable private key"));
    assert!(wrong(ca, chain, other.key.as_bytes()).contains("does not belong to"));
    let damaged = papers.chain.replace("-----END", "-----EMD");
    assert!(wrong(ca, damaged.as_bytes(), key).contains("certificate is damaged"));
    let nonsense = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(wrong(nonsense, chain, key).contains("authority are damaged"));
    let secret = papers.key.lines().nth(1).unwrap();
    assert!(!format!("{:?}", authority.identity(&papers)).contains(secret));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let missing = std::path::Path::new("/nowhere/ca.pem");
    let error = Identity::from_files(missing, missing, missing).unwrap_err().to_string();
    assert!(error.contains("/nowhere/ca.pem"), "{error}");
}
