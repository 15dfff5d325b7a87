//! `mandate lab idle`: what a group costs that does nothing but stand by.
//!
//! Daemons as `mandate node` runs them, on loopback, with a leader that nobody disturbs. What the kernel
//! counts is read from `/proc`; packets and bytes from the daemons' own `/metrics`.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::value_parser;
use mandate_conformance::process::ChildProcess;
use mandate_proto::identity::MemberId;
use mandate_runtime::Start;
use serde::Serialize;

use super::peer::PeerGroup;
use super::{Engine, EngineArgs, Peers, guarantee_text};
use crate::operator;
use mandate_cli::args::positive_duration;
use mandate_cli::client::DaemonClient;
use mandate_cli::exit::Exit;
use mandate_cli::node::document::StatusDocument;
use mandate_cli::output::{self, Format};

/// How long the group may take to elect and to agree.
const PATIENCE: Duration = Duration::from_secs(30);

/// What standing by may cost a member, at most: a share of a core, and memory.
const GOAL_CPU: f64 = 0.01;
const GOAL_MIB: f64 = 20.0;

#[derive(Debug, clap::Args)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// How many members.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=16), value_name = "N")]
    members: u32,
    /// How long they are measured.
    #[arg(long = "for", default_value = "20s", value_parser = positive_duration, value_name = "TIME")]
    length: Duration,
}

#[derive(Serialize)]
struct Document {
    engine: &'static str,
    guarantee: String,
    seconds: f64,
    members: Vec<Cost>,
}

/// What one member costs.
#[derive(Serialize)]
struct Cost {
    member: String,
    leads: bool,
    /// Share of a core.
    cpu: f64,
    sent_packets_per_s: f64,
    sent_bytes_per_s: f64,
    received_packets_per_s: f64,
    received_bytes_per_s: f64,
    resident_mib: f64,
    threads: u64,
    descriptors: u64,
}

pub(crate) fn run(args: &IdleArgs, format: Format) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        args.engine.engine == Engine::Peer,
        "what standing by costs is measured of daemons of the peer engine; see `mandate lab rival mandate` for a database"
    );
    let guarantee = args.engine.guarantee();
    let directory = tempfile::tempdir().context("could not make a private directory")?;
    let peers = Peers { guarantee, with_cables: false };
    let group = PeerGroup::make(peers, args.members, directory.path())?;
    let mut processes = BTreeMap::new();
    for member in group.apis().keys() {
        let mut command =
            group.run(&[operator::COMMAND, "node"], &group.configuration(*member), Start::New);
        let log = fs::File::create(directory.path().join(format!("{member}.log")))?;
        let process = ChildProcess::spawn(&mut command, log, |_| ());
        processes.insert(*member, process.with_context(|| format!("could not start {member}"))?);
    }
    let leader = agreed(&group)?;
    let before = counts(&group, &processes)?;
    sleep(args.length);
    let after = counts(&group, &processes)?;
    anyhow::ensure!(agreed(&group)? == leader, "leadership moved while the group stood by");
    let costs =
        before.iter().map(|(member, before)| cost(*member, &leader, before, &after[member]));
    let document = Document {
        engine: args.engine.engine_name(),
        guarantee: guarantee_text(guarantee),
        seconds: args.length.as_secs_f64(),
        members: costs.collect(),
    };
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => output::print(text(&document))?,
    }
    let dear = |cost: &Cost| cost.cpu > GOAL_CPU || cost.resident_mib > GOAL_MIB;
    Ok(if document.members.iter().any(dear) { Exit::ClaimFailed } else { Exit::Success })
}

/// Waits until all daemons name the same leader and term.
fn agreed(group: &PeerGroup) -> anyhow::Result<(String, u64)> {
    let began = Instant::now();
    loop {
        let known = group.apis().values().map(|api| {
            let status: StatusDocument = DaemonClient::on_loopback(*api).get("/v1/status").ok()?;
            Some((status.leader?, status.term?))
        });
        let known: Option<Vec<_>> = known.collect();
        if let Some([first, others @ ..]) = known.as_deref()
            && others.iter().all(|other| other == first)
        {
            return Ok(first.clone());
        }
        anyhow::ensure!(began.elapsed() < PATIENCE, "no leader that all know within {PATIENCE:?}");
        sleep(Duration::from_millis(20));
    }
}

/// What was counted of a process up to some time.
struct Counts {
    at: Instant,
    cpu_ticks: u64,
    resident_kib: u64,
    threads: u64,
    descriptors: u64,
    sent: (f64, f64),
    received: (f64, f64),
}

fn counts(
    group: &PeerGroup,
    processes: &BTreeMap<MemberId, ChildProcess>,
) -> anyhow::Result<BTreeMap<MemberId, Counts>> {
    let count = |(member, process): (&MemberId, &ChildProcess)| {
        let counts = count(process.id(), &group.apis()[member].to_string());
        Ok((*member, counts.with_context(|| format!("could not measure {member}"))?))
    };
    processes.iter().map(count).collect()
}

fn count(process: u32, api: &str) -> anyhow::Result<Counts> {
    let read = |name: &str| {
        let path = format!("/proc/{process}/{name}");
        fs::read_to_string(&path).with_context(|| format!("could not read {path}"))
    };
    let status = read("status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.with_context(|| format!("/proc says nothing of {name}"))
    };
    let metrics = DaemonClient::on_loopback(api.parse()?).page("/metrics")?;
    let metric = |name: &str, direction: &str| {
        let line = format!("mandate_{name}_total{{direction=\"{direction}\"}} ");
        let value = metrics.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok());
        value.with_context(|| format!("/metrics says nothing of {name}"))
    };
    let both = |direction| {
        Ok::<_, anyhow::Error>((metric("packets", direction)?, metric("bytes", direction)?))
    };
    Ok(Counts {
        at: Instant::now(),
        cpu_ticks: cpu_ticks(&read("stat")?).context("/proc says nothing of time")?,
        resident_kib: field("VmRSS")?,
        threads: field("Threads")?,
        descriptors: fs::read_dir(format!("/proc/{process}/fd"))?.count() as u64,
        sent: both("sent")?,
        received: both("received")?,
    })
}

/// User and system time. The name of the program, in parentheses, may contain anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn cost(member: MemberId, leader: &(String, u64), before: &Counts, after: &Counts) -> Cost {
    let seconds = (after.at - before.at).as_secs_f64();
    let member = member.to_string();
    Cost {
        leads: member == leader.0,
        member,
        cpu: (after.cpu_ticks - before.cpu_ticks) as f64 / ticks_per_second() / seconds,
        sent_packets_per_s: (after.sent.0 - before.sent.0) / seconds,
        sent_bytes_per_s: (after.sent.1 - before.sent.1) / seconds,
        received_packets_per_s: (after.received.0 - before.received.0) / seconds,
        received_bytes_per_s: (after.received.1 - before.received.1) / seconds,
        resident_mib: after.resident_kib as f64 / 1024.0,
        threads: after.threads,
        descriptors: after.descriptors,
    }
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

fn text(document: &Document) -> String {
    let mut text = format!(
        "{}, {}: {} members stood by for {:.0} s.\n\n         \
         core   resident  threads  descriptors     sent a second       received a second",
        document.engine,
        document.guarantee,
        document.members.len(),
        document.seconds
    );
    for cost in &document.members {
        text += &format!(
            "\n  {:<4} {:>5.2} % {:>6.1} MiB {:>8} {:>12}   {:>5.1} in {:>6.0} bytes   {:>5.1} in {:>6.0} bytes{}",
            cost.member,
            cost.cpu * 100.0,
            cost.resident_mib,
            cost.threads,
            cost.descriptors,
            cost.sent_packets_per_s,
            cost.sent_bytes_per_s,
            cost.received_packets_per_s,
            cost.received_bytes_per_s,
            if cost.leads { "   leads" } else { "" }
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_is_read_whatever_its_name_is() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 9 8 7 6 120 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(150));
        assert_eq!(cpu_ticks("7 (a) S 1"), None);
    }
}
