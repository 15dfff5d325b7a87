//! NELI under simulation: members with their clients, a coordinator and a log that may be out of reach
//! separately, and what must hold of who leads which partition.

use core::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::{Effect, Effects, Machine};
use mandate_proto::neli::memory::{
    Broker, BrokerConfig, Call, ClientConfig, ClientId, GroupId, Reply,
};
use mandate_proto::neli::{Event, Input, LedgerPlan};
use mandate_proto::time::Instant;

use crate::mutant::mutants;
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

use broker::{BrokerNode, Trouble};
pub use layouts::run as run_layouts;
use node::MemberNode;
pub use overlap::run as run_overlapping;
pub use scenario::run;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put back on purpose.
    pub mutant: Option<Mutant>,
}

mutants! {
    FromAnswer, "from-answer", "neli",
        "the threshold counts from the answer, not from before the renewal was sent";
    RecordsProve, "records-prove", "neli",
        "a member that receives records leads, as printed in the paper";
    UnknownIsAccepted, "unknown-is-accepted", "neli",
        "a renewal without an answer is taken for one that was accepted";
    ClaimUnconfirmed, "claim-unconfirmed", "neli", "a claim is led under before it is confirmed";
    RenewsWhatIsGone, "renews-what-is-gone", "neli",
        "a renewal counts for a partition that was given back since it was sent";
    IgnoresLayout, "ignores-layout", "neli-layouts", "members do not mind another layout";
    ReleasedWhileLed, "released-while-led", "neli",
        "a revoked partition is released at once, and led until the threshold is over";
    CachedFlag, "cached-flag", "neli",
        "leadership is a flag that is cleared when the process gets round to it";
    NoAllowance, "no-drift-on-ledger", "neli", "nobody allows for drift of clocks";
    NoGrace, "no-grace", "neli",
        "nobody waits for a previous owner of a partition that did not say that it has ended";
    OverWhileLed, "over-while-led", "neli", "a leader says that its term is over while it leads";
    OldMarkCounts, "old-mark-counts", "neli",
        "a term that is over is believed to be the last that there was";
    OwnThreshold, "own-threshold", "neli",
        "who had a partition before is thought to count on it for as long as oneself would";
    GenerationIsTerm, "generation-is-term", "neli", "the generation of the group is the term";
    ParkedRenewals, "parked-renewals", "neli",
        "renewals share a connection with joins, and wait behind them";
    OneDryAllLeft, "one-dry-all-left", "neli",
        "one partition that is dry makes a member give up all";
    FormerTermsValue, "former-terms-value", "neli",
        "a value is told with the term before the one whose claim carries it";
    SilentReturn, "silent-return", "neli",
        "a member whose renewal is accepted after a silence of a session is believed to have been one all the time";
    BacklogCounts, "backlog-counts", "neli-overlap",
        "a record counts from when it is read, however long it waited";
    EndsWithAssignment, "ends-with-assignment", "neli-overlap",
        "leadership ends with the assignment";
}

/// How a simulated node is set up.
#[derive(Clone, Debug)]
pub(crate) enum NodeConfig {
    /// A member of a group.
    Member(Box<MemberConfig>),
    /// A broker: the coordinator, the log, or both.
    Broker(BrokerConfig),
}

/// How a simulated member is set up.
#[derive(Clone, Debug)]
pub(crate) struct MemberConfig {
    /// What the machine goes by.
    pub(crate) plan: LedgerPlan,
    /// Its side of the ledger.
    pub(crate) client: ClientConfig,
    /// Its group.
    pub(crate) group: GroupId,
    /// Where membership and renewals are.
    pub(crate) coordinator: MemberId,
    /// Where records are: partitions go round these.
    pub(crate) logs: Vec<MemberId>,
    /// Whether its renewals have a connection of their own. If not, they wait behind its joins.
    pub(crate) renews_apart: bool,
    /// How long its work takes to end, at most.
    pub(crate) work: Duration,
    /// A bug put in on purpose.
    pub(crate) mutant: Option<Mutant>,
}

/// Over which of a member's connections something comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// The one over which it joins and beats. A broker answers one call after the other: what comes behind a join
    /// waits until everyone has joined.
    Group,
    /// One for renewals alone.
    Renewals,
}

/// What goes between members and brokers.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// From a client.
    Call(GroupId, ClientId, Call, Connection),
    /// To a client.
    Reply(ClientId, Reply),
}

/// What a node can be told.
#[derive(Debug)]
pub(crate) enum NodeInput {
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
pub(crate) type NodeEffect = Effect<Message, (), Event>;

/// A member, or a broker.
pub(crate) enum Node {
    /// A member.
    Member(Box<MemberNode>),
    /// A broker.
    Broker(Box<BrokerNode>),
}

impl Node {
    /// The member, if it is one.
    pub(crate) fn member(&self) -> Option<&MemberNode> {
        match self {
            Node::Member(member) => Some(member),
            Node::Broker(_) => None,
        }
    }

    /// The broker, if it is one.
    pub(crate) fn broker(&self) -> Option<&BrokerNode> {
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
