//! What tests of real processes share: waiting for a condition, children that end with a test, turns.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::processes;

/// A bound is for what hangs, not for speed: tests share two cores with servers, browsers and each other.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something, for as long as is said and for [`PATIENCE`] at least.
///
/// # Panics
///
/// When it does not come.
pub fn within<T>(bound: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let bound = bound.max(PATIENCE);
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < bound, "not within {bound:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A child that is killed with this value, whatever ends the test.
#[derive(Debug)]
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops a process (SIGSTOP), and waits until it has stopped: on a busy machine its threads run on for up to some ten milliseconds after the
/// signal was sent, which is time enough to acknowledge a write.
///
/// # Panics
///
/// If it does not stop.
pub fn pause(process: &Child) {
    let process = [Pid::from_child(process)];
    processes::signal(&process, Signal::STOP);
    within(PATIENCE, "the process has stopped", || processes::have_stopped(&process).then_some(()));
}

/// Lets a process go on that was stopped (SIGCONT).
pub fn resume(process: &Child) {
    processes::signal(&[Pid::from_child(process)], Signal::CONT);
}

/// How many processes work below a directory, as they see it.
fn processes_in(directory: &str) -> usize {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let places =
        processes.filter_map(|process| std::fs::read_link(process.path().join("cwd")).ok());
    places.filter(|place| place.display().to_string().starts_with(directory)).count()
}

/// Runs a program until so many processes of servers that it starts work in its temporary directory, and kills it: no process and no disk of
/// theirs may be left.
///
/// # Panics
///
/// If they do not start, or do not end.
pub fn ends_its_servers_when_killed(program: &mut Command, processes: usize) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("the servers' user may enter");
    let place = std::fs::canonicalize(directory.path()).expect("it is there").display().to_string();
    program.env("TMPDIR", &place).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(program.spawn().expect("the program runs"));
    within(PATIENCE, "its servers run (that needs root)", || {
        (processes_in(&place) >= processes).then_some(())
    });
    running.0.kill().expect("it can be killed");
    running.0.wait().expect("it ends");
    within(PATIENCE, "no process of its servers is left", || {
        (processes_in(&place) == 0).then_some(())
    });
    within(PATIENCE, "no disk of its servers is left", || {
        let mounts = std::fs::read_to_string("/proc/mounts").expect("it can be read");
        (!mounts.contains(&place)).then_some(())
    });
}

/// Waits for its turn, which ends with the value. Groups of real processes take turns, two at a time: leases and sessions are real
/// time, which a host that is too busy would not keep; and most of that time is spent waiting.
pub fn turn() -> MutexGuard<'static, ()> {
    static LANES: [Mutex<()>; 2] = [const { Mutex::new(()) }; 2];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let lane = NEXT.fetch_add(1, Ordering::Relaxed) % LANES.len();
    LANES[lane].lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the signal alone, about a quarter of such processes still write.
    #[test]
    fn a_paused_process_does_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let busy =
            || Running(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
        let _busy = [busy(), busy(), busy(), busy()];
        let file = directory.path().join("written");
        let script = "import os, sys, threading, time\n\
                      file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n\
                      def write():\n  while True: os.write(file, b'x'); time.sleep(0.0002)\n\
                      for _ in range(8): threading.Thread(target=write).start()";
        let mut command = Command::new("python3");
        let writing = Running(command.args(["-c", script]).arg(&file).spawn().unwrap());
        let written = || std::fs::metadata(&file).map_or(0, |file| file.len());
        for _ in 0..20 {
            let before = written();
            within(PATIENCE, "it writes", || (written() > before).then_some(()));
            pause(&writing.0);
            let paused = written();
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(written(), paused);
            resume(&writing.0);
        }
    }
}
