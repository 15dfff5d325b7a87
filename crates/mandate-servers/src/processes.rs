//! The processes of a server: all that have their working directory in its own.
//!
//! That is the one mark which every process of every server here bears and none can lose: PostgreSQL's
//! children each make a session of their own and overwrite their environment, and orphans forget their
//! parents.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// All of them that run. What has ended and was not waited for is not among them.
pub(crate) fn within(directory: &Path) -> Vec<Pid> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let inside = all.filter_map(|process| {
        let number = process.file_name().to_str()?.parse().ok()?;
        let place = fs::read_link(process.path().join("cwd")).ok()?;
        place.starts_with(directory).then(|| Pid::from_raw(number)).flatten()
    });
    inside.collect()
}

/// Sends a signal to each; one that has ended meanwhile needs none.
pub(crate) fn signal(processes: &[Pid], signal: Signal) {
    for process in processes {
        let _ = kill_process(*process, signal);
    }
}

/// What they have used of the processors, with what those of their children have used that they waited for.
pub(crate) fn cpu_time(processes: &[Pid]) -> Duration {
    let ticks: u64 = processes.iter().filter_map(|process| ticks(*process)).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn ticks(process: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // After the name, which may have anything in it: fields 14 to 17 of proc(5).
    let fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11).take(4);
    fields.map(|field| field.parse::<u64>().ok()).sum()
}
