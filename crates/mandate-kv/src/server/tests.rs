//! Who may ask what, and how much, at members that run.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
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
use crate::link::Link;
use crate::{KvNode, KvNodeConfig, RaftTiming};
use mandate_openraft::driver::{Answer, DriverConfig, Order, Refusal, Request as DriverRequest};

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

/// The TLS identity with this name, signed by the authority with that number. It believes the members' authority.
fn identity(name: &str, by: usize) -> Identity {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![format!("{name}.kv.mandate")]).unwrap();
    let chain = params.signed_by(&key, authority(by)).unwrap().pem();
    let (ca, key) = (authority(0).pem(), key.serialize_pem());
    Identity::from_pem(ca.as_bytes(), chain.as_bytes(), key.as_bytes()).unwrap()
}

fn ids() -> impl Iterator<Item = MemberId> {
    (1..=3).map(MemberId::new)
}

/// A member of three. They answer at the first three ports, and their elections at the others.
fn config(directory: &TempDir, me: MemberId, ports: &[u16]) -> KvNodeConfig {
    let at = |port: &u16| format!("127.0.0.1:{port}");
    let (interval, detect) = (Duration::from_millis(100), Duration::from_secs(1));
    let mut peers: BTreeMap<_, _> = ids().zip(&ports[3..]).collect();
    let listen = (Ipv4Addr::LOCALHOST, *peers.remove(&me).unwrap()).into();
    KvNodeConfig {
        service: "kv".into(),
        addresses: ids().zip(ports.iter().map(at)).collect(),
        directory: directory.path().join(format!("{me}.data")),
        election: PeerSetup {
            group: "kv".into(),
            listen,
            peers: peers.into_iter().map(|(id, port)| (id, at(port))).collect(),
            advertise: None,
            identity: identity(&me.to_string(), 0),
            protocol: Config::new(me, ids(), interval, detect).unwrap().into(),
            state: directory.path().join(format!("{me}.election")),
            start: Start::New,
        },
        driver: DriverConfig::default(),
        timing: RaftTiming::LAN,
        snapshot_every: 1000,
        snapshot_bytes: 1 << 30,
        keep_entries: 100,
        interim_serves: true,
        mutant: None,
    }
}

/// So many members of three, and where they answer.
async fn members(number: usize) -> (TempDir, Vec<KvNode>, BTreeMap<MemberId, String>) {
    'ports: loop {
        let directory = tempfile::tempdir().unwrap();
        let ports = mandate_servers::free_ports(6).unwrap();
        let mut nodes = Vec::new();
        for me in ids().take(number) {
            match KvNode::start(config(&directory, me, &ports)).await {
                Ok(node) => nodes.push(node),
                // Somebody has taken the port meanwhile.
                Err(crate::NodeError::Listen(..)) => continue 'ports,
                Err(error) => panic!("{error}"),
            }
        }
        let addresses = config(&directory, MemberId::new(1), &ports).addresses;
        return (directory, nodes, addresses);
    }
}

/// Member p1 of three; the others are not there.
async fn member() -> (TempDir, KvNode, String) {
    let (directory, mut nodes, mut addresses) = members(1).await;
    (directory, nodes.remove(0), addresses.remove(&MemberId::new(1)).unwrap())
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
    Request::RaftDriver(DriverRequest { term: u64::MAX, order: Order::Report { led: true } })
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
    let Reply::RaftDriver(Answer::Refused(Refusal::NotElected)) = refused else {
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

/// For what hangs.
const BOUND: Duration = Duration::from_secs(90);

const MEGABYTE: usize = 1 << 20;

/// Three members that serve: the one that leads, another, and a client.
async fn serving(
    nodes: &[KvNode],
    addresses: &BTreeMap<MemberId, String>,
) -> (usize, usize, crate::KvClient) {
    let led = async {
        loop {
            if let Some(leader) = nodes.iter().position(|node| node.status().leads) {
                return leader;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let leader = timeout(BOUND, led).await.unwrap();
    let who = MemberId::new(leader as u32 + 1);
    let client = crate::KvClient::new("kv", addresses, &identity("client", 0), who, BOUND).unwrap();
    (leader, (leader + 1) % 3, client)
}

/// Held by tests that look at the memory of the process.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// What this process holds, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Four connections on which nothing is read, and on which so many requests are sent each. Ends when all were taken, or
/// none was for a while: the connections, and how many were taken.
async fn silent(
    at: &str,
    to: MemberId,
    requests: usize,
    request: fn() -> Request,
) -> (Vec<impl Sized>, usize) {
    let taken = Arc::new(AtomicUsize::new(0));
    let mut sending = Vec::new();
    for _ in 0..4 {
        let tls = StreamTls::new(&identity("client", 0), "kv", wire::PROTOCOL).unwrap();
        let stream = TcpStream::connect(at).await.unwrap();
        let name = tls.name_of(to).unwrap();
        let connector = tokio_rustls::TlsConnector::from(tls.dials());
        let mut frames = wire::frames(connector.connect(name, stream).await.unwrap());
        let to = to.get().into();
        let hello =
            Hello { version: wire::VERSION, service: "kv".into(), to, lane: Lane::Requests };
        frames.send(wire::encode(&hello).unwrap()).await.unwrap();
        let taken = taken.clone();
        sending.push(tokio::spawn(async move {
            for number in 1..=requests as u64 {
                let call = wire::encode(&Call { number, request: request() }).unwrap();
                frames.send(call).await.unwrap();
                taken.fetch_add(1, Ordering::Relaxed);
            }
            std::future::pending::<()>().await;
        }));
    }
    let (mut before, mut since) = (0, Instant::now());
    while before < 4 * requests && since.elapsed() < Duration::from_secs(5) {
        sleep(Duration::from_millis(20)).await;
        let now = taken.load(Ordering::Relaxed);
        if now > before {
            (before, since) = (now, Instant::now());
        }
    }
    (sending.into_iter().map(AbortOnDrop).collect(), before)
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn read() -> Request {
    let way = wire::Way { passed_on: false, within_ms: 60_000 };
    Request::Read { key: "k".into(), way }
}

fn write() -> Request {
    let operation =
        crate::types::Operation::Put { key: "k".into(), value: vec![7; MEGABYTE].into() };
    let command = crate::types::WriteCommand { client: 1, number: 1, operation };
    Request::Write { command, way: wire::Way { passed_on: false, within_ms: 60_000 } }
}

/// A value came from the leader before anyone asked whether there was room for it.
#[tokio::test(flavor = "multi_thread")]
async fn reads_through_a_follower_that_nobody_takes_are_bounded_and_hold_up_nobody_else() {
    let _alone = ALONE.lock().await;
    let (_directory, nodes, addresses) = members(3).await;
    let (_, follower, mut client) = serving(&nodes, &addresses).await;
    client.put("k", vec![7; MEGABYTE]).await.unwrap();
    let (before, to) = (memory(), MemberId::new(follower as u32 + 1));
    let (connections, taken) = silent(&addresses[&to], to, 250, read).await;
    assert_eq!(taken, 1000, "questions are short");
    let replies = &nodes[follower].member().replies;
    // Until as much is on its way as may be, and what the leader sends besides has come.
    let full = async {
        while replies.free() >= MEGABYTE {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(BOUND, full).await.unwrap();
    let mut others =
        crate::KvClient::new("kv", &addresses, &identity("client", 0), to, BOUND).unwrap();
    for number in 0..50 {
        others.put("other", format!("{number}").into_bytes()).await.unwrap();
    }
    let held = memory().saturating_sub(before);
    assert!(held < 500 * MEGABYTE, "{held} bytes are held");
    drop(connections);
    let free = async {
        while replies.free() < crate::room::REPLIES {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(BOUND, free).await.expect("what was held is let go of");
    for node in nodes {
        node.shutdown().await;
    }
}

/// A value that waits for room would be held besides the one that has replaced it.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_read_when_there_is_room_for_it() {
    let (_directory, nodes, addresses) = members(3).await;
    let found = loop {
        let (leader, _, mut client) = serving(&nodes, &addresses).await;
        client.put("k", &b"old"[..]).await.unwrap();
        let member = nodes[leader].member();
        let leads = member.driver.report().leads;
        let all = member.replies.take(crate::room::REPLIES).await.unwrap();
        let (asked, at) = (member.load.total(), addresses[&member.me].clone());
        let tls = StreamTls::new(&identity("client", 0), "kv", wire::PROTOCOL).unwrap();
        let service = Service { name: "kv".into(), tls };
        let link = Link::new(at.into(), &service, member.me, Lane::Requests);
        let reading = tokio::spawn(async move { link.call(read()).await });
        while member.load.total() == asked {
            sleep(Duration::from_millis(5)).await;
        }
        client.put("k", &b"the new value"[..]).await.unwrap();
        drop(all);
        let found = timeout(BOUND, reading).await.unwrap().unwrap().unwrap();
        // Where another leads by now, this member may not have the new value yet, and may rightly answer with the old one.
        if leads.is_some() && member.driver.report().leads == leads {
            break found;
        }
    };
    let Reply::Value(Some(found)) = found else { panic!("{found:?}") };
    assert_eq!(&found[..], b"the new value");
    for node in nodes {
        node.shutdown().await;
    }
}

/// Its election could not start either: what it complains of is what it tried first.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_opens_its_log_before_it_takes_part() {
    let directory = tempfile::tempdir().unwrap();
    let ports = mandate_servers::free_ports(6).unwrap();
    let me = MemberId::new(1);
    KvNode::start(config(&directory, me, &ports)).await.unwrap().shutdown().await;
    let stored = || {
        let mut config = config(&directory, me, &ports);
        config.election.start = Start::Stored;
        config
    };
    let log = stored().directory.join("log.redb");
    std::fs::remove_file(&log).unwrap();
    crate::log::Log::create(&log, 5, None).unwrap().close().await.unwrap();
    let bound = async {
        loop {
            match tokio::net::UdpSocket::bind(stored().election.listen).await {
                Ok(socket) => return socket,
                // The member's own is let go of a moment after its end.
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let _taken = timeout(BOUND, bound).await.unwrap();
    let refused = KvNode::start(stored()).await.err().unwrap();
    assert!(refused.to_string().contains("is not the one that belongs"), "{refused}");
}

/// Nobody leads, so each write waits.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_are_bounded() {
    let _alone = ALONE.lock().await;
    let (_directory, node, at) = member().await;
    let before = memory();
    let (_connections, taken) = silent(&at, MemberId::new(1), 250, write).await;
    assert!(taken < 250, "{taken} megabytes were taken");
    let held = memory().saturating_sub(before);
    assert!(held < 500 * MEGABYTE, "{held} bytes are held");
    node.shutdown().await;
}

/// Time is the test's. The client takes a value every two seconds, which is slow, and not dead.
#[tokio::test(start_paused = true)]
async fn a_client_is_dropped_when_it_takes_nothing_and_not_when_it_takes_long() {
    use tokio::io::AsyncReadExt;
    for takes in [40, 5] {
        let (ours, mut theirs) = tokio::io::duplex(1 << 12);
        let (replies, waiting) = mpsc::channel(UNDER_WAY);
        for number in 0..40 {
            let reply = Reply::Value(Some(vec![7; MEGABYTE].into()));
            replies.send((Return { number, reply }, None)).await.unwrap();
        }
        drop(replies);
        let client = tokio::spawn(async move {
            let mut frame = vec![0; MEGABYTE];
            for _ in 0..takes {
                theirs.read_exact(&mut frame).await.unwrap();
                sleep(Duration::from_secs(2)).await;
            }
            // The rest of a frame each, which is a few bytes longer than its value.
            if takes == 40 {
                theirs.read_to_end(&mut frame).await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        let sent = send(Lane::Requests, &Activity::default(), ours, waiting).await;
        assert_eq!(sent.is_ok(), takes == 40, "{takes}: {sent:?}");
        client.abort();
    }
}
