//! Commands that run where leadership is: what `mandate run` promises, with commands as people write them.
//!
//! A shell in which every test is written hides what other programs suffer from: dash clears its signal
//! mask, bash, Python and `sleep` do not. So each kind is tried. Commands act as members do, by lines on
//! standard output; the wrapper passes those on untouched. All commands of a trial are of one kind, so that
//! their clocks are read in one way and acts can be compared.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use mandate_proto::identity::{MemberId, Term};
use mandate_runtime::Start;
use rustix::process::Signal;
use tempfile::TempDir;

use super::{CheckFailure, Proof, SIZE, Trial, WATCHED_ACTS, ensure};
use crate::group::{GroupError, system};
use crate::history::{History, now};
use crate::judge::judge;
use crate::process::ChildProcess;
use crate::subject::Members;

/// Before a command that does not end when it is asked would be killed: longer than anything is waited for, so that
/// one that ends was asked.
const GRACE: &str = "1h";

/// The exit code of a command that has heard SIGTERM and ended by itself.
const HEARD: i32 = 21;

/// That of one that SIGTERM has ended.
const TERMINATED: i32 = 128 + 15;

/// How often a wrapper is killed and started again.
const KILLS: u32 = 3;

/// How often it is tried to ask a command to end, where leadership is lost just then.
const ATTEMPTS: u32 = 10;

/// How much of what wrappers complained is shown with an error.
const SHOWN_BYTES: usize = 2000;

const LOOK: Duration = Duration::from_millis(5);

/// A kind of command.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    command: &'static [&'static str],
    /// How it ends when it is asked to.
    ends_with: i32,
    /// Whether it says that it acts.
    acts: bool,
}

/// Reads the clock that counts suspension, in hundredths: all that a shell gets at. Rounded in one direction, so that
/// their order is never turned around.
const BASH: Kind = Kind {
    name: "bash",
    command: &[
        "bash",
        "-c",
        "trap 'exit 21' TERM; while :; do read -r up _ < /proc/uptime; \
         echo \"act $MANDATE_TERM ${up/./}0000000\"; sleep 0.01; done",
    ],
    ends_with: HEARD,
    acts: true,
};

const PYTHON: Kind = Kind {
    name: "Python",
    command: &[
        "python3",
        "-u",
        "-c",
        "import os, signal, sys, time\n\
         signal.signal(signal.SIGTERM, lambda *_: sys.exit(21))\n\
         while True:\n    \
             print('act', os.environ['MANDATE_TERM'], time.clock_gettime_ns(time.CLOCK_BOOTTIME))\n    \
             time.sleep(0.01)\n",
    ],
    ends_with: HEARD,
    acts: true,
};

/// Says nothing, and knows nothing of signals.
const SLEEP: Kind =
    Kind { name: "sleep", command: &["sleep", "1000000"], ends_with: TERMINATED, acts: false };

/// Does not end when it is asked to: it acts for as long as it is let.
const STUBBORN: Kind = Kind {
    name: "stubborn bash",
    command: &[
        "bash",
        "-c",
        "trap '' TERM; while :; do read -r up _ < /proc/uptime; \
         echo \"act $MANDATE_TERM ${up/./}0000000\"; sleep 0.01; done",
    ],
    ends_with: 128 + 9,
    acts: true,
};

/// The wrapper of the leader is asked to stop. Its command hears of it, ends, and the next begins.
pub(super) fn asked_to_end(trial: &Trial<'_>) -> Proof {
    let mut seen = Vec::new();
    for kind in [BASH, PYTHON, SLEEP] {
        let mut wrappers = Wrappers::start(trial, kind)?;
        let leader = wrappers.ask_to_end()?;
        let next = wrappers.runs()?;
        ensure(next != leader, || format!("{leader} has ended, and begins again"))?;
        wrappers.conclude()?;
        seen.push(kind.name);
    }
    Ok(format!("{} ended by themselves", seen.join(", ")))
}

/// The wrapper of the leader is killed and started again at once, as a supervisor would. Its command
/// acts for as long as its guard lets it.
pub(super) fn outlives(trial: &Trial<'_>) -> Proof {
    let mut wrappers = Wrappers::start(trial, STUBBORN)?;
    let mut term = Term::NONE;
    for _ in 0..KILLS {
        let (leader, led) = wrappers.acts_above(term)?;
        wrappers.kill(leader);
        wrappers.spawn(leader, Start::Stored)?;
        term = led;
    }
    wrappers.acts_above(term)?;
    let before = wrappers.history.counted();
    wrappers.until("the last one acts on", |wrappers| {
        (wrappers.history.counted() >= before + WATCHED_ACTS).then_some(())
    })?;
    let (terms, acts) = (wrappers.history.reigns().count(), wrappers.history.counted());
    wrappers.conclude()?;
    Ok(format!("{KILLS} kills, {terms} terms, {acts} acts of commands"))
}

/// One wrapper a member.
struct Wrappers<'a> {
    // In the order in which they must end.
    running: BTreeMap<MemberId, ChildProcess>,
    members: Box<dyn Members>,
    directory: TempDir,
    trial: &'a Trial<'a>,
    kind: Kind,
    said: Receiver<(MemberId, String)>,
    hears: Sender<(MemberId, String)>,
    history: History,
}

impl<'a> Wrappers<'a> {
    /// Starts a wrapper for each member of a new group.
    fn start(trial: &'a Trial<'a>, kind: Kind) -> Result<Self, CheckFailure> {
        let directory = tempfile::Builder::new().prefix("mandate-").tempdir();
        let directory = directory.map_err(system("make a private directory"))?;
        let members = trial.subject.group(SIZE, directory.path()).map_err(GroupError::Setup)?;
        let (hears, said) = channel();
        let (running, history) = (BTreeMap::new(), History::default());
        let mut wrappers =
            Wrappers { running, members, directory, trial, kind, said, hears, history };
        for member in (1..=SIZE).map(MemberId::new) {
            wrappers.spawn(member, Start::New)?;
        }
        Ok(wrappers)
    }

    fn spawn(&mut self, member: MemberId, start: Start) -> Result<(), CheckFailure> {
        let wrapper = self.members.wrapper(member, start).ok_or(GroupError::NoWrapper)?;
        // A wrapper does not know of the harness, and would outlive one that was killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        command.arg(wrapper.get_program()).args(wrapper.get_args());
        for (name, value) in wrapper.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.args(["--again", "--grace", GRACE, "--"]).args(self.kind.command);
        let log = OpenOptions::new().create(true).append(true).open(self.log_path(member));
        let log: File = log.map_err(system(format!("keep what the wrapper of {member} says")))?;
        let hears = self.hears.clone();
        let process = ChildProcess::spawn(&mut command, log, move |line| {
            let _ = hears.send((member, line.to_owned()));
        });
        let process = process.map_err(system(format!("start a wrapper for {member}")))?;
        self.running.insert(member, process);
        Ok(())
    }

    fn log_path(&self, member: MemberId) -> PathBuf {
        self.directory.path().join(format!("{member}-wrapper.log"))
    }

    fn logged(&self, member: MemberId) -> String {
        std::fs::read_to_string(self.log_path(member)).unwrap_or_default()
    }

    /// Ends a wrapper at once, and does not wait for what its command has to say.
    fn kill(&mut self, member: MemberId) {
        self.running.remove(&member);
    }

    fn signal(&self, member: MemberId, signal: Signal) -> Result<(), CheckFailure> {
        let sent = self.running.get(&member).map_or(Ok(()), |process| process.signal(signal));
        Ok(sent.map_err(system(format!("signal the wrapper of {member}")))?)
    }

    /// Waits until a wrapper has ended; its exit code.
    fn ended(&mut self, member: MemberId) -> Result<Option<i32>, CheckFailure> {
        let status = self.until(&format!("the wrapper of {member} ends"), |wrappers| {
            wrappers.running.get_mut(&member)?.ended().ok().flatten()
        })?;
        self.running.remove(&member);
        Ok(status.code())
    }

    /// Asks the wrapper of the leader to stop, and sees that its command ends by itself; whose it was. Where leadership was
    /// lost in that moment, on a busy host, there was no command to ask: then another attempt is made.
    fn ask_to_end(&mut self) -> Result<MemberId, CheckFailure> {
        let ends_with = self.kind.ends_with;
        let mut code = None;
        for _ in 0..ATTEMPTS {
            let leader = self.runs()?;
            self.signal(leader, Signal::TERM)?;
            code = self.ended(leader)?;
            if code == Some(ends_with) {
                return Ok(leader);
            }
            ensure(!self.is_running(leader), || {
                format!("{} ended with {code:?}, not with {ends_with}", self.kind.name)
            })?;
            self.spawn(leader, Start::Stored)?;
        }
        Err(CheckFailure::Otherwise(format!(
            "leadership was lost {ATTEMPTS} times; {code:?} at last"
        )))
    }

    /// Whether the last thing that a member's wrapper said is that it starts its command.
    fn is_running(&self, member: MemberId) -> bool {
        let (text, start) = (self.logged(member), format!("starting {}", self.kind.command[0]));
        let last = |words: &str| text.rfind(words);
        last(&start).is_some() && last(&start) > last("stopping the command")
    }

    /// Waits until a command runs, and has said what it does with signals, if it says anything; whose it is.
    fn runs(&mut self) -> Result<MemberId, CheckFailure> {
        let acts = self.kind.acts.then(now);
        self.until("a command runs", |wrappers| {
            let is_running = |member: &MemberId| wrappers.is_running(*member);
            let leader = wrappers.running.keys().copied().find(is_running)?;
            let has_acted = |since| {
                let act = wrappers.history.newest();
                act.is_some_and(|act| act.member == leader && act.at >= since)
            };
            acts.is_none_or(has_acted).then_some(leader)
        })
    }

    /// Waits until a command acts in a higher term, and who runs it.
    fn acts_above(&mut self, term: Term) -> Result<(MemberId, Term), CheckFailure> {
        self.until(&format!("a command acts in a term above {term}"), |wrappers| {
            let act = wrappers.history.latest().filter(|act| act.term > term)?;
            Some((act.member, act.term))
        })
    }

    fn until<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, CheckFailure> {
        let (began, bound) = (Instant::now(), self.trial.subject.patience());
        loop {
            while let Ok((member, line)) = self.said.try_recv() {
                // Of what the wrapper itself says nothing goes there.
                let report = line
                    .parse()
                    .map_err(|_| GroupError::Nonsense { member, line: line.clone() })?;
                self.history.record(member, &report);
            }
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if began.elapsed() >= bound {
                let (what, log) = (what.to_owned(), self.complaints());
                return Err(GroupError::NotInTime { what, bound, log }.into());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn complaints(&self) -> String {
        let shown = |member| {
            let text = self.logged(member);
            let from = text.len().saturating_sub(SHOWN_BYTES);
            let end = (from..).find_map(|from| text.get(from..)).unwrap_or_default();
            format!("\n--- {member}\n{end}")
        };
        (1..=SIZE).map(MemberId::new).map(shown).collect()
    }

    /// What commands did is judged as what members do.
    fn conclude(self) -> Result<(), CheckFailure> {
        let violations = judge(self.trial.subject.guarantee(), &self.history);
        if violations.is_empty() { Ok(()) } else { Err(CheckFailure::Broken(violations)) }
    }
}
