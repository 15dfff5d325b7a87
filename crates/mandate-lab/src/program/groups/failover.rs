//! `mandate lab failover`: how long a real group is without a leader, and whether two ever act at once.
//!
//! Five member processes on loopback. The leader *acts*: it reads the clock, asks its mandate, and if
//! that holds, says its term and the time, some thousand times a second. All run on one host and read one
//! clock, so acts can be compared: the time from the fault to the first act of the next leader, how long
//! acts of two leaders overlap, and how many of them a register that checks terms would have refused.

use std::thread::sleep;
use std::time::Duration;

use clap::value_parser;
use mandate_conformance::group::{ActorSettings, ProcessGroup};
use mandate_conformance::history::{Act, now};
use mandate_conformance::protocol::Instruction;
use mandate_conformance::register::Fence;
use mandate_conformance::subject::EngineUnderTest;
use mandate_proto::identity::MemberId;
use mandate_runtime::Start;
use serde::Serialize;

#[cfg(feature = "kafka")]
use super::{Engine, OnLedger};
use super::{EngineArgs, large};
use mandate_cli::exit::Exit;
use mandate_cli::output::{self, Format};

/// How long a leader is left in peace before the next fault, so that all are linked with all, as they are
/// most of the time.
const PEACE: Duration = Duration::from_millis(700);

/// Between two acts: the resolution of what is measured.
const PACE: Duration = Duration::from_micros(250);

/// What a handover may take, as a multiple of what a plain consumer group takes: claim and proof cost two round trips.
const GOAL_RATIO: f64 = 1.3;

/// How long a deposed leader is watched after its successor's first act.
const WATCHED: Duration = Duration::from_millis(100);

/// Real member processes on loopback, of which the leader is made to fail again and again.
#[derive(Debug, clap::Args)]
pub(crate) struct FailoverArgs {
    #[command(flatten)]
    pub(super) engine: EngineArgs,
    /// What happens to the leader.
    #[arg(long, value_enum, default_value_t)]
    pub(super) cause: Cause,
    /// How often.
    #[arg(long, default_value_t = 50, value_parser = value_parser!(u32).range(1..=100_000), value_name = "N")]
    pub(super) kills: u32,
    /// How many members: processes up to 9; on a database up to 5000, most of them in one process.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(3..=5000), value_name = "N")]
    pub(super) members: u32,
    /// Inject the same faults into a plain consumer group in turn, and compare; on a ledger.
    #[cfg(feature = "kafka")]
    #[arg(long)]
    plain: bool,
    /// Have leaders look at their mandate once and then act without end, to see that this is noticed.
    #[arg(long, hide = true)]
    careless: bool,
}

/// What happens to a leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Cause {
    /// SIGKILL.
    #[default]
    Kill,
    /// SIGSTOP for longer than a lease, then SIGCONT.
    Pause,
    /// It is cut off from all others, and goes on acting for as long as its mandate holds.
    Cut,
    /// It is asked to hand over.
    Transfer,
    /// It is asked to give up.
    Resign,
}

impl Cause {
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Serialize)]
struct Document {
    engine: &'static str,
    guarantee: String,
    cause: String,
    kills: usize,
    #[serde(flatten)]
    times: Times,
    /// The same for a plain consumer group, if that was asked for, and our median as a multiple of its.
    #[serde(skip_serializing_if = "Option::is_none")]
    plain: Option<Times>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// The longest time for which an old leader went on acting after the first act of the new one.
    overlap_ms: f64,
    /// Acts that a register would have refused, because it had seen a higher term.
    stale_acts: u64,
    /// Acts in all, so that one sees how closely it was watched.
    acts: u64,
    /// What the guarantee forbids and was seen.
    violations: Vec<String>,
}

/// From the fault to the first act of the next leader.
#[derive(Serialize)]
struct Times {
    median_ms: f64,
    p95_ms: f64,
    max_ms: f64,
}

pub(crate) fn run(args: &FailoverArgs, format: Format) -> anyhow::Result<Exit> {
    if args.members > large::BEYOND {
        return large::run(args, format);
    }
    let (subject, plain) = subjects(args)?;
    let conduct =
        ActorSettings { pace: PACE, register: false, careless: args.careless, hasty: false };
    let peace = args.engine.settles_within().max(PEACE);
    let mut group = ProcessGroup::start(&*subject, args.members, conduct)?;
    let plain = plain.map(|plain| ProcessGroup::start(&*plain, args.members, conduct));
    let mut plain = plain.transpose()?;
    let bar = crate::progress::bar(args.kills.into(), "faults");
    let (mut measured, mut compared) = (Measured::default(), Measured::default());
    for _ in 0..args.kills {
        measured.add(fault(&mut group, args.cause, peace)?);
        if let Some(plain) = &mut plain {
            compared.add(fault(plain, args.cause, peace)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let violations: Vec<_> = group.violations()?.iter().map(ToString::to_string).collect();
    let plain = plain.map(|_| compared.times());
    let acts = group.history()?.counted();
    let document = Document { violations, ..measured.document(args, acts, plain) };
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => output::print(text(&document))?,
    }
    let holds =
        document.violations.is_empty() && document.ratio.is_none_or(|ratio| ratio <= GOAL_RATIO);
    Ok(if holds { Exit::Success } else { Exit::ClaimFailed })
}

type Subjects = (Box<dyn EngineUnderTest>, Option<Box<dyn EngineUnderTest>>);

/// What is measured, and what beside it.
fn subjects(args: &FailoverArgs) -> anyhow::Result<Subjects> {
    let with_cables = args.cause == Cause::Cut;
    #[cfg(feature = "kafka")]
    if args.plain {
        anyhow::ensure!(
            args.engine.engine == Engine::Ledger && args.engine.ledger.in_memory().is_none(),
            "--plain is for --engine ledger on Kafka"
        );
        let ours = args.engine.ledger.subject(with_cables)?;
        let plain = OnLedger { is_plain: true, ..ours.clone() };
        return Ok((Box::new(ours), Some(Box::new(plain))));
    }
    Ok((args.engine.subject(with_cables)?, None))
}

/// What one fault came to.
struct Failover {
    took: Duration,
    overlap: Duration,
    stale_acts: u64,
}

/// Makes the leader fail and waits for the next.
fn fault(group: &mut ProcessGroup, cause: Cause, peace: Duration) -> anyhow::Result<Failover> {
    group.settle()?;
    sleep(peace);
    let leader = group.settle()?;
    group.history()?.forget_acts();
    let injected_at = now();
    inject(group, cause, leader)?;
    let next = group.next(leader.term)?;
    recover(group, cause, leader)?;
    let history = group.history()?;
    let last = history.reign(leader.term, leader.member).map_or(0, |reign| reign.last);
    Ok(Failover {
        took: Duration::from_nanos(next.at.saturating_sub(injected_at)),
        overlap: Duration::from_nanos(last.saturating_sub(next.at)),
        stale_acts: stale(history.acts()),
    })
}

fn inject(group: &mut ProcessGroup, cause: Cause, leader: Act) -> anyhow::Result<()> {
    match cause {
        Cause::Kill => group.kill(leader.member)?,
        Cause::Pause => group.pause(leader.member)?,
        Cause::Cut => group.cables()?.isolate(leader.member),
        Cause::Resign => obeyed(group.order(leader.member, Instruction::Resign)?)?,
        Cause::Transfer => {
            let to = leader.member.get() % group.members().len() as u32 + 1;
            obeyed(group.order(leader.member, Instruction::Transfer(MemberId::new(to)))?)?;
        }
    }
    Ok(())
}

fn obeyed(answer: Result<String, String>) -> anyhow::Result<()> {
    answer.map(|_| ()).map_err(|reason| anyhow::anyhow!("the leader refused: {reason}"))
}

/// Watches the old leader for a while, and brings it back.
fn recover(group: &mut ProcessGroup, cause: Cause, leader: Act) -> anyhow::Result<()> {
    let lease = group.guarantee().lease();
    match cause {
        Cause::Kill => {
            sleep(WATCHED);
            group.restart(leader.member, Start::Stored)?;
        }
        Cause::Pause => {
            // It sleeps on for a while after the next has begun, and then finds itself where it was.
            sleep(lease * 2);
            group.resume(leader.member)?;
            group.settle()?;
        }
        Cause::Cut => {
            sleep(lease.max(WATCHED));
            group.cables()?.heal();
            group.settle()?;
        }
        Cause::Transfer | Cause::Resign => sleep(WATCHED),
    }
    Ok(())
}

/// Acts that a register which checks terms would have refused.
fn stale(acts: &[Act]) -> u64 {
    let mut acts = acts.to_vec();
    acts.sort_by_key(|act| act.at);
    let mut fence = Fence::default();
    acts.iter().filter(|act| fence.admit(act.term).is_err()).count() as u64
}

#[derive(Default)]
struct Measured {
    took_ms: Vec<f64>,
    overlap: Duration,
    stale_acts: u64,
}

impl Measured {
    fn add(&mut self, failover: Failover) {
        self.took_ms.push(output::ms(failover.took));
        self.overlap = self.overlap.max(failover.overlap);
        self.stale_acts += failover.stale_acts;
    }

    fn times(&mut self) -> Times {
        self.took_ms.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = self.took_ms.len().saturating_sub(1);
            self.took_ms.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
        };
        Times { median_ms: at(0.5), p95_ms: at(0.95), max_ms: at(1.0) }
    }

    fn document(mut self, args: &FailoverArgs, acts: u64, plain: Option<Times>) -> Document {
        let times = self.times();
        let ratio = plain.as_ref().map(|plain| times.median_ms / plain.median_ms);
        Document {
            engine: args.engine.engine_name(),
            guarantee: args.engine.relied_on(),
            cause: args.cause.name(),
            kills: self.took_ms.len(),
            times,
            plain,
            ratio,
            overlap_ms: output::ms(self.overlap),
            stale_acts: self.stale_acts,
            acts,
            violations: Vec::new(),
        }
    }
}

fn text(document: &Document) -> String {
    let Times { median_ms, p95_ms, max_ms } = document.times;
    let mut text = format!(
        "{} times {}, {}, {}:\n\n  until the next leader acts   median {median_ms:.1} ms, 95 % within {p95_ms:.1} ms, at most {max_ms:.1} ms\n  \
         two acted in turn for        {:.1} ms at most\n  acts of a leader after its successor's first   {}\n\n\
         {} acts were compared.",
        document.kills,
        document.cause,
        document.engine,
        document.guarantee,
        document.overlap_ms,
        document.stale_acts,
        document.acts,
    );
    if let (Some(plain), Some(ratio)) = (&document.plain, document.ratio) {
        text += &format!(
            "\n\nA plain consumer group, with the same faults in turn: median {:.1} ms, 95 % within {:.1} ms, at most {:.1} ms. \
             Ours takes {ratio:.2} times as long.",
            plain.median_ms, plain.p95_ms, plain.max_ms
        );
    }
    for violation in &document.violations {
        text += &format!("\nBROKEN: {violation}");
    }
    text
}
