//! `mandate sql`: the tables, and terms after a restore.

use std::time::Duration;

use mandate::sql::engine::Database;
use mandate::sql::engine::schema::script;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::Config;

use super::UrlText;
use crate::exit::Exit;
use crate::output;

/// How long a statement may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tables for elections on a database.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SqlCommand {
    /// Make the tables, or bring them up to date; harmless where they are.
    ///
    /// SQLite needs no such thing: members make their file themselves.
    #[command(after_help = "\
Example: once, by someone who may make tables; then members need much less, which --print shows.
  mandate sql init --url postgres://admin@db.example/orders")]
    Init(InitArgs),
    /// Raise a group's terms, after an older database was put back.
    ///
    /// A backup, or a standby that was promoted too early, may not know of terms that were given out. From now on terms of
    /// this group and of its roles are above the one that is given. Who leads leads no more; the next does when leases that may
    /// have been lost are over.
    #[command(after_help = "\
Example: the logs of the members show that term 41 was led before the restore.
  mandate sql raise --url postgres://mandate@db.example/orders --group backup --above 41")]
    Raise(RaiseArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RaiseArgs {
    /// The database: sqlite:FILE, postgres://... or mysql://...
    #[arg(long, value_name = "URL", env = "MANDATE_URL", hide_env_values = true)]
    url: UrlText,
    /// The group.
    #[arg(long, value_name = "NAME")]
    group: String,
    /// The highest term that was ever given out.
    #[arg(long, value_name = "TERM", value_parser = clap::value_parser!(u64).range(1..=MAX_ABOVE))]
    above: u64,
}

/// There must be terms left above it.
const MAX_ABOVE: u64 = i64::MAX as u64 / 2;

#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// The database: sqlite:FILE, postgres://... or mysql://...
    #[arg(long, value_name = "URL", env = "MANDATE_URL", hide_env_values = true)]
    url: UrlText,
    /// Only print what would be done, and what members must be granted: for those who run their own migrations.
    #[arg(long)]
    print: bool,
}

pub(crate) fn run(command: &SqlCommand) -> anyhow::Result<Exit> {
    let args = match command {
        SqlCommand::Init(args) => args,
        SqlCommand::Raise(args) => return raise(args),
    };
    let address = args.url.address()?;
    if args.print {
        output::print(script(address.dialect()).trim_end())?;
        return Ok(Exit::Success);
    }
    tokio::runtime::Runtime::new()?.block_on(Database::make_schema(&address))?;
    output::print(format!("{address} is ready for elections"))?;
    Ok(Exit::Success)
}

fn raise(args: &RaiseArgs) -> anyhow::Result<Exit> {
    let address = args.url.address()?;
    // Only where the group's row is gone: the next leader publishes its own round and lease.
    let first = Config::new(MemberId::new(0), Duration::from_secs(1))?.first();
    let above = Term::new(args.above);
    let raised = tokio::runtime::Runtime::new()?.block_on(async {
        let database = Database::open(&address, PATIENCE).await?;
        database.raise(&args.group, above, &first).await
    })?;
    let term = raised.control.version.term;
    output::print(match term == above {
        true => format!("the next term of {} is above {above}", args.group),
        false => format!("nothing to do: {} is at term {term} already", args.group),
    })?;
    Ok(Exit::Success)
}
