//! `mandate lab crowd`: a process of members of a rival.

use std::time::Duration;

use anyhow::Context;
use mandate_lab::rivals::advisory_lock::AdvisoryLock;
use mandate_lab::rivals::crowd;
use mandate_lab::rivals::ours::Ours;
use mandate_lab::rivals::printed::Printed;
use mandate_lab::rivals::zookeeper::Recipe;
use mandate_proto::identity::MemberId;
use mandate_proto::registers::{Config, Guarantee, InvalidConfig};

use super::Rival;
use crate::exit::Exit;
use crate::sql::GuaranteeName;

#[derive(Debug, clap::Args)]
pub(crate) struct CrowdArgs {
    /// What elects.
    #[arg(value_enum)]
    rival: Rival,
    /// Where its server is.
    #[arg(long)]
    url: String,
    /// The number of the first member.
    #[arg(long)]
    first: u64,
    /// How many.
    #[arg(long)]
    members: u64,
    /// zookeeper: how long a session lasts.
    #[arg(long, default_value_t = 4000)]
    session_ms: u64,
    /// mandate: time between heartbeats.
    #[arg(long, default_value_t = 2000)]
    round_ms: u64,
    /// mandate: what leaders rely on.
    #[arg(long, value_enum, default_value_t)]
    guarantee: GuaranteeName,
    /// mandate: connections that members of this process share, instead of one each.
    #[arg(long)]
    connections: Option<usize>,
}

pub(crate) fn run(args: &CrowdArgs) -> anyhow::Result<Exit> {
    let members = args.first..args.first + args.members;
    let url = args.url.clone();
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(async {
        match args.rival {
            Rival::AdvisoryLock => crowd::run(AdvisoryLock { url }, members).await,
            Rival::Mandate => {
                let config = args.config().map_err(std::io::Error::other)?;
                let address = url.parse().map_err(std::io::Error::other)?;
                crowd::run(Ours::new(address, config, args.connections), members).await
            }
            Rival::Printed => crowd::run(Printed { url }, members).await,
            Rival::Zookeeper => {
                let session = Duration::from_millis(args.session_ms);
                crowd::run(Recipe { address: url, session }, members).await
            }
        }
    })?;
    // Connections that hang must not keep the process.
    runtime.shutdown_background();
    Ok(Exit::Success)
}

impl CrowdArgs {
    /// How members of our own engine elect: as in the paper at its rounds, and with the default lease at others.
    fn config(&self) -> Result<Config, InvalidConfig> {
        let (nobody, round) = (MemberId::new(0), Duration::from_millis(self.round_ms));
        let paper = Config::paper(nobody);
        let config = if round == paper.round() { paper } else { Config::new(nobody, round)? };
        Ok(config.with_guarantee(match self.guarantee {
            GuaranteeName::Fenced => Guarantee::Fenced,
            GuaranteeName::Leased => Guarantee::Leased,
        }))
    }
}
