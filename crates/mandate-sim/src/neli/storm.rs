//! What befalls an exclusive group.

use core::time::Duration;

use mandate_proto::neli::Input;

use super::setting::Setting;
use super::{NodeInput, Trouble};
use crate::fault::{DiskFate, Fault};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::storm::{Faults, Happening, Happenings, LeaderFault, Storm};
use crate::time::SimTime;

/// Kinds of faults of leaders, the common ones included.
const LEADER_FAULTS: u64 = 10;

/// What a fault of a leader consists of, and how each part ends.
pub(super) fn leader_faults(
    fault: LeaderFault,
    host: HostIndex,
    setting: &Setting,
) -> Faults<NodeInput> {
    let restarts = |host| {
        let recover = Fault::Recover { host, disk: DiskFate::Kept };
        [Fault::Crash(host), recover].map(|fault| (Happening::Fault(fault), None))
    };
    let broken = |(fault, mended)| (Happening::Fault(fault), Some(mended));
    let cut = |from, to| broken((Fault::Cut { from, to }, Fault::Mend { from, to }));
    let coordinator = setting.coordinator;
    match fault.kind {
        0..LeaderFault::COMMON => fault.common(host, coordinator).into_iter().map(broken).collect(),
        5 => {
            let brokers = setting.logs.iter().chain([&coordinator]);
            brokers.flat_map(|broker| [cut(host, *broker), cut(*broker, host)]).collect()
        }
        6 => vec![(Happening::Tell(host, NodeInput::Stall(fault.lasts)), None)],
        7 => {
            // It renews, and does not come through the barrier to which another sends everyone.
            let lost = Happening::Tell(host, NodeInput::LoseJoins(fault.lasts));
            let mut faults = vec![(lost, None)];
            faults.extend(neighbour(host, setting).into_iter().flat_map(restarts));
            faults
        }
        8 => {
            // While it does not run another starts that goes by its static name, where names are shared: that one has
            // everything at once.
            let mut faults = vec![broken((Fault::Pause(host), Fault::Resume(host)))];
            let other = host ^ 1;
            faults.extend((other < setting.size).then(|| restarts(other)).into_iter().flatten());
            faults
        }
        _ => vec![(Happening::Tell(host, NodeInput::Member(Input::Resign)), None)],
    }
}

/// Another member, if there is one.
fn neighbour(host: HostIndex, setting: &Setting) -> Option<HostIndex> {
    Some((host + 1) % setting.size).filter(|other| *other != host)
}

/// The storm of a seed.
pub(super) fn draw(seed: u64, setting: &Setting) -> Storm<NodeInput> {
    let unit = setting.plan.grants().session;
    let leader_faults = LeaderFault::draw(seed, (unit, setting.storm), (7, LEADER_FAULTS));
    Storm { happenings: happenings(seed, setting), leader_faults, lasts: setting.storm }
}

/// What happens in the storm; what would come after it does not.
fn happenings(seed: u64, setting: &Setting) -> Happenings<NodeInput> {
    let mut random = Random::new(seed, Stream::Faults);
    let mut happenings = Vec::new();
    let session = setting.plan.grants().session;
    for _ in 0..random.below(10) {
        let begin = SimTime::ZERO + random.between(Duration::ZERO, setting.storm);
        let longest = session * random.pick(&[1, 2, 6]);
        let end = begin + random.between(Duration::ZERO, longest);
        draw_fault(&mut random, setting, (begin, end), &mut happenings);
    }
    let over = SimTime::ZERO + setting.storm;
    happenings.retain(|(at, _)| *at < over);
    happenings
}

fn draw_fault(
    random: &mut Random,
    setting: &Setting,
    (begin, end): (SimTime, SimTime),
    happenings: &mut Happenings<NodeInput>,
) {
    let session = setting.plan.grants().session;
    let host = random.below(setting.size as u64) as usize;
    let coordinator = setting.coordinator;
    let log = random.pick(&setting.logs);
    let mut fault = |at, fault| happenings.push((at, Happening::Fault(fault)));
    match random.below(17) {
        16 => {
            // A broker that is gone for long: some partitions are dry, or all.
            fault(begin, Fault::Pause(log));
            fault(begin + session * random.pick(&[6, 12]), Fault::Resume(log));
        }
        0 => {
            fault(begin, Fault::Crash(host));
            fault(end, Fault::Recover { host, disk: DiskFate::Kept });
        }
        1 | 2 => {
            fault(begin, Fault::Pause(host));
            fault(end, Fault::Resume(host));
        }
        3 => {
            fault(begin, Fault::Suspend { host, clock_stops: false });
            fault(end, Fault::Resume(host));
        }
        4 | 5 => {
            // From the coordinator, one way or both; or from the log.
            let other = random.pick(&[coordinator, coordinator, log]);
            let lost = random.below(3);
            for (from, to, is_cut) in [(host, other, lost != 0), (other, host, lost != 1)] {
                if is_cut {
                    fault(begin, Fault::Cut { from, to });
                    fault(end, Fault::Mend { from, to });
                }
            }
        }
        6 => {
            let broker = random.pick(&[coordinator, log]);
            fault(begin, Fault::Pause(broker));
            fault(end, Fault::Resume(broker));
        }
        7 => {
            // Down, and up again as it was.
            fault(begin, Fault::Pause(coordinator));
            fault(end, Fault::Resume(coordinator));
            let restart = NodeInput::Broker(Trouble::Restart);
            happenings.push((end, Happening::Tell(coordinator, restart)));
        }
        8 => {
            let stall = NodeInput::Stall(end - begin);
            happenings.push((begin, Happening::Tell(host, stall)));
        }
        9 => {
            let hour = 3_600_000_000_000;
            let step = NodeInput::Broker(Trouble::StepClock(random.pick(&[hour, -hour])));
            happenings.push((begin, Happening::Tell(log, step)));
        }
        10 => {
            // A storm of joins: all but one at once.
            for host in (0..setting.size).filter(|other| *other != host) {
                fault(begin, Fault::Crash(host));
                let recover = Fault::Recover { host, disk: DiskFate::Kept };
                fault(begin + random.between(Duration::ZERO, session / 4), recover);
            }
        }
        11 => {
            // One after another leaves, ends and starts again.
            for place in 0..setting.size {
                let at = begin + session * place as u32;
                restart_cleanly(place, at, session, happenings);
            }
        }
        12 => restart_cleanly(host, begin, session, happenings),
        13 if setting.hides_losses => return_in_silence(host, begin, setting, happenings),
        13 => {
            let lose = NodeInput::LoseJoins(end - begin);
            happenings.push((begin, Happening::Tell(host, lose)));
        }
        14 if setting.has_old_marks => {
            for (at, are_old) in [(begin, true), (end, false)] {
                let marks = NodeInput::Broker(Trouble::OldMarks(are_old));
                happenings.push((at, Happening::Tell(coordinator, marks)));
            }
        }
        _ => {
            let resign = NodeInput::Member(Input::Resign);
            happenings.push((begin, Happening::Tell(host, resign)));
        }
    }
}

/// A member is thrown out because its joins are lost, and another leads. As it comes back, all others are thrown out in the same way,
/// while their last renewals are fresh.
fn return_in_silence(
    host: HostIndex,
    begin: SimTime,
    setting: &Setting,
    happenings: &mut Happenings<NodeInput>,
) {
    let grants = setting.plan.grants();
    // A client that has joined for longer than a barrier and a session gives up, and says so.
    let (out, back) = (grants.barrier + grants.session / 2, grants.barrier * 2);
    let lose = |lasting| NodeInput::LoseJoins(lasting);
    happenings.push((begin, Happening::Tell(host, lose(out))));
    if let Some(other) = neighbour(host, setting) {
        restart_cleanly(other, begin, grants.session / 2, happenings);
    }
    for other in (0..setting.size).filter(|other| *other != host) {
        happenings.push((begin + out, Happening::Tell(other, lose(back))));
    }
}

fn restart_cleanly(
    host: HostIndex,
    at: SimTime,
    session: Duration,
    happenings: &mut Happenings<NodeInput>,
) {
    let leave = NodeInput::Member(Input::Leave);
    happenings.push((at, Happening::Tell(host, leave)));
    let end = at + session / 2;
    happenings.push((end, Happening::Fault(Fault::Crash(host))));
    let recover = Fault::Recover { host, disk: DiskFate::Kept };
    happenings.push((end + session / 4, Happening::Fault(recover)));
}
