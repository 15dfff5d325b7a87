//! A private ZooKeeper, alone (no ensemble).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::instance::Instance;
use crate::{Server, ServerError, ports, programs, system};

const PACKAGE: &str = "zookeeper";

/// Names everything else that it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// For the answer of a server that listens.
const ANSWER: Duration = Duration::from_millis(500);

/// How a server is set up.
#[derive(Clone, Copy, Debug)]
pub struct ZooKeeperConfig {
    /// Its tick. Sessions last two ticks at least, and end at a tick. 100 ms by default, for tests; what is
    /// installed with ZooKeeper says 2 s.
    pub tick: Duration,
    /// Whether a write waits for the disk (`forceSync`). Not by default: the death of the process loses
    /// nothing, only that of the machine would.
    pub waits_for_disk: bool,
}

impl Default for ZooKeeperConfig {
    fn default() -> Self {
        ZooKeeperConfig { tick: Duration::from_millis(100), waits_for_disk: false }
    }
}

/// A running ZooKeeper.
#[derive(Debug)]
pub struct ZooKeeper {
    instance: Instance,
    port: u16,
    config: ZooKeeperConfig,
}

impl ZooKeeper {
    /// Starts a server without data.
    pub fn launch(config: &ZooKeeperConfig) -> Result<Self, ServerError> {
        programs::require(Path::new(JAR), PACKAGE)?;
        let instance = Instance::new("zookeeper", "zookeeper", "", None)?;
        let port = ports::free_port().map_err(system("find a port"))?;
        let data = instance.directory().join("data");
        let settings = format!(
            "tickTime={}\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,mntr\n",
            config.tick.as_millis(),
            data.display()
        );
        instance.write("zoo.cfg", &settings)?;
        let mut server = ZooKeeper { instance, port, config: *config };
        server.start()?;
        Ok(server)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The shortest session that it grants.
    pub fn shortest_session(&self) -> Duration {
        self.config.tick * 2
    }

    /// Has its own client run one command, such as `get /path`; what it printed.
    pub fn client(&self, command: &[&str]) -> Result<String, ServerError> {
        let mut java = self.java()?;
        java.args(["org.apache.zookeeper.ZooKeeperMain", "-server", &self.url()]);
        self.instance.run(java.args(command))
    }

    /// What it says to one of its words of four letters.
    pub fn word(&self, word: &str) -> Option<String> {
        ask(self.port, word)
    }

    fn java(&self) -> Result<Command, ServerError> {
        let mut java = Command::new(programs::find("java", "default-jre-headless")?);
        // A small heap and a collector without threads of its own: many servers may run on one host.
        java.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", JAR]);
        Ok(java)
    }
}

fn ask(port: u16, word: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

impl Server for ZooKeeper {
    /// As ZooKeeper's clients want it: a host and a port.
    fn url(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn start(&mut self) -> Result<(), ServerError> {
        let mut java = self.java()?;
        if !self.config.waits_for_disk {
            java.arg("-Dzookeeper.forceSync=no");
        }
        java.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain");
        java.arg(self.instance.directory().join("zoo.cfg"));
        let port = self.port;
        let serves =
            |answer: String| answer.contains("Mode:") && !answer.contains("not currently serving");
        self.instance.launch(&mut java, |_| ask(port, "srvr").is_some_and(serves))
    }

    crate::instance::faults!(Signal::TERM);
}
