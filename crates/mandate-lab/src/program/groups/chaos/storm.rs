//! What a seed draws: phases of faults, each held for a while and then healed.
//!
//! The member that a fault hits is drawn as *the leader* or as a place among the members. Who leads depends on real time, so
//! a seed repeats the faults and their lengths, and not every step of what follows from them.

use std::time::Duration;

use mandate_sim::random::{Random, Stream};

const MS: Duration = Duration::from_millis(1);

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The leader of that moment.
    Leader,
    /// The member at this place.
    Place(usize),
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Strike {
    /// SIGKILL; started again when the phase ends.
    Kill(Target),
    /// SIGSTOP; SIGCONT when the phase ends.
    Pause(Target),
    /// Cut off from all others.
    CutOff(Target),
    /// The group falls into two sides; of these places one.
    Partition(Vec<usize>),
    /// It hears the others, and they do not hear it.
    Mute(Target),
    /// The others hear it, and it does not hear them.
    Deafen(Target),
    /// Everything is lossy.
    Loss(f64),
    /// Its packets take longer, and not all equally long.
    Delay { target: Target, delay: Duration, jitter: Duration },
    /// All are killed at once, and started again when the phase ends.
    KillAll,
    /// Its disk takes nothing more; on a database, that of its node.
    FillDisk(Target),
    /// Its node of the database is ended in good order; started again when the phase ends.
    Stop(Target),
    /// SIGKILL for its node of the database; started again when the phase ends.
    Crash(Target),
    /// SIGSTOP for its node of the database; SIGCONT when the phase ends.
    Freeze(Target),
    /// Somebody else locks the control row there, until the phase ends.
    HoldLock(Target),
    /// All connections to the database are ended, again and again.
    BreakConnections,
    /// The group's control row is removed while a lease runs.
    Vanish,
    /// The group's control row is put back to an older copy of itself, as the restore of a dump does.
    Restore,
    /// SIGKILL for a database that acknowledges commits before they are on disk, unless a transaction asks for more.
    Forget,
    /// The host's wall clock is stepped by so many seconds; put back when the phase ends.
    StepClock(i64),
    /// Cut off from the node that decides who is in the group, and from no other.
    CutCoordinator(Target),
    /// Its engine does not run for so long, while its client goes on telling that it is alive.
    Stall(Target, Duration),
    /// As many as [`NEWCOMERS`] join at once, and leave at once when the phase ends.
    JoinStorm,
    /// Each in turn is ended in good order and started again.
    Roll,
    /// More work for every core than it can do.
    Overload,
    /// One more joins, and leaves when the phase ends.
    Join,
    /// One that leads nothing is killed, and started again at once.
    Replace,
    /// A member is added to the group.
    AddMember,
    /// A member is added in place of this one, which still runs, or has lost its disk and comes back without it.
    ReplaceMember { target: Target, is_lost: bool },
    /// A member is removed from the group. If it leads, it hands over first.
    RemoveMember(Target),
    /// A member is to be added and another removed, at once.
    TwoChanges,
}

/// Members that join at once.
pub(super) const NEWCOMERS: u32 = 4;

/// What can be drawn for members that talk to each other, and how often of all.
pub(super) const OF_PEERS: [(Kind, usize); 9] = [
    (Kind::Kill, 4),
    (Kind::Pause, 3),
    (Kind::CutOff, 3),
    (Kind::Partition, 3),
    (Kind::OneWay, 3),
    (Kind::Loss, 2),
    (Kind::Delay, 2),
    (Kind::KillAll, 1),
    (Kind::DiskFull, 3),
];

/// What can be drawn besides, where members come and go: about a quarter of all.
pub(super) const CHANGES: [(Kind, usize); 4] = [
    (Kind::AddMember, 2),
    (Kind::ReplaceMember, 3),
    (Kind::RemoveMember, 2),
    (Kind::TwoChanges, 1),
];

/// After these some members do not hear others.
pub(super) const CUTS: [Kind; 3] = [Kind::CutOff, Kind::Partition, Kind::OneWay];

/// Whether a fault of this kind changes who the members are.
pub(super) fn changes_members(kind: Kind) -> bool {
    CHANGES.iter().any(|(other, _)| *other == kind)
}

/// For members on a database that runs.
pub(super) const ON_A_SERVER: [(Kind, usize); 12] = [
    (Kind::Kill, 3),
    (Kind::Pause, 3),
    (Kind::CutOff, 3),
    (Kind::KillAll, 1),
    (Kind::DiskFull, 3),
    (Kind::Restart, 2),
    (Kind::Crash, 3),
    (Kind::Freeze, 3),
    (Kind::Lock, 3),
    (Kind::Breaks, 3),
    (Kind::Vanish, 2),
    (Kind::Restore, 2),
];

/// For members on a file.
pub(super) const ON_A_FILE: [(Kind, usize); 7] = [
    (Kind::Kill, 4),
    (Kind::Pause, 4),
    (Kind::KillAll, 1),
    (Kind::DiskFull, 3),
    (Kind::Lock, 4),
    (Kind::Vanish, 2),
    (Kind::Restore, 2),
];

/// What may happen while a control row is lost. Who starts or looks again only after the loss cannot know of a lease that
/// nothing tells of (the last assumption of `leased` in docs/sql.md), so whatever keeps members from looking heals only after
/// the longest lease; and somebody must be there to tell of the loss.
const BESIDE_A_LOSS: [Kind; 5] =
    [Kind::Vanish, Kind::Restore, Kind::Kill, Kind::Pause, Kind::CutOff];

/// The longest lease of members on a database in terms of the usual one: rounds grow eightfold.
const LONGEST_LEASE: u32 = 8;

/// For members on a ledger.
#[cfg(feature = "kafka")]
pub(super) const ON_A_LEDGER: [(Kind, usize); 14] = [
    (Kind::Kill, 3),
    (Kind::Pause, 3),
    (Kind::CutOff, 3),
    (Kind::CutCoordinator, 3),
    (Kind::KillAll, 1),
    (Kind::Restart, 2),
    (Kind::Crash, 3),
    (Kind::Freeze, 2),
    (Kind::Stall, 3),
    (Kind::JoinStorm, 2),
    (Kind::Roll, 2),
    (Kind::Overload, 2),
    (Kind::Join, 3),
    (Kind::Replace, 3),
];

/// A kind of fault, by which results are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Kind {
    /// SIGKILL, and started again.
    Kill,
    /// SIGSTOP for longer than a lease, then SIGCONT.
    Pause,
    /// A member cut off from all others, or from the database.
    CutOff,
    /// Two sides that do not hear each other.
    Partition,
    /// A member that hears and is not heard, or the reverse.
    OneWay,
    /// 5 to 30 % of all packets.
    Loss,
    /// A member 10 to 200 ms farther away, with jitter.
    Delay,
    /// SIGKILL for all at once.
    KillAll,
    /// A member that cannot write its state, or a database without room.
    DiskFull,
    /// The database ended in good order, and started again.
    Restart,
    /// SIGKILL for the database, or a node of it, and started again.
    Crash,
    /// SIGSTOP for the database, or a node of it, then SIGCONT.
    Freeze,
    /// The control row, or the file, locked by a stranger for longer than a lease.
    Lock,
    /// All connections to the database ended, again and again.
    Breaks,
    /// The group's control row removed while a lease runs.
    Vanish,
    /// The group's control row put back to an older copy of itself.
    Restore,
    /// SIGKILL for a PostgreSQL whose database has synchronous_commit = off, and started again.
    Forget,
    /// The host's wall clock stepped by up to a minute; only with --step-clock.
    ClockStep,
    /// A member cut off from the group's coordinator and from no other node.
    CutCoordinator,
    /// An engine that does not run while its client tells the ledger that it lives.
    Stall,
    /// Several members more, all at once, that leave at once.
    JoinStorm,
    /// All members ended in good order and started again, one after the other.
    Roll,
    /// Every core kept busy.
    Overload,
    /// One member more, that leaves again: it must cost nobody what does not move.
    Join,
    /// A member that leads nothing killed and started again at once: it must cost nobody anything.
    Replace,
    /// A member added to the group; only with --changes.
    AddMember,
    /// A member replaced by a new one, perhaps after its disk was lost; only with --changes.
    ReplaceMember,
    /// A member removed from the group, perhaps the leader; only with --changes.
    RemoveMember,
    /// Two changes of members at once, of which the second must be refused; only with --changes.
    TwoChanges,
}

impl Kind {
    /// As it is written on the command line.
    pub(super) fn flag(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self).expect("no kind is hidden");
        value.get_name().to_owned()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Pause => "pause",
            Kind::CutOff => "cut off",
            Kind::Partition => "partition",
            Kind::OneWay => "one-way cut",
            Kind::Loss => "loss",
            Kind::Delay => "delay",
            Kind::KillAll => "all killed",
            Kind::DiskFull => "disk full",
            Kind::Restart => "db restarted",
            Kind::Crash => "db crashed",
            Kind::Freeze => "db frozen",
            Kind::Lock => "row locked",
            Kind::Breaks => "db hangs up",
            Kind::Vanish => "row removed",
            Kind::Restore => "row restored",
            Kind::Forget => "db forgets",
            Kind::ClockStep => "clock step",
            Kind::CutCoordinator => "coordinator",
            Kind::Stall => "stall",
            Kind::JoinStorm => "join storm",
            Kind::Roll => "rolling",
            Kind::Overload => "overload",
            Kind::Join => "join",
            Kind::Replace => "replace",
            Kind::AddMember => "member added",
            Kind::ReplaceMember => "replaced",
            Kind::RemoveMember => "removed",
            Kind::TwoChanges => "two changes",
        }
    }
}

impl Strike {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Strike::Kill(_) => Kind::Kill,
            Strike::Pause(_) => Kind::Pause,
            Strike::CutOff(_) => Kind::CutOff,
            Strike::Partition(_) => Kind::Partition,
            Strike::Mute(_) | Strike::Deafen(_) => Kind::OneWay,
            Strike::Loss(_) => Kind::Loss,
            Strike::Delay { .. } => Kind::Delay,
            Strike::KillAll => Kind::KillAll,
            Strike::FillDisk(_) => Kind::DiskFull,
            Strike::Stop(_) => Kind::Restart,
            Strike::Crash(_) => Kind::Crash,
            Strike::Freeze(_) => Kind::Freeze,
            Strike::HoldLock(_) => Kind::Lock,
            Strike::BreakConnections => Kind::Breaks,
            Strike::Vanish => Kind::Vanish,
            Strike::Restore => Kind::Restore,
            Strike::Forget => Kind::Forget,
            Strike::StepClock(_) => Kind::ClockStep,
            Strike::CutCoordinator(_) => Kind::CutCoordinator,
            Strike::Stall(..) => Kind::Stall,
            Strike::JoinStorm => Kind::JoinStorm,
            Strike::Roll => Kind::Roll,
            Strike::Overload => Kind::Overload,
            Strike::Join => Kind::Join,
            Strike::Replace => Kind::Replace,
            Strike::AddMember => Kind::AddMember,
            Strike::ReplaceMember { .. } => Kind::ReplaceMember,
            Strike::RemoveMember(_) => Kind::RemoveMember,
            Strike::TwoChanges => Kind::TwoChanges,
        }
    }

    /// Whom it is about, if anyone.
    pub(super) fn target(&self) -> Option<Target> {
        match self {
            Strike::Kill(target)
            | Strike::Pause(target)
            | Strike::CutOff(target)
            | Strike::Mute(target)
            | Strike::Deafen(target)
            | Strike::Delay { target, .. }
            | Strike::FillDisk(target)
            | Strike::Stop(target)
            | Strike::Crash(target)
            | Strike::Freeze(target)
            | Strike::HoldLock(target)
            | Strike::CutCoordinator(target)
            | Strike::ReplaceMember { target, .. }
            | Strike::RemoveMember(target)
            | Strike::Stall(target, _) => Some(*target),
            Strike::Partition(_)
            | Strike::Loss(_)
            | Strike::KillAll
            | Strike::BreakConnections
            | Strike::Vanish
            | Strike::Restore
            | Strike::Forget
            | Strike::JoinStorm
            | Strike::Roll
            | Strike::Overload
            | Strike::Join
            | Strike::Replace
            | Strike::AddMember
            | Strike::TwoChanges
            | Strike::StepClock(_) => None,
        }
    }
}

/// Faults that happen together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Phase {
    /// What happens, each after a pause since the one before.
    pub(super) faults: Vec<(Duration, Strike)>,
    /// How long it stays so before everything heals.
    pub(super) lasts: Duration,
}

impl Phase {
    /// Whether nothing happens in it that may cost a leader anything that does not move.
    pub(super) fn costs_nothing(&self) -> bool {
        let costs_nothing = |kind| matches!(kind, Kind::Join | Kind::Replace);
        self.faults.iter().all(|(_, fault)| costs_nothing(fault.kind()))
    }

    /// How long it takes until it heals.
    pub(super) fn length(&self) -> Duration {
        self.faults.iter().map(|(pause, _)| *pause).sum::<Duration>() + self.lasts
    }
}

/// What is drawn from.
pub(super) struct Setting<'a> {
    pub(super) members: usize,
    pub(super) lease: Duration,
    /// How many faults there may be at a time: three at most.
    pub(super) together: u64,
    /// What can be drawn, and how often of all.
    pub(super) kinds: &'a [(Kind, usize)],
}

/// The phases of a seed, with this many faults in all.
pub(super) fn draw(seed: u64, faults: u32, setting: &Setting<'_>) -> Vec<Phase> {
    let mut random = Random::new(seed, Stream::Faults);
    let mut phases = Vec::new();
    let mut left = u64::from(faults);
    while left > 0 {
        let together = random.pick(&[1, 1, 1, 2, 2, 3]).min(left).min(setting.together);
        left -= together;
        let mut drawn: Vec<_> = (0..together)
            .map(|number| {
                let pause = if number == 0 { Duration::ZERO } else { random.between(MS, MS * 400) };
                (pause, draw_fault(&mut random, setting))
            })
            .collect();
        if drawn.iter().any(|(_, fault)| loses_row(fault)) {
            for (_, other) in &mut drawn {
                while !BESIDE_A_LOSS.contains(&other.kind()) {
                    *other = draw_fault(&mut random, setting);
                }
            }
        }
        if let Some(cut) = cut_before(&mut random, &drawn, setting).filter(|_| left > 0) {
            left -= 1;
            if let Some((pause, _)) = drawn.first_mut() {
                *pause = random.between(MS, MS * 400);
            }
            drawn.insert(0, (Duration::ZERO, cut));
        }
        phases.push(Phase { lasts: lasts(&mut random, &drawn, setting.lease), faults: drawn });
    }
    phases
}

/// What goes before a change of members in many phases, so that leaders on both sides of a cut are asked for changes.
fn cut_before(
    random: &mut Random,
    drawn: &[(Duration, Strike)],
    setting: &Setting<'_>,
) -> Option<Strike> {
    let is_change = |(_, fault): &(Duration, Strike)| changes_members(fault.kind());
    let is_cut = |kind: &Kind| CUTS.contains(kind);
    let cuts: Vec<_> = setting.kinds.iter().copied().filter(|(kind, _)| is_cut(kind)).collect();
    let is_alone = drawn.iter().all(is_change) && (drawn.len() as u64) < setting.together;
    if !is_alone || cuts.is_empty() || random.chance(0.5) {
        return None;
    }
    Some(draw_fault(random, &Setting { kinds: &cuts, ..*setting }))
}

/// Whether members lose their control row, or what it said.
fn loses_row(fault: &Strike) -> bool {
    matches!(fault, Strike::Vanish | Strike::Restore)
}

fn draw_fault(random: &mut Random, setting: &Setting<'_>) -> Strike {
    let members = setting.members;
    let kind = kind(random, setting.kinds);
    let target = if random.chance(0.6) {
        Target::Leader
    } else {
        Target::Place(random.below(members as u64) as usize)
    };
    match kind {
        Kind::Kill => Strike::Kill(target),
        Kind::Pause => Strike::Pause(target),
        Kind::CutOff => Strike::CutOff(target),
        Kind::Partition => {
            // Neither nobody nor everybody.
            let side = 1 + random.below((1 << members) - 2);
            Strike::Partition((0..members).filter(|place| side >> place & 1 == 1).collect())
        }
        Kind::OneWay if random.chance(0.5) => Strike::Mute(target),
        Kind::OneWay => Strike::Deafen(target),
        Kind::Loss => Strike::Loss((5 + random.below(26)) as f64 / 100.0),
        Kind::Delay => Strike::Delay {
            target,
            delay: MS * (10 + random.below(191)) as u32,
            jitter: MS * random.below(31) as u32,
        },
        Kind::KillAll => Strike::KillAll,
        Kind::DiskFull => Strike::FillDisk(target),
        Kind::Restart => Strike::Stop(target),
        Kind::Crash => Strike::Crash(target),
        Kind::Freeze => Strike::Freeze(target),
        Kind::Lock => Strike::HoldLock(target),
        Kind::Breaks => Strike::BreakConnections,
        Kind::Vanish => Strike::Vanish,
        Kind::Restore => Strike::Restore,
        Kind::Forget => Strike::Forget,
        Kind::ClockStep => {
            let seconds = 2 + random.below(59) as i64;
            Strike::StepClock(if random.chance(0.5) { seconds } else { -seconds })
        }
        Kind::CutCoordinator => Strike::CutCoordinator(target),
        Kind::Stall => {
            let longest = setting.lease * random.pick(&[1, 3, 6]);
            Strike::Stall(target, random.between(setting.lease / 3, longest))
        }
        Kind::JoinStorm => Strike::JoinStorm,
        Kind::Roll => Strike::Roll,
        Kind::Overload => Strike::Overload,
        Kind::Join => Strike::Join,
        Kind::Replace => Strike::Replace,
        Kind::AddMember => Strike::AddMember,
        Kind::ReplaceMember => Strike::ReplaceMember { target, is_lost: random.chance(0.5) },
        Kind::RemoveMember => Strike::RemoveMember(target),
        Kind::TwoChanges => Strike::TwoChanges,
    }
}

fn kind(random: &mut Random, kinds: &[(Kind, usize)]) -> Kind {
    let tickets: Vec<_> =
        kinds.iter().flat_map(|(kind, weight)| std::iter::repeat_n(*kind, *weight)).collect();
    random.pick(&tickets)
}

/// Of what can be drawn, only what is wanted; all if nothing is. An error names what cannot be drawn.
pub(super) fn wanted(
    kinds: Vec<(Kind, usize)>,
    only: &[Kind],
) -> anyhow::Result<Vec<(Kind, usize)>> {
    let can_be = |kind: &Kind| kinds.iter().any(|(other, _)| other == kind);
    if let Some(kind) = only.iter().find(|kind| !can_be(kind)) {
        let names: Vec<_> = kinds.iter().map(|(kind, _)| kind.flag()).collect();
        anyhow::bail!("{} does not happen here; these do: {}", kind.flag(), names.join(", "));
    }
    Ok(kinds.into_iter().filter(|(kind, _)| only.is_empty() || only.contains(kind)).collect())
}

/// From a hiccup to several leases; what stands still, or is locked, is so for longer than a lease, and so long it takes until a member that
/// was replaced is missed. After a row was lost, nobody comes back before the longest lease has ended.
fn lasts(random: &mut Random, faults: &[(Duration, Strike)], lease: Duration) -> Duration {
    let pauses = faults.iter().any(|(_, fault)| {
        matches!(
            fault,
            Strike::Pause(_)
                | Strike::Freeze(_)
                | Strike::HoldLock(_)
                | Strike::Join
                | Strike::Replace
        )
    });
    let is_lost = faults.iter().any(|(_, fault)| loses_row(fault));
    let is_mixed = faults.iter().any(|(_, fault)| !loses_row(fault));
    let least = match (is_lost, is_mixed, pauses) {
        (true, true, _) => lease * LONGEST_LEASE,
        (true, false, _) | (_, _, true) => lease.mul_f64(1.2),
        _ => MS * 100,
    };
    let most = lease.mul_f64(random.pick(&[1.3, 2.0, 4.0]));
    random.between(least, most.max(least + MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_every_time_and_as_many_as_were_asked_for() {
        let setting = Setting { members: 5, lease: MS * 1000, together: 3, kinds: &OF_PEERS };
        let draw_one = |seed| draw(seed, 200, &setting);
        assert_eq!(draw_one(7), draw_one(7));
        assert_ne!(draw_one(7), draw_one(8));
        let phases = draw_one(7);
        assert_eq!(phases.iter().map(|phase| phase.faults.len()).sum::<usize>(), 200);
        assert!(phases.iter().any(|phase| phase.faults.len() > 2), "several at once");
    }

    #[test]
    fn only_what_is_asked_for_is_drawn() {
        let only = [Kind::Kill, Kind::Loss];
        let kinds = wanted(OF_PEERS.to_vec(), &only).unwrap();
        let phases =
            draw(7, 50, &Setting { members: 3, lease: MS * 1000, together: 3, kinds: &kinds });
        let mut faults = phases.iter().flat_map(|phase| &phase.faults);
        assert!(faults.all(|(_, fault)| only.contains(&fault.kind())));
        let error = wanted(ON_A_FILE.to_vec(), &[Kind::Kill, Kind::Loss]).unwrap_err().to_string();
        assert!(error.contains("loss does not happen here") && error.contains("lock"), "{error}");
    }

    #[test]
    fn every_kind_is_drawn_and_stays_within_its_bounds() {
        let others = [(Kind::ClockStep, 1), (Kind::Forget, 1)];
        let mut kinds = [&OF_PEERS[..], &CHANGES, &ON_A_SERVER, &others].concat();
        #[cfg(feature = "kafka")]
        kinds.extend(ON_A_LEDGER);
        kinds.sort();
        let phases =
            draw(3, 800, &Setting { members: 5, lease: MS * 1000, together: 3, kinds: &kinds });
        let faults = || phases.iter().flat_map(|phase| &phase.faults);
        for (kind, _) in kinds {
            assert!(faults().any(|(_, fault)| fault.kind() == kind), "{kind:?}");
        }
        for phase in &phases {
            let still = [Kind::Pause, Kind::Freeze, Kind::Lock];
            let pauses = phase.faults.iter().any(|(_, fault)| still.contains(&fault.kind()));
            assert!(!pauses || phase.lasts > MS * 1000, "longer than the lease");
            let kinds = || phase.faults.iter().map(|(_, fault)| fault.kind());
            let is_loss = |kind: Kind| matches!(kind, Kind::Vanish | Kind::Restore);
            if kinds().any(is_loss) && !kinds().all(is_loss) {
                assert!(kinds().all(|kind| BESIDE_A_LOSS.contains(&kind)), "{phase:?}");
                assert!(phase.lasts >= MS * 8000, "longer than the longest lease: {phase:?}");
            } else {
                assert!(phase.length() < MS * 6000);
            }
        }
        for (_, fault) in faults() {
            match fault {
                Strike::Partition(side) => assert!((1..5).contains(&side.len())),
                Strike::Loss(share) => assert!((0.05..=0.3).contains(share)),
                Strike::Delay { delay, .. } => assert!(*delay <= MS * 200),
                Strike::StepClock(seconds) => assert!((2..=60).contains(&seconds.abs())),
                _ => {}
            }
        }
    }
}
