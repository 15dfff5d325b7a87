//! Apache Kafka, alone or several that replicate to each other (KRaft: every node is broker and controller).
//!
//! Its jars are not a Debian package: `cargo xtask test` has Maven resolve them by name into `target/kafka`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::instance::Instance;
use crate::{Server, ServerError, ports, programs, system};

const PACKAGE: &str = "maven (and run `cargo xtask test`, which brings Kafka)";

/// Any identifier will do, if it is the same for all nodes.
const CLUSTER: &str = "bWFuZGF0ZS1rYWZrYS10ZXN0cw";

/// What a node says once it serves.
const STARTED: &str = "Kafka Server started";

/// Where the jars are: `MANDATE_KAFKA`, or the build directory.
fn jars() -> Result<PathBuf, ServerError> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kafka/libs");
    let jars = std::env::var_os("MANDATE_KAFKA").map_or(built, PathBuf::from);
    programs::require(&jars, PACKAGE)?;
    jars.canonicalize().map_err(system("find Kafka's jars"))
}

/// How nodes are set up.
#[derive(Clone, Copy, Debug)]
pub struct KafkaServerConfig {
    /// How many nodes.
    pub nodes: u16,
    /// The shortest session that it grants (`group.min.session.timeout.ms`); `None`: what an untuned one
    /// grants, 6 s.
    pub shortest_session: Option<Duration>,
    /// How long the first member of an empty group waits for others (`group.initial.rebalance.delay.ms`);
    /// `None`: what an untuned one waits, 3 s.
    pub initial_delay: Option<Duration>,
    /// A user and its password that it knows from the beginning (SCRAM-SHA-512), for a listener that asks.
    pub user: Option<(&'static str, &'static str)>,
    /// Everything as Kafka has it by default, but for what several nodes on one host need, and copies of its own topics that
    /// one node cannot make. Otherwise failures are noticed sooner, and there are fewer partitions to look after.
    pub is_stock: bool,
}

impl KafkaServerConfig {
    /// One node with Kafka's own defaults.
    pub const STOCK: KafkaServerConfig =
        KafkaServerConfig { is_stock: true, ..KafkaServerConfig::UNTUNED };

    /// One node whose groups are as Kafka has them by default. Brokers that fail are noticed sooner than by default.
    pub const UNTUNED: KafkaServerConfig = KafkaServerConfig {
        nodes: 1,
        shortest_session: None,
        initial_delay: None,
        user: None,
        is_stock: false,
    };

    /// One node that grants short sessions and waits for nobody.
    pub const TUNED: KafkaServerConfig = KafkaServerConfig {
        nodes: 1,
        shortest_session: Some(Duration::from_millis(10)),
        initial_delay: Some(Duration::ZERO),
        user: None,
        is_stock: false,
    };
}

/// A way of its own to every node, for one client. Clients go wherever a node tells them that the nodes are, whatever
/// address they were given at first; a client that is to go through a relay needs a listener that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// For each node: the port on loopback where it listens for this client alone, and the one that it names.
    pub nodes: Vec<LinePorts>,
}

/// One node's end of a [`Line`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePorts {
    /// Where the node listens.
    pub listens: u16,
    /// What it tells the client.
    pub named: u16,
}

/// Kafka's nodes.
#[derive(Debug)]
pub struct Kafka {
    nodes: Vec<KafkaNode>,
}

/// One node.
#[derive(Debug)]
pub struct KafkaNode {
    instance: Instance,
    port: u16,
    /// How often it has been started: as often it has said so.
    starts: usize,
}

impl Kafka {
    /// Starts nodes without data.
    pub fn launch(config: &KafkaServerConfig) -> Result<Self, ServerError> {
        Kafka::launch_with(config, &[])
    }

    /// Starts nodes without data, with these ways to them besides.
    pub fn launch_with(config: &KafkaServerConfig, lines: &[Line]) -> Result<Self, ServerError> {
        let count = usize::from(config.nodes);
        let ports = ports::free_ports(count * 2).map_err(system("find ports"))?;
        let (clients, controllers) = ports.split_at(count);
        let voters: Vec<_> = (1..)
            .zip(controllers)
            .map(|(id, controller)| format!("{id}@127.0.0.1:{controller}"))
            .collect();
        let mut nodes = Vec::new();
        for (id, (port, controller)) in (1..).zip(clients.iter().zip(controllers)) {
            let instance = Instance::new("kafka", "nobody", "", None)?;
            let mut settings = settings(config, id, &voters.join(","), &instance);
            settings += &listeners(usize::from(id) - 1, (*port, *controller), lines);
            instance.write("server.properties", &settings)?;
            instance.write("log4j2.properties", LOGGING)?;
            let mut format = java(&instance)?;
            format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]);
            format.arg("server.properties");
            if let Some((user, password)) = config.user {
                let user = format!("SCRAM-SHA-512=[name={user},password={password}]");
                format.arg("--add-scram").arg(user);
            }
            instance.run(&mut format)?;
            nodes.push(KafkaNode { instance, port: *port, starts: 0 });
        }
        let mut kafka = Kafka { nodes };
        kafka.start_all()?;
        Ok(kafka)
    }

    /// All at once: several need each other to begin.
    fn start_all(&mut self) -> Result<(), ServerError> {
        for node in &mut self.nodes {
            node.begin()?;
        }
        self.nodes.iter_mut().try_for_each(KafkaNode::until_started)
    }

    /// Brings everything back whatever was done to it: what is frozen goes on, and what has ended is started.
    pub fn recover(&mut self) -> Result<(), ServerError> {
        for node in &mut self.nodes {
            if node.instance.runs() {
                node.resume()?;
            }
        }
        self.start_all()
    }

    /// Its nodes, to inject faults one by one.
    pub fn nodes(&mut self) -> &mut [KafkaNode] {
        &mut self.nodes
    }

    /// As Kafka's clients want it: hosts and ports.
    pub fn brokers(&self) -> String {
        let brokers: Vec<_> = self.nodes.iter().map(Server::url).collect();
        brokers.join(",")
    }
}

fn java(instance: &Instance) -> Result<Command, ServerError> {
    let mut java = Command::new(programs::find("java", "default-jre-headless")?);
    // A small heap and a collector without threads of its own: several may run on one host.
    java.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    let logging = instance.directory().join("log4j2.properties");
    java.arg(format!("-Dlog4j2.configurationFile={}", logging.display()));
    java.arg("-cp").arg(jars()?.join("*"));
    Ok(java)
}

const LOGGING: &str = "rootLogger.level=warn\nrootLogger.appenderRef.out.ref=out\n\
    appender.out.type=Console\nappender.out.name=out\nappender.out.layout.type=PatternLayout\n\
    appender.out.layout.pattern=%d %p %c{1} %m%n\n\
    logger.started.name=kafka.server.KafkaRaftServer\nlogger.started.level=info\n";

/// Where a node listens, and what it says of that.
fn listeners(node: usize, (port, controller): (u16, u16), lines: &[Line]) -> String {
    let at = |name: &str, port: u16| format!("{name}://127.0.0.1:{port}");
    let mut listens = vec![at("PLAINTEXT", port), at("CONTROLLER", controller)];
    let mut named = vec![at("PLAINTEXT", port)];
    let mut protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT".to_owned();
    for (number, line) in lines.iter().enumerate() {
        let (name, ports) = (format!("LINE{number}"), line.nodes[node]);
        listens.push(at(&name, ports.listens));
        named.push(at(&name, ports.named));
        protocols += &format!(",{name}:PLAINTEXT");
    }
    let mut settings = format!(
        "listeners={}\nadvertised.listeners={}\ncontroller.listener.names=CONTROLLER\n\
         inter.broker.listener.name=PLAINTEXT\nlistener.security.protocol.map={protocols}\n",
        listens.join(","),
        named.join(",")
    );
    if !lines.is_empty() {
        // For each listener.
        settings += "num.network.threads=1\n";
    }
    settings
}

fn settings(config: &KafkaServerConfig, id: u16, voters: &str, instance: &Instance) -> String {
    let copies = config.nodes.min(3);
    let in_sync = copies.min(2);
    let data = instance.directory().join("data");
    let mut settings = format!(
        "process.roles=broker,controller\nnode.id={id}\ncontroller.quorum.voters={voters}\n\
         log.dirs={}\noffsets.topic.replication.factor={copies}\n\
         transaction.state.log.replication.factor={copies}\n\
         transaction.state.log.min.isr={in_sync}\n",
        data.display()
    );
    if !config.is_stock {
        settings += &format!(
            "auto.create.topics.enable=false\noffsets.topic.num.partitions=1\n\
             transaction.state.log.num.partitions=1\n\
             default.replication.factor={copies}\nmin.insync.replicas={in_sync}\n\
             controller.quorum.election.timeout.ms=500\ncontroller.quorum.fetch.timeout.ms=1000\n\
             broker.heartbeat.interval.ms=200\nbroker.session.timeout.ms=1500\n\
             replica.lag.time.max.ms=2000\n"
        );
    }
    if let Some(shortest) = config.shortest_session {
        settings += &format!("group.min.session.timeout.ms={}\n", shortest.as_millis());
    }
    if let Some(delay) = config.initial_delay {
        settings += &format!("group.initial.rebalance.delay.ms={}\n", delay.as_millis());
    }
    settings
}

impl KafkaNode {
    fn begin(&mut self) -> Result<(), ServerError> {
        if self.instance.runs() {
            return Ok(());
        }
        let mut java = java(&self.instance)?;
        java.args(["kafka.Kafka", "server.properties"]);
        self.starts += 1;
        self.instance.launch(&mut java, |_| true)
    }

    fn until_started(&mut self) -> Result<(), ServerError> {
        let starts = self.starts;
        self.instance
            .until("it serves", |instance| instance.log().matches(STARTED).count() >= starts)
    }
}

impl Server for KafkaNode {
    fn url(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn start(&mut self) -> Result<(), ServerError> {
        self.begin()?;
        self.until_started()
    }

    crate::instance::faults!(Signal::TERM);
}
