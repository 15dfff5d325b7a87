//! A command and everything it starts.
//!
//! - It is a process group of its own: signals reach all of it.
//! - It dies with us: before it becomes the command, the child asks the kernel to kill it when its
//!   parent dies. (That is why it is started through this program, which then becomes the command.)
//! - What leaves the group (`setsid`, daemons) becomes our child when its own parent ends, since we adopt
//!   orphans; so everything it has ever started descends from us, and is found in `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use mandate_proto::identity::Term;
use rustix::process::{
    Pid, Signal, kill_process, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal,
};
use tokio::process::Child;
use tokio::time::{sleep, timeout};

/// How often it is looked whether all are gone.
const LOOK: Duration = Duration::from_millis(2);

/// How often orphans that have ended are taken note of.
const REAP: Duration = Duration::from_secs(1);

/// After SIGKILL nothing lives on but what sleeps in the kernel.
const KILL_TIME: Duration = Duration::from_secs(5);

pub(crate) struct Tree {
    child: Child,
    group: Pid,
    /// Processes that were there before: not the command's, and left alone.
    others: BTreeSet<i32>,
}

/// Makes this process the parent of every orphan among its descendants.
pub(crate) fn adopt_orphans() -> anyhow::Result<()> {
    let me = rustix::process::getpid();
    set_child_subreaper(Some(me)).context("could not adopt orphans")
}

/// What descends from this process already: a container's entry point may have started it before it
/// became this program.
pub(crate) fn descendants_so_far() -> BTreeSet<i32> {
    let living = Processes::read(&BTreeSet::new()).living;
    living.into_iter().map(|process| process.as_raw_nonzero().get()).collect()
}

/// Becomes the command, which dies when its parent does.
pub(crate) fn become_command(command: &[String]) -> anyhow::Result<Infallible> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("could not tie the command's life to ours")?;
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    Err(error).with_context(|| format!("could not run {}", command[0]))
}

impl Tree {
    pub(crate) fn start(
        role: &str,
        term: Term,
        command: &[String],
        others: BTreeSet<i32>,
    ) -> anyhow::Result<Self> {
        // This very program, also if its file was replaced since it was started.
        let mut starter = Command::new("/proc/self/exe");
        if std::io::stdin().is_terminal() {
            // In a group of its own the command is in the background, and would be stopped if it read.
            starter.stdin(Stdio::null());
        }
        starter.arg("become").arg("--").args(command);
        starter.env("MANDATE_ROLE", role).env("MANDATE_TERM", term.to_string());
        starter.process_group(0);
        let child = tokio::process::Command::from(starter)
            .spawn()
            .context("could not start this program anew, to become the command")?;
        let id = child.id().and_then(|id| Pid::from_raw(id as i32));
        Ok(Tree { child, group: id.context("the command has ended already")?, others })
    }

    /// Waits for the command itself to end; takes note of orphans that end meanwhile.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        loop {
            if let Ok(status) = timeout(REAP, self.child.wait()).await {
                return status.context("could not wait for the command");
            }
            self.reap(&Processes::read(&self.others));
        }
    }

    /// Ends all of it: asks it to, and kills what is left when there is no time left.
    pub(crate) async fn end(&mut self, left: impl Fn() -> Duration) -> anyhow::Result<()> {
        if !left().is_zero() {
            let _ = kill_process_group(self.group, Signal::TERM);
            while !left().is_zero() && !self.living().is_empty() {
                sleep(LOOK).await;
            }
        }
        let until = Instant::now() + KILL_TIME;
        // Twice, lest one was missed whose parent ended while we looked.
        let mut empty = 0;
        while empty < 2 {
            let _ = kill_process_group(self.group, Signal::KILL);
            let living = self.living();
            empty = if living.is_empty() { empty + 1 } else { 0 };
            for process in &living {
                let _ = kill_process(*process, Signal::KILL);
            }
            anyhow::ensure!(
                Instant::now() < until,
                "processes that the command started cannot be killed: {living:?}. They may still act"
            );
            if empty < 2 {
                sleep(LOOK).await;
            }
        }
        Ok(())
    }

    /// What of it has not ended.
    fn living(&mut self) -> Vec<Pid> {
        let _ = self.child.try_wait();
        let processes = Processes::read(&self.others);
        self.reap(&processes);
        processes.living
    }

    fn reap(&self, processes: &Processes) {
        for zombie in processes.zombies.iter().filter(|zombie| **zombie != self.group) {
            let _ = rustix::process::waitpid(Some(*zombie), rustix::process::WaitOptions::NOHANG);
        }
    }
}

/// What descends from this process.
struct Processes {
    /// All that have not ended.
    living: Vec<Pid>,
    /// Our own children that have ended and that nobody has taken note of yet.
    zombies: Vec<Pid>,
}

impl Processes {
    /// All but these and what descends from them.
    fn read(others: &BTreeSet<i32>) -> Self {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        let mut zombies = Vec::new();
        for (id, parent, is_zombie) in all_processes() {
            if !is_zombie {
                children.entry(parent).or_default().push(id);
            } else if parent == me {
                zombies.push(id);
            }
        }
        let mut found = BTreeSet::new();
        let mut open = vec![me];
        while let Some(parent) = open.pop() {
            for child in children.get(&parent).into_iter().flatten() {
                if !others.contains(child) && found.insert(*child) {
                    open.push(*child);
                }
            }
        }
        let pids = |ids: Vec<i32>| ids.into_iter().filter_map(Pid::from_raw).collect();
        Processes { living: pids(found.into_iter().collect()), zombies: pids(zombies) }
    }
}

/// Every process of the host: its id, its parent's, and whether it has ended.
fn all_processes() -> impl Iterator<Item = (i32, i32, bool)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| {
        let id = process.file_name().to_str()?.parse().ok()?;
        // "id (name) state parent ...": the name may hold anything, so the last parenthesis counts.
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // A process whose first thread has ended looks like a zombie while the others run on.
        let threads: u32 = fields.get(17)?.parse().ok()?;
        Some((id, fields.get(1)?.parse().ok()?, *fields.first()? == "Z" && threads <= 1))
    })
}
