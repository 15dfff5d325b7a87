//! Every command and flag, and what `--help` says of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, value_parser};
use mandate::Start;
use mandate_proto::identity::MemberId;
use mandate_proto::oracle::Oracle;

use crate::certs::CertsArgs;
use crate::client::ApiArgs;
use crate::demo::DemoArgs;
use crate::ledger::ReachArgs;
use crate::members::MemberCommand;
use crate::output::Format;
use crate::run::{BecomeArgs, GuardArgs, RunArgs};
use crate::sql::{SqlCommand, WhereArgs};
use crate::wait::WaitArgs;

const EXIT_CODES: &str = "\
Exit codes:
  0   all is well
  1   something failed; the message says what, and what to do
  2   the arguments make no sense
  3   it cannot be had: no parameters meet the bounds (qos), nobody can lead (oracle)
  4   an experiment does not show what it should (lab)
  5   leadership was lost, and the command was stopped (run)
  10  the simulator, or chaos, saw something that must never happen
  11  the simulator, or chaos, waited in vain for something that must happen
  12  the simulated program panicked
  126 the command was found but cannot be executed (run)
  127 the command was not found (run)

`run` otherwise ends with the exit code of its command, or 128 and the signal that ended it;
128 and the signal, too, if it was asked to stop before it led.
Durations are written 330ms, 1s, 1h, 2days.";

/// Leader election for replicated services: detect, elect, prove.
#[derive(Debug, Parser)]
#[command(name = "mandate", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// How to show results.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch five real members elect, lose and re-elect a leader; kill, pause and cut them off yourself.
    Demo(DemoArgs),
    /// Failure detection by what is wanted, not by guessing timeouts.
    Qos {
        #[command(subcommand)]
        command: QosCommand,
    },
    /// Choose what makes a good leader, and see whom that elects.
    Oracle {
        #[command(subcommand)]
        command: OracleCommand,
    },
    /// Run the protocols through the simulator: faults, then healing, many seeds (mandate-lab).
    #[command(disable_help_flag = true)]
    Sim(LabArgs),
    /// Experiments: conformance, chaos, failover, the papers' evaluations (mandate-lab).
    #[command(disable_help_flag = true)]
    Lab(LabArgs),
    Init(InitArgs),
    Certs(CertsArgs),
    /// Run a member of a group: the daemon.
    Node(NodeArgs),
    Run(Box<RunArgs>),
    #[command(hide = true)]
    Guard(GuardArgs),
    #[command(hide = true)]
    Become(BecomeArgs),
    /// Have the best member lead in a cluster that has elections of its own: etcd.
    #[cfg(feature = "steer")]
    Steer {
        #[command(subcommand)]
        command: crate::steer::SteerCommand,
    },
    /// Tables for elections on a database.
    Sql {
        #[command(subcommand)]
        command: SqlCommand,
    },
    /// Who leads, since when and why, and who answers, as the local daemon knows it; or as a database or a broker says.
    Status(AskArgs),
    /// The last elections.
    History(AskArgs),
    /// Why an election went as it did: who stood, and who won on what.
    Explain(ExplainArgs),
    /// Show what happens, as it happens.
    Observe(AskArgs),
    /// Have the leader give leadership up, and leave it to the others.
    Resign(ResignArgs),
    /// Have the leader hand leadership over.
    Transfer(TransferArgs),
    /// Who the members of a group are; add, replace and remove them while it runs.
    Member {
        #[command(subcommand)]
        command: Box<MemberCommand>,
    },
    /// Print the description of the daemon's HTTP interface, for generators of clients (OpenAPI).
    Openapi,
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum QosCommand {
    /// Compute heartbeat interval and margin for what is wanted on a link.
    ///
    /// Says what the parameters promise; or, if nothing can do it, why, and what comes nearest.
    #[command(after_help = "\
Example: notice a crash within a second, err at most once an hour and for a second at most,
on a link that loses 1.8 % of messages:
  mandate qos plan --detect 1s --mistake-every 1h --mistake-lasts 1s \\
      --loss 0.0176 --variance-ms2 25.3")]
    Plan(PlanArgs),
    /// Measure a link: of the local daemon, live, or from a trace of arrivals; try a detector on it.
    ///
    /// Without a trace, the local daemon says what it measures of the link from its leader, what is wanted, and what
    /// it has delivered. A trace is CSV with a header and two columns, in order of arrival:
    /// `sequence,arrival_ms`. Sender's and monitor's clock need not agree.
    #[command(after_help = "\
Example: mandate lab nfd-l writes traces to try this on:
  mandate qos measure lab-nfd-l/arrivals-bursts.csv --interval 328.957ms --detect 1s")]
    Measure(MeasureArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// Notice a crash within this time (T_D).
    #[arg(long, value_parser = positive_duration, value_name = "TIME")]
    pub(crate) detect: Duration,
    #[command(flatten)]
    pub(crate) mistakes: MistakeArgs,
    /// Share of messages that are lost, 0 to 1 (p_L).
    #[arg(long, value_parser = share, allow_negative_numbers = true, value_name = "SHARE")]
    pub(crate) loss: f64,
    /// Variance of the delay, in milliseconds squared (V(D)).
    #[arg(long, value_parser = variance, allow_negative_numbers = true, value_name = "MS2")]
    pub(crate) variance_ms2: f64,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MistakeArgs {
    /// Suspect a live process at most this often, on average (T_MR).
    #[arg(long, value_parser = positive_duration, default_value = "1h", value_name = "TIME")]
    pub(crate) mistake_every: Duration,
    /// Correct such a mistake within this time, on average (T_M).
    #[arg(long, value_parser = positive_duration, default_value = "1s", value_name = "TIME")]
    pub(crate) mistake_lasts: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Mean one-way delay, if known, or the round trip: taken off the detection time.
    #[arg(long, value_parser = duration, default_value = "0s", value_name = "TIME")]
    pub(crate) delay: Duration,
    /// Never send heartbeats closer together than this, nor let one be late by less.
    #[arg(long, value_parser = positive_duration, default_value = "1ms", value_name = "TIME")]
    pub(crate) min_interval: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MeasureArgs {
    /// The trace; `-` reads standard input. Without one, the local daemon is asked what it measures.
    #[arg(requires = "interval")]
    pub(crate) trace: Option<PathBuf>,
    /// Time between the sender's heartbeats.
    #[arg(long, value_parser = positive_duration, value_name = "TIME", requires = "trace")]
    pub(crate) interval: Option<Duration>,
    /// Try a detector with this detection time on the trace, and plan for it (T_D).
    #[arg(long, value_parser = positive_duration, value_name = "TIME", requires = "trace")]
    pub(crate) detect: Option<Duration>,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
    #[command(flatten)]
    pub(crate) mistakes: MistakeArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OracleCommand {
    /// Rank the servers of a topology: every candidate's score, the winner, and why.
    ///
    /// With a leader that is up, it answers whether another would serve better; with one that is
    /// down, or without one, whom an election after its crash would choose.
    #[command(after_help = "\
Terms of an oracle, the most important first, separated by commas:
  history      position of the log; more is better
  requests     requests a second that clients send to it; more is better
  consensus    time to commit if it led; less is better
  latency      mean request latency if it led; less is better
  worst        worst-case request latency if it led; less is better
  rotating     whose turn it is after the last leader
  preference   what the operator gave it; more is better
  application  the application's own figure, of members that run; more is better
  constant     ids decide
A width behind a slash makes near-equals tie: latency/10ms, history/100.

The topology is a TOML file:
  [[rtt]]
  a = \"slac\"
  b = \"caltech\"
  ms = 9.88
  [[server]]
  id = \"p1\"
  site = \"slac\"
  requests = 333.3
  history = 42         # optional
  preference = 1       # optional; \"never\" is never a candidate

Example:
  mandate oracle rank topology.toml --oracle \"latency/10ms, history\" --down p5 --leader p5")]
    Rank(RankArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RankArgs {
    /// The topology; `-` reads standard input.
    pub(crate) topology: PathBuf,
    /// What makes a good leader, such as "latency/10ms, history".
    #[arg(long)]
    pub(crate) oracle: Oracle,
    /// A server that is down; may be given several times.
    #[arg(long, value_name = "SERVER")]
    pub(crate) down: Vec<MemberId>,
    /// The server that leads, or led before it went down.
    #[arg(long, value_name = "SERVER")]
    pub(crate) leader: Option<MemberId>,
}

/// Words for `mandate-lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct LabArgs {
    /// What `mandate-lab` is asked to do; `--help` says what it can.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) args: Vec<std::ffi::OsString>,
}

/// Set up a group on this host, to try things with.
///
/// Certificates and a configuration for each member, all on loopback. Copy from it for a group on several hosts.
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Where to put it.
    #[arg(default_value = "group", value_name = "DIRECTORY")]
    pub(crate) dir: PathBuf,
    /// The group's name: small letters, digits and hyphens.
    #[arg(long, default_value = "orders")]
    pub(crate) group: String,
    /// How many members.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) members: u32,
    /// Member p1 listens on the port above this, p2 on the next, and so on; their apis a thousand higher.
    #[arg(long, default_value_t = 7100, value_parser = value_parser!(u16).range(1..=64000))]
    pub(crate) port: u16,
}

#[derive(Debug, clap::Args)]
// Not wrapped: what is wrapped inside a comment of TOML cannot be copied.
#[command(after_help = mandate::config::EXAMPLE, term_width = 0)]
pub(crate) struct NodeArgs {
    /// The member's configuration.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) start: StartArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

/// What a member starts from.
#[derive(Debug, clap::Args)]
pub struct StartArgs {
    /// The member takes part for the first time. The first start of a group needs all of its members: nobody votes before
    /// all have answered each other once.
    #[arg(long, conflicts_with_all = ["lost", "members_changed"])]
    pub new: bool,
    /// The member has lost its disk: it asks all others what it may have promised, and has no vote until
    /// they have answered.
    #[arg(long, conflicts_with = "members_changed")]
    pub lost: bool,
    /// The list of members, or the guarantee, was changed at all members while all were stopped, or this member was added
    /// by that: it asks all others what they have promised, and has no vote until they have answered.
    #[arg(long)]
    pub members_changed: bool,
    /// The member is to be added to a group that runs: it waits until the leader adds it. With a state of a member that was added
    /// so it starts as ever.
    #[arg(long, conflicts_with_all = ["new", "lost", "members_changed"])]
    pub join: bool,
}

impl StartArgs {
    pub fn start(&self) -> Start {
        match (self.new, self.lost, self.members_changed) {
            (true, _, _) => Start::New,
            (_, true, _) => Start::Lost,
            (_, _, true) => Start::Changed,
            _ if self.join => Start::Join,
            _ => Start::Stored,
        }
    }
}

/// Who is asked: the local daemon; or, with `--group`, a database (`--url`) or a broker (`--brokers`).
#[derive(Debug, clap::Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) api: ApiArgs,
    #[command(flatten)]
    pub(crate) database: WhereArgs,
    #[command(flatten)]
    pub(crate) ledger: ReachArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Which election; the last, unless told otherwise.
    #[arg(long)]
    pub(crate) term: Option<u64>,
}

/// By way of which daemon; or by way of a database, with `--url` and `--group`: without a daemon, a line in the leader's row.
#[derive(Debug, clap::Args)]
pub(crate) struct ResignArgs {
    #[command(flatten)]
    pub(crate) api: ApiArgs,
    #[command(flatten)]
    pub(crate) database: WhereArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TransferArgs {
    #[command(flatten)]
    pub(crate) ask: ResignArgs,
    /// The successor, such as p2.
    pub(crate) to: MemberId,
}

pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; durations are written 330ms, 1s, 1h"))
}

pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than zero".into()),
        duration => Ok(duration),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1, such as 0.02 for 2 %".into()),
    }
}

fn variance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(variance) if (0.0..=1e18).contains(&variance) => Ok(variance),
        _ => Err("a variance is a number from 0 to 1e18, in milliseconds squared".into()),
    }
}

/// A command without what is hidden: completions would offer that.
pub(crate) fn visible(command: &clap::Command) -> clap::Command {
    // Names must live for as long as the program, which prints them and ends.
    let mut shown = clap::Command::new(&*command.get_name().to_owned().leak());
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown
        .args(command.get_arguments().cloned())
        .groups(command.get_groups().cloned())
        .subcommands(commands.map(visible))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn completions_do_not_offer_what_is_hidden() {
        // Bash: its script holds names alone, the others' also help texts.
        let mut script = Vec::new();
        let bash = clap_complete::Shell::Bash;
        clap_complete::generate(bash, &mut visible(&Args::command()), "mandate", &mut script);
        let script = String::from_utf8(script).unwrap();
        for hidden in ["become", "guard"] {
            assert!(!script.contains(hidden), "{hidden}");
        }
        for shown in ["transfer", "--token-file", "completions"] {
            assert!(script.contains(shown), "{shown}");
        }
    }

    #[test]
    fn options_stand_under_their_own_headings() {
        let command = Args::command();
        let heading = |name: &str, option: &str| {
            let command = command.find_subcommand(name).unwrap();
            let option = command.get_arguments().find(|it| it.get_long() == Some(option));
            option.unwrap_or_else(|| panic!("{name}")).get_help_heading()
        };
        for option in ["api", "token-file", "ca", "new", "lost", "again", "url", "group"] {
            assert_eq!(heading("run", option), None, "run --{option}");
        }
        for option in ["brokers", "topic", "roles", "instance"] {
            assert_eq!(heading("run", option), Some("On a ledger"), "run --{option}");
        }
        assert_eq!((heading("explain", "term"), heading("status", "api")), (None, None));
    }

    #[test]
    fn what_is_to_be_copied_from_a_help_text_stands_there_as_it_was_written() {
        let mut command = Args::command();
        command.build();
        let node = command.find_subcommand_mut("node").unwrap().render_help().to_string();
        assert!(node.contains(mandate::config::EXAMPLE), "{node}");
    }

    #[cfg(feature = "steer")]
    #[test]
    fn a_comment_behind_a_command_in_a_help_text_is_not_wrapped() {
        let mut command = Args::command();
        command.build();
        let steer = command.find_subcommand_mut("steer").unwrap();
        let etcd = steer.find_subcommand_mut("etcd").unwrap().render_help().to_string();
        let line =
            |line: &str| line.contains("--shadow") && line.trim_end().ends_with("# look first");
        assert!(etcd.lines().any(line), "{etcd}");
    }

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_that_make_no_sense_say_how_to_write_them() {
        assert_eq!(duration("330ms"), Ok(Duration::from_millis(330)));
        assert!(duration("fast").unwrap_err().contains("written 330ms"));
        assert!(positive_duration("0s").is_err());
    }
}
