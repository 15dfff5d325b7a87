//! What several tests look at: silence at a port, and what a server leaves behind.

#![allow(dead_code, reason = "every test uses its own part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mandate_servers::Server;

/// How long silence is listened to.
const SILENCE: Duration = Duration::from_millis(500);

/// How soon everything is gone after the owner of a server.
const GONE: Duration = Duration::from_secs(120);

/// Whether someone listens at a port and says nothing to this.
pub(crate) fn hangs(port: u16, question: &[u8]) -> bool {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the kernel connects");
    stream.write_all(question).expect("it is sent");
    stream.set_read_timeout(Some(SILENCE)).expect("a time can be set");
    let answer = stream.read(&mut [0; 1]);
    answer.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// What a server could leave behind: its directory, processes in it, a segment of shared memory.
pub(crate) struct Traces {
    directory: PathBuf,
    segment: Option<String>,
}

impl Traces {
    pub(crate) fn of(server: &dyn Server) -> Self {
        let directory = server.directory().to_owned();
        // Only PostgreSQL has it.
        let file = std::fs::read_to_string(directory.join("data/postmaster.pid"));
        let line = file.ok().and_then(|file| file.lines().nth(6).map(str::to_owned));
        let segment = line.and_then(|line| line.split_whitespace().nth(1).map(str::to_owned));
        Traces { directory, segment }
    }

    fn remaining(&self) -> Vec<String> {
        let processes = std::fs::read_dir("/proc").expect("there is one").flatten();
        let inside = processes.filter(|process| {
            let place = std::fs::read_link(process.path().join("cwd"));
            place.is_ok_and(|place| place.starts_with(&self.directory))
        });
        let mut remaining: Vec<_> =
            inside.map(|process| process.path().display().to_string()).collect();
        if self.directory.exists() {
            remaining.push(self.directory.display().to_string());
        }
        let segments = Command::new("ipcs").arg("-m").output().expect("ipcs is there").stdout;
        let segments = String::from_utf8_lossy(&segments).into_owned();
        let ids = segments.lines().filter_map(|line| line.split_whitespace().nth(1));
        remaining.extend(ids.filter(|id| Some(*id) == self.segment.as_deref()).map(str::to_owned));
        remaining
    }

    /// Everything is gone, now.
    pub(crate) fn gone(&self) {
        assert_eq!(self.remaining(), Vec::<String>::new());
    }

    /// For an owner: says what there is, and waits to be killed.
    pub(crate) fn wait_for_death(&self) -> ! {
        let segment = self.segment.as_deref().unwrap_or("-");
        println!("\ntraces {segment} {}", self.directory.display());
        loop {
            sleep(Duration::from_secs(1));
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let (segment, directory) = line.strip_prefix("traces ")?.split_once(' ')?;
        let segment = (segment != "-").then(|| segment.to_owned());
        Some(Traces { directory: directory.into(), segment })
    }
}

/// Runs a test of this program as a process, kills it while it owns a server, and sees that nothing stays.
pub(crate) fn owner_is_killed(test: &str) {
    let program = std::env::current_exe().expect("there is one");
    let mut owner = Command::new(program)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let said = BufReader::new(owner.stdout.take().expect("it is piped"));
    let traces = said.lines().map_while(Result::ok).find_map(|line| Traces::parse(&line));
    let traces = traces.expect("the owner says what it has");
    assert!(!traces.remaining().is_empty(), "there is something to remove");
    owner.kill().expect("it is killed");
    owner.wait().expect("it ends");
    let by = Instant::now() + GONE;
    while !traces.remaining().is_empty() && Instant::now() < by {
        sleep(Duration::from_millis(20));
    }
    traces.gone();
}
