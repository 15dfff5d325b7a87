//! The processes of a group, what is done to them, and what they said.
//!
//! Everything is waited for on a condition, with the subject's patience as its bound. All processes are
//! killed and the private directory is removed when the group is dropped, also in a panic. Members die
//! with the *thread* that started them (the kernel's rule, see [`actor`](crate::actor)): keep it running
//! as long as the group.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_runtime::Start;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::history::{Act, History, now};
use crate::judge::{HistoryViolation, judge};
use crate::process::ChildProcess;
use crate::protocol::{ActorReport, Instruction, Seen};
use crate::register::Register;
use crate::subject::{Ability, EngineUnderTest, Members, NetworkFaults, SetupError, placed};

/// Between two looks at what is waited for, if nothing is said meanwhile.
const LOOK: Duration = Duration::from_millis(2);

/// How much of what members complained is shown with an error.
const SHOWN_BYTES: usize = 2000;

/// How the members of a group behave.
#[derive(Clone, Copy, Debug)]
pub struct ActorSettings {
    /// Between two acts of a leader.
    pub pace: Duration,
    /// Whether leaders write to a register at every act.
    pub register: bool,
    /// Whether they act on what their mandate said once.
    pub careless: bool,
    /// Whether they count a change of members as settled before a quorum has it; of members that keep a list.
    pub hasty: bool,
}

/// Why something could not be done with a group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The group could not be made.
    #[error("the group could not be made: {0}")]
    Setup(SetupError),
    /// The system refused.
    #[error("could not {what}: {source}")]
    System {
        /// The operation that failed, as a verb with its object.
        what: String,
        /// What it said.
        source: io::Error,
    },
    /// Something did not happen.
    #[error("not within {bound:?}: {what}{log}")]
    NotInTime {
        /// What was waited for.
        what: String,
        /// For how long.
        bound: Duration,
        /// What the members complained of.
        log: String,
    },
    /// A member said something that is not of the protocol.
    #[error("{member} does not keep to the protocol: {line}")]
    Nonsense {
        /// The member whose process wrote the line.
        member: MemberId,
        /// The line as it came.
        line: String,
    },
    /// What members elect by cannot be cut here.
    #[error("what this subject's members elect by cannot be cut")]
    NoCables,
    /// Nothing runs commands where members lead.
    #[error("this subject's members do not run commands")]
    NoWrapper,
}

pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> GroupError {
    let what = what.into();
    move |source| GroupError::System { what, source }
}

/// A group of processes.
pub struct ProcessGroup {
    // In the order in which they must end.
    processes: BTreeMap<MemberId, ChildProcess>,
    members: Box<dyn Members>,
    register: Option<Register>,
    directory: TempDir,
    guarantee: PeerGuarantee,
    patience: Duration,
    /// Whether members know who leads while that is another, and whether two may lead.
    knows_leader: bool,
    excludes: bool,
    conduct: ActorSettings,
    paused: BTreeSet<MemberId>,
    /// Processes of members that were removed from the group.
    outside: BTreeSet<MemberId>,
    said: Receiver<(MemberId, String)>,
    hears: Sender<(MemberId, String)>,
    history: History,
    ready: BTreeSet<MemberId>,
    /// In which term a member has begun the work that it was told to lead with.
    working: BTreeMap<MemberId, Term>,
    answers: BTreeMap<u64, Result<String, String>>,
    orders: u64,
}

impl ProcessGroup {
    /// Starts members p1 to p`size`, for the first time, and waits until all take part.
    pub fn start(
        subject: &dyn EngineUnderTest,
        size: u32,
        conduct: ActorSettings,
    ) -> Result<Self, GroupError> {
        let directory = tempfile::Builder::new().prefix("mandate-").tempdir();
        let directory = directory.map_err(system("make a private directory"))?;
        let members = subject.group(size, directory.path()).map_err(GroupError::Setup)?;
        let register =
            conduct.register.then(|| Register::start(&directory.path().join("register")));
        let register = register.transpose().map_err(system("start the register"))?;
        let (hears, said) = channel();
        let mut group = ProcessGroup {
            processes: BTreeMap::new(),
            members,
            register,
            directory,
            guarantee: subject.guarantee(),
            patience: subject.patience(),
            knows_leader: subject.lacks(Ability::KnowTheLeader).is_none(),
            excludes: subject.lacks(Ability::Exclude).is_none(),
            conduct,
            paused: BTreeSet::new(),
            outside: BTreeSet::new(),
            said,
            hears,
            history: History::default(),
            ready: BTreeSet::new(),
            working: BTreeMap::new(),
            answers: BTreeMap::new(),
            orders: 0,
        };
        for member in (1..=size).map(MemberId::new) {
            group.spawn(member, Start::New)?;
        }
        for member in (1..=size).map(MemberId::new) {
            group.until_ready(member)?;
        }
        Ok(group)
    }

    /// What leaders of this group may rely on.
    pub fn guarantee(&self) -> PeerGuarantee {
        self.guarantee
    }

    /// All members whose processes were started and not ended.
    pub fn members(&self) -> Vec<MemberId> {
        self.processes.keys().copied().collect()
    }

    fn spawn(&mut self, member: MemberId, start: Start) -> Result<(), GroupError> {
        self.ready.remove(&member);
        let command = self.members.command(member, start);
        let mut command = self.with_conduct(member, command);
        let (log, hears) = (self.log(member)?, self.hears.clone());
        let process = ChildProcess::spawn(&mut command, log, move |line| {
            let _ = hears.send((member, line.to_owned()));
        });
        let process = process.map_err(system(format!("start {member}")))?;
        self.processes.insert(member, process);
        Ok(())
    }

    fn with_conduct(&self, member: MemberId, mut command: Command) -> Command {
        command.arg("--pace-us").arg(self.conduct.pace.as_micros().to_string());
        if self.conduct.register {
            command.arg("--register").arg(self.directory.path().join("register"));
        }
        if self.conduct.careless {
            command.arg("--careless");
        }
        if self.conduct.hasty {
            command.arg("--hasty");
        }
        placed(&*self.members, member, command)
    }

    fn log_path(&self, member: MemberId) -> PathBuf {
        self.directory.path().join(format!("{member}.log"))
    }

    fn log(&self, member: MemberId) -> Result<File, GroupError> {
        let opened = OpenOptions::new().create(true).append(true).open(self.log_path(member));
        opened.map_err(system(format!("keep what {member} says")))
    }

    /// Waits until a member that was started takes part.
    pub fn until_ready(&mut self, member: MemberId) -> Result<(), GroupError> {
        self.until(format!("{member} takes part"), |group| {
            group.ready.contains(&member).then_some(())
        })
    }

    /// Waits for something, as long as the subject's patience lasts.
    pub fn until<T>(
        &mut self,
        what: impl Into<String>,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, GroupError> {
        let began = Instant::now();
        loop {
            self.listen()?;
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if began.elapsed() >= self.patience {
                let (what, bound, log) = (what.into(), self.patience, self.complaints());
                return Err(GroupError::NotInTime { what, bound, log });
            }
            if let Ok((member, line)) = self.said.recv_timeout(LOOK) {
                self.take(member, &line)?;
            }
        }
    }

    /// Records everything that was said up to now.
    fn listen(&mut self) -> Result<(), GroupError> {
        while let Ok((member, line)) = self.said.try_recv() {
            self.take(member, &line)?;
        }
        Ok(())
    }

    fn take(&mut self, member: MemberId, line: &str) -> Result<(), GroupError> {
        let report =
            line.parse().map_err(|_| GroupError::Nonsense { member, line: line.to_owned() })?;
        self.history.record(member, &report);
        match report {
            ActorReport::Ready => {
                self.ready.insert(member);
            }
            ActorReport::Working { term } => {
                self.working.insert(member, term);
            }
            ActorReport::Done { number, answer } => {
                self.answers.insert(number, answer);
            }
            _ => {}
        }
        Ok(())
    }

    /// The end of what members wrote to standard error.
    fn complaints(&self) -> String {
        let mut all = String::new();
        for member in self.processes.keys() {
            let text = std::fs::read(self.log_path(*member)).unwrap_or_default();
            let end = &text[text.len().saturating_sub(SHOWN_BYTES)..];
            if !end.is_empty() {
                all += &format!("\n--- {member}\n{}", String::from_utf8_lossy(end));
            }
        }
        all
    }

    /// What was done and seen up to now.
    pub fn history(&mut self) -> Result<&mut History, GroupError> {
        self.listen()?;
        self.history.accepted = self.register.as_ref().map(Register::accepted).unwrap_or_default();
        Ok(&mut self.history)
    }

    /// How many writes the register has refused.
    pub fn refused_writes(&self) -> u64 {
        self.register.as_ref().map_or(0, Register::refused)
    }

    /// Everything that has happened and must not.
    pub fn violations(&mut self) -> Result<Vec<HistoryViolation>, GroupError> {
        let (guarantee, excludes) = (self.guarantee, self.excludes);
        let history = self.history()?;
        Ok(if excludes { judge(guarantee, history) } else { Vec::new() })
    }

    /// Waits until someone leads, acts, and is known as the leader of its term by every member that runs; or at
    /// least by itself, and nobody knows better, where members do not know of each other; or, where two may lead, that
    /// someone acts and all that run take part. What it did last.
    pub fn settle(&mut self) -> Result<Act, GroupError> {
        let began = now();
        self.until("everyone knows the leader that acts", |group| {
            let history = &group.history;
            let act = if group.excludes { history.latest() } else { history.newest() };
            let act = act.filter(|act| act.at >= began)?;
            let known = Some((act.member, act.term));
            let mut running = group
                .processes
                .keys()
                .filter(|member| !group.paused.contains(member) && !group.outside.contains(member));
            let agrees = |member: &MemberId| match group.history.view(*member) {
                view if !group.excludes => view.is_some_and(|view| view != Seen::Stopped),
                Some(Seen::Electing) => !group.knows_leader && *member != act.member,
                view => view.and_then(|view| view.leader(*member)) == known,
            };
            running.all(agrees).then_some(act)
        })
    }

    /// A member was removed from the group: its process may run on, and nobody waits until it follows.
    pub fn leave_outside(&mut self, member: MemberId) {
        self.outside.insert(member);
    }

    /// Waits for an act in a higher term. The first of the highest.
    pub fn next(&mut self, after: Term) -> Result<Act, GroupError> {
        self.until(format!("someone acts in a term above {after}"), |group| {
            let Act { member, term, .. } = group.history.latest()?;
            let first = group.history.reign(term, member)?.first;
            (term > after).then_some(Act { member, term, at: first })
        })
    }

    /// Waits until a member has acted in a term after some time.
    pub fn acts_after(&mut self, member: MemberId, term: Term, at: u64) -> Result<(), GroupError> {
        self.until(format!("{member} goes on acting in term {term}"), |group| {
            group.history.reign(term, member).filter(|reign| reign.last > at).map(|_| ())
        })
    }

    /// Watches the group until leaders have acted so many times more.
    pub fn watch(&mut self, acts: u64) -> Result<(), GroupError> {
        let before = self.history()?.counted();
        self.until(format!("{acts} more acts"), |group| {
            (group.history.counted() >= before + acts).then_some(())
        })
    }

    /// Waits until the work that a member was told to lead with has begun in a term.
    pub fn works(&mut self, member: MemberId, term: Term) -> Result<(), GroupError> {
        self.until(format!("{member} works in term {term}"), |group| {
            (group.working.get(&member) == Some(&term)).then_some(())
        })
    }

    /// Gives a member an order and waits for its answer: what it has to say, or why it did not obey.
    pub fn order(
        &mut self,
        member: MemberId,
        order: Instruction,
    ) -> Result<Result<String, String>, GroupError> {
        let what = format!("{member} answers to `{order}`");
        let number = self.tell(member, order)?;
        self.until(what, |group| group.answered(number))
    }

    /// The answer to the order with this number, if it is there; once.
    pub fn answered(&mut self, number: u64) -> Option<Result<String, String>> {
        self.answers.remove(&number)
    }

    /// Gives a member an order and does not wait; its number.
    pub fn tell(&mut self, member: MemberId, order: Instruction) -> Result<u64, GroupError> {
        self.orders += 1;
        let line = format!("{} {order}", self.orders);
        self.process(member)?.tell(&line).map_err(system(format!("tell {member} to {order}")))?;
        Ok(self.orders)
    }

    fn process(&mut self, member: MemberId) -> Result<&mut ChildProcess, GroupError> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "it does not run");
        let process = self.processes.get_mut(&member);
        process.ok_or_else(gone).map_err(system(format!("find the process of {member}")))
    }

    fn signal(&mut self, member: MemberId, signal: Signal) -> Result<(), GroupError> {
        self.process(member)?.signal(signal).map_err(system(format!("signal {member}")))
    }

    /// Ends a member at once (SIGKILL).
    pub fn kill(&mut self, member: MemberId) -> Result<(), GroupError> {
        self.process(member)?.kill().map_err(system(format!("kill {member}")))?;
        self.gone(member)
    }

    /// A process has ended, and everything that it said was heard: it sees nothing any more.
    fn gone(&mut self, member: MemberId) -> Result<(), GroupError> {
        self.processes.remove(&member);
        self.paused.remove(&member);
        self.listen()?;
        self.history.record(member, &ActorReport::View { at: now(), seen: Seen::Stopped });
        Ok(())
    }

    /// Stops a member where it is (SIGSTOP).
    pub fn pause(&mut self, member: MemberId) -> Result<(), GroupError> {
        self.signal(member, Signal::STOP)?;
        self.paused.insert(member);
        Ok(())
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&mut self, member: MemberId) -> Result<(), GroupError> {
        self.signal(member, Signal::CONT)?;
        self.paused.remove(&member);
        Ok(())
    }

    /// Asks a member to end in good order (SIGTERM).
    pub fn terminate(&mut self, member: MemberId) -> Result<(), GroupError> {
        self.signal(member, Signal::TERM)
    }

    /// Whether a member's process has ended by itself.
    pub fn has_ended(&mut self, member: MemberId) -> bool {
        let process = self.processes.get_mut(&member);
        process.is_some_and(|process| matches!(process.ended(), Ok(Some(_))))
    }

    /// Waits until a member's process has ended by itself, and how.
    pub fn ended(&mut self, member: MemberId) -> Result<ExitStatus, GroupError> {
        let status = self.until(format!("the process of {member} ends"), |group| {
            let process = group.processes.get_mut(&member)?;
            process.ended().ok().flatten()
        })?;
        self.gone(member)?;
        Ok(status)
    }

    /// Starts a member again, and waits until it takes part.
    pub fn restart(&mut self, member: MemberId, start: Start) -> Result<(), GroupError> {
        self.restart_all(&BTreeSet::from([member]), start)
    }

    /// Starts members again, all at once, and waits until they take part.
    pub fn restart_all(
        &mut self,
        members: &BTreeSet<MemberId>,
        start: Start,
    ) -> Result<(), GroupError> {
        self.begin_all(members, start)?;
        members.iter().try_for_each(|member| self.until_ready(*member))
    }

    /// Starts members, all at once, and does not wait: also ones that were never started, if the subject knows them.
    pub fn begin_all(
        &mut self,
        members: &BTreeSet<MemberId>,
        start: Start,
    ) -> Result<(), GroupError> {
        members.iter().try_for_each(|member| self.spawn(*member, start))
    }

    /// Everything that a member wrote to standard error, over all its starts.
    pub fn logged(&self, member: MemberId) -> String {
        let text = std::fs::read(self.log_path(member)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Starts a member that runs once more, from the same state; how that ended, and what it complained.
    pub fn start_twin(&mut self, member: MemberId) -> Result<(ExitStatus, String), GroupError> {
        let command = self.members.twin(member);
        let mut command = self.with_conduct(member, command);
        let path = self.directory.path().join(format!("{member}-twin.log"));
        let log = File::create(&path).map_err(system("keep what the second one says"))?;
        let twin = ChildProcess::spawn(&mut command, log, |_| ());
        let mut twin = twin.map_err(system(format!("start {member} once more")))?;
        let what = format!("a second process of {member} ends");
        let status = self.until(what, |_| twin.ended().ok().flatten())?;
        Ok((status, std::fs::read_to_string(path).unwrap_or_default()))
    }

    /// What members elect by, if it can be cut.
    pub fn cables(&self) -> Result<&dyn NetworkFaults, GroupError> {
        self.members.cables().ok_or(GroupError::NoCables)
    }
}
