//! Members in one process, over channels: what the handle promises, in real time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mandate_proto::election::NoTransfer;
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{
    Contact, MemberChange, NoChange, PeerGuarantee, Roster, RosterId, WhyNoVote,
};
use mandate_proto::pole::member::{Cause, Config, Handover};
use mandate_proto::value::{NoPublish, Value};
use mandate_runtime::durable::DurableError;
use mandate_runtime::transport::{Delivery, Frame, Inbound, Transport};
use mandate_runtime::{
    ChangeError, Election, ElectionState, Event, LeadError, Mandate, Protocol, Setup, Start,
    StartError, Status,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longer than a busy host lets a thread or a write wait: no member loses its lease to it.
const LEASE: Duration = Duration::from_secs(4);
/// How soon silence is noticed. The same.
const DETECT: Duration = Duration::from_secs(4);
/// A bound is for what hangs, not for speed.
const PATIENCE: Duration = Duration::from_secs(60);
const LEASED: PeerGuarantee = PeerGuarantee::Leased { lease: LEASE, allowance_per_mille: 10 };

/// Channels between members, any of which can be cut off.
#[derive(Default)]
struct Wires {
    inboxes: Mutex<BTreeMap<MemberId, mpsc::Sender<Inbound>>>,
    cut_off: Mutex<Vec<MemberId>>,
}

struct Wire {
    me: MemberId,
    wires: Arc<Wires>,
}

impl Transport for Wire {
    fn send(&self, to: MemberId, _: Delivery, frame: Frame) {
        let cut_off = self.wires.cut_off.lock().unwrap();
        if !cut_off.contains(&self.me)
            && !cut_off.contains(&to)
            && let Some(inbox) = self.wires.inboxes.lock().unwrap().get(&to)
        {
            let _ = inbox.try_send(Inbound::Received { from: self.me, frame });
        }
    }
}

struct Group {
    wires: Arc<Wires>,
    directory: TempDir,
    members: BTreeMap<u32, Election>,
    guarantee: PeerGuarantee,
}

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

impl Group {
    async fn start(size: u32, guarantee: PeerGuarantee) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let wires = Arc::new(Wires::default());
        let mut group = Group { wires, directory, members: BTreeMap::new(), guarantee };
        for id in 1..=size {
            group.add(id, size, Start::New).unwrap();
        }
        group
    }

    fn add(&mut self, id: u32, size: u32, start: Start) -> Result<(), StartError> {
        let interval = Duration::from_millis(50);
        let config = Config::new(p(id), (1..=size).map(p), interval, DETECT)
            .and_then(|config| config.with_timeout(DETECT / 4))
            .and_then(|config| config.with_guarantee(self.guarantee))
            .unwrap();
        let (inbox, inbound) = mpsc::channel(1024);
        let protocol = Protocol::Pole(config);
        let setup = Setup { protocol, group: "test".into(), state: self.path(id), start };
        let wire = Arc::new(Wire { me: p(id), wires: self.wires.clone() });
        let election = Election::start(setup, wire, inbound)?;
        self.wires.inboxes.lock().unwrap().insert(p(id), inbox);
        self.members.insert(id, election);
        Ok(())
    }

    fn path(&self, id: u32) -> std::path::PathBuf {
        Path::new(self.directory.path()).join(format!("p{id}"))
    }

    /// Waits until someone leads.
    async fn leader(&self) -> (u32, Mandate) {
        self.leader_where(|_, _| true).await
    }

    async fn leader_where(&self, wanted: impl Fn(u32, &Mandate) -> bool) -> (u32, Mandate) {
        let found = async {
            loop {
                for (id, member) in &self.members {
                    let state = member.state().borrow().clone();
                    let mandate = state.mandate().filter(|mandate| mandate.check());
                    if let Some(mandate) = mandate.filter(|mandate| wanted(*id, mandate)) {
                        return (*id, mandate.clone());
                    }
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, found).await.expect("a leader")
    }

    /// Waits until a member follows that one.
    async fn follows(&self, id: u32, leader: u32) {
        let mut state = self.members[&id].state();
        let follows = state.wait_for(
            |state| matches!(state, ElectionState::Following { leader: l, .. } if *l == p(leader)),
        );
        timeout(PATIENCE, follows).await.expect("in time").unwrap();
    }

    /// What a member knows. One that does not get to answer within a second is asked again.
    async fn status(&self, id: u32) -> Status {
        let answered = async {
            loop {
                if let Some(status) = self.members[&id].status().await {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, answered).await.expect("an answer")
    }

    fn other_than(&self, id: u32) -> u32 {
        *self.members.keys().find(|other| **other != id).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_the_others_follow_and_the_work_runs_there() {
    let group = Group::start(3, LEASED).await;
    let (leader, mandate) = group.leader().await;
    let other = group.other_than(leader);
    group.follows(other, leader).await;
    let seen = group.members[&leader].lead(async |mandate| mandate.term()).await.unwrap();
    assert_eq!(seen, mandate.term());
    // The work is done: leadership was given back, and another took over, in a higher term.
    let (next, later) = group.leader_where(|id, _| id != leader).await;
    assert_ne!(next, leader);
    assert!(later.term() > mandate.term());
    assert!(!mandate.check());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_goes_where_it_should_and_one_that_cannot_be_changes_nothing() {
    // A lease that nobody could wait out here.
    let lease = PATIENCE * 2;
    let group = Group::start(3, PeerGuarantee::Leased { lease, allowance_per_mille: 10 }).await;
    let (leader, mandate) = group.leader().await;
    let to = group.other_than(leader);
    group.follows(to, leader).await;
    assert_eq!(group.members[&to].transfer(p(leader)).await, Err(NoTransfer::NotLeading));
    assert_eq!(group.members[&leader].transfer(p(9)).await, Err(NoTransfer::NotAMember));
    assert!(mandate.check());
    group.members[&leader].transfer(p(to)).await.unwrap();
    assert!(!mandate.check(), "given up before anyone is told");
    let (next, _) = group.leader_where(|id, _| id != leader).await;
    assert_eq!(next, to);
    // Everyone can say that it was asked for.
    for id in group.members.keys().filter(|id| **id != to) {
        group.follows(*id, to).await;
    }
    for (id, member) in &group.members {
        // The state is told before the record.
        let recorded = async {
            while member.records().first().is_none_or(|record| record.leader != p(to)) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, recorded).await.expect("a record of it");
        let records = member.records();
        let record = records.first().unwrap();
        assert_eq!((record.leader, record.cause), (p(to), Cause::Transferred), "p{id}");
        assert_eq!(record.handover, Some(Handover::Asked), "p{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_seen_with_the_leader_and_gone_with_its_term() {
    let group = Group::start(3, PeerGuarantee::Fenced).await;
    let (leader, mandate) = group.leader().await;
    let other = group.other_than(leader);
    group.follows(other, leader).await;
    let value = |text| Value::new(text).unwrap();
    let refused = group.members[&other].publish(value("not mine")).await;
    assert_eq!(refused, Err(NoPublish::NotLeading));
    group.members[&leader].publish(value("10.0.0.7:80")).await.unwrap();
    for member in group.members.values() {
        let mut state = member.state();
        let shown = state.wait_for(|state| state.value() == Some(&value("10.0.0.7:80")));
        timeout(PATIENCE, shown).await.expect("everyone shows it").unwrap();
    }
    group.members[&leader].resign().await;
    assert_eq!(group.members[&leader].state().borrow().value(), None, "gone at once");
    let late = group.members[&leader].publish_under(&mandate, value("too late")).await;
    assert_eq!(late, Err(NoPublish::NotLeading));
    let (next, _) = group.leader_where(|_, now| now.term() > mandate.term()).await;
    assert_eq!(group.members[&next].state().borrow().value(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_knows_it_before_another_leads() {
    let group = Group::start(3, LEASED).await;
    let (leader, mandate) = group.leader().await;
    group.follows(group.other_than(leader), leader).await;
    let mut state = group.members[&leader].state();
    let work = group.members[&leader].lead(async |_| std::future::pending::<()>().await);
    group.wires.cut_off.lock().unwrap().push(p(leader));
    let (lost, (next, _)) = tokio::join!(work, group.leader_where(|id, _| id != leader));
    assert_eq!(lost, Err(LeadError::Lost { term: mandate.term() }));
    assert_ne!(next, leader);
    assert!(!mandate.check());
    assert!(!matches!(&*state.borrow_and_update(), ElectionState::Leading(_)));
    // Back again, it follows.
    group.wires.cut_off.lock().unwrap().clear();
    group.follows(leader, next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_cancelled_gives_leadership_back() {
    let group = Group::start(3, PeerGuarantee::Fenced).await;
    let (leader, mandate) = group.leader().await;
    group.follows(group.other_than(leader), leader).await;
    let member = group.members[&leader].clone();
    let task =
        tokio::spawn(
            async move { member.lead(async |_| std::future::pending::<()>().await).await },
        );
    group.members[&leader].led().await.unwrap();
    // Whether the task has come to lead yet or not, it must not keep leadership after its end.
    tokio::time::sleep(Duration::from_millis(20)).await;
    task.abort();
    let (next, later) = group.leader_where(|id, _| id != leader).await;
    assert_ne!(next, leader);
    assert!(later.term() > mandate.term() && !mandate.check());
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_rise_across_a_restart_of_all_members() {
    let mut group = Group::start(3, LEASED).await;
    let (_, mandate) = group.leader().await;
    for member in group.members.values() {
        member.shutdown().await;
    }
    assert!(!mandate.check());
    group.members.clear();
    for id in 1..=3 {
        // The lock of the state is let go when the driver has ended.
        let restarted = async {
            while let Err(error) = group.add(id, 3, Start::Stored) {
                assert!(error.to_string().contains("in use"), "{error}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, restarted).await.unwrap();
    }
    let (_, later) = group.leader().await;
    assert!(later.term() > mandate.term());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_does_not_fit_the_disk_is_refused_with_what_to_do() {
    let mut group = Group::start(1, LEASED).await;
    let (_, mandate) = group.leader().await;
    assert!(group.add(1, 1, Start::Stored).unwrap_err().to_string().contains("already"));
    let missing = group.add(2, 2, Start::Stored).unwrap_err().to_string();
    assert!(missing.contains("Start::New") && missing.contains("Start::Lost"), "{missing}");
    group.members[&1].shutdown().await;
    group.members.clear();
    assert!(!mandate.check());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_its_disk_recovers_from_the_others() {
    let mut group = Group::start(3, LEASED).await;
    let (leader, _) = group.leader().await;
    let lost = group.other_than(leader);
    group.members.remove(&lost).unwrap().shutdown().await;
    std::fs::remove_file(group.path(lost)).unwrap();
    // Nobody answers it before somebody listens to what it tells.
    group.wires.cut_off.lock().unwrap().push(p(lost));
    let restarted = async {
        while group.add(lost, 3, Start::Lost).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, restarted).await.unwrap();
    let mut events = group.members[&lost].events();
    group.wires.cut_off.lock().unwrap().clear();
    let recovered = async { while events.recv().await != Ok(Event::Recovered) {} };
    timeout(PATIENCE, recovered).await.unwrap();
    assert_eq!(group.status(lost).await.has_vote, Some(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn elections_are_remembered_and_explained() {
    let group = Group::start(3, LEASED).await;
    let (leader, mandate) = group.leader().await;
    group.follows(group.other_than(leader), leader).await;
    let records = group.members[&leader].records();
    assert_eq!((records[0].leader, records[0].term), (p(leader), mandate.term()));
    assert!(!records[0].ranking.candidates.is_empty());
    let status = group.status(leader).await;
    assert!(status.state.mandate().is_some() && status.candidacy.is_some_and(|it| it.is_ok()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_disk_refuses_writes_answers_questions_and_can_be_stopped() {
    let mut group = Group::start(3, LEASED).await;
    let (leader, mandate) = group.leader().await;
    let struck = group.other_than(leader);
    group.follows(struck, leader).await;
    // Where the next state would be written there is a directory.
    let in_the_way = group.directory.path().join(format!("p{struck}.new"));
    std::fs::create_dir(&in_the_way).unwrap();
    // A higher term has to be promised, and this member cannot.
    group.members[&leader].resign().await;
    group.leader_where(|_, later| later.term() > mandate.term()).await;
    for _ in 0..100 {
        group.members[&struck].set_figures(Default::default());
        group.status(struck).await;
    }
    let told = async {
        // A write that only takes long is trouble, too.
        while group.members[&struck].disk().failures == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, told).await.expect("whoever watches is told");
    let health = group.members[&struck].disk();
    assert!(health.trouble().is_some(), "{health:?}");
    assert!(health.failures > 0 && health.waiting.is_some() && health.writes > 0, "{health:?}");
    let other = group.members.remove(&struck).unwrap();
    let stuck = async { other.resign().await };
    assert!(timeout(Duration::from_millis(50), stuck).await.is_err(), "it cannot be said");
    timeout(PATIENCE, other.shutdown()).await.expect("it can be stopped");
    let mut state = other.state();
    let stopped = state.wait_for(|state| matches!(state, ElectionState::Stopped));
    timeout(PATIENCE, stopped).await.expect("it stops").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_sees_everything_and_keeps_nobody_running() {
    let mut group = Group::start(3, LEASED).await;
    let (leader, mandate) = group.leader().await;
    let observer = group.members[&leader].observer();
    let mut events = observer.events().unwrap();
    assert_eq!(observer.records()[0].term, mandate.term());
    group.members[&leader].resign().await;
    let lost = async { while !matches!(events.recv().await.unwrap(), Event::Changed(_)) {} };
    timeout(PATIENCE, lost).await.unwrap();
    group.members.clear();
    let mut state = observer.state();
    let stopped = state.wait_for(|state| matches!(state, ElectionState::Stopped));
    timeout(PATIENCE, stopped).await.unwrap().unwrap();
}

mod overlap {
    use super::*;
    use mandate_proto::nfd_l;

    fn start(group: &mut Group, id: u32, size: u32) {
        let interval = Duration::from_millis(50);
        let config = nfd_l::Config::new(p(id), interval, DETECT).unwrap();
        let protocol = Protocol::NfdL { config, members: (1..=size).map(p).collect() };
        let (inbox, inbound) = mpsc::channel(1024);
        let state = group.path(id);
        let setup = Setup { protocol, group: "test".into(), state, start: Start::New };
        let wire = Arc::new(Wire { me: p(id), wires: group.wires.clone() });
        let election = Election::start(setup, wire, inbound).unwrap();
        group.wires.inboxes.lock().unwrap().insert(p(id), inbox);
        group.members.insert(id, election);
    }

    /// Waits until one leads and all others follow it, but for those left out. In the first moments several may lead.
    async fn settled(group: &Group, left_out: &[u32]) -> (u32, Mandate) {
        let found = async {
            loop {
                let members = group.members.iter().filter(|(id, _)| !left_out.contains(id));
                let states: Vec<_> =
                    members.map(|(id, member)| (*id, member.state().borrow().clone())).collect();
                let leads = |(id, state): &(u32, ElectionState)| {
                    let mandate = state.mandate().filter(|mandate| mandate.check())?;
                    Some((*id, mandate.clone()))
                };
                let leaders: Vec<_> = states.iter().filter_map(leads).collect();
                if let [(leader, mandate)] = &leaders[..] {
                    let follows = |(id, state): &(u32, ElectionState)| {
                        id == leader
                            || matches!(state, ElectionState::Following { leader: l, .. } if *l == p(*leader))
                    };
                    if states.iter().all(follows) {
                        return (*leader, mandate.clone());
                    }
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, found).await.expect("one leader")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_leader_is_named_followed_and_replaced_and_has_no_token() {
        let mut group = Group::start(0, LEASED).await;
        (1..=3).for_each(|id| start(&mut group, id, 3));
        let (leader, mandate) = settled(&group, &[]).await;
        assert_eq!(mandate.term().get(), 0);
        let refused = group.members[&leader].transfer(p(leader % 3 + 1)).await;
        assert_eq!(refused, Err(NoTransfer::Unsupported));
        let refused = group.members[&leader].change_members(add(4)).await;
        assert_eq!(refused, Err(ChangeError::Refused(NoChange::Unsupported)));
        assert_eq!(*group.members[&leader].members().borrow(), None);
        assert!(mandate.check());
        let began = Instant::now();
        group.members[&leader].resign().await;
        assert!(!mandate.check());
        let (next, later) = settled(&group, &[]).await;
        println!("{:?} after a farewell", began.elapsed());
        assert_ne!(next, leader, "it abstains for a while");
        // Without a word, too. And the mandate of an earlier reign is not one of a later.
        group.wires.cut_off.lock().unwrap().push(p(next));
        let (last, _) = settled(&group, &[next]).await;
        assert!(later.check(), "on its side it leads on");
        assert!(last == leader || !mandate.check());
        let watcher = (1..=3).find(|id| ![next, last].contains(id)).unwrap();
        let status = group.status(watcher).await;
        let service = status.detection.expect("it watches").service;
        assert!(service.detections.count + service.mistakes.count >= 1);
    }
}

fn add(id: u32) -> MemberChange {
    let contact = Contact { name: format!("m{id}"), address: format!("m{id}:7") };
    MemberChange::Add { member: p(id), contact, replaces: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_changed_by_the_leader_and_everyone_can_see_them() {
    let mut group = Group::start(3, LEASED).await;
    let (leader, mandate) = group.leader().await;
    let (first, other) = (group.members[&leader].clone(), group.other_than(leader));
    group.follows(other, leader).await;
    assert_eq!(first.members().borrow().as_ref().unwrap().id(), RosterId::SEED);
    let refused = group.members[&other].change_members(add(4)).await;
    assert_eq!(refused, Err(ChangeError::Refused(NoChange::NotLeading)));
    let own = first.change_members(MemberChange::Remove { member: p(leader) }).await;
    assert_eq!(own, Err(ChangeError::Refused(NoChange::Leads)));
    // It is on the list whether it runs or not, and votes once it does.
    let settled = timeout(PATIENCE, first.change_members(add(4))).await.unwrap().unwrap();
    assert!(settled.has(p(4)) && !settled.has_voter(p(4)), "{settled}");
    assert_eq!(settled.id().term, mandate.term());
    group.add(4, 4, Start::Join).unwrap();
    for id in 1..=4 {
        let mut members = group.members[&id].members();
        let votes = members.wait_for(|roster| roster.as_ref().is_some_and(|it| it.has_voter(p(4))));
        timeout(PATIENCE, votes).await.expect("everyone goes by the new list").unwrap();
    }
    group.follows(4, leader).await;
    assert_eq!(group.status(4).await.has_vote, Some(true));
    // One that follows can be removed, and knows that it was.
    let removed = timeout(PATIENCE, async {
        loop {
            match first.change_members(MemberChange::Remove { member: p(other) }).await {
                Err(ChangeError::Refused(NoChange::UnderWay)) => tokio::task::yield_now().await,
                done => return done,
            }
        }
    });
    let left = removed.await.unwrap().unwrap();
    assert!(!left.has(p(other)) && left.voters().count() == 3, "{left}");
    let mut members = group.members[&other].members();
    let told = members.wait_for(|roster| roster.as_ref().is_some_and(|it| !it.has(p(other))));
    timeout(PATIENCE, told).await.expect("it is told").unwrap();
    assert!(mandate.check(), "no change has cost leadership");
    let used = first.change_members(add(4)).await;
    assert_eq!(used, Err(ChangeError::Refused(NoChange::Known)));
}

/// What was warned of.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{value:?}");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_was_changed_wins_over_the_configuration_at_the_next_start() {
    let mut group = Group::start(3, LEASED).await;
    let (leader, before) = group.leader().await;
    group.follows(group.other_than(leader), leader).await;
    timeout(PATIENCE, group.members[&leader].change_members(add(4))).await.unwrap().unwrap();
    group.add(4, 1, Start::Join).unwrap();
    for id in 1..=4 {
        let mut members = group.members[&id].members();
        let votes = members.wait_for(|roster| roster.as_ref().is_some_and(|it| it.has_voter(p(4))));
        timeout(PATIENCE, votes).await.expect("everyone goes by the new list").unwrap();
    }
    for (_, member) in std::mem::take(&mut group.members) {
        member.shutdown().await;
    }
    let refused = restart(&mut group, 1, 4, Start::Changed).await.unwrap_err();
    assert!(matches!(&refused, StartError::ChangedBefore { .. }), "{refused}");
    assert!(refused.to_string().contains("they are p1 p2 p3 p4"), "{refused}");
    let guarantee = std::mem::replace(&mut group.guarantee, PeerGuarantee::Fenced);
    let fenced = restart(&mut group, 1, 3, Start::Stored).await.unwrap_err();
    assert!(matches!(&fenced, StartError::Differs { .. }), "{fenced}");
    group.guarantee = guarantee;
    // The configurations say what they said before.
    let warnings = Warnings::default();
    let guard = tracing::subscriber::set_default(warnings.clone());
    restart(&mut group, 1, 3, Start::Stored).await.unwrap();
    drop(guard);
    let said = warnings.0.lock().unwrap().clone();
    let both = |text: &String| text.contains("they are p1 p2 p3 p4") && text.contains("p1 p2 p3, ");
    assert_eq!(said.iter().filter(|text| both(text)).count(), 1, "{said:?}");
    for id in 2..=3 {
        restart(&mut group, id, 3, Start::Stored).await.unwrap();
    }
    // A unit file still says that it is to be added.
    restart(&mut group, 4, 4, Start::Join).await.unwrap();
    let (leader, after) = group.leader().await;
    assert!(after.term() > before.term());
    for id in (1..=4).filter(|id| *id != leader) {
        group.follows(id, leader).await;
        let members = group.members[&id].members().borrow().clone().unwrap();
        assert_eq!(members.voters().collect::<Vec<_>>(), [1, 2, 3, 4].map(p), "p{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_to_be_added_has_an_empty_disk_or_one_that_says_that_it_was() {
    let mut group = Group::start(1, LEASED).await;
    group.leader().await;
    for (_, member) in std::mem::take(&mut group.members) {
        member.shutdown().await;
    }
    let refused = restart(&mut group, 1, 1, Start::Join).await.unwrap_err();
    assert!(matches!(refused, StartError::DidNotJoin(_)), "{refused}");
    // One that waits can be started again, and waits on.
    for _ in 0..2 {
        restart(&mut group, 2, 2, Start::Join).await.unwrap();
        let status = group.status(2).await;
        let why = status.no_vote.map(|it| it.why);
        assert_eq!(why, Some(WhyNoVote::Joining));
        let members = group.members[&2].members().borrow().clone().unwrap();
        assert_eq!(members, Roster::NONE, "whatever it is configured with");
        group.members.remove(&2).unwrap().shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_change_is_told_when_leadership_is_lost_or_the_member_ends() {
    let group = Group::start(3, LEASED).await;
    let (leader, mandate) = group.leader().await;
    group.follows(group.other_than(leader), leader).await;
    let first = &group.members[&leader];
    let others = group.members.keys().filter(|id| **id != leader);
    group.wires.cut_off.lock().unwrap().extend(others.map(|id| p(*id)));
    // Nobody answers, so that no quorum has it before the lease ends. That of the first step is not there either.
    let (changed, _) = tokio::join!(first.change_members(add(4)), first.lost(&mandate));
    let lost = [ChangeError::LeadershipLost, ChangeError::Refused(NoChange::Lost)];
    assert!(changed.as_ref().is_err_and(|error| lost.contains(error)), "{changed:?}");
    first.shutdown().await;
    assert_eq!(first.change_members(add(4)).await, Err(ChangeError::Stopped));
}

/// Starts a member as soon as the one before has let go of its state.
async fn restart(group: &mut Group, id: u32, size: u32, start: Start) -> Result<(), StartError> {
    for _ in 0..12_000 {
        match group.add(id, size, start) {
            Err(StartError::Durable(DurableError::InUse { .. })) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            other => return other,
        }
    }
    panic!("p{id} is still running after a minute")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_list_was_edited_does_not_start_and_a_change_of_all_keeps_terms_rising() {
    let mut group = Group::start(3, LEASED).await;
    let (leader, before) = group.leader().await;
    for (_, member) in std::mem::take(&mut group.members) {
        member.shutdown().await;
    }
    let edited = restart(&mut group, leader, 5, Start::Stored).await.unwrap_err();
    let text = edited.to_string();
    assert!(matches!(edited, StartError::Differs { .. }), "{text}");
    assert!(text.contains("members p1 p2 p3, guarantee leased"), "{text}");
    assert!(text.contains("members p1 p2 p3 p4 p5, guarantee leased"), "{text}");
    assert!(text.contains("Start::Changed"), "{text}");
    let guarantee = std::mem::replace(&mut group.guarantee, PeerGuarantee::Fenced);
    let fenced = restart(&mut group, leader, 3, Start::Stored).await.unwrap_err();
    assert!(matches!(fenced, StartError::Differs { .. }), "{fenced}");
    group.guarantee = guarantee;
    // Five, of whom three knew each other: nobody votes before the last is there.
    for id in 1..=4 {
        restart(&mut group, id, 5, Start::Changed).await.unwrap();
    }
    let status = group.status(1).await;
    assert_eq!(status.has_vote, Some(false), "p5 has not said what it knows");
    restart(&mut group, 5, 5, Start::Changed).await.unwrap();
    let (_, after) = group.leader().await;
    assert!(after.term() > before.term(), "{:?} after {:?}", after.term(), before.term());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_keeps_too_few_members_and_a_lost_disk_alone_are_refused() {
    let mut group = Group::start(3, LEASED).await;
    group.leader().await;
    for (_, member) in std::mem::take(&mut group.members) {
        member.shutdown().await;
    }
    let kept = restart(&mut group, 1, 1, Start::Changed).await.unwrap_err();
    assert!(matches!(kept, StartError::TooFewKept { kept: 1, needed: 2, .. }), "{kept}");
    let mut one = Group::start(0, LEASED).await;
    let nobody = one.add(1, 1, Start::Lost).unwrap_err();
    assert!(matches!(nobody, StartError::NobodyToAsk), "{nobody}");
    one.add(1, 2, Start::Lost).expect("of two, the other can be asked");
}
