//! `mandate steer`: leaders by score for clusters that have their own elections.

pub(crate) mod trial;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use mandate_etcd::client::{Access, Endpoint};
use mandate_etcd::judgement::Settings;
use mandate_etcd::steering::Steering;
use mandate_proto::oracle::Oracle;
use mandate_runtime::Protocol;

use crate::args::{StartArgs, positive_duration};
use crate::exit::Exit;
use crate::input;
use crate::logging;
use crate::node::{self, EngineConfig, NodeConfig};
use crate::output;

/// A password is a line.
const MAX_PASSWORD: u64 = 4096;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SteerCommand {
    /// Beside a member of etcd: have the member lead that serves best.
    #[command(after_help = "\
One sidecar a member of etcd, each with a configuration of the peer engine (`mandate init`, `mandate node --help`):
its [election] oracle says what makes a good leader, its [moves] when a leader that is well is moved. The sidecars
elect the best member among themselves, and its sidecar asks etcd's leader to hand over (MoveLeader).

  mandate steer etcd --config group/p1.toml --etcd http://127.0.0.1:2379 --new --shadow    # look first
  mandate explain --api 127.0.0.1:8101                                                     # why this one")]
    Etcd(EtcdArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct EtcdArgs {
    /// The sidecar's own configuration, as for `mandate node`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    start: StartArgs,
    /// Where the member of etcd that this stands beside serves clients.
    #[arg(long, default_value = "http://127.0.0.1:2379", value_name = "URL")]
    etcd: String,
    /// The authority of etcd's certificates.
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,
    /// A certificate for etcd.
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// A user of etcd.
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// A file with its password.
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// Between two looks at etcd.
    #[arg(long, default_value = "500ms", value_parser = positive_duration, value_name = "TIME")]
    every: Duration,
    /// By how many entries a member may be behind and still be made leader.
    #[arg(long, default_value_t = Settings::default().lag, value_name = "N")]
    lag: u64,
    /// Between two moves that this sidecar makes, at least.
    #[arg(long, default_value = "5s", value_parser = positive_duration, value_name = "TIME")]
    pause: Duration,
    /// Only say what would be done.
    #[arg(long)]
    shadow: bool,
}

pub(crate) fn run(command: &SteerCommand) -> anyhow::Result<Exit> {
    let SteerCommand::Etcd(args) = command;
    let mut config = NodeConfig::read(&args.config)?;
    with_health(&mut config)
        .with_context(|| format!("{} cannot be used to steer", args.config.display()))?;
    let steering = args.steering()?;
    logging::begin("info");
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(node::serve(config, args.start.start(), |election| {
        tokio::spawn(steering.run(election, |told| {
            // If nobody reads it, leaders are moved all the same.
            let _ = output::print(told.to_string());
        }));
    }))?;
    Ok(Exit::Success)
}

impl EtcdArgs {
    fn steering(&self) -> anyhow::Result<Steering> {
        let password = |path: &PathBuf| -> anyhow::Result<String> {
            Ok(input::read_text(path, MAX_PASSWORD)?.trim_end_matches(['\r', '\n']).to_owned())
        };
        let password = self.etcd_password_file.as_ref().map(password).transpose()?;
        let access = Access {
            ca: self.etcd_ca.clone(),
            certificate: self.etcd_cert.clone().zip(self.etcd_key.clone()),
            user: self.etcd_user.clone().zip(password),
        };
        let own = Endpoint::new(&self.etcd, &access)?;
        let settings = Settings {
            // Two looks may fail before an answer is too old.
            fresh: (self.every * 3).max(Duration::from_secs(1)),
            lag: self.lag,
            pause: self.pause,
            ..Settings::default()
        };
        Ok(Steering { own, access, every: self.every, settings, shadow: self.shadow })
    }
}

/// A member that cannot lead etcd is worse than any that can: that is the first term of every oracle here.
fn with_health(config: &mut NodeConfig) -> anyhow::Result<()> {
    let EngineConfig::Peer(peer) = &mut config.engine else {
        anyhow::bail!("sidecars elect by messages: engine = \"peer\"");
    };
    let Protocol::Pole(pole) = &peer.protocol else {
        anyhow::bail!("sidecars elect by score: guarantee = \"fenced\" or \"leased\"");
    };
    let oracle = pole.oracle().to_string();
    anyhow::ensure!(
        !oracle.contains("application"),
        "the oracle has the term `application`, by which the sidecar tells whether its member of etcd is well: \
         take it out"
    );
    let oracle: Oracle = format!("application, {oracle}").parse().context("[election] oracle")?;
    peer.protocol = Protocol::Pole(pole.clone().with_oracle(oracle));
    Ok(())
}
