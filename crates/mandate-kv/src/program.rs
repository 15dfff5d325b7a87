//! The service as a program: a member's process, and a client's commands. `mandate-kv` and `mandate lab kv` are this.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use mandate_peer::PeerSetup;
use mandate_peer::links::Identity;
use mandate_proto::identity::MemberId;
use mandate_proto::oracle::{Oracle, Preference};
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_proto::pole::member::Config;
use mandate_runtime::Start;

use super::{KvClient, KvNode, KvNodeConfig, Mutant, RaftTiming};
use mandate_openraft::driver::DriverConfig;

/// How often it is tried to remove what is left.
const REMOVES: u32 = 100;

/// What the program does.
#[derive(Debug, Subcommand)]
pub enum KvCommand {
    /// Run a member.
    Node(Box<NodeArgs>),
    /// Set a key.
    Put {
        /// Which service.
        #[command(flatten)]
        service: ServiceArgs,
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Show what a key has.
    Get {
        /// Which service.
        #[command(flatten)]
        service: ServiceArgs,
        /// The key.
        key: String,
    },
    /// Show how each member is.
    Status {
        /// Which service.
        #[command(flatten)]
        service: ServiceArgs,
    },
}

/// Which service.
#[derive(Debug, clap::Args)]
pub struct ServiceArgs {
    /// The service's name, which the members' certificates carry, too.
    #[arg(long, default_value = "kv")]
    service: String,
    /// Where a member answers, such as p1=127.0.0.1:7001; once for each.
    #[arg(long = "at", value_name = "MEMBER=HOST:PORT", value_parser = named, required = true)]
    addresses: Vec<(MemberId, String)>,
    /// The authority's certificate, one's own and its key, in PEM files. A member's certificate names it
    /// (p1.SERVICE.mandate); a client's has any other name of the service (client.SERVICE.mandate).
    #[arg(long, num_args = 3, value_names = ["CA", "CERTIFICATE", "KEY"], required = true)]
    papers: Vec<PathBuf>,
}

impl ServiceArgs {
    fn identity(&self) -> anyhow::Result<Identity> {
        let [ca, chain, key] = &self.papers[..] else {
            anyhow::bail!("--papers takes three files")
        };
        Ok(Identity::from_files(ca, chain, key)?)
    }
}

/// A member.
#[derive(Debug, clap::Args)]
pub struct NodeArgs {
    #[command(flatten)]
    service: ServiceArgs,
    /// Which member this is.
    #[arg(long)]
    me: MemberId,
    /// Where log, snapshots and the election's state are kept.
    #[arg(long)]
    directory: PathBuf,
    /// Where a member's election listens; once for each.
    #[arg(long = "peer", value_name = "MEMBER=HOST:PORT", value_parser = named, required = true)]
    peers: Vec<(MemberId, String)>,
    /// Take part for the first time.
    #[arg(long)]
    new: bool,
    /// How leaders are chosen, such as "latency/10ms, history".
    #[arg(long, default_value = "history")]
    oracle: String,
    /// What the operator thinks of this member as a leader: a number, or never.
    #[arg(long, default_value = "0")]
    preference: String,
    /// Within how long a leader's crash is noticed.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    detect: Duration,
    /// Time between the election's heartbeats.
    #[arg(long, default_value = "100ms", value_parser = humantime::parse_duration)]
    interval: Duration,
    /// How long Raft is left without a leader, or without anyone who directs it, before it elects by itself.
    #[arg(long, default_value = "3s", value_parser = humantime::parse_duration)]
    patience: Duration,
    /// Raft's own timing for members far from each other.
    #[arg(long)]
    wan: bool,
    /// Serve only where the election's winner leads, and nobody meanwhile; for comparison.
    #[arg(long)]
    no_interim: bool,
    /// After how many entries a snapshot is made.
    #[arg(long, default_value_t = 10_000)]
    snapshot_every: u64,
    /// After how many bytes of keys and values a snapshot is made, if that comes first.
    #[arg(long, default_value_t = 256 << 20)]
    snapshot_bytes: u64,
    /// How many entries that are in a snapshot are kept in the log, or as many bytes as make a snapshot.
    #[arg(long, default_value_t = 5_000)]
    keep_entries: u64,
    /// End when the input ends: with the process that started it.
    #[arg(long)]
    attended: bool,
    /// Remove this directory when the input ends, so that nothing is left of a process that was killed.
    #[arg(long, requires = "attended", value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Put a bug back.
    #[arg(long, value_parser = mutant)]
    mutant: Option<Mutant>,
}

fn named(text: &str) -> Result<(MemberId, String), String> {
    let (id, address) = text.split_once('=').ok_or("expected MEMBER=HOST:PORT")?;
    Ok((id.parse().map_err(|error| format!("{error}"))?, address.to_owned()))
}

fn mutant(text: &str) -> Result<Mutant, &'static str> {
    match text {
        "stale-reads" => Ok(Mutant::StaleReads),
        "unforced-log" => Ok(Mutant::UnforcedLog),
        "restored-leaders" => Ok(Mutant::RestoredLeaders),
        "unheard-followers" => Ok(Mutant::UnheardFollowers),
        _ => Err("there are stale-reads, unforced-log, restored-leaders and unheard-followers"),
    }
}

/// Does it.
pub fn run(command: KvCommand) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    runtime.block_on(async {
        match command {
            KvCommand::Node(args) => node(*args).await,
            KvCommand::Put { service, key, value } => {
                Ok(client(&service)?.put(key, value.into_bytes()).await?)
            }
            KvCommand::Get { service, key } => {
                let value = client(&service)?.get(key.as_str()).await?;
                let value = value.with_context(|| format!("there is no {key}"))?;
                Ok(std::io::stdout().write_all(&value)?)
            }
            KvCommand::Status { service } => status(&service).await,
        }
    })
}

fn client(args: &ServiceArgs) -> anyhow::Result<KvClient> {
    let addresses: BTreeMap<_, _> = args.addresses.iter().cloned().collect();
    let first = *addresses.keys().next().context("there are no members")?;
    Ok(KvClient::new(&args.service, &addresses, &args.identity()?, first, Duration::from_secs(10))?)
}

async fn status(args: &ServiceArgs) -> anyhow::Result<()> {
    let client = client(args)?;
    let mut out = std::io::stdout();
    for (id, _) in &args.addresses {
        match client.status(*id).await {
            Ok(status) => writeln!(out, "{id}: {status:?}")?,
            Err(error) => writeln!(out, "{id}: {error}")?,
        }
    }
    Ok(())
}

async fn node(args: NodeArgs) -> anyhow::Result<()> {
    let (attended, scratch) = (args.attended, args.scratch.clone());
    if attended {
        std::thread::spawn(move || {
            let _ = std::io::stdin().lines().count();
            // Others are at it as well, and some may still write.
            for _ in 0..REMOVES {
                let removed = scratch.as_ref().map(std::fs::remove_dir_all);
                if scratch.as_ref().is_none_or(|scratch| !scratch.exists()) {
                    break;
                }
                tracing::debug!(?removed, "not yet");
                std::thread::sleep(Duration::from_millis(20));
            }
            std::process::exit(0);
        });
    }
    let node = KvNode::start(config(args)?).await?;
    writeln!(std::io::stdout(), "ready")?;
    let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let failed = tokio::select! {
        _ = end.recv() => None,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            None
        }
        reason = node.ended() => Some(reason),
    };
    node.shutdown().await;
    // Supervisors learn that the process is not well, and clients that they have to ask another.
    match failed {
        Some(reason) => anyhow::bail!("{reason}. Mend that, and start the member again"),
        None => Ok(()),
    }
}

fn config(args: NodeArgs) -> anyhow::Result<KvNodeConfig> {
    let identity = args.service.identity()?;
    let addresses: BTreeMap<_, _> = args.service.addresses.into_iter().collect();
    let mut peers: BTreeMap<_, _> = args.peers.into_iter().collect();
    let listen = peers.remove(&args.me).context("there is no --peer for this member itself")?;
    let listen: SocketAddr = listen.parse().with_context(|| format!("{listen} is no address"))?;
    let oracle: Oracle =
        args.oracle.parse().with_context(|| format!("{} is no oracle", args.oracle))?;
    let preference = match args.preference.as_str() {
        "never" => Preference::Never,
        number => {
            Preference::Rank(number.parse().context("--preference takes a number, or never")?)
        }
    };
    let members = addresses.keys().copied();
    let election = Config::new(args.me, members, args.interval, args.detect)?
        .with_guarantee(PeerGuarantee::Fenced)?
        .with_oracle(oracle)
        .with_preference(preference);
    Ok(KvNodeConfig {
        election: PeerSetup {
            group: args.service.service.clone(),
            listen,
            peers,
            advertise: None,
            identity,
            protocol: election.into(),
            state: args.directory.join("election"),
            start: if args.new { Start::New } else { Start::Stored },
        },
        service: args.service.service,
        addresses,
        directory: args.directory,
        driver: DriverConfig { patience: args.patience, ..DriverConfig::default() },
        timing: if args.wan { RaftTiming::WAN } else { RaftTiming::LAN },
        snapshot_every: args.snapshot_every,
        snapshot_bytes: args.snapshot_bytes,
        keep_entries: args.keep_entries,
        interim_serves: !args.no_interim,
        mutant: args.mutant,
    })
}
