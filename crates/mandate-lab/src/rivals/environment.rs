//! The processes of a trial, and what they said.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use mandate_conformance::process::ChildProcess;
use rustix::process::Signal;
use tempfile::TempDir;

/// Between two looks at what is waited for, if nothing is said meanwhile.
const LOOK: Duration = Duration::from_millis(2);

/// How much of what processes complained is shown with an error.
const SHOWN_BYTES: usize = 2000;

/// Something that a member did as leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RivalAct {
    /// The member's number.
    pub member: u64,
    /// When, in nanoseconds on the clock that all processes of the host share.
    pub at: u64,
}

/// Why a trial could not go on.
#[derive(Debug, thiserror::Error)]
pub enum FieldError {
    /// The system refused.
    #[error("could not {what}: {source}")]
    System {
        /// The operation that failed, as a verb with its object.
        what: String,
        /// What it said.
        source: io::Error,
    },
    /// Something did not happen.
    #[error("not within {bound:?}: {what}{said}")]
    NotInTime {
        /// What was waited for.
        what: String,
        /// For how long.
        bound: Duration,
        /// What processes complained of.
        said: String,
    },
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> FieldError {
    let what = what.into();
    move |source| FieldError::System { what, source }
}

/// Processes by their first member, and what they said.
pub struct RivalEnvironment {
    processes: BTreeMap<u64, (Range<u64>, ChildProcess)>,
    directory: TempDir,
    said: Receiver<String>,
    hears: Sender<String>,
    joined: BTreeSet<u64>,
    acts: Vec<RivalAct>,
    /// Acts up to now, also those forgotten.
    counted: u64,
    evictions: u64,
    losses: Vec<String>,
    round: Option<Duration>,
    round_changed: Instant,
}

impl RivalEnvironment {
    /// Without any process.
    pub fn new() -> Result<Self, FieldError> {
        let directory = tempfile::Builder::new().prefix("mandate-").tempdir();
        let directory = directory.map_err(system("make a private directory"))?;
        let (hears, said) = channel();
        Ok(RivalEnvironment {
            processes: BTreeMap::new(),
            directory,
            said,
            hears,
            joined: BTreeSet::new(),
            acts: Vec::new(),
            counted: 0,
            evictions: 0,
            losses: Vec::new(),
            round: None,
            round_changed: Instant::now(),
        })
    }

    /// Starts a process with these members, and waits until all take part.
    pub fn start(
        &mut self,
        members: Range<u64>,
        mut command: Command,
        patience: Duration,
    ) -> Result<(), FieldError> {
        let log = File::create(self.log(members.start)).map_err(system("keep a log"))?;
        let hears = self.hears.clone();
        let process = ChildProcess::spawn(&mut command, log, move |line| {
            let _ = hears.send(line.to_owned());
        });
        let process = process.map_err(system("start a process of members"))?;
        self.processes.insert(members.start, (members.clone(), process));
        let what = format!("members {members:?} take part");
        self.until(&what, patience, |field| {
            members.clone().all(|member| field.joined.contains(&member)).then_some(())
        })
    }

    fn log(&self, first: u64) -> PathBuf {
        self.directory.path().join(format!("{first}.log"))
    }

    /// Waits for something.
    pub fn until<T>(
        &mut self,
        what: &str,
        bound: Duration,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, FieldError> {
        let began = Instant::now();
        loop {
            self.listen();
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if began.elapsed() >= bound {
                let said = self.complaints();
                return Err(FieldError::NotInTime { what: what.into(), bound, said });
            }
            if let Ok(line) = self.said.recv_timeout(LOOK) {
                self.take(&line);
            }
        }
    }

    /// Listens for a while.
    pub fn watch(&mut self, length: Duration) {
        let ends = Instant::now() + length;
        while let Some(left) = ends.checked_duration_since(Instant::now()) {
            if let Ok(line) = self.said.recv_timeout(left) {
                self.take(&line);
            }
        }
    }

    /// Takes everything that was said up to now.
    pub fn listen(&mut self) {
        while let Ok(line) = self.said.try_recv() {
            self.take(&line);
        }
    }

    fn take(&mut self, line: &str) {
        let words: Vec<_> = line.splitn(3, ' ').collect();
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        match (words[0], number(1)) {
            ("act", Some(member)) => {
                self.counted += 1;
                self.acts.extend(number(2).map(|at| RivalAct { member, at }));
            }
            ("joined", Some(member)) => {
                self.joined.insert(member);
            }
            ("evicted", Some(_)) => self.evictions += 1,
            ("lost", Some(_)) => self.losses.push(line.to_owned()),
            ("round", Some(length_ms)) => {
                let length = Some(Duration::from_millis(length_ms));
                if self.round != length {
                    self.round_changed = Instant::now();
                }
                self.round = length;
            }
            _ => {}
        }
    }

    fn complaints(&self) -> String {
        let mut all = String::new();
        for first in self.processes.keys() {
            let text = std::fs::read(self.log(*first)).unwrap_or_default();
            let end = &text[text.len().saturating_sub(SHOWN_BYTES)..];
            if !end.is_empty() {
                all += &format!("\n--- {first}\n{}", String::from_utf8_lossy(end));
            }
        }
        self.losses.iter().rev().take(5).for_each(|loss| all += &format!("\n{loss}"));
        all
    }

    /// The last act.
    pub fn latest(&self) -> Option<RivalAct> {
        self.acts.iter().copied().max_by_key(|act| act.at)
    }

    /// Acts since they were last forgotten.
    pub fn acts(&self) -> &[RivalAct] {
        &self.acts
    }

    /// Forgets acts, so that long trials stay small.
    pub fn forget_acts(&mut self) {
        self.acts.clear();
    }

    /// Acts in all.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// Members that were thrown out though they lived, up to now.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Members whose connection or session ended, up to now.
    pub fn losses(&self) -> u64 {
        self.losses.len() as u64
    }

    /// How long rounds last, if the election has rounds, and for how long they have lasted so long.
    pub fn round(&self) -> Option<(Duration, Duration)> {
        Some((self.round?, self.round_changed.elapsed()))
    }

    /// Whether a member has a process of its own.
    pub fn is_single(&self, member: u64) -> bool {
        let process = self.processes.get(&member);
        process.is_some_and(|(members, _)| members.end - members.start == 1)
    }

    /// Tells the process of a member something.
    pub fn tell(&mut self, member: u64, line: &str) -> Result<(), FieldError> {
        let process = self.processes.range_mut(..=member).next_back();
        let process = process.ok_or(io::ErrorKind::NotFound.into());
        let (_, (_, process)) = process.map_err(system(format!("find member {member}")))?;
        process.tell(line).map_err(system("tell a process of members something"))
    }

    fn process(&mut self, member: u64) -> Result<&mut ChildProcess, FieldError> {
        let process = self.processes.get_mut(&member).map(|(_, process)| process);
        let process = process.ok_or(io::ErrorKind::NotFound.into());
        process.map_err(system(format!("find the process of member {member}")))
    }

    /// Ends the process of a single member (SIGKILL). When this returns, everything that it said was heard.
    pub fn kill(&mut self, member: u64) -> Result<(), FieldError> {
        self.process(member)?.kill().map_err(system(format!("kill member {member}")))?;
        self.processes.remove(&member);
        self.joined.remove(&member);
        self.listen();
        Ok(())
    }

    /// Stops the process of a single member (SIGSTOP), or lets it go on (SIGCONT).
    pub fn signal(&mut self, member: u64, signal: Signal) -> Result<(), FieldError> {
        let process = self.process(member)?;
        process.signal(signal).map_err(system(format!("signal member {member}")))
    }
}
