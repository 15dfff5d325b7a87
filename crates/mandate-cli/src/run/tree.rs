//! Everything that descends from a process, and how it is killed.
//!
//! A process that adopts orphans stays the ancestor of everything that its children have ever started,
//! whatever sessions and process groups that moved to: so it is found in `/proc`.
//!
//! Killing one after the other loses against a command that forks faster than it is looked at. But the
//! kernel signals a process group as one step, and a fork that is under way then does not get past it. So
//! whole groups are killed where they hold nobody else, and what remains one by one, again and again until
//! nobody is left. (What is read from `/proc` is read one after the other: of a process whose parent ends
//! meanwhile it is not known whose it is. Its group tells.)
//!
//! The command's own process group is known beforehand, so nothing in it can hold out. What has left it,
//! and starts a successor and ends faster than it is looked at, may be missed (in one of some dozen runs of a
//! test that did nothing else, before it was looked for five times); what makes a new group for each fork, more
//! often. A control group would end that too, but needs a host that delegates one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, set_child_subreaper, waitpid,
};

/// How often it is looked whether all are gone.
pub(crate) const LOOK: Duration = Duration::from_millis(2);

/// How often orphans that have ended are taken note of.
pub(crate) const REAP: Duration = Duration::from_secs(5);

/// After SIGKILL nothing survives but what sleeps in the kernel, and what belongs to another user.
pub(crate) const KILL_TIME: Duration = Duration::from_secs(5);

/// Makes this process the parent of every orphan among its descendants.
pub(crate) fn adopt_orphans() -> anyhow::Result<()> {
    let me = rustix::process::getpid();
    set_child_subreaper(Some(me)).context("could not adopt orphans")
}

/// What descends from this process and has not ended.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    living: BTreeSet<i32>,
    /// Process groups that hold nobody else.
    groups: BTreeSet<i32>,
    /// Process groups of which one was stopped.
    stopped: BTreeSet<i32>,
    /// Whether there was one of which it is not known whose it is.
    is_unsure: bool,
}

/// Whose a process is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Ours,
    Foreign,
    /// Its parent ended while we looked.
    Unknown,
}

impl Tree {
    /// Looks, and leaves these out with all that descends from them: they were there before. Process groups
    /// that were found to be ours before are ours, whatever processes are in them now.
    pub(crate) fn look(others: &BTreeSet<i32>, known: &BTreeSet<i32>) -> Self {
        let processes: BTreeMap<i32, Process> =
            all_processes().map(|process| (process.id, process)).collect();
        let owner = |process: &Process| match known.contains(&process.group) {
            true => Owner::Ours,
            false => owner(&processes, process, others),
        };
        let living: Vec<_> = processes.values().filter(|process| !process.has_ended).collect();
        let of =
            |wanted: Owner| living.iter().filter(move |process| owner(process) == wanted).copied();
        let foreign: BTreeSet<i32> = of(Owner::Foreign).map(|process| process.group).collect();
        let groups = of(Owner::Ours).map(|process| process.group);
        let groups: BTreeSet<i32> = groups.filter(|group| !foreign.contains(group)).collect();
        let strays = of(Owner::Unknown).filter(|process| groups.contains(&process.group));
        let ours: Vec<_> = of(Owner::Ours).chain(strays).collect();
        let stopped = ours.iter().filter(|process| process.is_stopped);
        Tree {
            stopped: stopped.map(|process| process.group).collect(),
            living: ours.iter().map(|process| process.id).collect(),
            is_unsure: of(Owner::Unknown).next().is_some(),
            groups,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.living.is_empty()
    }

    /// Process groups that hold nobody else.
    pub(crate) fn groups(&self) -> &BTreeSet<i32> {
        &self.groups
    }

    /// Whether one of this process group was stopped.
    pub(crate) fn is_stopped(&self, group: Pid) -> bool {
        self.stopped.contains(&group.as_raw_nonzero().get())
    }

    pub(crate) fn ids(&self) -> &BTreeSet<i32> {
        &self.living
    }

    fn kill(&self, known: &BTreeSet<i32>) {
        for group in self.groups.union(known).copied().filter_map(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for process in self.living.iter().copied().filter_map(Pid::from_raw) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// Follows a process's parents up to us, or to the first of all.
fn owner(processes: &BTreeMap<i32, Process>, process: &Process, others: &BTreeSet<i32>) -> Owner {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let mut at = process;
    // Parents that were read one after the other may seem to be each other's.
    for _ in 0..=processes.len() {
        if others.contains(&at.id) || at.id == me || at.parent == 0 {
            return Owner::Foreign;
        }
        if at.parent == me {
            return Owner::Ours;
        }
        match processes.get(&at.parent) {
            Some(parent) => at = parent,
            None => return Owner::Unknown,
        }
    }
    Owner::Unknown
}

/// Kills everything below this process, by looking again and again.
#[derive(Debug)]
pub(crate) struct Killing {
    others: BTreeSet<i32>,
    /// Every process group that was found to be ours. A fork does not get past the signal that its group
    /// gets, so none of these outlives it, also if nobody of it was there to be seen.
    known: BTreeSet<i32>,
    /// How often in a row nobody was found, and how often besides it was not sure.
    empty: u32,
    unsure: u32,
}

/// Looks in a row that must find nobody: a single look can miss a process that began, or whose parent ended, meanwhile.
const EMPTY: u32 = 5;

/// So often it may be unsure before it is believed that what is unknown is not ours: other programs start
/// others, too.
const UNSURE: u32 = 50;

impl Killing {
    /// Spares these, and knows of these process groups already.
    pub(crate) fn new(others: BTreeSet<i32>, known: BTreeSet<i32>) -> Self {
        Killing { others, known, empty: 0, unsure: 0 }
    }

    /// Kills everything once, and returns what was there.
    pub(crate) fn kill_once(&mut self) -> Tree {
        let tree = Tree::look(&self.others, &self.known);
        self.known.extend(tree.groups());
        tree.kill(&self.known);
        match (tree.is_empty(), tree.is_unsure) {
            (false, _) => (self.empty, self.unsure) = (0, 0),
            (true, true) => self.unsure += 1,
            (true, false) => self.empty += 1,
        }
        tree
    }

    /// Whether nobody is left.
    pub(crate) fn is_done(&self) -> bool {
        self.empty >= EMPTY || self.unsure >= UNSURE
    }
}

/// Kills everything that descends from this process, but these. An error names what cannot be killed.
pub(crate) fn kill_all(others: BTreeSet<i32>) -> Result<(), String> {
    let until = Instant::now() + KILL_TIME;
    let mut killing = Killing::new(others, BTreeSet::new());
    loop {
        let tree = killing.kill_once();
        if killing.is_done() {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(format!("{:?}", tree.ids()));
        }
        std::thread::sleep(LOOK);
    }
}

/// Takes note of orphans of this process that have ended, but not of this child.
pub(crate) fn reap(child: Option<u32>) {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let ours = all_processes().filter(|process| process.has_ended && process.parent == me);
    for process in ours.filter(|process| u32::try_from(process.id).ok() != child) {
        let _ = waitpid(Pid::from_raw(process.id), WaitOptions::NOHANG);
    }
}

struct Process {
    id: i32,
    parent: i32,
    group: i32,
    is_stopped: bool,
    has_ended: bool,
}

/// Every process of the host.
fn all_processes() -> impl Iterator<Item = Process> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| {
        let id = process.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        parse(id, &stat)
    })
}

/// Reads "id (name) state parent group ...": the name may hold anything, so the last parenthesis counts.
fn parse(id: i32, stat: &str) -> Option<Process> {
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // A process whose first thread has ended looks like a zombie while the others run on.
    let threads: u32 = fields.get(17)?.parse().ok()?;
    Some(Process {
        id,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        is_stopped: *fields.first()? == "T",
        has_ended: *fields.first()? == "Z" && threads <= 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_hides_nothing() {
        let rest = "R 7 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5";
        let process = parse(8, &format!("8 (a ) Z 1 (b) {rest}")).unwrap();
        assert_eq!((process.parent, process.group, process.has_ended), (7, 9, false));
        assert!(parse(8, "8 (cut").is_none());
    }
}
