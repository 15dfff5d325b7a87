//! The arguments of `mandate lab wan`, and what `--help` says of them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, value_parser};
use mandate_lab::wan::control::ControlRequest;
use mandate_lab::wan::fault::NetworkFault;

/// The emulator that is meant if none is named.
pub(super) const DEFAULT_NAME: &str = "wan";

const UP_HELP: &str = "\
The topology is a TOML file, the same as for `mandate oracle rank`:
  [[rtt]]              # a round trip between two sites; within a site it is 0
  a = \"slac\"
  b = \"caltech\"
  ms = 9.88
  jitter_ms = 0.1      # optional: standard deviation of the delay each way, with a Pareto tail
  loss = 0.001         # optional: share of packets lost each way
  mbit = 1000          # optional: bandwidth each way
  [[server]]
  id = \"p1\"
  site = \"slac\"
  [[host]]             # optional: a host that is no member
  name = \"client\"
  site = \"caltech\"

Example:
  mandate lab wan up docs/examples/three-data-centres.toml
  mandate lab wan exec p1 -- ping 10.77.0.4         # in another terminal";

#[derive(Debug, Subcommand)]
pub(crate) enum WanCommand {
    /// Start the network of a topology, and keep it up until Ctrl-C or `down`.
    ///
    /// Each server and host gets a network namespace and an address; packets between them take as long as the
    /// topology says. Needs root, /dev/net/tun and iproute2.
    #[command(after_help = UP_HELP)]
    Up(UpArgs),
    /// Run a command on one of the hosts.
    ///
    /// It has the host's name and address in MANDATE_WAN_HOST and MANDATE_WAN_ADDRESS. Its exit code is passed on.
    /// When the network ends, so does the command.
    #[command(after_help = "\
Example: a member that listens on its host's address:
  mandate lab wan exec p1 -- mandate node --config p1.toml --new")]
    Exec(ExecArgs),
    /// Let something go wrong, or heal it.
    #[command(after_help = "\
A place is a host, a site, `all`, or several with commas. Faults of different kinds add up on a link; of one kind the
last counts.

Examples:
  mandate lab wan fault cut p1                  # p1 is cut off from all others
  mandate lab wan fault cut p1,p2 p3,p4,p5      # a partition
  mandate lab wan fault one-way p1 p2           # p2 does not hear p1, but p1 hears p2
  mandate lab wan fault loss slac fnal 5%
  mandate lab wan fault delay p1 all 50ms       # each way
  mandate lab wan fault heal")]
    Fault {
        #[command(flatten)]
        name: NameArgs,
        #[command(subcommand)]
        fault: FaultCommand,
    },
    /// Hosts, what went over each link, and which faults there are.
    Status(NameArgs),
    /// End the network, and the commands on it.
    Down(NameArgs),
    /// Become a command inside a namespace: how `lab chaos` starts members.
    #[command(hide = true)]
    Enter(EnterArgs),
    /// Measure how precise the emulator is on this machine.
    ///
    /// Round trips of 0, 9.88, 20.75, 53.26 and 77.06 ms, the throughput of a TCP connection over each, packets a
    /// second, and processor time. Exit code 4 if a mean is off by more than 0.3 ms and 1 %.
    Check(CheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Which emulator; several can run beside each other.
    #[arg(long, default_value = DEFAULT_NAME, value_name = "NAME", value_parser = name)]
    pub(super) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// The topology; `-` reads standard input.
    pub(super) topology: PathBuf,
    #[command(flatten)]
    pub(super) name: NameArgs,
    /// Loss and jitter come from it.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub(super) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(super) name: NameArgs,
    /// On which host.
    pub(super) host: String,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EnterArgs {
    /// What to open to enter it.
    pub(super) namespace: PathBuf,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Pings for each round trip.
    #[arg(long, default_value_t = 500, value_parser = value_parser!(u32).range(10..=100_000), value_name = "N")]
    pub(super) pings: u32,
    /// How long each TCP connection sends.
    #[arg(long, default_value = "4s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(super) stream: Duration,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum FaultCommand {
    /// Nothing passes between A and B, either way.
    Cut {
        /// One side.
        a: String,
        /// The other; everyone else if left out.
        #[arg(default_value = "all")]
        b: String,
    },
    /// Nothing passes from FROM to TO; the other way is as it was.
    OneWay {
        /// Who is not heard.
        from: String,
        /// By whom; everyone else if left out.
        #[arg(default_value = "all")]
        to: String,
    },
    /// So many packets are lost between A and B, besides what the link loses.
    Loss {
        /// One side.
        a: String,
        /// The other.
        b: String,
        /// Such as 5% or 0.05.
        #[arg(value_parser = share)]
        share: f64,
    },
    /// Packets between A and B take so much longer, each way.
    Delay {
        /// One side.
        a: String,
        /// The other.
        b: String,
        /// Such as 50ms.
        #[arg(value_parser = fault_time)]
        time: Duration,
    },
    /// The delay between A and B varies by so much more, each way.
    Jitter {
        /// One side.
        a: String,
        /// The other.
        b: String,
        /// The standard deviation, such as 10ms.
        #[arg(value_parser = fault_time)]
        time: Duration,
    },
    /// All is well again: everywhere, or between A and B.
    Heal {
        /// One side.
        a: Option<String>,
        /// The other; everyone else if left out.
        b: Option<String>,
    },
}

impl FaultCommand {
    pub(super) fn request(&self) -> ControlRequest {
        let fault = match self.clone() {
            FaultCommand::Cut { a, b } => NetworkFault::Cut { a, b },
            FaultCommand::OneWay { from, to } => NetworkFault::OneWay { from, to },
            FaultCommand::Loss { a, b, share } => NetworkFault::Loss { a, b, share },
            FaultCommand::Delay { a, b, time } => NetworkFault::Delay { a, b, delay: time },
            FaultCommand::Jitter { a, b, time } => NetworkFault::Jitter { a, b, jitter: time },
            FaultCommand::Heal { a: None, .. } => return ControlRequest::Heal,
            FaultCommand::Heal { a: Some(a), b } => {
                NetworkFault::Heal { a, b: b.unwrap_or_else(|| "all".into()) }
            }
        };
        ControlRequest::Inflict { fault }
    }
}

fn name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=64).contains(&text.len()) && text.chars().all(allowed) {
        return Ok(text.into());
    }
    Err("a name is 1 to 64 letters, digits, hyphens and underscores".into())
}

fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (text, 1.0),
    };
    match number.parse::<f64>().map(|number| number / unit) {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is written 5% or 0.05".into()),
    }
}

fn fault_time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time <= Duration::from_secs(60) => Ok(time),
        Ok(_) => Err("at most 60s".into()),
        Err(error) => Err(format!("{error}; times are written 50ms or 1s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_written_both_ways_and_times_are_bounded() {
        assert_eq!((share("5%"), share("0.05"), share("30 %")), (Ok(0.05), Ok(0.05), Ok(0.3)));
        assert!(share("5").is_err() && share("much").is_err() && share("-1%").is_err());
        assert!(fault_time("50ms").is_ok() && fault_time("2min").is_err());
        assert!(name("two words").is_err() && name("a-b_1").is_ok());
    }
}
