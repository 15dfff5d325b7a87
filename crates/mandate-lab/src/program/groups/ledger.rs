//! The ledger engine under test: members on a Kafka that is there, or on a private one that is started for them.
//!
//! A group leads a role, or several on a partition each. Members of a private Kafka may go through relays, each with a listener of its own at every
//! node: a client goes where a node says that the nodes are, so each node says to each member that it is at that
//! member's relay.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::operator;
use anyhow::Context;
use mandate_cli::relay::Relays;
use mandate_conformance::cancellation::{Handle, Handles};
use mandate_conformance::subject::{Ability, EngineUnderTest, Members, NetworkFaults, SetupError};
use mandate_ledger::Ledger;
use mandate_ledger::kafka::{KafkaConfig, KafkaLedger};
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Config, LedgerPlan, Mode};
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_runtime::{Election, Start};
use mandate_servers::free_ports;
use mandate_servers::kafka::{Kafka, KafkaServerConfig as ServerConfig, Line, LinePorts};
use tokio::runtime::Runtime;

use super::memory::InMemory;
use super::one_word;
use super::sql::{lock, new_group};
use mandate::kafka::Builder;
use mandate_cli::args::positive_duration;
use mandate_cli::ledger::ModeName;
use mandate_cli::output::readable;

/// Kafka, to the relays: no member has this number.
const KAFKA: MemberId = MemberId::new(u32::MAX);

/// What a broker grants that nobody has tuned: from here on a private one is left as it comes.
const UNTUNED: Duration = Duration::from_secs(6);

/// Sessions that a private one is tuned for, unless told.
const TUNED: Duration = Duration::from_secs(1);

/// Members of the largest group that any experiment on a private Kafka has.
const LINES: u32 = 9;

/// The role whose leader acts.
const ROLE: &str = "0";

/// What members elect on.
pub(crate) enum Base {
    /// Somebody's, that stays.
    Named(String),
    /// A private one, and the ways to it that can be cut.
    Private { kafka: Mutex<Kafka>, lines: Option<Lines> },
}

impl Base {
    /// Starts a private one; with relays for members p1 to p`lines`.
    fn launch(config: &ServerConfig, lines: u32) -> anyhow::Result<Self> {
        let nodes = config.nodes;
        let laid = (lines > 0).then(|| Lines::lay(usize::from(nodes), lines)).transpose()?;
        let lines = laid.as_ref().map(|(_, lines)| &lines[..]).unwrap_or_default();
        let kafka = Mutex::new(Kafka::launch_with(config, lines)?);
        Ok(Base::Private { kafka, lines: laid.map(|(lines, _)| lines) })
    }

    /// Where the harness finds it.
    pub(crate) fn brokers(&self) -> String {
        match self {
            Base::Named(brokers) => brokers.clone(),
            Base::Private { kafka, .. } => lock(kafka).brokers(),
        }
    }

    /// Where a member finds it.
    fn reach(&self, member: MemberId) -> anyhow::Result<String> {
        match self {
            Base::Private { lines: Some(lines), .. } => lines.reach(member),
            _ => Ok(self.brokers()),
        }
    }

    pub(crate) fn lines(&self) -> Option<&Lines> {
        match self {
            Base::Private { lines, .. } => lines.as_ref(),
            Base::Named(_) => None,
        }
    }

    fn nodes(&self) -> u16 {
        match self {
            Base::Named(_) => 1,
            Base::Private { kafka, .. } => lock(kafka).nodes().len() as u16,
        }
    }
}

/// Which ledger.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options of --engine ledger")]
pub(crate) struct OnLedgerArgs {
    /// What the ledger is.
    #[arg(long = "ledger", value_enum, default_value_t)]
    pub(crate) kind: LedgerName,
    /// Use the Kafka at these hosts and ports instead of a private one.
    #[arg(long, value_name = "HOST:PORT", env = "KAFKA_BROKERS")]
    brokers: Option<String>,
    /// Start the private one with Kafka's own defaults: brokers that die are missed after 9s, and sessions are 6s at least.
    #[arg(long, conflicts_with = "brokers")]
    stock: bool,
    /// After this long without a sign of life a member is replaced. Below 6s the broker must be tuned for it; a
    /// private one is. Default: 1s, and 6s with --stock.
    #[arg(long, value_parser = positive_duration, value_name = "TIME")]
    session: Option<Duration>,
}

/// What a ledger is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LedgerName {
    /// Apache Kafka.
    #[default]
    Kafka,
    /// One in the memory of the harness.
    Memory,
}

impl OnLedgerArgs {
    /// What leaders rely on, for reports.
    pub(crate) fn text(&self) -> String {
        format!("exclusive, sessions of {}", readable(self.session()))
    }

    /// What to write to have the same again.
    pub(crate) fn flags(&self) -> String {
        let kind = if self.kind == LedgerName::Memory { " --ledger memory" } else { "" };
        let stock = if self.stock { " --stock" } else { "" };
        format!("--engine ledger{kind}{stock} --session {}", one_word(self.session()))
    }

    /// After which silence a member is replaced.
    pub(crate) fn session(&self) -> Duration {
        self.session.unwrap_or(if self.stock { UNTUNED } else { TUNED })
    }

    /// Starts a private Kafka for such sessions; with relays for members p1 to p`lines`.
    pub(crate) fn launch(&self, nodes: u16, lines: u32) -> anyhow::Result<Base> {
        let config = match self.stock {
            true => ServerConfig::STOCK,
            false if self.session() < UNTUNED => ServerConfig::TUNED,
            false => ServerConfig::UNTUNED,
        };
        anyhow::ensure!(
            !self.stock || self.session() >= UNTUNED,
            "Kafka with its own defaults grants no sessions below {}: leave --session or --stock out",
            readable(UNTUNED)
        );
        Base::launch(&ServerConfig { nodes, ..config }, lines)
    }

    /// Members that lead one role; with ways that can be cut, if they are needed and Kafka is a private one.
    pub(crate) fn subject(&self, with_cables: bool) -> anyhow::Result<OnLedger> {
        let base = match &self.brokers {
            Some(brokers) => Base::Named(brokers.clone()),
            None => self.launch(1, if with_cables { LINES } else { 0 })?,
        };
        Ok(self.on(base, NonZeroU32::MIN))
    }

    /// Members on this one.
    pub(crate) fn on(&self, base: Base, partitions: NonZeroU32) -> OnLedger {
        let (mode, session) = (ModeName::Exclusive, self.session());
        let base = Arc::new(base);
        OnLedger { base, mode, session, partitions, groups: 1, is_plain: false }
    }

    /// Whether there is a Kafka that may be made to fail.
    pub(crate) fn is_private_kafka(&self) -> bool {
        self.kind == LedgerName::Kafka && self.brokers.is_none()
    }

    pub(crate) fn in_memory(&self) -> Option<InMemory> {
        (self.kind == LedgerName::Memory).then_some(InMemory { session: self.session() })
    }
}

fn mode_text(mode: ModeName) -> &'static str {
    match mode {
        ModeName::Exclusive => "exclusive",
        ModeName::NonExclusive => "non-exclusive",
    }
}

/// A group that leads a role on a ledger.
#[derive(Clone)]
pub(crate) struct OnLedger {
    pub(crate) base: Arc<Base>,
    pub(crate) mode: ModeName,
    pub(crate) session: Duration,
    /// One for each role. With several, partitions move among members when some come and go, also when the first does not.
    pub(crate) partitions: NonZeroU32,
    /// How many disjoint groups the members are of, in turn: each has a leader.
    pub(crate) groups: u32,
    /// Whether members are plain consumers, without the engine: the one that has the partition leads.
    pub(crate) is_plain: bool,
}

impl OnLedger {
    /// The member's setup, in that group.
    fn config(&self, group: &str, member: MemberId) -> anyhow::Result<Builder> {
        let builder = Builder::new(&self.base.reach(member)?, group);
        let mut builder = builder.roles(self.partitions.get()).session(self.session);
        builder.member = Some(member);
        builder.partitions = Some(self.partitions);
        builder.mode = self.mode.into();
        Ok(builder)
    }

    /// Makes the topic, with as many copies as there are nodes for. What members will go by.
    async fn prepare(&self, config: &Builder) -> anyhow::Result<LedgerPlan> {
        let (brokers, topic) = (self.base.brokers(), config.topic());
        let mode = Mode::from(self.mode);
        let mut kafka = KafkaConfig::new(&brokers, &topic, &config.group, self.partitions)
            .with_session(self.session)
            .with_mode(mode);
        kafka.create = Some(self.base.nodes().min(3));
        let ledger = KafkaLedger::open(kafka).await?;
        Ok(Config::new(MemberId::new(1), mode).resolve(ledger.grants())?)
    }

    /// How the members of a new group are started.
    pub(crate) fn actors(&self) -> anyhow::Result<Actors> {
        let group = new_group()?;
        let runtime = Runtime::new().context("could not start")?;
        let plan = runtime.block_on(self.prepare(&self.config(&group, MemberId::new(1))?))?;
        if let Some(lines) = self.base.lines() {
            lines.heal();
        }
        let program = std::env::current_exe().context("could not find this program")?;
        Ok(Actors { program, group, plan, subject: self.clone() })
    }
}

impl EngineUnderTest for OnLedger {
    fn name(&self) -> String {
        let (mode, session) = (mode_text(self.mode), readable(self.session));
        format!("ledger on Kafka, {mode}, sessions of {session}")
    }

    /// After a session of silence another may lead: that is what a lease is to others.
    fn guarantee(&self) -> PeerGuarantee {
        let allowance_per_mille = super::ALLOWANCE_PER_MILLE;
        PeerGuarantee::Leased { lease: self.session, allowance_per_mille }
    }

    fn group(&self, _: u32, _: &Path) -> Result<Box<dyn Members>, SetupError> {
        Ok(Box::new(self.actors()?))
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::Exclude if self.mode == ModeName::Exclusive => None,
            ability => lacks(ability),
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(120) + self.session * 4
    }
}

/// What no ledger's members can do.
pub(super) fn lacks(ability: Ability) -> Option<&'static str> {
    Some(match ability {
        Ability::Transfer => "who comes next is for the ledger to say, which assigns partitions",
        Ability::KnowTheLeader => "members of a ledger know what they lead, and not who leads else",
        Ability::Publish => "a value goes with the claim, and members know only what they lead",
        Ability::RunOnce => "members of a ledger are processes: a second one is another member",
        Ability::Exclude => "two may lead for a while when a role changes hands",
    })
}

/// How the members of a group are started.
pub(crate) struct Actors {
    program: PathBuf,
    group: String,
    /// What they go by.
    pub(crate) plan: LedgerPlan,
    subject: OnLedger,
}

impl Actors {
    /// The group that a member is of.
    pub(crate) fn group_of(&self, member: MemberId) -> String {
        format!("{}-{}", self.group, member.get() % self.subject.groups)
    }

    /// A command of this program for a member.
    fn run(&self, command: &[&str], member: MemberId) -> Command {
        let OnLedger { base, mode, session, partitions, .. } = &self.subject;
        let mut run = Command::new(&self.program);
        run.args(command).args(["--topic", &format!("mandate-{}", self.group)]);
        run.arg("--group").arg(self.group_of(member));
        run.arg("--member").arg(member.to_string());
        run.arg("--brokers").arg(base.reach(member).expect("every member has its ways"));
        run.arg("--partitions").arg(partitions.to_string());
        run.arg("--roles").arg(partitions.to_string());
        run.arg("--session").arg(format!("{}us", session.as_micros()));
        if *mode == ModeName::NonExclusive {
            run.args(["--mode", "non-exclusive"]);
        }
        run
    }
}

impl Members for Actors {
    fn command(&self, member: MemberId, _: Start) -> Command {
        let mut run = self.run(&["actor"], member);
        if self.subject.is_plain {
            run.arg("--plain");
        }
        run
    }

    fn wrapper(&self, member: MemberId, _: Start) -> Option<Command> {
        (!self.subject.is_plain).then(|| self.run(&[operator::COMMAND, "run", "0"], member))
    }

    fn cables(&self) -> Option<&dyn NetworkFaults> {
        self.subject.base.lines().map(|lines| lines as &dyn NetworkFaults)
    }
}

/// Relays between each member and each node.
pub(crate) struct Lines {
    relays: BTreeMap<(MemberId, usize), Relays>,
    // Ends after the relays that run on it.
    _runtime: Runtime,
}

impl Lines {
    /// Relays, and the listeners that the nodes need for them.
    fn lay(nodes: usize, members: u32) -> anyhow::Result<(Self, Vec<Line>)> {
        let runtime = Runtime::new().context("could not start the relays")?;
        let mut ports = free_ports(nodes * members as usize)?.into_iter();
        let (mut relays, mut lines) = (BTreeMap::new(), Vec::new());
        for member in (1..=members).map(MemberId::new) {
            let mut line = Vec::new();
            for node in 0..nodes {
                let listens = ports.next().context("there are as many as were asked for")?;
                let there = SocketAddr::from((Ipv4Addr::LOCALHOST, listens));
                // Nobody dials members.
                let ends = [(member, there), (KAFKA, there)].into();
                let relay = runtime.block_on(Relays::start(&ends));
                let relay = relay.context("could not start the relays")?;
                line.push(LinePorts { listens, named: port(&relay, member)? });
                relays.insert((member, node), relay);
            }
            lines.push(Line { nodes: line });
        }
        Ok((Lines { relays, _runtime: runtime }, lines))
    }

    fn reach(&self, member: MemberId) -> anyhow::Result<String> {
        let own = self.relays.range((member, 0)..=(member, usize::MAX));
        let ways: anyhow::Result<Vec<_>> =
            own.map(|(_, relay)| Ok(format!("127.0.0.1:{}", port(relay, member)?))).collect();
        let ways = ways?;
        anyhow::ensure!(!ways.is_empty(), "there are no relays for {member}");
        Ok(ways.join(","))
    }

    /// From now on nothing gets from a member to that node, or back.
    pub(crate) fn cut(&self, member: MemberId, node: usize) {
        if let Some(relay) = self.relays.get(&(member, node)) {
            relay.isolate(member);
        }
    }
}

fn port(relay: &Relays, member: MemberId) -> anyhow::Result<u16> {
    Ok(relay.address(member, KAFKA).context("there is no relay")?.port())
}

impl NetworkFaults for Lines {
    fn isolate(&self, member: MemberId) {
        let own = self.relays.range((member, 0)..=(member, usize::MAX));
        own.for_each(|(_, relay)| relay.isolate(member));
    }

    fn heal(&self) {
        self.relays.values().for_each(Relays::heal_all);
    }
}

impl Handles for OnLedger {
    type Handle = Member;

    async fn start(&self, size: u32, _: &Path) -> Result<Vec<Member>, SetupError> {
        let group = new_group()?;
        self.prepare(&self.config(&group, MemberId::new(1))?).await?;
        let mut members = Vec::new();
        for id in (1..=size).map(MemberId::new) {
            let member = self.config(&group, id)?.start().await?;
            let election = member.election_of(ROLE)?;
            members.push(Member { member, election });
        }
        Ok(members)
    }
}

/// A member in this process.
pub(crate) struct Member {
    member: mandate::Member,
    election: Election,
}

impl Handle for Member {
    fn member(&self) -> MemberId {
        self.member.id()
    }

    fn election(&self) -> &Election {
        &self.election
    }

    async fn shutdown(&self) {
        self.member.shutdown().await;
    }
}
