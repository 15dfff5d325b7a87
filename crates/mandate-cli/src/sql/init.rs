//! `mandate sql`: the tables.

use mandate_sql::schema::{Dialect, script};
use mandate_sql::{Address, Database};

use super::UrlText;
use crate::exit::Exit;
use crate::output;

/// Tables for elections on a database.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SqlCommand {
    /// Make the tables, or bring them up to date; harmless where they are.
    ///
    /// SQLite needs no such thing: members make their file themselves.
    #[command(after_help = "\
Example: once, by whoever may make tables; then members need much less, which --print shows.
  mandate sql init --url postgres://admin@db.example/orders")]
    Init(InitArgs),
}

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
    let SqlCommand::Init(args) = command;
    let address = args.url.address()?;
    if args.print {
        let dialect = match &address {
            Address::Sqlite(_) => Dialect::Sqlite,
            Address::Postgres(_) => Dialect::Postgres,
            Address::MySql(_) => Dialect::MySql,
        };
        output::print(script(dialect).trim_end())?;
        return Ok(Exit::Success);
    }
    tokio::runtime::Runtime::new()?.block_on(Database::make_schema(&address))?;
    output::print(format!("{address} is ready for elections"))?;
    Ok(Exit::Success)
}
