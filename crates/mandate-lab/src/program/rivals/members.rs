//! `mandate lab crowd`: a process of members of a rival.

use std::time::Duration;

use anyhow::Context;
use mandate_lab::rivals::advisory_lock::AdvisoryLock;
use mandate_lab::rivals::members;
use mandate_lab::rivals::ours::Ours;
use mandate_lab::rivals::printed::Printed;
use mandate_lab::rivals::zookeeper::Recipe;
use mandate_proto::identity::MemberId;
use mandate_proto::oracle::{Oracle, Preference};
use mandate_proto::registers::{Config, SqlGuarantee};

use super::Rival;
use mandate_cli::exit::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct CrowdArgs {
    /// What elects.
    #[arg(value_enum)]
    rival: Rival,
    /// Where its server is.
    #[arg(long, env = "MANDATE_URL", hide_env_values = true)]
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
    /// mandate: the group.
    #[arg(long, default_value = "lab")]
    group: String,
    /// mandate, printed: connections that members of this process share, instead of one each.
    #[arg(long)]
    connections: Option<usize>,
}

pub(crate) fn run(args: &CrowdArgs) -> anyhow::Result<Exit> {
    let members = args.first..args.first + args.members;
    let url = args.url.clone();
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(async {
        match args.rival {
            Rival::AdvisoryLock => members::run(AdvisoryLock { url }, members).await,
            Rival::Mandate | Rival::MandateFenced => {
                let config = args.config().map_err(std::io::Error::other)?;
                let address = url.parse().map_err(std::io::Error::other)?;
                let group = args.group.clone();
                members::run(Ours::new(address, group, config, args.connections), members).await
            }
            Rival::Printed => members::run(Printed::new(url, args.connections), members).await,
            Rival::Zookeeper => {
                let session = Duration::from_millis(args.session_ms);
                members::run(Recipe { address: url, session }, members).await
            }
        }
    })?;
    // Connections that hang must not keep the process.
    runtime.shutdown_background();
    Ok(Exit::Success)
}

impl CrowdArgs {
    /// How members of our own engine elect: as in the paper at its rounds, and with the default lease at others.
    fn config(&self) -> anyhow::Result<Config> {
        let (nobody, round) = (MemberId::new(0), Duration::from_millis(self.round_ms));
        let paper = Config::paper(nobody);
        let config = if round == paper.round() { paper } else { Config::new(nobody, round)? };
        // Only a member with a process of its own can be killed alone.
        let preference = Preference::Rank(i32::from(self.members == 1));
        let oracle = "preference".parse::<Oracle>()?;
        let config = config.with_oracle(oracle).with_preference(preference);
        Ok(config.with_guarantee(match self.rival {
            Rival::MandateFenced => SqlGuarantee::Fenced,
            _ => SqlGuarantee::Leased,
        }))
    }
}
