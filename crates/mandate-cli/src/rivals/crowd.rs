//! `mandate lab crowd`: a process of members of a rival.

use std::time::Duration;

use anyhow::Context;
use mandate_lab::rivals::advisory_lock::AdvisoryLock;
use mandate_lab::rivals::crowd;
use mandate_lab::rivals::printed::Printed;
use mandate_lab::rivals::zookeeper::Recipe;

use super::Rival;
use crate::exit::Exit;

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
}

pub(crate) fn run(args: &CrowdArgs) -> anyhow::Result<Exit> {
    let members = args.first..args.first + args.members;
    let url = args.url.clone();
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(async {
        match args.rival {
            Rival::AdvisoryLock => crowd::run(AdvisoryLock { url }, members).await,
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
