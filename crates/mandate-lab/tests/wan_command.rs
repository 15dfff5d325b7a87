//! `mandate lab wan` as one uses it, and what is left when it is killed. Needs root.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TOPOLOGY: &str = "
[[rtt]]\na = 'x'\nb = 'y'\nms = 30\n
[[server]]\nid = 'p1'\nsite = 'x'\n
[[server]]\nid = 'p2'\nsite = 'y'\n";

fn mandate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mandate-lab"));
    command.args(["wan"]).args(args);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A process that ends with the test, whatever happens.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Emulator {
    process: Process,
    name: String,
    _directory: tempfile::TempDir,
}

impl Emulator {
    /// Starts one and waits until it is up.
    fn up(test: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let topology = directory.path().join("topology.toml");
        std::fs::write(&topology, TOPOLOGY).expect("it can be written");
        let name = format!("test-{test}-{}", std::process::id());
        let process = mandate(&["up", "--name", &name, "-o", "json"])
            .arg(&topology)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut process = Process(process);
        let mut line = String::new();
        let out = process.0.stdout.take().expect("it was asked for");
        BufReader::new(out).read_line(&mut line).expect("it can be read");
        assert!(
            line.contains("10.77.0.2"),
            "the emulator needs root, /dev/net/tun and iproute2: {line}"
        );
        Emulator { process, name, _directory: directory }
    }

    fn run(&self, command: &str, args: &[&str]) -> Output {
        mandate(&[command, "--name", &self.name]).args(args).output().expect("the program runs")
    }

    /// Where a host is, as its own processes see it.
    fn namespace(&self, host: &str) -> String {
        let output = self.run("exec", &[host, "--", "readlink", "/proc/self/ns/net"]);
        assert!(output.status.success(), "{}", text(&output));
        text(&output).trim().to_owned()
    }
}

/// The namespaces that processes of this machine are in.
fn namespaces_in_use() -> BTreeSet<String> {
    let processes = std::fs::read_dir("/proc").expect("there is one").flatten();
    let namespace = |process: std::fs::DirEntry| {
        std::fs::read_link(process.path().join("ns/net")).ok()?.to_str().map(str::to_owned)
    };
    processes.filter_map(namespace).collect()
}

fn within(what: &str, mut look: impl FnMut() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < Duration::from_secs(120), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn commands_run_on_hosts_and_faults_reach_them() {
    let emulator = Emulator::up("exec");
    let output =
        emulator.run("exec", &["p1", "--", "sh", "-c", "echo on $MANDATE_WAN_HOST; exit 7"]);
    assert_eq!((text(&output).as_str(), output.status.code()), ("on p1\n", Some(7)));
    let output = emulator.run("exec", &["p9", "--", "true"]);
    assert!(text(&output).contains("there is no host `p9`; there are p1, p2"), "{}", text(&output));
    // A neighbour that answers within so many seconds or not, with nothing but a shell: TCP to a closed port.
    let knock = |seconds: &str| {
        let knock = ["p1", "--", "timeout", seconds, "bash", "-c", "exec 3<>/dev/tcp/10.77.0.2/9"];
        emulator.run("exec", &knock)
    };
    let refused = knock("60");
    assert!(text(&refused).contains("refused"), "it answers: {}", text(&refused));
    let cut = emulator.run("fault", &["cut", "p1", "p2"]);
    assert_eq!(text(&cut), "changed: 2 directed links\n");
    assert_eq!(knock("2").status.code(), Some(124), "nothing comes back");
    let status = text(&emulator.run("status", &[]));
    assert!(status.contains("p1       p2") && status.contains("cut"), "{status}");
    assert_eq!(text(&emulator.run("fault", &["heal"])), "healed: 2 directed links\n");
    assert!(text(&knock("60")).contains("refused"));
    let wrong = emulator.run("fault", &["loss", "p1", "nowhere", "5%"]);
    assert!(text(&wrong).contains("`nowhere` names no host or site"), "{}", text(&wrong));
}

#[test]
fn a_second_emulator_of_the_same_name_is_refused_and_down_ends_the_first() {
    let mut emulator = Emulator::up("down");
    let again = mandate(&["up", "--name", &emulator.name, "-"]).stdin(Stdio::piped()).spawn();
    let mut again = again.expect("the program runs");
    std::io::Write::write_all(&mut again.stdin.take().expect("asked for"), TOPOLOGY.as_bytes())
        .expect("it reads");
    assert!(!again.wait().expect("it ends").success());
    assert_eq!(text(&emulator.run("down", &[])), "down\n");
    assert!(emulator.process.0.wait().expect("it ends").success());
    assert_eq!(text(&emulator.run("down", &[])), "nothing was up\n");
    let status = emulator.run("status", &[]);
    assert!(text(&status).contains("mandate lab wan up"), "{}", text(&status));
}

#[test]
fn nothing_is_left_of_an_emulator_that_was_killed() {
    let mut emulator = Emulator::up("kill");
    let namespaces = [emulator.namespace("p1"), emulator.namespace("p2")];
    assert_ne!(namespaces[0], namespaces[1]);
    let named_before = text(&Command::new("ip").args(["netns", "list"]).output().expect("ip runs"));
    let inside = mandate(&["exec", "--name", &emulator.name, "p1", "--", "sleep", "600"])
        .stderr(Stdio::null())
        .spawn();
    let mut inside = Process(inside.expect("the program runs"));
    within("the command is inside", || namespaces_in_use().contains(&namespaces[0]));
    emulator.process.0.kill().expect("it can be killed");
    emulator.process.0.wait().expect("it ends");
    within("the command has ended, too", || matches!(inside.0.try_wait(), Ok(Some(_))));
    within("nobody is inside", || namespaces.iter().all(|one| !namespaces_in_use().contains(one)));
    let named_after = text(&Command::new("ip").args(["netns", "list"]).output().expect("ip runs"));
    assert_eq!(named_before, named_after);
    // The name is free at once, too: no socket, no file to remove first.
    // Its hosts may get the numbers that the old namespaces had: the kernel gives the lowest free one.
    let next = Emulator::up("kill");
    assert_ne!(next.namespace("p1"), next.namespace("p2"));
}
