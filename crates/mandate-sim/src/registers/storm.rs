//! What a seed draws: a group, its database, and what befalls them.

use core::time::Duration;

use mandate_proto::election::Figures;
use mandate_proto::identity::Term;
use mandate_proto::oracle::Preference;
use mandate_proto::registers::{Config, Input, Part, SqlGuarantee, StayId};

use super::database::DatabaseConfig;
use super::{Flaws, Mutant, NodeInput, Options, SimulatedNodeConfig, Strain, Trouble};
use crate::clock::HostClocks;
use crate::fault::{DiskFate, Fault};
use crate::host::member;
use crate::link::{Delay, LinkModel};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::storm::{Happening, Happenings, LeaderFault, Storm};
use crate::time::SimTime;
use crate::values;
use crate::world::Machinery;

/// The setting of a run.
pub(super) struct Setting {
    pub(super) size: usize,
    /// Of member p1, which may lead; the others differ in how they take part.
    pub(super) config: Config,
    /// Of all members, in order.
    pub(super) configs: Vec<Config>,
    pub(super) nodes: Vec<(SimulatedNodeConfig, HostClocks)>,
    pub(super) rough: LinkModel,
    pub(super) calm: LinkModel,
    pub(super) machinery: Machinery,
    /// What a statement takes at most on calm days, there and back.
    pub(super) delay: Duration,
    pub(super) storm: Duration,
    /// After this long nobody waits any more for what was lost in the storm.
    pub(super) forgotten: Duration,
    /// Where it is a role that is led, who is preferred after the storm.
    pub(super) preferred: Option<HostIndex>,
}

/// Clocks are off by up to this many parts of a billion, and this many thousandths are allowed for.
const DRIFTS: [(i64, u32); 2] = [(9_000_000, 10), (50_000_000, 60)];

impl Setting {
    pub(super) fn draw(seed: u64, options: &Options) -> Self {
        let mut random = Random::new(seed, Stream::Setting);
        let size = random.pick(&[1, 2, 3, 3, 4, 5, 5, 7, 9, 12]);
        let round = random.between(Duration::from_millis(40), Duration::from_millis(400));
        let (drift, allowed) = random.pick(&DRIFTS);
        let allowed = if options.mutant == Some(Mutant::NoAllowance) { 0 } else { allowed };
        let renewals = random.pick(&[2, 3, 4, 5]);
        let lease = random.pick(&[1000, 1100, 1250, 1500, 2000, 2500]);
        let growth = if options.restores { 2 } else { random.pick(&[1, 2, 8]) };
        let step = round / random.pick(&[2, 8, 40]);
        let timeout = round.mul_f64(random.pick(&[0.5, 1.0, 2.0]));
        let guarantee = match random.chance(0.25) {
            true => SqlGuarantee::Fenced,
            false => SqlGuarantee::Leased,
        };
        let config = Config::new(member(0), round)
            .and_then(|config| config.with_lease(renewals, lease))
            .and_then(|config| config.with_growth(round * growth, step, random.pick(&[1, 3, 10])))
            .and_then(|config| config.with_allowance(allowed))
            .and_then(|config| config.with_timeout(timeout))
            .and_then(|config| config.with_missed(random.pick(&[1, 2, 3])))
            .and_then(|config| config.with_roles(random.pick(&[0, 0, 0, 7])))
            .expect("these make a configuration")
            .with_guarantee(guarantee)
            .with_oracle(random.pick(&["constant", "history"]).parse().expect("an oracle"));
        // A quarter of what there is between renewals, there and back and at the database.
        let delay = round / renewals / 4;
        let calm = LinkModel {
            delay: Delay::Uniform(Duration::ZERO, delay / 4),
            max_delay: delay / 4,
            ..LinkModel::perfect(delay / 4)
        };
        // In some runs only faults disturb a quick database.
        let is_quick = random.chance(0.3);
        let timing = (drift, delay, is_quick);
        let mut nodes = nodes(size, &config, &mut random, timing, options);
        mix(seed, &mut nodes);
        let configs = nodes.iter().filter_map(|(node, _)| match node {
            SimulatedNodeConfig::Member { config, .. } => Some(config.clone()),
            SimulatedNodeConfig::Database(_) => None,
        });
        Setting {
            size,
            configs: configs.collect(),
            nodes,
            rough: match is_quick {
                true => calm,
                false => rough_links(&mut random, config.lease(round)),
            },
            calm,
            machinery: Machinery { lateness: round / 40, write_time: Duration::ZERO },
            delay,
            storm: round * 20,
            // Who hands a role over in vain tries again after the time that it takes to evict three times missing.
            forgotten: timeout * 4 + round * growth * if options.role { 14 } else { 4 },
            preferred: options
                .role
                .then(|| Random::new(seed ^ 0x501E, Stream::Setting).below(size as u64) as usize),
            config,
        }
    }

    pub(super) fn database(&self) -> HostIndex {
        self.size
    }

    /// The database on calm days.
    pub(super) fn calm_strain(&self) -> Strain {
        Strain::calm(self.delay / 2)
    }
}

fn nodes(
    size: usize,
    config: &Config,
    random: &mut Random,
    (drift, delay, is_quick): (i64, Duration, bool),
    options: &Options,
) -> Vec<(SimulatedNodeConfig, HostClocks)> {
    let lease = config.lease(config.round());
    let strain = Strain {
        mean: delay / 4,
        most: delay * 4,
        slow_share: random.pick(&[0.0, 0.02, 0.1, 0.3]),
        slow: lease.mul_f64(random.pick(&[0.2, 0.7, 2.0])),
        failing: random.pick(&[0.0, 0.02, 0.1]),
        broken: random.pick(&[0.0, 0.02, 0.1]),
    };
    let strain = if is_quick { Strain::calm(delay / 2) } else { strain };
    let flaws = Flaws {
        takeover_ignores_beat: options.mutant == Some(Mutant::TakeoverIgnoresBeat),
        renewal_ignores_beat: options.mutant == Some(Mutant::RenewalIgnoresBeat),
        takeover_ignores_history: options.mutant == Some(Mutant::HistoryIgnored),
    };
    let (has_backups, notifies) = (options.restores || options.losses, random.chance(0.3));
    let row = options.role.then(|| config.first());
    let database = DatabaseConfig { strain, flaws, has_backups, notifies, row };
    let database = SimulatedNodeConfig::Database(database);
    let mut nodes: Vec<_> = (0..size)
        .map(|host| {
            // The first may always lead, so that somebody can.
            let part = match host > 0 && random.chance(0.1) {
                true => Part::Observer,
                false if options.role => Part::Role,
                false => Part::Candidate,
            };
            let preference = match host > 0 && random.chance(0.1) {
                true => Preference::Never,
                false => Preference::default(),
            };
            let config = config.clone().with_me(member(host)).with_part(part);
            let config = config.with_preference(preference);
            // The worst is that one is as fast and another as slow as allowed.
            let between = random.below(2 * drift as u64 + 1) as i64 - drift;
            let clock = HostClocks::new(random.pick(&[drift, -drift, between]));
            let (database, mutant) = (member(size), options.mutant);
            (SimulatedNodeConfig::Member { config, database, mutant }, clock)
        })
        .collect();
    nodes.push((database, HostClocks::new(0)));
    nodes
}

/// In some groups members differ in what should be the same: an operator changes it, one after the other.
fn mix(seed: u64, nodes: &mut [(SimulatedNodeConfig, HostClocks)]) {
    let mut random = Random::new(seed ^ 0x313D, Stream::Setting);
    if !random.chance(0.25) {
        return;
    }
    for (node, _) in nodes {
        let SimulatedNodeConfig::Member { config, .. } = node else { continue };
        let guarantee = random.pick(&[SqlGuarantee::Fenced, SqlGuarantee::Leased]);
        let lease = random.pick(&[1000, 1250, 2500]);
        let renewals = random.pick(&[2, 4]);
        let mixed = config.clone().with_guarantee(guarantee).with_lease(renewals, lease);
        *config = mixed.expect("these make a configuration");
    }
}

fn rough_links(random: &mut Random, lease: Duration) -> LinkModel {
    let mean = lease.mul_f64(random.pick(&[0.01, 0.05, 0.2, 0.5]));
    let delay = match random.below(3) {
        0 => Delay::Exponential(mean),
        1 => Delay::Pareto { min: mean / 3, shape: 1.5 },
        _ => Delay::Uniform(Duration::ZERO, mean * 2),
    };
    LinkModel {
        delay,
        max_delay: lease * 5,
        loss: random.pick(&[0.0, 0.01, 0.05]),
        duplication: 0.0,
        in_order: random.chance(0.5),
        bursts: None,
    }
}

/// The storm of a seed.
pub(super) fn draw(seed: u64, setting: &Setting, options: &Options) -> Storm<NodeInput> {
    let lease = setting.config.lease(setting.config.round());
    let leader_faults = LeaderFault::draw(seed, (lease, setting.storm), (6, LeaderFault::COMMON));
    let happenings = happenings(seed, setting, options);
    Storm { happenings, leader_faults, lasts: setting.storm }
}

/// What happens in the storm; what would come after it does not.
fn happenings(seed: u64, setting: &Setting, options: &Options) -> Happenings<NodeInput> {
    let mut random = Random::new(seed, Stream::Faults);
    let mut happenings = Vec::new();
    for _ in 0..3 + random.below(12) {
        let begin = SimTime::ZERO + random.between(Duration::ZERO, setting.storm);
        let length = setting.config.lease(setting.config.round()) * random.pick(&[1, 3, 6]);
        let end = begin + random.between(Duration::ZERO, length);
        draw_fault(&mut random, setting, (begin, end), &mut happenings);
    }
    for _ in 0..random.below(12) {
        let at = SimTime::ZERO + random.between(Duration::ZERO, setting.storm);
        draw_input(&mut random, setting, at, &mut happenings);
    }
    if options.role {
        draw_role(seed, setting, &mut happenings);
    }
    if options.restores {
        // Rounds grow to twice what they are in these runs.
        let longest = setting.configs.iter().map(Config::longest_lease).max().unwrap_or_default();
        let down = setting.config.wait(longest) + longest / 10;
        let trouble = Trouble::Restore { writes: 1 + random.below(40) as usize, down };
        let at = SimTime::ZERO + random.between(setting.storm / 4, setting.storm);
        let happening = Happening::Tell(setting.database(), NodeInput::Database(trouble));
        happenings.push((at, happening));
    }
    if options.losses {
        draw_losses(seed, setting, &mut happenings);
    }
    draw_publications(seed, setting, &mut happenings);
    let over = SimTime::ZERO + setting.storm;
    happenings.retain(|(at, _)| *at < over);
    happenings
}

/// Whether leaders publish values in this run.
pub(super) fn publishes(seed: u64) -> bool {
    Random::new(seed ^ 0x7A1E, Stream::Setting).chance(0.2)
}

/// In some runs everyone is asked to publish, now and then: the leader of that moment does.
fn draw_publications(seed: u64, setting: &Setting, happenings: &mut Happenings<NodeInput>) {
    if !publishes(seed) {
        return;
    }
    let mut random = Random::new(seed ^ 0x7A1E, Stream::Faults);
    for number in 0..random.below(40) {
        let at = SimTime::ZERO + random.between(Duration::ZERO, setting.storm);
        for host in 0..setting.size {
            let input = NodeInput::Member(Input::Publish(values::of_host(host, number)));
            happenings.push((at, Happening::Tell(host, input)));
        }
    }
}

/// A member of the group is so, or is not any more: under which incarnation.
pub(super) fn joined(incarnation: Option<u64>) -> NodeInput {
    NodeInput::Member(Input::Joined(incarnation.map(StayId::new)))
}

/// The group's leader prefers another, or one that is dead or may not lead; members are thrown out of the group and join again.
fn draw_role(seed: u64, setting: &Setting, happenings: &mut Happenings<NodeInput>) {
    let mut random = Random::new(seed ^ 0x501E, Stream::Faults);
    let at = |random: &mut Random| SimTime::ZERO + random.between(Duration::ZERO, setting.storm);
    for _ in 0..random.below(12) {
        let preferred = Some(member(random.below(setting.size as u64 + 1) as usize));
        let preferred = Trouble::Prefer(preferred.filter(|_| random.chance(0.9)));
        let at = at(&mut random);
        happenings.push((at, Happening::Tell(setting.database(), NodeInput::Database(preferred))));
    }
    for incarnation in 0..random.below(8) {
        let (host, begin) = (random.below(setting.size as u64) as usize, at(&mut random));
        let end = begin + random.between(Duration::ZERO, setting.config.round() * 4);
        happenings.push((begin, Happening::Tell(host, joined(None))));
        happenings.push((end, Happening::Tell(host, joined(Some(1_000 + incarnation)))));
    }
}

/// The row vanishes or goes back, alone or with everything; or the database forgets what it had acknowledged, and is back at once, or
/// sooner or later than a lease.
fn draw_losses(seed: u64, setting: &Setting, happenings: &mut Happenings<NodeInput>) {
    let mut random = Random::new(seed ^ 0x1057, Stream::Faults);
    let longest = setting.config.wait(setting.config.longest_lease());
    for _ in 0..1 + random.below(3) {
        let at = SimTime::ZERO + random.between(setting.storm / 8, setting.storm);
        let loss = match random.below(6) {
            0 => Trouble::Vanish { history: false },
            1 => Trouble::Vanish { history: true },
            2 | 3 => Trouble::RestoreRow { writes: 1 + random.below(20) as usize },
            _ => {
                let writes = random.pick(&[1, 2, 40]);
                let writes = 1 + random.below(writes) as usize;
                let down = random.pick(&[Duration::ZERO, longest / 8, longest]);
                Trouble::Restore { writes, down: random.between(Duration::ZERO, down) }
            }
        };
        happenings.push((at, Happening::Tell(setting.database(), NodeInput::Database(loss))));
    }
}

fn draw_fault(
    random: &mut Random,
    setting: &Setting,
    (begin, end): (SimTime, SimTime),
    happenings: &mut Happenings<NodeInput>,
) {
    let database = setting.database();
    let host = random.below(setting.size as u64) as usize;
    let mut fault = |at, fault| happenings.push((at, Happening::Fault(fault)));
    match random.below(12) {
        0..=2 => {
            fault(begin, Fault::Crash(host));
            fault(end, Fault::Recover { host, disk: DiskFate::Kept });
        }
        3 | 4 => {
            fault(begin, Fault::Pause(host));
            fault(end, Fault::Resume(host));
        }
        5 => {
            fault(begin, Fault::Suspend { host, clock_stops: false });
            fault(end, Fault::Resume(host));
        }
        6..=8 => {
            let lost = random.below(3);
            for (from, to, is_cut) in [(host, database, lost != 0), (database, host, lost != 1)] {
                if is_cut {
                    fault(begin, Fault::Cut { from, to });
                    fault(end, Fault::Mend { from, to });
                }
            }
        }
        9 => {
            fault(begin, Fault::Pause(database));
            fault(end, Fault::Resume(database));
        }
        10 => {
            let input = NodeInput::Database(Trouble::Locked(end - begin));
            happenings.push((begin, Happening::Tell(database, input)));
        }
        _ => {
            let input = NodeInput::Database(Trouble::Reset);
            happenings.push((begin, Happening::Tell(database, input)));
        }
    }
}

fn draw_input(
    random: &mut Random,
    setting: &Setting,
    at: SimTime,
    happenings: &mut Happenings<NodeInput>,
) {
    let host = random.below(setting.size as u64) as usize;
    let to = member(random.below(setting.size as u64) as usize);
    let input = match random.below(8) {
        0 | 1 => Input::Resign,
        2 | 3 => Input::Transfer { to },
        4 => Input::RowChanged,
        5 => Input::LeaderSessionGone { term: Term::new(1 + random.below(12)) },
        6 => Input::Figures(Figures { history: Some(random.below(100)), ..Figures::default() }),
        _ => {
            // It leaves, ends, and comes back.
            let end = at + setting.config.round();
            happenings.push((end, Happening::Fault(Fault::Crash(host))));
            let recover = Fault::Recover { host, disk: DiskFate::Kept };
            happenings.push((end + setting.config.round(), Happening::Fault(recover)));
            Input::Leave
        }
    };
    happenings.push((at, Happening::Tell(host, NodeInput::Member(input))));
}
