//! A command and everything it starts.
//!
//! - It is a process group of its own: signals reach all of it.
//! - It dies with us: before it becomes the command, the child asks the kernel to kill it when its
//!   parent dies. (That is why it is started through this program, which then becomes the command.)
//! - What leaves the group (`setsid`, daemons) becomes our child when its own parent ends, since we adopt
//!   orphans; so everything it has ever started descends from us, and is found in `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;
use mandate_proto::identity::Term;
use rustix::process::{
    Pid, Signal, kill_process, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal,
};
use tokio::process::Child;
use tokio::time::sleep;

/// How often it is looked whether all are gone.
const LOOK: Duration = Duration::from_millis(2);

/// After SIGKILL nothing lives on but what sleeps in the kernel.
const KILL_TIME: Duration = Duration::from_secs(5);

pub(crate) struct Tree {
    child: Child,
    group: Pid,
}

/// Makes this process the parent of every orphan among its descendants.
pub(crate) fn adopt_orphans() -> anyhow::Result<()> {
    let me = rustix::process::getpid();
    set_child_subreaper(Some(me)).context("could not adopt orphans")
}

/// Becomes the command, which dies when its parent does.
pub(crate) fn become_command(command: &[String]) -> anyhow::Result<Infallible> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("could not tie the command's life to ours")?;
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    Err(error).with_context(|| format!("could not run {}", command[0]))
}

impl Tree {
    pub(crate) fn start(role: &str, term: Term, command: &[String]) -> anyhow::Result<Self> {
        let program = env::current_exe().context("could not find this program")?;
        let mut starter = Command::new(program);
        starter.arg("become").arg("--").args(command);
        starter.env("MANDATE_ROLE", role).env("MANDATE_TERM", term.to_string());
        starter.process_group(0);
        let child = tokio::process::Command::from(starter)
            .spawn()
            .with_context(|| format!("could not run {}", command[0]))?;
        let id = child.id().and_then(|id| Pid::from_raw(id as i32));
        Ok(Tree { child, group: id.context("the command has ended already")? })
    }

    /// Waits for the command itself to end.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        self.child.wait().await.context("could not wait for the command")
    }

    /// Ends all of it: asks it to, and kills what is left after `grace`.
    pub(crate) async fn end(&mut self, grace: Duration) {
        let until = Instant::now() + grace;
        if !grace.is_zero() {
            let _ = kill_process_group(self.group, Signal::TERM);
            while Instant::now() < until && !self.is_gone() {
                sleep(LOOK).await;
            }
        }
        let until = Instant::now() + KILL_TIME;
        while Instant::now() < until && !self.is_gone() {
            let _ = kill_process_group(self.group, Signal::KILL);
            for process in Processes::read().living {
                let _ = kill_process(process, Signal::KILL);
            }
            sleep(LOOK).await;
        }
    }

    fn is_gone(&mut self) -> bool {
        let ended = matches!(self.child.try_wait(), Ok(Some(_)) | Err(_));
        let processes = Processes::read();
        let adopted = processes.zombies.into_iter().filter(|zombie| *zombie != self.group);
        for zombie in adopted {
            let _ = rustix::process::waitpid(Some(zombie), rustix::process::WaitOptions::NOHANG);
        }
        ended && processes.living.is_empty()
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
    fn read() -> Self {
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
                if found.insert(*child) {
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
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        Some((id, fields.next()?.parse().ok()?, state == "Z"))
    })
}
