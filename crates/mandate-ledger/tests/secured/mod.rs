//! A private Kafka with a second door: TLS, and a password.
//!
//! It is started as always, and then once more with further settings: of those that a file has twice, the later count.

use std::io::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

use mandate_servers::Server;
use mandate_servers::kafka::{Kafka, KafkaServerConfig};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

pub(crate) const USER: &str = "mandate";
pub(crate) const PASSWORD: &str = "a-password";

/// How a password may be shown: as it is, or so that nobody who listens learns it.
pub(crate) const MECHANISMS: [&str; 2] = ["PLAIN", "SCRAM-SHA-512"];

/// How long a session lasts in the consumer protocol, where the broker decides.
pub(crate) const CONSUMER_SESSION: Duration = Duration::from_secs(6);

pub(crate) struct Secured {
    server: Kafka,
    port: u16,
    certificates: Certificates,
}

impl Secured {
    pub(crate) fn launch() -> Self {
        let config = KafkaServerConfig { user: Some((USER, PASSWORD)), ..KafkaServerConfig::TUNED };
        let mut server = Kafka::launch(&config).expect("Kafka starts");
        let port = mandate_servers::free_ports(1).expect("a port is free")[0];
        let certificates = Certificates::new();
        let node = &mut server.nodes()[0];
        node.stop().expect("it stops");
        let directory = node.directory().to_owned();
        std::fs::write(directory.join("server.pem"), &certificates.server).expect("it is written");
        let file = directory.join("server.properties");
        let before = std::fs::read_to_string(&file).expect("it has settings");
        let more = settings(&before, port, &directory.join("server.pem").display().to_string());
        let mut file = std::fs::OpenOptions::new().append(true).open(&file).expect("it is there");
        file.write_all(more.as_bytes()).expect("it is written");
        node.start().expect("it starts again");
        Secured { server, port, certificates }
    }

    /// Where everyone may go.
    pub(crate) fn plain(&self) -> String {
        self.server.brokers()
    }

    /// Where TLS and a password are needed.
    pub(crate) fn protected(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn authority(&self) -> &str {
        &self.certificates.authority
    }
}

fn settings(before: &str, port: u16, keys: &str) -> String {
    let value = |name: &str| {
        let line = before.lines().rev().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} is set"))
    };
    let session = CONSUMER_SESSION.as_millis();
    format!(
        "\nlisteners={},SECURED://127.0.0.1:{port}\n\
         advertised.listeners={},SECURED://127.0.0.1:{port}\n\
         listener.security.protocol.map={},SECURED:SASL_SSL\n\
         sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n\
         listener.name.secured.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule \
         required;\n\
         listener.name.secured.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
         required user_{USER}=\"{PASSWORD}\";\n\
         listener.name.secured.ssl.keystore.type=PEM\n\
         listener.name.secured.ssl.keystore.location={keys}\n\
         group.consumer.min.session.timeout.ms={session}\ngroup.consumer.session.timeout.ms={session}\n\
         group.consumer.min.heartbeat.interval.ms=200\ngroup.consumer.heartbeat.interval.ms=200\n",
        value("listeners="),
        value("advertised.listeners="),
        value("listener.security.protocol.map="),
    )
}

/// An authority, and what it has signed for the server.
pub(crate) struct Certificates {
    /// To be trusted, as PEM.
    pub(crate) authority: String,
    /// Key and certificate, as PEM.
    server: String,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        // Who has the name of who signed it has signed itself.
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key is made");
        let authority = params.self_signed(&key).expect("it signs itself");
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(["localhost".into()]).expect("a name");
        params.subject_alt_names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
        let key = KeyPair::generate().expect("a key is made");
        let signed = params.signed_by(&key, &issuer).expect("it is signed");
        let server = key.serialize_pem() + &signed.pem();
        Certificates { authority: authority.pem(), server }
    }
}
