//! `mandate run`: a command that runs where leadership is, and nowhere else.
//!
//! The command is started when this host leads. It and everything it has started are gone before
//! leadership is: with leases, before the deadline. When the command ends, leadership is given back at
//! once, and its exit code is passed on.
//!
//! Three processes: this one, the *wrapper*, which knows whether it leads; its [`guard`], which ends the
//! command in time whatever becomes of the wrapper; and the command. What holds when one of them is killed
//! or stopped is said in [`guard`].

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use mandate::sql::Address;
use mandate::{Builder, Member, Start, Term, Value};
use tokio::sync::watch::{Receiver, channel};
use tokio::time::{interval, sleep};

use crate::exit::Exit;
use crate::logging;
use crate::node::NodeConfig;
use crate::node::member::{meets, starting, without_state};
use crate::output;
use crate::program_runtime::block_on;

mod arguments;
mod daemon;
mod exec;
mod guard;
mod guard_protocol;
mod guarded;
mod lender;
mod permit;
mod recall;
mod signals;
mod terminal;
mod tree;
mod watch;

pub(crate) use arguments::RunArgs;
use arguments::RunEngine;
use daemon::Daemon;
pub(crate) use exec::{BecomeArgs, run as become_command};
pub(crate) use guard::{GuardArgs, run as guard_command};
use guard_protocol::Until;
pub(crate) use guard_protocol::boottime;
use guarded::{Environment, Guarded};
use lender::Lender;
use permit::Permit;
use recall::Recall;
use signals::Signals;
use watch::{Outcome, Watch};

/// Before it is looked again whether a mandate that was lost just now is known to be.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How often it is looked why this host does not lead, until that was said: not at once, because most elections are over by
/// then.
const LOOK_WHY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    logging::begin("warn");
    tree::adopt_orphans()?;
    block_on(async {
        // First, so that a request to stop is heard whatever is waited for.
        let signals = Signals::listen()?;
        match (&args.config, args.engine()?) {
            (Some(config), _) => with_config(args, signals, config).await,
            (None, Some(RunEngine::Ledger)) => on_ledger(args, signals).await,
            (None, Some(RunEngine::Sql)) => match args.database.at.address()? {
                Some(url) => on_database(args, signals, &url).await,
                None => {
                    let url = mandate::sql::default_address()?;
                    output::complain(format!("electing on {url}"));
                    on_database(args, signals, &url).await
                }
            },
            (None, None) => with_daemon(args, signals).await,
        }
    })
}

/// Runs the command where a member of this process leads.
async fn with_config(args: &RunArgs, signals: Signals, config: &Path) -> anyhow::Result<Exit> {
    let config = NodeConfig::read(config)?;
    if let Builder::Peer(config) = &config.member {
        anyhow::ensure!(
            !config.protocol().moves_leaders(),
            "[moves] hands leadership over before the command has ended: leave it out for `mandate run`, or set \
             shadow = true"
        );
    }
    let value = args.value.clone().or_else(|| config.member.value().cloned());
    let member = starting(config.member, args.start.start())?.with_value(value.clone());
    with_member(args, signals, value, async || Ok(member.start().await?)).await
}

/// The same, with a member that elects on a database.
async fn on_database(args: &RunArgs, signals: Signals, url: &Address) -> anyhow::Result<Exit> {
    without_state(args.start.start(), "on a database")?;
    let group = args.database.at.group_or(&args.role);
    let config = args.database.resolve(url, group)?;
    let config = config.with_value(args.value.clone());
    with_member(args, signals, args.value.clone(), async || Ok(config.start().await?)).await
}

/// The same, with a member of a group on Kafka.
async fn on_ledger(args: &RunArgs, signals: Signals) -> anyhow::Result<Exit> {
    without_state(args.start.start(), "on a ledger")?;
    let group = args.database.at.group_or(&args.role);
    let config = args.ledger.resolve(group, args.database.member)?;
    let config = config.with_value(args.value.clone());
    with_member(args, signals, args.value.clone(), async || {
        let member = config.start().await?;
        output::complain(format!("in the group {group}: {}", meets(&member)));
        Ok(member)
    })
    .await
}

async fn with_member(
    args: &RunArgs,
    mut signals: Signals,
    value: Option<Value>,
    start: impl AsyncFnMut() -> anyhow::Result<Member>,
) -> anyhow::Result<Exit> {
    let member = tokio::select! {
        biased;
        exit = signals.stopped() => return Ok(exit),
        member = args.wait.until(start) => member?,
    };
    let (standing, told) = channel(Permit::Waiting);
    let election = member.election_of(&args.role)?;
    let recall = Recall::new();
    let asked = recall.clone();
    election.set_gate(move || asked.clone().recall());
    let wanted = recall.wanted();
    tokio::spawn(permit::of_member(election.clone(), member.guarantee().lease(), wanted, standing));
    // If something of the command may be left, leadership is not given back: its lease is waited for.
    let lender = Lender::Member { member: &member, election, recall: recall.clone() };
    let ended = Supervisor::new(args, told, signals, lender, value).run().await;
    let ended = ended.map_err(|error| match member.ended() {
        Some(reason) => error.context(reason),
        None => error,
    })?;
    recall.done().await;
    member.shutdown().await;
    Ok(ended)
}

/// Runs the command where the local daemon leads.
async fn with_daemon(args: &RunArgs, mut signals: Signals) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        args.start.start() == Start::Stored,
        "--new, --lost and --members-changed are for a member of its own: give its configuration with --config, or \
         leave them to the daemon"
    );
    let (daemon, first) = tokio::select! {
        biased;
        exit = signals.stopped() => return Ok(exit),
        connected = args.wait.until(async || Daemon::connect(&args.api, &args.role).await) => connected?,
    };
    let (standing, told) = channel(Permit::Waiting);
    tokio::spawn(daemon.clone().follow(first, standing));
    let value = args.value.clone();
    Supervisor::new(args, told, signals, Lender::Daemon(daemon), value).run().await
}

struct Supervisor<'a> {
    args: &'a RunArgs,
    standing: Receiver<Permit>,
    signals: Signals,
    /// A container's entry point may have started something before it became this program.
    others: BTreeSet<i32>,
    /// Whose mandate it is.
    lender: Lender<'a>,
    /// What is published with each term.
    value: Option<Value>,
}

impl<'a> Supervisor<'a> {
    fn new(
        args: &'a RunArgs,
        standing: Receiver<Permit>,
        signals: Signals,
        lender: Lender<'a>,
        value: Option<Value>,
    ) -> Self {
        let others = tree::Tree::look(&BTreeSet::new(), &BTreeSet::new()).ids().clone();
        Supervisor { args, standing, signals, others, lender, value }
    }

    /// Runs the command whenever this host leads; how this program ends, when nothing of the command is left. An error
    /// means that something may be.
    async fn run(mut self) -> anyhow::Result<Exit> {
        loop {
            let (term, until) = match self.lead().await? {
                Ok(leading) => leading,
                Err(exit) => {
                    self.lender.end(None).await;
                    return Ok(exit);
                }
            };
            let Some(loan) = self.lender.lend(term) else {
                // It was lost just now, and the task that tells so has not run yet.
                sleep(LOOK_AGAIN).await;
                continue;
            };
            let outcome = self.command(term, until).await?;
            // Nothing acts on it any more.
            drop(loan);
            match outcome {
                Outcome::Ended(exit) => {
                    self.lender.end(Some(term)).await;
                    return Ok(exit);
                }
                Outcome::Lost if self.args.again => self.lender.let_go().await,
                Outcome::Lost => {
                    self.lender.end(None).await;
                    return Ok(Exit::LeadershipLost);
                }
            }
        }
    }

    /// Runs the command once.
    async fn command(&mut self, term: Term, until: Until) -> anyhow::Result<Outcome> {
        let RunArgs { role, command, grace, .. } = self.args;
        output::complain(format!("leading in term {term}: starting {}", command[0]));
        if let Some(value) = &self.value {
            self.lender.publish(term, value).await;
        }
        let (leading, lock) = ((term, until), self.lender.lock());
        let environment = Environment { role, term, value: self.value.as_ref() };
        let mut guarded =
            Guarded::start(environment, until, command, self.others.clone(), lock.as_ref())?;
        let watch = Watch::new(&mut guarded, leading, *grace);
        watch.run(&mut self.standing, &mut self.signals).await
    }

    /// Waits to lead; how this program ends, if it is asked to stop before.
    async fn lead(&mut self) -> anyhow::Result<Result<(Term, Until), Exit>> {
        let mut says_why = true;
        let mut looks = interval(LOOK_WHY);
        looks.tick().await;
        let mut reap = interval(tree::REAP);
        loop {
            let fresh = self.standing.borrow_and_update().fresh();
            tokio::select! {
                biased;
                // Before anything is started, also if it has led for long: asked to stop means stop.
                exit = self.signals.stopped() => return Ok(Err(exit)),
                Some(leading) = std::future::ready(fresh) => return Ok(Ok(leading)),
                changed = self.standing.changed() => changed.context("this member was shut down")?,
                _ = looks.tick(), if says_why => if let Some(why) = self.lender.why_not().await {
                    output::complain(format!("waiting to lead: {why}"));
                    says_why = false;
                },
                _ = reap.tick() => tree::reap(None),
            }
        }
    }
}
