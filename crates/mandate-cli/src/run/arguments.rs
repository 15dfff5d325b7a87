//! The arguments of `mandate run`.

use std::path::PathBuf;
use std::time::Duration;

use mandate::Value;

use crate::args::{StartArgs, duration};
use crate::client::ApiArgs;
use crate::ledger::LedgerArgs;
use crate::sql::MemberArgs;
use crate::wait::WaitArgs;

/// What elects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RunEngine {
    /// A database.
    Sql,
    /// Kafka: the coordinator of a consumer group.
    Ledger,
}

/// Run a command where leadership is, and nowhere else.
///
/// Leadership is the local daemon's; or, with --config, that of a member of its own; or it is elected on a database
/// (--url) or on Kafka (--brokers), where nothing else is needed: the group has the name of the role unless told
/// otherwise.
///
/// When this host leads, the command is started, with MANDATE_TERM and MANDATE_ROLE in its
/// environment. If leadership is lost, the command and everything it has started are ended before that: SIGTERM,
/// then SIGKILL, also if this program itself was killed or, with leases, stopped. When the command ends, leadership is given back
/// at once and its exit code passed on; another host that waits starts the command there, so it should be a service and
/// not a job that is to be done once. Beside a daemon leadership is given back when no other command holds it.
///
/// SIGINT, SIGQUIT and SIGTERM are passed on to the command, which then has the time of --grace to end; SIGHUP, SIGUSR1,
/// SIGUSR2 and SIGWINCH are passed on. Before there is a command, SIGINT, SIGQUIT, SIGTERM and SIGHUP end this program,
/// with 128 and the signal as its exit code.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: in two terminals, and end one of the two.
  mandate run worker --url sqlite:./mandate.db -- ./worker
  mandate run worker --engine ledger --brokers kafka1:9092,kafka2:9092 -- ./worker")]
pub(crate) struct RunArgs {
    /// What is led: a name for the command's environment. Beside a daemon, one command at a time has a name. In a group with several roles (--roles), which of them: a number
    /// is that role, any other name a key whose hash slot it is.
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
    pub(crate) ledger: LedgerArgs,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
    #[command(flatten)]
    pub(crate) start: StartArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// A value to publish with the term whenever this host leads, such as the command's address: everyone sees it with the leader
    /// (`mandate status`, `/leader`). Text of up to 4 KiB. Goes before `value` in the configuration. The command finds it in
    /// MANDATE_LEADER_VALUE.
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: Option<Value>,
    /// How long the command may take to end after it was asked to, before it is killed; never longer than the lease.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "TIME")]
    pub(crate) grace: Duration,
    /// After losing leadership wait to lead again, instead of ending with exit code 5.
    #[arg(long)]
    pub(crate) again: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

impl RunArgs {
    /// What elects: what is named, or what the place that is named stands for; `None`: a daemon does.
    pub(crate) fn engine(&self) -> anyhow::Result<Option<RunEngine>> {
        let brokers = self.ledger.reach.brokers.is_some();
        Ok(match (self.engine, self.database.at.url.is_some()) {
            (Some(RunEngine::Sql), _) | (None, true) if brokers => anyhow::bail!(
                "--brokers is for --engine ledger, and --url for --engine sql: name one of the two"
            ),
            (Some(engine), _) => Some(engine),
            (None, true) => Some(RunEngine::Sql),
            (None, false) => brokers.then_some(RunEngine::Ledger),
        })
    }
}
