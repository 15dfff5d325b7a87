//! Who may ask what, at a member that runs.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::OnceLock;
use std::time::Duration;

use mandate_peer::PeerSetup;
use mandate_peer::links::{Identity, StreamTls};
use mandate_proto::pole::member::Config;
use mandate_runtime::Start;
use openraft::Vote;
use openraft::raft::{AppendEntriesRequest, VoteRequest};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use super::*;
use crate::driver::{Answer, DriverConfig, Order, Refusal, Request as DriverRequest};
use crate::service::link::Link;
use crate::service::{Node, NodeConfig, RaftTiming};

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Two of them, so that one can be a stranger's.
fn authority(number: usize) -> &'static Authority {
    static MADE: OnceLock<[Authority; 2]> = OnceLock::new();
    let make = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    &MADE.get_or_init(|| [make(), make()])[number]
}

/// Whoever has this name, by the authority with that number. It believes the members' authority.
fn identity(name: &str, by: usize) -> Identity {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![format!("{name}.kv.mandate")]).unwrap();
    let chain = params.signed_by(&key, authority(by)).unwrap().pem();
    let (ca, key) = (authority(0).pem(), key.serialize_pem());
    Identity::from_pem(ca.as_bytes(), chain.as_bytes(), key.as_bytes()).unwrap()
}

/// Member p1 of three; the others are not there.
async fn member() -> (TempDir, Node, String) {
    let directory = tempfile::tempdir().unwrap();
    let ids = || (1..=3).map(MemberId::new);
    let (interval, detect) = (Duration::from_millis(100), Duration::from_secs(1));
    loop {
        let ports = mandate_servers::free_ports(4).unwrap();
        let at = |port: u16| format!("127.0.0.1:{port}");
        let config = NodeConfig {
            service: "kv".into(),
            addresses: ids().zip(ports.iter().map(|port| at(*port))).collect(),
            directory: directory.path().join("data"),
            election: PeerSetup {
                group: "kv".into(),
                listen: (Ipv4Addr::LOCALHOST, ports[3]).into(),
                peers: BTreeMap::from([(MemberId::new(2), at(9)), (MemberId::new(3), at(9))]),
                identity: identity("p1", 0),
                protocol: Config::new(MemberId::new(1), ids(), interval, detect).unwrap().into(),
                state: directory.path().join("election"),
                start: Start::New,
            },
            driver: DriverConfig::default(),
            timing: RaftTiming::LAN,
            snapshot_every: 1000,
            snapshot_bytes: 1 << 20,
            keep_entries: 100,
            interim_serves: true,
            mutant: None,
        };
        match Node::start(config).await {
            Ok(node) => return (directory, node, at(ports[0])),
            // Somebody has taken the port meanwhile.
            Err(crate::service::NodeError::Listen(..)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Asks as somebody.
async fn ask(at: &str, who: &Identity, lane: Lane, request: Request) -> io::Result<Reply> {
    let tls = StreamTls::new(who, "kv", wire::PROTOCOL).unwrap();
    let service = Service { name: "kv".into(), tls };
    let link = Link::new(at.into(), &service, MemberId::new(1), lane);
    timeout(Duration::from_secs(60), link.call(request)).await.unwrap()
}

fn append(term: u64, node: u64) -> Request {
    Request::Append(AppendEntriesRequest {
        vote: Vote::new_committed(term, node),
        prev_log_id: None,
        entries: Vec::new(),
        leader_commit: None,
    })
}

fn report() -> Request {
    Request::Driver(DriverRequest { term: u64::MAX, order: Order::Report { led: true } })
}

/// An append of the highest term made the service useless for good, and a report of that term stopped its moves.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_members_are_taken_from_members_only_and_in_their_own_name() {
    let (_directory, node, at) = member().await;
    let at = at.as_str();
    let (client, stranger) = (identity("client", 0), identity("p2", 1));
    for lane in [Lane::Raft, Lane::Snapshots, Lane::Requests] {
        for request in [append, |term, _| append(term, 1), |_, _| report()] {
            // No connection, or a refusal.
            let asked = ask(at, &client, lane, request(u64::MAX, 2)).await;
            assert!(matches!(asked, Err(_) | Ok(Reply::Refused(_))), "{lane:?}: {asked:?}");
            ask(at, &stranger, lane, request(u64::MAX, 2)).await.unwrap_err();
        }
    }
    let no_member = identity("p7", 0);
    ask(at, &no_member, Lane::Raft, append(u64::MAX, 7)).await.unwrap_err();

    // A member in the name of another, and one that nobody has elected.
    let member = identity("p2", 0);
    let refused = ask(at, &member, Lane::Raft, append(u64::MAX, 3)).await.unwrap();
    assert!(matches!(refused, Reply::Refused(_)), "{refused:?}");
    let vote = VoteRequest::new(Vote::new(u64::MAX, 3), None);
    let refused = ask(at, &member, Lane::Raft, Request::Vote(vote)).await.unwrap();
    assert!(matches!(refused, Reply::Refused(_)), "{refused:?}");
    let refused = ask(at, &member, Lane::Raft, report()).await.unwrap();
    let Reply::Driver(Answer::Refused(Refusal::NotElected)) = refused else {
        panic!("{refused:?}")
    };

    // What is right is answered.
    let vote = VoteRequest::new(Vote::new(9, 2), None);
    let voted = ask(at, &member, Lane::Raft, Request::Vote(vote)).await.unwrap();
    assert!(matches!(voted, Reply::Vote(_)), "{voted:?}");
    let status = ask(at, &client, Lane::Requests, Request::Status).await.unwrap();
    let Reply::Status(status) = status else { panic!("{status:?}") };
    assert!(status.raft_term < 100, "{status:?}");
    node.shutdown().await;
}
