//! `mandate lab failover`: how long a real group is without a leader, and whether two ever act at once.
//!
//! Five member processes on loopback. Whoever leads *acts*: it checks its mandate and, if that holds,
//! writes down its term and the time, some thousand times a second. All run on one host and read one
//! clock, so acts can be compared: the time from the fault to the first act of the next leader, how long
//! acts of two leaders overlap, and how often the old one acted after the new one had begun.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mandate_proto::identity::MemberId;
use serde::Serialize;

use crate::args::{Cause, FailoverArgs, GuaranteeName};
use crate::exit::Exit;
use crate::output::{self, Format};

mod actor;
mod group;

pub(crate) use actor::run as act;
use group::{Act, Group};

/// How long a leader is left in peace before the next fault, so that all follow it and are linked.
const PEACE: Duration = Duration::from_millis(700);

/// How long the next leader may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Serialize)]
struct Document {
    engine: &'static str,
    guarantee: String,
    cause: String,
    kills: usize,
    median_ms: f64,
    p95_ms: f64,
    max_ms: f64,
    /// The longest time in which two acted in turn.
    overlap_ms: f64,
    /// Acts of an old leader after the first of the new one.
    stale_acts: u64,
    /// Acts in all, so that one sees how closely it was watched.
    acts: u64,
}

pub(crate) fn run(args: &FailoverArgs, format: Format) -> anyhow::Result<Exit> {
    let mut group = Group::start(args)?;
    let bar = output::progress(args.kills.into(), "faults");
    let mut measured = Measured::default();
    for _ in 0..args.kills {
        measured.add(fault(&mut group, args)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let document = measured.document(args, group.acts());
    let is_safe = document.stale_acts == 0 || args.guarantee == GuaranteeName::Fenced;
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => output::print(text(&document))?,
    }
    Ok(if is_safe { Exit::Success } else { Exit::ClaimFailed })
}

/// What one fault came to.
struct Failover {
    took: Duration,
    overlap: Duration,
    stale_acts: u64,
}

/// Strikes the leader and waits for the next.
fn fault(group: &mut Group, args: &FailoverArgs) -> anyhow::Result<Failover> {
    let leader = group.wait_for(PATIENCE, |_| true)?;
    sleep(PEACE);
    let leader = group.latest().unwrap_or(leader);
    let struck = group::now();
    match args.cause {
        Cause::Kill => group.kill(leader.member)?,
        Cause::Pause => group.signal(leader.member, "-STOP")?,
        Cause::Transfer => group.transfer(leader.member)?,
    }
    let next = group.wait_for(PATIENCE, |act| act.term > leader.term)?;
    if args.cause == Cause::Pause {
        // It sleeps on for a while after the next has begun, and then finds itself where it was.
        sleep(args.lease * 2);
        group.signal(leader.member, "-CONT")?;
        sleep(args.lease);
    } else {
        sleep(Duration::from_millis(100));
    }
    let acts = group.drain();
    if args.cause == Cause::Kill {
        group.restart(leader.member)?;
    }
    let first = first_of(&acts, next.term).unwrap_or(next.at);
    let old = acts.iter().filter(|act| act.term == leader.term && act.at > first);
    let overlap = old.clone().map(|act| act.at - first).max().unwrap_or_default();
    Ok(Failover {
        took: Duration::from_nanos(first.saturating_sub(struck)),
        overlap: Duration::from_nanos(overlap),
        stale_acts: old.count() as u64,
    })
}

fn first_of(acts: &[Act], term: u64) -> Option<u64> {
    acts.iter().filter(|act| act.term == term).map(|act| act.at).min()
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

    fn document(mut self, args: &FailoverArgs, acts: u64) -> Document {
        self.took_ms.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = self.took_ms.len().saturating_sub(1);
            self.took_ms.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
        };
        Document {
            engine: "peer",
            guarantee: match args.guarantee {
                GuaranteeName::Fenced => "fenced".into(),
                GuaranteeName::Leased => format!("leased, {}", output::readable(args.lease)),
            },
            cause: format!("{:?}", args.cause).to_lowercase(),
            kills: self.took_ms.len(),
            median_ms: at(0.5),
            p95_ms: at(0.95),
            max_ms: at(1.0),
            overlap_ms: output::ms(self.overlap),
            stale_acts: self.stale_acts,
            acts,
        }
    }
}

fn text(document: &Document) -> String {
    format!(
        "{} times {}, {}:\n\n  until the next leader acts   median {:.1} ms, 95 % within {:.1} ms, at most {:.1} ms\n  \
         two acted in turn for        {:.1} ms at most\n  acts of a leader after its successor's first   {}\n\n\
         {} acts were compared.",
        document.kills,
        document.cause,
        document.guarantee,
        document.median_ms,
        document.p95_ms,
        document.max_ms,
        document.overlap_ms,
        document.stale_acts,
        document.acts,
    )
}

/// A member's place among the processes.
fn place(member: MemberId) -> usize {
    member.get() as usize - 1
}

/// Waits for `look`, with a bound.
fn within<T>(
    bound: Duration,
    what: &str,
    mut look: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        anyhow::ensure!(began.elapsed() < bound, "not within {bound:?}: {what}");
        sleep(Duration::from_millis(1));
    }
}
