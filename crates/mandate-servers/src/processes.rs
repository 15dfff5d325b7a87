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

/// Whether none of their threads runs: signals take effect a moment after they were sent.
pub(crate) fn have_stopped(processes: &[Pid]) -> bool {
    let stopped = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // One that has ended does not run, either.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't', 'Z', 'X']))
    };
    processes.iter().all(|process| {
        let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
        tasks.into_iter().flatten().flatten().all(stopped)
    })
}

/// What they have used of the processors, with what those of their children have used that they waited for.
pub(crate) fn cpu_time(processes: &[Pid]) -> Duration {
    processes.iter().filter_map(|process| used_by(*process)).sum()
}

/// Two counts, each short of something: `stat` is rounded down to ticks of 10 ms or so, which is more than
/// one of a thousand processes uses in a while; `schedstat` has not what ended threads have used.
fn used_by(process: Pid) -> Option<Duration> {
    let number = process.as_raw_nonzero();
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // After the name, which may have anything in it: fields 14 to 17 of proc(5).
    let fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11).take(4);
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let [user, system, children_user, children_system] = ticks[..] else { return None };
    let threads = fs::read_dir(format!("/proc/{number}/task")).into_iter().flatten().flatten();
    let run = |thread: fs::DirEntry| {
        let counted = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        counted.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let own = Duration::from_nanos(threads.filter_map(run).sum());
    Some(own.max(from_ticks(user + system)) + from_ticks(children_user + children_system))
}

fn from_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
