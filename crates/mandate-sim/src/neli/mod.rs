//! NELI under simulation: members with their clients, a coordinator and a log that may be out of reach
//! separately, and what must hold of who leads which partition.

use core::time::Duration;

use mandate_ledger::memory::{Broker, BrokerConfig, Call, ClientConfig, ClientId, GroupId, Reply};
use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effect, Effects, Machine};
use mandate_proto::neli::{Event, Input, Plan};
use mandate_proto::time::Instant;

use crate::subject::{Boot, Subject};

mod broker;
mod layouts;
mod mutated;
mod node;
mod overlap;
mod scenario;
mod setting;
mod storm;
mod watch;

pub use broker::{BrokerNode, Trouble};
pub use layouts::run as run_layouts;
pub use mutated::Mutated;
pub use node::MemberNode;
pub use overlap::run as run_overlapping;
pub use scenario::run;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put back on purpose.
    pub mutant: Option<Mutant>,
}

/// Bugs to put back on purpose: a rule of [`mandate_proto::neli`] each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The threshold counts from the answer, and not from before the renewal was sent.
    FromAnswer,
    /// Whoever receives records leads, as printed.
    RecordsProve,
    /// A renewal without an answer is taken for one that was accepted.
    UnknownIsAccepted,
    /// A claim is led under before it is confirmed.
    ClaimUnconfirmed,
    /// A renewal counts for a partition that was given back since it was sent.
    RenewsWhatIsGone,
    /// A revoked partition is released at once, and led until the threshold is over.
    ReleasedWhileLed,
    /// Leadership is a flag that is cleared when the process gets round to it.
    CachedFlag,
    /// Nobody allows for drift.
    NoAllowance,
    /// Nobody waits for whoever had a partition before and did not say that it has ended.
    NoGrace,
    /// A leader says that its term is over while it leads.
    OverWhileLed,
    /// A term that is over is believed to be the last that there was.
    OldMarkCounts,
    /// Who had a partition before is thought to count on it for as long as oneself would.
    OwnThreshold,
    /// Members do not mind that others go by another layout.
    IgnoresLayout,
    /// The generation of the group is the term.
    GenerationIsTerm,
    /// Renewals share a connection with joins, and wait behind them.
    ParkedRenewals,
    /// One partition that is dry makes a member give up all.
    OneDryAllLeft,
    /// A member that was silent for a session, and whose renewal is accepted, is believed to have been one all the time.
    SilentReturn,
    /// In non-exclusive mode: a record counts from when it is read, however long it waited.
    BacklogCounts,
    /// In non-exclusive mode: leadership ends with the assignment.
    EndsWithAssignment,
}

/// How a simulated node is set up.
#[derive(Clone, Debug)]
pub enum NodeConfig {
    /// A member of a group.
    Member(Box<MemberConfig>),
    /// A broker: the coordinator, the log, or both.
    Broker(BrokerConfig),
}

/// How a simulated member is set up.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// What the machine goes by.
    pub plan: Plan,
    /// Its side of the ledger.
    pub client: ClientConfig,
    /// Its group.
    pub group: GroupId,
    /// Where membership and renewals are.
    pub coordinator: MemberId,
    /// Where records are: partitions go round these.
    pub logs: Vec<MemberId>,
    /// Whether its renewals have a connection of their own. If not, they wait behind its joins.
    pub renews_apart: bool,
    /// How long its work takes to end, at most.
    pub work: Duration,
    /// A bug put in on purpose.
    pub mutant: Option<Mutant>,
}

/// Over which of a member's connections something comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The one over which it joins and beats. A broker answers one call after the other: what comes behind a join
    /// waits until everyone has joined.
    Group,
    /// One for renewals alone.
    Renewals,
}

/// What goes between members and brokers.
#[derive(Clone, Debug)]
pub enum Message {
    /// From a client.
    Call(GroupId, ClientId, Call, Connection),
    /// To a client.
    Reply(ClientId, Reply),
}

/// What a node can be told.
#[derive(Debug)]
pub enum NodeInput {
    /// A message.
    Received(MemberId, Message),
    /// To a member.
    Member(Input),
    /// A member's own thread does not run for this long, while its client beats on.
    Stall(Duration),
    /// For this long a member's joins are lost on their way, and nothing else of what it sends.
    LoseJoins(Duration),
    /// A member's work ends at once from now on.
    WorkQuick,
    /// To a broker.
    Broker(Trouble),
}

/// What a node asks for.
pub type NodeEffect = Effect<Message, (), Event>;

/// A member, or a broker.
pub enum Node {
    /// A member.
    Member(Box<MemberNode>),
    /// A broker.
    Broker(Box<BrokerNode>),
}

impl Node {
    /// The member, if it is one.
    pub fn member(&self) -> Option<&MemberNode> {
        match self {
            Node::Member(member) => Some(member),
            Node::Broker(_) => None,
        }
    }

    /// The broker, if it is one.
    pub fn broker(&self) -> Option<&BrokerNode> {
        match self {
            Node::Member(_) => None,
            Node::Broker(broker) => Some(broker),
        }
    }
}

impl Machine for Node {
    type Input = NodeInput;
    type Effect = NodeEffect;

    fn handle(&mut self, input: NodeInput, now: Instant, effects: &mut Effects<NodeEffect>) {
        match self {
            Node::Member(member) => member.handle(input, now, effects),
            Node::Broker(broker) => broker.handle(input, now, effects),
        }
    }

    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<NodeEffect>) {
        match self {
            Node::Member(member) => member.time_out(now, effects),
            Node::Broker(broker) => broker.time_out(now, effects),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Node::Member(member) => member.deadline(),
            Node::Broker(broker) => broker.deadline(),
        }
    }
}

impl Subject for Node {
    type Message = Message;
    type Stable = ();
    type Event = Event;
    type Config = NodeConfig;

    fn boot(
        config: &NodeConfig,
        boot: Boot<()>,
        now: Instant,
        effects: &mut Effects<NodeEffect>,
    ) -> Self {
        match config {
            NodeConfig::Broker(config) => {
                Node::Broker(Box::new(BrokerNode::new(Broker::new(*config))))
            }
            NodeConfig::Member(config) => {
                let member = MemberNode::start((**config).clone(), boot.lifetime, now, effects);
                Node::Member(Box::new(member))
            }
        }
    }

    fn received(from: MemberId, message: Message) -> NodeInput {
        NodeInput::Received(from, message)
    }
}
