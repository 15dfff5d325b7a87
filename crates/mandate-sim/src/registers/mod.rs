//! Election on a database under simulation: members, a database that takes its time, and what must hold
//! of terms and mandates.

use mandate_proto::identity::{Lifetime, MemberId};
use mandate_proto::machine::{Effect, Effects, Machine};
use mandate_proto::registers::{Config, Control, Event, Input, Outcome, Part, Statement};
use mandate_proto::time::Instant;

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

pub use database::{Database, DatabaseConfig, Strain, Trouble};
pub use mutated::Mutated;
pub use scenario::{Options, run};
pub use tables::{Flaws, Tables};

use mutated::Asked;

/// Bugs to put back on purpose: a rule of [`mandate_proto::registers`] each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A leader counts its lease from the answer, and not from before it asked.
    LeaseFromAnswer,
    /// A version is watched from when the read was sent, and not from its answer.
    WatchFromSending,
    /// A takeover does not check the beat that it watched.
    TakeoverIgnoresBeat,
    /// A renewal does not check the beat that it replaces.
    RenewalIgnoresBeat,
    /// Nobody allows for drift.
    NoAllowance,
    /// A leader that publishes a shorter lease goes on counting on the longer one.
    LoweredAtOnce,
    /// A leader is suspected after so many rounds, and not after a time.
    SuspicionByRounds,
    /// A takeover does not raise the term.
    TermNotRaised,
    /// A write whose outcome is unknown is taken for one that succeeded.
    UnknownIsSuccess,
    /// A row that is vacant is taken at once, also where it was lost and made again, or went back to that.
    LostLeaseForgotten,
    /// A watcher goes by its own guarantee, and not by the leader's.
    OwnGuarantee,
    /// A row that went back, or was made again, is told to nobody.
    LossesUntold,
}

/// How a simulated node is set up.
#[derive(Clone, Debug)]
pub enum NodeConfig {
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
        life: Lifetime,
        /// Its name.
        id: u64,
        /// What.
        statement: Statement,
    },
    /// This became of it.
    Reply {
        /// Of the request.
        life: Lifetime,
        /// Of the request.
        id: u64,
        /// What.
        outcome: Outcome,
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
    Written(Option<Control>),
    /// A member takes over although it has seen a lease that still runs.
    Impatient(String),
    /// The database has lost what the control row was.
    Lost,
    /// A member was shown that the control row went back, and has not told of it.
    Untold(String),
}

/// What a node asks for.
pub type NodeEffect = Effect<Message, (), NodeEvent>;

/// A member of the group, or its database.
pub enum Node {
    /// A member.
    Member(Box<Client>),
    /// The database.
    Database(Box<Database>),
}

/// A member and its connection.
pub struct Client {
    life: Lifetime,
    database: MemberId,
    /// The member.
    pub member: Mutated,
    asked: Vec<Asked>,
}

impl Client {
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
    pub fn database(&self) -> Option<&Database> {
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
                        if database.trouble(trouble, now) {
                            effects.push(Effect::Tell(NodeEvent::Lost));
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
    type Config = NodeConfig;

    fn boot(
        config: &NodeConfig,
        boot: Boot<()>,
        now: Instant,
        effects: &mut Effects<NodeEffect>,
    ) -> Self {
        let life = boot.lifetime;
        match config {
            NodeConfig::Database(config) => Node::Database(Box::new(Database::new(*config, life))),
            NodeConfig::Member { config, database, mutant } => {
                let mut asked = Vec::new();
                let (config, seed, part) = (config.clone(), life.get(), config.part());
                let member = Mutated::start(config, seed, *mutant, now, &mut asked);
                let mut client = Client { life, database: *database, member, asked };
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
