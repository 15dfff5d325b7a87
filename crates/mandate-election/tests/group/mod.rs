//! A group of the peer engine on loopback.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Certificates and configurations for p1 to p3, with these tables besides; where the configurations are.
pub(crate) fn write(directory: &Path, tables: &str) -> Vec<String> {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    write("ca.pem", &authority.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(authority, key);
    let ports = mandate_servers::free_ports(3).unwrap();
    let member = |me: usize| {
        let name = vec![format!("p{me}.test.mandate")];
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(name).unwrap().signed_by(&key, &issuer).unwrap();
        write(&format!("p{me}.pem"), &certificate.pem());
        write(&format!("p{me}.key"), &key.serialize_pem());
        let others = (1..=3).filter(|other| *other != me);
        let peer = |id: usize| format!("p{id} = '127.0.0.1:{}'\n", ports[id - 1]);
        let file = format!("p{me}.toml");
        write(
            &file,
            &format!(
                "group = 'test'\nmember = 'p{me}'\nlisten = '127.0.0.1:{}'\nstate = 'p{me}.state'\n\
                 [peers]\n{}[tls]\nca = 'ca.pem'\ncertificate = 'p{me}.pem'\nkey = 'p{me}.key'\n{tables}",
                ports[me - 1],
                others.map(peer).collect::<String>()
            ),
        );
        directory.join(file).display().to_string()
    };
    (1..=3).map(member).collect()
}
