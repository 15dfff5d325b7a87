//! The arguments of `mandate run`.

use std::path::PathBuf;

use crate::args::StartArgs;
use crate::client::ApiArgs;
use crate::sql::MemberArgs;

/// What elects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RunEngine {
    /// A database.
    Sql,
}

/// Run a command where leadership is, and nowhere else.
///
/// Leadership is the local daemon's; or, with --config, that of a member of its own; or, with --url, it is elected on
/// a database, where nothing else is needed: the group has the name of the role unless told otherwise.
///
/// When this host leads, the command is started, with MANDATE_TERM and MANDATE_ROLE in its
/// environment. If leadership is lost, the command and everything it has started are ended before that: SIGTERM,
/// then SIGKILL, also if this program itself was killed or, with leases, stopped. When the command ends, leadership is given back
/// at once and its exit code passed on.
///
/// SIGINT, SIGQUIT and SIGTERM are passed on to the command, which then has five seconds to end; SIGHUP, SIGUSR1,
/// SIGUSR2 and SIGWINCH are passed on.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: in two terminals, and end one of the two.
  mandate run backup --url sqlite:./mandate.db -- ./backup.sh")]
pub(crate) struct RunArgs {
    /// What is led: a name for the command's environment.
    pub(crate) role: String,
    /// Be a member of the group, with this configuration (see `mandate node --help`). Without it the local daemon
    /// is asked.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What elects, if neither a configuration nor a daemon does. With `sql` and no --url: a file of SQLite that all
    /// commands of this account on this host share.
    #[arg(long, value_enum, conflicts_with = "config")]
    pub(crate) engine: Option<RunEngine>,
    #[command(flatten)]
    pub(crate) database: MemberArgs,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
    #[command(flatten)]
    pub(crate) start: StartArgs,
    /// After losing leadership wait to lead again, instead of ending with exit code 5.
    #[arg(long)]
    pub(crate) again: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
