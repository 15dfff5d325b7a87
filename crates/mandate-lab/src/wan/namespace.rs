//! Network namespaces without names.
//!
//! A thread leaves the machine's network (`unshare`), sets up what it finds, opens a descriptor of where it is, and
//! ends. The descriptor alone keeps the namespace; other processes reach it as `/proc/PID/fd/N`. With this process
//! it is gone.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace that lasts as long as this value, and processes in it.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// Makes one, with what `set_up` made inside.
    pub fn create<T: Send>(set_up: impl FnOnce() -> T + Send) -> io::Result<(Self, T)> {
        in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let file = File::open("/proc/thread-self/ns/net")?;
            Ok((Namespace { file }, set_up()))
        })
    }

    /// Does something inside. The calling thread stays where it is.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        in_thread(|| {
            // It was entered before, when it was made; nothing can have taken that away.
            setns(&self.file, CloneFlags::CLONE_NEWNET)
                .expect("a namespace of ours can be entered");
            work()
        })
    }

    /// Where other processes find it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

/// Moves the calling thread, and what it starts from now on, into the namespace at `path`.
pub fn enter(path: &Path) -> io::Result<()> {
    Ok(setns(File::open(path)?, CloneFlags::CLONE_NEWNET)?)
}

/// A thread changes its namespace for good, so each change has a thread of its own.
fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Has `ip` carry out a script, where the calling thread is.
pub(crate) fn ip(script: &str) -> Result<(), String> {
    let mut process = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut input = process.stdin.take().expect("it was asked for");
    // If it has ended already, what it said is worth more than the broken pipe.
    let _ = input.write_all(script.as_bytes());
    drop(input);
    let output = process.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "))
}
