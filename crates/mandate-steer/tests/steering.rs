//! Sidecars beside real members of etcd. The sidecars' election is the test's: each sidecar here is always elected, and
//! again as soon as it resigns, as happens to the last one that is left.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mandate_proto::election::{Lease, State};
use mandate_proto::identity::Term;
use mandate_runtime::engine_side::{Command, EngineSide};
use mandate_runtime::event::Event;
use mandate_servers::Server;
use mandate_servers::etcd::{Etcd, EtcdConfig};
use mandate_steer::etcd::client::{Endpoint, EtcdAccess, EtcdId};
use mandate_steer::etcd::keys;
use mandate_steer::judgement::SteerSettings;
use mandate_steer::steering::{Steering, SteeringReport};
use serde_json::json;

const ANSWER: Duration = Duration::from_secs(60);

/// For what hangs.
const BOUND: Duration = Duration::from_secs(90);

/// A sidecar that runs, and what is known of it.
#[derive(Clone, Default)]
struct Sidecar {
    told: Arc<Mutex<Vec<String>>>,
    looks: Arc<AtomicU64>,
    resigned: Arc<AtomicU64>,
}

impl Sidecar {
    fn start(own: &Endpoint, access: &EtcdAccess, shadow: bool) -> Self {
        let sidecar = Sidecar::default();
        let (election, side) = EngineSide::open(None);
        tokio::spawn(sidecar.clone().elect(side));
        let settings = SteerSettings {
            settle: Duration::from_millis(1),
            pause: Duration::from_millis(200),
            ..SteerSettings::default()
        };
        let every = Duration::from_millis(50);
        let steering = Steering { every, settings, shadow };
        let etcd = mandate_steer::EtcdCluster::new(own.clone(), access.clone());
        let told = sidecar.told.clone();
        let tell = move |report: SteeringReport| told.lock().unwrap().push(report.to_string());
        tokio::spawn(steering.run(etcd, election, tell));
        sidecar
    }

    async fn elect(self, mut side: EngineSide) {
        for term in 1.. {
            let held = Lease { term: Term::new(term), began: side.now(), until: None };
            side.tell(Event::Changed(State::Leading { term: held.term }), Some(held));
            loop {
                match side.next().await {
                    Command::Resign { done, .. } => {
                        self.resigned.fetch_add(1, Ordering::Relaxed);
                        side.settle(None);
                        drop(done);
                        break;
                    }
                    Command::Figures(_) => drop(self.looks.fetch_add(1, Ordering::Relaxed)),
                    Command::Stop => return,
                    _ => {}
                }
            }
        }
    }

    fn said(&self, what: &str) -> bool {
        self.told.lock().unwrap().iter().any(|told| told.contains(what))
    }

    /// Waits until it has said that.
    async fn says(&self, what: &str) {
        self.until(what, || self.said(what)).await;
    }

    /// Waits until it has looked so often from now on.
    async fn looks(&self, times: u64) {
        let target = self.looks.load(Ordering::Relaxed) + times;
        self.until("looks", || self.looks.load(Ordering::Relaxed) >= target).await;
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            let told = self.told.lock().unwrap().join("\n");
            assert!(began.elapsed() < BOUND, "waited in vain for `{what}`:\n{told}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn resignations(&self) -> u64 {
        self.resigned.load(Ordering::Relaxed)
    }
}

struct Cluster {
    _members: Vec<Etcd>,
    endpoints: Vec<Endpoint>,
    ids: Vec<EtcdId>,
}

impl Cluster {
    fn start() -> Self {
        let mut configs = EtcdConfig::on_loopback(3).unwrap();
        for config in &mut configs {
            // etcd itself elects nobody only because this host is busy.
            config.heartbeat = Duration::from_millis(200);
            config.election = Duration::from_secs(4);
        }
        let members = Etcd::cluster(configs).unwrap();
        let endpoint =
            |member: &Etcd| Endpoint::new(&member.url(), &EtcdAccess::default()).unwrap();
        let endpoints: Vec<_> = members.iter().map(endpoint).collect();
        let ids = endpoints.iter().map(|it| it.position(ANSWER).unwrap().member).collect();
        Cluster { _members: members, endpoints, ids }
    }

    fn alarm(&self, of: usize) {
        let member = self.ids[of].0.to_string();
        let body = json!({ "action": "ACTIVATE", "memberID": member, "alarm": "NOSPACE" });
        self.endpoints[0].ask("an alarm", "/v3/maintenance/alarm", &body, ANSWER).unwrap();
    }

    fn sidecar(&self, of: usize, shadow: bool) -> Sidecar {
        Sidecar::start(&self.endpoints[of], &EtcdAccess::default(), shadow)
    }

    fn leader(&self) -> Option<EtcdId> {
        self.endpoints[0].position(ANSWER).unwrap().leader
    }

    /// Has that member lead etcd, by hand.
    fn lead(&self, by: usize) {
        let began = Instant::now();
        loop {
            let leader = self.leader();
            if leader == Some(self.ids[by]) {
                return;
            }
            let at = self.ids.iter().position(|id| Some(*id) == leader);
            let moved = at.map(|at| self.endpoints[at].move_leader(self.ids[by], ANSWER));
            assert!(began.elapsed() < BOUND, "p{} does not come to lead: {moved:?}", by + 1);
        }
    }
}

/// Every member of etcd tells the alarms of all.
#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_of_one_member_is_no_trouble_of_the_others() {
    let cluster = Cluster::start();
    cluster.alarm(0);
    let troubled = |at: usize| {
        let position = cluster.endpoints[at].position(ANSWER).unwrap();
        assert!(!position.errors.is_empty(), "all tell it: {position:?}");
        position.troubles().count()
    };
    let began = Instant::now();
    while (0..3).any(|at| cluster.endpoints[at].position(ANSWER).unwrap().errors.is_empty()) {
        assert!(began.elapsed() < BOUND);
    }
    assert_eq!([0, 1, 2].map(troubled), [1, 0, 0]);
    let sidecars = [0, 1, 2].map(|at| cluster.sidecar(at, true));
    sidecars[0].says("the own member cannot lead").await;
    // It gives leadership of the sidecars back, and is elected again at once: later and later.
    sidecars[0].until("two resignations", || sidecars[0].resignations() >= 2).await;
    for sidecar in &sidecars[1..] {
        sidecar.says("the own member is well").await;
        let resigned = sidecar.resignations();
        let told = sidecar.told.lock().unwrap().clone();
        let troubles: Vec<_> = told.iter().filter(|it| it.contains("cannot lead")).collect();
        // A busy host may keep a member from answering in time: that is another trouble.
        assert!(troubles.iter().all(|it| it.contains("does not answer")), "{troubles:?}");
        assert!(resigned == 0 || !troubles.is_empty(), "{told:?}");
    }
    let looks = || sidecars[0].looks.load(Ordering::Relaxed);
    let seldom = || sidecars[0].resignations() * 5 < looks();
    sidecars[0].until("five times as many looks as resignations", seldom).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_is_well_nobody_resigns() {
    let cluster = Cluster::start();
    (0..3).for_each(|of| cluster.alarm(of));
    let began = Instant::now();
    let sees_all = |at: usize| cluster.endpoints[at].position(ANSWER).unwrap().errors.len() == 3;
    while !(0..3).all(sees_all) {
        assert!(began.elapsed() < BOUND);
    }
    // The list of members is read while all is well; it is not, so it is read when it is wanted.
    let sidecar = cluster.sidecar(1, true);
    sidecar.says("no member could lead better").await;
    // A busy host may keep the list from coming in time, and then perhaps another is well.
    let before = sidecar.resignations();
    sidecar.looks(20).await;
    assert_eq!(sidecar.resignations(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_moves_holds_and_drains_stays_so() {
    let cluster = Cluster::start();
    let etcd = &cluster.endpoints[0];
    let sidecar = cluster.sidecar(2, false);
    sidecar.until("p3 leads", || cluster.leader() == Some(cluster.ids[2])).await;
    sidecar.says("the best member leads").await;

    // By hand: it is left there.
    cluster.lead(0);
    sidecar.says("somebody else has moved leadership").await;
    sidecar.looks(20).await;
    assert_eq!(cluster.leader(), Some(cluster.ids[0]));

    // Held, and let go again: a sidecar that is started now knows nothing of the move.
    keys::hold(etcd, "new disks", Duration::from_secs(600), ANSWER).unwrap();
    let later = cluster.sidecar(1, false);
    later.says("an operator holds leadership where it is (new disks)").await;
    later.looks(20).await;
    assert_eq!(cluster.leader(), Some(cluster.ids[0]));
    keys::resume(etcd, ANSWER).unwrap();
    later.until("p2 leads", || cluster.leader() == Some(cluster.ids[1])).await;

    // Drained: its sidecar gives leadership of the sidecars back, and has nothing moved to it.
    let (drained, lasts) = (cluster.ids[1], Duration::from_secs(600));
    keys::drain(etcd, drained, "reboot", lasts, ANSWER).unwrap();
    later.says("is drained by an operator").await;
    later.until("a resignation", || later.resignations() > 0).await;
    cluster.lead(0);
    later.looks(20).await;
    assert_eq!(cluster.leader(), Some(cluster.ids[0]));
    assert_eq!(keys::read(etcd, ANSWER).unwrap().drained.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_may_not_move_leaders_is_noticed_at_the_start() {
    let config = EtcdConfig::on_loopback(1).unwrap().remove(0);
    let member = Etcd::cluster(vec![config]).unwrap().remove(0);
    let open = Endpoint::new(&member.url(), &EtcdAccess::default()).unwrap();
    let order = |path: &str, body| open.ask("an order", path, &body, ANSWER).map(drop).unwrap();
    order("/v3/auth/role/add", json!({ "name": "root" }));
    for (user, roles) in [("root", &["root"][..]), ("steer", &[])] {
        order("/v3/auth/user/add", json!({ "name": user, "password": "secret" }));
        for role in roles {
            order("/v3/auth/user/grant", json!({ "user": user, "role": role }));
        }
    }
    order("/v3/auth/enable", json!({}));
    let sidecar = |user: &str| {
        let user = Some((user.to_owned(), "secret".to_owned()));
        let access = EtcdAccess { user, ..EtcdAccess::default() };
        let own = Endpoint::new(&member.url(), &access).unwrap();
        Sidecar::start(&own, &access, true)
    };
    let (weak, strong) = (sidecar("steer"), sidecar("root"));
    weak.says("`etcdctl user grant-role steer root`").await;
    weak.says("cannot read whether an operator holds or drains anything").await;
    strong.looks(10).await;
    assert!(!strong.said("grant-role"));
}
