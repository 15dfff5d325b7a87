//! Election on a database under simulation: members, a database that takes its time, and what must hold
//! of terms and mandates.

use mandate_proto::identity::{Incarnation, MemberId};
use mandate_proto::machine::{Effect, Effects, Machine};
use mandate_proto::registers::{
    Config, ControlState, Event, Input, Part, Statement, StatementOutcome,
};
use mandate_proto::time::Instant;

use crate::mutant::mutants;
use crate::subject::{Boot, Subject};

mod database;
mod mutated;
pub mod printed;
pub mod scale;
mod scenario;
mod seen;
mod storm;
mod tables;
mod watch;

pub use database::{DatabaseConfig, DatabaseModel, Strain, Trouble};
pub use mutated::Mutated;
pub use scenario::{Options, run};
pub use tables::{Flaws, Tables};

use mutated::Asked;

mutants! {
    LeaseFromAnswer, "lease-from-answer", "registers",
        "a leader counts its lease from the answer, not from before it asked";
    WatchFromSending, "watch-from-sending", "registers",
        "a version is watched from when the read was sent, not from its answer";
    TakeoverIgnoresBeat, "takeover-ignores-beat", "registers",
        "a takeover does not check the beat that it watched";
    RenewalIgnoresBeat, "renewal-ignores-beat", "registers",
        "a renewal does not check the beat that it replaces";
    NoAllowance, "no-drift-allowance", "registers", "nobody allows for drift of clocks";
    LoweredAtOnce, "lowered-at-once", "registers",
        "a leader that publishes a shorter lease goes on counting on the longer one";
    SuspicionByRounds, "suspicion-by-rounds", "registers",
        "a leader is suspected after so many rounds, not after a time";
    TermNotRaised, "term-not-raised", "registers", "a takeover does not raise the term";
    UnknownIsSuccess, "unknown-is-success", "registers",
        "a write whose outcome is unknown is taken for one that succeeded";
    LostLeaseForgotten, "lost-lease-forgotten", "registers-losses",
        "a vacant row is taken at once, also where it was lost with a lease that runs";
    LossesUntold, "losses-untold", "registers-losses",
        "a control row that went back, or was made again, is told to nobody";
    HistoryIgnored, "history-ignored", "registers-losses",
        "a takeover gives out a term again that the history has";
    OwnGuarantee, "own-guarantee", "registers",
        "a watcher goes by its own guarantee, not by the leader's";
    ValueOutlivesTerm, "row-value-outlives-term", "registers",
        "a value that stayed in the row is shown with the next leader";
    PrintedRegisters, "printed-registers", "registers", "the algorithm as printed in the paper";
}

/// How a simulated node is set up.
#[derive(Clone, Debug)]
pub enum SimulatedNodeConfig {
    /// A member of the group.
    Member {
        /// The machine's own configuration.
        config: Config,
        /// Where the database is.
        database: MemberId,
        /// A bug put in on purpose.
        mutant: Option<Mutant>,
    },
    /// The database.
    Database(DatabaseConfig),
}

/// What goes between members and database.
#[derive(Clone, Debug)]
pub enum Message {
    /// Carry this out.
    Request {
        /// Of the member.
        life: Incarnation,
        /// Its name.
        id: u64,
        /// The statement to carry out.
        statement: Statement,
    },
    /// This became of it.
    Reply {
        /// Of the request.
        life: Incarnation,
        /// Of the request.
        id: u64,
        /// The statement's outcome, if that is known.
        outcome: StatementOutcome,
    },
    /// The control row was written.
    Notification,
}

/// What a node can be told.
#[derive(Debug)]
pub enum NodeInput {
    /// A message.
    Received(MemberId, Message),
    /// To a member.
    Member(Input),
    /// To the database.
    Database(Trouble),
}

/// What a node tells.
#[derive(Debug)]
pub enum NodeEvent {
    /// A member, its application.
    Member(Event),
    /// The control row was written.
    Written(Option<ControlState>),
    /// A member takes over although it has seen a lease that still runs.
    Impatient(String),
    /// The database has lost something.
    Lost {
        /// What the control row was.
        row: bool,
        /// What the history was.
        history: bool,
    },
    /// A member was shown that the control row went back, and has not told of it.
    Untold(String),
}

/// What a node asks for.
pub type NodeEffect = Effect<Message, (), NodeEvent>;

/// A member of the group, or its database.
pub enum Node {
    /// A member.
    Member(Box<ConnectedMember>),
    /// The database.
    Database(Box<DatabaseModel>),
}

/// A member and its connection.
pub struct ConnectedMember {
    life: Incarnation,
    database: MemberId,
    /// The member.
    pub member: Mutated,
    asked: Vec<Asked>,
}

impl ConnectedMember {
    fn pass_on(&mut self, effects: &mut Effects<NodeEffect>) {
        for asked in self.asked.drain(..) {
            effects.push(match asked {
                Asked::Told(event) => Effect::Tell(NodeEvent::Member(event)),
                Asked::Impatient(what) => Effect::Tell(NodeEvent::Impatient(what)),
                Asked::Untold(what) => Effect::Tell(NodeEvent::Untold(what)),
                Asked::Statement(id, statement) => {
                    let message = Message::Request { life: self.life, id, statement };
                    Effect::Send { to: self.database, message }
                }
            });
        }
    }

    fn handle(&mut self, input: NodeInput, now: Instant) {
        match input {
            NodeInput::Received(_, Message::Reply { life, id, outcome }) if life == self.life => {
                self.member.answer(id, outcome, now, &mut self.asked);
            }
            NodeInput::Received(_, Message::Notification) => {
                self.member.tell(Input::RowChanged, now, &mut self.asked);
            }
            NodeInput::Member(input) => self.member.tell(input, now, &mut self.asked),
            NodeInput::Received(..) | NodeInput::Database(_) => {}
        }
    }
}

impl Node {
    /// The member, if it is one.
    pub fn member(&self) -> Option<&Mutated> {
        match self {
            Node::Member(client) => Some(&client.member),
            Node::Database(_) => None,
        }
    }

    /// The database, if it is that.
    pub fn database(&self) -> Option<&DatabaseModel> {
        match self {
            Node::Member(_) => None,
            Node::Database(database) => Some(database),
        }
    }
}

impl Machine for Node {
    type Input = NodeInput;
    type Effect = NodeEffect;

    fn handle(&mut self, input: NodeInput, now: Instant, effects: &mut Effects<NodeEffect>) {
        match self {
            Node::Member(client) => {
                client.handle(input, now);
                client.pass_on(effects);
            }
            Node::Database(database) => {
                match input {
                    NodeInput::Received(from, Message::Request { life, id, statement }) => {
                        database.request((from, life, id), statement, now);
                    }
                    NodeInput::Database(trouble) => {
                        let history = trouble.loses_history();
                        let row = database.trouble(trouble, now);
                        if row || history {
                            effects.push(Effect::Tell(NodeEvent::Lost { row, history }));
                        }
                    }
                    NodeInput::Received(..) | NodeInput::Member(_) => {}
                }
                database.carry_out_due(now, effects);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<NodeEffect>) {
        match self {
            Node::Member(client) => {
                client.member.time_out(now, &mut client.asked);
                client.pass_on(effects);
            }
            Node::Database(database) => database.carry_out_due(now, effects),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Node::Member(client) => client.member.deadline(),
            Node::Database(database) => database.deadline(),
        }
    }
}

impl Subject for Node {
    type Message = Message;
    type Stable = ();
    type Event = NodeEvent;
    type Config = SimulatedNodeConfig;

    fn boot(
        config: &SimulatedNodeConfig,
        boot: Boot<()>,
        now: Instant,
        effects: &mut Effects<NodeEffect>,
    ) -> Self {
        let life = boot.lifetime;
        match config {
            SimulatedNodeConfig::Database(config) => {
                Node::Database(Box::new(DatabaseModel::new(*config, life)))
            }
            SimulatedNodeConfig::Member { config, database, mutant } => {
                let mut asked = Vec::new();
                let (config, seed, part) = (config.clone(), life.get(), config.part());
                let member = Mutated::start(config, seed, *mutant, now, &mut asked);
                let mut client = ConnectedMember { life, database: *database, member, asked };
                if part == Part::Role {
                    client.handle(storm::joined(Some(life.get())), now);
                }
                client.pass_on(effects);
                Node::Member(Box::new(client))
            }
        }
    }

    fn received(from: MemberId, message: Message) -> NodeInput {
        NodeInput::Received(from, message)
    }
}
