//! The client against real members of etcd.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use mandate_servers::Server;
use mandate_servers::etcd::{Etcd, EtcdConfig, EtcdTls};
use mandate_steer::etcd::client::{Endpoint, EtcdAccess, EtcdError};
use mandate_steer::etcd::writes;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, IsCa, KeyPair,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const ANSWER: Duration = Duration::from_secs(60);

#[test]
fn a_cluster_is_looked_at_and_its_leader_moved() {
    let mut configs = EtcdConfig::on_loopback(3).unwrap();
    for config in &mut configs {
        // Nobody is elected only because this host is busy: terms are compared.
        config.heartbeat = Duration::from_millis(200);
        config.election = Duration::from_secs(4);
    }
    let mut members = Etcd::cluster(configs).unwrap();
    let endpoints: Vec<_> = members
        .iter()
        .map(|member| Endpoint::new(&member.url(), &EtcdAccess::default()).unwrap())
        .collect();
    let positions: Vec<_> =
        endpoints.iter().map(|endpoint| endpoint.position(ANSWER).unwrap()).collect();
    let leader = positions[0].leader.expect("a healthy cluster has a leader");
    assert!(positions.iter().all(|position| position.leader == Some(leader)));
    let listed = endpoints[0].members(ANSWER).unwrap();
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().any(|member| member.name == "p2"
        && member.client_urls == [members[1].url()]
        && member.id == positions[1].member));

    // Only the leader can hand over.
    let at = positions.iter().position(|position| position.member == leader).unwrap();
    let (other, third) = ((at + 1) % 3, (at + 2) % 3);
    let target = positions[other].member;
    let refused = endpoints[other].move_leader(target, ANSWER);
    assert!(
        matches!(&refused, Err(EtcdError::Refused { reason, .. }) if reason.contains("not leader")),
        "{refused:?}"
    );
    endpoints[at].move_leader(target, ANSWER).unwrap();
    let moved = endpoints[other].position(ANSWER).unwrap();
    assert_eq!((moved.leader, moved.term), (Some(target), positions[other].term + 1));

    // Writes are counted where they come in.
    let before = writes(&endpoints[third].metrics(ANSWER).unwrap());
    for key in 0..5 {
        endpoints[third].put(&format!("k{key}"), b"v", ANSWER).unwrap();
    }
    assert_eq!(writes(&endpoints[third].metrics(ANSWER).unwrap()), before + 5);

    // One that is stopped is given up in time.
    members[third].freeze().unwrap();
    let silent = endpoints[third].position(Duration::from_millis(300));
    assert!(matches!(silent, Err(EtcdError::Silent { .. })), "{silent:?}");
}

/// An authority, a certificate for the server and one for a client, as files.
struct Certificates {
    directory: TempDir,
}

impl Certificates {
    fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let made = Certificates { directory };
        std::fs::write(made.path("ca.pem"), authority.pem()).unwrap();
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
            // The gateway takes no certificate with a common name where there are users.
            params.distinguished_name = DistinguishedName::new();
            let certificate = params.signed_by(&key, &authority).unwrap();
            std::fs::write(made.path(&format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(made.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        // The server may run as another user.
        let open = Command::new("chmod").args(["-R", "a+rX"]).arg(made.directory.path()).status();
        assert!(open.unwrap().success());
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

#[test]
fn members_that_want_certificates_and_passwords_get_them() {
    let files = Certificates::make();
    let mut config = EtcdConfig::on_loopback(1).unwrap().remove(0);
    config.tls = Some(EtcdTls {
        certificate: files.path("server.pem"),
        key: files.path("server.key"),
        client_ca: files.path("ca.pem"),
    });
    let member = Etcd::launch(config).unwrap();
    let access = EtcdAccess {
        ca: Some(files.path("ca.pem")),
        certificate: Some((files.path("client.pem"), files.path("client.key"))),
        user: None,
    };
    let endpoint = Endpoint::new(&member.url(), &access).unwrap();
    let began = Instant::now();
    while endpoint.position(ANSWER).is_err() {
        assert!(began.elapsed() < Duration::from_secs(120), "{:?}", endpoint.position(ANSWER));
    }
    let stranger = EtcdAccess { certificate: None, ..access.clone() };
    let stranger = Endpoint::new(&member.url(), &stranger).unwrap().position(ANSWER);
    assert!(matches!(stranger, Err(EtcdError::Silent { .. })), "{stranger:?}");

    let order = |path: &str, body: Value| {
        endpoint.ask("an order", path, &body, ANSWER).unwrap_or_else(|error| panic!("{error}"));
    };
    order("/v3/auth/user/add", json!({ "name": "root", "password": "secret" }));
    order("/v3/auth/role/add", json!({ "name": "root" }));
    order("/v3/auth/user/grant", json!({ "user": "root", "role": "root" }));
    order("/v3/auth/enable", json!({}));

    let with = |password: &str| {
        let user = Some(("root".to_owned(), password.to_owned()));
        Endpoint::new(&member.url(), &EtcdAccess { user, ..access.clone() }).unwrap()
    };
    assert!(endpoint.put("key", b"value", ANSWER).is_err(), "without a user");
    let wrong = with("guessed").position(ANSWER);
    assert!(
        matches!(&wrong, Err(EtcdError::Refused { call: "this user and password", .. })),
        "{wrong:?}"
    );
    let endpoint = with("secret");
    endpoint.position(ANSWER).unwrap();
    endpoint.put("key", b"value", ANSWER).unwrap();
}
