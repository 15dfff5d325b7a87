//! `mandate lab actor`: one member process of an experiment, by the lines of
//! [`mandate_conformance::protocol`].

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use mandate_conformance::actor::{self, Behaviour};

use crate::args::NodeArgs;
use crate::exit::Exit;
use crate::node::{NodeConfig, start_peer};

#[derive(Debug, clap::Args)]
pub(crate) struct ActorArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// Between two acts, in microseconds.
    #[arg(long, default_value_t = 1000)]
    pace_us: u64,
    /// The socket of a register to write to at every act.
    #[arg(long)]
    register: Option<PathBuf>,
    /// Look at the mandate once, and then act for ever: what no program should do.
    #[arg(long)]
    careless: bool,
}

pub(crate) fn run(args: &ActorArgs) -> anyhow::Result<Exit> {
    let config = NodeConfig::read(&args.node.config)?;
    let behaviour = Behaviour {
        member: config.protocol.me(),
        pace: Duration::from_micros(args.pace_us),
        register: args.register.clone(),
        careless: args.careless,
    };
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(async {
        let peer = start_peer(&config, args.node.start.start()).await?;
        let election = peer.election().clone();
        actor::run(election, behaviour, async || peer.shutdown().await).await?;
        Ok(Exit::Success)
    })
}
