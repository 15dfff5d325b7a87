//! The wrapper's side of a guard: orders, reports, and what to do when it fails.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use mandate::Value;
use mandate_proto::identity::Term;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Child;

use super::guard_protocol::{Heard, Order, Report, Socket, Until};
use super::{terminal, tree};

/// What the command finds in its environment.
pub(crate) struct Environment<'a> {
    pub(crate) role: &'a str,
    pub(crate) term: Term,
    /// What is published with the term.
    pub(crate) value: Option<&'a Value>,
}

/// A command under guard.
pub(crate) struct Guarded {
    guard: Child,
    socket: Socket,
    /// The same socket, as one that can be waited for.
    readable: UnixStream,
    /// Processes that were there before: not the command's, and left alone.
    others: BTreeSet<i32>,
    foreground: bool,
}

impl Guarded {
    /// Starts a guard, which starts the command. It shares this lock until nothing of the command is left.
    pub(crate) fn start(
        environment: Environment<'_>,
        until: Until,
        command: &[String],
        others: BTreeSet<i32>,
        lock: Option<&File>,
    ) -> anyhow::Result<Self> {
        let foreground = terminal::is_ours_alone();
        let (ours, theirs) = Socket::pair().context("could not make a pair of sockets")?;
        let mut guard = Command::new("/proc/self/exe");
        guard.arg0("mandate").arg("guard");
        if foreground {
            guard.arg("--foreground");
        }
        guard.arg("--").args(command).stdin(OwnedFd::from(theirs));
        let Environment { role, term, value } = environment;
        guard.env("MANDATE_ROLE", role).env("MANDATE_TERM", term.to_string());
        // One that was inherited from this program's parent is not about this term.
        guard.env_remove("MANDATE_LEADER_VALUE");
        if let Some(value) = value {
            guard.env("MANDATE_LEADER_VALUE", value.as_str());
        }
        // So that a signal to our process group does not hit both.
        guard.process_group(0);
        let guard = tokio::process::Command::from(guard).spawn();
        let guard = guard.context("could not start this program anew, to guard the command")?;
        let stdin = std::io::stdin();
        let input = if stdin.is_terminal() && !foreground {
            File::open("/dev/null").context("could not open /dev/null")?.into()
        } else {
            stdin.as_fd().try_clone_to_owned()?
        };
        let files: Vec<_> = std::iter::once(input.as_fd()).chain(lock.map(AsFd::as_fd)).collect();
        ours.send(&Order::Until(until), &files).context("could not tell the guard")?;
        let same = std::os::unix::net::UnixStream::from(ours.as_fd().try_clone_to_owned()?);
        let readable = UnixStream::from_std(same)?;
        Ok(Guarded { guard, socket: ours, readable, others, foreground })
    }

    /// Gives an order. One that cannot be given is lost, with the guard or before it would be read: the
    /// deadline that it knows holds.
    pub(crate) fn order(&self, order: Order) {
        if let Err(error) = self.socket.send(&order, &[]) {
            tracing::debug!(%error, ?order, "the guard was not told");
        }
    }

    /// What it reports next; nothing if it is gone.
    pub(crate) async fn report(&mut self) -> Option<Report> {
        loop {
            self.readable.readable().await.ok()?;
            let heard =
                self.readable.try_io(Interest::READABLE, || match self.socket.receive()? {
                    Heard::Message(report, _) => Ok(Some(report)),
                    Heard::End => Ok(None),
                    Heard::Nothing => Err(ErrorKind::WouldBlock.into()),
                });
            match heard {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                heard => return heard.ok()?,
            }
        }
    }

    /// What it has reported already, without waiting.
    pub(crate) fn reported(&self) -> Option<Report> {
        match self.socket.receive() {
            Ok(Heard::Message(report, _)) => Some(report),
            _ => None,
        }
    }

    /// Takes note of orphans that have ended, but not of the guard.
    pub(crate) fn reap(&self) {
        tree::reap(self.guard.id());
    }

    /// Kills what is left, without the guard, which is gone or does not do it.
    pub(crate) async fn step_in(&mut self) -> anyhow::Result<()> {
        let others = self.others.clone();
        let _ = self.guard.start_kill();
        let killed = tokio::task::spawn_blocking(move || tree::kill_all(others)).await?;
        self.let_go().await;
        killed.map_err(stuck)
    }

    /// Takes note of the guard's end, and takes the terminal back.
    pub(crate) async fn let_go(&mut self) {
        let _ = self.guard.wait().await;
        if self.foreground {
            terminal::take_back();
        }
    }
}

/// What is said of processes that cannot be killed.
pub(crate) fn stuck(names: String) -> anyhow::Error {
    anyhow::anyhow!(
        "processes that the command started cannot be killed: {names}. They may still act"
    )
}
