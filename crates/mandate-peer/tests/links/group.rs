//! Members of one test's group.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use mandate_peer::links::{Delivery, LinkError, LinkEvent, Links, LinksConfig, Settings, Versions};
use mandate_proto::identity::MemberId;
use mandate_runtime::Start;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::authority::{Authority, Papers};

/// No wait in these tests is longer: a bound on hangs, not on speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The group of these tests.
pub(crate) const GROUP: &str = "shop";

/// A running member and what it was told.
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) links: Links,
    pub(crate) events: mpsc::Receiver<LinkEvent>,
}

/// The member with this number.
pub(crate) fn id(number: u32) -> MemberId {
    MemberId::new(number)
}

/// Somewhere on this host.
pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The name in the certificate of a member of the group.
pub(crate) fn name(number: u32) -> String {
    format!("p{number}.{GROUP}.mandate")
}

/// A configuration with good papers, which a test may then spoil. Of peers with lower ids only the number
/// counts, since they dial.
pub(crate) fn config(
    authority: &Authority,
    number: u32,
    peers: &[(u32, SocketAddr)],
) -> LinksConfig {
    let papers = authority.papers(&[&name(number)]);
    config_with(authority, &papers, number, peers)
}

/// The same with other papers.
pub(crate) fn config_with(
    authority: &Authority,
    papers: &Papers,
    number: u32,
    peers: &[(u32, SocketAddr)],
) -> LinksConfig {
    let peers: BTreeMap<_, _> =
        peers.iter().map(|(number, address)| (id(*number), address.to_string())).collect();
    LinksConfig {
        group: GROUP.to_owned(),
        me: id(number),
        listen: local(0),
        peers,
        identity: authority.identity(papers),
        speaks: Versions { protocol: 0, oldest: 1, newest: 1 },
        settings: Settings::default(),
        disk: number.into(),
        start: Start::Stored,
        keeps_votes: true,
    }
}

/// Starts a member.
pub(crate) async fn start(config: LinksConfig) -> Member {
    let id = config.me;
    let (links, events) = Links::start(config).await.unwrap();
    Member { id, links, events }
}

/// Starts a member on a port that another is about to leave.
pub(crate) async fn start_when_free(config: LinksConfig) -> Member {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Links::start(config.clone()).await {
            Ok((links, events)) => return Member { id: config.me, links, events },
            Err(LinkError::Bind { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// How many connections of one host that never greet may have been taken by then: 16 at a time, each for five seconds.
pub(crate) fn most_within(elapsed: Duration) -> usize {
    16 * (1 + elapsed.as_secs() as usize / 5)
}

/// Two members, p2 and p3, with a link between them. They expect p1, and others of the test.
pub(crate) async fn pair(authority: &Authority, others: &[u32]) -> (Member, Member) {
    let nowhere = local(1);
    let others: Vec<_> = others.iter().map(|number| (*number, nowhere)).collect();
    let with = |number, address| [&[(number, address)], &others[..]].concat();
    let mut three = start(config(authority, 3, &with(2, nowhere))).await;
    let mut two = start(config(authority, 2, &with(3, three.links.local_addr()))).await;
    two.until_up(3).await;
    three.until_up(2).await;
    (two, three)
}

impl Member {
    /// Takes events until one fits. Whatever else happened is passed over.
    pub(crate) async fn until<T>(
        &mut self,
        what: impl Debug,
        mut fits: impl FnMut(LinkEvent) -> Option<T>,
    ) -> T {
        let mut passed = Vec::new();
        let found = timeout(PATIENCE, async {
            loop {
                let event = self.events.recv().await.expect("events end too early");
                passed.push(event.clone());
                if let Some(found) = fits(event) {
                    return found;
                }
            }
        });
        match found.await {
            Ok(found) => found,
            Err(_) => panic!("{} waited for {what:?}, but saw {passed:?}", self.id),
        }
    }

    pub(crate) async fn until_up(&mut self, number: u32) {
        let wanted = LinkEvent::Up { member: id(number) };
        self.until(&wanted, |event| (event == wanted).then_some(())).await;
    }

    /// Until there is a link with each of these, whichever comes first.
    pub(crate) async fn until_all_up(&mut self, numbers: &[u32]) {
        let mut missing: Vec<MemberId> = numbers.iter().map(|number| id(*number)).collect();
        self.until(numbers, |event| {
            missing.retain(|member| event != LinkEvent::Up { member: *member });
            missing.is_empty().then_some(())
        })
        .await;
    }

    pub(crate) async fn until_broken(&mut self, number: u32) {
        let wanted = LinkEvent::Broken { member: id(number) };
        self.until(&wanted, |event| (event == wanted).then_some(())).await;
    }

    /// Until a watch stands beside the link.
    pub(crate) async fn until_watched(&mut self, number: u32) {
        let watched = async {
            while !self.links.is_watched(id(number)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, watched).await.expect("no watch");
    }

    pub(crate) async fn until_watch_broke(&mut self, number: u32) {
        let wanted = LinkEvent::WatchBroke { member: id(number) };
        self.until(&wanted, |event| (event == wanted).then_some(())).await;
    }

    /// Until the member was reached where it listens.
    pub(crate) async fn until_reachable(&mut self, number: u32) {
        let reached = async {
            while !self.links.is_reachable(id(number)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, reached).await.expect("not reached");
    }

    /// Until nobody listens where the member did, or the link has ended: which of the two is noticed first is the machine's choice. Whether
    /// it was the former.
    pub(crate) async fn until_deserted_or_broken(&mut self, number: u32) -> bool {
        let member = id(number);
        self.until("an end", |event| match event {
            LinkEvent::Deserted { member: of } if of == member => Some(true),
            LinkEvent::Broken { member: of } if of == member => Some(false),
            _ => None,
        })
        .await
    }

    /// The next frame, and that nothing else happened before it.
    pub(crate) async fn frame(&mut self) -> (MemberId, Vec<u8>) {
        match timeout(PATIENCE, self.events.recv()).await.expect("no frame in time") {
            Some(LinkEvent::Received { from, frame, .. }) => (from, frame),
            other => panic!("{} expected a frame, not {other:?}", self.id),
        }
    }

    /// The next refusal.
    pub(crate) async fn refusal(&mut self) -> (Option<MemberId>, SocketAddr, String) {
        self.until("a refusal", |event| match event {
            LinkEvent::Refused { member, address, reason } => Some((member, address, reason)),
            _ => None,
        })
        .await
    }

    /// That nothing is waiting to be taken.
    pub(crate) fn nothing_more(&mut self) {
        if let Ok(event) = self.events.try_recv() {
            panic!("{} saw {event:?}", self.id);
        }
    }
}

/// That a link was never broken: the next things that both see are each other's frames. (Refusals
/// are taken out before.)
pub(crate) async fn assert_unharmed(one: &mut Member, other: &mut Member) {
    for member in [&mut *one, &mut *other] {
        while let Ok(event) = member.events.try_recv() {
            assert!(matches!(event, LinkEvent::Refused { .. }), "{} saw {event:?}", member.id);
        }
    }
    one.links.send(other.id, Delivery::Stream, b"still there?".to_vec());
    other.links.send(one.id, Delivery::Stream, b"and you?".to_vec());
    for (member, from, text) in [(other.id, one.id, "still there?"), (one.id, other.id, "and you?")]
    {
        let member = if member == one.id { &mut *one } else { &mut *other };
        let received = member.until(text, |event| match event {
            LinkEvent::Refused { .. } => None,
            other => Some(other),
        });
        assert_eq!(received.await, LinkEvent::Received { from, version: 1, frame: text.into() });
    }
}
