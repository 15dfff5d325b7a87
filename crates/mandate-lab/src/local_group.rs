//! Elections among the servers of a topology, in virtual time: the protocol itself, which measures its
//! round trips by pings, over links with jitter.

use std::collections::BTreeSet;
use std::time::Duration;

use mandate_proto::election::{Figures, State};
use mandate_proto::identity::MemberId;
use mandate_proto::oracle::Oracle;
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_proto::pole::member::{Config, Event, Input, Member, Message, Moves, Record};
use mandate_proto::pole::selection::Rules;
use mandate_sim::clock::HostClocks;
use mandate_sim::fault::Fault;
use mandate_sim::link::{Delay, LinkModel};
use mandate_sim::pole::MemberConfig;
use mandate_sim::subject::{Moment, Observation, SimulationObserver};
use mandate_sim::time::SimTime;
use mandate_sim::world::{Machinery, World};
use mandate_sim::{host_of, member};

use mandate_cli::topology::Topology;

/// How a group is set up.
#[derive(Clone, Debug)]
pub struct GroupSetup {
    /// How candidates are scored.
    pub oracle: Oracle,
    /// What leaders may rely on.
    pub guarantee: PeerGuarantee,
    /// Improvements over the paper.
    pub rules: Rules,
    /// Moves by score.
    pub moves: Option<Moves>,
    /// Heartbeats and pings.
    pub interval: Duration,
    /// Detection bound.
    pub detect: Duration,
    /// T of the selection.
    pub timeout: Duration,
    /// The standard deviation of a delay, as a share of its mean. The paper has 2 %.
    pub jitter: f64,
}

impl GroupSetup {
    /// The paper's jitter, heartbeats every 330 ms, a crash noticed within a second, no leases.
    pub fn new(oracle: Oracle) -> Self {
        GroupSetup {
            oracle,
            guarantee: PeerGuarantee::Fenced,
            rules: Rules::default(),
            moves: None,
            interval: Duration::from_millis(330),
            detect: Duration::from_millis(1000),
            timeout: Duration::from_millis(500),
            jitter: 0.02,
        }
    }
}

/// A group of members on a topology.
///
/// ```
/// use std::time::Duration;
/// use mandate_lab::local_group::{GroupSetup, LocalGroup};
/// use mandate_cli::topology::Topology;
///
/// let text = include_str!("../../../docs/examples/three-data-centres.toml");
/// let topology = Topology::parse(text).unwrap();
/// let mut group = LocalGroup::new(1, &topology, &GroupSetup::new("latency/5ms".parse().unwrap()));
/// group.run_for(Duration::from_secs(30));
/// let first = group.leader().unwrap();
/// group.crash(first);
/// group.run_for(Duration::from_secs(5));
/// assert_ne!(group.leader(), Some(first));
/// ```
pub struct LocalGroup {
    world: World<Member, Log>,
    ids: Vec<MemberId>,
}

/// What was told, when and by whom; and what was sent.
#[derive(Default)]
struct Log {
    events: Vec<(SimTime, usize, Event)>,
    election_messages: u64,
    two_at_once: bool,
    leading: BTreeSet<usize>,
}

impl SimulationObserver<Member> for Log {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, Member>) {
        match what {
            Observation::Told(event) => {
                if let Event::Changed(state) = event {
                    match state {
                        State::Leading { .. } => self.leading.insert(moment.host),
                        _ => self.leading.remove(&moment.host),
                    };
                    self.two_at_once |= self.leading.len() > 1;
                }
                self.events.push((moment.now, moment.host, (*event).clone()));
            }
            Observation::Delivered {
                message: Message::Selection(_) | Message::Installation(_) | Message::Handover { .. },
                ..
            } => self.election_messages += 1,
            Observation::Faulted(Fault::Crash(host)) => {
                self.leading.remove(host);
            }
            _ => {}
        }
    }
}

impl LocalGroup {
    /// Starts a member for each server of `topology`.
    ///
    /// # Panics
    ///
    /// If the setup makes no sound configuration.
    pub fn new(seed: u64, topology: &Topology, setup: &GroupSetup) -> Self {
        let mut servers: Vec<_> = topology.servers().iter().collect();
        servers.sort_by_key(|server| server.id);
        let size = servers.len();
        let hosts = servers.iter().enumerate().map(|(host, server)| {
            let members = (0..size).map(member);
            let config = Config::new(member(host), members, setup.interval, setup.detect)
                .and_then(|config| config.with_timeout(setup.timeout))
                .and_then(|config| config.with_guarantee(setup.guarantee))
                .map(|config| config.with_oracle(setup.oracle.clone()))
                .map(|config| config.with_rules(setup.rules).with_preference(server.preference))
                .and_then(|config| setup.moves.map_or(Ok(config.clone()), |m| config.with_moves(m)))
                .expect("a sound setup");
            let figures =
                Figures { history: server.history, requests: server.requests, application: None };
            (
                MemberConfig {
                    config,
                    edited: None,
                    joins: false,
                    is_upgraded: false,
                    figures,
                    mutant: None,
                },
                HostClocks::new(0),
            )
        });
        let perfect = LinkModel::perfect(Duration::ZERO);
        let mut world = World::new(seed, hosts, perfect, Machinery::IDEAL, Log::default());
        for (from, a) in servers.iter().enumerate() {
            for (to, b) in servers.iter().enumerate() {
                // Within a site it is quick, and not for nothing.
                let one_way = topology.round_trip_ms(a, b).max(0.1) / 2000.0;
                let mean = Duration::from_secs_f64(one_way);
                let variance = (setup.jitter * one_way).powi(2);
                let delay = match setup.jitter > 0.0 {
                    true => Delay::LogNormal { mean, variance },
                    false => Delay::Constant(mean),
                };
                let model = LinkModel { delay, max_delay: mean * 10, ..perfect };
                world.set_link(from, to, model);
            }
        }
        world.start_all();
        LocalGroup { world, ids: servers.iter().map(|server| server.id).collect() }
    }

    /// Lets time pass.
    pub fn run_for(&mut self, duration: Duration) {
        self.world.run_until(self.world.now() + duration);
    }

    /// Time since the beginning.
    pub fn now(&self) -> Duration {
        self.world.now().since_start()
    }

    /// Who holds the highest term that anyone holds now.
    pub fn leader(&self) -> Option<MemberId> {
        let held = |host: usize| {
            let local = self.world.local_time(host);
            Some((self.world.machine(host)?.mandate(local)?.0, host))
        };
        let held = (0..self.ids.len()).filter_map(held).max();
        held.map(|(_, host)| self.ids[host])
    }

    /// Has the leader hand over to `to`.
    pub fn transfer(&mut self, to: MemberId) {
        if let Some(leader) = self.leader() {
            let to = member(self.host(to));
            self.world.tell(self.host(leader), Input::Transfer { to });
        }
    }

    /// Tells a member's application figures.
    pub fn set_requests(&mut self, id: MemberId, requests: f64) {
        let figures = Figures { history: None, requests, application: None };
        self.world.tell(self.host(id), Input::Figures(figures));
    }

    /// Ends a process.
    pub fn crash(&mut self, id: MemberId) {
        self.world.inject(Fault::Crash(self.host(id)));
    }

    /// What was told since `since`: when, by whom, what. Members are named as in the simulation:
    /// by their place among the servers, from p1.
    pub fn events(&self, since: Duration) -> impl Iterator<Item = (Duration, MemberId, &Event)> {
        let since = SimTime::ZERO + since;
        let told = self.world.observer.events.iter().filter(move |(at, _, _)| *at >= since);
        told.map(|(at, host, event)| (at.since_start(), self.ids[*host], event))
    }

    /// The records of the elections that ended since `since`.
    pub fn records(&self, since: Duration) -> impl Iterator<Item = (MemberId, &Record)> {
        self.events(since).filter_map(|(_, id, event)| match event {
            Event::Elected(record) => Some((id, &**record)),
            _ => None,
        })
    }

    /// Messages of selection and installation that have arrived so far.
    pub fn election_messages(&self) -> u64 {
        self.world.observer.election_messages
    }

    /// Whether two members ever thought at one instant that they lead.
    pub fn had_two_leaders(&self) -> bool {
        self.world.observer.two_at_once
    }

    /// The server that a member of the simulation stands for.
    pub fn server(&self, simulated: MemberId) -> MemberId {
        self.ids[host_of(simulated)]
    }

    fn host(&self, id: MemberId) -> usize {
        self.ids.binary_search(&id).expect("a server of the topology")
    }
}
