//! The guard: a small process between `mandate run` and its command, which ends the command in time also
//! when nobody is left to tell it to.
//!
//! It starts the command, adopts what that leaves behind, and knows one thing: until when the mandate
//! holds. The wrapper moves that time on as its lease is renewed. When the time comes near and has not been
//! moved, or when the wrapper is gone, the guard ends everything below it: SIGTERM, and SIGKILL before the
//! deadline. It sleeps on a timer of the clock that counts suspension, blocks every signal that can be
//! blocked (the command starts with none blocked), and has no thread, no network and no disk that could keep it.
//!
//! If the wrapper's member has a state file, the guard shares the lock of that file until nothing of the
//! command is left. So a wrapper that is killed and started again does not take part, let alone start a second
//! command, while the first one still acts.
//!
//! What holds when:
//!
//! | what happens | what follows |
//! | --- | --- |
//! | the wrapper is killed | with leases SIGTERM, then SIGKILL before the deadline; without, SIGKILL at once |
//! | it is then started again | with a state file it waits until the command is gone |
//! | the wrapper is stopped or starved | with leases the same; without, nothing until it runs again |
//! | the guard is killed | the kernel kills the command, the wrapper what that has started |
//! | the guard is stopped or starved | with leases the wrapper kills it and the rest, 50 ms before the deadline |
//! | both are killed at once | the kernel kills the command itself; what it has started keeps running |
//! | all are stopped, then continued | a command that runs before its guard does may act for that moment |
//! | the command becomes another user (`sudo`) | neither may kill it: it is named, and leadership not given back |
//! | it forks without end | killed, unless it has left its process group and never stays one process: see [`tree`] |
//!
//! So a deadline is kept by the guard *or* the wrapper, whichever runs, assuming that one of them gets the
//! processor for a few milliseconds within the last 100 before it. An application that cannot accept what is left checks terms
//! where it matters.
//!
//! A thread of the wrapper would be stopped and killed along with it. `timeout(1)` and supervisors watch a
//! command in one process, and die in one. A process-id namespace would end everything with its first
//! process, but needs privileges, and changes what the command sees of its host.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::guard_protocol::{Heard, Order, Report, Socket, Until, boottime};
use super::signals::TERM;
use super::tree::{self, KILL_TIME, Killing, LOOK, Tree};
use crate::exit::Exit;

/// How often it is looked whether a command that was asked to end has done so.
const ASKED_LOOK: Duration = Duration::from_millis(10);

/// The same for processes that cannot be killed.
const STUCK_LOOK: Duration = Duration::from_millis(250);

/// How often it is looked whether a command in the foreground was stopped: of what its children do, nobody
/// tells.
const FOREGROUND_LOOK: Duration = Duration::from_millis(250);

/// Guard a command: how `run` starts it.
#[derive(Debug, clap::Args)]
pub(crate) struct GuardArgs {
    /// The command is to have the terminal.
    #[arg(long)]
    pub(crate) foreground: bool,
    /// The command.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

/// Guards a command until nothing of it is left. Standard input is the socket to the wrapper.
pub(crate) fn run(args: &GuardArgs) -> anyhow::Result<Exit> {
    SigSet::all().thread_block().context("could not block signals")?;
    tree::adopt_orphans()?;
    let socket = Socket::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    poll(&mut [PollFd::new(&socket, PollFlags::IN)], None)?;
    let Heard::Message(Order::Until(until), files) = socket.receive()? else {
        anyhow::bail!("this is started by `mandate run` only");
    };
    let mut files = files.into_iter();
    let stdin = files.next().context("the wrapper handed no standard input over")?;
    // Held, not used: it is released with this process. The command does not inherit it.
    let _lock = files.next();
    if until.ask_at().is_some_and(|at| at <= boottime()) {
        let _ = socket.send(&Report::Gone { code: None, by_itself: false }, &[]);
        return Ok(Exit::Success);
    }
    Guard::start(args, socket, until, stdin)?.watch()?;
    Ok(Exit::Success)
}

/// How far the end has come.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The mandate holds.
    Running,
    /// The command was asked to end, and has until then.
    Asked { kill_at: Duration },
    /// What is left is being killed, since then.
    Killing { since: Duration },
}

struct Guard {
    socket: Socket,
    /// The command, which is also its process group.
    command: Pid,
    until: Until,
    phase: Phase,
    killing: Killing,
    status: Option<WaitStatus>,
    by_itself: bool,
    is_stuck: bool,
    wrapper_is_gone: bool,
    foreground: bool,
    ended: SignalFd,
    timer: OwnedFd,
}

impl Guard {
    fn start(
        args: &GuardArgs,
        socket: Socket,
        until: Until,
        stdin: OwnedFd,
    ) -> anyhow::Result<Self> {
        let mut children = SigSet::empty();
        children.add(nix::sys::signal::Signal::SIGCHLD);
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let ended = SignalFd::with_flags(&children, flags)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        // This very program, also if its file was replaced since it was started.
        let mut starter = Command::new("/proc/self/exe");
        starter
            .arg0("mandate")
            .arg("become")
            .arg("--guard")
            .arg(getpid().as_raw_nonzero().to_string());
        if args.foreground {
            starter.arg("--foreground");
        }
        starter.arg("--").args(&args.command).stdin(stdin).process_group(0);
        let child = starter.spawn().context("could not start this program anew")?;
        let command = Pid::from_raw(child.id().cast_signed()).context("it has no number")?;
        Ok(Guard {
            socket,
            command,
            until,
            phase: Phase::Running,
            killing: Killing::new(BTreeSet::new(), group_of(command)),
            status: None,
            by_itself: false,
            is_stuck: false,
            wrapper_is_gone: false,
            foreground: args.foreground,
            ended,
            timer,
        })
    }

    fn watch(mut self) -> anyhow::Result<()> {
        loop {
            self.obey()?;
            self.take_note();
            if self.advance() {
                let code = self.status.map(code_of);
                let _ = self.socket.send(&Report::Gone { code, by_itself: self.by_itself }, &[]);
                return Ok(());
            }
            self.sleep()?;
        }
    }

    /// Takes orders; the last is that the wrapper is gone.
    fn obey(&mut self) -> anyhow::Result<()> {
        while !self.wrapper_is_gone {
            match self.socket.receive()? {
                Heard::Nothing => return Ok(()),
                Heard::Message(Order::Until(until), _) => self.until = until,
                Heard::Message(Order::Signal(signal), _) => self.signal(signal),
                Heard::Message(Order::End { signal, by }, _) => self.ask(signal, by),
                Heard::End => {
                    self.wrapper_is_gone = true;
                    // Without leases others may lead at once.
                    self.ask(TERM, self.until.kill_at().unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    fn signal(&self, signal: i32) {
        if let (None, Some(signal)) = (self.status, Signal::from_named_raw(signal)) {
            let _ = kill_process_group(self.command, signal);
        }
    }

    /// Asks the command to end, if there is time for that.
    fn ask(&mut self, signal: i32, by: Duration) {
        match self.phase {
            Phase::Killing { .. } => {}
            Phase::Asked { kill_at } => self.phase = Phase::Asked { kill_at: kill_at.min(by) },
            Phase::Running => {
                if by > boottime() {
                    self.signal(signal);
                    // What was stopped could not even begin to end.
                    self.signal(Signal::CONT.as_raw());
                }
                self.phase = Phase::Asked { kill_at: by };
            }
        }
    }

    /// Takes note of what has ended, the command or an orphan.
    fn take_note(&mut self) {
        while let Ok(Some(_)) = self.ended.read_signal() {}
        while let Ok(Some((process, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if process == self.command {
                self.status = Some(status);
            }
        }
        // Ctrl-Z: nobody would give the terminal back to the shell.
        if self.foreground && self.look().is_stopped(self.command) {
            self.signal(Signal::CONT.as_raw());
        }
    }

    /// What there is of the command.
    fn look(&self) -> Tree {
        Tree::look(&BTreeSet::new(), &group_of(self.command))
    }

    /// Does what is due; whether nothing of the command is left.
    fn advance(&mut self) -> bool {
        let now = boottime();
        if matches!(self.phase, Phase::Running) {
            if self.status.is_some() {
                // Whatever it has left behind must not act on: leadership is given back.
                self.by_itself = true;
                self.phase = Phase::Killing { since: now };
            } else if self.until.ask_at().is_some_and(|at| at <= now) {
                let _ = self.socket.send(&Report::Ending, &[]);
                self.ask(TERM, self.until.kill_at().unwrap_or_default());
            }
        }
        if let Phase::Asked { kill_at } = self.phase {
            let kill_at = self.until.kill_at().map_or(kill_at, |until| until.min(kill_at));
            // Those that left the process group were not asked, and nobody waits for them.
            let group = self.command.as_raw_nonzero().get();
            if kill_at <= now || !self.look().groups().contains(&group) {
                self.phase = Phase::Killing { since: now };
            }
        }
        if let Phase::Killing { since } = self.phase {
            let tree = self.killing.kill_once();
            if self.killing.is_done() {
                self.take_note();
                return true;
            }
            if !self.is_stuck && now >= since + KILL_TIME {
                self.is_stuck = true;
                let mut names = format!("{:?}", tree.ids());
                names.truncate(1000);
                let _ = self.socket.send(&Report::Stuck(names), &[]);
            }
        }
        false
    }

    /// Sleeps until something happens or is due.
    fn sleep(&self) -> anyhow::Result<()> {
        let now = boottime();
        let due = match self.phase {
            Phase::Running if self.foreground => {
                let look = now + FOREGROUND_LOOK;
                Some(self.until.ask_at().map_or(look, |at| at.min(look)))
            }
            Phase::Running => self.until.ask_at(),
            Phase::Asked { kill_at } => Some((now + ASKED_LOOK).min(kill_at)),
            Phase::Killing { .. } if self.is_stuck => Some(now + STUCK_LOOK),
            Phase::Killing { .. } => Some(now + LOOK),
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A time of zero would take the alarm off.
        let at = due.map_or(zero, |due| {
            let due = due.max(Duration::from_nanos(1));
            Timespec { tv_sec: due.as_secs().cast_signed(), tv_nsec: due.subsec_nanos().into() }
        });
        let alarm = Itimerspec { it_interval: zero, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &alarm)?;
        let mut woken_by =
            vec![PollFd::new(&self.timer, PollFlags::IN), PollFd::new(&self.ended, PollFlags::IN)];
        if !self.wrapper_is_gone {
            woken_by.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        poll(&mut woken_by, None)?;
        Ok(())
    }
}

/// The process group of the command, which is ours for as long as it exists.
fn group_of(command: Pid) -> BTreeSet<i32> {
    BTreeSet::from([command.as_raw_nonzero().get()])
}

/// The command's exit code, or 128 and the signal that ended it, as shells do.
fn code_of(status: WaitStatus) -> u8 {
    let code = status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
