//! A group of real member processes on loopback, for tests.

// Each test file uses some of it.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use mandate_servers::testing;
pub(crate) use mandate_servers::testing::within;
use tempfile::TempDir;

/// The program, with signals as a terminal would leave them: where tests run in the background, some are ignored,
/// and a shell cannot trap those.
pub(crate) fn mandate() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT,TERM,USR1,USR2");
    command.arg(env!("CARGO_BIN_EXE_mandate"));
    command
}

/// How long a daemon has for an answer: a bound for hangs. One that is stopped on purpose costs this much of each round of questions.
const ANSWER: Duration = Duration::from_secs(60);

/// Slow enough for members that share the host with compilers.
const DETECTION: &str = "interval = '300ms'\nwithin = '4s'";

/// What a daemon says that did not get to answer within a second.
const LATE: &str = "waits for its disk";

/// Members p1 to pN, each with a file and a state of its own.
pub(crate) struct Group {
    pub(crate) directory: TempDir,
    pub(crate) size: u32,
    /// The group is set up with so many; those after them are to be added.
    founders: u32,
    ports: Vec<u16>,
    apis: Vec<u16>,
    processes: Vec<Option<Child>>,
}

impl Group {
    /// Certificates and configurations; nobody runs yet. `$ID` in what is said about elections is each member's
    /// number.
    ///
    /// They share the host with compilers and each other, and should not lose their leader to them: nobody is missed, and
    /// no lease runs out, because a thread waits for a second or two.
    pub(crate) fn new(size: u32, election: &str) -> Self {
        Group::with_detection(size, DETECTION, election)
    }

    /// The same with other figures.
    pub(crate) fn with_detection(size: u32, detection: &str, election: &str) -> Self {
        Group::of(size, size, detection, election)
    }

    /// The same with members that are to be added: their configuration names nobody.
    pub(crate) fn with_spares(founders: u32, spares: u32, election: &str) -> Self {
        Group::of(founders, founders + spares, DETECTION, election)
    }

    fn of(founders: u32, size: u32, detection: &str, election: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        certify(directory.path(), 1..=founders);
        let mut ports = mandate_servers::free_ports(2 * size as usize).unwrap();
        let apis = ports.split_off(size as usize);
        let processes = (0..size).map(|_| None).collect();
        let group = Group { directory, size, founders, ports, apis, processes };
        for id in 1..=size {
            std::fs::write(group.config(id), group.config_text(id, detection, election)).unwrap();
        }
        group
    }

    pub(crate) fn config(&self, id: u32) -> PathBuf {
        self.directory.path().join(format!("p{id}.toml"))
    }

    fn config_text(&self, id: u32, detection: &str, election: &str) -> String {
        let port = |id: u32| self.ports[id as usize - 1];
        let peers = (1..=self.founders).filter(|other| *other != id && id <= self.founders);
        let peers: String = peers.map(|id| format!("p{id} = '127.0.0.1:{}'\n", port(id))).collect();
        format!(
            "group = 'test'\nmember = 'p{id}'\nlisten = '127.0.0.1:{}'\nstate = 'p{id}.state'\n\
             api = '{}'\n[peers]\n{peers}[tls]\nca = 'certs/ca.pem'\ncertificate = 'certs/p{id}.pem'\n\
             key = 'certs/p{id}.key'\n[detection]\n{detection}\n\
             [election]\n{}\n",
            port(id),
            self.api(id),
            election.replace("$ID", &id.to_string())
        )
    }

    /// Where a member listens for the others.
    pub(crate) fn address(&self, id: u32) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[id as usize - 1]))
    }

    pub(crate) fn api(&self, id: u32) -> String {
        format!("127.0.0.1:{}", self.apis[id as usize - 1])
    }

    /// Starts a member's daemon, for the first time if it has no state.
    pub(crate) fn start(&mut self, id: u32) {
        self.start_as(id, &["node"]);
    }

    /// What a member has said.
    pub(crate) fn log(&self, id: u32) -> String {
        let log = self.directory.path().join(format!("p{id}.log"));
        std::fs::read_to_string(log).unwrap_or_default()
    }

    /// Makes a certificate for a member that has none.
    pub(crate) fn certify(&self, id: u32) {
        certify(self.directory.path(), id..=id);
    }

    /// Starts a member by this command, for the first time if it has no state.
    pub(crate) fn start_as(&mut self, id: u32, command_line: &[&str]) {
        let is_new = !self.state(id).exists();
        let mut command_line = command_line.to_vec();
        if id > self.founders {
            self.certify(id);
            command_line.push("--join");
        } else if is_new {
            command_line.push("--new");
        }
        self.launch(id, &command_line);
    }

    /// Where a member keeps its state.
    pub(crate) fn state(&self, id: u32) -> PathBuf {
        self.directory.path().join(format!("p{id}.state"))
    }

    /// Starts a member by this command, with exactly these words.
    pub(crate) fn launch(&mut self, id: u32, command_line: &[&str]) {
        let log = self.directory.path().join(format!("p{id}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = mandate();
        command.args(command_line).arg("--config").arg(self.config(id));
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.processes[id as usize - 1] = Some(child);
    }

    pub(crate) fn start_all(&mut self) {
        (1..=self.founders).for_each(|id| self.start(id));
    }

    pub(crate) fn kill(&mut self, id: u32) {
        if let Some(mut process) = self.processes[id as usize - 1].take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn signal(&self, id: u32, signal: &str) {
        let process = self.processes[id as usize - 1].as_ref().unwrap();
        let sent = Command::new("kill").args([signal, &process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Stops a member's process, and waits until it has stopped.
    pub(crate) fn pause(&self, id: u32) {
        testing::pause(self.processes[id as usize - 1].as_ref().unwrap());
    }

    /// Waits for a member to end by itself.
    pub(crate) fn ended(&mut self, id: u32) -> std::process::ExitStatus {
        let mut process = self.processes[id as usize - 1].take().unwrap();
        within(Duration::from_secs(10), "the process ends", || process.try_wait().unwrap())
    }

    /// The code and body of an HTTP request to a member.
    pub(crate) fn http(
        &self,
        id: u32,
        method: &str,
        path: &str,
        body: &str,
    ) -> Option<(u16, String)> {
        self.http_with(id, method, path, body, "")
    }

    /// Asks again as long as the daemon says that it was late.
    pub(crate) fn http_with(
        &self,
        id: u32,
        method: &str,
        path: &str,
        body: &str,
        headers: &str,
    ) -> Option<(u16, String)> {
        within(ANSWER, "an answer in time", || {
            let answer = self.http_once(id, method, path, body, headers);
            let is_late = |(code, body): &(u16, String)| *code == 503 && body.contains(LATE);
            (!answer.as_ref().is_some_and(is_late)).then_some(answer)
        })
    }

    fn http_once(
        &self,
        id: u32,
        method: &str,
        path: &str,
        body: &str,
        headers: &str,
    ) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.api(id)).ok()?;
        stream.set_read_timeout(Some(ANSWER)).ok()?;
        let length = body.len();
        let host = self.api(id);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let code = text.split(' ').nth(1)?.parse().ok()?;
        Some((code, text.split_once("\r\n\r\n")?.1.to_owned()))
    }

    /// The code of a request that calls the member by another name.
    pub(crate) fn http_as(&self, host: &str, id: u32, method: &str, path: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(self.api(id)).ok()?;
        stream.set_read_timeout(Some(ANSWER)).ok()?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
        .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    }

    /// Members on which `/leader` says yes.
    pub(crate) fn leaders(&self) -> Vec<u32> {
        let leads = |id: &u32| matches!(self.http(*id, "GET", "/leader", ""), Some((200, _)));
        (1..=self.size).filter(leads).collect()
    }

    /// Waits for a leader other than these.
    pub(crate) fn leader_except(&self, except: &[u32]) -> u32 {
        within(Duration::from_secs(30), "a leader", || {
            self.leaders().into_iter().find(|leader| !except.contains(leader))
        })
    }

    pub(crate) fn leader(&self) -> u32 {
        self.leader_except(&[])
    }

    /// Has the leader hand leadership over. One that does not get to look at itself in time refuses, so it is asked again.
    pub(crate) fn hand_over(&self, to: u32) {
        let body = format!("{{\"to\":\"p{to}\"}}");
        within(ANSWER, "leadership is handed over", || {
            let from = *self.leaders().first()?;
            let answer = self.http(from, "POST", "/v1/transfer", &body);
            (from == to || answer.is_some_and(|(code, _)| code == 204)).then_some(())
        });
    }

    /// Waits until all that run know that leader.
    pub(crate) fn agree(&self, leader: u32) {
        for id in (1..=self.size).filter(|id| self.processes[*id as usize - 1].is_some()) {
            within(Duration::from_secs(30), "agreement", || {
                let (_, body) = self.http(id, "GET", "/v1/status", "")?;
                body.contains(&format!("\"leader\":\"p{leader}\"")).then_some(())
            });
        }
    }

    /// Runs a command of the program against a member's daemon, and again as long as that says that it was late.
    pub(crate) fn ask(&self, id: u32, args: &[&str]) -> Output {
        within(ANSWER, "an answer in time", || {
            let mut command = mandate();
            command.args(args).args(["--api", &self.api(id)]).stdin(Stdio::null());
            let output = command.output().unwrap();
            (!String::from_utf8_lossy(&output.stderr).contains(LATE)).then_some(output)
        })
    }
}

fn certify(directory: &Path, members: std::ops::RangeInclusive<u32>) {
    let names = members.map(|id| format!("p{id}"));
    let certs = mandate()
        .args(["certs", "--group", "test", "--dir"])
        .arg(directory.join("certs"))
        .args(names)
        .output()
        .unwrap();
    assert!(certs.status.success(), "{certs:?}");
}

impl Drop for Group {
    fn drop(&mut self) {
        (1..=self.size).for_each(|id| self.kill(id));
        show_logs_of_a_failure(self.directory.path());
    }
}

/// When a test fails: everything that its processes wrote into files `*.log` of this directory.
pub(crate) fn show_logs_of_a_failure(directory: &Path) {
    if !std::thread::panicking() {
        return;
    }
    let mut logs: Vec<_> = std::fs::read_dir(directory).into_iter().flatten().flatten().collect();
    logs.sort_by_key(std::fs::DirEntry::file_name);
    for log in logs.iter().filter(|entry| entry.path().extension().is_some_and(|end| end == "log"))
    {
        let text = std::fs::read(log.path()).unwrap_or_default();
        eprintln!("--- {}\n{}", log.file_name().display(), String::from_utf8_lossy(&text));
    }
}
