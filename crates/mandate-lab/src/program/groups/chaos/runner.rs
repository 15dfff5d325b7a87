//! Carries a phase out: injects the fault, waits, heals, and checks the outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mandate_conformance::group::{GroupError, ProcessGroup};
use mandate_conformance::history::{Act, History, now};
use mandate_conformance::protocol::Instruction;
use mandate_proto::identity::{MemberId, Term};
use mandate_runtime::Start;

use super::lapses::Changes;
use super::membership::Membership;
use super::storm::{Kind, NEWCOMERS, Phase, Strike, Target};
use super::target::{ChaosTarget, Watched};
use mandate_cli::output::readable;

mod changes;

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
    /// From when everything was healed until a leader acted.
    pub(super) acted: Duration,
    /// From healing, with processes that start again, until all followed one leader.
    pub(super) settled: Duration,
    /// Whether another leads than before.
    pub(super) changed: bool,
    /// How often a partition that did not move was led no more.
    pub(super) lapses: usize,
}

pub(super) struct Runner<'a> {
    pub(super) ground: &'a dyn ChaosTarget,
    pub(super) group: ProcessGroup,
    verbose: bool,
    pub(super) phases: Vec<PhaseFigures>,
    /// What was done in the present phase, and when.
    log: Vec<(u64, String)>,
    killed: BTreeSet<MemberId>,
    membership: Membership,
    /// How members are started that have lost their disks.
    diskless: BTreeMap<MemberId, Start>,
    /// What was seen in the present phase and must not be.
    misdeeds: Vec<String>,
    /// Until when a member was told to stand still. Nothing ends that sooner.
    stalled_until: Option<Instant>,
    paused: BTreeSet<MemberId>,
    /// Those that have joined for this phase only.
    newcomers: BTreeSet<MemberId>,
    /// How many members run while there is no fault.
    size: u32,
    /// How much each member had logged when the last phase was over.
    read: BTreeMap<MemberId, usize>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(ground: &'a dyn ChaosTarget, group: ProcessGroup, verbose: bool) -> Self {
        let membership = Membership::of(group.members());
        Runner {
            ground,
            verbose,
            size: group.members().len() as u32,
            group,
            phases: Vec::new(),
            log: Vec::new(),
            killed: BTreeSet::new(),
            membership,
            diskless: BTreeMap::new(),
            misdeeds: Vec::new(),
            stalled_until: None,
            paused: BTreeSet::new(),
            newcomers: BTreeSet::new(),
            read: BTreeMap::new(),
        }
    }

    /// Who the members are.
    pub(super) fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Everyone that is a member, or was.
    pub(super) fn all(&self) -> impl Iterator<Item = MemberId> + use<> {
        (1..=self.size.max(self.membership.highest().get())).map(MemberId::new)
    }

    /// Before the first fault there must be a leader.
    pub(super) fn settle_first(&mut self) -> Result<Outcome, GroupError> {
        self.settled()
    }

    pub(super) fn run(&mut self, phase: &Phase, say: &dyn Fn(&str)) -> Result<Outcome, GroupError> {
        self.log.clear();
        let costs_nothing = phase.costs_nothing();
        if costs_nothing && let Err(error) = self.quiet() {
            return self.too_late(error);
        }
        let before = self.group.history()?.newest();
        self.group.history()?.forget_acts();
        let began = now();
        for (pause, fault) in &phase.faults {
            sleep(*pause);
            self.inject(fault, say)?;
        }
        self.hold(phase.lasts)?;
        let healing = Instant::now();
        let healed_at;
        let outcome = match self.heal(say) {
            Ok(()) => {
                healed_at = now();
                self.settled()?
            }
            Err(error) => {
                healed_at = now();
                self.too_late(error)?
            }
        };
        let settled = healing.elapsed();
        let outcome = match outcome {
            Outcome::Passed if costs_nothing => match self.quiet() {
                Ok(()) => Outcome::Passed,
                Err(error) => self.too_late(error)?,
            },
            outcome => outcome,
        };
        let lapses = self.changes().lapses(began);
        let history = self.group.history()?;
        let after = history.newest();
        let whose = |act: Act| (act.term, act.member);
        let figures = PhaseFigures {
            kinds: phase.faults.iter().map(|(_, fault)| fault.kind()).collect(),
            without_leader: longest_gap(history, began),
            acted: first_act(history, healed_at),
            settled,
            changed: before.map(whose) != after.map(whose),
            lapses: lapses.len(),
        };
        let outcome = match self.ground.longest_gap(phase, Duration::from_nanos(healed_at - began))
        {
            Some(allowed) if figures.without_leader > allowed => {
                let gap = readable(figures.without_leader);
                let what = format!("nobody led for {gap}, more than {}", readable(allowed));
                Outcome::Broken(Evidence { what: vec![what], around: self.around()? })
            }
            _ => outcome,
        };
        let outcome = match lapses.is_empty() || !costs_nothing {
            true => outcome,
            false => {
                let what = lapses.iter().map(|one| {
                    let why = one.lost.as_deref().unwrap_or_default();
                    format!(
                        "partition {} did not move, and {} led it no more: {why}",
                        one.partition, one.member
                    )
                });
                let what = what.collect();
                Outcome::Broken(Evidence { what, around: self.around()? })
            }
        };
        if self.verbose
            && let (Some(act), Outcome::Passed) = (after, &outcome)
        {
            say(&format!(
                "    {} leads{}; nobody acted for {}, settled after {}",
                act.member,
                match act.term {
                    Term::NONE => String::new(),
                    term => format!(" in term {term}"),
                },
                readable(figures.without_leader),
                readable(settled)
            ));
        }
        self.phases.push(figures);
        Ok(outcome)
    }

    /// What members have led, where that is watched.
    fn changes(&self) -> Changes {
        let members = match self.ground.watched() {
            Some(_) => self.size + NEWCOMERS,
            None => 0,
        };
        let logs: Vec<_> =
            (1..=members).map(MemberId::new).map(|one| (one, self.group.logged(one))).collect();
        Changes::read(logs.iter().map(|(member, log)| (*member, log.as_str())))
    }

    /// Waits until every partition is led and nothing has changed for a session, where partitions are watched: what happens next comes of
    /// nothing before.
    fn quiet(&mut self) -> Result<(), GroupError> {
        let Some(Watched { partitions, session }) = self.ground.watched() else { return Ok(()) };
        let began = Instant::now();
        loop {
            let running = self.group.members().into_iter().collect();
            let since = now().saturating_sub(session.as_nanos() as u64);
            if self.changes().is_quiet(partitions, &running, since) {
                return Ok(());
            }
            if began.elapsed() > self.ground.patience() + session {
                let what = "every partition is led, and nothing changes".to_owned();
                return self.group.until(what, |_| None);
            }
            // Acts are heard meanwhile.
            self.group.history()?;
            sleep(session / 10);
        }
    }

    /// One that leads nothing.
    fn standby(&mut self) -> Option<MemberId> {
        let leaders = self.changes().leaders();
        let mut members = self.group.members().into_iter();
        members.find(|member| {
            !self.paused.contains(member) && !leaders.values().any(|leader| leader == member)
        })
    }

    /// Waits until all follow one leader, and looks at everything that has happened.
    fn settled(&mut self) -> Result<Outcome, GroupError> {
        let (settled, mut what) = match self.complete_changes() {
            Ok(undone) if undone.is_empty() => (self.all_follow(), undone),
            // What would be waited for may never come.
            Ok(undone) => (Ok(()), undone),
            Err(error) => (Err(error), Vec::new()),
        };
        let broken = self.group.violations()?;
        let broken = broken.iter().filter(|violation| !self.ground.expects(violation));
        what.extend(broken.map(ToString::to_string));
        what.extend(self.ground.violations());
        let logged = self.logged_since();
        what.extend(self.ground.untold(&logged));
        for member in self.group.members() {
            if self.group.has_ended(member) {
                what.push(format!("the process of {member} ended, and nobody killed it"));
            }
            if self.group.logged(member).contains("panicked at") {
                what.push(format!("{member} has panicked"));
            }
        }
        if !what.is_empty() {
            return Ok(Outcome::Broken(Evidence { what, around: self.around()? }));
        }
        match settled {
            Ok(()) => Ok(Outcome::Passed),
            Err(error) => self.too_late(error),
        }
    }

    fn all_follow(&mut self) -> Result<(), GroupError> {
        let act = self.group.settle()?;
        self.written(act.term)?;
        self.each_group_acts()
    }

    /// What members have logged since it was looked last.
    fn logged_since(&mut self) -> String {
        let mut all = String::new();
        for member in self.all() {
            let logged = self.group.logged(member);
            let read = self.read.insert(member, logged.len()).unwrap_or_default();
            all += logged.get(read..).unwrap_or_default();
        }
        all
    }

    /// Waits until there is a leader in each of several disjoint groups.
    fn each_group_acts(&mut self) -> Result<(), GroupError> {
        let (groups, since) = (self.ground.groups(), now());
        if groups == 1 {
            return Ok(());
        }
        self.group.until("a leader in each group", |group| {
            let history = group.history().ok()?;
            let acts = || history.acts().iter().rev().take_while(|act| act.at >= since);
            let acted = |one| acts().any(|act| act.member.get() % groups == one);
            (0..groups).all(acted).then_some(())
        })
    }

    /// Waits until a leader has written in this term or a higher one, where leaders write.
    fn written(&mut self, term: Term) -> Result<(), GroupError> {
        let ground = self.ground;
        self.group.until(format!("a write of term {term} or a higher one"), |_| {
            // A database that has just come back may not answer yet.
            let newest = ground.look().ok()?;
            newest.is_none_or(|newest| newest >= term).then_some(())
        })
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
        self.note_at(now(), text, say);
    }

    fn note_at(&mut self, at: u64, text: String, say: &dyn Fn(&str)) {
        if self.verbose {
            say(&text);
        }
        self.log.push((at, text));
    }

    fn inject(&mut self, fault: &Strike, say: &dyn Fn(&str)) -> Result<(), GroupError> {
        if self.change(fault, say)? {
            return Ok(());
        }
        match fault {
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
                self.group.cables()?.isolate(member);
            }
            Strike::KillAll => {
                self.note("kill all".into(), say);
                for member in self.group.members() {
                    self.kill(member)?;
                }
            }
            Strike::Stall(target, length) => {
                let Some(member) = self.living(*target)? else { return Ok(()) };
                self.note(format!("stall {member} for {}", readable(*length)), say);
                self.group.tell(member, Instruction::Stall(length.as_millis() as u64))?;
                self.stalled_until = self.stalled_until.max(Some(Instant::now() + *length));
            }
            Strike::JoinStorm => {
                let newcomers = (self.size + 1..=self.size + NEWCOMERS).map(MemberId::new);
                self.newcomers = newcomers.collect();
                self.note(format!("{NEWCOMERS} more join"), say);
                self.group.begin_all(&self.newcomers, Start::New)?;
            }
            Strike::Join if self.newcomers.is_empty() => {
                let newcomer = MemberId::new(self.size + 1);
                self.newcomers = BTreeSet::from([newcomer]);
                self.note(format!("{newcomer} joins"), say);
                self.group.begin_all(&self.newcomers, Start::New)?;
            }
            Strike::Join => {}
            Strike::Replace => {
                let Some(standby) = self.standby() else { return Ok(()) };
                self.note(format!("replace {standby}, which leads nothing"), say);
                self.group.kill(standby)?;
                self.group.begin_all(&BTreeSet::from([standby]), Start::Stored)?;
            }
            Strike::Roll => self.roll(say)?,
            other => {
                // Places among the members of now.
                let hosts = |place: &usize| self.membership.at(*place).get() as usize - 1;
                let other = &match other {
                    Strike::Partition(side) => Strike::Partition(side.iter().map(hosts).collect()),
                    other => other.clone(),
                };
                let member = self.member(other.target().unwrap_or(Target::Place(0)))?;
                let at = now();
                let done = self.ground.inflict(other, member);
                let done = done.map_err(refused(format!("have this happen: {other:?}")))?;
                self.note_at(at, done, say);
            }
        }
        Ok(())
    }

    fn kill(&mut self, member: MemberId) -> Result<(), GroupError> {
        self.group.kill(member)?;
        self.membership.killed(member);
        self.paused.remove(&member);
        self.killed.insert(member);
        Ok(())
    }

    /// Ends each member that runs, in good order, and starts it again; of several disjoint groups one after the other,
    /// as who has them for continuity would.
    fn roll(&mut self, say: &dyn Fn(&str)) -> Result<(), GroupError> {
        let groups = self.ground.groups();
        for one in 0..groups {
            let members = self.group.members().into_iter();
            for member in members.filter(|member| member.get() % groups == one) {
                if !self.paused.contains(&member) {
                    self.note(format!("restart {member} in good order"), say);
                    self.group.terminate(member)?;
                    self.group.ended(member)?;
                    self.group.begin_all(&BTreeSet::from([member]), Start::Stored)?;
                }
            }
            // If one does not, that is found once everything has healed.
            let _ = self.each_group_acts();
        }
        Ok(())
    }

    /// Newcomers go, however far they came.
    fn dismiss(&mut self) -> Result<(), GroupError> {
        let newcomers = std::mem::take(&mut self.newcomers);
        self.killed.retain(|member| !newcomers.contains(member));
        let here: Vec<_> =
            self.group.members().into_iter().filter(|member| newcomers.contains(member)).collect();
        here.iter().try_for_each(|member| self.group.terminate(*member))?;
        here.iter().try_for_each(|member| self.group.ended(*member).map(|_| ()))
    }

    /// The member that a fault hits, whether or not its process runs.
    fn member(&mut self, target: Target) -> Result<MemberId, GroupError> {
        let first = MemberId::new(1);
        Ok(match target {
            Target::Place(place) => self.membership.at(place),
            Target::Leader => self.group.history()?.newest().map_or(first, |act| act.member),
        })
    }

    /// The running member that a fault hits: the next one if the one that was meant does not run.
    fn living(&mut self, target: Target) -> Result<Option<MemberId>, GroupError> {
        let meant = self.member(target)?;
        let runs = |id: &MemberId| !self.paused.contains(id) && !self.membership.is_gone(*id);
        let running: Vec<_> = self.group.members().into_iter().filter(runs).collect();
        let next = running.iter().find(|id| **id >= meant).or(running.first());
        Ok(next.copied())
    }

    /// Everything is as it should be: surroundings, then processes, so that a process that starts finds the rest in order.
    fn heal(&mut self, say: &dyn Fn(&str)) -> Result<(), GroupError> {
        if let Some(until) = self.stalled_until.take() {
            sleep(until.saturating_duration_since(Instant::now()));
        }
        self.note("heal".into(), say);
        self.ground.heal().map_err(refused("heal the faults"))?;
        if let Ok(cables) = self.group.cables() {
            cables.heal();
        }
        for member in std::mem::take(&mut self.paused) {
            self.group.resume(member)?;
        }
        self.dismiss()?;
        self.membership.cut(false);
        let killed = std::mem::take(&mut self.killed);
        for start in [Start::Stored, Start::Lost, Start::Join] {
            let members: BTreeSet<_> =
                killed.iter().copied().filter(|member| self.starts(*member) == start).collect();
            self.group.begin_all(&members, start)?;
        }
        killed.iter().try_for_each(|member| self.group.until_ready(*member))
    }

    /// How a member is started again: one that joined as by a unit file in which that word was left.
    fn starts(&self, member: MemberId) -> Start {
        let start = if member.get() <= self.size { Start::Stored } else { Start::Join };
        self.diskless.get(&member).copied().unwrap_or(start)
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

/// From then to the first act after it.
fn first_act(history: &History, since: u64) -> Duration {
    let after = history.acts().iter().filter_map(|act| act.at.checked_sub(since));
    Duration::from_nanos(after.min().unwrap_or_default())
}

/// The system, and not the group, did not do as it should.
fn refused(what: impl Into<String>) -> impl FnOnce(anyhow::Error) -> GroupError {
    let what = what.into();
    move |error| {
        let source = std::io::Error::other(format!("{error:#}"));
        GroupError::System { what, source }
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
