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
use std::sync::Arc;

use anyhow::Context;
use mandate_proto::identity::Term;
use mandate_sql::Address;
use tokio::sync::watch::{Receiver, channel};
use tokio::time::sleep;

use crate::exit::Exit;
use crate::logging;
use crate::node::{EngineConfig, Member, NodeConfig, follow_certificates};
use crate::output;
use crate::sql;

mod arguments;
mod daemon;
mod exec;
mod guard;
mod guarded;
mod signals;
mod standing;
mod terminal;
mod tree;
mod watch;
mod words;

pub(crate) use arguments::RunArgs;
use arguments::RunEngine;
use daemon::Daemon;
pub(crate) use exec::{BecomeArgs, run as become_command};
pub(crate) use guard::{GuardArgs, run as guard_command};
use guarded::Guarded;
use signals::Signals;
use standing::Standing;
use watch::{Outcome, Watch};
use words::Until;
pub(crate) use words::boottime;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    logging::begin("warn");
    tree::adopt_orphans()?;
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    let ended = runtime.block_on(async {
        match (&args.config, args.engine()?) {
            (Some(config), _) => with_config(args, config).await,
            (None, Some(RunEngine::Ledger)) => on_ledger(args).await,
            (None, Some(RunEngine::Sql)) => match args.database.at.address()? {
                Some(url) => on_database(args, &url).await,
                None => {
                    let url = sql::default_address()?;
                    output::complain(format!("electing on {url}"));
                    on_database(args, &url).await
                }
            },
            (None, None) => with_daemon(args).await,
        }
    });
    // Nothing that still waits for an answer is worth waiting for.
    runtime.shutdown_background();
    ended
}

/// Runs the command where a member of this process leads.
async fn with_config(args: &RunArgs, config: &Path) -> anyhow::Result<Exit> {
    let signals = Signals::listen()?;
    let config = NodeConfig::read(config)?;
    if let EngineConfig::Peer(config) = &config.engine {
        anyhow::ensure!(
            !config.protocol.moves_leaders(),
            "[moves] hands leadership over before the command has ended: leave it out for `mandate run`, or set \
             shadow = true"
        );
    }
    let member = Member::start(&config, args.start.start()).await?;
    if let (Some(peer), EngineConfig::Peer(config)) = (member.peer(), &config.engine) {
        tokio::spawn(follow_certificates(peer.renewal(config.identity_files()), false));
    }
    with_member(args, signals, member).await
}

/// The same, with a member that elects on a database.
async fn on_database(args: &RunArgs, url: &Address) -> anyhow::Result<Exit> {
    let signals = Signals::listen()?;
    anyhow::ensure!(
        !args.start.new && !args.start.lost,
        "--new and --lost are for members with a state of their own: on a database they have none"
    );
    let group = args.database.at.group_or(&args.role);
    let member = Member::on_database(&args.database.resolve(url, group)?).await?;
    with_member(args, signals, member).await
}

/// The same, with a member of a group on Kafka.
async fn on_ledger(args: &RunArgs) -> anyhow::Result<Exit> {
    let signals = Signals::listen()?;
    anyhow::ensure!(
        !args.start.new && !args.start.lost,
        "--new and --lost are for members with a state of their own: on a ledger they have none"
    );
    let group = args.database.at.group_or(&args.role);
    let member = Member::on_ledger(&args.ledger.resolve(group, args.database.member)?).await?;
    output::complain(format!("in the group {group}: {}", member.meets()));
    with_member(args, signals, member).await
}

async fn with_member(args: &RunArgs, signals: Signals, member: Member) -> anyhow::Result<Exit> {
    let (standing, told) = channel(Standing::Waiting);
    let election = member.election_of(&args.role)?;
    tokio::spawn(standing::of_member(election, member.promise().lease(), standing));
    // If something of the command may be left, leadership is not given back: its lease is waited for.
    let ended = Supervisor::new(args, told, signals, None).run().await;
    let ended = ended.map_err(|error| match member.ended() {
        Some(reason) => error.context(reason),
        None => error,
    })?;
    member.shutdown().await;
    Ok(ended.exit)
}

/// Runs the command where the local daemon leads.
async fn with_daemon(args: &RunArgs) -> anyhow::Result<Exit> {
    let signals = Signals::listen()?;
    anyhow::ensure!(
        !args.start.new && !args.start.lost,
        "--new and --lost are for a member of its own: give its configuration with --config, or leave them to \
         the daemon"
    );
    let (daemon, first) = Daemon::connect(&args.api).await?;
    let (standing, told) = channel(Standing::Waiting);
    tokio::spawn(daemon.clone().follow(first, standing));
    let ended = Supervisor::new(args, told, signals, Some(daemon.clone())).run().await?;
    if let Some(term) = ended.give_back {
        daemon.resign(term).await;
    }
    Ok(ended.exit)
}

/// How a wrapper ends, when nothing of the command is left.
struct Ended {
    exit: Exit,
    /// The term that nobody needs any more.
    give_back: Option<Term>,
}

struct Supervisor<'a> {
    args: &'a RunArgs,
    standing: Receiver<Standing>,
    signals: Signals,
    /// A container's entry point may have started something before it became this program.
    others: BTreeSet<i32>,
    /// Whose mandate it is, if not this process's own.
    daemon: Option<Arc<Daemon>>,
}

impl<'a> Supervisor<'a> {
    fn new(
        args: &'a RunArgs,
        standing: Receiver<Standing>,
        signals: Signals,
        daemon: Option<Arc<Daemon>>,
    ) -> Self {
        let others = tree::Tree::look(&BTreeSet::new(), &BTreeSet::new()).ids().clone();
        Supervisor { args, standing, signals, others, daemon }
    }

    /// Runs the command whenever this host leads. An error means that something of it may be left.
    async fn run(mut self) -> anyhow::Result<Ended> {
        loop {
            let Some((term, until)) = self.lead().await? else {
                return Ok(Ended { exit: Exit::Success, give_back: None });
            };
            let command = &self.args.command;
            output::complain(format!("leading in term {term}: starting {}", command[0]));
            let mut guarded =
                Guarded::start(&self.args.role, term, until, command, self.others.clone())?;
            let watch = Watch::new(&mut guarded, term, until);
            let outcome = watch.run(&mut self.standing, &mut self.signals).await?;
            if let Some(daemon) = &self.daemon {
                let for_good = matches!(outcome, Outcome::Ended(_)) || !self.args.again;
                daemon.let_go(for_good).await;
            }
            match outcome {
                Outcome::Ended(exit) => return Ok(Ended { exit, give_back: Some(term) }),
                Outcome::Lost if self.args.again => {}
                Outcome::Lost => {
                    return Ok(Ended { exit: Exit::LeadershipLost, give_back: None });
                }
            }
        }
    }

    /// Waits to lead; nothing if asked to stop before.
    async fn lead(&mut self) -> anyhow::Result<Option<(Term, Until)>> {
        loop {
            if let Some(fresh) = self.standing.borrow_and_update().fresh() {
                return Ok(Some(fresh));
            }
            tokio::select! {
                changed = self.standing.changed() => changed.context("this member was shut down")?,
                asked = self.signals.next() => if asked.ends_the_wait() { return Ok(None) },
                () = sleep(tree::REAP) => tree::reap(None),
            }
        }
    }
}
