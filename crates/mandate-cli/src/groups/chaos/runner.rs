//! Carries a phase out: strikes, waits, heals, and looks what came of it.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mandate_conformance::group::{Group, GroupError};
use mandate_conformance::history::{History, now};
use mandate_lab::wan::fault::Fault;
use mandate_proto::identity::MemberId;
use mandate_runtime::Start;

use super::field::Field;
use super::storm::{Kind, Phase, Strike, Target};
use crate::output::readable;

/// How long a group of healthy members takes to settle after a phase, about; for the estimate.
pub(super) const RECOVERY: Duration = Duration::from_millis(1500);

/// How it went.
pub(super) enum Outcome {
    /// As it should.
    Passed,
    /// Something happened that must not: what, and what happened around it.
    Broken(Evidence),
    /// A group that had healed found no leader in time.
    NoLeader(Evidence),
}

/// What was seen, for people.
pub(super) struct Evidence {
    pub(super) what: Vec<String>,
    pub(super) around: Vec<String>,
}

/// What came of a phase.
pub(super) struct PhaseFigures {
    pub(super) kinds: Vec<Kind>,
    /// The longest time in which nobody acted.
    pub(super) without_leader: Duration,
    /// From healing, with processes that start again, until all followed one leader.
    pub(super) settled: Duration,
    /// Whether another leads than before.
    pub(super) changed: bool,
}

pub(super) struct Runner<'a> {
    field: &'a Field,
    pub(super) group: Group,
    verbose: bool,
    pub(super) phases: Vec<PhaseFigures>,
    /// What was done in the present phase, and when.
    log: Vec<(u64, String)>,
    killed: BTreeSet<MemberId>,
    paused: BTreeSet<MemberId>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(field: &'a Field, group: Group, verbose: bool) -> Self {
        Runner {
            field,
            group,
            verbose,
            phases: Vec::new(),
            log: Vec::new(),
            killed: BTreeSet::new(),
            paused: BTreeSet::new(),
        }
    }

    /// Before the first fault there must be a leader.
    pub(super) fn settle_first(&mut self) -> Result<Outcome, GroupError> {
        self.settled()
    }

    pub(super) fn run(&mut self, phase: &Phase, say: &dyn Fn(&str)) -> Result<Outcome, GroupError> {
        self.log.clear();
        let before = self.group.history()?.latest();
        self.group.history()?.forget_acts();
        let began = now();
        for (pause, strike) in &phase.strikes {
            sleep(*pause);
            self.strike(strike, say)?;
        }
        sleep(phase.lasts);
        let healing = Instant::now();
        let outcome = match self.heal(say) {
            Ok(()) => self.settled()?,
            Err(error) => self.too_late(error)?,
        };
        let settled = healing.elapsed();
        let history = self.group.history()?;
        let after = history.latest();
        let figures = PhaseFigures {
            kinds: phase.strikes.iter().map(|(_, strike)| strike.kind()).collect(),
            without_leader: longest_gap(history, began),
            settled,
            changed: before.map(|act| act.term) != after.map(|act| act.term),
        };
        if self.verbose
            && let (Some(act), Outcome::Passed) = (after, &outcome)
        {
            say(&format!(
                "    {} leads in term {}; nobody acted for {}, settled after {}",
                act.member,
                act.term,
                readable(figures.without_leader),
                readable(settled)
            ));
        }
        self.phases.push(figures);
        Ok(outcome)
    }

    /// Waits until all follow one leader, and looks at everything that has happened.
    fn settled(&mut self) -> Result<Outcome, GroupError> {
        let settled = self.group.settle();
        let broken = self.group.violations()?;
        let mut what: Vec<_> = broken.iter().map(ToString::to_string).collect();
        for member in self.group.members() {
            if self.group.has_ended(member) {
                what.push(format!("the process of {member} ended, and nobody killed it"));
            }
        }
        if !what.is_empty() {
            return Ok(Outcome::Broken(Evidence { what, around: self.around()? }));
        }
        match settled {
            Ok(_) => Ok(Outcome::Passed),
            Err(error) => self.too_late(error),
        }
    }

    /// What must happen did not in time; any other error is not about the group.
    fn too_late(&mut self, error: GroupError) -> Result<Outcome, GroupError> {
        match error {
            GroupError::NotInTime { .. } => {
                let what = vec![error.to_string()];
                Ok(Outcome::NoLeader(Evidence { what, around: self.around()? }))
            }
            error => Err(error),
        }
    }

    fn note(&mut self, text: String, say: &dyn Fn(&str)) {
        if self.verbose {
            say(&text);
        }
        self.log.push((now(), text));
    }

    fn strike(&mut self, strike: &Strike, say: &dyn Fn(&str)) -> Result<(), GroupError> {
        let all = || "all".to_owned();
        match strike {
            Strike::Kill(target) => {
                let Some(member) = self.living(*target)? else { return Ok(()) };
                self.note(format!("kill {member}"), say);
                self.kill(member)?;
            }
            Strike::Pause(target) => {
                let Some(member) = self.living(*target)? else { return Ok(()) };
                self.note(format!("pause {member}"), say);
                self.group.pause(member)?;
                self.paused.insert(member);
            }
            Strike::CutOff(target) => {
                let member = self.member(*target)?;
                self.note(format!("cut {member} off"), say);
                self.field.inflict(&Fault::Cut { a: member.to_string(), b: all() });
            }
            Strike::Partition(side) => {
                let (one, other) = self.sides(side);
                self.note(format!("partition {one} from {other}"), say);
                self.field.inflict(&Fault::Cut { a: one, b: other });
            }
            Strike::Mute(target) => {
                let member = self.member(*target)?;
                self.note(format!("mute {member}: nobody hears it"), say);
                self.field.inflict(&Fault::OneWay { from: member.to_string(), to: all() });
            }
            Strike::Deafen(target) => {
                let member = self.member(*target)?;
                self.note(format!("deafen {member}: it hears nobody"), say);
                self.field.inflict(&Fault::OneWay { from: all(), to: member.to_string() });
            }
            Strike::Loss(share) => {
                self.note(format!("lose {:.0} % everywhere", share * 100.0), say);
                self.field.inflict(&Fault::Loss { a: all(), b: all(), share: *share });
            }
            Strike::Delay { target, delay, jitter } => {
                let member = self.member(*target)?;
                self.note(format!("delay {member} by {delay:?}, jitter {jitter:?}"), say);
                let a = member.to_string();
                self.field.inflict(&Fault::Delay { a: a.clone(), b: all(), delay: *delay });
                self.field.inflict(&Fault::Jitter { a, b: all(), jitter: *jitter });
            }
            Strike::KillAll => {
                self.note("kill all".into(), say);
                for member in self.group.members() {
                    self.kill(member)?;
                }
            }
            Strike::FillDisk(target) => {
                let member = self.member(*target)?;
                self.note(format!("fill the disk of {member}"), say);
                self.on_disk(member, |disk| disk.fill())?;
            }
        }
        Ok(())
    }

    fn kill(&mut self, member: MemberId) -> Result<(), GroupError> {
        self.group.kill(member)?;
        self.paused.remove(&member);
        self.killed.insert(member);
        Ok(())
    }

    fn on_disk(
        &self,
        member: MemberId,
        work: impl FnOnce(&super::disk::Disk) -> anyhow::Result<()>,
    ) -> Result<(), GroupError> {
        let disks = self.field.disks();
        let disk = disks.get(&member).expect("every member has a disk");
        work(disk).map_err(|error| GroupError::System {
            what: format!("change the disk of {member}"),
            source: std::io::Error::other(format!("{error:#}")),
        })
    }

    /// Whom it strikes, whether or not its process runs.
    fn member(&mut self, target: Target) -> Result<MemberId, GroupError> {
        let first = MemberId::new(1);
        Ok(match target {
            Target::Place(place) => MemberId::new(place as u32 + 1),
            Target::Leader => self.group.history()?.latest().map_or(first, |act| act.member),
        })
    }

    /// Whom it strikes among those that run: the next one if the one that was meant does not.
    fn living(&mut self, target: Target) -> Result<Option<MemberId>, GroupError> {
        let meant = self.member(target)?;
        let running: Vec<_> =
            self.group.members().into_iter().filter(|id| !self.paused.contains(id)).collect();
        let next = running.iter().find(|id| **id >= meant).or(running.first());
        Ok(next.copied())
    }

    fn sides(&self, side: &[usize]) -> (String, String) {
        let size = self.field.disks().len();
        let names = |inside: bool| {
            let places = (0..size).filter(|place| side.contains(place) == inside);
            places.map(|place| format!("p{}", place + 1)).collect::<Vec<_>>().join(",")
        };
        (names(true), names(false))
    }

    /// Everything is as it should be: network, disks, processes, in this order, so that whoever starts finds the
    /// other two in order.
    fn heal(&mut self, say: &dyn Fn(&str)) -> Result<(), GroupError> {
        self.note("heal".into(), say);
        self.field.heal();
        let members: Vec<_> = self.field.disks().keys().copied().collect();
        for member in members {
            self.on_disk(member, |disk| disk.free())?;
        }
        for member in std::mem::take(&mut self.paused) {
            self.group.resume(member)?;
        }
        for member in std::mem::take(&mut self.killed) {
            self.group.restart(member, Start::Stored)?;
        }
        Ok(())
    }

    /// What happened in this phase: faults, what members saw, and who acted when, by time.
    fn around(&mut self) -> Result<Vec<String>, GroupError> {
        let began = self.log.first().map_or(0, |(at, _)| *at);
        let mut lines = self.log.clone();
        let history = self.group.history()?;
        for view in history.views().iter().filter(|view| view.at >= began) {
            lines.push((view.at, format!("{} sees {}", view.member, view.seen)));
        }
        for (term, member, reign) in history.reigns().filter(|(.., reign)| reign.last >= began) {
            lines.push((reign.first, format!("{member} acts first in term {term}")));
            lines.push((
                reign.last,
                format!("{member} acts last in term {term}: {} acts", reign.acts),
            ));
        }
        lines.sort();
        let time = |at: u64| (at as f64 - began as f64) / 1e6;
        Ok(lines.into_iter().map(|(at, text)| format!("{:>10.3} ms  {text}", time(at))).collect())
    }
}

/// The longest time since then in which nobody acted.
fn longest_gap(history: &History, began: u64) -> Duration {
    let mut times: Vec<_> = history.acts().iter().map(|act| act.at).collect();
    times.push(began);
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    Duration::from_nanos(gaps.max().unwrap_or_default())
}
