//! The processes of the experiment, and what they did.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use mandate_proto::identity::MemberId;

use super::{place, within};
use crate::args::{FailoverArgs, GuaranteeName, InitArgs};
use crate::init;

/// Something that a leader did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Act {
    pub(super) member: MemberId,
    pub(super) term: u64,
    /// Nanoseconds on the clock that all processes of the host share.
    pub(super) at: u64,
}

/// What the shared clock reads.
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

pub(super) struct Group {
    directory: PathBuf,
    processes: Vec<Child>,
    acts: Receiver<Act>,
    report: Sender<Act>,
    /// Acts since the last fault.
    recent: Vec<Act>,
    latest: Option<Act>,
    counted: u64,
}

impl Group {
    pub(super) fn start(args: &FailoverArgs) -> anyhow::Result<Self> {
        let directory =
            std::env::temp_dir().join(format!("mandate-failover-{}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("could not make {}", directory.display()))?;
        let election = match args.guarantee {
            GuaranteeName::Fenced => "guarantee = \"fenced\"\n".to_owned(),
            GuaranteeName::Leased => {
                format!("guarantee = \"leased\"\nlease = \"{}ms\"\n", args.lease.as_millis())
            }
        };
        let setup = InitArgs {
            dir: directory.clone(),
            group: "failover".into(),
            members: args.members,
            port: args.port,
        };
        init::make(&setup, &format!("{election}timeout = \"200ms\"\n"))?;
        let (report, acts) = channel();
        let mut group = Group {
            directory,
            processes: Vec::new(),
            acts,
            report,
            recent: Vec::new(),
            latest: None,
            counted: 0,
        };
        for id in 1..=args.members {
            let process = group.spawn(MemberId::new(id), true)?;
            group.processes.push(process);
        }
        Ok(group)
    }

    fn spawn(&self, member: MemberId, is_new: bool) -> anyhow::Result<Child> {
        let program = std::env::current_exe().context("could not find this program")?;
        let mut command = Command::new(program);
        command
            .args(["lab", "actor", "--config"])
            .arg(self.directory.join(format!("{member}.toml")));
        if is_new {
            command.arg("--new");
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start {member}"))?;
        let out = process.stdout.take().context("its output was asked for")?;
        let report = self.report.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let mut numbers = line.split(' ').map_while(|number| number.parse().ok());
                if let (Some(term), Some(at)) = (numbers.next(), numbers.next()) {
                    let _ = report.send(Act { member, term, at });
                }
            }
        });
        Ok(process)
    }

    fn take(&mut self) {
        while let Ok(act) = self.acts.try_recv() {
            self.counted += 1;
            if self.latest.is_none_or(|latest| latest.term <= act.term) {
                self.latest = Some(act);
            }
            self.recent.push(act);
        }
    }

    /// The last act in the highest term.
    pub(super) fn latest(&mut self) -> Option<Act> {
        self.take();
        self.latest
    }

    /// Waits for an act of a leader as it is wanted, that is no older than now.
    pub(super) fn wait_for(
        &mut self,
        bound: Duration,
        wanted: impl Fn(&Act) -> bool,
    ) -> anyhow::Result<Act> {
        let began = now();
        within(bound, "a leader acts", || {
            self.latest().filter(|act| act.at >= began && wanted(act))
        })
    }

    /// What was done since this was last asked.
    pub(super) fn drain(&mut self) -> Vec<Act> {
        self.take();
        std::mem::take(&mut self.recent)
    }

    /// Acts in all.
    pub(super) fn acts(&self) -> u64 {
        self.counted
    }

    pub(super) fn kill(&mut self, member: MemberId) -> anyhow::Result<()> {
        let process = &mut self.processes[place(member)];
        process
            .kill()
            .and_then(|()| process.wait())
            .with_context(|| format!("could not kill {member}"))?;
        Ok(())
    }

    pub(super) fn restart(&mut self, member: MemberId) -> anyhow::Result<()> {
        self.processes[place(member)] = self.spawn(member, false)?;
        Ok(())
    }

    pub(super) fn signal(&self, member: MemberId, signal: &str) -> anyhow::Result<()> {
        let process = self.processes[place(member)].id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status();
        anyhow::ensure!(sent.is_ok_and(|status| status.success()), "could not signal {member}");
        Ok(())
    }

    /// Has a leader hand over to the next member.
    pub(super) fn transfer(&mut self, from: MemberId) -> anyhow::Result<()> {
        let to = from.get() as usize % self.processes.len() + 1;
        let input =
            self.processes[place(from)].stdin.as_mut().context("its input was asked for")?;
        writeln!(input, "transfer p{to}").and_then(|()| input.flush()).context("could not ask")?;
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
        }
        let until = Instant::now() + Duration::from_secs(2);
        for process in &mut self.processes {
            while Instant::now() < until && matches!(process.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
