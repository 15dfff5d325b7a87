//! `mandate steer`: leaders by score for clusters that have their own elections.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use mandate::peer::Protocol;
use mandate_proto::oracle::Oracle;
use mandate_steer::etcd::client::{Endpoint, EtcdAccess};
use mandate_steer::etcd::keys;
use mandate_steer::judgement::SteerSettings;
use mandate_steer::{EtcdCluster, Steering, System};

use crate::args::{StartArgs, positive_duration};
use crate::exit::Exit;
use crate::input;
use crate::logging;
use crate::node::{self, NodeConfig};
use crate::output;
use crate::program_runtime::block_on;
use crate::wait::WaitArgs;

/// How long etcd may take to take note of a wish.
const ANSWER: Duration = Duration::from_secs(5);

/// A password is a line.
const MAX_PASSWORD: u64 = 4096;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SteerCommand {
    /// Beside a member of etcd: have the member lead that serves best.
    // Not wrapped, so that it can be copied.
    #[command(
        term_width = 0,
        after_help = "\
One sidecar a member of etcd, each with a configuration of the peer engine (`mandate init`, `mandate node --help`):
its [election] oracle says what makes a good leader, its [moves] when a leader that is well is moved. The sidecars
elect the best member among themselves, and its sidecar asks etcd's leader to hand over (MoveLeader).

  mandate steer etcd --config group/p1.toml --etcd http://127.0.0.1:2379 --new --shadow    # look first
  mandate explain --api 127.0.0.1:8101                                                     # why this one"
    )]
    Etcd(Box<EtcdArgs>),
    /// Leave etcd's leadership where it is, for a while: all sidecars move nothing.
    Hold(WishArgs),
    /// Keep etcd's leadership away from a member, for a while: it moves to the best of the others.
    Drain(WishArgs),
    /// End what `hold` and `drain` began.
    Resume(AccessArgs),
}

/// Something that an operator wants. It is kept in etcd, so any member can be told.
#[derive(Debug, clap::Args)]
pub(crate) struct WishArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// For how long. After that sidecars go on as before.
    #[arg(long = "for", default_value = "1h", value_parser = positive_duration, value_name = "TIME")]
    lasts: Duration,
    /// The reason, shown in the sidecars' logs.
    #[arg(long, default_value = "maintenance", value_name = "TEXT")]
    why: String,
}

/// A member of etcd, and how it is spoken to.
#[derive(Debug, clap::Args)]
pub(crate) struct AccessArgs {
    /// Where the member of etcd serves clients: the one that a sidecar stands beside, or that is to be drained.
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
    /// A user of etcd; it needs the role root.
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// A file with its password.
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EtcdArgs {
    /// The sidecar's own configuration, as for `mandate node`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    access: AccessArgs,
    /// Between two looks at etcd.
    #[arg(long, default_value = "500ms", value_parser = positive_duration, value_name = "TIME")]
    every: Duration,
    /// By how many entries a member may be behind and still be made leader.
    #[arg(long, default_value_t = SteerSettings::default().lag, value_name = "N")]
    lag: u64,
    /// Between two moves that this sidecar makes, at least.
    #[arg(long, default_value = "5s", value_parser = positive_duration, value_name = "TIME")]
    pause: Duration,
    /// How long leadership is left where somebody else has moved it.
    #[arg(long, default_value = "5m", value_parser = positive_duration, value_name = "TIME")]
    respect: Duration,
    /// Only say what would be done.
    #[arg(long)]
    shadow: bool,
}

pub(crate) fn run(command: &SteerCommand) -> anyhow::Result<Exit> {
    match command {
        SteerCommand::Etcd(args) => steer(args)?,
        SteerCommand::Hold(args) => {
            let etcd = args.access.endpoint()?;
            keys::hold(&etcd, &args.why, args.lasts, ANSWER)?;
            output::print(format!(
                "etcd's leadership stays where it is for {}",
                humantime::format_duration(args.lasts)
            ))?;
        }
        SteerCommand::Drain(args) => {
            let etcd = args.access.endpoint()?;
            let member = etcd.position(ANSWER)?.member;
            keys::drain(&etcd, member, &args.why, args.lasts, ANSWER)?;
            output::print(format!(
                "{member} is not to lead for {}",
                humantime::format_duration(args.lasts)
            ))?;
        }
        SteerCommand::Resume(args) => {
            keys::resume(&args.endpoint()?, ANSWER)?;
            output::print("nothing is held or drained any more")?;
        }
    }
    Ok(Exit::Success)
}

fn steer(args: &EtcdArgs) -> anyhow::Result<()> {
    let mut config = NodeConfig::read(&args.config)?;
    with_health(&mut config)
        .with_context(|| format!("{} cannot be used to steer", args.config.display()))?;
    let (etcd, steering) = (args.etcd()?, args.steering());
    let name = etcd.name();
    logging::begin("info");
    block_on(node::serve(config, args.start.start(), WaitArgs::default(), |election| {
        tokio::spawn(steering.run(etcd, election, move |report| {
            // If nobody reads it, leaders are moved all the same.
            let _ = output::print(format!("{name}: {report}"));
        }));
    }))
}

impl AccessArgs {
    fn access(&self) -> anyhow::Result<EtcdAccess> {
        let password = |path: &PathBuf| -> anyhow::Result<String> {
            Ok(input::read_text(path, MAX_PASSWORD)?.trim_end_matches(['\r', '\n']).to_owned())
        };
        let password = self.etcd_password_file.as_ref().map(password).transpose()?;
        Ok(EtcdAccess {
            ca: self.etcd_ca.clone(),
            certificate: self.etcd_cert.clone().zip(self.etcd_key.clone()),
            user: self.etcd_user.clone().zip(password),
        })
    }

    fn endpoint(&self) -> anyhow::Result<Endpoint> {
        Ok(Endpoint::new(&self.etcd, &self.access()?)?)
    }
}

impl EtcdArgs {
    fn etcd(&self) -> anyhow::Result<EtcdCluster> {
        Ok(EtcdCluster::new(self.access.endpoint()?, self.access.access()?))
    }

    fn steering(&self) -> Steering {
        let settings = SteerSettings {
            // Two looks may fail before an answer is too old.
            fresh: (self.every * 3).max(Duration::from_secs(1)),
            lag: self.lag,
            pause: self.pause,
            respect: self.respect,
            ..SteerSettings::default()
        };
        Steering { every: self.every, settings, shadow: self.shadow }
    }
}

/// A member that cannot lead etcd is worse than any that can: that is the first term of every oracle here.
fn with_health(config: &mut NodeConfig) -> anyhow::Result<()> {
    let mandate::Builder::Peer(peer) = &mut config.member else {
        anyhow::bail!("sidecars elect by messages: engine = \"peer\"");
    };
    let Protocol::Pole(pole) = peer.protocol() else {
        anyhow::bail!("sidecars elect by score: guarantee = \"fenced\" or \"leased\"");
    };
    let oracle = pole.oracle().to_string();
    anyhow::ensure!(
        !oracle.contains("application"),
        "the oracle has the term `application`, by which the sidecar tells whether its member of etcd is well: \
         take it out"
    );
    let oracle: Oracle = format!("application, {oracle}").parse().context("[election] oracle")?;
    **peer = peer.clone().with_oracle(oracle);
    Ok(())
}
