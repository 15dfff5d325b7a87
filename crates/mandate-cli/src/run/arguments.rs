//! The arguments of `mandate run`.

use std::path::PathBuf;

use crate::args::StartArgs;
use crate::client::ApiArgs;

/// Run a command where leadership is, and nowhere else.
///
/// When this host leads, the command is started, with MANDATE_TERM and MANDATE_ROLE in its
/// environment. If leadership is lost, the command and everything it has started are ended before that: SIGTERM,
/// then SIGKILL, also if this program itself was killed or, with leases, stopped. When the command ends, leadership is given back
/// at once and its exit code passed on.
///
/// SIGINT, SIGQUIT and SIGTERM are passed on to the command, which then has five seconds to end; SIGHUP, SIGUSR1,
/// SIGUSR2 and SIGWINCH are passed on.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// What is led: a name for the command's environment.
    pub(crate) role: String,
    /// Be a member of the group, with this configuration (see `mandate node --help`). Without it the local daemon
    /// is asked.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
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
