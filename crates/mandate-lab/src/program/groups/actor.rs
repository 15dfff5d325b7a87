//! `mandate lab actor`: one member process of an experiment, by the lines of
//! [`mandate_conformance::protocol`].

#[cfg(feature = "kafka")]
use std::path::Path;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use mandate::kafka;
use mandate_conformance::actor::{self, Behaviour};
#[cfg(feature = "kafka")]
use mandate_conformance::cancellation::Handle;
use mandate_conformance::history::now;
use mandate_ledger::Change;
use mandate_proto::election::Figures;
use mandate_proto::identity::MemberId;
use mandate_proto::oracle::Oracle;
use mandate_proto::pole::installation::Safeguard;
use mandate_proto::score::Score;
use mandate_runtime::Election;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::chaos::lapses::line;
use super::guarded::Writer;
#[cfg(feature = "kafka")]
use super::memory;
use mandate_cli::args::StartArgs;
use mandate_cli::exit::Exit;
use mandate_cli::ledger::LedgerArgs;
use mandate_cli::logging;
use mandate_cli::program_runtime::block_on;
use mandate_cli::sql::MemberArgs;
use mandate_cli::wait::WaitArgs;

/// For so long a database may be gone.
const DATABASE_RETURNS: Duration = Duration::from_secs(10);

/// How often figures change.
const FIGURES_CHANGE: Duration = Duration::from_millis(700);

/// For so long a broker may be gone.
const BROKER_RETURNS: Duration = Duration::from_secs(60);

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
    /// A member on a ledger.
    #[command(flatten)]
    ledger: LedgerArgs,
    /// A plain consumer instead, which leads whenever it has the partition; on a ledger.
    #[cfg(feature = "kafka")]
    #[arg(long)]
    plain: bool,
    /// Between two acts, in microseconds.
    #[arg(long, default_value_t = 1000)]
    pace_us: u64,
    /// The socket of a register to write to at every act.
    #[arg(long)]
    register: Option<PathBuf>,
    /// Write to a table of one's own while leading, too, in transactions that check the term; on a database.
    #[arg(long)]
    guarded: bool,
    /// Score oneself by this, with a score of the application that changes; on a database.
    #[arg(long)]
    oracle: Option<Oracle>,
    /// Look at the mandate once, and then act without end: what no program should do.
    #[arg(long)]
    careless: bool,
    /// Count a change of members as settled before a quorum has it, as the leader: what no member does. Of the peer engine.
    #[arg(long)]
    hasty: bool,
}

pub(crate) fn run(args: &ActorArgs) -> anyhow::Result<Exit> {
    // What an operator would read is kept with the rest that a member says.
    logging::begin("warn");
    block_on(async {
        match &args.config {
            Some(config) => of_peers(args, config).await,
            None if args.ledger.reach.brokers.is_some() => on_ledger(args).await,
            None => on_database(args).await,
        }
    })?;
    Ok(Exit::Success)
}

async fn of_peers(args: &ActorArgs, config: &Path) -> anyhow::Result<()> {
    let bug = args.hasty.then_some(Safeguard::QuorumSettles);
    let builder = mandate::peer::from_file(config)?.with_start(args.start.start()).without(bug);
    let member = builder.start().await?;
    let behaviour = args.behaviour(member.id());
    let election = member.election().clone();
    Ok(actor::run(election, behaviour, async || member.shutdown().await).await?)
}

async fn on_database(args: &ActorArgs) -> anyhow::Result<()> {
    let address = args.database.at.address()?.context("give --config or --url")?;
    let mut config = args.database.resolve(&address, args.database.at.group_or("lab"))?;
    if let Some(oracle) = &args.oracle {
        config.config = config.config.with_oracle(oracle.clone());
    }
    let member =
        WaitArgs { wait: Some(DATABASE_RETURNS) }.until(async || Ok(config.start().await?)).await?;
    let behaviour = args.behaviour(member.id());
    let election = member.election().clone();
    if args.guarded {
        let (address, group) = (address.clone(), member.group().to_owned());
        let Behaviour { member, careless, .. } = behaviour;
        Writer { address, group, member, careless }.start(&election)?;
    }
    if args.oracle.is_some() {
        tokio::spawn(change_figures(election.clone(), member.id()));
    }
    Ok(actor::run(election, behaviour, async || member.shutdown().await).await?)
}

/// Tells a member other figures again and again, so that who should come next changes.
async fn change_figures(election: Election, me: MemberId) {
    for step in 0_u64.. {
        let score = (u64::from(me.get()) * 5 + step * 3) % 7;
        let application = Score::new(&[score as f64]).ok();
        let figures = Figures { application, ..Figures::default() };
        election.set_figures(figures);
        tokio::time::sleep(FIGURES_CHANGE).await;
    }
}

async fn on_ledger(args: &ActorArgs) -> anyhow::Result<()> {
    let MemberArgs { at, member, .. } = &args.database;
    let config = args.ledger.resolve(at.group_or("lab"), *member)?;
    #[cfg(feature = "kafka")]
    if let Some(path) = config.brokers.strip_prefix(memory::SCHEME) {
        let me = member.unwrap_or(MemberId::new(0));
        let joined = memory::join(Path::new(path), config.session, me);
        let joined = joined.map_err(|error| anyhow::anyhow!("could not join: {error}"))?;
        let election = joined.election().clone();
        return Ok(
            actor::run(election, args.behaviour(me), async || joined.shutdown().await).await?
        );
    }
    #[cfg(feature = "kafka")]
    if args.plain {
        let election = super::plain::start(&config)?;
        let behaviour = args.behaviour(member.unwrap_or(MemberId::new(0)));
        return Ok(
            actor::run(election.clone(), behaviour, async || election.shutdown().await).await?
        );
    }
    let member = started(&config).await?;
    let behaviour = args.behaviour(member.id());
    let election = member.election_of("0")?;
    if let Some(kafka) = member.kafka() {
        tokio::spawn(tell_changes(kafka.roles().changes()));
    }
    Ok(actor::run(election, behaviour, async || member.shutdown().await).await?)
}

/// Tells of every partition that comes to be led and is led no more, for readers of the log.
async fn tell_changes(mut changes: Receiver<Change>) {
    loop {
        match changes.recv().await {
            Ok(change) => {
                if let Some(line) = line(now(), &change.event) {
                    eprintln!("{line}");
                }
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// A member that finds no broker is started again, as a process supervisor would.
async fn started(config: &kafka::Builder) -> Result<mandate::Member, mandate::Error> {
    let began = Instant::now();
    loop {
        match config.start().await {
            Err(error) if began.elapsed() < BROKER_RETURNS => {
                tracing::debug!("not started: {error:#}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            started => return started,
        }
    }
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
