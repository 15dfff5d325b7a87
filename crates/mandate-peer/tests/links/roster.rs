//! Groups whose members come and go: members in this process, with real links and states on disk.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mandate_peer::{Peer, PeerError, PeerSetup};
use mandate_proto::pole::installation::{
    Contact, MemberChange, NoChange, PeerGuarantee, Roster, RosterId, WhyNoVote,
};
use mandate_proto::pole::member::Config;
use mandate_proto::wire;
use mandate_runtime::durable::DurableError;
use mandate_runtime::{
    ChangeError, Election, ElectionState, Event, Mandate, Protocol, Start, StartError,
};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::authority::Authority;
use crate::group::{GROUP, PATIENCE, id, name};

/// Longer than a busy host lets a thread or a write wait: no member loses its lease to it.
const LEASE: Duration = Duration::from_secs(4);

struct Group {
    authority: Authority,
    directory: TempDir,
    /// Two bytes of its addresses, which are no other test's.
    network: [u8; 2],
    peers: BTreeMap<u32, Peer>,
    /// The newest version of the protocol that members speak which are held back.
    held: BTreeMap<u32, u32>,
}

impl Group {
    fn new() -> Self {
        let [a, b] = rand::random();
        Group {
            authority: Authority::new(),
            directory: tempfile::tempdir().unwrap(),
            network: [64 + a % 128, b],
            peers: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// A group that was set up with these members, and its leader.
    async fn of(members: &[u32]) -> (Self, u32, Mandate) {
        let mut group = Group::new();
        for number in members {
            group.start(*number, members, Start::New).await;
        }
        let (leader, mandate) = group.leader().await;
        for number in members.iter().filter(|number| **number != leader) {
            group.follows(*number, leader).await;
        }
        (group, leader, mandate)
    }

    fn address(&self, number: u32) -> SocketAddr {
        let [a, b] = self.network;
        SocketAddr::from(([127, a, b, number as u8], 7400))
    }

    fn state(&self, number: u32) -> PathBuf {
        self.directory.path().join(format!("p{number}"))
    }

    /// Starts a member whose configuration names these.
    async fn start(&mut self, number: u32, configured: &[u32], start: Start) {
        self.try_start(number, configured, start).await.unwrap();
    }

    /// The same; one that has just been stopped may need a moment to let go of its state and its address.
    async fn try_start(
        &mut self,
        number: u32,
        configured: &[u32],
        start: Start,
    ) -> Result<(), PeerError> {
        let started = async {
            loop {
                match Peer::start(self.setup(number, configured, start)).await {
                    Ok(peer) => return Ok(peer),
                    Err(
                        PeerError::Links(mandate_peer::links::LinkError::Bind { .. })
                        | PeerError::Start(StartError::Durable(DurableError::InUse { .. })),
                    ) => sleep(Duration::from_millis(10)).await,
                    Err(error) => return Err(error),
                }
            }
        };
        let peer = timeout(PATIENCE, started).await.expect("it can be started")?;
        self.peers.insert(number, peer);
        Ok(())
    }

    fn setup(&self, number: u32, configured: &[u32], start: Start) -> PeerSetup {
        let interval = Duration::from_millis(100);
        let guarantee = PeerGuarantee::Leased { lease: LEASE, allowance_per_mille: 10 };
        let members = configured.iter().copied().map(id);
        let config = Config::new(id(number), members, interval, LEASE)
            .and_then(|config| config.with_timeout(LEASE / 4))
            .and_then(|config| config.with_guarantee(guarantee))
            .and_then(|config| {
                config.with_protocol(self.held.get(&number).copied().unwrap_or(wire::VERSION))
            })
            .unwrap();
        let others = configured.iter().filter(|other| **other != number);
        PeerSetup {
            group: GROUP.to_owned(),
            listen: self.address(number),
            peers: others.map(|other| (id(*other), self.address(*other).to_string())).collect(),
            advertise: None,
            identity: self.authority.identity(&self.authority.papers(&[&name(number)])),
            protocol: Protocol::Pole(config),
            state: self.state(number),
            start,
        }
    }

    async fn stop(&mut self, number: u32) {
        self.peers.remove(&number).unwrap().shutdown().await;
    }

    fn election(&self, number: u32) -> &Election {
        self.peers[&number].election()
    }

    /// Waits until someone leads.
    async fn leader(&self) -> (u32, Mandate) {
        let found = async {
            loop {
                for (number, peer) in &self.peers {
                    let state = peer.election().state().borrow().clone();
                    if let Some(mandate) = state.mandate().filter(|mandate| mandate.check()) {
                        return (*number, mandate.clone());
                    }
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, found).await.expect("a leader")
    }

    async fn follows(&self, number: u32, leader: u32) {
        let mut state = self.election(number).state();
        let follows = state.wait_for(|state| {
            matches!(state, ElectionState::Following { leader: of, .. } if *of == id(leader))
        });
        timeout(PATIENCE, follows).await.expect("a leader to follow").unwrap();
    }

    fn add(&self, number: u32, replaces: Option<u32>) -> MemberChange {
        let address = self.address(number).to_string();
        let contact = Contact { name: format!("host{number}"), address };
        MemberChange::Add { member: id(number), contact, replaces: replaces.map(id) }
    }

    /// Has the leader change the members, as soon as it has made the change before.
    async fn change(&self, leader: u32, change: MemberChange) -> Result<Roster, ChangeError> {
        let made = async {
            loop {
                match self.election(leader).change_members(change.clone()).await {
                    Err(ChangeError::Refused(NoChange::UnderWay | NoChange::NoQuorum)) => {
                        sleep(Duration::from_millis(10)).await;
                    }
                    done => return done,
                }
            }
        };
        timeout(PATIENCE, made).await.expect("a change")
    }

    /// Waits until these go by a list with these voters and nobody else.
    async fn agree(&self, numbers: &[u32], voters: &[u32]) {
        let voters: Vec<_> = voters.iter().copied().map(id).collect();
        for number in numbers {
            let mut members = self.election(*number).members();
            let wanted = members.wait_for(|roster| {
                let roster = roster.as_ref().unwrap();
                roster.members().eq(voters.iter().copied())
                    && roster.voters().count() == voters.len()
            });
            let wanted = timeout(PATIENCE, wanted).await.map(|found| found.is_ok());
            let found = self.election(*number).members().borrow().clone();
            assert_eq!(wanted, Ok(true), "p{number} goes by {found:?}");
        }
    }

    /// Why a member has no vote; none if it has one.
    async fn no_vote(&self, number: u32) -> Option<WhyNoVote> {
        let answered = async {
            loop {
                if let Some(status) = self.election(number).status().await {
                    return status.no_vote.map(|reason| reason.why);
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, answered).await.expect("an answer")
    }

    async fn until_no_vote(&self, number: u32, wanted: Option<WhyNoVote>) {
        let found = async {
            while self.no_vote(number).await != wanted {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, found).await.expect("another reason");
    }

    fn is_linked(&self, number: u32, other: u32) -> bool {
        self.peers[&number].links().round_trip(id(other)).is_some()
    }

    /// Waits until two have a link, or have none.
    async fn until_linked(&self, number: u32, other: u32, wanted: bool) {
        let found = async {
            while self.is_linked(number, other) != wanted {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let found = timeout(PATIENCE, found).await;
        assert!(found.is_ok(), "p{number} and p{other}: a link is {}", !wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_knows_nobody_is_added_and_votes_and_the_leader_leads_on() {
    let (mut group, leader, mandate) = Group::of(&[1, 2, 3]).await;
    let mut told = group.election(leader).events();
    group.start(4, &[4], Start::Join).await;
    assert_eq!(group.no_vote(4).await, Some(WhyNoVote::Joining));
    let settled = group.change(leader, group.add(4, None)).await.unwrap();
    assert!(settled.has(id(4)), "{settled}");
    group.agree(&[1, 2, 3, 4], &[1, 2, 3, 4]).await;
    group.follows(4, leader).await;
    group.until_no_vote(4, None).await;
    for other in 1..=3 {
        group.until_linked(4, other, true).await;
    }
    assert!(mandate.check(), "no change costs leadership");
    let changes = std::iter::from_fn(|| told.try_recv().ok());
    let changes: Vec<_> = changes.filter(|event| matches!(event, Event::Changed(_))).collect();
    assert_eq!(changes, []);
    // Everyone knows where everyone is.
    let members = group.election(4).members().borrow().clone().unwrap();
    for entry in members.entries() {
        let address = group.address(entry.id.get()).to_string();
        assert_eq!(entry.contact.address, address, "{}", entry.id);
    }
    // Of four, two are no quorum: it counts.
    let other = (1..=3).find(|number| *number != leader).unwrap();
    group.stop(other).await;
    group.stop(leader).await;
    let left: Vec<_> = group.peers.keys().copied().collect();
    assert!(left.contains(&4));
    group.start(other, &[1, 2, 3], Start::Stored).await;
    group.leader().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_is_replaced_and_the_group_then_outlives_another() {
    let (mut group, leader, mandate) = Group::of(&[1, 2, 3]).await;
    let dead = (1..=3).find(|number| *number != leader).unwrap();
    let other = (1..=3).find(|number| ![leader, dead].contains(number)).unwrap();
    group.stop(dead).await;
    group.start(5, &[5], Start::Join).await;
    group.change(leader, group.add(5, Some(dead))).await.unwrap();
    let mut present = [leader, other, 5];
    present.sort();
    group.agree(&present, &present).await;
    assert!(mandate.check(), "no change costs leadership");
    group.follows(5, leader).await;
    // Two of three are left: with the dead one on the list they would be two of four.
    group.stop(leader).await;
    let (next, later) = group.leader().await;
    assert!([other, 5].contains(&next) && later.term() > mandate.term());
    // It comes back, is told, and disturbs nobody.
    group.start(dead, &[1, 2, 3], Start::Stored).await;
    group.until_no_vote(dead, Some(WhyNoVote::NotAMember)).await;
    assert!(later.check());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_removed_knows_it_and_the_others_let_go_of_it() {
    let (mut group, leader, mandate) = Group::of(&[1, 2, 3]).await;
    let gone = (1..=3).find(|number| *number != leader).unwrap();
    let other = (1..=3).find(|number| ![leader, gone].contains(number)).unwrap();
    let left = group.change(leader, MemberChange::Remove { member: id(gone) }).await.unwrap();
    assert!(!left.has(id(gone)));
    group.until_no_vote(gone, Some(WhyNoVote::NotAMember)).await;
    let mut present = [leader, other];
    present.sort();
    group.agree(&[1, 2, 3], &present).await;
    for one in present {
        group.until_linked(one, gone, false).await;
        group.until_linked(gone, one, false).await;
    }
    assert!(mandate.check(), "no change costs leadership");
    // It has kept that.
    group.stop(gone).await;
    group.start(gone, &[1, 2, 3], Start::Stored).await;
    assert_eq!(group.no_vote(gone).await, Some(WhyNoVote::NotAMember));
    // An id is never used again, whatever its disk says.
    group.stop(gone).await;
    std::fs::remove_file(group.state(gone)).unwrap();
    group.start(gone, &[gone], Start::Join).await;
    let refused = group.change(leader, group.add(gone, None)).await.unwrap_err();
    assert_eq!(refused, ChangeError::Refused(NoChange::UsedBefore));
    assert!(refused.to_string().contains("has had that id before"), "{refused}");
    let known = group.change(leader, group.add(other, None)).await.unwrap_err();
    assert_eq!(known, ChangeError::Refused(NoChange::Known));
    assert_eq!(group.no_vote(gone).await, Some(WhyNoVote::Joining));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_grows_from_one_to_seven_and_shrinks_to_three_under_one_leader() {
    let (mut group, leader, mandate) = Group::of(&[1]).await;
    let mut told = group.election(leader).events();
    let everyone = [1, 2, 3, 4, 5, 6, 7];
    for number in 2..=7 {
        group.start(number, &[number], Start::Join).await;
        group.change(leader, group.add(number, None)).await.unwrap();
        let present = &everyone[..number as usize];
        group.agree(present, present).await;
    }
    for number in 2..=5 {
        group.change(leader, MemberChange::Remove { member: id(number) }).await.unwrap();
        group.until_no_vote(number, Some(WhyNoVote::NotAMember)).await;
    }
    group.agree(&everyone, &[1, 6, 7]).await;
    assert!(mandate.check(), "one leader, one term");
    let changes = std::iter::from_fn(|| told.try_recv().ok());
    let changes: Vec<_> = changes.filter(|event| matches!(event, Event::Changed(_))).collect();
    assert_eq!(changes, []);
    // Those that are left need nobody else.
    for number in 2..=5 {
        group.stop(number).await;
    }
    group.election(leader).transfer(id(7)).await.unwrap();
    let mut state = group.election(7).state();
    let leads = state.wait_for(|state| state.mandate().is_some_and(Mandate::check));
    timeout(PATIENCE, leads).await.expect("the successor leads").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_restarted_with_the_first_configuration_go_by_the_list_on_disk() {
    let (mut group, leader, before) = Group::of(&[1, 2, 3]).await;
    group.start(4, &[4], Start::Join).await;
    group.change(leader, group.add(4, None)).await.unwrap();
    group.agree(&[1, 2, 3, 4], &[1, 2, 3, 4]).await;
    let removed = (1..=3).find(|number| *number != leader).unwrap();
    let mut present: Vec<_> = (1..=4).filter(|number| *number != removed).collect();
    group.change(leader, MemberChange::Remove { member: id(removed) }).await.unwrap();
    group.agree(&[1, 2, 3, 4], &present).await;
    for number in 1..=4 {
        group.stop(number).await;
    }
    for number in present.clone() {
        let configured: &[u32] = if number == 4 { &[4] } else { &[1, 2, 3] };
        // A unit file goes on saying that p4 is to be added.
        let start = if number == 4 { Start::Join } else { Start::Stored };
        group.start(number, configured, start).await;
    }
    let (leader, after) = group.leader().await;
    assert!(after.term() > before.term());
    group.agree(&present.clone(), &present).await;
    present.retain(|number| *number != leader);
    for number in present {
        group.follows(number, leader).await;
        group.until_linked(number, leader, true).await;
    }
    let edited = group.try_start(removed, &[1, 2, 3, 4], Start::Changed).await.err().unwrap();
    assert!(edited.to_string().contains("were changed while it ran"), "{edited}");
    // It has been there when it was removed.
    group.start(removed, &[1, 2, 3], Start::Stored).await;
    assert_eq!(group.no_vote(removed).await, Some(WhyNoVote::NotAMember));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_was_edited_in_some_configurations_is_refused_by_the_others() {
    let (mut group, leader, mandate) = Group::of(&[1, 2, 3]).await;
    for number in 4..=5 {
        group.start(number, &[1, 2, 3, 4, 5], Start::New).await;
    }
    for (one, other) in [(1, 4), (2, 5), (4, 1), (5, 3)] {
        let refused = async {
            loop {
                let known = group.peers[&one].links().differing();
                if let Some((_, theirs)) = known.into_iter().find(|(of, _)| *of == id(other)) {
                    return theirs.to_string();
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let theirs = timeout(PATIENCE, refused).await.expect("a refusal");
        let list = if other > 3 { "members p1 p2 p3 p4 p5, " } else { "members p1 p2 p3, " };
        assert!(theirs.contains(list), "{theirs}");
        assert!(!group.is_linked(one, other));
    }
    for number in 4..=5 {
        assert!(group.no_vote(number).await.is_some());
        let roster = group.election(number).members().borrow().clone().unwrap();
        assert_eq!(roster.id(), RosterId::SEED);
    }
    assert!(mandate.check());
    assert_eq!(group.leader().await.0, leader);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_added_and_lost_its_disk_is_kept_out_until_it_is_replaced() {
    let (mut group, leader, mandate) = Group::of(&[1, 2, 3]).await;
    group.start(4, &[4], Start::Join).await;
    group.change(leader, group.add(4, None)).await.unwrap();
    group.agree(&[1, 2, 3, 4], &[1, 2, 3, 4]).await;
    group.stop(4).await;
    std::fs::remove_file(group.state(4)).unwrap();
    // It says that it is new: the others remember what it has shown, and do not let it in.
    group.start(4, &[4], Start::Join).await;
    let refused = async {
        while group.peers[&leader]
            .links()
            .troubles()
            .get(&id(4))
            .is_none_or(|trouble| !trouble.contains("another state file than before"))
        {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, refused).await.expect("it is refused");
    group.stop(4).await;
    std::fs::remove_file(group.state(4)).unwrap();
    // It says that it has lost its disk: it is let in, and has no vote.
    group.start(4, &[1, 2, 3, 4], Start::Lost).await;
    group.until_linked(4, leader, true).await;
    group.until_no_vote(4, Some(WhyNoVote::Outdated)).await;
    group.start(5, &[5], Start::Join).await;
    group.change(leader, group.add(5, Some(4))).await.unwrap();
    group.agree(&[1, 2, 3, 5], &[1, 2, 3, 5]).await;
    group.until_no_vote(4, Some(WhyNoVote::NotAMember)).await;
    assert!(mandate.check(), "no change costs leadership");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_follows_and_never_votes() {
    let (mut group, leader, _) = Group::of(&[1, 2, 3]).await;
    // It knows where the others are, and asks them before it is added.
    group.start(4, &[1, 2, 3, 4], Start::Join).await;
    group.until_linked(4, leader, true).await;
    let MemberChange::Add { member, contact, .. } = group.add(4, None) else { panic!("it adds") };
    let settled = group.change(leader, MemberChange::Observe { member, contact }).await.unwrap();
    assert!(settled.has(id(4)) && !settled.has_voter(id(4)), "{settled}");
    group.follows(4, leader).await;
    group.until_no_vote(4, Some(WhyNoVote::Observing)).await;
    // It sees that leadership moves, and whereto.
    let next = (1..=3).find(|number| *number != leader).unwrap();
    group.election(leader).transfer(id(next)).await.unwrap();
    group.follows(4, next).await;
    group.follows(leader, next).await;
    let members = group.election(4).members().borrow().clone().unwrap();
    assert_eq!(members.voters().collect::<Vec<_>>(), [1, 2, 3].map(id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_added_before_it_ran_is_taken_in_by_the_next_leader() {
    let (mut group, leader, mandate) = Group::of(&[1, 2, 3]).await;
    let settled = group.change(leader, group.add(4, None)).await.unwrap();
    assert!(settled.has(id(4)) && !settled.has_voter(id(4)), "{settled}");
    group.stop(leader).await;
    let (next, later) = group.leader().await;
    assert!(later.term() > mandate.term());
    // Where it is, the list says.
    group.start(4, &[4], Start::Join).await;
    let left: Vec<_> = group.peers.keys().copied().collect();
    group.agree(&left, &[1, 2, 3, 4]).await;
    group.follows(4, next).await;
    group.until_no_vote(4, None).await;
    assert!(later.check(), "no change costs leadership");
    // Who was away hears of it.
    group.start(leader, &[1, 2, 3], Start::Stored).await;
    group.agree(&[leader], &[1, 2, 3, 4]).await;
    group.until_linked(leader, 4, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_none_is_refused_before_anything_runs() {
    let group = Group::new();
    let mut setup = group.setup(1, &[1], Start::New);
    setup.advertise = Some("nowhere".into());
    let error = Peer::start(setup).await.err().unwrap().to_string();
    assert!(error.contains("the address of p1") && error.contains("host:port"), "{error}");
    assert!(!group.state(1).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_changed_once_nobody_is_held_back_to_a_version_that_knows_nothing_of_it() {
    let mut group = Group::new();
    group.held.insert(2, wire::OLDEST);
    for number in 1..=3 {
        group.start(number, &[1, 2, 3], Start::New).await;
    }
    let (leader, _) = group.leader().await;
    if leader != 1 {
        group.election(leader).transfer(id(1)).await.unwrap();
    }
    for number in [2, 3] {
        group.follows(number, 1).await;
    }
    for (one, other, version) in [(1, 2, 4), (3, 2, 4), (2, 1, 4), (1, 3, 5), (3, 1, 5)] {
        let spoken = group.peers[&one].links().spoken(id(other)).expect("a link");
        assert_eq!(spoken.version, version, "p{one} and p{other}");
        assert_eq!(spoken.release.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    }
    let change = || group.change(1, group.add(4, None));
    let too_old = NoChange::TooOld { member: id(2), speaks: wire::OLDEST };
    assert_eq!(change().await, Err(ChangeError::Refused(too_old)));
    assert!(too_old.to_string().contains("p2 speaks protocol version 4"), "{too_old}");
    group.agree(&[1, 2, 3], &[1, 2, 3]).await;
    // The state is in the form that every release reads.
    let form = |group: &Group, number: u32| {
        let text = std::fs::read_to_string(group.state(number)).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    assert_eq!(form(&group, 1), "mandate state 1");

    // It is upgraded: what is new begins, and there is no way back.
    group.stop(2).await;
    group.held.clear();
    group.start(2, &[1, 2, 3], Start::Stored).await;
    group.follows(2, 1).await;
    let changed = async {
        loop {
            match group.change(1, group.add(4, None)).await {
                Err(ChangeError::Refused(NoChange::TooOld { .. })) => {
                    sleep(Duration::from_millis(10)).await;
                }
                changed => return changed,
            }
        }
    };
    let changed = timeout(PATIENCE, changed).await.expect("it says that it speaks the new one");
    assert!(changed.unwrap().has(id(4)));
    group.follows(2, 1).await;
    let has_four = |roster: &Option<Roster>| roster.as_ref().is_some_and(|it| it.has(id(4)));
    let mut members = group.election(2).members();
    timeout(PATIENCE, members.wait_for(has_four)).await.expect("it hears of it").unwrap();
    drop(members);
    group.stop(2).await;
    assert_eq!(form(&group, 2), "mandate state 2");
    group.held.insert(2, wire::OLDEST);
    let held = group.try_start(2, &[1, 2, 3], Start::Stored).await.unwrap_err();
    assert!(
        matches!(held, PeerError::Start(StartError::HeldBack { speaks: 4, needed: 5 })),
        "{held}"
    );
    assert!(held.to_string().contains("Remove `protocol`"), "{held}");
    // Nor can one that speaks no newer version join.
    group.held.insert(4, wire::OLDEST);
    let held = group.try_start(4, &[1, 2, 3], Start::Join).await.unwrap_err();
    assert!(matches!(held, PeerError::Start(StartError::HeldBack { .. })), "{held}");
}
