//! `mandate lab actor`: one member process of an experiment, by the lines of
//! [`mandate_conformance::protocol`].

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use mandate_conformance::actor::{self, Behaviour};
use mandate_proto::identity::MemberId;

use super::guarded::Writer;
use crate::args::StartArgs;
use crate::exit::Exit;
use crate::logging;
use crate::node::{NodeConfig, PeerConfig, start_peer};
use crate::sql::MemberArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct ActorArgs {
    /// A member of the peer engine, with this configuration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    start: StartArgs,
    /// A member that elects on a database.
    #[command(flatten)]
    database: MemberArgs,
    /// Between two acts, in microseconds.
    #[arg(long, default_value_t = 1000)]
    pace_us: u64,
    /// The socket of a register to write to at every act.
    #[arg(long)]
    register: Option<PathBuf>,
    /// Write to a table of one's own while leading, too, in transactions that check the term; on a database.
    #[arg(long)]
    guarded: bool,
    /// Look at the mandate once, and then act for ever: what no program should do.
    #[arg(long)]
    careless: bool,
}

pub(crate) fn run(args: &ActorArgs) -> anyhow::Result<Exit> {
    // What an operator would read is kept with the rest that a member says.
    logging::begin("warn");
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(async {
        match &args.config {
            Some(config) => of_peers(args, &NodeConfig::read_peer(config)?).await,
            None => on_database(args).await,
        }
    })?;
    Ok(Exit::Success)
}

async fn of_peers(args: &ActorArgs, config: &PeerConfig) -> anyhow::Result<()> {
    let peer = start_peer(config, args.start.start()).await?;
    let behaviour = args.behaviour(config.protocol.me());
    let election = peer.election().clone();
    Ok(actor::run(election, behaviour, async || peer.shutdown().await).await?)
}

async fn on_database(args: &ActorArgs) -> anyhow::Result<()> {
    let address = args.database.at.address()?.context("give --config or --url")?;
    let member = args.database.resolve(&address, args.database.at.group_or("lab"))?.start().await?;
    let behaviour = args.behaviour(member.me());
    let election = member.election().clone();
    if args.guarded {
        let (address, group) = (address.clone(), member.group().to_owned());
        let Behaviour { member, careless, .. } = behaviour;
        Writer { address, group, member, careless }.start(election.clone())?;
    }
    Ok(actor::run(election, behaviour, async || member.shutdown().await).await?)
}

impl ActorArgs {
    fn behaviour(&self, member: MemberId) -> Behaviour {
        Behaviour {
            member,
            pace: Duration::from_micros(self.pace_us),
            register: self.register.clone(),
            careless: self.careless,
        }
    }
}
