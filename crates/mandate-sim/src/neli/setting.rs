//! What a seed draws: groups, their ledger, links and clocks.

use core::num::NonZeroU32;
use core::time::Duration;

use mandate_proto::neli::memory::{
    AssignmentRule, Broker, BrokerConfig, ClientConfig, Coordination, GroupId, InstanceId, Renewals,
};
use mandate_proto::neli::{Config, Grants, LedgerPlan, Mode, Partition, RecordDelivery};

use super::{MemberConfig, Mutant, NodeConfig, Options};
use crate::clock::HostClocks;
use crate::host::member;
use crate::link::{Delay, LinkModel};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::world::Machinery;

/// The setting of a run.
pub(super) struct Setting {
    /// How many members, over all groups.
    pub(super) size: usize,
    pub(super) groups: usize,
    pub(super) partitions: u32,
    pub(super) plan: LedgerPlan,
    pub(super) nodes: Vec<(NodeConfig, HostClocks)>,
    pub(super) coordinator: HostIndex,
    /// Partitions go round these.
    pub(super) logs: Vec<HostIndex>,
    pub(super) rough: LinkModel,
    pub(super) calm: LinkModel,
    pub(super) machinery: Machinery,
    /// What a message takes at most on calm days.
    pub(super) delay: Duration,
    pub(super) storm: Duration,
    /// Members that share a static name take it from each other: nobody may count on a leader then.
    pub(super) shares_names: bool,
    /// A coordinator that was deposed may answer inspections.
    pub(super) has_old_marks: bool,
    /// How many times as long as its plan says a group may take to have leaders; infinite, if that is not asked.
    pub(super) patience: f64,
    /// Members keep what does not move, and prove it by renewals.
    pub(super) keeps_terms: bool,
    /// Clients come back as another, and say nothing.
    pub(super) hides_losses: bool,
    /// A member that is dead and not yet noticed counts when partitions are divided: some may move.
    pub(super) counts_the_dead: bool,
}

/// Clocks are off by up to this many parts of a billion, and this many thousandths are allowed for.
const DRIFTS: [(i64, u32); 2] = [(9_000_000, 10), (50_000_000, 60)];

/// What is drawn for all members alike.
struct Drawn {
    session: Duration,
    heartbeat: Duration,
    barrier: Duration,
    drift: i64,
    allowed: u32,
    delay: Duration,
    longest_delay: Duration,
    assignor: AssignmentRule,
    partitions: NonZeroU32,
    coordination: Coordination,
}

impl Drawn {
    fn new(random: &mut Random) -> Self {
        let session = random.between(Duration::from_millis(60), Duration::from_millis(400));
        let heartbeat = session / random.pick(&[3, 5, 8]);
        let (drift, allowed) = random.pick(&DRIFTS);
        let partitions = NonZeroU32::new(random.pick(&[1, 2, 2, 3, 4])).expect("some");
        let longest_delay = session * random.pick(&[1, 2]);
        Drawn {
            session,
            heartbeat,
            barrier: session * 3 + heartbeat * 3 + longest_delay * 5,
            drift,
            allowed,
            delay: session / 60,
            longest_delay,
            assignor: random.pick(&[AssignmentRule::CooperativeSticky, AssignmentRule::RoundRobin]),
            partitions,
            coordination: Coordination::Generations,
        }
    }

    fn broker(&self, delivery: RecordDelivery) -> BrokerConfig {
        let (partitions, assignor) = (self.partitions, self.assignor);
        let (shortest_session, coordination) = (Duration::ZERO, self.coordination);
        BrokerConfig { partitions, assignor, shortest_session, delivery, coordination }
    }

    fn clock(&self, random: &mut Random) -> HostClocks {
        // The worst is that one is as fast and another as slow as allowed.
        let between = random.below(2 * self.drift as u64 + 1) as i64 - self.drift;
        HostClocks::new(random.pick(&[self.drift, -self.drift, between]))
    }

    fn client(&self, fetches: Option<Duration>) -> ClientConfig {
        ClientConfig {
            session: self.session,
            heartbeat: self.heartbeat,
            barrier: self.barrier,
            assignor: self.assignor,
            instance: None,
            hides_losses: false,
            renewals: Renewals::WithTheRest,
            coordination: self.coordination,
            fetches,
        }
    }

    fn grants(&self, delivery: RecordDelivery) -> Grants {
        let broker = Broker::new(self.broker(delivery));
        broker.grants(self.session, self.heartbeat, self.barrier)
    }

    fn calm_links(&self) -> LinkModel {
        LinkModel {
            delay: Delay::Uniform(Duration::ZERO, self.delay),
            max_delay: self.delay,
            in_order: true,
            ..LinkModel::perfect(self.delay)
        }
    }

    /// Connections keep what they carry, and its order; they only take their time.
    fn rough_links(&self, random: &mut Random) -> LinkModel {
        let mean = self.session.mul_f64(random.pick(&[0.005, 0.02, 0.1, 0.3]));
        let delay = match random.below(3) {
            0 => Delay::Exponential(mean),
            1 => Delay::Pareto { min: mean / 3, shape: 1.5 },
            _ => Delay::Uniform(Duration::ZERO, mean * 2),
        };
        let (max_delay, in_order) = (self.longest_delay, true);
        LinkModel { delay, max_delay, loss: 0.0, duplication: 0.0, in_order, bursts: None }
    }
}

/// What proves ownership in a run of exclusive mode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    Renewals,
    /// And static names, which take effect at once.
    RenewalsAndNames,
    /// Records of one's own.
    Records,
}

/// What members find that had a partition before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    Plain,
    /// Of members with other thresholds.
    OfMany,
    /// Old ones, at times.
    Old,
}

impl Setting {
    /// Exclusive mode: one group.
    pub(super) fn exclusive(seed: u64, options: &Options) -> Self {
        let mut random = Random::new(seed, Stream::Setting);
        let mut drawn = Drawn::new(&mut random);
        // Also so short that members are thrown out that live.
        drawn.barrier = match random.below(3) {
            0 => drawn.session + drawn.heartbeat,
            1 => drawn.session * 2,
            _ => drawn.barrier,
        };
        let proof = match options.mutant {
            // What is wrong with these shows where a partition changes hands while its former owner runs.
            Some(Mutant::NoGrace | Mutant::OverWhileLed | Mutant::OwnThreshold) => {
                random.pick(&[Proof::Renewals, Proof::RenewalsAndNames])
            }
            Some(Mutant::NoAllowance | Mutant::SilentReturn) => Proof::RenewalsAndNames,
            Some(_) => Proof::Renewals,
            None => random.pick(&[
                Proof::Renewals,
                Proof::Renewals,
                Proof::Renewals,
                Proof::Renewals,
                Proof::RenewalsAndNames,
                Proof::Records,
            ]),
        };
        if options.mutant == Some(Mutant::NoAllowance) {
            (drawn.drift, drawn.allowed) = (DRIFTS[1].0, 0);
        }
        if proof == Proof::Renewals && random.chance(0.3) && may_have_epochs(options) {
            drawn.coordination = Coordination::Epochs;
        }
        let delivery = match proof {
            Proof::Records => RecordDelivery::AssignedOnly,
            _ => RecordDelivery::Anyone,
        };
        let mut grants = drawn.grants(delivery);
        grants.fenced = proof != Proof::Records;
        let hides_losses = proof == Proof::RenewalsAndNames
            && (options.mutant == Some(Mutant::SilentReturn) || random.chance(0.5));
        let config = exclusive_config(&mut random, &drawn, options, hides_losses);
        let plan = config.resolve(grants).expect("these make a plan");
        let marks = match options.mutant {
            Some(Mutant::OwnThreshold) => Marks::OfMany,
            Some(Mutant::OldMarkCounts) => Marks::Old,
            _ => random.pick(&[Marks::Plain, Marks::OfMany, Marks::Old]),
        };
        let size = random.pick(&[1, 2, 3, 3, 4, 5, 7]);
        let wants_records = proof == Proof::Records || options.mutant == Some(Mutant::RecordsProve);
        let fetches = wants_records.then(|| plan.interval() / 3);
        let logs = match proof {
            // One broker is coordinator and log.
            Proof::Records => 0,
            _ => random.pick(&[1, 1, 2]),
        };
        let shares_names = proof == Proof::RenewalsAndNames;
        // Each process has a name of its own, or two share one.
        let named = random.pick(&[1, 2]);
        let mut setting =
            Setting::of(&mut random, &drawn, plan, (size, 1), (fetches, delivery, logs));
        setting.hides_losses = hides_losses;
        setting.counts_the_dead = drawn.coordination == Coordination::Epochs;
        setting.keeps_terms = proof == Proof::Renewals && drawn.assignor.is_cooperative();
        setting.shares_names = shares_names;
        setting.has_old_marks = marks == Marks::Old;
        for (host, (node, _)) in setting.nodes.iter_mut().enumerate() {
            if let NodeConfig::Member(config) = node {
                config.mutant = options.mutant;
                config.client.instance = shares_names.then_some(InstanceId(host as u32 / named));
                config.client.hides_losses = hides_losses;
                config.renews_apart = options.mutant != Some(Mutant::ParkedRenewals);
                config.client.renewals = match drawn.coordination {
                    Coordination::Generations if !config.renews_apart => Renewals::WithTheRest,
                    // The backend sees to it that a member with a static name gives signs of life beside.
                    Coordination::Generations if hides_losses => Renewals::Apart,
                    Coordination::Generations => Renewals::ApartAndNoSigns,
                    Coordination::Epochs => Renewals::WithTheRest,
                };
                let times = match marks == Marks::OfMany && proof != Proof::Records {
                    true => random.pick(&[1, 1, 2, 4]),
                    false => 1,
                };
                config.plan = shorter(&plan, host, times);
                if options.mutant == Some(Mutant::SilentReturn) {
                    config.plan = heedless(&config.plan);
                }
            }
        }
        setting
    }

    /// Non-exclusive mode: one group, or two disjoint ones.
    pub(super) fn overlapping(seed: u64, options: &Options) -> Self {
        let mut random = Random::new(seed, Stream::Setting);
        let drawn = Drawn::new(&mut random);
        let mut grants = drawn.grants(RecordDelivery::Anyone);
        // Marks are kept, as on Kafka, and looked at before anyone leads; or they are not.
        grants.fenced = random.chance(0.5);
        let times = random.pick(&[2, 3]);
        let plan_of = |host| {
            let config = Config::new(member(host), Mode::NonExclusive)
                .with_allowance(drawn.allowed)
                .with_threshold(drawn.session * times);
            config.resolve(grants).expect("these make a plan")
        };
        let plan = plan_of(0);
        let groups = random.pick(&[1, 1, 2]);
        let size = groups * random.pick(&[2, 2, 3, 4]);
        let fetches = Some(plan.interval() / 2);
        let mut setting = Setting::of(
            &mut random,
            &drawn,
            plan,
            (size, groups),
            (fetches, RecordDelivery::Anyone, 1),
        );
        setting.rough = setting.calm;
        for (host, (node, _)) in setting.nodes.iter_mut().enumerate() {
            if let NodeConfig::Member(config) = node {
                config.mutant = options.mutant;
                config.plan = plan_of(host);
            }
        }
        setting
    }

    fn of(
        random: &mut Random,
        drawn: &Drawn,
        plan: LedgerPlan,
        (size, groups): (usize, usize),
        (fetches, delivery, logs): (Option<Duration>, RecordDelivery, usize),
    ) -> Self {
        let coordinator = size;
        let logs = match logs {
            0 => vec![coordinator],
            logs => (coordinator + 1..=coordinator + logs).collect(),
        };
        let last = logs.last().copied().unwrap_or(coordinator);
        let work = plan.drain().mul_f64(random.pick(&[0.0, 0.1, 0.5, 1.5]));
        let mut nodes: Vec<_> = (0..size)
            .map(|host| {
                let config = MemberConfig {
                    plan,
                    client: drawn.client(fetches),
                    group: GroupId((host % groups) as u32),
                    coordinator: member(coordinator),
                    logs: logs.iter().map(|log| member(*log)).collect(),
                    renews_apart: true,
                    work,
                    mutant: None,
                };
                (NodeConfig::Member(Box::new(config)), drawn.clock(random))
            })
            .collect();
        for _ in coordinator..=last {
            nodes.push((NodeConfig::Broker(drawn.broker(delivery)), drawn.clock(random)));
        }
        let calm = drawn.calm_links();
        Setting {
            size,
            groups,
            partitions: drawn.partitions.get(),
            plan,
            nodes,
            coordinator,
            logs,
            rough: match random.chance(0.4) {
                true => calm,
                false => drawn.rough_links(random),
            },
            calm,
            machinery: Machinery { lateness: drawn.session / 60, write_time: Duration::ZERO },
            delay: drawn.delay,
            storm: drawn.session * 30,
            shares_names: false,
            has_old_marks: false,
            patience: 1.0,
            keeps_terms: false,
            hides_losses: false,
            counts_the_dead: false,
        }
    }

    pub(super) fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.partitions).map(Partition::new)
    }
}

/// What these do shows with generations only.
fn may_have_epochs(options: &Options) -> bool {
    !matches!(options.mutant, Some(Mutant::GenerationIsTerm | Mutant::ParkedRenewals))
}

fn exclusive_config(
    random: &mut Random,
    drawn: &Drawn,
    options: &Options,
    hides_losses: bool,
) -> Config {
    // Beyond the session, too: what a ledger holds a partition for does not matter.
    let share = match options.mutant {
        // Drift needs its time to show.
        Some(Mutant::NoAllowance) => 1.5,
        // A client that comes back in silence is noticed by a session without a renewal.
        _ if hides_losses => random.pick(&[0.9, 0.5, 0.25]),
        _ => random.pick(&[1.5, 0.9, 0.5, 0.25]),
    };
    Config::new(member(0), Mode::Exclusive)
        .with_allowance(drawn.allowed)
        .with_drain(drawn.session.min(drawn.barrier / 2))
        .with_threshold(drawn.session.mul_f64(share))
}

/// The same, for one that thinks that no silence is too long to have been a member all the time.
fn heedless(plan: &LedgerPlan) -> LedgerPlan {
    let mut grants = *plan.grants();
    let rest = grants.session;
    grants.session *= 1000;
    let config = Config::new(plan.me(), plan.mode())
        .with_allowance(plan.allowance_per_mille())
        .with_drain(plan.drain())
        .with_rest(rest)
        .with_threshold(plan.threshold());
    config.resolve(grants).expect("these make a plan")
}

/// The same for this host, with a threshold so many times shorter, as far as messages still get through in time.
fn shorter(plan: &LedgerPlan, host: HostIndex, times: u32) -> LedgerPlan {
    let shortest = plan.grants().session / 4;
    let config = Config::new(member(host), plan.mode())
        .with_allowance(plan.allowance_per_mille())
        .with_drain(plan.drain())
        .with_threshold((plan.threshold() / times).max(shortest));
    config.resolve(*plan.grants()).expect("these make a plan")
}
