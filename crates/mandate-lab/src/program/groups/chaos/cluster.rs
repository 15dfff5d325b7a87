//! Members on a private Kafka under faults: nodes ended, crashed and frozen, members cut off from all of them or
//! from the coordinator alone, the host overloaded, its wall clock stepped.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use mandate_conformance::subject::{Ability, EngineUnderTest, Members, NetworkFaults, SetupError};
use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Grants, LedgerPlan};
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_servers::kafka::KafkaNode;
use mandate_servers::{Server, ServerError};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::ChaosArgs;
use super::clock::Stepped;
use super::storm::{self, Kind, Phase, Strike, Target};
use super::target::{ChaosTarget, Watched};
use crate::groups::ledger::{Base, OnLedger};
use crate::groups::sql::lock;
use mandate_cli::ledger::ModeName;

/// In seconds. Brokers go by the wall clock themselves, when they connect to each other and in elections among them: set back by a minute,
/// one that was restarted is no use for a minute, and the group with it. That is no fault of members; this is longer than they sleep.
const LONGEST_STEP: i64 = 6;

/// Where Kafka keeps what groups have committed: the leader of a group's partition is its coordinator.
const OFFSETS: &str = "__consumer_offsets";

/// For the question who that is.
const PATIENCE: Duration = Duration::from_secs(3);

/// Within this brokers and network answer, on a host on which much else is done.
const DELAY: Duration = Duration::from_millis(200);

/// What still counts as no gap: a leader acts once a millisecond, if a busy host lets it. One group alone would have none
/// for a session at least.
const NO_GAP: Duration = Duration::from_millis(250);

/// Threads for each core that do nothing but take time from everyone else.
const BUSY: usize = 3;

/// A cluster, and the faults for it.
pub(super) struct Cluster {
    subject: OnLedger,
    state: Mutex<State>,
    within: Duration,
    steps_clock: bool,
    /// Whether some member leads nothing.
    has_standbys: bool,
}

#[derive(Default)]
struct State {
    clock: Option<Stepped>,
    overload: Option<Overload>,
    /// The coordinator's node, as it was known last.
    coordinator: usize,
    /// What members go by.
    plan: Option<LedgerPlan>,
    /// The group's name, by which its coordinator is found.
    group: String,
}

impl Cluster {
    /// Starts the nodes, with ways for every member that can be cut.
    pub(super) fn make(args: &ChaosArgs) -> anyhow::Result<Self> {
        let ledger = &args.engine.ledger;
        anyhow::ensure!(
            ledger.is_private_kafka(),
            "chaos injects faults into the brokers themselves: leave --ledger, --brokers and KAFKA_BROKERS out"
        );
        anyhow::ensure!(
            args.groups == 1 || args.overlaps(),
            "--groups is for --mode non-exclusive"
        );
        let base = ledger.launch(args.nodes, args.members + storm::NEWCOMERS)?;
        let roles = NonZeroU32::new(args.roles).context("there is a role")?;
        let subject = ledger.on(base, roles);
        let subject = OnLedger { mode: args.mode, groups: args.groups, ..subject };
        let (within, steps_clock) = (args.within, args.step_clock);
        let has_standbys = args.roles < args.members / args.groups;
        Ok(Cluster { subject, state: Mutex::default(), within, steps_clock, has_standbys })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that decides who is in which group.
    fn coordinator(&self) -> usize {
        let mut state = self.state();
        if let Ok(node) = ask_for_coordinator(&self.subject.base.brokers(), &state.group) {
            state.coordinator = node;
        }
        state.coordinator
    }

    /// A fault that is aimed at the leader hits the coordinator's node: that concerns everyone.
    fn node(&self, fault: &Strike) -> usize {
        match fault.target() {
            Some(Target::Place(place)) => place % self.size(),
            Some(Target::Leader) | None => self.coordinator(),
        }
    }

    fn overlaps(&self) -> bool {
        self.subject.mode == ModeName::NonExclusive
    }

    fn size(&self) -> usize {
        match &*self.subject.base {
            Base::Named(_) => 1,
            Base::Private { kafka, .. } => lock(kafka).nodes().len(),
        }
    }

    fn on_node(
        &self,
        node: usize,
        work: impl FnOnce(&mut KafkaNode) -> Result<(), ServerError>,
    ) -> anyhow::Result<()> {
        match &*self.subject.base {
            Base::Named(_) => bail!("only a private Kafka can be made to fail"),
            Base::Private { kafka, .. } => Ok(work(&mut lock(kafka).nodes()[node])?),
        }
    }
}

fn ask_for_coordinator(brokers: &str, group: &str) -> anyhow::Result<usize> {
    let client: BaseConsumer = ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    let metadata = client.fetch_metadata(Some(OFFSETS), PATIENCE)?;
    let partitions: Vec<_> =
        metadata.topics().iter().flat_map(|topic| topic.partitions()).collect();
    let place = place_of(group, partitions.len());
    let leader = partitions.iter().find(|one| one.id() == place).map(|one| one.leader());
    let leader = leader.filter(|leader| *leader > 0);
    // Nodes are counted from 1.
    Ok(usize::try_from(leader.context("there is none at present")? - 1)?)
}

/// Which partition of its own topic Kafka keeps a group's commits in: the hash that Java has of its name.
fn place_of(group: &str, partitions: usize) -> i32 {
    let hash =
        group.bytes().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
    hash.checked_abs().unwrap_or_default() % (partitions.max(1) as i32)
}

impl EngineUnderTest for Cluster {
    fn name(&self) -> String {
        let nodes = self.size();
        let one = if nodes == 1 { "node" } else { "nodes" };
        format!("{}, {nodes} {one}", self.subject.name())
    }

    fn guarantee(&self) -> PeerGuarantee {
        self.subject.guarantee()
    }

    fn group(&self, _: u32, _: &Path) -> Result<Box<dyn Members>, SetupError> {
        let actors = self.subject.actors()?;
        let mut state = self.state();
        (state.plan, state.group) = (Some(actors.plan), actors.group_of(MemberId::new(1)));
        Ok(Box::new(actors))
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        self.subject.lacks(ability)
    }

    fn patience(&self) -> Duration {
        self.within
    }
}

impl ChaosTarget for Cluster {
    fn kinds(&self) -> Vec<(Kind, usize)> {
        let mut kinds = storm::ON_A_LEDGER.to_vec();
        if self.overlaps() {
            // Where nobody is left, nobody leads.
            kinds.retain(|(kind, _)| *kind != Kind::KillAll);
        }
        if self.subject.groups > 1 {
            // A fault that hits both groups is more than one failure.
            kinds.retain(|(kind, _)| !hits_the_ledger(*kind) && *kind != Kind::Overload);
        }
        if !self.has_standbys || self.overlaps() {
            kinds.retain(|(kind, _)| *kind != Kind::Replace);
        }
        if self.size() == 1 {
            // The coordinator is all there is.
            kinds.retain(|(kind, _)| *kind != Kind::CutCoordinator);
        }
        if self.steps_clock {
            kinds.push((Kind::ClockStep, 2));
        }
        kinds
    }

    fn groups(&self) -> u32 {
        self.subject.groups
    }

    /// In non-exclusive mode leadership outlasts the assignment, and ends by time whenever a partition has moved.
    fn watched(&self) -> Option<Watched> {
        let (partitions, session) = (self.subject.partitions.get(), self.subject.session);
        (!self.overlaps()).then_some(Watched { partitions, session })
    }

    fn inflict(&self, fault: &Strike, member: MemberId) -> anyhow::Result<String> {
        let node = self.node(fault);
        let name = format!("node {}", node + 1);
        Ok(match fault {
            Strike::Stop(_) => match self.on_node(node, Server::stop) {
                Ok(()) => format!("stop {name} in good order"),
                Err(error) => {
                    self.on_node(node, Server::kill)?;
                    format!("kill {name}, which did not stop: {error:#}")
                }
            },
            Strike::Crash(_) => {
                self.on_node(node, Server::kill)?;
                format!("kill {name}")
            }
            Strike::Freeze(_) => match self.on_node(node, Server::freeze) {
                Ok(()) => format!("freeze {name}"),
                Err(error) => format!("{name} cannot be frozen: {error}"),
            },
            Strike::CutCoordinator(_) => {
                let coordinator = self.coordinator();
                if let Some(lines) = self.subject.base.lines() {
                    lines.cut(member, coordinator);
                }
                format!("cut {member} off from the coordinator, node {}", coordinator + 1)
            }
            Strike::Overload => {
                self.state().overload = Some(Overload::begin());
                "keep every core busy".into()
            }
            Strike::StepClock(seconds) => {
                let seconds = (*seconds).clamp(-LONGEST_STEP, LONGEST_STEP);
                let mut state = self.state();
                state.clock = None;
                state.clock = Some(Stepped::by(seconds)?);
                format!("step the wall clock by {seconds} s")
            }
            other => bail!("{} does not happen on a ledger", other.kind().name()),
        })
    }

    /// As stated by the plan, and for as long as the ledger itself, or the whole host, was under a fault.
    fn longest_gap(&self, phase: &Phase, took: Duration) -> Option<Duration> {
        let plan = self.state().plan.filter(|_| self.overlaps())?;
        if self.subject.groups > 1 {
            return Some(NO_GAP);
        }
        let Grants { session, barrier, .. } = *plan.grants();
        let outage = phase.faults.iter().map(|(_, fault)| match fault.kind() {
            kind if hits_the_ledger(kind) || kind == Kind::Overload => took + session,
            // A client beats on for as long as its member may take to ask for news.
            Kind::Stall => barrier,
            Kind::ClockStep => session,
            _ => Duration::ZERO,
        });
        Some(plan.gap_within(DELAY) + outage.sum::<Duration>())
    }

    fn heal(&self) -> anyhow::Result<()> {
        {
            let mut state = self.state();
            state.clock = None;
            state.overload = None;
        }
        if let Some(lines) = self.subject.base.lines() {
            lines.heal();
        }
        match &*self.subject.base {
            Base::Named(_) => Ok(()),
            Base::Private { kafka, .. } => Ok(lock(kafka).recover()?),
        }
    }
}

/// Whether it is the ledger that does not answer.
fn hits_the_ledger(kind: Kind) -> bool {
    matches!(kind, Kind::Restart | Kind::Crash | Kind::Freeze)
}

/// Threads that keep every core busy until this is dropped. Of this process: they end with it, however it ends.
struct Overload {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Overload {
    fn begin() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let busy = || {
            let ends = ends.clone();
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        Overload { threads: (0..cores * BUSY).map(|_| busy()).collect(), ends }
    }
}

impl Drop for Overload {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Kafka does it: the absolute value of `String.hashCode`, and of the least number zero.
    #[test]
    fn a_groups_commits_are_where_kafka_keeps_them() {
        assert_eq!(place_of("orders", 50), 31, "its hash is -1008770331");
        assert_eq!(place_of("orders", 1), 0);
        assert_eq!(place_of("", 50), 0);
    }
}
